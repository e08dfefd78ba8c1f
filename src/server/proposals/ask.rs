//! The stage that meets `@ask`: a person lifts forbids for one request, and for no other.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use gateway_audit::AuditDecision;
use gateway_body::read::Push;
use gateway_credential::{Settled, Verified};
use gateway_message::Origin;
use gateway_names::ExchangeId;
use gateway_policy::{Ask, Grant, JudgeInput, Ruling};
use http::HeaderName;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, DATE, EXPECT, HOST,
    USER_AGENT,
};
use sha2::{Digest as _, Sha256};

use super::asked::{AskFault, AskedRequest, Standing};
use super::{Proposal, ProposalState, RequestedAccess};
use crate::exchange::Exchange;
use crate::refusal::Refusal;

impl AskedRequest {
    /// Reads what an answer is bound to.
    fn of(verified: &Verified, asks: Arc<[Ask]>) -> Result<Self, AskFault> {
        let authorized = verified.authorized();
        let (head, judged) = (authorized.head(), authorized.judged());
        let content = bound(verified).ok_or(AskFault::Unbound)?;
        let fields = head
            .fields
            .iter()
            .filter(|(name, _)| !VARIES.contains(name));
        let fields: Vec<String> = fields
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
            .collect();
        let lends = authorized.grants().iter().map(Grant::lend);
        let lends = lends.map(|one| format!("{} in {}", one.credential(), one.place()));
        let mut asked = Self {
            query: head.target.query().unwrap_or_default().to_owned(),
            user: judged.user().map(|user| user.as_str().to_owned()),
            lends: lends.collect(),
            facts: judged.content_facts(),
            begins: String::from_utf8_lossy(&content[..content.len().min(SHOWN)]).into_owned(),
            bytes: content.len(),
            sha256: Sha256::digest(&content).into(),
            fields,
            asks,
            by: None,
            binding: [0; 32],
            waiting: Default::default(),
        };
        let Origin { scheme, authority } = &head.origin;
        let whole = [
            head.method.as_str(),
            scheme.as_str(),
            &authority.to_string(),
            head.target.path(),
            &asked.query,
            asked.user.as_deref().unwrap_or_default(),
            if authorized.is_upgrade() {
                "upgrade"
            } else {
                ""
            },
        ];
        let mut binding = Sha256::new();
        let texts = whole
            .into_iter()
            .chain(asked.lends.iter().map(String::as_str));
        let texts = texts.chain(asked.fields.iter().map(String::as_str));
        let asks = asked
            .asks
            .iter()
            .flat_map(|ask| [ask.policy.as_str(), &ask.question]);
        for text in texts.chain(asks) {
            binding.update((text.len() as u64).to_be_bytes());
            binding.update(text);
        }
        binding.update((asked.lends.len() as u64).to_be_bytes());
        binding.update((asked.fields.len() as u64).to_be_bytes());
        binding.update(asked.sha256);
        asked.binding = binding.finalize().into();
        asked
            .fields
            .retain(|field| !USUAL.iter().any(|usual| field.starts_with(usual.as_str())));
        Ok(asked)
    }
}

impl Exchange {
    /// Waits until a person lifts what the policies ask a person for.
    pub(crate) async fn settle(&mut self, verified: Verified) -> Result<Settled, Refusal> {
        match verified.authorized().asks().cloned() {
            // Boxed because it is large and rare.
            Some(asks) => Box::pin(self.ask(verified, asks)).await,
            None => Ok(verified.settle(&[]).map_err(|_| AskFault::Unbound)?),
        }
    }

    async fn ask(&mut self, verified: Verified, asks: Arc<[Ask]>) -> Result<Settled, Refusal> {
        let authorized = verified.authorized();
        let (head, judged) = (authorized.head(), authorized.judged().clone());
        let (id, questions) = (self.trail.id(), asks.iter().map(|ask| &*ask.question));
        let proposal = Proposal {
            id,
            session: judged.session().id().clone(),
            time: SystemTime::now(),
            wanted: RequestedAccess {
                to: head.origin.clone(),
                request: Some((head.method.to_string(), head.target.path().to_owned())),
                refused: Some(id),
            },
            words: questions.collect::<Vec<_>>().join(" "),
            state: ProposalState::Waiting,
            ask: Some(AskedRequest::of(&verified, asks.clone())?),
        };
        let told = proposal.view().to_string();
        let shared = self.worker.shared.clone();
        let until = Instant::now() + WAITS;
        let record = |one: &Proposal| self.record_proposal(one);
        let standing = shared.proposals.ask(proposal, Instant::now(), record);
        let mut standing = standing.map_err(|why| AskFault::TooMany(why.1))?;
        if let (Standing::Waits(asked, _, 1), Some(notify)) = (&standing, shared.notify.get())
            && *asked == id
        {
            notify(told);
        }
        loop {
            standing = match standing {
                Standing::Lifted => break,
                Standing::Refused(id) => return Err(AskFault::Refused(id).into()),
                Standing::Over(id) => return Err(AskFault::Unanswered(OTHER, id).into()),
                Standing::Waits(id, mut answer, nth) => {
                    tokio::select! {
                        _ = answer.changed() => {}
                        why = self.give_up(id, until) => return Err(why.into()),
                    }
                    let key = (judged.session().id(), id);
                    if shared.proposals.is_joined_after(key, nth) {
                        tokio::time::sleep(YIELDS).await;
                    }
                    shared.proposals.taken(key, answer, nth)
                }
            };
        }
        // What is in force may have changed while the person looked.
        let latest = shared.look();
        let bindings = latest.credentials.bindings();
        let case = JudgeInput {
            session: Some(judged.session()),
            caller: judged.caller(),
            request: Some(&judged),
            ruling: Some(Ruling::later(
                &judged,
                latest.policies.generation(),
                bindings,
            )),
        };
        case.hear()?;
        let verdict = verified.authorized().verdict();
        let (policies, generation) = (&verdict.policies, verdict.generation);
        self.trail
            .decide(AuditDecision::Allow, policies, generation);
        Ok(verified.settle(&asks).map_err(|_| AskFault::Unbound)?)
    }
}

impl Exchange {
    /// Waits until a person no longer needs to be waited for, and returns why. Until then the
    /// exchange is not taken for stalled.
    async fn give_up(&self, id: ExchangeId, until: Instant) -> AskFault {
        let shared = &self.worker.shared;
        loop {
            if shared.draining.is_cancelled() {
                return AskFault::Stopping;
            }
            if shared.notify.get().is_none() && !shared.proposals.is_watched() {
                return AskFault::Unanswered(NOBODY, id);
            }
            if Instant::now() >= until {
                return AskFault::Unanswered(SILENT, id);
            }
            self.guard.meter.add_up(0);
            let _ = tokio::time::timeout(TICK, shared.draining.cancelled()).await;
        }
    }
}

/// Returns the content that an answer is for: all of it, or the commands of a push, whose ids bind
/// the objects. `None` if that is not held.
fn bound(verified: &Verified) -> Option<bytes::Bytes> {
    let authorized = verified.authorized();
    let (head, content) = (authorized.head(), authorized.content());
    if content.is_empty() {
        return Some(bytes::Bytes::new());
    }
    match content.held() {
        Some(held) if held.trailers().is_none_or(http::HeaderMap::is_empty) => Some(held.whole()),
        Some(_) => None,
        None => Push::commands(head, &content.ahead()?.whole()),
    }
}

/// The fields that differ when a client repeats a request, and those that are bound as credentials.
const VARIES: [HeaderName; 14] = [
    AUTHORIZATION,
    CONTENT_LENGTH,
    DATE,
    EXPECT,
    HeaderName::from_static("baggage"),
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("sentry-trace"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-amz-date"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("x-stainless-read-timeout"),
    HeaderName::from_static("x-stainless-retry-count"),
    HeaderName::from_static("x-stripe-client-telemetry"),
];
/// The fields that are bound, and not shown.
const USUAL: [HeaderName; 5] = [ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, USER_AGENT];
/// How long a request waits for a person.
const WAITS: Duration = Duration::from_secs(45);
/// How long an earlier request leaves the answer to a later, equal one.
const YIELDS: Duration = Duration::from_millis(200);
/// How often a waiting exchange says that it is alive.
const TICK: Duration = Duration::from_secs(1);
/// How much of the content a person is shown.
const SHOWN: usize = 4 << 10;
const NOBODY: &str = "a policy asks a person about this request, and nobody watches the gateway";
const OTHER: &str = "a policy asks a person, and the answer let an equal one go on";
const SILENT: &str = "a policy asks a person about this request, and none has answered";
