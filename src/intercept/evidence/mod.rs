//! Evidence of the caller of a connection: one file for each kind.

mod certificate;
mod jwt;
mod live_evidence;
mod mark;
mod password;
mod presented;
mod tailnet;
mod token;
mod unix;
mod verifier;
mod x509;

use certificate::HeldCertificate;
pub use jwt::{JwtKeys, JwtSettings, JwtVerifier};
pub use live_evidence::LiveEvidence;
pub use mark::HeldInterface;
pub use password::{Passwords, UserPassword};
pub(super) use presented::TOKEN_FIELD;
pub use presented::{PRESENTED_USER, Presented};
pub use tailnet::{TAILNET_SOCKET, Tailnet};
pub use token::{HeldToken, KEY_NUMBER, RevokedTokens, TokenDenied, TokenPeer, TokenVerifier};
pub use unix::PeerUsers;
pub use verifier::{ClientVerifier, PresentedDenied, Proof};
pub(super) use x509::CertificateHolder;

use std::sync::Arc;

use super::caller::{Caller, CallerRefused};
use super::client_stream::ClientStream;

/// A kind of evidence besides the listener itself. A client's address and the fields that it sends
/// are not evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// The credentials of the process at the other end of a Unix socket.
    Unix(PeerUsers),
    /// The interface through which a captured connection arrived.
    Mark,
    /// The node of a tailnet whose address the connection comes from.
    Tailnet(Arc<Tailnet>),
    /// A token that the client of a proxy presents, once it speaks.
    Token,
    /// A user and a password, presented like a token.
    Password,
    /// A token of another issuer, presented like a token.
    Jwt,
    /// The certificate of a client of a proxy with TLS.
    Certificate,
}

impl Evidence {
    /// Returns the tailnet, if the evidence is one.
    #[must_use]
    pub fn tailnet(&self) -> Option<&Arc<Tailnet>> {
        match self {
            Self::Tailnet(tailnet) => Some(tailnet),
            _ => None,
        }
    }

    /// Whether the client of a proxy presents the evidence as credentials.
    #[must_use]
    pub fn is_presented(&self) -> bool {
        matches!(self, Self::Token | Self::Password | Self::Jwt)
    }

    /// Returns the caller of a connection before it is read, by the first evidence that is present.
    ///
    /// # Errors
    /// [`CallerRefused`] if no evidence is present, or if the listener refuses the caller.
    pub async fn first(all: &[Self], stream: &ClientStream) -> Result<Arc<Caller>, CallerRefused> {
        for one in all {
            let found = match one {
                Self::Unix(users) => users.caller(stream).map(|found| found.map(Arc::new)),
                Self::Mark => Some(by_interface(HeldInterface::of(stream))),
                // Boxed, so that a connection does not keep memory for the query.
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

/// Returns the caller whose traffic arrived through an interface.
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

/// Returns the caller that presents a certificate.
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
