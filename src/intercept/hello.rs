//! The client's TLS handshake: its hello read under a bound and a deadline, its name checked, its
//! connection ended here.

use std::future::poll_fn;
use std::io::{self, Read};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ServerConfig;
use rustls::server::{Accepted, AcceptedAlert, Acceptor, ClientHello};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::StartHandshake;
use tokio_rustls::server::TlsStream;

use super::ca::{MintRefused, SessionCa};
use crate::message::{Host, HostMalformed};
use crate::names::ReasonCode;

/// What is known of the destination before the client's hello.
#[derive(Debug, Clone, Copy)]
pub enum Destination<'a> {
    /// A CONNECT or SOCKS target, or the name behind a synthetic address: the SNI must be the same.
    Named(&'a Host),
    /// The address that a captured connection was for: the SNI names the host. Without one, the
    /// address itself is the host, where policy permits it.
    Address(IpAddr),
}

/// A client's TLS connection that ends here.
#[derive(Debug)]
pub struct Terminated<IO> {
    /// The connection after the handshake.
    pub stream: TlsStream<IO>,
    /// The host that the client believes to speak with: its SNI, or the address that it called.
    pub host: Host,
    /// Whether the client sent that name as SNI.
    pub named_by_sni: bool,
    /// Whether ALPN chose HTTP/2; HTTP/1.1 otherwise.
    pub http2: bool,
}

/// Why a client's TLS connection was cut.
#[derive(Debug, thiserror::Error)]
pub enum Cut {
    /// The first byte is not that of a TLS handshake record.
    #[error("the client does not speak TLS")]
    NotTls,
    /// The client ended the connection inside the handshake.
    #[error("the client left during the handshake")]
    Left,
    /// The deadline passed.
    #[error("the handshake took too long")]
    Timeout,
    /// The hello is longer than 64 KiB.
    #[error("the client hello is too long")]
    TooLong,
    /// No SNI, and neither name nor permitted address to take its place.
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
    /// No leaf for this host.
    #[error("no certificate for this host: {0}")]
    Mint(#[source] MintRefused),
    /// TLS failed otherwise.
    #[error("the TLS handshake failed")]
    Tls(#[source] rustls::Error),
    /// The connection failed.
    #[error("the connection failed during the handshake")]
    Io(#[source] io::Error),
}

impl Cut {
    /// The short code for audit.
    #[must_use]
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::NotTls => ReasonCode::UnknownProtocol,
            Self::Left => ReasonCode::ClientLeft,
            Self::Timeout => ReasonCode::ClientTimeout,
            Self::TooLong => ReasonCode::HelloTooLong,
            Self::NoSni => ReasonCode::NoSni,
            Self::SniMalformed(cause) => cause.reason(),
            Self::SniMismatch => ReasonCode::SniConnectMismatch,
            Self::Alpn => ReasonCode::Alpn,
            Self::Mint(cause) => cause.reason(),
            Self::Tls(_) => ReasonCode::TlsHandshake,
            Self::Io(_) => ReasonCode::ClientIo,
        }
    }

    /// The alert that tells the client, where we have to write it; rustls wrote its own for
    /// [`Cut::Tls`].
    fn alert(&self) -> Option<Alert> {
        match self {
            Self::NoSni | Self::SniMalformed(_) | Self::SniMismatch => {
                Some(Alert::UnrecognizedName)
            }
            Self::Mint(MintRefused::NotPermitted | MintRefused::OutsideConstraints) => {
                Some(Alert::UnrecognizedName)
            }
            Self::Mint(MintRefused::Throttled | MintRefused::Ended | MintRefused::Failed) => {
                Some(Alert::InternalError)
            }
            Self::Alpn => Some(Alert::NoApplicationProtocol),
            Self::TooLong => Some(Alert::DecodeError),
            Self::NotTls | Self::Left | Self::Timeout | Self::Tls(_) | Self::Io(_) => None,
        }
    }
}

/// Ends a client's TLS connection here, with a leaf of this session for the host that the client
/// named.
///
/// The hello may come in any number of segments and records, up to 64 KiB; every byte after it
/// stays in the stream. Each refusal before the server's hello is told by an alert in plain text,
/// and no certificate is sent then.
///
/// # Errors
/// [`Cut`]: the connection is over. The deadline holds for the whole handshake.
///
/// Not cancel safe: a dropped future loses the connection.
pub async fn terminate<IO>(
    io: IO,
    ca: &SessionCa,
    destination: Destination<'_>,
    deadline: Instant,
) -> Result<Terminated<IO>, Cut>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    timeout_at(deadline, handshake(io, ca, destination))
        .await
        .unwrap_or(Err(Cut::Timeout))
}

async fn handshake<IO>(
    mut io: IO,
    ca: &SessionCa,
    destination: Destination<'_>,
) -> Result<Terminated<IO>, Cut>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let chosen = match read_hello(&mut io).await {
        Ok(accepted) => {
            choose(&accepted.client_hello(), ca, destination).map(|chosen| (accepted, chosen))
        }
        Err(cut) => Err(cut),
    };
    let (accepted, chosen) = match chosen {
        Ok(chosen) => chosen,
        Err(cut) => {
            if let Some(alert) = cut.alert() {
                // The verdict stands whether or not the client still listens.
                let _ = send(&mut io, &alert.record()).await;
            }
            return Err(cut);
        }
    };
    let stream = StartHandshake::from_parts(accepted, io)
        .into_stream(chosen.config)
        .await
        .map_err(cause)?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok(Terminated {
        stream,
        host: chosen.host,
        named_by_sni: chosen.named_by_sni,
        http2,
    })
}

struct Chosen {
    host: Host,
    named_by_sni: bool,
    config: Arc<ServerConfig>,
}

/// Judges the hello: one host, permitted, and a protocol that we speak.
fn choose(
    hello: &ClientHello<'_>,
    ca: &SessionCa,
    destination: Destination<'_>,
) -> Result<Chosen, Cut> {
    if let Some(mut offered) = hello.alpn()
        && !offered.any(|protocol| protocol == b"h2" || protocol == b"http/1.1")
    {
        return Err(Cut::Alpn);
    }
    // rustls gives no name for an SNI that is an IP literal, which RFC 6066 §3 forbids.
    let sni = hello
        .server_name()
        .map(|name| Host::parse(name.as_bytes()))
        .transpose()
        .map_err(Cut::SniMalformed)?;
    match (sni, destination) {
        (Some(sni), Destination::Named(host)) if sni != *host => Err(Cut::SniMismatch),
        (Some(sni), _) => {
            if sni.ip().is_some() {
                return Err(Cut::NoSni);
            }
            ca.leaf(&sni).map_err(Cut::Mint)?;
            Ok(Chosen {
                host: sni,
                named_by_sni: true,
                config: ca.server_config(),
            })
        }
        (None, Destination::Named(host)) if host.ip().is_some() => unnamed(host.clone(), ca),
        (None, Destination::Named(_)) => Err(Cut::NoSni),
        (None, Destination::Address(ip)) => unnamed(Host::from_ip(ip), ca),
    }
}

/// A leaf for an address, for a client that sends no name.
fn unnamed(host: Host, ca: &SessionCa) -> Result<Chosen, Cut> {
    let leaf = ca.leaf(&host).map_err(|refused| match refused {
        MintRefused::NotPermitted | MintRefused::OutsideConstraints => Cut::NoSni,
        other => Cut::Mint(other),
    })?;
    let config = ca.server_config_without_sni(leaf).map_err(Cut::Tls)?;
    Ok(Chosen {
        host,
        named_by_sni: false,
        config,
    })
}

/// Reads the whole client hello, in any number of segments and records.
async fn read_hello<IO>(io: &mut IO) -> Result<Accepted, Cut>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let mut acceptor = Acceptor::default();
    let mut taken = 0;
    loop {
        let mut first = None;
        // rustls takes as much as it can keep, so nothing is read that would be lost.
        let read = poll_fn(|cx| {
            let mut reader = Polled {
                io: &mut *io,
                cx,
                first: &mut first,
            };
            match acceptor.read_tls(&mut reader) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
                done => Poll::Ready(done),
            }
        })
        .await
        // No socket gives this kind: rustls does, when its buffer for one message is full.
        .map_err(|error| {
            if error.kind() == io::ErrorKind::InvalidData {
                Cut::TooLong
            } else {
                Cut::Io(error)
            }
        })?;
        if read == 0 {
            return Err(Cut::Left);
        }
        if taken == 0 && first != Some(HANDSHAKE_RECORD) {
            return Err(Cut::NotTls);
        }
        taken += read;
        match acceptor.accept() {
            Ok(Some(accepted)) => return Ok(accepted),
            Ok(None) if taken > HELLO_MAX => return Err(Cut::TooLong),
            Ok(None) => {}
            Err((error, alert)) => {
                // The verdict stands whether or not the client still listens.
                let _ = send(io, &plain(alert)).await;
                return Err(Cut::Tls(error));
            }
        }
    }
}

/// A reader for rustls over a socket that is being polled.
struct Polled<'a, 'b, IO> {
    io: &'a mut IO,
    cx: &'a mut Context<'b>,
    first: &'a mut Option<u8>,
}

impl<IO: AsyncRead + Unpin> Read for Polled<'_, '_, IO> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        match Pin::new(&mut *self.io).poll_read(self.cx, &mut buffer) {
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) => {
                *self.first = self.first.or(buffer.filled().first().copied());
                Ok(buffer.filled().len())
            }
        }
    }
}

async fn send<IO: AsyncWrite + Unpin>(io: &mut IO, bytes: &[u8]) -> io::Result<()> {
    io.write_all(bytes).await?;
    io.flush().await?;
    io.shutdown().await
}

/// The alert that rustls made, or ours where it made none.
fn plain(mut alert: AcceptedAlert) -> Vec<u8> {
    let mut bytes = Vec::new();
    match alert.write_all(&mut bytes) {
        Ok(()) if !bytes.is_empty() => bytes,
        _ => Alert::DecodeError.record().to_vec(),
    }
}

/// What a failed handshake was about.
fn cause(error: io::Error) -> Cut {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Cut::Left;
    }
    match error.downcast::<rustls::Error>() {
        Ok(rustls::Error::NoApplicationProtocol) => Cut::Alpn,
        Ok(error) => Cut::Tls(error),
        Err(error) => Cut::Io(error),
    }
}

/// RFC 8446 §6.
#[derive(Clone, Copy)]
enum Alert {
    DecodeError = 50,
    InternalError = 80,
    UnrecognizedName = 112,
    NoApplicationProtocol = 120,
}

impl Alert {
    /// A fatal alert in a plain-text record, for the time before the server's hello.
    fn record(self) -> [u8; 7] {
        [21, 3, 3, 0, 2, 2, self as u8]
    }
}

/// What a connection that was captured on any port opens with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// A TLS handshake record.
    Tls,
    /// Anything else: HTTP/1 or HTTP/2 in clear text, or a protocol that we refuse.
    ClearText,
}

/// Looks at the first byte of a connection and leaves it there.
///
/// # Errors
/// [`Cut::Timeout`], [`Cut::Left`] or [`Cut::Io`]. A protocol in which the server speaks first ends
/// in a timeout.
pub async fn opening(stream: &tokio::net::TcpStream, deadline: Instant) -> Result<Opening, Cut> {
    let mut first = [0];
    let peeked = poll_fn(|cx| {
        let mut buffer = ReadBuf::new(&mut first);
        let count = ready!(stream.poll_peek(cx, &mut buffer));
        Poll::Ready(count)
    });
    match timeout_at(deadline, peeked).await {
        Err(_elapsed) => Err(Cut::Timeout),
        Ok(Err(error)) => Err(Cut::Io(error)),
        Ok(Ok(0)) => Err(Cut::Left),
        Ok(Ok(_)) if first[0] == HANDSHAKE_RECORD => Ok(Opening::Tls),
        Ok(Ok(_)) => Ok(Opening::ClearText),
    }
}

const HANDSHAKE_RECORD: u8 = 22;
const HELLO_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests;
