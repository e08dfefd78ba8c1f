//! The gateway on one runtime thread, and what all threads share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ids::Ids;
use super::metrics::Metrics;
use super::refusal_counts::RefusalCounts;
use super::snapshot::Snapshot;
use super::watchdog::Watchdog;
use crate::audit::Log;
use crate::names::CredentialName;
use crate::origin::resolve::ResolverUnusable;
use crate::origin::{self, Origins};
use crate::session::Sessions;

/// How long a connection without a request may be silent after the gateway was told to stop.
const SILENCE: Duration = Duration::from_secs(2);

/// What every runtime thread shares.
pub struct SharedState {
    /// The sessions that may send requests.
    pub sessions: Sessions,
    current: ArcSwap<Snapshot>,
    changes: watch::Sender<()>,
    /// The audit log.
    pub log: Log,
    /// The source of exchange ids.
    pub ids: Ids,
    /// Counts what was refused.
    pub refused: RefusalCounts,
    /// Counts what happens, for `/metrics`.
    pub metrics: Arc<Metrics>,
    /// How many connections are open.
    pub open: Arc<AtomicUsize>,
    /// How many listeners accept connections.
    pub listening: Arc<AtomicUsize>,
    /// Cancelled when the gateway stops: listeners close, and connections end once they are at
    /// rest.
    pub draining: CancellationToken,
}

impl SharedState {
    /// What threads share, with the first generation of the configuration.
    #[must_use]
    pub fn new(first: Snapshot, log: Log, ids: Ids) -> Self {
        Self {
            sessions: Sessions::default(),
            current: ArcSwap::from_pointee(first),
            changes: watch::Sender::default(),
            log,
            ids,
            refused: RefusalCounts::default(),
            metrics: Arc::default(),
            open: Arc::default(),
            listening: Arc::default(),
            draining: CancellationToken::new(),
        }
    }

    /// The generation in force. Use one for an exchange, from its beginning to its end.
    #[must_use]
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Like [`Self::current`], but for a short look: it does not touch the shared reference count.
    pub fn look(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// Puts the next generation in force. Every worker judges what is under way again at once.
    pub fn replace(&self, next: Snapshot) {
        self.current.store(Arc::new(next));
        self.changes.send_replace(());
    }

    /// Revokes a credential in the generation in force, and ends what is under way with it. Returns
    /// how many connections to origins were severed; `None` if there is no such credential.
    ///
    /// When this returns, no further byte of its secret leaves.
    #[must_use]
    pub fn revoke(&self, credential: &CredentialName) -> Option<usize> {
        let severed = self.current().credentials.revoke(credential)?;
        self.changes.send_replace(());
        Some(severed)
    }

    /// Tells of each later generation and revocation. Several may be told as one.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Records how many exchanges were refused without a record of their own. Called once a second,
    /// and at the end.
    pub fn tell_suppressed(&self) {
        self.sessions.tell_suppressed(&self.log);
    }
}

/// The gateway on one runtime thread. Its pool and watchdog are its own; the rest is shared.
pub struct Worker {
    pub(super) shared: Arc<SharedState>,
    origins: ArcSwap<Origins>,
    pub(super) watchdog: Watchdog,
}

impl Worker {
    /// A worker for the current thread's runtime.
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
        }))
    }

    /// The origin side with the settings of this generation.
    pub(super) fn origins(&self, snapshot: &Snapshot) -> Result<Arc<Origins>, origin::Error> {
        let known = self.origins.load_full();
        if known.has(&snapshot.origins) {
            return Ok(known);
        }
        let next = known.with_settings(snapshot.origins.clone());
        let next = Arc::new(next.map_err(origin::Error::NoResolver)?);
        // An exchange of an earlier generation dials for itself alone.
        if self.shared.look().origins_are(snapshot) {
            self.origins.store(next.clone());
        }
        Ok(next)
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

    /// Runs the watchdog for ever.
    pub async fn watch(&self) {
        let beside = |snapshot: &Snapshot| {
            // Connections under the former settings close when their exchanges have ended.
            if let Err(error) = self.origins(snapshot) {
                tracing::error!(%error, "origins cannot be reached");
            }
            self.origins.load().sweep(snapshot.number());
            self.shared.tell_suppressed();
        };
        tokio::join!(
            self.watchdog.run(&self.shared, beside),
            self.watchdog.cut_ended(self.shared.sessions.ends()),
        );
    }
}
