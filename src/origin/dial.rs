//! Connects to an origin: vets its addresses once, dials only those, then performs TLS.

use std::sync::Arc;

use gateway_message::{Host, Origin};
use ipnet::IpNet;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Error;
use super::race::Race;
use super::reach::{to_address, to_authority};
use super::resolve::Resolve;
use super::rule::{OriginRule, OriginSettings};
use super::upstream;
use super::vet::{OF_METADATA_NAMES, vet_host};

/// Connects to an origin at one of its vetted addresses, or through the upstream proxy.
///
/// # Errors
/// [`Error`] by cause. No prohibited address was dialled.
pub(super) async fn connect(
    origin: &Origin,
    rule: Option<&OriginRule>,
    resolver: &dyn Resolve,
    settings: &OriginSettings,
) -> Result<TcpStream, Error> {
    let limit = settings.connect_timeout;
    if let Some(fixed) = rule.and_then(|rule| rule.connect) {
        let itself = [IpNet::from(fixed.ip().to_canonical())];
        let race = Race::new(fixed.port(), &itself, limit);
        return to_address(race, fixed.ip()).await;
    }
    let exceptions = rule.map_or(&[][..], |rule| &rule.addresses);
    if let Some(proxy) = settings.via(origin, rule) {
        let to = &origin.authority;
        let address = to.host.ip().unwrap_or(OF_METADATA_NAMES);
        vet_host(to, exceptions).map_err(|why| Error::Prohibited(why, address))?;
        return upstream::connect(proxy, to, resolver, limit).await;
    }
    to_authority(&origin.authority, exceptions, resolver, limit).await
}

/// Performs the TLS handshake for the authorized host, at whatever address.
pub(super) async fn handshake<IO: AsyncRead + AsyncWrite + Unpin>(
    stream: IO,
    host: &Host,
    config: Arc<ClientConfig>,
    settings: &OriginSettings,
) -> Result<TlsStream<IO>, Error> {
    let name = match host.ip() {
        Some(address) => ServerName::from(address),
        None => {
            ServerName::try_from(host.as_str().to_owned()).map_err(|_| Error::NotCertifiable)?
        }
    };
    timeout(
        settings.handshake_timeout,
        TlsConnector::from(config).connect(name, stream),
    )
    .await
    .map_err(|_| Error::HandshakeTimeout)?
    .map_err(Error::Tls)
}
