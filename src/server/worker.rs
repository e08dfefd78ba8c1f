//! The gateway on one runtime thread.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use gateway_origin::resolve::ResolverUnusable;
use gateway_origin::{self as origin, Origins};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::listener::SessionListener;
use super::shared::SharedState;
use super::snapshot::Snapshot;
use super::watchdog::Watchdog;

/// How long a connection without a request may be silent once the gateway stops.
const SILENCE: Duration = Duration::from_secs(2);

/// The gateway on one runtime thread. Its pool and watchdog are its own; the rest is shared.
pub struct Worker {
    pub(super) shared: Arc<SharedState>,
    origins: ArcSwap<Origins>,
    pub(super) watchdog: Watchdog,
    /// The runtime of its thread.
    pub(super) runtime: Handle,
}

impl Worker {
    /// Creates a worker for the current thread's runtime. Must be called on it.
    ///
    /// # Errors
    /// [`ResolverUnusable`] if the system's resolver configuration cannot be read.
    pub fn new(shared: Arc<SharedState>) -> Result<Arc<Self>, ResolverUnusable> {
        let snapshot = shared.current();
        let origins = Origins::new(snapshot.origins.clone())?;
        let watchdog = Watchdog::new(&snapshot.limits);
        Ok(Arc::new(Self {
            shared,
            origins: ArcSwap::from_pointee(origins),
            watchdog,
            runtime: Handle::current(),
        }))
    }

    /// Returns the origin side with the settings of this generation.
    pub(super) fn origins(&self, snapshot: &Snapshot) -> Result<Arc<Origins>, origin::Error> {
        let known = self.origins.load_full();
        if known.has(&snapshot.origins) {
            return Ok(known);
        }
        let next = known.with_settings(snapshot.origins.clone());
        let next = Arc::new(next.map_err(origin::Error::NoResolver)?);
        // An exchange of an earlier generation gets connections of its own, which are not shared.
        if self.shared.look().origins_are(snapshot) {
            self.origins.store(next.clone());
        }
        Ok(next)
    }

    /// Waits for a step before the first request of a connection: until the deadline, or for two
    /// seconds after its listener closes or the gateway stops. `None` if the step took longer.
    pub(super) async fn opening<T>(
        &self,
        listener: &SessionListener,
        deadline: Instant,
        step: impl Future<Output = T>,
    ) -> Option<T> {
        let mut is_stopping = false;
        let mut timer = pin!(tokio::time::sleep_until(deadline));
        let mut step = pin!(step);
        loop {
            tokio::select! {
                biased;
                done = &mut step => return Some(done),
                () = &mut timer => return None,
                () = listener.state.leaves.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    timer.as_mut().reset(deadline.min(Instant::now() + SILENCE));
                }
            }
        }
    }

    /// Returns how many exchanges are under way on this thread.
    #[must_use]
    pub fn underway(&self) -> usize {
        self.watchdog.underway()
    }

    /// Aborts the exchanges of this thread, each with a record. Connections without one are closed.
    pub fn cut(&self) {
        self.watchdog.cut();
    }

    /// Closes all connections of this thread, whose clients did not react to the cut.
    pub fn close(&self) {
        self.watchdog.close();
    }

    /// Runs the watchdog for ever.
    pub async fn watch(&self) {
        let beside = |snapshot: &Snapshot| {
            // Connections under the former settings close when their exchanges have ended.
            if let Err(error) = self.origins(snapshot) {
                tracing::error!(%error, "origins cannot be reached");
            }
            self.origins.load().sweep(snapshot.number());
            self.shared.tell_suppressed(false);
        };
        tokio::join!(
            self.watchdog.run(&self.shared, beside),
            self.watchdog.cut_ended(self.shared.sessions.ends()),
        );
    }
}
