//! SOCKS5 (RFC 1928, RFC 1929): CONNECT only.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use gateway_message::{Authority, Host};
use gateway_wire::socks::{
    CONNECT, LOGIN_VERSION, NO_AUTHENTICATION, NO_METHOD, Reply, SocksFault, SocksRequest,
    SocksTarget, USER_PASSWORD, VERSION, greeting, login,
};
use gateway_wire::{Cursor, ReadError};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::prefixed::Prefixed;

/// Checks a user and a password.
pub type PasswordCheck<'a> = dyn Fn(&[u8], &[u8]) -> PasswordResult<'a> + Sync + 'a;

/// Resolves to whether they are right.
pub type PasswordResult<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

gateway_names::faults! {
    /// Why the negotiation ended before a tunnel.
    #[derive(Debug, thiserror::Error)]
    pub enum Error {
        /// The stream failed or ended.
        Io(#[from] io::Error) = ClientLeft "the client's connection ended",
        /// A message does not have the format of RFC 1928.
        Malformed = SocksMalformed "the SOCKS message is malformed",
        /// No method in common, or a wrong password.
        Unauthenticated = ProxyAuthentication "the SOCKS client did not authenticate",
        /// The command is not CONNECT.
        Command = SocksCommand "only the SOCKS command CONNECT is supported",
        /// The host or port is not a canonical authority.
        Destination = HostCharset "the SOCKS destination is malformed",
    }
}

/// Negotiates SOCKS5 up to the request; the caller answers the request with a [`Reply`].
///
/// `accepts` checks a user and password; `None` if the listener requires none.
///
/// # Errors
/// [`Error`] by cause; the client was answered by then.
pub async fn negotiate<IO: AsyncRead + AsyncWrite + Unpin>(
    io: &mut Prefixed<IO>,
    accepts: Option<&PasswordCheck<'_>>,
) -> Result<SocksTarget, Error> {
    greet(io, accepts).await?;
    let (reply, error) = match message(io, SocksRequest::read).await? {
        Ok(request) if request.command != CONNECT => (Reply::CommandNotSupported, Error::Command),
        Ok(SocksRequest { target, .. }) => match target {
            Some(target) => return Ok(target),
            None => (Reply::NotAllowed, Error::Destination),
        },
        Err(SocksFault::AddressKind) => (Reply::AddressNotSupported, Error::Malformed),
        Err(_) => return Err(Error::Malformed),
    };
    io.write_all(&reply.message()).await?;
    Err(error)
}

/// Whether the client can present a user and a password. Its greeting stays in the stream.
///
/// # Errors
/// Those of the stream.
pub async fn offers_login<IO: AsyncRead + Unpin>(io: &mut Prefixed<IO>) -> io::Result<bool> {
    let is_whole = io.ensure(2).await? && io.ensure(2 + usize::from(io.ahead()[1])).await?;
    let offers = |offered: &[u8]| offered.contains(&USER_PASSWORD);
    let known = greeting(&mut Cursor::new(io.ahead())).is_ok_and(offers);
    Ok(is_whole && known)
}

/// Returns all bytes of a client without a login that connects to a name, or to an address.
#[must_use]
pub fn head_to(name: Option<Host>, address: SocketAddr) -> Vec<u8> {
    let port = address.port();
    let named = name.map(|host| SocksTarget::Named(Authority { host, port }));
    let mut head = vec![VERSION, 1, NO_AUTHENTICATION];
    named
        .unwrap_or(SocksTarget::Address(address))
        .write(&mut head);
    head
}

/// Returns the answer on success: the choice of no login, and the reply.
#[must_use]
pub fn answer_to_head() -> [u8; 12] {
    let mut answer = [0; 12];
    answer[..2].copy_from_slice(&[VERSION, NO_AUTHENTICATION]);
    answer[2..].copy_from_slice(&Reply::Succeeded.message());
    answer
}

/// Reads ahead until a message is complete, and removes it from the stream.
async fn message<IO: AsyncRead + Unpin, T>(
    io: &mut Prefixed<IO>,
    read: impl Fn(&mut Cursor<'_>) -> Result<T, ReadError<SocksFault>>,
) -> Result<Result<T, SocksFault>, io::Error> {
    loop {
        let mut cursor = Cursor::new(io.ahead());
        if let Some(outcome) = cursor.whole(&read).transpose() {
            let length = io.ahead().len() - cursor.rest().len();
            io.consume(length);
            return Ok(outcome);
        }
        if !io.read_ahead(usize::MAX).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn greet<IO: AsyncRead + AsyncWrite + Unpin>(
    io: &mut Prefixed<IO>,
    accepts: Option<&PasswordCheck<'_>>,
) -> Result<(), Error> {
    let wanted = match accepts {
        Some(_) => USER_PASSWORD,
        None => NO_AUTHENTICATION,
    };
    let offers = |cursor: &mut Cursor<'_>| Ok(greeting(cursor)?.contains(&wanted));
    let offered = message(io, offers).await?.map_err(|_| Error::Malformed)?;
    io.write_all(&[VERSION, if offered { wanted } else { NO_METHOD }])
        .await?;
    let mut good = offered;
    if let Some(accepts) = accepts.filter(|_| offered) {
        let check = |cursor: &mut Cursor<'_>| login(cursor).map(|(user, pass)| accepts(user, pass));
        let checking = message(io, check).await?.map_err(|_| Error::Malformed)?;
        good = checking.await;
        io.write_all(&[LOGIN_VERSION, u8::from(!good)]).await?;
    }
    good.then_some(()).ok_or(Error::Unauthenticated)
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
            let accepts = |user: &[u8], given: &[u8]| -> PasswordResult<'_> {
                let is_it = user == b"agent" && Some(given) == password;
                Box::pin(std::future::ready(is_it))
            };
            let accepts: Option<&PasswordCheck<'_>> = if password.is_some() {
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

    #[test]
    fn a_greeting_that_offers_a_login_stays_in_the_stream() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        for (sent, offers) in [
            (&[5, 2, 0, 2, 9][..], true),
            (&[5, 1, 0, 2], false),
            (&[5, 3, 0, 2], false),
            (&[5], false),
        ] {
            let (found, left) = runtime.block_on(async {
                let (mut client, server) = tokio::io::duplex(64);
                client.write_all(sent).await.unwrap();
                drop(client);
                let mut io = Prefixed::new(server);
                let found = offers_login(&mut io).await.unwrap();
                (found, io.ahead().to_vec())
            });
            assert_eq!((found, &left[..]), (offers, sent));
        }
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
    fn what_a_sidecar_sends_is_read_as_what_it_means() {
        let name = Host::parse(b"good.example").unwrap();
        for (name, address) in [
            (Some(&name), "198.18.0.20:443"),
            (None, "192.0.2.1:80"),
            (None, "[2001:db8::1]:8443"),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            let (target, seen) = run(&head_to(name.cloned(), address), None);
            let expected = match name.cloned() {
                Some(host) => SocksTarget::Named(Authority {
                    host,
                    port: address.port(),
                }),
                None => SocksTarget::Address(address),
            };
            assert_eq!(target.unwrap(), expected);
            assert_eq!(seen, answer_to_head()[..2]);
        }
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
