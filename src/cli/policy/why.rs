//! `gateway policy why ID`, `gateway policy why 'POST https://…'`: evaluates a recorded request, or
//! one that was not made, with today's policies.

use clap::Args;
use http::Method;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::load::{PolicyFiles, load};
use crate::app::{Code, Failure, Paint, Terminal, safe};
use crate::audit::Record;
use crate::cli::{remedy, why};
use crate::config::{Config, ListenerSession};
use crate::credential::preset;
use crate::grant::request;
use crate::message::{Origin, method};
use crate::names::{Blame, ReasonCode};
use crate::policy::{Explanation, OwnedFacts, decisions};
use crate::server::floor;

/// Explains a recorded request, or one that was not made.
#[derive(Args)]
#[command(after_help = NOT_MADE)]
pub(in crate::cli) struct PolicyWhy {
    #[command(flatten)]
    why: why::Why,
    /// More of a request that was not made, as a key of a decision: `groups = ["ci"]`,
    /// `graphql = "mutation { … }"`, `git = ["update refs/heads/x"]`, `mcp = "TOOL"`
    #[arg(long, value_name = "KEY", requires = "id")]
    with: Vec<String>,
    #[command(flatten)]
    named: PolicyFiles,
}

impl PolicyWhy {
    pub(in crate::cli) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let asked = self.why.id().filter(|text| text.contains("://"));
        if let Some(asked) = asked {
            return self.not_made(terminal, asked);
        }
        if !self.with.is_empty() {
            let what = "`--with` is for a request that was not made";
            return Err(Failure::usage(what).next(NOT_MADE));
        }
        let found = self.why.find_in_whole_log(terminal)?;
        let config = self.why.config()?;
        let Some(policies) = load(terminal, &self.named.policies, config.as_ref())? else {
            return Ok(Code::Failed);
        };
        let mut request = request::of_record(&found.exchange).ok_or_else(unjudged)?;
        let mut listeners = config.iter().flat_map(|config| &config.listeners);
        let own = listeners.find(|one| one.session == request.session);
        let groups = own.into_iter().flat_map(|one| &one.groups);
        request.groups = groups.map(|group| group.as_str().into()).collect();
        let generation = policies.current();
        let (mut verdict, mut explanation) = request::asked(&generation, &request);
        let unlent = found.exchange.unlent.as_ref().filter(|_| verdict.allowed());
        if let Some(unlent) = unlent
            && let Some((lent, why)) = request::lent(&generation, &request, unlent)
        {
            (verdict, explanation) = (lent, why);
        }
        let mut outcome = verdict.outcome.word();
        let code = found.exchange.reason.as_deref().and_then(ReasonCode::named);
        if let Some(code) = code.filter(|code| code.blame() == Blame::Credential) {
            let host = found.exchange.host.as_deref().unwrap_or_default();
            let id = found.exchange.id.as_deref().unwrap_or_default();
            outcome = "unchanged";
            explanation.reason =
                format!("no policy changes `{}`: {}", code.as_str(), code.meaning());
            explanation.next_step = code.step_for_operator(host, id);
            explanation.proposal = None;
        }
        keep_to_floor(&mut explanation, &request, config.as_ref());
        if terminal.json() {
            terminal.document(&json!({
                "recorded": found.exchange,
                "now": {
                    "outcome": outcome, "reason": explanation.reason,
                    "next_step": explanation.next_step, "proposal": explanation.proposal,
                },
            }));
        } else {
            print_then(terminal, &found.exchange);
            print_now(terminal, outcome, UNRECORDED, &explanation);
        }
        Ok(Code::Ok)
    }

    /// Judges a request that was not made, by the configuration's first listener unless a key says
    /// whose it is.
    fn not_made(&self, terminal: &mut Terminal, asked: &str) -> Result<Code, Failure> {
        let config = self.why.config()?;
        let Some(policies) = load(terminal, &self.named.policies, config.as_ref())? else {
            return Ok(Code::Failed);
        };
        let cannot = |why: String| {
            let what = format!("the request `{asked}` cannot be judged");
            Failure::usage(what).because(why).next(NOT_MADE)
        };
        let mut keys: toml::Table = toml::from_str(&self.with.join("\n"))
            .map_err(|error: toml::de::Error| cannot(error.message().to_owned()))?;
        let own = config.as_ref().and_then(|config| config.listeners.first());
        if let Some(own) = own.filter(|_| !keys.contains_key("session"))
            && let ListenerSession::One(session) = &own.session
        {
            keys.insert("session".into(), session.as_str().into());
            let groups = toml::Value::from(own.groups.clone());
            keys.entry("groups").or_insert(groups);
        }
        if !keys.contains_key("now") {
            let now = OffsetDateTime::now_utc().format(&Rfc3339);
            let now = now.map_err(|error| cannot(error.to_string()))?;
            keys.insert("now".into(), now.into());
        }
        let origins = remedy::origins(config.as_ref());
        let slashes = |origin: &Origin| remedy::slashes(&origins, origin);
        let (request, verdict, mut explanation) =
            decisions::ask(&policies, asked, keys, preset::is_batch, slashes)
                .map_err(|error| cannot(error.to_string()))?;
        keep_to_floor(&mut explanation, &request, config.as_ref());
        let mut outcome = verdict.outcome.word();
        let to = request::access(&request).to;
        let floor = || floor(&to, &origins).filter(|_| verdict.allowed());
        if let Some(reason) = unread(&request).or_else(floor) {
            outcome = reason.as_str();
            explanation = Explanation {
                reason: format!("whatever policies permit: {}", reason.meaning()),
                next_step: reason.next_step_for(&to.authority.to_string(), ""),
                proposal: None,
            };
        }
        if terminal.json() {
            terminal.document(&json!({
                "session": request.session.as_str(), "outcome": outcome,
                "reason": explanation.reason, "next_step": explanation.next_step,
                "proposal": explanation.proposal,
            }));
        } else {
            let session = request.session.as_str();
            let whose = format!("as a request of session {session}; {UNSEEN}");
            print_now(terminal, outcome, &whose, &explanation);
        }
        Ok(Code::Ok)
    }
}

/// How a request that was not made is written.
const NOT_MADE: &str = "\
A request that was not made: gateway policy why 'POST https://HOST/PATH' --with 'mcp = \"TOOL\"'";

const UNRECORDED: &str =
    "judged without query values, fields and content, which the log does not hold";

const UNSEEN: &str =
    "only a run sees the addresses of a name, and all that the request itself would hold";

/// Why a request is refused while it is read, before a policy is asked.
fn unread(request: &OwnedFacts) -> Option<ReasonCode> {
    let named = Method::from_bytes(request.method.as_bytes()).ok()?;
    match method::check(&named) {
        Err(refused) => Some(refused.reason()),
        Ok(()) if request.target.overrides_method() => Some(ReasonCode::MethodOverride),
        Ok(()) if request.target.overrides_fields() => Some(ReasonCode::FieldOverride),
        Ok(()) => None,
    }
}

/// Proposes no rule for what the gateway refuses whatever policies permit, and says so.
fn keep_to_floor(explanation: &mut Explanation, request: &OwnedFacts, config: Option<&Config>) {
    let to = request::access(request).to;
    if let Some(reason) = floor(&to, &remedy::origins(config))
        && explanation.proposal.take().is_some()
    {
        let next = reason.next_step_for(&to.authority.to_string(), "");
        explanation.next_step = format!("{} {next}", reason.meaning());
    }
}

fn unjudged() -> Failure {
    Failure::new("the request never came before a policy")
        .because("it was refused while it was read, so that it has no session, host, method or path to judge")
        .next("`gateway why ID` says for what it was refused")
}

/// Prints the decision at the time of the request.
fn print_then(terminal: &Terminal, record: &Record) {
    let then = record.decision.as_deref().unwrap_or("not judged");
    let decided: Vec<_> = record.policies.iter().map(|policy| safe(policy)).collect();
    let by = if decided.is_empty() {
        String::from("no policy permitted or forbade it")
    } else {
        decided.join(", ")
    };
    let word = terminal.paint(Paint::Bold, "then");
    terminal.line(format!("{word} {}: {by}", safe(then)));
    if let Some(reason) = &record.reason {
        terminal.line(format!("  refused for {}", safe(reason)));
    }
}

/// Prints what today's policies decide.
fn print_now(terminal: &Terminal, outcome: &str, how: &str, explanation: &Explanation) {
    let word = terminal.paint(Paint::Bold, "now ");
    terminal.line(format!("{word} {outcome}: {}", safe(&explanation.reason)));
    terminal.line(format!("  {how}"));
    if !explanation.next_step.is_empty() {
        let word = terminal.paint(Paint::Bold, "next");
        terminal.line(format!("{word} {}", safe(&explanation.next_step)));
    }
    if let Some(proposal) = &explanation.proposal {
        terminal.line("");
        proposal.lines().for_each(|line| terminal.line(safe(line)));
    }
}
