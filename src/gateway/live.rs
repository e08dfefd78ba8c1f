//! The watch over exchanges under way: no progress, a changed policy or a revocation cuts them.
//!
//! One sweep a second looks at every live exchange, and at once when policy changes; an exchange
//! itself sets no timer. So a deadline is exact to a second, and costs nothing on the path of a
//! request.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::Limits;
use crate::audit::{End, Outcome, Trail};
use crate::body::Meter;
use crate::intercept::strict::Violations;
use crate::session::Underway;

/// How often live exchanges are looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// Whole sweeps that an exchange may outlive its cut.
const CUT_SWEEPS: u32 = 1;

/// Why an exchange was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Cut {
    /// No byte moved in either direction for the time that the limits allow.
    #[error("nothing moved for longer than `progress_timeout` allows")]
    Stalled = 1,
    /// The policy that allowed it is no longer in force.
    #[error("the policy changed while the exchange was under way")]
    Revoked = 2,
    /// The session came to its end.
    #[error("the session has ended")]
    Ended = 3,
}

impl Cut {
    fn of(code: u8) -> Self {
        match code {
            code if code == Self::Stalled as u8 => Self::Stalled,
            code if code == Self::Ended as u8 => Self::Ended,
            _ => Self::Revoked,
        }
    }

    /// The reason code in refusals and audit.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Stalled => "timeout",
            Self::Revoked => "revoked",
            Self::Ended => "session_ended",
        }
    }
}

/// A flag that, once raised, wakes the task that waits for it.
#[derive(Default)]
struct Alarm {
    code: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

impl Alarm {
    fn code(&self) -> u8 {
        self.code.load(Ordering::Acquire)
    }

    fn raise(&self, code: u8) {
        self.code.store(code, Ordering::Release);
        if let Some(waker) = self
            .waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            waker.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<u8> {
        if self.code() != 0 {
            return Poll::Ready(self.code());
        }
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if !waker
            .as_ref()
            .is_some_and(|known| known.will_wake(cx.waker()))
        {
            *waker = Some(cx.waker().clone());
        }
        drop(waker);
        // An alarm between the first look and the registration must not be lost.
        if self.code() == 0 {
            Poll::Pending
        } else {
            Poll::Ready(self.code())
        }
    }
}

/// One connection of a client, watched for idleness.
#[derive(Default)]
pub struct Connection {
    /// Exchanges under way.
    busy: AtomicU32,
    quiet_sweeps: AtomicU32,
    /// Sweeps for which one head has not come to its end.
    head_sweeps: AtomicU32,
    violations: OnceLock<Violations>,
    alarm: Alarm,
}

impl Connection {
    /// Watches the heads of an HTTP/1 connection, too.
    pub fn heads(&self, violations: Violations) {
        // Set once, by the task that serves the connection.
        let _ = self.violations.set(violations);
    }

    fn is_slow(&self, limit: u32) -> bool {
        if !self.violations.get().is_some_and(Violations::is_mid_head) {
            self.head_sweeps.store(0, Ordering::Relaxed);
            return false;
        }
        self.head_sweeps.fetch_add(1, Ordering::Relaxed) >= limit
    }

    /// Ready when the connection has been idle, or a head under way, for too long.
    pub fn poll_idle(&self, cx: &Context<'_>) -> Poll<()> {
        self.alarm.poll(cx).map(drop)
    }
}

/// One exchange under way.
pub struct Watched {
    /// Bytes that moved.
    pub meter: Arc<Meter>,
    connection: Arc<Connection>,
    generation: AtomicU64,
    quiet_sweeps: AtomicU32,
    alarm: Alarm,
    /// Its place among the exchanges of its session.
    underway: OnceLock<Underway>,
    /// Sweeps since it was cut.
    cut_sweeps: AtomicU32,
    /// The record, once the answer's head is given.
    trail: Mutex<Option<Trail>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        match self.cut() {
            Some(cut) => self.end(Outcome::Cut, Some(cut.reason()), 0),
            None => self.end(Outcome::Whole, None, 0),
        }
        self.connection.quiet_sweeps.store(0, Ordering::Relaxed);
        self.connection.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Watched {
    /// Takes the place among the exchanges of its session, until this is dropped.
    pub fn holds(&self, underway: Underway) {
        // Set once, where the exchange begins.
        let _ = self.underway.set(underway);
    }

    /// Ends the trail with the answer's content, else when the last owner drops this: what a
    /// WebSocket carried is known only then.
    pub fn ends_with_it(&self, trail: Trail) {
        *self.trail() = Some(trail);
    }

    fn trail(&self) -> MutexGuard<'_, Option<Trail>> {
        self.trail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the trail, if it was not ended.
    pub fn end(&self, outcome: Outcome, reason: Option<&'static str>, scrubbed: u64) {
        let trail = self.trail().take();
        let Some(mut trail) = trail else { return };
        let ended = trail.end(End {
            outcome,
            reason,
            request_bytes: Some(self.meter.up()),
            response_bytes: Some(self.meter.down()),
            scrubbed,
        });
        if let Err(error) = ended {
            tracing::error!(%error, "the end of an exchange was not recorded");
        }
    }

    fn is_over(&self) -> bool {
        self.underway
            .get()
            .is_some_and(|underway| underway.session().is_over())
    }

    /// Names the policy generation under which the exchange was authorized.
    pub fn authorized_under(&self, generation: u64) {
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// Ready when the exchange is cut.
    pub fn poll_cut(&self, cx: &Context<'_>) -> Poll<Cut> {
        self.alarm.poll(cx).map(Cut::of)
    }

    /// The reason, once it was cut.
    #[must_use]
    pub fn cut(&self) -> Option<Cut> {
        let code = self.alarm.code();
        (code != 0).then(|| Cut::of(code))
    }
}

/// The live exchanges and connections of one runtime.
pub struct Live {
    exchanges: Register<Watched>,
    connections: Register<Connection>,
    changed: Notify,
    progress_limit: u32,
    idle_limit: u32,
    head_limit: u32,
}

impl Live {
    /// A watch that cuts an exchange after `progress_timeout` without a byte, a connection after
    /// `idle_timeout` without an exchange or where a head takes longer than `head_timeout`; each to
    /// the second.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            exchanges: Register::default(),
            connections: Register::default(),
            changed: Notify::new(),
            progress_limit: sweeps(limits.progress_timeout),
            idle_limit: sweeps(limits.idle_timeout),
            head_limit: sweeps(limits.head_timeout),
        }
    }

    /// Begins to watch a connection; it is forgotten when its last owner drops it.
    pub fn connection(&self) -> Arc<Connection> {
        self.connections.enter(Connection::default())
    }

    /// Begins to watch an exchange on a connection, which is not idle until this is dropped.
    pub fn watch(&self, connection: &Arc<Connection>) -> Arc<Watched> {
        connection.busy.fetch_add(1, Ordering::Relaxed);
        self.exchanges.enter(Watched {
            meter: Arc::default(),
            connection: connection.clone(),
            generation: AtomicU64::new(0),
            quiet_sweeps: AtomicU32::new(0),
            alarm: Alarm::default(),
            underway: OnceLock::new(),
            cut_sweeps: AtomicU32::new(0),
            trail: Mutex::default(),
        })
    }

    /// Tells the watch that policy changed.
    pub fn policy_changed(&self) {
        self.changed.notify_one();
    }

    /// Sweeps for ever; `generation` tells the policy generation now in force, `beside` is done
    /// once a sweep.
    pub async fn run(&self, generation: impl Fn() -> u64, beside: impl Fn()) {
        let mut tick = tokio::time::interval(SWEEP);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let timed = tokio::select! {
                _ = tick.tick() => true,
                () = self.changed.notified() => false,
            };
            self.sweep(generation(), timed);
            if timed {
                beside();
            }
        }
    }

    fn sweep(&self, generation: u64, timed: bool) {
        self.exchanges.each(|watched| {
            if watched.cut().is_some() {
                // A client that takes nothing is asked for nothing, and so never finds that its
                // answer was cut: where that did not end the exchange, its connection ends.
                if timed && watched.cut_sweeps.fetch_add(1, Ordering::Relaxed) >= CUT_SWEEPS {
                    watched.connection.alarm.raise(1);
                }
                return;
            }
            let under = watched.generation.load(Ordering::Relaxed);
            if under != 0 && under != generation {
                watched.alarm.raise(Cut::Revoked as u8);
            } else if watched.is_over() {
                watched.alarm.raise(Cut::Ended as u8);
            } else if timed && self.is_stalled(watched) {
                watched.alarm.raise(Cut::Stalled as u8);
            }
        });
        if timed {
            self.connections.each(|connection| {
                let busy = connection.busy.load(Ordering::Relaxed) > 0;
                if connection.is_slow(self.head_limit) {
                    connection.alarm.raise(1);
                }
                if !busy
                    && connection.quiet_sweeps.fetch_add(1, Ordering::Relaxed) >= self.idle_limit
                {
                    connection.alarm.raise(1);
                }
            });
        }
    }

    fn is_stalled(&self, watched: &Watched) -> bool {
        if watched.meter.take_moved() {
            watched.quiet_sweeps.store(0, Ordering::Relaxed);
            return false;
        }
        watched.quiet_sweeps.fetch_add(1, Ordering::Relaxed) >= self.progress_limit
    }
}

fn sweeps(time: Duration) -> u32 {
    u32::try_from(time.as_secs().max(1)).unwrap_or(u32::MAX)
}

/// What is live of one kind, held weakly.
struct Register<T>(Mutex<Members<T>>);

struct Members<T> {
    all: Vec<Weak<T>>,
    /// How many there may be before the dead are dropped.
    most: usize,
}

impl<T> Members<T> {
    /// The dead hold memory, and few of them are few enough for the allocator to have it ready for
    /// the next.
    fn drop_dead(&mut self) {
        self.all.retain(|weak| weak.strong_count() > 0);
        self.most = 2 * self.all.len() + 6;
        self.all.shrink_to(2 * self.most);
    }
}

impl<T> Default for Register<T> {
    fn default() -> Self {
        Self(Mutex::new(Members {
            all: Vec::new(),
            most: 0,
        }))
    }
}

impl<T> Register<T> {
    fn enter(&self, one: T) -> Arc<T> {
        let one = Arc::new(one);
        let mut members = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if members.all.len() >= members.most {
            members.drop_dead();
        }
        members.all.push(Arc::downgrade(&one));
        one
    }

    fn each(&self, mut look: impl FnMut(&T)) {
        let mut members = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        members
            .all
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|one| look(&one));
        members.drop_dead();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(seconds: u64) -> Live {
        let time = Duration::from_secs(seconds);
        Live::new(&Limits {
            progress_timeout: time,
            idle_timeout: time,
            ..Limits::default()
        })
    }

    #[test]
    fn an_exchange_without_progress_is_cut_and_one_with_progress_is_not() {
        let live = live(2);
        let connection = live.connection();
        let (still, moving) = (live.watch(&connection), live.watch(&connection));
        for _ in 0..5 {
            moving.meter.add_down(1);
            live.sweep(1, true);
        }
        assert_eq!(still.cut(), Some(Cut::Stalled));
        assert_eq!(moving.cut(), None);
    }

    #[test]
    fn an_exchange_that_outlives_its_cut_ends_with_its_connection() {
        let live = live(100);
        let (deaf, other) = (live.connection(), live.connection());
        let (old, new) = (live.watch(&deaf), live.watch(&other));
        old.authorized_under(1);
        new.authorized_under(2);
        live.sweep(2, false);
        live.sweep(2, true);
        assert_eq!((old.cut(), deaf.alarm.code()), (Some(Cut::Revoked), 0));
        live.sweep(2, true);
        assert_eq!((deaf.alarm.code(), other.alarm.code()), (1, 0));
        drop(new);
    }

    #[test]
    fn a_new_generation_cuts_what_an_older_one_allowed() {
        let live = live(100);
        let connection = live.connection();
        let (old, new, unjudged) = (
            live.watch(&connection),
            live.watch(&connection),
            live.watch(&connection),
        );
        old.authorized_under(1);
        new.authorized_under(2);
        live.sweep(2, false);
        assert_eq!(
            (old.cut(), new.cut(), unjudged.cut()),
            (Some(Cut::Revoked), None, None)
        );
    }

    fn session(ends: Option<std::time::Instant>) -> Arc<crate::session::Session> {
        use crate::session::phantom::{Issue, PhantomKey};
        let bindings = crate::session::Bindings::new(Vec::new()).unwrap();
        let phantoms = Issue::new(&PhantomKey::from_bytes([1; 32])).finish();
        let id = crate::names::SessionId::new("ours").unwrap();
        let session =
            crate::session::Session::new(id, Vec::new(), Arc::new(bindings), phantoms, ends);
        Arc::new(session)
    }

    #[test]
    fn the_end_of_a_session_cuts_what_is_under_way() {
        let live = live(100);
        let connection = live.connection();
        let (over, lasting) = (live.watch(&connection), live.watch(&connection));
        over.holds(
            session(Some(std::time::Instant::now()))
                .exchange(1)
                .unwrap(),
        );
        lasting.holds(session(None).exchange(1).unwrap());
        live.sweep(1, true);
        assert_eq!((over.cut(), lasting.cut()), (Some(Cut::Ended), None));
    }

    #[test]
    fn a_session_has_so_many_exchanges_and_gets_a_place_back_when_one_ends() {
        let live = live(100);
        let connection = live.connection();
        let session = session(None);
        let watched = live.watch(&connection);
        watched.holds(session.exchange(1).unwrap());
        assert!(session.exchange(1).is_none());
        drop(watched);
        assert!(session.exchange(1).is_some());
    }

    #[test]
    fn the_record_of_a_websocket_ends_with_what_it_carried() {
        use crate::audit::{Length, Log, Sync};
        let (log, memory) = Log::memory(Sync::Batch).unwrap();
        let live = live(100);
        let connection = live.connection();
        let watched = live.watch(&connection);
        let mut trail = Trail::begin(
            &log,
            crate::names::ExchangeId::from_bytes([7; 10]),
            "transparent",
        );
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime
            .block_on(trail.answer(101, Length::Switched))
            .unwrap();
        watched.ends_with_it(trail);
        let ends = || {
            let records = memory.records();
            let ends = records.into_iter().filter(|record| record.kind == "end");
            ends.map(|end| (end.request_bytes, end.response_bytes))
                .collect::<Vec<_>>()
        };
        watched.meter.add_up(5);
        watched.meter.add_down(7);
        assert_eq!(ends(), []);
        drop(watched);
        assert_eq!(ends(), [(Some(5), Some(7))]);
    }

    #[test]
    fn ended_exchanges_are_forgotten() {
        let live = live(100);
        let connection = live.connection();
        for _ in 0..10_000 {
            drop(live.watch(&connection));
        }
        assert!(live.exchanges.0.lock().unwrap().all.len() < 64);
    }

    #[test]
    fn a_connection_is_idle_only_without_an_exchange() {
        let live = live(2);
        let (idle, used) = (live.connection(), live.connection());
        let watched = live.watch(&used);
        for _ in 0..5 {
            watched.meter.add_down(1);
            live.sweep(1, true);
        }
        assert_eq!((idle.alarm.code(), used.alarm.code()), (1, 0));
        drop(watched);
        for _ in 0..5 {
            live.sweep(1, true);
        }
        assert_eq!(used.alarm.code(), 1);
    }
}
