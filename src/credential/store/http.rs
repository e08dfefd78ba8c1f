//! The interface through which stores reach servers over HTTP: this module opens no connections.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gateway_message::Origin;
use http::{Request, StatusCode};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::material::Lease;
use super::{StoreError, StoreFuture};

/// A client for the servers of one store.
pub trait HttpClient: Send + Sync {
    /// Sends a request, whose URI is a path, to a server.
    ///
    /// Redirects are not followed. The response is limited in size and time.
    ///
    /// # Errors
    /// [`NotConnected`](StoreError::NotConnected) if nothing was sent, so that another
    /// server may be tried; [`BrokenOff`](StoreError::BrokenOff) otherwise.
    fn send<'a>(
        &'a self,
        server: &'a Origin,
        request: Request<Zeroizing<Vec<u8>>>,
    ) -> StoreFuture<'a, HttpAnswer>;
}

/// The response of a server.
pub struct HttpAnswer {
    /// The status.
    pub status: StatusCode,
    /// The target of a redirect.
    pub location: Option<String>,
    /// When the server may be asked again, if the response says so (RFC 9110 §10.2.3).
    pub retry_after: Option<SystemTime>,
    /// The content, wiped on drop.
    pub content: Zeroizing<Vec<u8>>,
}

/// A store's servers, the client that reaches them, and the lease of what they give.
pub(super) struct Served {
    pub(super) client: Arc<dyn HttpClient>,
    pub(super) servers: Vec<Origin>,
    pub(super) lease: Lease,
}

impl Served {
    /// Returns the first of the servers.
    pub(super) fn first(&self) -> Result<&Origin, StoreError> {
        let first = self.servers.first();
        first.ok_or(StoreError::Unreachable("it has no server"))
    }
}

/// Limits work to the deadline of a store.
pub(super) fn within<'a, T>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'a,
) -> StoreFuture<'a, T> {
    Box::pin(async move {
        let done = timeout(DEADLINE, work).await;
        done.unwrap_or(Err(StoreError::TimedOut(DEADLINE)))
    })
}

/// What a store means by a phrase of its refusal.
#[derive(Clone, Copy)]
pub(super) enum Refusal {
    /// It has no such secret.
    Gone,
    /// The gateway may not read it.
    Denied,
    /// The gateway's own credentials are not valid there.
    Login,
    /// The gateway's own credentials were valid, and are no longer.
    Expired,
    /// Something else, for a while.
    Other,
}

/// The words by which a kind of store refuses, each row separated by `|`; the more specific row
/// before the less.
pub(super) type Refusals = &'static [(Refusal, &'static str)];

/// Returns why a store refused, by the first of these words that it said. The others may hold a
/// secret unknown to us, so they are not shown.
pub(super) fn refused(status: u16, said: &[u8], known: Refusals) -> StoreError {
    let rows = known.iter();
    let mut words = rows.flat_map(|(refusal, row)| row.split('|').map(|words| (*refusal, words)));
    let found = words.find(|(_, words)| memchr::memmem::find(said, words.as_bytes()).is_some());
    let (refusal, words) = found.unwrap_or((Refusal::Other, ""));
    match refusal {
        Refusal::Gone => StoreError::Refused { status: 404, words },
        Refusal::Denied => StoreError::Refused { status: 403, words },
        Refusal::Login => StoreError::Login(Box::new(StoreError::Refused { status, words })),
        Refusal::Expired => StoreError::LoginExpired(words),
        Refusal::Other => StoreError::Refused { status, words },
    }
}

/// The limit for a whole fetch, including a login.
const DEADLINE: Duration = Duration::from_secs(20);
