//! Evidence of who is behind a connection: one file for each kind.

mod unix;

pub use unix::PeerUsers;

use super::caller::{Caller, CallerRefused};
use super::client_stream::ClientStream;

/// A kind of evidence beside the listener itself. The address that a client connects from and the
/// fields that it sends are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// The credentials of the process at the other end of a Unix socket.
    Unix(PeerUsers),
}

impl Evidence {
    /// Returns the caller of a connection: the first evidence that is there counts.
    ///
    /// # Errors
    /// [`CallerRefused`] if none is there, or if it is of somebody whom the listener does not take.
    pub fn first(all: &[Self], stream: &ClientStream) -> Result<Caller, CallerRefused> {
        let found = all.iter().find_map(|one| match one {
            Self::Unix(users) => users.caller(stream),
        });
        found.unwrap_or(Err(CallerRefused::unseen()))
    }
}
