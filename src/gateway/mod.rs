//! Room: the gateway itself. Joins the rooms into the path of one request, and serves connections
//! with it.

mod answer;
mod clock;
mod conversation;
mod error_format;
mod exchange;
mod guard;
mod lingering;
mod opening;
mod refusal;
mod respond;
mod serve;
mod tally;
mod upgrade;
mod watchdog;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::audit::Log;
use crate::credential::Credentials;
use crate::names::ExchangeId;
use crate::origin::resolve::ResolverUnusable;
use crate::origin::{OriginSettings, Origins};
use crate::policy::Policies;
use crate::session::Sessions;

pub use answer::AnswerBody;
pub use guard::Abort;
pub use refusal::{EXCHANGE_ID, Refusal, chain};
pub use serve::{Door, Doorway};
pub use tally::{Counted, Tally};

/// Bounds of the client side.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections of one session at a time.
    pub connections_per_session: usize,
    /// Connections of all sessions at a time.
    pub connections: usize,
    /// Exchanges of one session under way at a time, on all its connections.
    pub exchanges_per_session: usize,
    /// HTTP/2 streams of one connection at a time.
    pub streams_per_connection: u32,
    /// For a CONNECT or SOCKS request, a first byte, and a TLS handshake, each.
    pub handshake_timeout: Duration,
    /// For which a connection may have no exchange under way.
    pub idle_timeout: Duration,
    /// For one head to be complete from its first byte.
    pub head_timeout: Duration,
    /// For which an exchange may see no byte move in either direction.
    pub progress_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_per_session: 1024,
            connections: 10_000,
            exchanges_per_session: 1024,
            streams_per_connection: 128,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            head_timeout: Duration::from_secs(10),
            progress_timeout: Duration::from_secs(600),
        }
    }
}

/// What every runtime thread shares.
pub struct Shared {
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
    pub refused: Tally,
    /// Connections that are open.
    pub open: Arc<AtomicUsize>,
}

impl Shared {
    /// Records how many exchanges were refused without a record of their own; once a second, and at
    /// the end.
    pub fn tell_suppressed(&self) {
        self.sessions.tell_suppressed(&self.log);
    }
}

/// The gateway on one runtime thread: its own pool and watch, the rest shared.
pub struct Worker {
    shared: Arc<Shared>,
    origins: Origins,
    watchdog: watchdog::Watchdog,
}

impl Worker {
    /// A worker for the current thread's runtime.
    ///
    /// # Errors
    /// [`ResolverUnusable`] where the system's resolver configuration cannot be read.
    pub fn new(shared: Arc<Shared>) -> Result<Arc<Self>, ResolverUnusable> {
        let origins = Origins::new(shared.origin_settings.clone())?;
        let watchdog = watchdog::Watchdog::new(&shared.limits);
        Ok(Arc::new(Self {
            shared,
            origins,
            watchdog,
        }))
    }

    /// What every thread shares.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
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

/// Makes exchange ids: 80 bits that no client can guess or repeat.
pub struct Ids {
    key: [u8; 32],
    next: AtomicU64,
}

impl Ids {
    /// A source keyed by the system's random generator.
    ///
    /// # Errors
    /// Where the system gives no random bytes.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self {
            key,
            next: AtomicU64::new(0),
        })
    }

    /// The next id: a keyed hash of a counter.
    pub fn next(&self) -> ExchangeId {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let hash = Sha256::new()
            .chain_update(self.key)
            .chain_update(count.to_le_bytes())
            .finalize();
        let mut id = [0; 10];
        id.copy_from_slice(&hash[..10]);
        ExchangeId::from_bytes(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_ids_are_the_same() {
        let (ids, others) = (Ids::new().unwrap(), Ids::new().unwrap());
        let mut all: Vec<_> = [&ids, &others]
            .into_iter()
            .flat_map(|ids| (0..1000).map(|_| ids.next().to_string()))
            .collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 2000);
    }
}
