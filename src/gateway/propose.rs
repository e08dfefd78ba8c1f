//! `POST http://gateway.internal/proposals`: a workload proposes what it wants to be allowed. It
//! names a request, never a rule: the gateway makes that, and a person outside applies it.

use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::exchange::Exchange;
use super::floor::floor;
use super::proposals::{NotTaken, Proposal, ProposalState, ProposedAccess};
use crate::audit::Event;
use crate::message::pairs::decoded;
use crate::message::{Authority, EncodedSlash, Origin, RequestTarget, Scheme, method};
use crate::names::ReasonCode;
use crate::session::Identified;

/// What the content of a proposal may say. There is no place in it for a rule.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ProposalContent {
    id: Option<String>,
    host: Option<String>,
    method: Option<String>,
    path: Option<String>,
    why: Option<String>,
}

/// Why there is no proposal.
pub(super) struct Unproposed(pub(super) StatusCode, pub(super) String);

type Wished = Result<ProposedAccess, Unproposed>;

impl Exchange {
    /// Reads and takes a proposal. Returns it as the workload's page shows it.
    pub(super) async fn propose(&self, identified: Identified) -> Result<Value, Unproposed> {
        let (request, session, _) = identified.into_parts();
        let proposals = &self.worker.shared.proposals;
        let fields = &request.head.fields;
        // It is not counted either: a page could use up what the command may send.
        if fields.contains_key(ORIGIN) {
            return Err(no(StatusCode::FORBIDDEN, "a web page proposes nothing"));
        }
        proposals.count(session.id(), Instant::now())?;
        let kind = media_type(fields);
        let read = Limited::new(request.content, MOST_CONTENT).collect();
        let read = tokio::time::timeout(READ_WITHIN, read).await;
        let content = read.ok().and_then(Result::ok).map(|read| read.to_bytes());
        let content = content.ok_or_else(|| {
            let what = "the proposal is longer than 4 KiB, or broke off";
            no(StatusCode::PAYLOAD_TOO_LARGE, what)
        })?;
        let said = said(&kind, &content)?;
        let words = words(said.why.as_deref().unwrap_or_default())?;
        let id = self.trail.id();
        let wanted = match (&said.id, &said.host) {
            (Some(refused), None) if said.method.is_none() && said.path.is_none() => {
                self.refused_exchange(&session, refused)?
            }
            (None, Some(_)) => self.named_request(&said)?,
            _ => {
                return Err(malformed(
                    "name a refusal by `id`, or `host`, `method` and `path`",
                ));
            }
        };
        if wanted.shown().len() > MOST_SHOWN {
            let what = "it is too long to be shown to a person whole: ask your user";
            return Err(malformed(what));
        }
        let proposal = Proposal {
            id: wanted.refused.unwrap_or(id),
            session: session.id().clone(),
            time: SystemTime::now(),
            wanted,
            words,
            state: ProposalState::Waiting,
        };
        let taken = proposals.take(proposal, |proposal| self.record_proposal(proposal))?;
        Ok(shown(&taken))
    }

    /// Records a proposal without the workload's words.
    fn record_proposal(&self, proposal: &Proposal) -> Result<(), Unproposed> {
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

    /// Finds a refusal of the session's own.
    fn refused_exchange(&self, session: &crate::session::Session, id: &str) -> Wished {
        let recent = self.worker.shared.recent.of(session.id());
        let found = recent.into_iter().find(|one| one.id.to_string() == id);
        let refusal = found.ok_or_else(|| {
            let what = "no such request of this session was refused lately: see /refused";
            no(StatusCode::NOT_FOUND, what)
        })?;
        match refusal.reason {
            ReasonCode::PolicyDefaultDeny | ReasonCode::DnsName | ReasonCode::HostNotPermitted => {}
            reason => return Err(unhelped(reason)),
        }
        let to = refusal.to;
        let to = to.ok_or_else(|| malformed("that refusal names no host"))?;
        self.above_floor(&to)?;
        Ok(ProposedAccess {
            to,
            request: refusal.request,
            refused: Some(refusal.id),
        })
    }

    /// Reads a request that need not have been made.
    fn named_request(&self, said: &ProposalContent) -> Wished {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        let (host, method, path) = (part(&said.host), part(&said.method), part(&said.path));
        let to = origin(&host)?;
        let is_method = Method::from_bytes(method.as_bytes())
            .is_ok_and(|method| method::check(&method).is_ok() && method != Method::CONNECT);
        if said.method.is_none() {
            return Err(malformed("a request has a `method`"));
        }
        if !is_method {
            return Err(malformed("`method` is no method that is forwarded"));
        }
        let target = RequestTarget::parse(path.as_bytes(), EncodedSlash::Keep);
        let is_canonical = target.is_ok_and(|target| target.path() == path);
        if !is_canonical {
            return Err(malformed(
                "`path` is no path in canonical form, without a query",
            ));
        }
        self.above_floor(&to)?;
        Ok(ProposedAccess {
            to,
            request: Some((method, path)),
            refused: None,
        })
    }

    /// Refuses what no rule would allow.
    fn above_floor(&self, to: &Origin) -> Result<(), Unproposed> {
        floor(to, &self.snapshot.origins).map_or(Ok(()), |reason| Err(unhelped(reason)))
    }
}

/// Reads where a proposed request goes: over https unless `http://` stands before it.
fn origin(host: &str) -> Result<Origin, Unproposed> {
    let (scheme, named) = match host.strip_prefix("http://") {
        Some(named) => (Scheme::Http, named),
        None => (Scheme::Https, host.strip_prefix("https://").unwrap_or(host)),
    };
    let authority = Authority::parse(named.as_bytes(), Some(scheme.default_port()));
    let authority =
        authority.map_err(|_| malformed("`host` is no host, or host and port, or origin"))?;
    if scheme == Scheme::Https && authority.port == Scheme::Http.default_port() {
        return Err(malformed(
            "port 80 is not one of https: write `http://HOST`",
        ));
    }
    Ok(Origin { scheme, authority })
}

fn media_type(fields: &HeaderMap) -> String {
    let kind = fields.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next();
    kind.unwrap_or_default().trim().to_ascii_lowercase()
}

fn said(kind: &str, content: &Bytes) -> Result<ProposalContent, Unproposed> {
    match kind {
        "application/json" => serde_json::from_slice(content).map_err(|_| {
            malformed("the JSON is no object of the texts `id`, `host`, `method`, `path`, `why`")
        }),
        "application/x-www-form-urlencoded" => form(content),
        _ => {
            let what = "a proposal is `application/json` or `application/x-www-form-urlencoded`";
            Err(no(StatusCode::UNSUPPORTED_MEDIA_TYPE, what))
        }
    }
}

/// Reads a form, in which every name stands once.
fn form(content: &Bytes) -> Result<ProposalContent, Unproposed> {
    let unclear = || malformed("the form has more than `id`, `host`, `method`, `path`, `why`");
    let mut said = ProposalContent::default();
    let pairs = content.split(|byte| *byte == b'&');
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let equals = memchr::memchr(b'=', pair).ok_or_else(unclear)?;
        let value = decoded(&pair[equals + 1..], b' ');
        let place = match &pair[..equals] {
            b"id" => &mut said.id,
            b"host" => &mut said.host,
            b"method" => &mut said.method,
            b"path" => &mut said.path,
            b"why" => &mut said.why,
            _ => return Err(unclear()),
        };
        if !value.clear || place.replace(value.text).is_some() {
            return Err(unclear());
        }
    }
    Ok(said)
}

/// Checks the workload's words. A person reads them in a terminal.
fn words(words: &str) -> Result<String, Unproposed> {
    if words.len() > MOST_WORDS {
        return Err(malformed("`why` is longer than 280 bytes"));
    }
    if words.chars().any(char::is_control) {
        return Err(malformed("`why` is one line, without control characters"));
    }
    Ok(words.trim().to_owned())
}

impl From<NotTaken> for Unproposed {
    fn from(why: NotTaken) -> Self {
        match why {
            NotTaken::TooOften => {
                let what = "ten proposals in a minute are the most: wait";
                no(StatusCode::TOO_MANY_REQUESTS, what)
            }
            NotTaken::TooMany => {
                let what = "as many proposals as a session may have were made: ask your user";
                no(StatusCode::TOO_MANY_REQUESTS, what)
            }
            NotTaken::Refused => {
                let what = "a person has refused the same proposal";
                no(StatusCode::CONFLICT, what)
            }
        }
    }
}

fn unhelped(reason: ReasonCode) -> Unproposed {
    let (code, meaning) = (reason.as_str(), reason.meaning());
    let what = format!("no rule would allow it, {code}: {meaning}");
    Unproposed(StatusCode::CONFLICT, what)
}

fn malformed(what: &str) -> Unproposed {
    no(StatusCode::BAD_REQUEST, what)
}

fn no(status: StatusCode, what: &str) -> Unproposed {
    Unproposed(status, what.to_owned())
}

/// What a workload sees of a proposal.
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
            ProposalState::Refused => "Do without it, or ask your user.",
        },
    })
}

/// What to do where a person has refused a request.
pub(super) fn after_refusal(refused: &Proposal) -> String {
    let id = refused.id;
    format!(
        "A person has refused it to this session: do without it, or ask your user, who takes that \
         back with `gateway deny --undo {id}`."
    )
}

/// What an answer says of a proposal that waits.
pub(super) fn answer(taken: Result<Value, Unproposed>) -> (StatusCode, Value) {
    match taken {
        Ok(proposal) => (StatusCode::ACCEPTED, proposal),
        Err(Unproposed(status, what)) => (status, json!({ "error": what })),
    }
}

const MOST_CONTENT: usize = 4 << 10;
const MOST_WORDS: usize = 280;
/// What the audit log keeps of an event's subject, less the id.
const MOST_SHOWN: usize = 1000;
const READ_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);
