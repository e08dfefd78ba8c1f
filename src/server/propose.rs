//! `POST http://gateway.internal/proposals`: a workload proposes an access that it wants. It names
//! a request, never a rule: the gateway writes the rule, and a person outside applies it.

use std::time::{Instant, SystemTime};

use gateway_audit::Event;
use gateway_message::pairs::decoded;
use gateway_message::{Authority, EncodedSlash, Origin, RequestTarget, Scheme, method};
use gateway_names::{ReasonCode, SessionId};
use gateway_session::Identified;
use http::header::{CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::exchange::Exchange;
use super::floor::floor;
use super::proposals::{Proposal, ProposalError, ProposalState, RequestedAccess};

/// The content of a proposal. No member of it can carry a rule.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ProposalContent {
    id: Option<String>,
    host: Option<String>,
    method: Option<String>,
    path: Option<String>,
    why: Option<String>,
}

impl ProposalContent {
    fn read(kind: &str, content: &[u8]) -> Result<Self, ProposalError> {
        match kind {
            "application/json" => serde_json::from_slice(content).map_err(|_| {
                malformed(
                    "the JSON is no object of the texts `id`, `host`, `method`, `path`, `why`",
                )
            }),
            "application/x-www-form-urlencoded" => {
                let said = form(content).and_then(|form| serde_json::from_value(form).ok());
                let what = "the form has more than `id`, `host`, `method`, `path`, `why`";
                said.ok_or(malformed(what))
            }
            _ => {
                let what =
                    "a proposal is `application/json` or `application/x-www-form-urlencoded`";
                Err(no(StatusCode::UNSUPPORTED_MEDIA_TYPE, what))
            }
        }
    }

    /// Reads a request that need not have been sent before.
    fn request_to(&self, host: &str) -> Result<RequestedAccess, ProposalError> {
        let to = origin(host)?;
        let method = self
            .method
            .clone()
            .ok_or(malformed("a request has a `method`"))?;
        let is_method = Method::from_bytes(method.as_bytes())
            .is_ok_and(|method| method::check(&method).is_ok() && method != Method::CONNECT);
        if !is_method {
            return Err(malformed("`method` is no method that is forwarded"));
        }
        let path = self.path.clone().unwrap_or_default();
        let target = RequestTarget::parse(path.as_bytes(), EncodedSlash::Keep);
        if !target.is_ok_and(|target| target.path() == path) {
            let what = "`path` is no path in canonical form, without a query";
            return Err(malformed(what));
        }
        Ok(RequestedAccess {
            to,
            request: Some((method, path)),
            refused: None,
        })
    }
}

/// Reads a form; each name may occur only once.
fn form(content: &[u8]) -> Option<Value> {
    let mut members = serde_json::Map::new();
    let pairs = content.split(|byte| *byte == b'&');
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let equals = memchr::memchr(b'=', pair)?;
        let name = std::str::from_utf8(&pair[..equals]).ok()?.to_owned();
        let value = decoded(&pair[equals + 1..], b' ');
        if !value.clear || members.insert(name, value.text.into()).is_some() {
            return None;
        }
    }
    Some(members.into())
}

impl Exchange {
    /// Reads and adds a proposal. Returns it as the workload's page shows it.
    pub(super) async fn propose(&self, identified: Identified) -> Result<Value, ProposalError> {
        let (request, session, _) = identified.into_parts();
        let proposals = &self.worker.shared.proposals;
        let fields = &request.head.fields;
        // Not counted, either: a web page could use up the session's rate limit.
        if fields.contains_key(ORIGIN) {
            return Err(no(StatusCode::FORBIDDEN, "a web page proposes nothing"));
        }
        proposals.count(session.id(), Instant::now())?;
        let kind = media_type(fields);
        let read = Limited::new(request.content, MOST_CONTENT).collect();
        let read = tokio::time::timeout(READ_WITHIN, read).await;
        let content = read.ok().and_then(Result::ok).map(|read| read.to_bytes());
        let broken = "the proposal is longer than 4 KiB, or broke off";
        let content = content.ok_or(no(StatusCode::PAYLOAD_TOO_LARGE, broken))?;
        let said = ProposalContent::read(&kind, &content)?;
        let words = words(said.why.as_deref().unwrap_or_default())?;
        let wanted = match (&said.id, &said.host) {
            (Some(refused), None) if said.method.is_none() && said.path.is_none() => {
                self.refused_exchange(session.id(), refused)?
            }
            (None, Some(host)) => said.request_to(host)?,
            _ => {
                let what = "name a refusal by `id`, or `host`, `method` and `path`";
                return Err(malformed(what));
            }
        };
        // No rule would allow a request that the floor refuses.
        if let Some(reason) = floor(&wanted.to, &self.snapshot.origins) {
            return Err(unhelped(reason));
        }
        if wanted.shown().len() > MOST_SHOWN {
            let what = "it is too long to be shown to a person whole: ask your user";
            return Err(malformed(what));
        }
        let proposal = Proposal {
            id: wanted.refused.unwrap_or(self.trail.id()),
            session: session.id().clone(),
            time: SystemTime::now(),
            wanted,
            words,
            state: ProposalState::Waiting,
            ask: None,
        };
        let taken = proposals.take(proposal, |proposal| self.record_proposal(proposal))?;
        Ok(shown(&taken))
    }

    /// Records a proposal without the workload's words.
    pub(super) fn record_proposal(&self, proposal: &Proposal) -> Result<(), ProposalError> {
        let subject = format!("{} {}", proposal.id, proposal.wanted.shown());
        let event = Event {
            name: "proposed",
            session: Some(&proposal.session),
            subject: subject.as_bytes(),
            reason: None,
            count: 1,
        };
        let unrecorded = |_| no(StatusCode::SERVICE_UNAVAILABLE, "it cannot be recorded");
        self.worker.shared.log.event(event).map_err(unrecorded)
    }

    /// Finds a recent refusal of the session itself.
    fn refused_exchange(
        &self,
        session: &SessionId,
        id: &str,
    ) -> Result<RequestedAccess, ProposalError> {
        let recent = self.worker.shared.recent.of(session);
        let found = recent.into_iter().find(|one| one.id.to_string() == id);
        let unknown = "no such request of this session was refused lately: see /refused";
        let refusal = found.ok_or(no(StatusCode::NOT_FOUND, unknown))?;
        match refusal.reason {
            ReasonCode::PolicyDefaultDeny | ReasonCode::DnsName | ReasonCode::HostNotPermitted => {}
            reason => return Err(unhelped(reason)),
        }
        Ok(RequestedAccess {
            to: refusal.to.ok_or(malformed("that refusal names no host"))?,
            request: refusal.request,
            refused: Some(refusal.id),
        })
    }
}

/// Reads the origin of a proposed request: https unless the host begins with `http://`.
fn origin(host: &str) -> Result<Origin, ProposalError> {
    let (scheme, named) = match host.strip_prefix("http://") {
        Some(named) => (Scheme::Http, named),
        None => (Scheme::Https, host.strip_prefix("https://").unwrap_or(host)),
    };
    let authority = Authority::parse(named.as_bytes(), Some(scheme.default_port()));
    let unread = |_| malformed("`host` is no host, or host and port, or origin");
    let authority = authority.map_err(unread)?;
    if scheme == Scheme::Https && authority.port == Scheme::Http.default_port() {
        let what = "port 80 is not one of https: write `http://HOST`";
        return Err(malformed(what));
    }
    Ok(Origin { scheme, authority })
}

fn media_type(fields: &HeaderMap) -> String {
    let kind = fields.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next();
    kind.unwrap_or_default().trim().to_ascii_lowercase()
}

/// Checks the workload's words, which a person reads in a terminal.
fn words(words: &str) -> Result<String, ProposalError> {
    if words.len() > MOST_WORDS {
        return Err(malformed("`why` is longer than 280 bytes"));
    }
    if words.chars().any(char::is_control) {
        return Err(malformed("`why` is one line, without control characters"));
    }
    Ok(words.trim().to_owned())
}

fn unhelped(reason: ReasonCode) -> ProposalError {
    let (code, meaning) = (reason.as_str(), reason.meaning());
    let what = format!("no rule would allow it, {code}: {meaning}");
    ProposalError(StatusCode::CONFLICT, what.into())
}

fn malformed(what: &'static str) -> ProposalError {
    no(StatusCode::BAD_REQUEST, what)
}

fn no(status: StatusCode, what: &'static str) -> ProposalError {
    ProposalError::new(status, what)
}

/// Returns a proposal as a workload sees it.
pub(super) fn shown(one: &Proposal) -> Value {
    let time = OffsetDateTime::from(one.time).format(&Rfc3339);
    json!({
        "id": one.id.to_string(),
        "time": time.unwrap_or_default(),
        "wanted": one.wanted.shown(),
        "why": one.words,
        "state": one.state.as_str(),
        "next": match one.state {
            ProposalState::Waiting => "A person outside answers it, with `gateway allow` or `deny`.",
            ProposalState::Granted => "Repeat the request.",
            ProposalState::Used => "It was sent once; another is asked about anew.",
            ProposalState::Refused => "Do without it, or ask your user.",
        },
    })
}

/// Returns what to do after a person has refused a request.
pub(super) fn after_refusal(refused: &Proposal) -> String {
    let id = refused.id;
    format!(
        "A person has refused it to this session: do without it, or ask your user, who takes that \
         back with `gateway deny --undo {id}`."
    )
}

/// Returns the response to a proposal.
pub(super) fn answer(taken: Result<Value, ProposalError>) -> (StatusCode, Value) {
    match taken {
        Ok(proposal) => (StatusCode::ACCEPTED, proposal),
        Err(ProposalError(status, what)) => (status, json!({ "error": what })),
    }
}

const MOST_CONTENT: usize = 4 << 10;
const MOST_WORDS: usize = 280;
/// The longest event subject that the audit log keeps, less the id.
const MOST_SHOWN: usize = 1000;
const READ_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);
