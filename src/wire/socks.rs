//! The messages of a SOCKS5 client (RFC 1928, RFC 1929), and the answers to them.

use std::net::{IpAddr, SocketAddr};

use gateway_message::{Authority, Host};

use super::cursor::{Cursor, ReadError};

/// The version of every message but the login.
pub const VERSION: u8 = 5;
/// The version of a login and of the answer to it.
pub const LOGIN_VERSION: u8 = 1;
/// The method of a client that needs no login.
pub const NO_AUTHENTICATION: u8 = 0;
/// The method of a client that has a user and a password.
pub const USER_PASSWORD: u8 = 2;
/// The answer to a client that has no acceptable method.
pub const NO_METHOD: u8 = 0xff;
/// The only command that the gateway serves.
pub const CONNECT: u8 = 1;

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SocksFault {
    /// It is of another version.
    #[error("the message is of another version")]
    Version,
    /// The kind of address is unknown, and with it the length of the message.
    #[error("the kind of address is unknown")]
    AddressKind,
}

/// Reads a client's first message: the numbers of the ways in which it can log in (RFC 1928 §3).
///
/// # Errors
/// [`ReadError`]
pub fn greeting<'b>(cursor: &mut Cursor<'b>) -> Result<&'b [u8], ReadError<SocksFault>> {
    version(cursor, VERSION)?;
    Ok(cursor.vec8()?)
}

/// Reads a user and a password (RFC 1929 §2).
///
/// # Errors
/// [`ReadError`]
pub fn login<'b>(cursor: &mut Cursor<'b>) -> Result<(&'b [u8], &'b [u8]), ReadError<SocksFault>> {
    version(cursor, LOGIN_VERSION)?;
    Ok((cursor.vec8()?, cursor.vec8()?))
}

/// The destination that a client requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocksTarget {
    /// A name: the gateway resolves it after authorization.
    Named(Authority),
    /// An address that the client resolved itself. It is never dialled; the TLS handshake or the
    /// Host field names the host.
    Address(SocketAddr),
}

/// A client's request (RFC 1928 §4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocksRequest {
    /// The number of the command.
    pub command: u8,
    /// The destination; `None` if the host or port is not a canonical authority.
    pub target: Option<SocksTarget>,
}

impl SocksRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn read(cursor: &mut Cursor<'_>) -> Result<Self, ReadError<SocksFault>> {
        version(cursor, VERSION)?;
        let [command, _, kind] = cursor.array()?;
        let host = match kind {
            1 => Ok(IpAddr::from(cursor.array::<4>()?)),
            3 => Err(Host::parse(cursor.vec8()?).ok()),
            4 => Ok(IpAddr::from(cursor.array::<16>()?)),
            _ => return Err(ReadError::Malformed(SocksFault::AddressKind)),
        };
        let port = cursor.u16()?;
        let target = match host {
            Ok(ip) => Some(SocksTarget::Address(SocketAddr::new(ip, port))),
            Err(name) => name.map(|host| SocksTarget::Named(Authority { host, port })),
        };
        let target = target.filter(|_| port != 0);
        Ok(Self { command, target })
    }
}

impl SocksTarget {
    /// Writes the request to connect there.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (kind, address, port) = match self {
            // A host's name has at most 253 bytes.
            Self::Named(to) => (3, counted(to.host.as_str().as_bytes()), to.port),
            Self::Address(SocketAddr::V4(to)) => (1, to.ip().octets().to_vec(), to.port()),
            Self::Address(SocketAddr::V6(to)) => (4, to.ip().octets().to_vec(), to.port()),
        };
        out.extend([VERSION, CONNECT, 0, kind]);
        out.extend(address);
        out.extend(port.to_be_bytes());
    }
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    [&[bytes.len() as u8][..], bytes].concat()
}

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

impl Reply {
    /// The message, without a bound address, because nothing was bound.
    #[must_use]
    pub fn message(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

fn version(cursor: &mut Cursor<'_>, expected: u8) -> Result<(), ReadError<SocksFault>> {
    match cursor.u8()? {
        version if version == expected => Ok(()),
        _ => Err(ReadError::Malformed(SocksFault::Version)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Reads a message with bytes after it, and checks that no shorter part of it reads.
    fn whole<T>(
        message: &[u8],
        behind: &[u8],
        read: impl Fn(&mut Cursor<'_>) -> Result<T, ReadError<SocksFault>>,
    ) -> T {
        for end in 0..message.len() {
            let cut = read(&mut Cursor::new(&message[..end])).err();
            assert_eq!(cut, Some(ReadError::Incomplete), "{end}");
        }
        let all = [message, behind].concat();
        let mut cursor = Cursor::new(&all);
        let value = read(&mut cursor).unwrap();
        assert_eq!(cursor.rest(), behind);
        value
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            methods in vec(any::<u8>(), 0..256), user in vec(any::<u8>(), 0..256),
            v4: [u8; 4], v6: [u8; 16], port in 1_u16.., behind in vec(any::<u8>(), 0..9),
        ) {
            let written_greeting = [&[VERSION][..], &counted(&methods)].concat();
            let read = whole(&written_greeting, &behind, |c| Ok(greeting(c)?.to_vec()));
            prop_assert_eq!(read, methods);
            let written_login = [&[LOGIN_VERSION][..], &counted(&user), &counted(b"right")].concat();
            let read = whole(&written_login, &behind, |c| {
                let (user, password) = login(c)?;
                Ok((user.to_vec(), password.to_vec()))
            });
            prop_assert_eq!(read, (user, b"right".to_vec()));
            let host = Host::parse(b"good.example").unwrap();
            for target in [
                SocksTarget::Named(Authority { host, port }),
                SocksTarget::Address(SocketAddr::new(v4.into(), port)),
                SocksTarget::Address(SocketAddr::new(v6.into(), port)),
            ] {
                let mut written = Vec::new();
                target.write(&mut written);
                let read = whole(&written, &behind, SocksRequest::read);
                prop_assert_eq!(read, SocksRequest { command: CONNECT, target: Some(target) });
            }
        }
    }
}
