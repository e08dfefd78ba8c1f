//! `gateway grants proposed` and `deny`: what waits for a person, and its refusal.

use clap::Args;
use serde_json::{Value, json};

use crate::app::{App, Code, Failure, Terminal, safe};
use crate::cli::log::story::StoryRow;
use crate::cli::operate::gateways::{ChosenGateway, Gateway};
use crate::server::ProposalState;

/// List what waits for a person: what workloads propose, and what policies ask about
#[derive(Args)]
pub(super) struct ProposalList {
    /// What was answered too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    chosen: ChosenGateway,
}

/// Refuse what a workload proposes, or what a policy asks about
///
/// A proposal stays refused for as long as its session lives; `gateway allow ID` grants it. A
/// request stays refused for ten minutes.
#[derive(Args)]
pub(super) struct Deny {
    /// The proposal or the request: its id
    id: String,
    /// Undo the refusal, so that the proposal waits again
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    chosen: ChosenGateway,
}

/// Prints the proposals that still wait at the end of `exec`.
pub(super) fn print_waiting(terminal: &Terminal, app: &App) {
    let (mut all, mut asked) = (app.shared.proposals.all(), app.shared.proposals.asked());
    all.retain(|one| one.state == ProposalState::Waiting);
    for one in all {
        let (wanted, words) = (safe(&one.wanted.shown()), quoted(&one.words));
        let told = format!("{wanted}: nobody answered the proposal. The command says: {words}");
        terminal.entry_of_peer("proposed", &told);
    }
    asked.retain(|one| one.state == ProposalState::Waiting);
    for one in asked {
        let (wanted, question) = (safe(&one.wanted.shown()), quoted(&one.words));
        terminal.entry("asked", &format!("{wanted}: nobody answered {question}"));
    }
}

/// Returns the request that a policy asks about and that waits under this id; `None` if there is
/// none.
pub(super) fn asked(gateway: &Gateway, id: &str) -> Result<Option<Value>, Failure> {
    let all = proposals(gateway)?;
    let is_it = |one: &Value| {
        one["state"] == "waiting" && !one["ask"].is_null() && one["id"].as_str() == Some(id)
    };
    Ok(all.into_iter().find(is_it))
}

/// Returns everything that an answer to a request is for, in lines for a person.
pub(super) fn ask_lines(one: &Value) -> Vec<String> {
    let line = |row: StoryRow| match row.name {
        "asks" => row.text,
        name => format!("  {name:<8} {}", row.text),
    };
    proposal_rows(one).into_iter().map(line).collect()
}

/// Returns everything of what waits for a person: of a request that a policy asks about, all that
/// an answer is for.
pub(super) fn proposal_rows(one: &Value) -> Vec<StoryRow> {
    let ask = &one["ask"];
    let text = |value: &Value| safe(value.as_str().unwrap_or_default());
    let words = |value: &Value| quoted(value.as_str().unwrap_or_default());
    let (session, wanted) = (text(&one["session"]), text(&one["wanted"]));
    if ask.is_null() {
        return vec![
            StoryRow::of_workload("request", wanted),
            StoryRow::new("session", session),
            StoryRow::of_workload("says", words(&one["why"])),
        ];
    }
    let mut rows = Vec::new();
    for each in ask["asks"].as_array().into_iter().flatten() {
        let (policy, question) = (text(&each["policy"]), text(&each["question"]));
        rows.push(StoryRow::new("asks", format!("{policy} asks: {question}")));
    }
    let user = ask["user"].as_str();
    let user = user.map(|user| format!(" of user {}", safe(user)));
    let user = user.unwrap_or_default();
    let request = format!("{wanted}, by session {session}{user}");
    rows.push(StoryRow::of_workload("request", request));
    let mut row = |name: &'static str, value: String| {
        if !value.is_empty() {
            rows.push(StoryRow::of_workload(name, value));
        }
    };
    let query = Some(&ask["query"]).filter(|query| **query != "");
    row("query", query.map(words).unwrap_or_default());
    for (name, list) in [("lends", "lends"), ("field", "fields"), ("found", "facts")] {
        for each in ask[list].as_array().into_iter().flatten() {
            row(name, words(each));
        }
    }
    let bytes = ask["content_bytes"].as_u64().unwrap_or_default();
    if bytes > 0 {
        let sha256 = text(&ask["content_sha256"]);
        row("content", format!("{bytes} bytes, SHA-256 {sha256}"));
        row("", words(&ask["content"]));
    }
    if ask["cut"] == true {
        let told = "an answer is for more than is shown";
        rows.push(StoryRow::new("cut", told.to_owned()));
    }
    let beyond = text(&ask["beyond"]);
    if !beyond.is_empty() {
        let told = format!("not covered by an answer: {beyond}");
        rows.push(StoryRow::new("beyond", told));
    }
    rows
}

impl ProposalList {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let mut all = Vec::new();
        for gateway in &self.chosen.all()? {
            for mut one in proposals(gateway)? {
                one["gateway"] = json!(gateway.name);
                all.push(one);
            }
        }
        all.retain(|one| self.all || one["state"] == "waiting");
        if terminal.json() {
            terminal.document(&json!({ "proposals": all }));
        } else {
            all.iter().for_each(|one| print(terminal, one));
        }
        Ok(Code::Ok)
    }
}

/// Returns the proposals of a gateway.
pub(super) fn proposals(gateway: &Gateway) -> Result<Vec<Value>, Failure> {
    match gateway.get("/v1/proposals")?["proposals"].take() {
        Value::Array(all) => Ok(all),
        _ => Ok(Vec::new()),
    }
}

/// Quotes a workload's words, so that they cannot end the quotation and are safe for a terminal.
/// Repeated spaces are collapsed: they could move words to the start of a line.
pub(super) fn quoted(words: &str) -> String {
    let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
    let words = words.join(" ").replace('\\', r"\\").replace('"', "\\\"");
    format!("\"{}\"", safe(&words))
}

fn print(terminal: &Terminal, one: &Value) {
    let text = |name: &str| one[name].as_str().unwrap_or_default();
    let shown = |name| safe(text(name));
    let (id, state, session) = (shown("id"), shown("state"), shown("session"));
    let wanted = shown("wanted");
    if !one["ask"].is_null() {
        terminal.line(format!("{id} {state}"));
        return ask_lines(one).iter().for_each(|line| terminal.line(line));
    }
    terminal.line_of_peer(&format!("{id} {state:<8} {session:<12} {wanted}"));
    terminal.line_of_peer(&format!("  the workload says: {}", quoted(text("why"))));
}

impl Deny {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let content = json!({ "id": self.id, "undo": self.undo });
        let gateway = self.chosen.one()?;
        let refused = gateway.post("/v1/proposals/refuse", Some(&content))?;
        let wanted = safe(refused["wanted"].as_str().unwrap_or_default());
        let word = if self.undo { "waits again" } else { "refused" };
        terminal.answer(&refused, format!("{word}: {wanted}"));
        Ok(Code::Ok)
    }
}
