//! The gateway on one runtime thread, and what all threads share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

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

/// What every runtime thread shares.
pub struct SharedState {
    /// Who may ask.
    pub sessions: Sessions,
    /// What may be asked.
    pub policies: Policies,
    /// What may be lent.
    pub credentials: Credentials,
    /// Where it is recorded.
    pub log: Log,
    /// Bounds.
    pub limits: Limits,
    /// What is known of origins.
    pub origin_settings: Arc<OriginSettings>,
    /// The source of exchange ids.
    pub ids: Ids,
    /// What was refused.
    pub refused: RefusalCounts,
    /// Connections that are open.
    pub open: Arc<AtomicUsize>,
}

impl SharedState {
    /// Records how many exchanges were refused without a record of their own; once a second, and at
    /// the end.
    pub fn tell_suppressed(&self) {
        self.sessions.tell_suppressed(&self.log);
    }
}

/// The gateway on one runtime thread: its own pool and watch, the rest shared.
pub struct Worker {
    pub(super) shared: Arc<SharedState>,
    pub(super) origins: Origins,
    pub(super) watchdog: Watchdog,
}

impl Worker {
    /// A worker for the current thread's runtime.
    ///
    /// # Errors
    /// [`ResolverUnusable`] where the system's resolver configuration cannot be read.
    pub fn new(shared: Arc<SharedState>) -> Result<Arc<Self>, ResolverUnusable> {
        let origins = Origins::new(shared.origin_settings.clone())?;
        let watchdog = Watchdog::new(&shared.limits);
        Ok(Arc::new(Self {
            shared,
            origins,
            watchdog,
        }))
    }

    /// Watches over exchanges and idle connections for ever.
    pub async fn watch(&self) {
        let beside = || {
            self.origins.sweep();
            self.shared.tell_suppressed();
        };
        self.watchdog.run(&self.shared.policies, beside).await;
    }

    /// Tells the worker that the policies were replaced: what is under way is judged by the new
    /// ones at once.
    pub fn policy_changed(&self) {
        self.watchdog.policy_changed();
    }
}
