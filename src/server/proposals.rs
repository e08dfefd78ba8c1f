//! What waits for a person outside the sandbox: what workloads propose to be allowed, which changes
//! no permission until it is granted, and requests that a policy asks about.

mod ask;
mod asked;
mod settle;
mod spend;
mod spending;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant, SystemTime};

use gateway_message::Origin;
use gateway_message::path_pattern::{may_be_same, readings};
use gateway_names::{ExchangeId, SessionId};
use http::StatusCode;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

pub use self::asked::{AskFault, AskedRequest};
use self::asked::{Standing, Wait};
pub use self::settle::Unmet;
pub use self::spending::SpendFault;
pub(super) use self::spending::Spending;

/// How many sessions are remembered. The one that proposed least recently is forgotten first.
const SESSIONS: NonZeroUsize = NonZeroUsize::new(256).expect("it is not zero");
/// How many of a session's proposals may wait.
const WAITING: usize = 8;
/// How many ungranted proposals a session may have: a refusal is kept, so that it stays refused.
const UNGRANTED: usize = 32;
/// How many proposals a session may send in [`WINDOW`], whether or not they are accepted.
const SENT: usize = 10;
/// How long somebody who read the list is there to answer.
const WATCHES: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_secs(60);

/// What waits for a person: an access that a workload proposes, or a request that a policy asks
/// about.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The refused exchange, or the exchange that proposed it.
    pub id: ExchangeId,
    /// The session that proposes it.
    pub session: SessionId,
    /// When it was proposed.
    pub time: SystemTime,
    /// The access to allow.
    pub wanted: RequestedAccess,
    /// The reason, in the workload's words, which are unchecked text; or the policies' questions.
    pub words: String,
    /// Its state.
    pub state: ProposalState,
    /// The request itself, if a policy asks a person about it: an answer is for it alone.
    pub ask: Option<AskedRequest>,
}

/// The access to allow: a request, or every request to a host.
#[derive(Clone, Debug)]
pub struct RequestedAccess {
    /// Where it goes.
    pub to: Origin,
    /// The method, and the path in canonical form; `None` if only a name or a tunnel was refused.
    pub request: Option<(String, String)>,
    /// The exchange that was refused; `None` if the workload proposes without a refusal.
    pub refused: Option<ExchangeId>,
}

gateway_names::words! {
    /// The state of a proposal.
    pub enum ProposalState {
        /// No person has answered.
        Waiting = "waiting",
        /// A person allowed it.
        Granted = "granted",
        /// A person refused it.
        Refused = "refused",
        /// The one request that a person allowed was sent.
        Used = "used",
    }
}

/// Why a proposal is not accepted: the status and the text of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposalError(pub(super) StatusCode, pub(super) Cow<'static, str>);

impl ProposalError {
    pub(super) const fn new(status: StatusCode, what: &'static str) -> Self {
        Self(status, Cow::Borrowed(what))
    }
}

/// The session sends too many proposals in a minute.
const TOO_OFTEN: ProposalError = ProposalError::new(
    StatusCode::TOO_MANY_REQUESTS,
    "ten proposals in a minute are the most: wait",
);
/// Too many of the session's proposals wait, or were refused.
const TOO_MANY: ProposalError = ProposalError::new(
    StatusCode::TOO_MANY_REQUESTS,
    "as many proposals as a session may have were made: ask your user",
);
const REFUSED: ProposalError = ProposalError::new(
    StatusCode::CONFLICT,
    "a person has refused the same proposal",
);

/// The proposals of each session. Bounded, and lost with the process: the audit log keeps the
/// grants.
pub struct Proposals {
    all: Mutex<LruCache<SessionId, SessionProposals>>,
    /// When somebody who can answer last read the list.
    looked: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct SessionProposals {
    all: Vec<Proposal>,
    sent: VecDeque<Instant>,
}

impl SessionProposals {
    fn in_state(&self, state: ProposalState) -> impl Iterator<Item = &Proposal> {
        self.all.iter().filter(move |one| one.state == state)
    }

    /// Counts what the session sends, against its rate limit.
    fn count(&mut self, now: Instant) -> Result<(), ProposalError> {
        self.sent
            .retain(|sent| now.saturating_duration_since(*sent) < WINDOW);
        if self.sent.len() >= SENT {
            return Err(TOO_OFTEN);
        }
        self.sent.push_back(now);
        Ok(())
    }

    /// Makes room for one more, or says that as many wait as may.
    fn make_room(&mut self) -> Result<(), ProposalError> {
        let waiting = self.in_state(ProposalState::Waiting).count();
        let refused = self.in_state(ProposalState::Refused).count();
        if waiting >= WAITING || waiting + refused >= UNGRANTED {
            return Err(TOO_MANY);
        }
        let is_over =
            |one: &Proposal| matches!(one.state, ProposalState::Granted | ProposalState::Used);
        if self.all.len() >= UNGRANTED
            && let Some(oldest) = self.all.iter().position(is_over)
        {
            self.all.remove(oldest);
        }
        Ok(())
    }
}

impl Proposal {
    /// Returns it as a person sees it.
    #[must_use]
    pub fn view(&self) -> Value {
        json!({
            "id": self.id.to_string(),
            "session": self.session.as_str(),
            "time": OffsetDateTime::from(self.time).format(&Rfc3339).ok(),
            "wanted": self.wanted.shown(),
            "why": self.words,
            "state": self.state.as_str(),
            "ask": self.ask.as_ref().map(AskedRequest::view),
        })
    }

    /// Returns how one more request stands that an answer is for. A yes is used up by this.
    fn stands(&mut self) -> Standing {
        match (self.state, &mut self.ask) {
            (ProposalState::Waiting, Some(ask)) => ask.join(self.id),
            (ProposalState::Granted, Some(_)) => {
                self.state = ProposalState::Used;
                Standing::Lifted
            }
            (ProposalState::Refused, Some(_)) => Standing::Refused(self.id),
            _ => Standing::Over(self.id),
        }
    }
}

impl Default for Proposals {
    fn default() -> Self {
        Self {
            all: Mutex::new(LruCache::new(SESSIONS)),
            looked: Mutex::default(),
        }
    }
}

impl RequestedAccess {
    /// Returns it as text: a method, a host and a path in all its readings, or a host alone.
    #[must_use]
    pub fn shown(&self) -> String {
        let to = self.to.authority.shown();
        match &self.request {
            Some((method, path)) => format!("{method} {to}{}", readings(path).join(" or ")),
            None => to,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.to, &self.request) == (&other.to, &other.request)
    }

    /// Whether some server treats both as the same request.
    #[must_use]
    pub fn may_be_same(&self, other: &Self) -> bool {
        let both = self.request.as_ref().zip(other.request.as_ref());
        let is_read_as_one = both.is_some_and(|((method, path), (other, other_path))| {
            method == other && may_be_same(path, other_path)
        });
        self.is_same(other) || (self.to == other.to && is_read_as_one)
    }
}

impl Proposals {
    /// Counts a proposal that a session sends, against its rate limit.
    pub(super) fn count(&self, session: &SessionId, now: Instant) -> Result<(), ProposalError> {
        let mut all = self.all.lock();
        let own = all.get_or_insert_mut(session.clone(), SessionProposals::default);
        own.count(now)
    }

    /// Records a proposal, then adds it. Returns the proposal that waits, which may be an older one
    /// for the same request.
    pub(super) fn take(
        &self,
        proposal: Proposal,
        record: impl FnOnce(&Proposal) -> Result<(), ProposalError>,
    ) -> Result<Proposal, ProposalError> {
        let mut all = self.all.lock();
        let own = all.get_or_insert_mut(proposal.session.clone(), SessionProposals::default);
        let wanted = &proposal.wanted;
        let rules = |state| own.in_state(state).filter(|one| one.ask.is_none());
        if rules(ProposalState::Refused).any(|one| one.wanted.may_be_same(wanted)) {
            return Err(REFUSED);
        }
        if let Some(same) = rules(ProposalState::Waiting).find(|one| one.wanted.is_same(wanted)) {
            return Ok(same.clone());
        }
        own.make_room()?;
        record(&proposal)?;
        // An earlier grant may have been withdrawn since.
        own.all
            .retain(|one| one.ask.is_some() || !one.wanted.is_same(wanted));
        own.all.push(proposal.clone());
        Ok(proposal)
    }

    /// Returns how a request stands that a policy asks a person about, which may have been asked
    /// before. A yes is used up by this. A request that is new is recorded, then waits.
    fn ask(
        &self,
        mut proposal: Proposal,
        now: Instant,
        record: impl FnOnce(&Proposal) -> Result<(), ProposalError>,
    ) -> Result<Standing, ProposalError> {
        let mut all = self.all.lock();
        let own = all.get_or_insert_mut(proposal.session.clone(), SessionProposals::default);
        let is_over = |one: &Proposal| one.ask.as_ref().is_some_and(|ask| ask.is_over(now));
        own.all.retain(|one| !is_over(one));
        let same = |one: &&mut Proposal| {
            let both = one.ask.as_ref().zip(proposal.ask.as_ref());
            one.state != ProposalState::Used && both.is_some_and(|(one, other)| one.is_same(other))
        };
        if let Some(same) = own.all.iter_mut().find(same) {
            return Ok(same.stands());
        }
        own.count(now)?;
        let is_left = |one: &Proposal| {
            let waits = one
                .ask
                .as_ref()
                .filter(|_| one.state == ProposalState::Waiting);
            waits.is_some_and(|ask| !ask.is_waited_for())
        };
        // A request that gave up waiting makes room for one that waits.
        if own.make_room().is_err()
            && let Some(oldest) = own.all.iter().position(is_left)
        {
            own.all.remove(oldest);
        }
        own.make_room()?;
        record(&proposal)?;
        let standing = proposal.stands();
        own.all.push(proposal);
        Ok(standing)
    }

    /// Returns how a request stands whose answer has changed. A yes is used up by this.
    fn taken(&self, (session, id): (&SessionId, ExchangeId), wait: Wait, nth: usize) -> Standing {
        let mut all = self.all.lock();
        let mut own = all
            .peek_mut(session)
            .into_iter()
            .flat_map(|own| &mut own.all);
        match own.find(|one| one.id == id) {
            Some(one) if one.state == ProposalState::Waiting => Standing::Waits(id, wait, nth),
            Some(one) => one.stands(),
            None => Standing::Over(id),
        }
    }

    /// Whether an equal request came after the one with this number, to wait for the same answer.
    fn is_joined_after(&self, (session, id): (&SessionId, ExchangeId), nth: usize) -> bool {
        let all = self.all.lock();
        let own = all.peek(session).into_iter().flat_map(|own| &own.all);
        let mut asks = own
            .filter(|one| one.id == id)
            .filter_map(|one| one.ask.as_ref());
        asks.any(|ask| ask.is_joined_after(nth))
    }

    /// Notes that somebody who can answer reads the list now.
    pub fn look(&self) {
        *self.looked.lock() = Some(Instant::now());
    }

    /// Whether somebody who can answer has read the list lately.
    pub(super) fn is_watched(&self) -> bool {
        self.looked.lock().is_some_and(|at| at.elapsed() < WATCHES)
    }

    /// Forgets the proposals of a session.
    pub(super) fn forget(&self, session: &SessionId) {
        self.all.lock().pop(session);
    }

    /// Returns the proposals of a session, the latest first.
    #[must_use]
    pub fn of(&self, session: &SessionId) -> Vec<Proposal> {
        let all = self.all.lock();
        let own = all.peek(session).into_iter().flat_map(|own| &own.all);
        own.rev().cloned().collect()
    }

    /// Returns the proposals of all sessions that a rule would grant, each session's latest first.
    #[must_use]
    pub fn all(&self) -> Vec<Proposal> {
        self.every(|one| one.ask.is_none())
    }

    /// Returns the requests of all sessions that a policy asks a person about.
    #[must_use]
    pub fn asked(&self) -> Vec<Proposal> {
        self.every(|one| one.ask.is_some())
    }

    fn every(&self, wanted: impl Fn(&Proposal) -> bool) -> Vec<Proposal> {
        let (mut all, now) = (self.all.lock(), Instant::now());
        for (_, own) in all.iter_mut() {
            own.all
                .retain(|one| one.ask.as_ref().is_none_or(|ask| !ask.is_over(now)));
        }
        let each = all.iter().flat_map(|(_, own)| own.all.iter().rev());
        each.filter(|one| wanted(one)).cloned().collect()
    }

    /// Returns the session's proposals that a person refused.
    #[must_use]
    pub fn denied(&self, session: &SessionId) -> Vec<Proposal> {
        let mut own = self.of(session);
        own.retain(|one| one.state == ProposalState::Refused && one.ask.is_none());
        own
    }

    /// Returns the proposal by which a person refused this request, or its host, to the session.
    pub(super) fn refusal(&self, session: &SessionId, asked: &RequestedAccess) -> Option<Proposal> {
        let is_of = |one: &Proposal| {
            let of_host = one.wanted.request.is_none() && one.wanted.to == asked.to;
            of_host || one.wanted.may_be_same(asked)
        };
        self.denied(session).into_iter().find(is_of)
    }

    /// Changes the state of a proposal that is in state `from`, as an operator said. Returns the
    /// changed proposal; `None` if there is none in that state.
    pub fn settle(
        &self,
        (session, id): (&SessionId, ExchangeId),
        (from, to): (ProposalState, ProposalState),
        by: Option<&str>,
    ) -> Option<Proposal> {
        let mut all = self.all.lock();
        let mut own = all.peek_mut(session)?.all.iter_mut();
        let found = own.find(|one| one.state == from && one.id == id)?;
        found.state = to;
        if let Some(ask) = &mut found.ask {
            ask.answer(to != ProposalState::Waiting, by);
        }
        Some(found.clone())
    }
}

#[cfg(test)]
mod tests {
    use gateway_message::{Authority, Scheme};

    use super::*;

    fn proposal(n: u8) -> Proposal {
        let id = ExchangeId::from_bytes([n; 10]);
        Proposal {
            id,
            session: SessionId::new("ours").unwrap(),
            time: SystemTime::now(),
            wanted: RequestedAccess {
                to: Origin {
                    scheme: Scheme::Https,
                    authority: Authority::parse(format!("h{n}.test").as_bytes(), Some(443))
                        .unwrap(),
                },
                request: None,
                refused: Some(id),
            },
            words: String::new(),
            state: ProposalState::Waiting,
            ask: None,
        }
    }

    fn take(proposals: &Proposals, n: u8) -> Result<Proposal, ProposalError> {
        proposals.take(proposal(n), |_| Ok(()))
    }

    fn answer(proposals: &Proposals, n: u8, to: ProposalState) -> bool {
        let one = proposal(n);
        let from = ProposalState::Waiting;
        let settled = proposals.settle((&one.session, one.id), (from, to), None);
        settled.is_some()
    }

    #[test]
    fn a_session_has_a_bounded_number_and_what_a_person_refused_stays_refused() {
        let proposals = Proposals::default();
        let session = proposal(0).session;
        for n in 0..8 {
            take(&proposals, n).unwrap();
        }
        assert_eq!(take(&proposals, 8).unwrap_err(), TOO_MANY);
        // An equal proposal returns the one that waits.
        assert_eq!(take(&proposals, 3).unwrap().id, proposal(3).id);
        assert_eq!(proposals.of(&session).len(), 8);
        for n in 0..32 {
            let _ = take(&proposals, n);
            answer(&proposals, n, ProposalState::Refused);
        }
        assert_eq!(take(&proposals, 3).unwrap_err(), REFUSED);
        assert_eq!(take(&proposals, 40).unwrap_err(), TOO_MANY);
        // Nor does it help to propose the same under another refusal's id.
        let mut other = proposal(3);
        (other.id, other.wanted.refused) = (proposal(50).id, Some(proposal(50).id));
        let other = proposals.take(other, |_| Ok(()));
        assert_eq!(other.unwrap_err(), REFUSED);
        assert!(!answer(&proposals, 3, ProposalState::Granted));
        assert_eq!(proposals.all().len(), 32);
    }

    #[test]
    fn what_was_refused_stays_refused_in_every_spelling_of_its_path() {
        let proposals = Proposals::default();
        let asks = |n: u8, method: &str, path: &str| {
            let mut one = proposal(n);
            one.wanted.to = proposal(0).wanted.to;
            one.wanted.request = Some((method.to_owned(), path.to_owned()));
            proposals.take(one, |_| Ok(()))
        };
        let first = asks(1, "GET", "/admin//keys").unwrap();
        assert_eq!(
            first.wanted.shown(),
            "GET h0.test/admin//keys or /admin/keys"
        );
        assert!(answer(&proposals, 1, ProposalState::Refused));
        for path in [
            "/admin//keys",
            "/admin/keys",
            "/admin;v=1/keys",
            "//admin/keys",
            "/admin/keys/",
            "/admin%2Fkeys",
        ] {
            let again = asks(2, "GET", path);
            assert_eq!(again.unwrap_err(), REFUSED, "{path}");
        }
        assert!(asks(3, "GET", "/admin/key").is_ok());
        assert!(asks(4, "POST", "/admin/keys").is_ok());
    }

    #[test]
    fn what_was_granted_makes_room_and_what_is_not_recorded_is_not_taken() {
        let proposals = Proposals::default();
        let session = proposal(0).session;
        for n in 0..100 {
            take(&proposals, n).unwrap();
            assert!(answer(&proposals, n, ProposalState::Granted));
        }
        assert_eq!(proposals.of(&session).len(), 32);
        let full = |_: &Proposal| Err(TOO_OFTEN);
        assert!(proposals.take(proposal(200), full).is_err());
        assert!(
            proposals
                .of(&session)
                .iter()
                .all(|one| one.id != proposal(200).id)
        );
    }

    #[test]
    fn what_was_refused_may_wait_again() {
        let proposals = Proposals::default();
        let session = take(&proposals, 1).unwrap().session;
        let key = (&session, proposal(1).id);
        assert!(answer(&proposals, 1, ProposalState::Refused));
        assert_eq!(proposals.denied(&session).len(), 1);
        let undo = (ProposalState::Refused, ProposalState::Waiting);
        let undone = proposals.settle(key, undo, None);
        assert_eq!(undone.unwrap().state, ProposalState::Waiting);
        assert_eq!(take(&proposals, 1).unwrap().id, proposal(1).id);
    }

    #[test]
    fn ten_are_sent_in_a_minute_whatever_becomes_of_them() {
        let (proposals, now) = (Proposals::default(), Instant::now());
        let session = proposal(0).session;
        for _ in 0..10 {
            proposals.count(&session, now).unwrap();
        }
        let later = now + Duration::from_secs(59);
        assert_eq!(proposals.count(&session, later), Err(TOO_OFTEN));
        assert_eq!(proposals.count(&session, now + WINDOW), Ok(()));
    }

    /// A request that a policy asks a person about. Requests with equal content are equal.
    fn asked(n: u64, content: u8) -> Proposal {
        let mut id = [0; 10];
        id[..8].copy_from_slice(&n.to_be_bytes());
        let mut one = proposal(0);
        one.id = ExchangeId::from_bytes(id);
        one.ask = Some(AskedRequest {
            asks: Vec::new(),
            query: String::new(),
            user: None,
            lends: Vec::new(),
            fields: Vec::new(),
            facts: Vec::new(),
            begins: String::new(),
            beyond: "",
            bytes: 1,
            sha256: [content; 32],
            cut: false,
            by: None,
            binding: [content; 32],
            waiting: Default::default(),
        });
        one
    }

    #[test]
    fn what_a_person_takes_back_is_waited_for_anew() {
        let proposals = Proposals::default();
        let standing = proposals.ask(asked(1, 1), Instant::now(), |_| Ok(()));
        drop(standing);
        let (session, id) = (asked(1, 1).session, asked(1, 1).id);
        let (waiting, refused) = (ProposalState::Waiting, ProposalState::Refused);
        let settle = |states| proposals.settle((&session, id), states, None);
        settle((waiting, refused)).unwrap();
        let asked_at = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        settle((refused, waiting)).unwrap();
        let of = proposals.asked();
        let ask = of[0].ask.as_ref().unwrap();
        // As long as a request that is asked about, from when it was taken back.
        assert!(!ask.is_over(asked_at + Duration::from_secs(600)));
        assert!(ask.is_over(asked_at + Duration::from_secs(601)));
    }

    #[test]
    fn it_is_told_anew_once_nobody_waits_for_it_and_one_waits_again() {
        let proposals = Proposals::default();
        let wait = |n| match proposals.ask(asked(n, 1), Instant::now(), |_| Ok(())) {
            Ok(Standing::Waits(_, wait, _)) => wait,
            _ => panic!("it does not wait"),
        };
        let [first, second] = [wait(1), wait(2)];
        assert!(first.is_first && !second.is_first);
        let left = first.left.clone();
        drop(first);
        assert!(!left.is_cancelled() && !wait(3).is_first);
        drop(second);
        assert!(left.is_cancelled());
        let again = wait(4);
        assert!(again.is_first && !again.left.is_cancelled());
    }

    /// Numbers that a seed gives (xorshift).
    struct Random(u64);

    impl Random {
        fn below(&mut self, most: usize) -> usize {
            for shift in [13, -7, 17] {
                self.0 ^= match shift {
                    shift @ 0.. => self.0 << shift,
                    shift => self.0 >> -shift,
                };
            }
            usize::try_from(self.0 >> 33).unwrap() % most
        }
    }

    #[test]
    fn in_ten_thousand_races_a_yes_sends_one_request_that_one_and_at_most_once() {
        let session = proposal(0).session;
        let (mut sent, mut allowed) = (0, 0);
        for seed in 1..=10_000_u64 {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let (proposals, begun) = (Proposals::default(), Instant::now());
            let (mut waits, mut now) = (Vec::new(), begun);
            // How many requests of each content a person has allowed that were not sent.
            let mut yes = [0_u32; 2];
            for n in 0..40 {
                let content = random.below(2);
                let (standing, content) = match random.below(10) {
                    // A request, or a client that repeats it.
                    0..=3 => {
                        let one = asked(n, u8::try_from(content).unwrap());
                        (proposals.ask(one, now, |_| Ok(())).ok(), content)
                    }
                    // One that waits looks again.
                    4 | 5 if !waits.is_empty() => {
                        let (content, id, answer, nth) =
                            waits.swap_remove(random.below(waits.len()));
                        (Some(proposals.taken((&session, id), answer, nth)), content)
                    }
                    // A client leaves, or has waited too long.
                    6 if !waits.is_empty() => {
                        waits.swap_remove(random.below(waits.len()));
                        continue;
                    }
                    // A person answers, or takes an answer back; others may have done so.
                    7 | 8 => {
                        let all = proposals.asked();
                        let Some(one) = all.get(random.below(all.len().max(1))) else {
                            continue;
                        };
                        let (waiting, granted) = (ProposalState::Waiting, ProposalState::Granted);
                        let refused = ProposalState::Refused;
                        let states = [
                            (waiting, granted),
                            (waiting, granted),
                            (waiting, refused),
                            (granted, refused),
                            (refused, waiting),
                        ][random.below(5)];
                        let done = proposals.settle((&session, one.id), states, None).is_some();
                        let of = &mut yes[usize::from(one.ask.as_ref().unwrap().binding[0])];
                        *of += u32::from(done && states.1 == granted);
                        *of -= u32::from(done && states.0 == granted);
                        allowed += u32::from(done && states.1 == granted);
                        continue;
                    }
                    _ => {
                        now += Duration::from_secs(random.below(100) as u64);
                        // The session ends, and another of its name begins.
                        if random.below(10) == 0 {
                            proposals.forget(&session);
                            yes = [0; 2];
                        }
                        continue;
                    }
                };
                match standing {
                    Some(Standing::Waits(id, answer, nth)) => {
                        waits.push((content, id, answer, nth))
                    }
                    Some(Standing::Lifted) => {
                        let left = yes[content].checked_sub(1);
                        yes[content] = left.unwrap_or_else(|| panic!("seed {seed}: sent unasked"));
                        // What a reload or a revocation refuses then has used its answer up.
                        sent += u32::from(random.below(10) > 0);
                    }
                    _ => {}
                }
            }
        }
        assert!(sent > 1000 && allowed > sent, "{sent} of {allowed}");
    }
}
