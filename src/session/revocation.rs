//! Revocation of a credential: from then on it is never lent, and every connection that could carry
//! its secret is severed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smallvec::SmallVec;

/// A connection that carries secrets.
pub trait Severable: Send + Sync {
    /// Ends the connection now. When this returns, no further byte of it leaves this machine, not
    /// even bytes that were written before and not sent yet.
    fn sever(&self);
}

/// Whether a credential is revoked, and the open connections that may carry its secret.
///
/// Each connection is made for an identity, which names its credentials. The connection registers
/// before anything is written to it, so that none is missing here.
#[derive(Default)]
pub struct Revocation {
    revoked: AtomicBool,
    /// Whether the workload is told what the service says of a key that it does not know.
    quiet: AtomicBool,
    connections: Mutex<Vec<Weak<dyn Severable>>>,
}

/// The revocations of a credential, and of the parts that it signs with.
pub type Revocations = SmallVec<[Arc<Revocation>; 1]>;

/// The credential is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the credential is revoked")]
pub struct Revoked;

impl Revocation {
    /// Whether the credential is revoked.
    pub fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// Whether the credential is revoked, and its workload is not to know that a gateway did it.
    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Acquire) && self.is_revoked()
    }

    /// Keeps from the workload, until the revocation is taken back, that a gateway did it.
    pub fn hush(&self) {
        self.quiet.store(true, Ordering::Release);
    }

    /// Registers a connection that may carry the secret.
    ///
    /// # Errors
    /// [`Revoked`], in which case the connection must not be used.
    pub fn register(&self, connection: &Arc<dyn Severable>) -> Result<(), Revoked> {
        let mut connections = self.connections.lock();
        // Read under the lock: a revocation either finds the connection here, or is seen.
        if self.is_revoked() {
            return Err(Revoked);
        }
        if connections.len() == connections.capacity() {
            connections.retain(|one| one.strong_count() > 0);
        }
        connections.push(Arc::downgrade(connection));
        Ok(())
    }

    /// Severs the connections that may carry the secret.
    pub fn sever(&self) {
        let connections = std::mem::take(&mut *self.connections.lock());
        let open = connections.iter().filter_map(Weak::upgrade);
        open.for_each(|connection| connection.sever());
    }

    /// Revokes the credential, and severs the connections that may carry its secret; or takes the
    /// revocation back. Returns how many connections there were.
    pub fn set(&self, revoked: bool) -> usize {
        let connections = {
            let mut connections = self.connections.lock();
            self.revoked.store(revoked, Ordering::Release);
            if revoked {
                std::mem::take(&mut *connections)
            } else {
                self.quiet.store(false, Ordering::Release);
                return 0;
            }
        };
        let open = connections.iter().filter_map(Weak::upgrade);
        open.map(|connection| connection.sever()).count()
    }
}

impl std::fmt::Debug for Revocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Revocation({})", self.is_revoked())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Severable for Counted {
        fn sever(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_revocation_severs_what_is_open_and_no_connection_comes_after_it() {
        let revocation = Revocation::default();
        let open = Arc::new(Counted::default());
        let known: Arc<dyn Severable> = open.clone();
        revocation.register(&known).unwrap();
        let closed: Arc<dyn Severable> = Arc::new(Counted::default());
        revocation.register(&closed).unwrap();
        drop(closed);
        assert_eq!(revocation.set(true), 1);
        assert_eq!(open.0.load(Ordering::Relaxed), 1);
        assert!(revocation.is_revoked());
        assert_eq!(revocation.register(&known), Err(Revoked));
        assert_eq!(revocation.set(true), 0);
        assert_eq!(revocation.set(false), 0);
        assert_eq!(revocation.register(&known), Ok(()));
    }

    #[test]
    fn closed_connections_are_forgotten() {
        let revocation = Revocation::default();
        for _ in 0..10_000 {
            let one: Arc<dyn Severable> = Arc::new(Counted::default());
            revocation.register(&one).unwrap();
        }
        assert!(revocation.connections.lock().len() < 64);
    }
}
