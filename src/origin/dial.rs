//! Connects to an origin: vets its addresses once, dials only those, then performs TLS.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Error;
use super::resolve::Resolve;
use super::rule::{OriginRule, OriginSettings};
use super::vet::vet;
use crate::message::{Authority, Host, Origin};

/// How long to wait before the next address is tried as well (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// How many addresses of one name are tried.
const MOST_ADDRESSES: usize = 8;

/// The vetted addresses of an origin, in the order in which they are tried.
pub(super) async fn addresses(
    origin: &Origin,
    rule: Option<&OriginRule>,
    resolver: &dyn Resolve,
) -> Result<Vec<SocketAddr>, Error> {
    if let Some(fixed) = rule.and_then(|rule| rule.connect) {
        let itself = IpNet::from(fixed.ip().to_canonical());
        vet(fixed.ip(), fixed.port(), &[itself]).map_err(Error::Prohibited)?;
        return Ok(vec![fixed]);
    }
    let Authority { host, port } = &origin.authority;
    let found = match host.ip() {
        Some(address) => vec![address],
        None => resolver
            .resolve(host.as_str())
            .await
            .map_err(Error::Unresolved)?,
    };
    let exceptions = rule.map_or(&[][..], |rule| &rule.addresses);
    vetted(found, *port, exceptions)
}

/// The addresses that may be dialled. A prohibited address among public ones is dropped, never
/// tried (C03).
fn vetted(found: Vec<IpAddr>, port: u16, exceptions: &[IpNet]) -> Result<Vec<SocketAddr>, Error> {
    let mut refused = None;
    let mut kept = Vec::new();
    for address in found {
        match vet(address, port, exceptions) {
            Ok(()) => kept.push(SocketAddr::new(address, port)),
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    kept.truncate(MOST_ADDRESSES);
    match (kept.is_empty(), refused) {
        (false, _) => Ok(kept),
        (true, Some(why)) => Err(Error::Prohibited(why)),
        (true, None) => Err(Error::Unreachable(None)),
    }
}

/// Connects to the first address that answers: Happy Eyeballs (RFC 8305 §5).
pub(super) async fn connect(
    addresses: Vec<SocketAddr>,
    settings: &OriginSettings,
) -> Result<TcpStream, Error> {
    let stream = match addresses.as_slice() {
        [only] => timeout(settings.connect_timeout, attempt(*only))
            .await
            .map_err(|_| Error::ConnectTimeout)?,
        _ => timeout(settings.connect_timeout, race(addresses))
            .await
            .map_err(|_| Error::ConnectTimeout)?,
    };
    stream.map_err(|error| Error::Unreachable(Some(error)))
}

async fn attempt(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    let stream = socket.connect(address).await?;
    // Otherwise Nagle's algorithm meets delayed acknowledgements: 40 ms per request
    // (performance.md).
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn race(addresses: Vec<SocketAddr>) -> std::io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut failure = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    let mut next_at = Instant::now();
    loop {
        tokio::select! {
            () = sleep_until(next_at), if waiting.len() > 0 => {
                if let Some(address) = waiting.next() {
                    attempts.spawn(attempt(address));
                }
                next_at = Instant::now() + ATTEMPT_DELAY;
            }
            Some(ended) = attempts.join_next() => match ended {
                Ok(Ok(stream)) => return Ok(stream),
                // The next address starts at once when one fails.
                Ok(Err(error)) => { failure = error; next_at = Instant::now(); }
                Err(_) => next_at = Instant::now(),
            },
            else => return Err(failure),
        }
    }
}

/// Performs the TLS handshake for the judged host, whatever the address was.
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
