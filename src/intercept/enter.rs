//! The TLS handshake of a client with a proxy.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::CertificateError as Fault;
use tokio_rustls::TlsAcceptor;

use super::client_stream::{ClientStream, TlsClient};
use super::first::FirstBytes;
use super::hello::{HandshakeError, cause};
use super::prefixed::Prefixed;
use super::proxy_tls::ProxyTls;

/// Why the handshake with a client failed.
pub enum TlsRefused {
    /// The client speaks HTTP in clear text, and can be answered.
    Http(Prefixed<ClientStream>),
    /// The client speaks another protocol in clear text.
    Clear,
    /// The client's certificate is not accepted, or is missing.
    Certificate(&'static str),
    /// The handshake failed for another reason.
    Handshake(HandshakeError),
}

/// Does the TLS handshake with a client; refuses a client that speaks in clear text at once.
///
/// # Errors
/// [`TlsRefused`] by cause. The caller must set a time limit.
pub async fn enter(
    stream: ClientStream,
    door: &Arc<ArcSwap<ProxyTls>>,
) -> Result<ClientStream, TlsRefused> {
    let mut io = Prefixed::new(stream);
    match FirstBytes::read(&mut io).await {
        Ok(Some(FirstBytes::Tls)) => {}
        Ok(Some(FirstBytes::Http)) => return Err(TlsRefused::Http(io)),
        Ok(Some(FirstBytes::Foreign(_))) => return Err(TlsRefused::Clear),
        Ok(None) => return Err(TlsRefused::Handshake(HandshakeError::Left)),
        Err(error) => return Err(TlsRefused::Handshake(cause(error))),
    }
    let by = door.load_full();
    let accepting = TlsAcceptor::from(by.config.clone()).accept(io);
    let stream = accepting.await.map_err(|error| match cause(error) {
        HandshakeError::Tls(rustls::Error::InvalidCertificate(fault)) => {
            TlsRefused::Certificate(of_certificate(&fault))
        }
        HandshakeError::Tls(rustls::Error::NoCertificatesPresented) => {
            TlsRefused::Certificate("no certificate was presented")
        }
        error => TlsRefused::Handshake(error),
    })?;
    let door = door.clone();
    Ok(ClientStream::Tls(Box::new(TlsClient { stream, door, by })))
}

/// Returns what is wrong with a client's certificate.
fn of_certificate(fault: &Fault) -> &'static str {
    match fault {
        Fault::UnknownIssuer => "no root of `client_roots` signed its certificate",
        Fault::Expired | Fault::ExpiredContext { .. } => "the time of its certificate is over",
        Fault::NotValidYet | Fault::NotValidYetContext { .. } => "its certificate is not valid yet",
        Fault::Revoked => "its certificate is revoked",
        Fault::InvalidPurpose | Fault::InvalidPurposeContext { .. } => {
            "its certificate is not for clients"
        }
        Fault::UnknownRevocationStatus
        | Fault::ExpiredRevocationList
        | Fault::ExpiredRevocationListContext { .. } => {
            "no list of `client_crls` says now whether its certificate is revoked"
        }
        _ => "its certificate cannot be verified",
    }
}
