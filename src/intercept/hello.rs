//! The client's TLS handshake: reads its hello with a size limit and a deadline, checks the server
//! name, and terminates TLS.

use std::future::poll_fn;
use std::io::{self, Read};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use gateway_message::{Host, HostMalformed};
use gateway_names::ReasonCode;
use gateway_wire::hello::{HelloFault, HelloReader};
use rustls::ServerConfig;
use rustls::server::{Accepted, ClientHello};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::StartHandshake;
use tokio_rustls::server::TlsStream;

use super::ca::SessionCa;
use super::mint::MintRefused;
use super::synthetic::is_synthetic;

/// The known destination before the client's hello.
#[derive(Debug, Clone, Copy)]
pub enum Destination<'a> {
    /// A CONNECT or SOCKS target, or the name for a synthetic address: the SNI must be the same.
    Named(&'a Host),
    /// The address that the client of a captured connection dialled: the SNI names the host.
    /// Without one, the address itself is the host.
    Address(IpAddr),
}

/// A client's TLS connection, terminated here.
#[derive(Debug)]
pub struct TerminatedTls<IO> {
    /// The connection after the handshake.
    pub stream: TlsStream<IO>,
    /// The host that the client believes it is connected to: its SNI, or the address that it
    /// dialled.
    pub host: Host,
    /// Whether the client sent the host as SNI.
    pub named_by_sni: bool,
    /// Whether ALPN chose HTTP/2; otherwise HTTP/1.1.
    pub http2: bool,
}

/// Why a client's TLS handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The hello is malformed or missing.
    #[error(transparent)]
    Hello(HelloFault),
    /// The client ended the connection during the handshake.
    #[error("the client left during the handshake")]
    Left,
    /// The deadline passed.
    #[error("the handshake took too long")]
    Timeout,
    /// There is no SNI, and no host or address to use instead.
    #[error("the client names no host")]
    NoSni,
    /// The SNI is not a host name.
    #[error("the server name is malformed")]
    SniMalformed(#[source] HostMalformed),
    /// The SNI is not the host of the CONNECT target or of the synthetic address.
    #[error("the server name is not the one that was connected to")]
    SniMismatch,
    /// The client offers application protocols, but neither `h2` nor `http/1.1`.
    #[error("no common application protocol")]
    Alpn,
    /// No leaf is made for this host.
    #[error("no certificate for this host: {0}")]
    Mint(#[source] MintRefused),
    /// TLS failed for another reason.
    #[error("the TLS handshake failed")]
    Tls(#[source] rustls::Error),
    /// The connection failed.
    #[error("the connection failed during the handshake")]
    Io(#[source] io::Error),
}

impl HandshakeError {
    /// Returns the reason code for audit.
    #[must_use]
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Hello(HelloFault::NotTls) => ReasonCode::UnknownProtocol,
            Self::Hello(HelloFault::TooLong) => ReasonCode::HelloTooLong,
            Self::Left => ReasonCode::ClientLeft,
            Self::Hello(HelloFault::Tls(..)) | Self::Tls(_) => ReasonCode::TlsHandshake,
            Self::Hello(HelloFault::Io(_)) | Self::Io(_) => ReasonCode::ClientIo,
            Self::Timeout => ReasonCode::ClientTimeout,
            Self::NoSni => ReasonCode::NoSni,
            Self::SniMalformed(cause) => cause.reason(),
            Self::SniMismatch => ReasonCode::SniConnectMismatch,
            Self::Alpn => ReasonCode::Alpn,
            Self::Mint(cause) => cause.reason(),
        }
    }

    /// Returns the alert for the client, if the gateway must write it. For [`HandshakeError::Tls`],
    /// rustls wrote its own.
    fn alert(&self) -> Option<Vec<u8>> {
        let ours = match self {
            Self::Hello(HelloFault::Tls(_, alert)) if !alert.is_empty() => {
                return Some(alert.clone());
            }
            Self::NoSni
            | Self::SniMalformed(_)
            | Self::SniMismatch
            | Self::Mint(MintRefused::OutsideConstraints) => Alert::UnrecognizedName,
            Self::Mint(MintRefused::Throttled | MintRefused::Ended | MintRefused::Failed) => {
                Alert::InternalError
            }
            Self::Alpn => Alert::NoApplicationProtocol,
            Self::Hello(HelloFault::TooLong | HelloFault::Tls(..)) => Alert::DecodeError,
            Self::Hello(_) | Self::Left | Self::Timeout | Self::Tls(_) | Self::Io(_) => {
                return None;
            }
        };
        Some(ours.record().to_vec())
    }
}

/// Terminates a client's TLS connection, with a leaf of this session for the host that the client
/// named.
///
/// The hello may arrive in any number of segments and records, up to 64 KiB; every byte after it
/// stays in the stream. Each refusal before the server's hello sends a plain-text alert and no
/// certificate. `said` becomes the name of the hello, also if the handshake fails.
///
/// # Errors
/// `HandshakeError`: the connection is over. The deadline covers the whole handshake.
///
/// Not cancel safe: dropping the future loses the connection.
pub async fn terminate<IO>(
    io: IO,
    ca: &SessionCa,
    destination: Destination<'_>,
    deadline: Instant,
    said: &mut Option<Host>,
) -> Result<TerminatedTls<IO>, HandshakeError>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    timeout_at(deadline, handshake(io, ca, destination, said))
        .await
        .unwrap_or(Err(HandshakeError::Timeout))
}

async fn handshake<IO>(
    mut io: IO,
    ca: &SessionCa,
    destination: Destination<'_>,
    said: &mut Option<Host>,
) -> Result<TerminatedTls<IO>, HandshakeError>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let chosen = match read_hello(&mut io).await {
        Ok(accepted) => {
            choose(&accepted.client_hello(), ca, destination, said).map(|chosen| (accepted, chosen))
        }
        Err(HelloFault::Io(error)) => Err(cause(error)),
        Err(fault) => Err(HandshakeError::Hello(fault)),
    };
    let (accepted, chosen) = match chosen {
        Ok(chosen) => chosen,
        Err(error) => {
            if let Some(alert) = error.alert() {
                // The outcome is the same whether or not the client still reads.
                let _ = send(&mut io, &alert).await;
            }
            return Err(error);
        }
    };
    let stream = StartHandshake::from_parts(accepted, io)
        .into_stream(chosen.config)
        .await
        .map_err(cause)?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok(TerminatedTls {
        stream,
        host: chosen.host,
        named_by_sni: chosen.named_by_sni,
        http2,
    })
}

struct ChosenHost {
    host: Host,
    named_by_sni: bool,
    config: Arc<ServerConfig>,
}

/// Checks the hello: one host, and a protocol that the gateway speaks.
fn choose(
    hello: &ClientHello<'_>,
    ca: &SessionCa,
    destination: Destination<'_>,
    said: &mut Option<Host>,
) -> Result<ChosenHost, HandshakeError> {
    if let Some(mut offered) = hello.alpn()
        && !offered.any(|protocol| protocol == b"h2" || protocol == b"http/1.1")
    {
        return Err(HandshakeError::Alpn);
    }
    // rustls returns no name for an SNI that is an IP literal, which RFC 6066 §3 forbids.
    let sni = hello
        .server_name()
        .map(|name| Host::parse(name.as_bytes()))
        .transpose()
        .map_err(HandshakeError::SniMalformed)?;
    said.clone_from(&sni);
    match (sni, destination) {
        (Some(sni), Destination::Named(host)) if sni != *host => Err(HandshakeError::SniMismatch),
        (Some(sni), _) => {
            if sni.ip().is_some() {
                return Err(HandshakeError::NoSni);
            }
            ca.leaf(&sni).map_err(HandshakeError::Mint)?;
            Ok(ChosenHost {
                host: sni,
                named_by_sni: true,
                config: ca.server_config(),
            })
        }
        (None, Destination::Named(host)) if host.ip().is_some() => unnamed(host.clone(), ca),
        (None, Destination::Named(_)) => Err(HandshakeError::NoSni),
        // No host: a synthetic address without a name, or the unspecified address of a listener for
        // SNI.
        (None, Destination::Address(ip)) if is_synthetic(ip) || ip.is_unspecified() => {
            Err(HandshakeError::NoSni)
        }
        (None, Destination::Address(ip)) => unnamed(Host::from_ip(ip), ca),
    }
}

/// Returns a leaf for an address, for a client that sends no server name.
fn unnamed(host: Host, ca: &SessionCa) -> Result<ChosenHost, HandshakeError> {
    let leaf = ca.leaf(&host).map_err(|refused| match refused {
        MintRefused::OutsideConstraints => HandshakeError::NoSni,
        other => HandshakeError::Mint(other),
    })?;
    let config = ca
        .server_config_without_sni(leaf)
        .map_err(HandshakeError::Tls)?;
    Ok(ChosenHost {
        host,
        named_by_sni: false,
        config,
    })
}

/// Reads the whole client hello.
async fn read_hello<IO: AsyncRead + Unpin>(io: &mut IO) -> Result<Accepted, HelloFault> {
    let mut reader = HelloReader::default();
    poll_fn(|cx| {
        loop {
            let mut source = PolledReader { io: &mut *io, cx };
            match reader.read(&mut source) {
                Ok(None) => {}
                Ok(Some(accepted)) => return Poll::Ready(Ok(accepted)),
                Err(HelloFault::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Poll::Pending;
                }
                Err(fault) => return Poll::Ready(Err(fault)),
            }
        }
    })
    .await
}

/// A reader for rustls over a socket that is being polled.
struct PolledReader<'a, 'b, IO> {
    io: &'a mut IO,
    cx: &'a mut Context<'b>,
}

impl<IO: AsyncRead + Unpin> Read for PolledReader<'_, '_, IO> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        match Pin::new(&mut *self.io).poll_read(self.cx, &mut buffer) {
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) => Ok(buffer.filled().len()),
        }
    }
}

async fn send<IO: AsyncWrite + Unpin>(io: &mut IO, bytes: &[u8]) -> io::Result<()> {
    io.write_all(bytes).await?;
    io.flush().await?;
    io.shutdown().await
}

/// Returns the cause of a failed handshake.
pub(super) fn cause(error: io::Error) -> HandshakeError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return HandshakeError::Left;
    }
    match error.downcast::<rustls::Error>() {
        Ok(rustls::Error::NoApplicationProtocol) => HandshakeError::Alpn,
        Ok(error) => HandshakeError::Tls(error),
        Err(error) => HandshakeError::Io(error),
    }
}

/// The TLS alerts that the gateway writes (RFC 8446 §6).
#[derive(Clone, Copy)]
enum Alert {
    DecodeError = 50,
    InternalError = 80,
    UnrecognizedName = 112,
    NoApplicationProtocol = 120,
}

impl Alert {
    /// Returns a fatal alert in a plain-text record, for before the server's hello.
    fn record(self) -> [u8; 7] {
        [21, 3, 3, 0, 2, 2, self as u8]
    }
}

#[cfg(test)]
mod tests;
