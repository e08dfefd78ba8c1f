//! `gateway policy why ID`: evaluates a recorded request with today's policies.

use clap::Args;
use serde_json::json;

use super::load::{PolicyFiles, load};
use crate::app::{Code, Failure, Paint, Terminal, safe};
use crate::audit::Record;
use crate::cli::{remedy, why};
use crate::gateway::floor;
use crate::grant::request;
use crate::names::{Blame, ReasonCode};
use crate::policy::Explanation;

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
        let settings = remedy::origins(config.as_ref());
        let to = request::access(&request).to;
        if let Some(reason) = floor(&to, &settings)
            && explanation.proposal.take().is_some()
        {
            let to = to.authority.to_string();
            let next = reason.next_step_for(&to, "");
            explanation.next_step = format!("{} {next}", reason.meaning());
        }
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
            print_now(terminal, outcome, &explanation);
        }
        Ok(Code::Ok)
    }
}

fn unjudged() -> Failure {
    Failure::new("the request never came before a policy")
        .because("it was refused while it was read, so that it has no session, host, method or path to judge")
        .next("`gateway why ID` says for what it was refused")
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
