//! The gateway on one runtime thread, and what all threads share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ids::Ids;
use super::limits::Limits;
use super::refusal_counts::RefusalCounts;
use super::watchdog::Watchdog;
use crate::audit::Log;
use crate::credential::Credentials;
use crate::origin::resolve::ResolverUnusable;
use crate::origin::{OriginSettings, Origins};
use crate::policy::Policies;
use crate::session::Sessions;

/// How long a connection without a request may be silent after the gateway was told to stop.
const SILENCE: Duration = Duration::from_secs(2);

/// What every runtime thread shares.
pub struct SharedState {
    /// The sessions that may send requests.
    pub sessions: Sessions,
    /// The policies that judge requests.
    pub policies: Policies,
    /// The credentials that may be used.
    pub credentials: Credentials,
    /// The audit log.
    pub log: Log,
    /// The limits of the data path.
    pub limits: Limits,
    /// The settings for origins.
    pub origin_settings: Arc<OriginSettings>,
    /// The source of exchange ids.
    pub ids: Ids,
    /// Counts what was refused.
    pub refused: RefusalCounts,
    /// How many connections are open.
    pub open: Arc<AtomicUsize>,
    /// How many listeners accept connections.
    pub listening: Arc<AtomicUsize>,
    /// Cancelled when the gateway stops: listeners close, and connections end once they are at
    /// rest.
    pub draining: CancellationToken,
}

impl SharedState {
    /// Records how many exchanges were refused without a record of their own. Called once a second,
    /// and at the end.
    pub fn tell_suppressed(&self) {
        self.sessions.tell_suppressed(&self.log);
    }
}

/// The gateway on one runtime thread. Its pool and watchdog are its own; the rest is shared.
pub struct Worker {
    pub(super) shared: Arc<SharedState>,
    pub(super) origins: Origins,
    pub(super) watchdog: Watchdog,
}

impl Worker {
    /// A worker for the current thread's runtime.
    ///
    /// # Errors
    /// [`ResolverUnusable`] if the system's resolver configuration cannot be read.
    pub fn new(shared: Arc<SharedState>) -> Result<Arc<Self>, ResolverUnusable> {
        let origins = Origins::new(shared.origin_settings.clone())?;
        let watchdog = Watchdog::new(&shared.limits);
        Ok(Arc::new(Self {
            shared,
            origins,
            watchdog,
        }))
    }

    /// Runs the watchdog for ever.
    pub async fn watch(&self) {
        let beside = || {
            self.origins.sweep();
            self.shared.tell_suppressed();
        };
        let shared = &self.shared;
        let watching = self
            .watchdog
            .run(&shared.policies, &shared.draining, beside);
        watching.await;
    }

    /// Waits for a step before the first request of a connection: until the deadline, or for a
    /// while after the gateway was told to stop. `None` if it took longer.
    pub(super) async fn opening<T>(
        &self,
        deadline: Instant,
        step: impl Future<Output = T>,
    ) -> Option<T> {
        let given_up = async {
            self.shared.draining.cancelled().await;
            tokio::time::sleep(SILENCE).await;
        };
        tokio::select! {
            biased;
            done = step => Some(done),
            () = tokio::time::sleep_until(deadline) => None,
            () = given_up => None,
        }
    }

    /// How many exchanges are under way on this thread.
    #[must_use]
    pub fn underway(&self) -> usize {
        self.watchdog.underway()
    }

    /// Aborts the exchanges of this thread, each with a record. Connections without one are closed.
    pub fn cut(&self) {
        self.watchdog.cut();
    }

    /// Closes all connections of this thread: their clients did not notice that they were cut.
    pub fn close(&self) {
        self.watchdog.close();
    }

    /// Tells the worker that the policies were replaced. Exchanges under way are judged again at
    /// once.
    pub fn policy_changed(&self) {
        self.watchdog.policy_changed();
    }
}
