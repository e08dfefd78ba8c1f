//! How stores reach servers over HTTP: through a given client, since this module opens no
//! connections.

use std::time::SystemTime;

use gateway_message::Origin;
use http::{Request, StatusCode};
use zeroize::Zeroizing;

use super::StoreFuture;

/// A client for the servers of one store.
pub trait HttpClient: Send + Sync {
    /// Sends a request, whose URI is a path, to a server.
    ///
    /// Redirects are not followed. The answer is limited in size and time.
    ///
    /// # Errors
    /// [`NotConnected`](super::StoreError::NotConnected) if nothing was sent, so another server may
    /// be asked; [`BrokenOff`](super::StoreError::BrokenOff) if something was.
    fn send<'a>(
        &'a self,
        server: &'a Origin,
        request: Request<Zeroizing<Vec<u8>>>,
    ) -> StoreFuture<'a, HttpAnswer>;
}

/// A server's answer.
pub struct HttpAnswer {
    /// Its status.
    pub status: StatusCode,
    /// The target of a redirect.
    pub location: Option<String>,
    /// When it may be asked again, if it says so (RFC 9110 §10.2.3).
    pub retry_after: Option<SystemTime>,
    /// Its content, wiped on drop.
    pub content: Zeroizing<Vec<u8>>,
}
