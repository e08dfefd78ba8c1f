//! How a store that is reached over HTTP asks its servers: through a client that is handed in,
//! since this module opens no connection.

use http::{Request, StatusCode};
use zeroize::Zeroizing;

use super::StoreFuture;
use crate::message::Origin;

/// A client for the servers of one store.
pub trait HttpClient: Send + Sync {
    /// Sends a request, whose URI is a path, to a server; nothing is followed, and the answer is
    /// bounded in bytes and in time.
    ///
    /// # Errors
    /// [`NotConnected`](super::StoreError::NotConnected) where nothing was sent, so that another
    /// server may be asked; [`BrokenOff`](super::StoreError::BrokenOff) where something was.
    fn send<'a>(
        &'a self,
        server: &'a Origin,
        request: Request<Zeroizing<Vec<u8>>>,
    ) -> StoreFuture<'a, HttpAnswer>;
}

/// What a server answered.
pub struct HttpAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Where it sends the client instead.
    pub location: Option<String>,
    /// Its content, wiped when it is dropped.
    pub content: Zeroizing<Vec<u8>>,
}
