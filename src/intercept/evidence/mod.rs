//! Evidence of who is behind a connection: one file for each kind.

mod certificate;
mod held;
mod jwt;
mod mark;
mod password;
mod presented;
mod tailnet;
mod token;
mod unix;
mod verifier;
mod x509;

use certificate::HeldCertificate;
pub use held::Held;
pub use jwt::{JwtKeys, JwtSettings, JwtVerifier};
pub use mark::HeldInterface;
pub use password::{Passwords, UserPassword};
pub(super) use presented::TOKEN_FIELD;
pub use presented::{PRESENTED_USER, Presented};
pub use tailnet::{TAILNET_SOCKET, Tailnet};
pub use token::{HeldToken, KEY_NUMBER, RevokedTokens, TokenDenied, TokenPeer, TokenVerifier};
pub use unix::PeerUsers;
pub use verifier::{ClientVerifier, PresentedDenied, Taken};
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
    /// The interface that a captured connection came in by.
    Mark,
    /// The node of a tailnet whose address the connection comes from.
    Tailnet(Arc<Tailnet>),
    /// A token that the client of a proxy presents, once it speaks.
    Token,
    /// A user and a password, presented so.
    Password,
    /// A token of another issuer, presented so.
    Jwt,
    /// The certificate of a client of a proxy with TLS.
    Certificate,
}

impl Evidence {
    /// The tailnet that is asked, if it is that.
    #[must_use]
    pub fn tailnet(&self) -> Option<&Arc<Tailnet>> {
        match self {
            Self::Tailnet(tailnet) => Some(tailnet),
            _ => None,
        }
    }

    /// Whether the client of a proxy presents it, in the one place that there is.
    #[must_use]
    pub fn is_presented(&self) -> bool {
        matches!(self, Self::Token | Self::Password | Self::Jwt)
    }

    /// Returns the caller of a connection that says nothing: the first evidence that is there
    /// counts.
    ///
    /// # Errors
    /// [`CallerRefused`] if none is there, or if it is of somebody whom the listener does not take.
    pub async fn first(all: &[Self], stream: &ClientStream) -> Result<Arc<Caller>, CallerRefused> {
        for one in all {
            let found = match one {
                Self::Unix(users) => users.caller(stream).map(|found| found.map(Arc::new)),
                Self::Mark => Some(by_interface(HeldInterface::of(stream))),
                // Boxed, so that a connection does not keep memory for the question.
                Self::Tailnet(tailnet) => Some(Box::pin(tailnet.caller(stream)).await),
                Self::Certificate => by_certificate(stream).map(|found| found.map(Arc::new)),
                Self::Token | Self::Password | Self::Jwt => None,
            };
            if let Some(found) = found {
                return found;
            }
        }
        Err(CallerRefused::of(None, ""))
    }
}

/// The caller that came in by an interface.
///
/// # Errors
/// [`CallerRefused`] with the cause if there is none.
pub(super) fn by_interface(
    held: Result<HeldInterface, &'static str>,
) -> Result<Arc<Caller>, CallerRefused> {
    let nobody = |cause| CallerRefused::of(None, cause);
    let held = held.map_err(nobody)?;
    let user = held.user();
    Ok(Arc::new(Caller {
        user: Some(user.ok_or_else(|| nobody("its interface has a name that is no user's"))?),
        holds: vec![Arc::new(held)],
        ..Caller::default()
    }))
}

/// The caller that presents a certificate.
fn by_certificate(stream: &ClientStream) -> Option<Result<Caller, CallerRefused>> {
    Some(match HeldCertificate::of(stream)? {
        Ok(held) => Ok(Caller {
            user: Some(held.user.clone()),
            groups: held.groups.clone(),
            holds: vec![Arc::new(held)],
            ..Caller::default()
        }),
        Err(cause) => Err(CallerRefused::of(None, cause)),
    })
}
