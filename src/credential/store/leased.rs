//! A value that expires: held and lent, replaced in time by one task at a time, with the last
//! failure to do so.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::error::StoreError;
use super::material::Lease;

/// The latest value of its kind.
pub(super) struct Leased<T> {
    held: ArcSwapOption<Held<T>>,
    /// Locked by the task that obtains the next value.
    flight: Arc<tokio::sync::Mutex<Flight>>,
}

/// A value, and how long it may be used.
pub(super) struct Held<T> {
    value: T,
    /// `None` if it does not expire.
    lease: Option<Lease>,
    /// When it was requested. It may have been issued then.
    since: Moment,
}

/// Why there is no newer value.
#[derive(Clone)]
pub(super) struct Failure {
    pub(super) cause: StoreError,
    /// When the next attempt may be made; `None` if none may.
    pub(super) retry_at: Option<Moment>,
}

/// A moment by two clocks. One stands still while the machine sleeps, and the other can be set: a
/// time is over once either clock has passed it.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    uptime: Instant,
    wall: SystemTime,
}

#[derive(Default)]
struct Flight {
    failed: Option<Failure>,
    has_ended: bool,
}

/// The right to obtain the next value, which one task has at a time.
pub(super) struct Turn<T> {
    leased: Arc<Leased<T>>,
    flight: OwnedMutexGuard<Flight>,
}

impl<T> Default for Leased<T> {
    fn default() -> Self {
        Self {
            held: ArcSwapOption::empty(),
            flight: Arc::default(),
        }
    }
}

impl<T> Leased<T> {
    /// Returns the held value, usable or not.
    pub(super) fn held(&self) -> Option<Arc<Held<T>>> {
        self.held.load_full()
    }

    /// Returns the held value, if it may be used.
    pub(super) fn serving(&self, now: Moment) -> Option<Arc<Held<T>>> {
        let held = self.held.load();
        held.as_ref().filter(|held| held.serves(now)).cloned()
    }

    /// Waits for the turn.
    pub(super) async fn turn(self: &Arc<Self>) -> Turn<T> {
        Turn {
            flight: self.flight.clone().lock_owned().await,
            leased: self.clone(),
        }
    }

    /// Takes the turn, unless another task has it.
    pub(super) fn free_turn(self: &Arc<Self>) -> Option<Turn<T>> {
        Some(Turn {
            flight: self.flight.clone().try_lock_owned().ok()?,
            leased: self.clone(),
        })
    }

    /// Takes the turn, unless another task has it or an attempt has just failed.
    pub(super) fn open_turn(self: &Arc<Self>) -> Option<Turn<T>> {
        let turn = self.free_turn();
        turn.filter(|turn| turn.flight.closed(Moment::now()).is_none())
    }

    /// Returns the held value. A value that is due is replaced first by `next`, which receives it
    /// if it is usable. If that fails, or another task has the turn, it is used until it expires.
    pub(super) async fn get<F>(
        self: &Arc<Self>,
        next: impl FnOnce(Option<Arc<Held<T>>>) -> F,
    ) -> Result<Arc<Held<T>>, StoreError>
    where
        F: Future<Output = Result<Held<T>, Failure>>,
    {
        let now = Moment::now();
        let turn = match self.serving(now) {
            Some(held) if !held.is_due(now) => return Ok(held),
            Some(held) => match self.open_turn() {
                Some(turn) => turn,
                None => return Ok(held),
            },
            None => self.turn().await,
        };
        let (now, held) = (Moment::now(), self.serving(Moment::now()));
        match held {
            // Another task had the turn meanwhile.
            Some(held) if !held.is_due(now) => Ok(held),
            held => match turn.obtain(next(held)).await {
                Err(cause) => self.serving(Moment::now()).ok_or(cause),
                obtained => obtained,
            },
        }
    }

    /// Drops a value that is no longer accepted.
    pub(super) fn reject(&self, held: &Arc<Held<T>>) {
        self.held.compare_and_swap(&Some(held.clone()), None);
    }

    /// Drops the held value.
    pub(super) fn clear(&self) {
        self.held.store(None);
    }

    /// Drops the held value and the last failure, so that the next use obtains a new value.
    pub(super) async fn forget(&self) {
        let mut flight = self.flight.lock().await;
        flight.failed = None;
        self.clear();
    }

    /// Ends the lease: no value is obtained from now on. Returns the held value.
    pub(super) async fn end(&self) -> Option<Arc<Held<T>>> {
        let mut flight = self.flight.lock().await;
        flight.has_ended = true;
        self.held.swap(None)
    }
}

impl<T> Turn<T> {
    /// Obtains and holds the next value, unless an attempt has just failed.
    pub(super) async fn obtain(
        mut self,
        next: impl Future<Output = Result<Held<T>, Failure>>,
    ) -> Result<Arc<Held<T>>, StoreError> {
        if let Some(cause) = self.flight.closed(Moment::now()) {
            return Err(cause);
        }
        match next.await {
            Ok(held) => {
                let held = Arc::new(held);
                self.leased.held.store(Some(held.clone()));
                self.flight.failed = None;
                Ok(held)
            }
            Err(failure) => {
                let cause = failure.cause.clone();
                self.flight.failed = Some(failure);
                Err(cause)
            }
        }
    }
}

impl Flight {
    /// Returns why no attempt may be made now.
    fn closed(&self, now: Moment) -> Option<StoreError> {
        if self.has_ended {
            return Some(StoreError::Ended);
        }
        let failed = self.failed.as_ref();
        let lately = failed.filter(|failed| failed.retry_at.is_none_or(|at| !at.has_come(now)));
        lately.map(|failed| failed.cause.clone())
    }
}

impl<T> Held<T> {
    pub(super) fn new(value: T, lease: Option<Lease>, since: Moment) -> Self {
        Self {
            value,
            lease,
            since,
        }
    }

    /// Returns when it may no longer be used; `None` means never.
    pub(super) fn ends(&self) -> Option<Instant> {
        let lease = self.lease.as_ref()?;
        Some(self.since.after(lease.expires_after).uptime)
    }

    pub(super) fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Whether it may be used.
    pub(super) fn serves(&self, now: Moment) -> bool {
        self.is_before(now, |lease| lease.expires_after)
    }

    /// Whether uses need not wait for a newer value.
    pub(super) fn is_fresh(&self, now: Moment) -> bool {
        self.is_before(now, |lease| lease.stale_after)
    }

    /// Whether it is time to obtain the next value.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        !self.is_before(now, |lease| lease.refresh_after)
    }

    fn is_before(&self, now: Moment, limit: impl FnOnce(&Lease) -> Duration) -> bool {
        let at = self
            .lease
            .as_ref()
            .map(|lease| self.since.after(limit(lease)));
        at.is_none_or(|at| !at.has_come(now))
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl From<StoreError> for Failure {
    fn from(cause: StoreError) -> Self {
        Self {
            retry_at: Some(Moment::now().after(RETRY_AFTER)),
            cause,
        }
    }
}

impl Moment {
    pub(super) fn now() -> Self {
        Self {
            uptime: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// Returns a moment that is this much later.
    pub(super) fn after(self, time: Duration) -> Self {
        let time = time.min(LONGEST);
        Self {
            uptime: self.uptime + time,
            wall: self.wall + time,
        }
    }

    /// Whether this moment has come, by either clock.
    pub(super) fn has_come(self, now: Self) -> bool {
        now.uptime >= self.uptime || now.wall >= self.wall
    }
}

/// How long after a failure a store is tried again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A hundred years: clocks cannot represent much later moments.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

#[cfg(test)]
mod tests;
