//! SOCKS5 (RFC 1928, RFC 1929): CONNECT only.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::prefixed::Prefixed;
use crate::message::{Authority, Host};
use crate::names::ReasonCode;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const USER_PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// A reply's code (RFC 1928 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The tunnel is open.
    Succeeded = 0,
    /// Policy does not allow the destination.
    NotAllowed = 2,
    /// Only CONNECT is supported.
    CommandNotSupported = 7,
    /// The kind of address is unknown.
    AddressNotSupported = 8,
}

/// Where the client wants to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocksTarget {
    /// A name: the gateway resolves it after authorization.
    Named(Authority),
    /// An address that the client resolved itself. It is never dialled; the TLS handshake or the
    /// Host field names the host.
    Address(SocketAddr),
}

/// Checks a user and a password.
pub type Accepts<'a> = dyn Fn(&[u8], &[u8]) -> bool + Sync + 'a;

/// Why the negotiation ended before a tunnel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stream failed or ended.
    #[error("the client's connection ended")]
    Io(#[from] io::Error),
    /// A message does not have the format of RFC 1928.
    #[error("the SOCKS message is malformed")]
    Malformed,
    /// No method in common, or a wrong password.
    #[error("the SOCKS client did not authenticate")]
    Unauthenticated,
    /// Not CONNECT.
    #[error("only the SOCKS command CONNECT is supported")]
    Command,
    /// The host or port is not a canonical authority.
    #[error("the SOCKS destination is malformed")]
    Destination,
}

impl Error {
    /// The reason code in the audit log.
    #[must_use]
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Io(_) => ReasonCode::ClientLeft,
            Self::Malformed => ReasonCode::SocksMalformed,
            Self::Unauthenticated => ReasonCode::ProxyAuthentication,
            Self::Command => ReasonCode::SocksCommand,
            Self::Destination => ReasonCode::HostCharset,
        }
    }
}

/// Speaks SOCKS5 up to the request; the caller answers that with [`reply`].
///
/// `accepts` checks a user and password; `None` if the listener requires none.
///
/// # Errors
/// [`Error`] by cause; the client has been told by then.
pub async fn negotiate<IO: AsyncRead + AsyncWrite + Unpin>(
    io: &mut Prefixed<IO>,
    accepts: Option<&Accepts<'_>>,
) -> Result<SocksTarget, Error> {
    greet(io, accepts).await?;
    need(io, 4).await?;
    let [version, command, _, kind] = *io.ahead().first_chunk::<4>().ok_or(Error::Malformed)?;
    if version != VERSION {
        return Err(Error::Malformed);
    }
    let target = match kind {
        1 => address::<4, _>(io).await?,
        3 => named(io).await?,
        4 => address::<16, _>(io).await?,
        _ => {
            reply(io, Reply::AddressNotSupported).await?;
            return Err(Error::Malformed);
        }
    };
    if command != CONNECT {
        reply(io, Reply::CommandNotSupported).await?;
        return Err(Error::Command);
    }
    match target {
        Some(target) => Ok(target),
        None => {
            reply(io, Reply::NotAllowed).await?;
            Err(Error::Destination)
        }
    }
}

async fn need<IO: AsyncRead + Unpin>(io: &mut Prefixed<IO>, count: usize) -> Result<(), Error> {
    if io.ensure(count).await? {
        Ok(())
    } else {
        Err(Error::Io(io::ErrorKind::UnexpectedEof.into()))
    }
}

async fn greet<IO: AsyncRead + AsyncWrite + Unpin>(
    io: &mut Prefixed<IO>,
    accepts: Option<&Accepts<'_>>,
) -> Result<(), Error> {
    need(io, 2).await?;
    let (version, count) = (io.ahead()[0], usize::from(io.ahead()[1]));
    if version != VERSION {
        return Err(Error::Malformed);
    }
    need(io, 2 + count).await?;
    let wanted = if accepts.is_some() {
        USER_PASSWORD
    } else {
        NO_AUTHENTICATION
    };
    let offered = io.ahead()[2..2 + count].contains(&wanted);
    io.consume(2 + count);
    io.write_all(&[VERSION, if offered { wanted } else { NO_METHOD }])
        .await?;
    if !offered {
        return Err(Error::Unauthenticated);
    }
    match accepts {
        Some(accepts) => authenticate(io, accepts).await,
        None => Ok(()),
    }
}

/// Checks the client's user and password (RFC 1929 §2).
async fn authenticate<IO: AsyncRead + AsyncWrite + Unpin>(
    io: &mut Prefixed<IO>,
    accepts: &Accepts<'_>,
) -> Result<(), Error> {
    need(io, 2).await?;
    if io.ahead()[0] != 1 {
        return Err(Error::Malformed);
    }
    let user = usize::from(io.ahead()[1]);
    need(io, 3 + user).await?;
    let password = usize::from(io.ahead()[2 + user]);
    need(io, 3 + user + password).await?;
    let message = io.ahead();
    let good = accepts(
        &message[2..2 + user],
        &message[3 + user..3 + user + password],
    );
    io.consume(3 + user + password);
    io.write_all(&[1, u8::from(!good)]).await?;
    if good {
        Ok(())
    } else {
        Err(Error::Unauthenticated)
    }
}

async fn address<const N: usize, IO: AsyncRead + Unpin>(
    io: &mut Prefixed<IO>,
) -> Result<Option<SocksTarget>, Error>
where
    [u8; N]: Into<IpAddr>,
{
    need(io, 4 + N + 2).await?;
    let bytes: [u8; N] = io.ahead()[4..4 + N]
        .try_into()
        .map_err(|_| Error::Malformed)?;
    let port = u16::from_be_bytes([io.ahead()[4 + N], io.ahead()[5 + N]]);
    io.consume(4 + N + 2);
    Ok((port != 0).then(|| SocksTarget::Address(SocketAddr::new(bytes.into(), port))))
}

async fn named<IO: AsyncRead + Unpin>(io: &mut Prefixed<IO>) -> Result<Option<SocksTarget>, Error> {
    need(io, 5).await?;
    let length = usize::from(io.ahead()[4]);
    need(io, 5 + length + 2).await?;
    let host = Host::parse(&io.ahead()[5..5 + length]).ok();
    let port = u16::from_be_bytes([io.ahead()[5 + length], io.ahead()[6 + length]]);
    io.consume(5 + length + 2);
    Ok(host
        .filter(|_| port != 0)
        .map(|host| SocksTarget::Named(Authority { host, port })))
}

/// Answers the request. Reports no bound address, because nothing was bound.
///
/// # Errors
/// Those of the stream.
pub async fn reply<IO: AsyncWrite + Unpin>(io: &mut IO, reply: Reply) -> io::Result<()> {
    io.write_all(&[VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0])
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// Runs a negotiation with known client bytes; returns the outcome and what the client read.
    fn run(sent: &[u8], password: Option<&'static [u8]>) -> (Result<SocksTarget, Error>, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (mut client, server) = tokio::io::duplex(4096);
            client.write_all(sent).await.unwrap();
            client.shutdown().await.unwrap();
            let mut io = Prefixed::new(server);
            let accepts = |user: &[u8], given: &[u8]| user == b"agent" && Some(given) == password;
            let accepts: Option<&Accepts<'_>> = if password.is_some() {
                Some(&accepts)
            } else {
                None
            };
            let outcome = negotiate(&mut io, accepts).await;
            drop(io);
            let mut seen = Vec::new();
            client.read_to_end(&mut seen).await.unwrap();
            (outcome, seen)
        })
    }

    fn connect_to(name: &[u8]) -> Vec<u8> {
        let mut bytes = vec![5, 1, 0, 5, 1, 0, 3, u8::try_from(name.len()).unwrap()];
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&443u16.to_be_bytes());
        bytes
    }

    #[test]
    fn a_name_is_taken_canonically() {
        let (target, seen) = run(&connect_to(b"Good.Example."), None);
        let expected = Authority {
            host: Host::parse(b"good.example").unwrap(),
            port: 443,
        };
        assert_eq!(target.unwrap(), SocksTarget::Named(expected));
        assert_eq!(seen, [5, 0]);
    }

    #[test]
    fn a_name_with_a_nul_is_refused_with_reply_two() {
        let (target, seen) = run(&connect_to(b"evil.example\0.good.example"), None);
        assert!(matches!(target, Err(Error::Destination)));
        assert_eq!(seen, [5, 0, 5, 2, 0, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn lying_lengths_never_read_past_the_end() {
        for end in 0..connect_to(b"good.example").len() {
            let (target, _) = run(&connect_to(b"good.example")[..end], None);
            assert!(matches!(target, Err(Error::Io(_))), "{end}");
        }
    }

    #[test]
    fn an_address_is_kept_apart_from_a_name() {
        let (target, _) = run(&[5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 1, 187], None);
        assert_eq!(
            target.unwrap(),
            SocksTarget::Address("192.0.2.1:443".parse().unwrap())
        );
    }

    #[test]
    fn bind_and_udp_associate_are_refused() {
        for command in [2, 3] {
            let (target, seen) = run(&[5, 1, 0, 5, command, 0, 1, 192, 0, 2, 1, 1, 187], None);
            assert!(matches!(target, Err(Error::Command)));
            assert_eq!(seen[3], 7);
        }
    }

    #[test]
    fn a_listener_with_a_password_takes_no_other() {
        let login = |password: &[u8]| {
            let mut bytes = vec![5, 2, 0, 2, 1, 5];
            bytes.extend_from_slice(b"agent");
            bytes.push(u8::try_from(password.len()).unwrap());
            bytes.extend_from_slice(password);
            bytes.extend_from_slice(&connect_to(b"good.example")[3..]);
            bytes
        };
        assert!(run(&login(b"right"), Some(b"right")).0.is_ok());
        assert!(matches!(
            run(&login(b"wrong"), Some(b"right")).0,
            Err(Error::Unauthenticated)
        ));
        assert!(matches!(
            run(&connect_to(b"good.example"), Some(b"right")).0,
            Err(Error::Unauthenticated)
        ));
    }
}
