//! The interface through which stores reach servers over HTTP: this module opens no connections.

use std::time::SystemTime;

use gateway_message::Origin;
use http::{Request, StatusCode};
use zeroize::Zeroizing;

use super::StoreFuture;

/// A client for the servers of one store.
pub trait HttpClient: Send + Sync {
    /// Sends a request, whose URI is a path, to a server.
    ///
    /// Redirects are not followed. The response is limited in size and time.
    ///
    /// # Errors
    /// [`NotConnected`](super::StoreError::NotConnected) if nothing was sent, so that another
    /// server may be tried; [`BrokenOff`](super::StoreError::BrokenOff) otherwise.
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
