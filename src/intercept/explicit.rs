//! The explicit proxy port: distinguishes CONNECT, absolute-form and SOCKS5 by their first bytes.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::PROXY_AUTHORIZATION;
use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncWrite};
use zeroize::Zeroizing;

use super::prefixed::Prefixed;
use super::socks;
use crate::message::{Authority, AuthorityMalformed};
use crate::names::ReasonCode;
use crate::token::presented_in;
use crate::wire::socks::SocksTarget;
use crate::wire::{HeadReader, WireMalformed, parse_head};

/// The longest head of a CONNECT, in bytes.
const CONNECT_HEAD: usize = 16 << 10;

/// The longest head of a first request that is looked at before its session is known, in bytes:
/// more than one that is not refused.
const FIRST_HEAD: usize = 64 << 10;

/// The user and password that a client of the proxy port must present.
pub struct Authentication {
    user: Zeroizing<Vec<u8>>,
    password: Zeroizing<Vec<u8>>,
}

impl Authentication {
    /// A user and password.
    #[must_use]
    pub fn new(user: &[u8], password: &[u8]) -> Self {
        Self {
            user: user.to_vec().into(),
            password: password.to_vec().into(),
        }
    }

    /// Whether these are the user and password; the time taken does not reveal how much of them is
    /// right.
    #[must_use]
    pub fn accepts(&self, user: &[u8], password: &[u8]) -> bool {
        bool::from(self.user.ct_eq(user) & self.password.ct_eq(password))
    }

    /// Whether it is the same user with the same password.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.accepts(&other.user, &other.password)
    }

    /// Whether a Proxy-Authorization value contains them (RFC 7617).
    #[must_use]
    pub fn accepts_value(&self, value: &[u8]) -> bool {
        let Some((scheme, encoded)) = value.split_at_checked(6) else {
            return false;
        };
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return false;
        }
        let Ok(decoded) = STANDARD.decode(encoded.trim_ascii()).map(Zeroizing::new) else {
            return false;
        };
        match decoded.iter().position(|byte| *byte == b':') {
            Some(colon) => self.accepts(&decoded[..colon], &decoded[colon + 1..]),
            None => false,
        }
    }

    /// Whether the fields have exactly one Proxy-Authorization, and it contains them.
    #[must_use]
    pub fn accepts_fields(&self, fields: &HeaderMap) -> bool {
        let mut values = fields.get_all(PROXY_AUTHORIZATION).iter();
        matches!((values.next(), values.next()), (Some(only), None) if self.accepts_value(only.as_bytes()))
    }
}

/// What the client of the proxy port wants.
pub enum Asked {
    /// A CONNECT tunnel; not answered yet.
    Connect(Authority),
    /// A CONNECT tunnel, without the user and password that the port requires.
    ConnectUnauthenticated,
    /// A SOCKS5 tunnel; not answered yet.
    Socks(SocksTarget),
    /// Requests in absolute-form, not consumed yet.
    Requests,
}

/// Why the client of the proxy port is not served.
#[derive(Debug, thiserror::Error)]
pub enum OpeningRefused {
    /// The stream failed or ended.
    #[error("the client's connection ended")]
    Io(#[from] io::Error),
    /// The SOCKS negotiation failed; the client was told.
    #[error(transparent)]
    Socks(#[from] socks::Error),
    /// The CONNECT request is malformed.
    #[error(transparent)]
    Head(#[from] WireMalformed),
    /// The CONNECT target is not an authority.
    #[error(transparent)]
    Target(#[from] AuthorityMalformed),
    /// CONNECT's target and its Host field name different authorities (RFC 9112 §3.2.3).
    #[error("the CONNECT target and host differ")]
    HostMismatch,
}

impl OpeningRefused {
    /// The reason code in the audit log.
    #[must_use]
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Io(_) => ReasonCode::ClientLeft,
            Self::Socks(why) => why.reason(),
            Self::Head(why) => why.reason(),
            Self::Target(why) => why.reason(),
            Self::HostMismatch => ReasonCode::HostMismatch,
        }
    }
}

/// Reads what the client wants. Bytes that follow a CONNECT stay in the stream (threats A15).
///
/// # Errors
/// [`OpeningRefused`] by cause. The caller must set a time limit.
pub async fn ask<IO: AsyncRead + AsyncWrite + Unpin>(
    io: &mut Prefixed<IO>,
    authentication: Option<&Authentication>,
) -> Result<Asked, OpeningRefused> {
    if !io.ensure(1).await? {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    match io.ahead()[0] {
        5 => {
            let target = match authentication {
                Some(known) => {
                    socks::negotiate(io, Some(&|user, password| known.accepts(user, password)))
                        .await?
                }
                None => socks::negotiate(io, None).await?,
            };
            Ok(Asked::Socks(target))
        }
        b'C' => connect(io, authentication).await,
        _ => Ok(Asked::Requests),
    }
}

/// Whether the first byte that was read ahead begins SOCKS5.
#[must_use]
pub fn is_socks<IO>(io: &Prefixed<IO>) -> bool {
    io.ahead().first() == Some(&5)
}

/// Returns the token in the head of the first request, which stays in the stream; none if the head
/// is malformed.
///
/// # Errors
/// Those of the stream, also if the head is too long. The caller must set a time limit.
pub async fn token_ahead<IO: AsyncRead + Unpin>(
    io: &mut Prefixed<IO>,
) -> io::Result<Option<Zeroizing<String>>> {
    let mut reader = HeadReader::default();
    while let Ok(None) = reader.read(io.ahead()) {
        if !io.read_ahead(FIRST_HEAD).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let Ok(Some(head)) = parse_head(io.ahead()) else {
        return Ok(None);
    };
    let is_it = |name: &[u8]| name.eq_ignore_ascii_case(b"proxy-authorization");
    let mut values = head.fields().filter(|(name, _)| is_it(name));
    Ok(match (values.next(), values.next()) {
        (Some((_, only)), None) => presented_in(only),
        _ => None,
    })
}

/// Takes a CONNECT that was refused from the stream; `false` if it is none, and the connection
/// cannot go on.
pub fn forget_connect<IO>(io: &mut Prefixed<IO>) -> bool {
    let length = match parse_head(io.ahead()) {
        Ok(Some(head)) if head.method == b"CONNECT" => head.length,
        _ => return false,
    };
    io.consume(length);
    true
}

async fn connect<IO: AsyncRead + AsyncWrite + Unpin>(
    io: &mut Prefixed<IO>,
    authentication: Option<&Authentication>,
) -> Result<Asked, OpeningRefused> {
    loop {
        if let Some(head) = parse_head(io.ahead())? {
            if head.method != b"CONNECT" {
                return Ok(Asked::Requests);
            }
            let target = Authority::parse(head.target, None)?;
            let mut known = authentication.is_none();
            for (name, value) in head.fields() {
                if name.eq_ignore_ascii_case(b"host")
                    && Authority::parse(value, Some(target.port))? != target
                {
                    return Err(OpeningRefused::HostMismatch);
                }
                if name.eq_ignore_ascii_case(b"proxy-authorization") {
                    known |= authentication
                        .is_some_and(|authentication| authentication.accepts_value(value));
                }
            }
            let length = head.length;
            io.consume(length);
            return Ok(if known {
                Asked::Connect(target)
            } else {
                Asked::ConnectUnauthenticated
            });
        }
        if !io.read_ahead(CONNECT_HEAD).await? {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// The token ahead in what a client sent, and what is left once a CONNECT is forgotten.
    fn ahead(sent: &str) -> (Option<String>, Option<String>) {
        let (token, mut io) = run(async {
            let (mut client, server) = tokio::io::duplex(4096);
            client.write_all(sent.as_bytes()).await.unwrap();
            drop(client);
            let mut io = Prefixed::new(server);
            let token = token_ahead(&mut io).await.unwrap_or_default();
            (token.map(|token| token.to_string()), io)
        });
        let forgets = forget_connect(&mut io);
        let left = || String::from_utf8(io.ahead().to_vec()).unwrap();
        (token, forgets.then(left))
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn a_token_is_looked_at_before_the_request_is_taken() {
        let proves = "Proxy-Authorization: Bearer gwt1_AgI\r\n";
        let connect = |fields: &str| format!("CONNECT a.test:443 HTTP/1.1\r\n{fields}\r\nGET");
        let get =
            |fields: &str| format!("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
        let host = "Host: a.test:443\r\n";
        let token = || Some("gwt1_AgI".to_owned());
        let left = || Some("GET".to_owned());
        for (sent, wanted) in [
            (connect(&[host, proves].concat()), (token(), left())),
            (connect(host), (None, left())),
            // Of two, none counts.
            (connect(&[host, proves, proves].concat()), (None, left())),
            (get(proves), (token(), None)),
            (get(""), (None, None)),
            ("\u{1}\r\n\r\n".to_owned(), (None, None)),
        ] {
            assert_eq!(ahead(&sent), wanted, "{sent}");
        }
    }

    #[test]
    fn only_the_whole_user_and_password_are_accepted() {
        let known = Authentication::new(b"agent", b"pass:word");
        let value = |text: &str| format!("Basic {}", STANDARD.encode(text)).into_bytes();
        assert!(known.accepts_value(&value("agent:pass:word")));
        assert!(
            known.accepts_value(
                &[
                    b"bAsIc ".as_slice(),
                    STANDARD.encode("agent:pass:word").as_bytes()
                ]
                .concat()
            )
        );
        for wrong in [
            "agent:pass",
            "agent:",
            "agent",
            "",
            "agentX:pass:word",
            "agent:pass:wordX",
        ] {
            assert!(!known.accepts_value(&value(wrong)), "{wrong}");
        }
        assert!(!known.accepts_value(b"Bearer x"));
        assert!(!known.accepts_value(b"Basic !!!"));
        assert!(!known.accepts_value(b""));
    }
}
