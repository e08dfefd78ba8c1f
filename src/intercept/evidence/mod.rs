//! Evidence of who is behind a connection: one file for each kind.

mod certificate;
mod token;
mod unix;
mod x509;

pub use certificate::HeldCertificate;
pub use token::{
    HeldToken, KEY_NUMBER, RevokedTokens, TokenDenied, TokenPeer, TokenVerifier, token_in,
    token_of_login,
};
pub use unix::PeerUsers;
pub(super) use x509::CertificateHolder;

use std::sync::Arc;

use super::caller::{Caller, CallerRefused};
use super::client_stream::ClientStream;

/// A kind of evidence beside the listener itself. The address that a client connects from and the
/// fields that it sends are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// The credentials of the process at the other end of a Unix socket.
    Unix(PeerUsers),
    /// A token that the client of a proxy presents, once it speaks.
    Token,
    /// The certificate of a client of a proxy with TLS.
    Certificate,
}

impl Evidence {
    /// Returns the caller of a connection that says nothing: the first evidence that is there
    /// counts.
    ///
    /// # Errors
    /// [`CallerRefused`] if none is there, or if it is of somebody whom the listener does not take.
    pub fn first(all: &[Self], stream: &ClientStream) -> Result<Caller, CallerRefused> {
        let found = all.iter().find_map(|one| match one {
            Self::Unix(users) => users.caller(stream),
            Self::Certificate => HeldCertificate::of(stream).map(|held| {
                let held = held.map_err(CallerRefused::because)?;
                Ok(Caller {
                    user: Some(held.user.clone()),
                    groups: held.groups.clone(),
                    certificate: Some(Arc::new(held)),
                    ..Caller::default()
                })
            }),
            Self::Token => None,
        });
        found.unwrap_or(Err(CallerRefused::unseen()))
    }
}
