//! A request that a policy asks a person about, and the answers to it.

use std::borrow::Cow;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use gateway_names::ExchangeId;
use gateway_policy::Ask;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

gateway_names::faults! {
    /// Why a request that asks a person is not sent.
    #[derive(Debug, thiserror::Error)]
    pub enum AskFault {
        /// No person has answered. Whether one watches, and the id to answer by.
        Unanswered(&'static str, ExchangeId) = PolicyAsks "{0}",
        /// A person refused it.
        Refused(ExchangeId) = AskRefused "a person refused this request",
        /// The gateway stops, and no person has answered.
        Stopping = GatewayStopping "the gateway stops, and no person has answered",
        /// An answer could not be bound to all of its content.
        Unbound = AskUnbound "a person is asked about a whole request, and this is too long for it",
        /// The session has asked too often, or too much of it waits.
        TooMany(Cow<'static, str>) = AskLimit "{0}",
    }
}

/// A request that a person is asked about: what an answer is for, and nothing else.
#[derive(Clone)]
pub struct AskedRequest {
    /// The forbids that an answer lifts, with their questions.
    pub asks: Vec<Ask>,
    /// The query.
    pub query: String,
    /// The caller's user.
    pub user: Option<String>,
    /// The credentials that it is lent, each with its place.
    pub lends: Vec<String>,
    /// Its fields but for the usual ones, each with its value.
    pub fields: Vec<String>,
    /// What readers found in the content: facts with their values.
    pub facts: Vec<String>,
    /// The beginning of the content.
    pub begins: String,
    /// What follows that no answer covers.
    pub beyond: &'static str,
    /// The length of the content that the answer is for.
    pub bytes: usize,
    /// The SHA-256 of that content.
    pub sha256: [u8; 32],
    /// Whether less is shown than the answer is for.
    pub cut: bool,
    /// Who answered.
    pub by: Option<String>,
    /// The digest of everything that an answer is for, in bytes: what is shown is cut and redacted.
    pub(super) binding: [u8; 32],
    pub(super) waiting: Waiting,
}

gateway_names::concealed!(AskedRequest, asks, bytes);

/// How an ask stands.
pub(super) enum Standing {
    /// A person lifted what it asks for, and that is used up by this.
    Lifted,
    /// A person refused it.
    Refused(ExchangeId),
    /// It waits, under this id, as one of several equal requests.
    Waits(ExchangeId, Wait, usize),
    /// Its answer let an equal request go on, or it was forgotten.
    Over(ExchangeId),
}

/// One request's wait for an answer.
pub(super) struct Wait {
    pub(super) answer: watch::Receiver<()>,
    /// Whether nobody waited before.
    pub(super) is_first: bool,
    /// Cancelled once nobody waits.
    pub(super) left: CancellationToken,
    _here: Arc<DropGuard>,
}

/// The equal requests that wait for one answer.
#[derive(Clone, Default)]
pub(super) struct Waiting {
    /// When it was answered.
    answered: Option<Instant>,
    told: watch::Sender<()>,
    /// Held by those who wait. The last one cancels `left`.
    here: Weak<DropGuard>,
    left: CancellationToken,
    /// How many have waited.
    joined: usize,
    /// When the latest began to wait.
    latest: Option<Instant>,
}

impl AskedRequest {
    /// Returns everything that an answer is for, as a person sees it.
    pub fn view(&self) -> Value {
        let asks = self.asks.iter();
        let asks =
            asks.map(|ask| json!({ "policy": ask.policy.as_str(), "question": &*ask.question }));
        json!({
            "asks": asks.collect::<Vec<_>>(),
            "query": self.query,
            "user": self.user,
            "lends": self.lends,
            "fields": self.fields,
            "facts": self.facts,
            "content": self.begins,
            "beyond": self.beyond,
            "content_bytes": self.bytes,
            "content_sha256": base16ct::lower::encode_string(&self.sha256),
            "cut": self.cut,
            "by": self.by,
        })
    }

    /// Whether an answer to one is an answer to the other.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.binding == other.binding
    }

    /// Whether its answer is too old to hold, or nobody has waited for one as long.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let since = self.waiting.answered.or(self.waiting.latest);
        let is_old = since.is_some_and(|at| now.saturating_duration_since(at) >= HOLDS);
        is_old && !self.is_waited_for()
    }

    /// Whether a request waits for its answer now.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.here.strong_count() > 0
    }

    /// Lets one more equal request wait.
    pub(super) fn join(&mut self, id: ExchangeId) -> Standing {
        let Waiting {
            here, left, told, ..
        } = &mut self.waiting;
        let others = here.upgrade();
        let is_first = others.is_none();
        let guard = others.unwrap_or_else(|| {
            *left = CancellationToken::new();
            Arc::new(left.clone().drop_guard())
        });
        *here = Arc::downgrade(&guard);
        let wait = Wait {
            answer: told.subscribe(),
            is_first,
            left: left.clone(),
            _here: guard,
        };
        self.waiting.joined += 1;
        self.waiting.latest = Some(Instant::now());
        Standing::Waits(id, wait, self.waiting.joined)
    }

    /// Whether an equal request came later. Its client is the one that still waits, if a client
    /// gave up and repeated the request.
    pub(super) fn is_joined_after(&self, nth: usize) -> bool {
        self.waiting.joined > nth
    }

    pub(super) fn answer(&mut self, is_over: bool, by: Option<&str>) {
        let now = Instant::now();
        self.waiting.answered = is_over.then_some(now);
        // What a person takes back is waited for anew.
        self.waiting.latest = if is_over {
            self.waiting.latest
        } else {
            Some(now)
        };
        self.by = by.map(str::to_owned);
        self.waiting.told.send_replace(());
    }
}

/// How long an answer holds, a yes that comes late and a no, and how long one is looked for.
const HOLDS: Duration = Duration::from_secs(600);
