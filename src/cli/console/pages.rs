//! The pages: what waits for a person, the day, sessions, budgets and requests; the story of one
//! request; and the page that takes the link.

use http::Method;
use maud::{DOCTYPE, Markup, html};
use serde_json::{Value, json};

use crate::app::{Failure, counted, safe};
use crate::cli::allow;
use crate::cli::budgets;
use crate::cli::console::charts;
use crate::cli::console::feed::{Feed, Wanted};
use crate::cli::console::requests::{requests, story, text};
use crate::cli::console::shown::{Console, Shown};
use crate::cli::log::story::StoryRow;
use crate::cli::operate::gateways::in_path;
use crate::cli::operate::texts;
use crate::cli::proposals::proposal_rows;
use crate::grant::{AllowRequest, AllowResponse};
use crate::names::ReasonCode;

/// What a gateway says of itself now; or why it does not.
pub(super) struct Answers {
    status: Answer,
    proposals: Answer,
    sessions: Answer,
    budgets: Answer,
}

type Answer = Result<Value, Failure>;

impl Answers {
    pub(super) async fn of(shown: &Shown) -> Self {
        let get = async |path| shown.gateway.ask(Method::GET, path, None).await;
        Self {
            status: get("/v1/status").await,
            proposals: get("/v1/proposals").await,
            sessions: get("/v1/sessions").await,
            budgets: get("/v1/budgets").await,
        }
    }

    /// Returns the money that all budgets have spent, in billionths of a dollar.
    pub(super) fn spent(&self) -> Option<u64> {
        let rows = self.budgets.as_ref().ok()?["budgets"].as_array()?;
        let money = rows.iter().filter(|row| row["unit"] == "usd");
        Some(money.filter_map(|row| row["spent"].as_u64()).sum())
    }
}

/// Frames a page. `told` is the outcome of what was just done.
pub(super) fn framed(title: &str, told: &str, content: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/console.css";
                script src="/console.js" defer {}
            }
            body {
                p #told role="status" { (told) }
                main { (content) }
            }
        }
    }
}

/// The page for whoever has no cookie: its script uses the link up.
pub(super) fn entry() -> Markup {
    let content = html! {
        h1 { "gateway" }
        p #entry { "This page opens by the link that " code { "gateway console" } " prints." }
        noscript { p { "It needs its script." } }
    };
    framed("gateway", "", content)
}

/// The page itself.
pub(super) fn whole(shown: &Shown, answers: &Answers, feed: &Feed, wanted: &Wanted) -> Markup {
    let name = safe(&shown.gateway.name);
    let content = html! {
        (waits(shown, answers))
        (requests(feed, wanted))
        (side(shown, answers, feed))
        details #help {
            summary { "Keys (?)" }
            dl {
                @for (key, does) in KEYS { dt { kbd { (key) } } dd { (does) } }
            }
            p { "Words in a frame, " bdi.workload { "like these" }
                ", are the workload's: nobody vouches for them." }
        }
    };
    framed(&format!("gateway {name}"), "", content)
}

/// What changes while the page is open, besides the requests.
pub(super) fn state(shown: &Shown, answers: &Answers, feed: &Feed) -> Markup {
    html! { (waits(shown, answers)) (side(shown, answers, feed)) }
}

fn waits(shown: &Shown, answers: &Answers) -> Markup {
    let hidden = form_token(shown);
    html! {
        header #top { div #head { (head(shown, &answers.status)) } }
        section #waiting { (section("Waits for you", &answers.proposals, |all| {
            waiting(&all["proposals"], &hidden)
        })) }
    }
}

fn side(shown: &Shown, answers: &Answers, feed: &Feed) -> Markup {
    let hidden = form_token(shown);
    html! {
        aside {
            section #day { h2 #title-day { "The last day" } (charts::day(&feed.day)) }
            section #sessions { (section("Sessions", &answers.sessions, |all| {
                sessions(&all["sessions"], &hidden)
            })) }
            section #secrets { (section("Secrets", &answers.status, |status| {
                secrets(status, &hidden)
            })) }
            section #budgets { (section("Budgets", &answers.budgets, |all| {
                bars(&all["budgets"])
            })) }
        }
    }
}

fn form_token(shown: &Shown) -> Markup {
    html! { input type="hidden" name="form_token" value=(shown.form_token); }
}

/// Shows a part of the page, or why there is nothing to be shown.
fn section(title: &str, answer: &Answer, shown: impl FnOnce(&Value) -> Markup) -> Markup {
    let id = title.split(' ').next().unwrap_or_default();
    html! {
        h2 id={ "title-" (id) } { (title) }
        @match answer {
            Ok(all) => (shown(all)),
            Err(failure) => p id={ "failed-" (id) } { (safe(&failure.to_string())) },
        }
    }
}

fn head(shown: &Shown, status: &Answer) -> Markup {
    let status = status.as_ref().unwrap_or(&Value::Null);
    let draining = status["state"] == "draining";
    html! {
        h1 { "gateway " (safe(&shown.gateway.name)) }
        p {
            "generation " (status["policies"]["generation"])
            @if draining { ", stops: no connection is taken" }
            ", in " (text(&status["directory"]))
        }
    }
}

/// Shows what waits for a person, with all that an answer is for.
fn waiting(all: &Value, hidden: &Markup) -> Markup {
    let all = all.as_array().into_iter().flatten();
    let all: Vec<&Value> = all.filter(|one| one["state"] == "waiting").collect();
    html! {
        @if all.is_empty() { p #nothing { "Nothing waits." } }
        @for one in all {
            @let id = text(&one["id"]);
            article id={ "w" (id) } data-item tabindex="0" aria-label={ "waits: " (text(&one["wanted"])) } {
                (story(&proposal_rows(one)))
                (answers_to(one, &id, hidden))
            }
        }
    }
}

/// Shows the buttons by which it is answered. A rule for a proposal is shown before it is applied.
fn answers_to(one: &Value, id: &str, hidden: &Markup) -> Markup {
    let is_asked = !one["ask"].is_null();
    html! {
        div.acts {
            @if is_asked {
                (act("/v1/proposals/allow", "Allow once", "a", &[("id", id)], hidden))
            } @else {
                a.button data-key="a" href={ "/why/" (id) } { "Show the rule…" }
            }
            (act("/v1/proposals/refuse", "Deny", "d", &[("id", id)], hidden))
        }
    }
}

/// Shows a button that makes a call of the control socket.
fn act(path: &str, word: &str, key: &str, named: &[(&str, &str)], hidden: &Markup) -> Markup {
    html! {
        form method="post" action=(path) {
            (hidden)
            @for (name, value) in named { input type="hidden" name=(name) value=(value); }
            button data-key=[Some(key).filter(|key| !key.is_empty())] { (word) }
        }
    }
}

/// Shows a button that is asked about first.
fn act_after(path: &str, word: &str, sure: &str, id: &str, hidden: &Markup) -> Markup {
    html! {
        details.act id=(id) {
            summary { (word) "…" }
            (act(path, sure, "", &[], hidden))
        }
    }
}

fn sessions(all: &Value, hidden: &Markup) -> Markup {
    let all = all.as_array().into_iter().flatten();
    html! {
        @for one in all {
            @let (id, status) = (text(&one["id"]), text(&one["status"]));
            @let path = format!("/v1/sessions/{}", in_path(one["id"].as_str().unwrap_or_default()));
            article id={ "s-" (id) } class=(status) {
                h3 { bdi { (id) } " " b.verdict { (status) } }
                p {
                    @if let Some(user) = one["user"].as_str() { "for " bdi { (safe(user)) } ", " }
                    (counted(one["connections"].as_u64().unwrap_or_default(), "connection", "connections"))
                    ", " (one["exchanges"]) " under way"
                    @for (name, word) in [("groups", "in"), ("labels", "labelled"), ("credentials", "lent")] {
                        @let listed = texts(&one[name]).join(", ");
                        @if !listed.is_empty() { "; " (word) " " (listed) }
                    }
                }
                div.acts {
                    @match &*status {
                        "active" => (act(&format!("{path}/pause"), "Pause", "", &[], hidden)),
                        "paused" => (act(&format!("{path}/resume"), "Resume", "", &[], hidden)),
                        _ => (Markup::default()),
                    }
                    @if status != "ended" {
                        (act_after(&format!("{path}/end"), "End", &format!("End {id} for good"), &format!("end-{id}"), hidden))
                    }
                }
            }
        }
    }
}

/// Shows the secrets that can be revoked, and those that are.
fn secrets(status: &Value, hidden: &Markup) -> Markup {
    let revoked = status["revoked"].as_array().into_iter().flatten();
    let revoked: Vec<&str> = revoked.filter_map(Value::as_str).collect();
    let all = status["credentials"].as_array().into_iter().flatten();
    let all = all.filter_map(|one| one["name"].as_str());
    let others = all.filter(|name| !revoked.contains(name));
    let others = others.map(|name| (name, "revoke", "Revoke", "in every gateway of yours"));
    let again = revoked.iter();
    let again = again.map(|name| (*name, "restore", "Restore", "and let it be lent again"));
    html! {
        @for (name, does, word, how) in again.chain(others) {
            @let (path, name) = (format!("/v1/credentials/{}/{does}", in_path(name)), safe(name));
            div.acts id={ "secret-" (does) "-" (name) } {
                bdi { (name) }
                @if does == "restore" { b.verdict.refused { "revoked" } }
                (act_after(&path, word, &format!("{word} {name} {how}"), &format!("{does}-{name}"), hidden))
            }
        }
    }
}

fn bars(all: &Value) -> Markup {
    let all = all.as_array().map_or(&[][..], Vec::as_slice);
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    html! {
        @if all.is_empty() { p #no-budget { "None is configured." } }
        @for (at, row) in all.iter().enumerate() {
            @let whole = number(&row["most"]).saturating_add(number(&row["added"]));
            @let words = budgets::line(row);
            div.budget id={ "budget-" (at) } {
                (charts::share(&words, number(&row["spent"]), number(&row["reserved"]), whole))
                p { (words) }
            }
        }
    }
}

/// The story of a request or a proposal, and what would allow it; `None` if it is not known.
pub(super) async fn why(console: &Console, shown: &Shown, id: &str) -> Option<Markup> {
    // The request that proposes has the id of what it proposes.
    let (mut rows, is_refused) = match proposed(shown, id).await {
        Some(rows) => (rows, true),
        None => known(console, id)?,
    };
    let mut rule = None;
    if is_refused {
        let asked = json!({ "exchange": id });
        let gateway = &shown.gateway;
        let answer = gateway.ask(Method::POST, "/v1/policies/allow", Some(&asked));
        match answer.await {
            Ok(found) => rule = serde_json::from_value::<AllowResponse>(found).ok(),
            Err(why) => rows.push(StoryRow::new("no rule", safe(&why.to_string()))),
        }
    }
    let content = html! {
        p { a href="/" { "← all" } }
        h1 { "Story of " code { (safe(id)) } }
        (story(&rows))
        @if let Some(rule) = rule { (offered(&rule, id, shown)) }
    };
    Some(framed("gateway: a story", "", content))
}

/// Returns the story of an exchange with what its reason means, and whether it was refused.
fn known(console: &Console, id: &str) -> Option<(Vec<StoryRow>, bool)> {
    let feed = console.feed.lock();
    let entry = feed.of(id)?;
    let mut rows = entry.story().rows();
    let reason = entry.record.reason.as_deref();
    if let Some(code) = reason.and_then(ReasonCode::named) {
        rows.push(StoryRow::new("means", code.meaning().to_owned()));
    }
    Some((rows, reason.is_some()))
}

async fn proposed(shown: &Shown, id: &str) -> Option<Vec<StoryRow>> {
    let all = shown
        .gateway
        .ask(Method::GET, "/v1/proposals", None)
        .await
        .ok()?;
    let mut all = all["proposals"].as_array()?.iter();
    let one = all.find(|one| one["id"] == id && one["ask"].is_null())?;
    Some(proposal_rows(one))
}

/// Shows a rule with its findings, and the button that applies this very rule.
fn offered(rule: &AllowResponse, id: &str, shown: &Shown) -> Markup {
    let hidden = form_token(shown);
    let lines: Vec<String> = rule.policy.lines().map(safe).collect();
    html! {
        section #rule {
            h2 { "The narrowest rule that allows it" }
            @for told in allow::careful(rule, &AllowRequest::default()) { p.careful { (told) } }
            pre { (lines.join("\n")) }
            div.acts data-item {
                (act("/v1/policies/allow", "Apply this rule", "a",
                    &[("exchange", id), ("policy", &rule.policy)], &hidden))
            }
            p { "It is kept in " code { (safe(&rule.file)) } "." }
        }
    }
}

const KEYS: [(&str, &str); 6] = [
    ("j, k", "the next, the one before"),
    ("Enter", "the story of the chosen request"),
    (
        "a",
        "allow what is chosen; y or Enter confirms, Esc does not",
    ),
    ("d", "deny it; y or Enter confirms"),
    ("/", "choose among the requests"),
    ("?", "these keys"),
];
