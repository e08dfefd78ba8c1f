//! `@ask`: a person lifts forbids for one request, and for no other.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_audit::redacted_for;
use gateway_body::read::Push;
use gateway_credential::Verified;
use gateway_message::Origin;
use gateway_names::ExchangeId;
use gateway_policy::{Ask, Authorized, Grant};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, DATE, EXPECT, HOST, SEC_WEBSOCKET_KEY,
    USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};

use super::asked::{AskFault, AskedRequest, Standing};
use super::{Proposal, ProposalState, RequestedAccess};
use crate::exchange::Exchange;

impl AskedRequest {
    /// Reads what an answer is bound to, and shows at most so many bytes of the content.
    fn of(verified: &Verified, asks: &[Ask], most: usize) -> Result<Self, AskFault> {
        let authorized = verified.authorized();
        let (head, judged) = (authorized.head(), authorized.judged());
        let content = bound(verified).ok_or(AskFault::Unbound)?;
        let grants = authorized.grants().iter().map(Grant::lend);
        // A client that repeats a request signs it anew.
        let is_signed = grants.clone().any(|lend| lend.claimed().is_some());
        let varies = |name: &HeaderName| {
            VARIES.contains(name) || is_signed && [AUTHORIZATION, DATE, AMZ_DATE].contains(name)
        };
        let fields = || head.fields.iter().filter(|(name, _)| !varies(name));
        let lends: Vec<String> = grants
            .map(|lend| format!("{} in {}", lend.credential(), lend.place()))
            .collect();
        let (query, sha256) = (
            head.target.query().unwrap_or_default(),
            Sha256::digest(&content),
        );
        let user = judged.user().map(|user| user.as_str().to_owned());
        let bound = [user.as_deref().unwrap_or_default(), query];
        let binding = Binding::of(authorized, bound, (&lends, asks, &sha256), fields());
        let is_cut = Cell::new(false);
        let shorten = |text: &str, most: usize, is_longer: bool| {
            let mut shown = redacted_for(&**judged.session(), text, usize::MAX);
            if is_longer || shown.len() > most {
                is_cut.set(true);
                shown.truncate(shown.floor_char_boundary(most));
                shown.push_str(" …");
            }
            shown
        };
        let cut = |text: &str| shorten(text, MOST_SHOWN, false);
        let listed = |texts: Vec<String>| {
            is_cut.set(is_cut.get() || texts.len() > MOST_LISTED);
            listed(texts)
        };
        // Its other form has the password, with a phantom that is coded.
        let basic = basic_user(&head.fields);
        let is_shown = |name: &HeaderName| {
            !USUAL.contains(name) && (*name != AUTHORIZATION || basic.is_none())
        };
        let shown = fields().filter(|(name, _)| is_shown(name));
        let shown = shown.map(|(name, value)| {
            cut(&format!(
                "{name}: {}",
                String::from_utf8_lossy(value.as_bytes())
            ))
        });
        let facts = judged.content_facts();
        let begins = String::from_utf8_lossy(&content[..content.len().min(most)]);
        Ok(Self {
            fields: listed(basic.iter().map(|user| cut(user)).chain(shown).collect()),
            facts: listed(facts.iter().map(|fact| cut(fact)).collect()),
            query: cut(query),
            begins: shorten(&begins, most, content.len() > most),
            beyond: match authorized.content().held() {
                _ if authorized.is_upgrade() => "what the WebSocket carries",
                None if !content.is_empty() => "the objects that these commands name",
                _ => "",
            },
            bytes: content.len(),
            sha256: sha256.into(),
            binding,
            lends: listed(lends),
            // All that is shown is cut by now.
            cut: is_cut.get(),
            asks: asks.to_vec(),
            user,
            by: None,
            waiting: Default::default(),
        })
    }
}

/// The digest of everything that an answer is for. Each text stands behind its length.
#[derive(Default)]
struct Binding(Sha256);

impl Binding {
    fn of<'a>(
        authorized: &Authorized,
        [user, query]: [&str; 2],
        (lends, asks, sha256): (&[String], &[Ask], &[u8]),
        fields: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>,
    ) -> [u8; 32] {
        let (head, mut binding) = (authorized.head(), Self::default());
        let Origin { scheme, authority } = &head.origin;
        for text in [
            head.method.as_str(),
            scheme.as_str(),
            &authority.to_string(),
            head.target.path(),
            query,
            user,
            if authorized.is_upgrade() {
                "upgrade"
            } else {
                ""
            },
        ] {
            binding.add(text.as_bytes());
        }
        binding.list(lends.iter().map(|lend| [lend.as_bytes(), &[]]));
        binding.list(fields.map(|(name, value)| [name.as_str().as_bytes(), value.as_bytes()]));
        binding.list(
            asks.iter()
                .map(|ask| [ask.policy.as_str().as_bytes(), ask.question.as_bytes()]),
        );
        binding.add(sha256);
        binding.0.finalize().into()
    }

    fn add(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    fn list<'a>(&mut self, pairs: impl Iterator<Item = [&'a [u8]; 2]>) {
        let mut count = 0_u64;
        for bytes in pairs.inspect(|_| count += 1).flatten() {
            self.add(bytes);
        }
        self.add(&count.to_be_bytes());
    }
}

/// Returns the first of these texts, and how many more there are.
fn listed(mut all: Vec<String>) -> Vec<String> {
    let more = all.len().saturating_sub(MOST_LISTED);
    all.truncate(MOST_LISTED);
    all.extend((more > 0).then(|| format!("… and {more} more, which are not shown")));
    all
}

/// Returns the user that a request names beside a password (RFC 7617), without the password.
fn basic_user(fields: &HeaderMap) -> Option<String> {
    let value = fields.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, coded) = value.split_once(' ')?;
    let plain = STANDARD
        .decode(coded.trim())
        .ok()
        .filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let user = plain.split(|byte| *byte == b':').next()?;
    Some(format!(
        "authorization: Basic, user {}",
        String::from_utf8_lossy(user)
    ))
}

impl Exchange {
    /// Waits until a person lifts what the policies ask a person for.
    pub(super) async fn ask(&mut self, verified: &Verified, asks: &[Ask]) -> Result<(), AskFault> {
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
            ask: Some(AskedRequest::of(verified, asks, MOST_CONTENT)?),
        };
        let mut told = proposal.view();
        if proposal.wanted.shown().len() > MOST_WANTED {
            return Err(AskFault::Unbound);
        }
        let shared = self.worker.shared.clone();
        let until = Instant::now() + WAITS;
        let record = |one: &Proposal| self.record_proposal(one);
        let standing = shared.proposals.ask(proposal, Instant::now(), record);
        let mut standing = standing.map_err(|why| AskFault::TooMany(why.1))?;
        // A question that was left, and is asked again, is told again: as one more of its session.
        let is_to_tell = |asked| {
            let session = judged.session().id();
            asked == id || shared.proposals.count(session, Instant::now()).is_ok()
        };
        if let (Standing::Waits(asked, wait, _), Some(notify)) = (&standing, shared.notify.get())
            && wait.is_first
            && is_to_tell(*asked)
        {
            told["id"] = asked.to_string().into();
            told["ask"] = AskedRequest::of(verified, asks, MOST_TOLD)?.view();
            notify(*asked, told, wait.left.clone());
        }
        loop {
            standing = match standing {
                Standing::Lifted => break,
                Standing::Refused(id) => return Err(AskFault::Refused(id)),
                Standing::Over(id) => return Err(AskFault::Unanswered(OTHER, id)),
                Standing::Waits(id, mut wait, nth) => {
                    tokio::select! {
                        _ = wait.answer.changed() => {}
                        why = self.give_up(id, until) => return Err(why),
                    }
                    let key = (judged.session().id(), id);
                    if shared.proposals.is_joined_after(key, nth) {
                        tokio::time::sleep(YIELDS).await;
                    }
                    shared.proposals.taken(key, wait, nth)
                }
            };
        }
        Ok(())
    }

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

/// The fields that differ when a client repeats a request.
const VARIES: [HeaderName; 12] = [
    CONTENT_LENGTH,
    EXPECT,
    SEC_WEBSOCKET_KEY,
    HeaderName::from_static("baggage"),
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("sentry-trace"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("x-stainless-read-timeout"),
    HeaderName::from_static("x-stainless-retry-count"),
    HeaderName::from_static("x-stripe-client-telemetry"),
];
const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
/// The fields that are bound, and not shown.
const USUAL: [HeaderName; 4] = [ACCEPT, ACCEPT_ENCODING, HOST, USER_AGENT];
/// How long a request waits for a person.
const WAITS: Duration = Duration::from_secs(45);
/// How long an earlier request leaves the answer to a later, equal one.
const YIELDS: Duration = Duration::from_millis(200);
/// How often a waiting exchange says that it is alive.
const TICK: Duration = Duration::from_secs(1);
/// How many fields, facts and loans a person is shown.
const MOST_LISTED: usize = 24;
/// How much of each, and of the query.
const MOST_SHOWN: usize = 300;
/// How much of the content, in the list of what waits, which is kept.
const MOST_CONTENT: usize = 2 << 10;
/// How much of the content whoever is told gets.
const MOST_TOLD: usize = 64 << 10;
/// The longest request line that can be asked about: longer ones are not recorded whole.
const MOST_WANTED: usize = 1000;
const NOBODY: &str = "a policy asks a person about this request, and nobody watches the gateway";
const OTHER: &str = "a policy asks a person, and the answer let an equal one go on";
const SILENT: &str = "a policy asks a person about this request, and none has answered";
