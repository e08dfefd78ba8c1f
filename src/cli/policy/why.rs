//! `gateway policy why ID`: a recorded request before the policies of today.

use std::sync::Arc;
use std::time::SystemTime;

use clap::Args;
use http::HeaderMap;
use serde_json::json;

use super::{Code, Failure, Named, Paint, Screen, load, safe, sources};
use crate::audit::Record;
use crate::cli::why;
use crate::config::Config;
use crate::message::{EncodedSlash, Host, RequestTarget, Scheme, is_batch};
use crate::names::{CredentialName, SessionId};
use crate::policy::Facts;

/// Explains a recorded request.
#[derive(Args)]
#[group(id = "policy_why")]
pub(in crate::cli) struct Why {
    #[command(flatten)]
    why: why::Why,
    #[command(flatten)]
    named: Named,
}

impl Why {
    pub(in crate::cli) fn run(self, screen: &mut Screen) -> Result<Code, Failure> {
        let found = self.why.find_in_whole_log()?;
        let config = self.why.config()?;
        let Some(policies) = load(screen, sources(&self.named.policies, config.as_ref())) else {
            return Ok(Code::Failed);
        };
        let record = &found.exchange;
        let asked = Asked::of(record, config.as_ref())?;
        let facts = asked.facts();
        let generation = policies.current();
        let verdict = generation.ask(&facts);
        let explanation = generation.explain(&facts, &verdict);
        let then = record.decision.as_deref().unwrap_or("not judged");
        if screen.json() {
            screen.document(&json!({
                "recorded": record,
                "now": {
                    "outcome": verdict.outcome.word(), "reason": explanation.reason,
                    "next_step": explanation.next_step, "proposal": explanation.proposal,
                },
            }));
            return Ok(Code::Ok);
        }
        let decided: Vec<_> = record.policies.iter().map(|policy| safe(policy)).collect();
        let by = if decided.is_empty() {
            String::from("no policy permitted or forbade it")
        } else {
            decided.join(", ")
        };
        screen.line(format!(
            "{} {}: {by}",
            screen.paint(Paint::Bold, "then"),
            safe(then)
        ));
        if let Some(reason) = &record.reason {
            screen.line(format!("  refused for {}", safe(reason)));
        }
        screen.line(format!(
            "{} {}: {}",
            screen.paint(Paint::Bold, "now "),
            verdict.outcome.word(),
            safe(&explanation.reason)
        ));
        screen.line("  judged without query values and fields, which the log does not hold");
        if !explanation.next_step.is_empty() {
            screen.line(format!(
                "{} {}",
                screen.paint(Paint::Bold, "next"),
                safe(&explanation.next_step)
            ));
        }
        if let Some(proposal) = &explanation.proposal {
            screen.line("");
            proposal.lines().for_each(|line| screen.line(safe(line)));
        }
        Ok(Code::Ok)
    }
}

/// What a record's request is judged by, owned.
struct Asked {
    session: SessionId,
    groups: Vec<Arc<str>>,
    credentials: Vec<CredentialName>,
    fields: HeaderMap,
    entry: String,
    scheme: Scheme,
    host: Host,
    port: u16,
    method: String,
    target: RequestTarget,
    content_length: Option<u64>,
}

impl Asked {
    /// Reads a record back into canonical types; whatever does not read back was refused before any
    /// policy saw it.
    fn of(record: &Record, config: Option<&Config>) -> Result<Self, Failure> {
        let text = |part: Option<&str>| part.map(str::to_owned).ok_or_else(unjudged);
        let session = SessionId::new(&text(record.session.as_deref())?).map_err(|_| unjudged())?;
        let listeners = config
            .map(|config| config.listeners.as_slice())
            .unwrap_or_default();
        let groups = listeners
            .iter()
            .find(|listener| listener.session == session);
        let groups = groups
            .map(|listener| listener.groups.clone())
            .unwrap_or_default();
        let lent = record.lent.iter().map(|lent| lent.credential.as_str());
        let path = text(record.path.as_deref())?;
        let scheme = match text(record.scheme.as_deref())?.as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(unjudged()),
        };
        Ok(Self {
            groups: groups.into_iter().map(Arc::from).collect(),
            credentials: lent
                .filter_map(|name| CredentialName::new(name).ok())
                .collect(),
            fields: HeaderMap::new(),
            entry: text(record.entry.as_deref())?,
            scheme,
            host: Host::parse(text(record.host.as_deref())?.as_bytes()).map_err(|_| unjudged())?,
            port: record.port.ok_or_else(unjudged)?,
            method: text(record.method.as_deref())?,
            target: target(&path).ok_or_else(unjudged)?,
            content_length: record.request_bytes,
            session,
        })
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            session: &self.session,
            groups: &self.groups,
            labels: &[],
            entry: &self.entry,
            now: SystemTime::now(),
            scheme: self.scheme,
            host: &self.host,
            port: self.port,
            method: &self.method,
            target: &self.target,
            fields: &self.fields,
            content_length: self.content_length,
            upgrade: "",
            credentials: &self.credentials,
            batch: is_batch(&self.host, &self.target),
            // The record does not tell them, so a policy that asks for some allows less here than
            // it did.
            actions: &[],
        }
    }
}

/// The target as it was judged: the path of a signed request to an object store is not resolved.
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
