//! Idle connections, kept apart by identity.

use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use hyper::client::conn::{http1, http2};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::body::Content;
use crate::message::Origin;
use crate::names::{Identity, Map};

/// What two exchanges must have in common to use one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) identity: Identity,
    pub(super) origin: Origin,
    /// The policy generation: a connection does not outlive what was decided (threats C09).
    pub(super) generation: u64,
    pub(super) needs_http2: bool,
}

/// Hashes what differs most between connections; the rest is only compared.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.identity.session, &self.origin.authority.host).hash(state);
    }
}

/// An HTTP/1.1 connection without an exchange.
pub(super) struct Idle {
    pub(super) sender: http1::SendRequest<Content>,
    /// The `Host` of its origin, as written.
    pub(super) host: HeaderValue,
    pub(super) remote: SocketAddr,
    since: Instant,
}

impl Idle {
    /// A connection that is idle from now on.
    pub(super) fn new(
        sender: http1::SendRequest<Content>,
        host: HeaderValue,
        remote: SocketAddr,
    ) -> Self {
        Self {
            sender,
            host,
            remote,
            since: Instant::now(),
        }
    }
}

/// An HTTP/2 connection: any number of exchanges use it at once.
struct Shared {
    sender: http2::SendRequest<Content>,
    remote: SocketAddr,
    /// When an exchange last took it.
    since: Instant,
    /// Each exchange that uses it has a clone.
    places: Place,
}

/// A place among the exchanges of an HTTP/2 connection.
pub(super) type Place = Arc<()>;

/// How many exchanges share a connection. RFC 9113 §6.5.2 recommends that an origin accepts at
/// least this many; one more would wait, perhaps for ever, until another ends.
const MOST_SHARING: usize = 100;

#[derive(Default)]
struct Shelf {
    idle: Vec<Idle>,
    shared: Vec<Shared>,
}

impl Shelf {
    fn len(&self) -> usize {
        self.idle.len() + self.shared.len()
    }

    fn retain_fresh(&mut self, idle_timeout: Duration) {
        self.idle
            .retain(|idle| !idle.sender.is_closed() && idle.since.elapsed() < idle_timeout);
        // Running exchanges have senders of their own, which keep the connection alive for them.
        self.shared
            .retain(|shared| !shared.sender.is_closed() && shared.since.elapsed() < idle_timeout);
    }
}

/// The pool of one runtime thread.
pub(super) struct Pool {
    shelves: Mutex<Map<Key, Shelf>>,
    most_idle: usize,
    idle_timeout: Duration,
}

impl Pool {
    pub(super) fn new(most_idle: usize, idle_timeout: Duration) -> Self {
        Self {
            shelves: Mutex::default(),
            most_idle,
            idle_timeout,
        }
    }

    fn shelves(&self) -> MutexGuard<'_, Map<Key, Shelf>> {
        self.shelves.lock()
    }

    /// Takes an open HTTP/1.1 connection, the most recently used first. It may not be ready yet.
    pub(super) fn take(&self, key: &Key) -> Option<Idle> {
        let mut shelves = self.shelves();
        let shelf = shelves.get_mut(key)?;
        while let Some(idle) = shelf.idle.pop() {
            if !idle.sender.is_closed() && idle.since.elapsed() < self.idle_timeout {
                return Some(idle);
            }
        }
        None
    }

    /// Keeps a connection whose last exchange ended properly.
    pub(super) fn give(&self, key: Key, idle: Idle) {
        if idle.sender.is_closed() {
            return;
        }
        let mut shelves = self.shelves();
        // Most often there is a shelf, and then the key need not be moved.
        if let Some(shelf) = shelves.get_mut(&key) {
            if shelf.idle.len() < self.most_idle {
                shelf.idle.push(idle);
            }
        } else if self.most_idle > 0 && has_room(&shelves, &key) {
            shelves.entry(key).or_default().idle.push(idle);
        }
    }

    /// An HTTP/2 connection that accepts one more stream.
    pub(super) fn share(
        &self,
        key: &Key,
    ) -> Option<(http2::SendRequest<Content>, Place, SocketAddr)> {
        let mut shelves = self.shelves();
        let shelf = shelves.get_mut(key)?;
        shelf.shared.retain(|shared| !shared.sender.is_closed());
        let shared = shelf.shared.iter_mut().find(|shared| {
            shared.sender.is_ready() && Arc::strong_count(&shared.places) <= MOST_SHARING
        })?;
        shared.since = Instant::now();
        Some((shared.sender.clone(), shared.places.clone(), shared.remote))
    }

    /// Registers an HTTP/2 connection, and returns the first place on it.
    pub(super) fn add(
        &self,
        key: Key,
        sender: http2::SendRequest<Content>,
        remote: SocketAddr,
    ) -> Place {
        let place = Place::default();
        let mut shelves = self.shelves();
        if has_room(&shelves, &key) {
            shelves.entry(key).or_default().shared.push(Shared {
                sender,
                remote,
                since: Instant::now(),
                places: place.clone(),
            });
        }
        place
    }

    /// Drops what is closed or has been idle too long.
    pub(super) fn sweep(&self) {
        sweep(&mut self.shelves(), self.idle_timeout);
    }
}

/// Whether a connection may be kept under this key. A client invents names below a domain that it
/// may reach, and descriptors are finite (threats P04).
fn has_room(shelves: &Map<Key, Shelf>, key: &Key) -> bool {
    let session = &key.identity.session;
    // The keys are counted only for a new one.
    shelves.contains_key(key)
        || shelves
            .keys()
            .filter(|known| known.identity.session == *session)
            .count()
            < MOST_SHELVES
}

fn sweep(shelves: &mut Map<Key, Shelf>, idle_timeout: Duration) {
    shelves.retain(|_, shelf| {
        shelf.retain_fresh(idle_timeout);
        shelf.len() > 0
    });
}

/// How many keys of one session may have idle connections, `most_idle` each; they are swept once a
/// second.
const MOST_SHELVES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Authority, Host, Scheme};
    use crate::names::{Identity, SessionId};

    fn key(session: &str, host: &str) -> Key {
        Key {
            identity: Identity {
                session: SessionId::new(session).unwrap(),
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
            needs_http2: false,
        }
    }

    #[test]
    fn names_that_a_session_makes_up_fill_its_own_part_of_the_pool_alone() {
        let mut shelves = Map::default();
        for host in 0..1000 {
            let key = key("flood", &format!("h{host}.wild.test"));
            if has_room(&shelves, &key) {
                shelves.insert(key, Shelf::default());
            }
        }
        assert_eq!(shelves.len(), MOST_SHELVES);
        assert!(has_room(&shelves, &key("flood", "h0.wild.test")));
        assert!(has_room(&shelves, &key("other", "good.test")));
    }
}
