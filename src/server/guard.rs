//! Guards: each lives as long as its connection or exchange, and can end it from outside.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use gateway_audit::{ExchangeEnd, Outcome, Trail};
use gateway_body::Meter;
use gateway_intercept::strict::ViolationHandle;
use gateway_intercept::{Caller, HeldToken};
use gateway_names::ReasonCode;
use gateway_policy::{JudgeInput, JudgedRequest, Objection, Ruling};
use gateway_session::SessionExchange;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;
use super::snapshot::Snapshot;

gateway_names::faults! {
    /// Why an exchange was aborted.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    pub enum Abort {
        /// No byte moved in either direction for longer than the limits allow.
        Stalled = Timeout "nothing moved for longer than `progress_timeout` allows",
        /// A judge objects to the exchange.
        Objected(#[from] Objection) = inner transparent,
        /// The exchange's listener was removed, and it lasted longer than `drain_timeout`.
        ListenerRemoved = ListenerRemoved
            "the configuration has its listener no more, and the gateway waited as long as \
             `drain_timeout` allows",
        /// The gateway stops, and the exchange lasted longer than `drain_timeout`.
        Stopping = GatewayStopping
            "the gateway stops, and waited as long as `drain_timeout` allows",
    }
}

/// How a connection is to end. Each step includes the steps before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Closing {
    /// No further exchange: HTTP/2 sends GOAWAY, HTTP/1 says so in the next response.
    Draining,
    /// The connection was idle during the drain, and closes unless a request has come since.
    AtRest,
    /// The connection is cut.
    AtOnce,
}

impl Closing {
    /// Reads the value that [`ConnectionGuard::close`] stored; 0 if the connection stays open.
    fn of(step: u8) -> Option<Self> {
        [Self::Draining, Self::AtRest, Self::AtOnce]
            .into_iter()
            .find(|closing| closing.step() == step)
    }

    const fn step(self) -> u8 {
        self as u8 + 1
    }
}

/// The guard of a client's connection.
#[derive(Default)]
pub(super) struct ConnectionGuard {
    /// How many exchanges or tunnels are under way.
    busy: AtomicU32,
    quiet_sweeps: AtomicU32,
    /// For how many sweeps the current head has been incomplete.
    head_sweeps: AtomicU32,
    violations: OnceLock<ViolationHandle>,
    /// The client's caller, if evidence shows one.
    caller: OnceLock<Arc<Caller>>,
    /// The step of its [`Closing`], whether that changed since it was last polled, and the task to
    /// wake.
    closing: AtomicU8,
    has_changed: AtomicBool,
    waits: AtomicWaker,
    /// Cancelled when the connection's listener is removed or the gateway stops.
    leaves: CancellationToken,
    /// For how many sweeps the connection has been leaving.
    leaving_sweeps: AtomicU32,
    /// Whether it has been leaving for longer than allowed.
    overdue: AtomicBool,
}

impl ConnectionGuard {
    /// Guards a connection, which drains once `leaves` is cancelled.
    pub(super) fn new(leaves: &CancellationToken) -> Self {
        let guard = Self {
            leaves: leaves.clone(),
            ..Self::default()
        };
        guard.leave();
        guard
    }

    /// Drains the connection, if its listener was removed or the gateway stops.
    pub(super) fn leave(&self) {
        if self.leaves.is_cancelled() {
            self.close(Closing::Draining);
        }
    }

    /// Cuts the connection if it outlasts its drain by more sweeps than allowed. Call it once per
    /// sweep. An exchange is aborted by the next sweep of its own.
    pub(super) fn expire(&self, limit: u32) {
        if !self.leaves.is_cancelled() {
            return;
        }
        if self.leaving_sweeps.fetch_add(1, Ordering::Relaxed) < limit {
            return;
        }
        self.overdue.store(true, Ordering::Relaxed);
        if self.busy.load(Ordering::Relaxed) == 0 {
            self.close(Closing::AtOnce);
        }
    }

    /// Also watches the caller's evidence, if there is a caller.
    pub(super) fn is_of(&self, caller: Option<&Arc<Caller>>) {
        // Set once, where the connection begins.
        let _ = caller.map(|caller| self.caller.set(caller.clone()));
    }

    /// Whether the connection has no exchange, and its caller's evidence has ended.
    pub(super) fn is_over(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
            && self.caller.get().is_some_and(|caller| caller.is_over())
    }

    /// Also watches how long the heads of an HTTP/1 connection take.
    pub(super) fn watch_heads(&self, violations: ViolationHandle) {
        // Set once, by the task that serves the connection.
        let _ = self.violations.set(violations);
    }

    /// Completes when the connection is to end, and once more for each further step.
    pub(super) async fn closing(&self) -> Closing {
        poll_fn(|cx| {
            self.waits.register(cx.waker());
            let changed = self.has_changed.swap(false, Ordering::AcqRel);
            match Closing::of(self.closing.load(Ordering::Acquire)) {
                Some(closing) if changed => Poll::Ready(closing),
                _ => Poll::Pending,
            }
        })
        .await
    }

    pub(super) fn close(&self, closing: Closing) {
        if self.closing.fetch_max(closing.step(), Ordering::AcqRel) < closing.step() {
            // Idle time is counted from when the client could know.
            self.quiet_sweeps.store(0, Ordering::Relaxed);
            self.has_changed.store(true, Ordering::Release);
            self.waits.wake();
        }
    }

    /// Whether the connection takes no exchange beyond those that it has begun.
    pub(super) fn is_draining(&self) -> bool {
        self.closing.load(Ordering::Relaxed) > 0
    }

    /// Whether neither an exchange nor a head is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0 && !self.is_mid_head()
    }

    fn is_mid_head(&self) -> bool {
        self.violations
            .get()
            .is_some_and(ViolationHandle::is_mid_head)
    }

    /// Whether the connection has been within one head for more sweeps than allowed. Call it once
    /// per sweep.
    pub(super) fn is_slow(&self, head_limit: u32) -> bool {
        if !self.is_mid_head() {
            self.head_sweeps.store(0, Ordering::Relaxed);
            return false;
        }
        self.head_sweeps.fetch_add(1, Ordering::Relaxed) >= head_limit
    }

    /// Whether the connection has been without an exchange for more sweeps than allowed. Call it
    /// once per sweep.
    pub(super) fn is_idle(&self, idle_limit: u32) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
            && self.quiet_sweeps.fetch_add(1, Ordering::Relaxed) >= idle_limit
    }

    #[cfg(test)]
    pub(super) fn step(&self) -> Option<Closing> {
        Closing::of(self.closing.load(Ordering::Relaxed))
    }

    #[cfg(test)]
    pub(super) fn is_closed(&self) -> bool {
        self.step() == Some(Closing::AtOnce)
    }
}

/// Something under way on a connection, which is not idle until this is dropped.
pub(super) struct Busy(Arc<ConnectionGuard>);

impl Busy {
    pub(super) fn on(connection: &Arc<ConnectionGuard>) -> Self {
        connection.busy.fetch_add(1, Ordering::Relaxed);
        Self(connection.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.quiet_sweeps.store(0, Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The guard of an exchange, from its head to the end of its response's content or WebSocket.
pub(super) struct ExchangeGuard {
    /// Counts the bytes that moved.
    pub(super) meter: Arc<Meter>,
    connection: Busy,
    why: OnceLock<Abort>,
    /// The task to wake on an abort: it waits for the response, then passes on its content or the
    /// WebSocket.
    waits: AtomicWaker,
    /// Where the exchange's bytes are counted at its end.
    metrics: OnceLock<Arc<Metrics>>,
    /// Its place among the exchanges of its session.
    underway: OnceLock<SessionExchange>,
    judged: OnceLock<Arc<JudgedRequest>>,
    /// The exchange's caller, if evidence shows one.
    caller: OnceLock<Arc<Caller>>,
    /// The number of the generation that last allowed the exchange.
    generation: AtomicU64,
    /// How many labels its session had then.
    labels: AtomicUsize,
    quiet_sweeps: AtomicU32,
    /// How many sweeps ago the exchange was aborted.
    aborted_sweeps: AtomicU32,
    /// The audit trail, once the response's head was returned.
    trail: Mutex<Option<Trail>>,
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        match self.abort_reason() {
            Some(why) => self.end(Outcome::Cut, Some(why.reason()), 0),
            None => self.end(Outcome::Whole, None, 0),
        }
        if let Some(metrics) = self.metrics.get() {
            metrics.bytes(self.meter.up(), self.meter.down());
        }
    }
}

impl ExchangeGuard {
    /// Guards an exchange. Its connection is not idle until this is dropped.
    pub(super) fn new(connection: &Arc<ConnectionGuard>) -> Self {
        Self {
            meter: Arc::default(),
            connection: Busy::on(connection),
            why: OnceLock::new(),
            waits: AtomicWaker::new(),
            metrics: OnceLock::new(),
            underway: OnceLock::new(),
            judged: OnceLock::new(),
            caller: OnceLock::new(),
            generation: AtomicU64::new(0),
            labels: AtomicUsize::new(0),
            quiet_sweeps: AtomicU32::new(0),
            aborted_sweeps: AtomicU32::new(0),
            trail: Mutex::default(),
        }
    }

    /// Sets where the exchange's bytes are counted when it ends.
    pub(super) fn counts_in(&self, metrics: &Arc<Metrics>) {
        // Set once, where the exchange begins.
        let _ = self.metrics.set(metrics.clone());
    }

    /// Keeps the exchange's place in its session until this is dropped.
    pub(super) fn holds(&self, underway: SessionExchange) {
        // Set once, where the exchange begins.
        let _ = self.underway.set(underway);
    }

    /// Ends the exchange when its caller's evidence does.
    pub(super) fn is_of(&self, caller: &Arc<Caller>) {
        // Set once, by the one identification on the path.
        let _ = self.caller.set(caller.clone());
    }

    /// Returns the token of the exchange's caller.
    pub(super) fn token(&self) -> Option<&HeldToken> {
        self.caller.get()?.token.as_deref()
    }

    /// Keeps the judged request, so that another generation can judge it again, and all policies
    /// once its session has more labels than these.
    pub(super) fn allowed(&self, judged: Arc<JudgedRequest>, generation: u64, labels: usize) {
        self.generation.store(generation, Ordering::Relaxed);
        self.labels.store(labels, Ordering::Relaxed);
        // Set once, by the one decision on the path.
        let _ = self.judged.set(judged);
    }

    /// Consults the judges again, and aborts the exchange if one objects. A generation that has not
    /// allowed the exchange before judges it anew, and so does each once the session has another
    /// label; returns whether one did.
    pub(super) fn judge_again(&self, by: Option<&Snapshot>) -> bool {
        let request = self.judged.get().map(|judged| &**judged);
        // An exchange that began after the snapshot was taken is judged by a newer one.
        let labels = request.map_or(0, |request| request.session().label_count());
        let is_new = |by: &&Snapshot| {
            self.generation.load(Ordering::Relaxed) < by.number()
                || self.labels.load(Ordering::Relaxed) < labels
        };
        let ruling = request.zip(by.filter(is_new)).map(|(request, by)| {
            self.generation.fetch_max(by.number(), Ordering::Relaxed);
            self.labels.store(labels, Ordering::Relaxed);
            Ruling::later(request, by.policies.generation(), by.credentials.bindings())
        });
        let is_judged = ruling.is_some();
        let case = JudgeInput {
            session: self.underway.get().map(SessionExchange::session),
            caller: self.caller.get().map(|caller| &**caller),
            request,
            ruling,
        };
        if let Err(objection) = case.hear() {
            self.abort(objection.into());
        }
        is_judged
    }

    /// Checks, once per sweep, whether the exchange may go on.
    pub(super) fn sweep(&self, progress_limit: u32, grace: u32) {
        if self.abort_reason().is_some() {
            // If the client reads nothing, its response is not polled, so the abort does not end
            // the exchange. Then its connection is closed.
            if self.aborted_sweeps.fetch_add(1, Ordering::Relaxed) >= grace {
                self.connection.0.close(Closing::AtOnce);
            }
            return;
        }
        self.judge_again(None);
        if self.connection.0.overdue.load(Ordering::Relaxed) {
            self.abort(Abort::ListenerRemoved);
        } else if self.is_stalled(progress_limit) {
            self.abort(Abort::Stalled);
        }
    }

    /// Closes the connection of an exchange that was aborted because its session ended, and that
    /// still exists: its client reads nothing, or is still sending.
    pub(super) fn close_if_ended(&self) {
        if self.why.get() == Some(&Objection::SessionEnded.into()) {
            self.connection.0.close(Closing::AtOnce);
        }
    }

    fn is_stalled(&self, limit: u32) -> bool {
        if self.meter.take_moved() {
            self.quiet_sweeps.store(0, Ordering::Relaxed);
            return false;
        }
        self.quiet_sweeps.fetch_add(1, Ordering::Relaxed) >= limit
    }

    pub(super) fn abort(&self, why: Abort) {
        let _ = self.why.set(why);
        self.waits.wake();
    }

    /// Completes when the exchange is aborted.
    pub(super) async fn aborted(&self) -> Abort {
        poll_fn(|cx| self.poll_aborted(cx)).await
    }

    /// Like [`Self::aborted`], for content that is polled. Only the latest task is woken.
    pub(super) fn poll_aborted(&self, cx: &mut Context<'_>) -> Poll<Abort> {
        self.waits.register(cx.waker());
        self.why
            .get()
            .map_or(Poll::Pending, |why| Poll::Ready(why.clone()))
    }

    /// Returns why the exchange was aborted, if it was.
    pub(super) fn abort_reason(&self) -> Option<Abort> {
        let no_longer_lent = || {
            let judged = self.judged.get()?;
            let is_stale = judged.lends() && gateway_session::is_stale();
            let why = judged.is_revoked().then_some(Objection::Revoked);
            Some(why.or(is_stale.then_some(Objection::Stale))?.into())
        };
        self.why.get().cloned().or_else(no_longer_lent)
    }

    /// Whether a credential that it is lent is revoked, and its workload is not to know.
    pub(super) fn is_revoked_quietly(&self) -> bool {
        self.judged.get().is_some_and(|judged| judged.is_quiet())
    }

    /// Ends the trail with the response's content, or when the last owner drops this guard. Only
    /// then is it known how much a WebSocket carried.
    pub(super) fn ends_with_it(&self, trail: Trail) {
        *self.trail() = Some(trail);
    }

    fn trail(&self) -> MutexGuard<'_, Option<Trail>> {
        self.trail.lock()
    }

    /// Ends the trail, if it has not ended yet.
    pub(super) fn end(&self, outcome: Outcome, reason: Option<ReasonCode>, scrubbed: u64) {
        let trail = self.trail().take();
        let Some(mut trail) = trail else { return };
        let ended = trail.end(ExchangeEnd {
            outcome,
            reason: reason.map(ReasonCode::as_str),
            request_bytes: Some(self.meter.up()),
            response_bytes: Some(self.meter.down()),
            scrubbed,
        });
        if let Err(error) = ended {
            tracing::error!(%error, "the end of an exchange was not recorded");
        }
    }
}
