//! `gateway policy why ID`: evaluates a recorded request with today's policies.

use clap::Args;
use serde_json::json;

use super::load::{PolicyFiles, load, sources};
use crate::audit::Record;
use crate::cli::failure::{Code, Failure};
use crate::cli::terminal::{Paint, Terminal, safe};
use crate::cli::{proposal, why};
use crate::config::Config;
use crate::credential::preset;
use crate::gateway::floor;
use crate::message::{EncodedSlash, Host, RequestTarget, Scheme};
use crate::names::{CredentialName, SessionId};
use crate::policy::{Explanation, OwnedFacts};

/// Explains a recorded request.
#[derive(Args)]
pub(in crate::cli) struct PolicyWhy {
    #[command(flatten)]
    why: why::Why,
    #[command(flatten)]
    named: PolicyFiles,
}

impl PolicyWhy {
    pub(in crate::cli) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let found = self.why.find_in_whole_log()?;
        let config = self.why.config()?;
        let Some(policies) = load(
            terminal,
            sources(&self.named.policies, config.as_ref()),
            config.as_ref(),
        ) else {
            return Ok(Code::Failed);
        };
        let request = request(&found.exchange, config.as_ref())?;
        let facts = request.facts();
        let generation = policies.current();
        let verdict = generation.ask(&facts);
        let mut explanation = generation.explain(&facts, &verdict);
        let settings = proposal::settings(config.as_ref());
        if let Some(reason) = floor(&proposal::origin(&request), &settings)
            && explanation.proposal.take().is_some()
        {
            let next = reason.next_step_for("", "");
            explanation.next_step = format!("{} {next}", reason.meaning());
        }
        if terminal.json() {
            terminal.document(&json!({
                "recorded": found.exchange,
                "now": {
                    "outcome": verdict.outcome.word(), "reason": explanation.reason,
                    "next_step": explanation.next_step, "proposal": explanation.proposal,
                },
            }));
        } else {
            print_then(terminal, &found.exchange);
            print_now(terminal, verdict.outcome.word(), &explanation);
        }
        Ok(Code::Ok)
    }
}

/// Prints what was decided when the request was made.
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
fn print_now(terminal: &Terminal, outcome: &str, explanation: &Explanation) {
    let word = terminal.paint(Paint::Bold, "now ");
    terminal.line(format!("{word} {outcome}: {}", safe(&explanation.reason)));
    terminal.line("  judged without query values, fields and content, which the log does not hold");
    if !explanation.next_step.is_empty() {
        let word = terminal.paint(Paint::Bold, "next");
        terminal.line(format!("{word} {}", safe(&explanation.next_step)));
    }
    if let Some(proposal) = &explanation.proposal {
        terminal.line("");
        proposal.lines().for_each(|line| terminal.line(safe(line)));
    }
}

/// Reads a record back into canonical types. If that fails, the request was refused before any
/// policy saw it.
///
/// The record holds no fields, no content and no actions. A policy that needs those allows less
/// here than it did, or says so.
///
/// # Errors
/// Returns a [`Failure`] if the exchange never became a request that a policy could judge.
pub(in crate::cli) fn request(
    record: &Record,
    config: Option<&Config>,
) -> Result<OwnedFacts, Failure> {
    let text = |part: Option<&str>| part.map(str::to_owned).ok_or_else(unjudged);
    let session = SessionId::new(&text(record.session.as_deref())?).map_err(|_| unjudged())?;
    let listeners = config
        .map(|config| config.listeners.as_slice())
        .unwrap_or_default();
    let groups = listeners
        .iter()
        .find(|listener| listener.session == session)
        .map(|listener| listener.groups.as_slice())
        .unwrap_or_default();
    let scheme = match text(record.scheme.as_deref())?.as_str() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return Err(unjudged()),
    };
    let host = Host::parse(text(record.host.as_deref())?.as_bytes()).map_err(|_| unjudged())?;
    let target = target(&text(record.path.as_deref())?).ok_or_else(unjudged)?;
    let mut request = OwnedFacts::new(session, scheme, host, target);
    request.groups = groups.iter().map(|group| group.as_str().into()).collect();
    request.entry = text(record.entry.as_deref())?;
    request.port = record.port.ok_or_else(unjudged)?;
    request.method = text(record.method.as_deref())?;
    request.content_length = record.request_bytes;
    if record.request_bytes != Some(0) {
        request.content = None;
    }
    request.batch = preset::is_batch(&request.host, &request.target);
    let lent = record.lent.iter().map(|lent| lent.credential.as_str());
    request.credentials = lent
        .filter_map(|name| CredentialName::new(name).ok())
        .collect();
    Ok(request)
}

/// Returns the target as it was judged. The path of a signed request to an object store is not
/// resolved.
fn target(path: &str) -> Option<RequestTarget> {
    [EncodedSlash::Keep, EncodedSlash::Key]
        .into_iter()
        .filter_map(|slashes| RequestTarget::parse(path.as_bytes(), slashes).ok())
        .find(|target| target.path() == path)
}

fn unjudged() -> Failure {
    Failure::new("the request never came before a policy")
        .because("it was refused while it was read, so that it has no session, host, method or path to judge")
        .next("`gateway why ID` says for what it was refused")
}
