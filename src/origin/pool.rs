//! The pool of idle connections, kept apart by identity.

use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gateway_body::Outgoing;
use gateway_message::Origin;
use gateway_names::{Identity, Map, SessionId};
use hyper::client::conn::http2;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::sender::{Http1, StreamSlot};

/// The values that two exchanges must share to use one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolKey {
    pub(super) identity: Identity,
    pub(super) origin: Origin,
    /// The policy generation: a connection does not outlive the decision (threats C09).
    pub(super) generation: u64,
    /// The client's connection, if an exchange used connection-bound authentication.
    pub(super) tied: Option<u64>,
}

/// Hashes the parts that differ most between connections; the others are only compared.
impl Hash for PoolKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.identity.session, &self.origin.authority.host).hash(state);
    }
}

/// An idle HTTP/1.1 connection.
struct Idle {
    http1: Box<Http1>,
    since: Instant,
    /// Its share of the session's idle connections beyond `most_idle` per origin.
    further: Option<Arc<()>>,
}

impl Idle {
    fn is_fresh(&self, idle_timeout: Duration) -> bool {
        !self.http1.requests.is_closed() && self.since.elapsed() < idle_timeout
    }
}

/// An HTTP/2 connection: any number of exchanges use it at once.
struct SharedConnection {
    sender: http2::SendRequest<Outgoing>,
    remote: SocketAddr,
    /// When an exchange last used it.
    since: Instant,
    /// Each exchange that uses it has a clone.
    streams: StreamSlot,
}

/// The largest number of exchanges on a connection. RFC 9113 §6.5.2 recommends that an origin
/// accept at least this many; an origin that accepts fewer says so.
const MOST_SHARING: usize = 100;

#[derive(Default)]
struct HostPool {
    idle: Vec<Idle>,
    shared: Vec<SharedConnection>,
    /// Whether the origin has asked for HTTP/1.1.
    asks_http1: bool,
    turn: DialTurn,
}

/// Held while a connection is dialled for several exchanges: whether the last dial failed.
pub(super) type DialTurn = Arc<tokio::sync::Mutex<bool>>;

impl HostPool {
    fn len(&self) -> usize {
        self.idle.len() + self.shared.len()
    }

    fn retain_fresh(&mut self, idle_timeout: Duration) {
        self.idle.retain(|idle| idle.is_fresh(idle_timeout));
        // Running exchanges have senders of their own, which keep their connection alive.
        self.shared
            .retain(|shared| !shared.sender.is_closed() && shared.since.elapsed() < idle_timeout);
    }
}

/// All pools, and the share of each session in them.
#[derive(Default)]
struct Pools {
    by_key: Map<Arc<PoolKey>, HostPool>,
    of_session: Map<SessionId, SessionShare>,
}

/// The share of one session.
#[derive(Default)]
struct SessionShare {
    pools: usize,
    /// Each idle connection beyond `most_idle` of an origin has a clone.
    further: Arc<()>,
}

impl SessionShare {
    fn take_further(&self) -> Option<Arc<()>> {
        (Arc::strong_count(&self.further) <= MOST_FURTHER).then(|| self.further.clone())
    }
}

impl Pools {
    /// Returns the pool of a key, and creates it unless the session has too many already: a client
    /// can invent many names below a domain that it may reach, but descriptors are finite (threats
    /// P04).
    fn entry(&mut self, key: Arc<PoolKey>) -> Option<&mut HostPool> {
        if !self.by_key.contains_key(&key) {
            let session = self
                .of_session
                .entry(key.identity.session.clone())
                .or_default();
            if session.pools >= MOST_HOST_POOLS {
                return None;
            }
            session.pools += 1;
        }
        Some(self.by_key.entry(key).or_default())
    }

    fn retain(&mut self, mut is_kept: impl FnMut(&PoolKey, &mut HostPool) -> bool) {
        let of_session = &mut self.of_session;
        self.by_key.retain(|key, pool| {
            let keeps = is_kept(key, pool);
            if !keeps && let Some(share) = of_session.get_mut(&key.identity.session) {
                share.pools -= 1;
                if share.pools == 0 {
                    of_session.remove(&key.identity.session);
                }
            }
            keeps
        });
    }
}

/// The pool of one runtime thread.
pub(super) struct Pool {
    pools: Mutex<Pools>,
    most_idle: usize,
    idle_timeout: Duration,
}

impl Pool {
    pub(super) fn new(most_idle: usize, idle_timeout: Duration) -> Self {
        Self {
            pools: Mutex::default(),
            most_idle,
            idle_timeout,
        }
    }

    fn pools(&self) -> MutexGuard<'_, Pools> {
        self.pools.lock()
    }

    /// Takes an open HTTP/1.1 connection, the most recently used first. It may not be ready yet.
    pub(super) fn take(&self, key: &PoolKey) -> Option<Box<Http1>> {
        let mut pools = self.pools();
        let pool = pools.by_key.get_mut(key)?;
        while let Some(idle) = pool.idle.pop() {
            if idle.is_fresh(self.idle_timeout) {
                return Some(idle.http1);
            }
        }
        None
    }

    /// Keeps a connection whose last exchange ended properly. A thousand concurrent clients return
    /// a thousand connections: closed, each would be dialled again.
    pub(super) fn give(&self, key: Arc<PoolKey>, http1: Box<Http1>) {
        if http1.requests.is_closed() {
            return;
        }
        let mut idle = Idle {
            http1,
            since: Instant::now(),
            further: None,
        };
        let mut pools = self.pools();
        let Pools { by_key, of_session } = &mut *pools;
        // Usually there is a pool, and the key need not be moved.
        if let Some(pool) = by_key.get_mut(&key) {
            if pool.idle.len() >= self.most_idle {
                let share = of_session.get(&key.identity.session);
                idle.further = share.and_then(SessionShare::take_further);
                if idle.further.is_none() {
                    return;
                }
            }
            pool.idle.push(idle);
        } else if self.most_idle > 0
            && let Some(pool) = pools.entry(key)
        {
            pool.idle.push(idle);
        }
    }

    /// Returns an HTTP/2 connection that accepts one more stream.
    pub(super) fn share(
        &self,
        key: &PoolKey,
    ) -> Option<(http2::SendRequest<Outgoing>, StreamSlot, SocketAddr)> {
        let mut pools = self.pools();
        let pool = pools.by_key.get_mut(key).filter(|pool| !pool.asks_http1)?;
        pool.shared.retain(|shared| !shared.sender.is_closed());
        // A stream beyond the origin's limit would wait until another ends, perhaps for ever.
        let shared = pool.shared.iter_mut().find(|shared| {
            let most = shared.streams.load(Ordering::Relaxed).min(MOST_SHARING);
            shared.sender.is_ready() && Arc::strong_count(&shared.streams) <= most
        })?;
        shared.since = Instant::now();
        Some((shared.sender.clone(), shared.streams.clone(), shared.remote))
    }

    /// Adds an HTTP/2 connection whose first stream is in use.
    pub(super) fn add(
        &self,
        key: Arc<PoolKey>,
        sender: http2::SendRequest<Outgoing>,
        slot: StreamSlot,
        remote: SocketAddr,
    ) {
        let mut pools = self.pools();
        if let Some(pool) = pools.entry(key) {
            pool.shared.push(SharedConnection {
                sender,
                remote,
                since: Instant::now(),
                streams: slot,
            });
        }
    }

    /// Returns the lock that the exchange which dials an origin holds.
    pub(super) fn turn(&self, key: &Arc<PoolKey>) -> DialTurn {
        let mut pools = self.pools();
        let pool = pools.entry(key.clone());
        pool.map_or_else(DialTurn::default, |pool| pool.turn.clone())
    }

    /// Notes that an origin requires HTTP/1.1, for as long as it has connections.
    pub(super) fn ask_http1(&self, key: &Arc<PoolKey>) {
        if let Some(pool) = self.pools().entry(key.clone()) {
            pool.asks_http1 = true;
        }
    }

    /// Whether an origin has required HTTP/1.1.
    pub(super) fn asks_http1(&self, key: &PoolKey) -> bool {
        let pools = self.pools();
        pools.by_key.get(key).is_some_and(|pool| pool.asks_http1)
    }

    /// Drops connections that are closed, were idle for too long, or belong to an earlier
    /// generation.
    pub(super) fn sweep(&self, generation: u64) {
        self.pools().retain(|key, pool| {
            pool.retain_fresh(self.idle_timeout);
            let is_dialled = Arc::strong_count(&pool.turn) > 1;
            key.generation >= generation && (pool.len() > 0 || is_dialled)
        });
    }
}

/// How many idle connections of one session may be beyond `most_idle` of their origins: the default
/// limit of a session's concurrent exchanges.
const MOST_FURTHER: usize = 1024;
/// How many keys of one session may have pools. Each has up to `most_idle` connections, swept once
/// a second.
const MOST_HOST_POOLS: usize = 64;

#[cfg(test)]
mod tests {
    use gateway_message::{Authority, Host, Scheme};

    use super::*;

    fn key(session: &str, host: &str) -> Arc<PoolKey> {
        Arc::new(PoolKey {
            tied: None,
            identity: Identity {
                session: SessionId::new(session).unwrap(),
                before: 0,
                credentials: Vec::new().into(),
            },
            origin: Origin {
                scheme: Scheme::Https,
                authority: Authority {
                    host: Host::parse(host.as_bytes()).unwrap(),
                    port: 443,
                },
            },
            generation: 1,
        })
    }

    #[test]
    fn names_that_a_session_makes_up_fill_its_own_part_of_the_pool_alone() {
        let mut pools = Pools::default();
        for host in 0..1000 {
            let _ = pools.entry(key("flood", &format!("h{host}.wild.test")));
        }
        assert_eq!(pools.by_key.len(), MOST_HOST_POOLS);
        assert!(pools.entry(key("flood", "h0.wild.test")).is_some());
        assert!(pools.entry(key("flood", "new.wild.test")).is_none());
        assert!(pools.entry(key("other", "good.test")).is_some());
        pools.retain(|key, _| key.identity.session.as_str() == "other");
        assert!(pools.entry(key("flood", "new.wild.test")).is_some());
    }
}
