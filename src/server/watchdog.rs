//! Aborts exchanges that stall, that outlive their session, or that new policies do not allow.
//! Closes idle connections, and all of them in order when the gateway stops.
//!
//! One sweep a second checks everything, and no exchange sets a timer of its own. So deadlines are
//! exact to a second, and cost nothing on the path of a request.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::guard::{Abort, Closing, ConnectionGuard, ExchangeGuard};
use super::limits::Limits;
use super::shared::SharedState;
use super::snapshot::Snapshot;

/// How often everything is checked.
const SWEEP: Duration = Duration::from_secs(1);
/// How long an exchange of an ended session may take to end by itself.
const END_GRACE: Duration = Duration::from_millis(20);
/// How many whole sweeps an exchange may outlive its abort.
const GRACE: u32 = 1;
/// How many whole sweeps a connection may rest before it is closed while the gateway stops. A
/// client that is about to send its next request has sent it by then, and learns from the response
/// that the connection closes.
const REST: u32 = 1;
/// How long exchanges are judged again before the thread's other tasks get their turn: about a
/// thousand exchanges.
const TURN: Duration = Duration::from_millis(5);

/// The exchanges and connections of one runtime thread.
pub(super) struct Watchdog {
    exchanges: Register<ExchangeGuard>,
    connections: Register<ConnectionGuard>,
    /// Whether the gateway drains.
    draining: AtomicBool,
    progress_limit: AtomicU32,
    idle_limit: AtomicU32,
    head_limit: AtomicU32,
    drain_limit: AtomicU32,
}

impl Watchdog {
    /// Creates a watchdog with these limits, each exact to a second.
    ///
    /// It aborts an exchange after `progress_timeout` without a byte. It closes a connection after
    /// `idle_timeout` without an exchange, or if a head takes longer than `head_timeout`.
    pub(super) fn new(limits: &Limits) -> Self {
        let watchdog = Self {
            exchanges: Register::default(),
            connections: Register::default(),
            draining: AtomicBool::new(false),
            progress_limit: AtomicU32::default(),
            idle_limit: AtomicU32::default(),
            head_limit: AtomicU32::default(),
            drain_limit: AtomicU32::default(),
        };
        watchdog.limit(limits);
        watchdog
    }

    /// Replaces the limits.
    fn limit(&self, limits: &Limits) {
        for (limit, time) in [
            (&self.progress_limit, limits.progress_timeout),
            (&self.idle_limit, limits.idle_timeout),
            (&self.head_limit, limits.head_timeout),
            (&self.drain_limit, limits.drain_timeout),
        ] {
            limit.store(sweeps(time), Ordering::Relaxed);
        }
    }

    /// Starts watching a connection, until its last owner drops it. It drains when `leaves` is
    /// cancelled.
    pub(super) fn connection(&self, leaves: &CancellationToken) -> Arc<ConnectionGuard> {
        self.connections.enter(ConnectionGuard::new(leaves))
    }

    /// Starts watching an exchange on a connection.
    pub(super) fn exchange(&self, connection: &Arc<ConnectionGuard>) -> Arc<ExchangeGuard> {
        self.exchanges.enter(ExchangeGuard::new(connection))
    }

    /// Returns how many exchanges are under way.
    pub(super) fn underway(&self) -> usize {
        self.exchanges.living().count()
    }

    /// Aborts every exchange, and closes the connections that have none.
    pub(super) fn cut(&self) {
        for exchange in self.exchanges.living() {
            exchange.abort(Abort::Stopping);
        }
        for connection in self.connections.living() {
            if connection.is_at_rest() {
                connection.close(Closing::AtOnce);
            }
        }
    }

    /// Closes every connection, with the exchanges under way on it.
    pub(super) fn close(&self) {
        for connection in self.connections.living() {
            connection.close(Closing::AtOnce);
        }
    }

    /// Drains the connections of removed listeners, or all connections when the gateway stops.
    fn leave(&self) {
        for connection in self.connections.living() {
            connection.leave();
        }
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Runs for ever, and calls `beside` once per sweep and for each generation. Drains once
    /// `draining` is cancelled.
    pub(super) async fn run(&self, shared: &SharedState, beside: impl Fn(&Snapshot)) {
        let mut changes = shared.changes();
        let mut tick = tokio::time::interval(SWEEP);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => self.sweep(),
                // The sender lives in `shared`.
                _ = changes.changed() => {}
                () = shared.draining.cancelled(), if !self.is_draining() => {
                    self.draining.store(true, Ordering::Relaxed);
                }
            }
            self.leave();
            let snapshot = shared.current();
            self.limit(&snapshot.limits);
            self.judge_again(&snapshot).await;
            beside(&snapshot);
        }
    }

    /// Aborts the exchanges of each session that an operator ends. Runs for ever.
    pub(super) async fn cut_ended(&self, mut ends: watch::Receiver<()>) {
        while ends.changed().await.is_ok() {
            for exchange in self.exchanges.living() {
                exchange.judge_again(None);
            }
            tokio::time::sleep(END_GRACE).await;
            self.exchanges
                .living()
                .for_each(|exchange| exchange.close_if_ended());
        }
    }

    fn sweep(&self) {
        if !self.is_draining() {
            let drain_limit = self.drain_limit.load(Ordering::Relaxed);
            for connection in self.connections.living() {
                connection.expire(drain_limit);
            }
        }
        for exchange in self.exchanges.living() {
            exchange.sweep(self.progress_limit.load(Ordering::Relaxed), GRACE);
        }
        let idle_limit = self.idle_limit.load(Ordering::Relaxed);
        let head_limit = self.head_limit.load(Ordering::Relaxed);
        for connection in self.connections.living() {
            let (idle_limit, idle) = if connection.is_draining() {
                (idle_limit.min(REST), Closing::AtRest)
            } else {
                (idle_limit, Closing::AtOnce)
            };
            if connection.is_slow(head_limit) || connection.is_over() {
                connection.close(Closing::AtOnce);
            } else if connection.is_idle(idle_limit) {
                connection.close(idle);
            }
        }
    }

    /// Judges exchanges that earlier generations allowed again, by the generation now in force.
    async fn judge_again(&self, snapshot: &Snapshot) {
        let (began, mut judged) = (Instant::now(), 0);
        let mut turn = began;
        for exchange in self.exchanges.all() {
            let Some(exchange) = exchange.upgrade() else {
                continue;
            };
            if exchange.judge_again(Some(snapshot)) {
                judged += 1;
            }
            drop(exchange);
            if turn.elapsed() > TURN {
                tokio::task::yield_now().await;
                turn = Instant::now();
            }
        }
        if judged > 0 {
            let took = began.elapsed();
            tracing::debug!(judged, ?took, "exchanges under way were judged again");
        }
    }
}

fn sweeps(time: Duration) -> u32 {
    u32::try_from(time.as_secs().max(1)).unwrap_or(u32::MAX)
}

/// Weak references to all living values of one kind.
struct Register<T>(Mutex<Vec<Weak<T>>>);

impl<T> Default for Register<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Register<T> {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<T>>> {
        self.0.lock()
    }

    fn enter(&self, one: T) -> Arc<T> {
        let one = Arc::new(one);
        let mut all = self.lock();
        if all.len() == all.capacity() {
            drop_dead(&mut all);
        }
        all.push(Arc::downgrade(&one));
        one
    }

    fn all(&self) -> Vec<Weak<T>> {
        let mut all = self.lock();
        drop_dead(&mut all);
        all.clone()
    }

    fn living(&self) -> impl Iterator<Item = Arc<T>> + use<T> {
        self.all().into_iter().filter_map(|one| one.upgrade())
    }
}

/// Removes dead references, and reserves room for as many as are alive.
///
/// A new value searches for dead references only when that room is full. Dead references keep their
/// memory allocated, and the room bounds their number.
fn drop_dead<T>(all: &mut Vec<Weak<T>>) {
    all.retain(|one| one.strong_count() > 0);
    let most = 2 * all.len() + 8;
    all.shrink_to(most);
    all.reserve_exact(most - all.len());
}

#[cfg(test)]
mod tests {
    use gateway_audit::Trail;
    use gateway_policy::Objection;
    use gateway_session::{Lifetime, Moment};

    use super::*;

    fn stays() -> CancellationToken {
        CancellationToken::new()
    }

    fn watchdog(seconds: u64) -> Watchdog {
        let time = Duration::from_secs(seconds);
        Watchdog::new(&Limits {
            progress_timeout: time,
            idle_timeout: time,
            ..Limits::default()
        })
    }

    #[test]
    fn an_exchange_without_progress_is_cut_and_one_with_progress_is_not() {
        let live = watchdog(2);
        let connection = live.connection(&stays());
        let (still, moving) = (live.exchange(&connection), live.exchange(&connection));
        for _ in 0..5 {
            moving.meter.add_down(1);
            live.sweep();
        }
        assert_eq!(still.abort_reason(), Some(Abort::Stalled));
        assert_eq!(moving.abort_reason(), None);
    }

    #[test]
    fn an_exchange_that_outlives_its_abort_ends_with_its_connection() {
        let live = watchdog(100);
        let (deaf, other) = (live.connection(&stays()), live.connection(&stays()));
        let (over, new) = (live.exchange(&deaf), live.exchange(&other));
        let ended = session(Some(over_now()));
        over.holds(ended.exchange(1).unwrap());
        live.sweep();
        live.sweep();
        assert_eq!(
            (over.abort_reason(), deaf.is_closed()),
            (Some(Objection::SessionEnded.into()), false)
        );
        live.sweep();
        assert_eq!((deaf.is_closed(), other.is_closed()), (true, false));
        drop(new);
    }

    fn over_now() -> Lifetime {
        Lifetime::new(Moment::now(), Duration::ZERO)
    }

    fn session(lifetime: Option<Lifetime>) -> Arc<gateway_session::Session> {
        use gateway_session::phantom::{Issue, PhantomKey};
        let phantoms = Issue::new(&PhantomKey::from_bytes([1; 32])).finish();
        let id = gateway_names::SessionId::new("ours").unwrap();
        Arc::new(gateway_session::Session::new(
            id,
            Vec::new(),
            phantoms,
            lifetime,
        ))
    }

    #[test]
    fn the_end_of_a_session_cuts_what_is_under_way() {
        let live = watchdog(100);
        let connection = live.connection(&stays());
        let (over, lasting) = (live.exchange(&connection), live.exchange(&connection));
        over.holds(session(Some(over_now())).exchange(1).unwrap());
        lasting.holds(session(None).exchange(1).unwrap());
        live.sweep();
        assert_eq!(
            (over.abort_reason(), lasting.abort_reason()),
            (Some(Objection::SessionEnded.into()), None)
        );
    }

    #[test]
    fn a_session_has_so_many_exchanges_and_gets_a_place_back_when_one_ends() {
        let live = watchdog(100);
        let connection = live.connection(&stays());
        let session = session(None);
        let watched = live.exchange(&connection);
        watched.holds(session.exchange(1).unwrap());
        assert!(session.exchange(1).is_none());
        drop(watched);
        assert!(session.exchange(1).is_some());
    }

    #[test]
    fn the_record_of_a_websocket_ends_with_what_it_carried() {
        use gateway_audit::{self as audit, Length, Log, Settings, read};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own/log.jsonl");
        let log = Log::open(&Settings::at(&path)).unwrap();
        let live = watchdog(100);
        let connection = live.connection(&stays());
        let watched = live.exchange(&connection);
        let mut trail = Trail::begin(
            &log,
            gateway_names::ExchangeId::from_bytes([7; 10]),
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
            let mut ends = Vec::new();
            let end = |record: audit::Record| {
                let counted = (record.request_bytes, record.response_bytes);
                ends.extend((record.kind == "end").then_some(counted));
            };
            read(std::slice::from_ref(&path), end).unwrap();
            ends
        };
        watched.meter.add_up(5);
        watched.meter.add_down(7);
        assert_eq!(ends(), []);
        drop(watched);
        assert_eq!(ends(), [(Some(5), Some(7))]);
    }

    #[test]
    fn ended_exchanges_are_forgotten() {
        let live = watchdog(100);
        let connection = live.connection(&stays());
        for _ in 0..10_000 {
            drop(live.exchange(&connection));
        }
        assert!(live.exchanges.lock().len() < 64);
    }

    #[test]
    fn connections_of_a_gateway_that_drains_end_once_they_have_rested() {
        let (live, leaves) = (watchdog(100), CancellationToken::new());
        let (resting, used) = (live.connection(&leaves), live.connection(&leaves));
        let watched = live.exchange(&used);
        // Rest before the drain does not count.
        (0..5).for_each(|_| live.sweep());
        leaves.cancel();
        live.leave();
        let new = live.connection(&leaves);
        assert!([&resting, &used, &new].iter().all(|one| one.is_draining()));
        live.sweep();
        assert_eq!(resting.step(), Some(Closing::Draining));
        live.sweep();
        assert_eq!(resting.step(), Some(Closing::AtRest));
        assert_eq!(used.step(), Some(Closing::Draining));
        live.cut();
        assert_eq!(watched.abort_reason(), Some(Abort::Stopping));
        assert_eq!(resting.step(), Some(Closing::AtOnce));
        assert_eq!((used.is_closed(), live.underway()), (false, 1));
        drop(watched);
        assert_eq!(live.underway(), 0);
    }

    #[test]
    fn connections_of_a_removed_listener_end_in_order_and_are_cut_when_it_takes_too_long() {
        let live = Watchdog::new(&Limits {
            drain_timeout: Duration::from_secs(3),
            ..Limits::default()
        });
        let removed = CancellationToken::new();
        let (resting, used) = (live.connection(&removed), live.connection(&removed));
        let other = live.connection(&stays());
        let watched = live.exchange(&used);
        live.sweep();
        removed.cancel();
        live.leave();
        assert!(resting.is_draining() && used.is_draining() && !other.is_draining());
        live.sweep();
        live.sweep();
        assert_eq!(resting.step(), Some(Closing::AtRest));
        live.sweep();
        assert_eq!(watched.abort_reason(), None);
        live.sweep();
        assert_eq!(watched.abort_reason(), Some(Abort::ListenerRemoved));
        assert_eq!((resting.is_closed(), other.step()), (true, None));
        live.sweep();
        live.sweep();
        assert!(used.is_closed());
    }

    #[test]
    fn a_connection_is_idle_only_without_an_exchange() {
        let live = watchdog(2);
        let (idle, used) = (live.connection(&stays()), live.connection(&stays()));
        let watched = live.exchange(&used);
        for _ in 0..5 {
            watched.meter.add_down(1);
            live.sweep();
        }
        assert_eq!((idle.is_closed(), used.is_closed()), (true, false));
        drop(watched);
        for _ in 0..5 {
            live.sweep();
        }
        assert!(used.is_closed());
    }
}
