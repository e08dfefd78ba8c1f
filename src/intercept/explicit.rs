//! The explicit proxy port: distinguishes CONNECT, absolute-form and SOCKS5 by their first bytes.

use std::io;

use gateway_message::{Authority, AuthorityMalformed, Host, Scheme};
use gateway_wire::socks::SocksTarget;
use gateway_wire::{HeadReader, WireMalformed, parse_head};
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Request, Uri};
use tokio::io::{AsyncRead, AsyncWrite};

use super::evidence::{Presented, TOKEN_FIELD};
use super::prefixed::Prefixed;
use super::socks;
use super::synthetic::GATEWAY_NAME;

/// The longest head of a CONNECT, in bytes.
const CONNECT_HEAD: usize = 16 << 10;

/// The longest head that is read before the session is known, in bytes: more than any head that is
/// accepted.
const FIRST_HEAD: usize = 64 << 10;

/// The port at which a CONNECT to the gateway's own name leads to the proxy itself. The connection
/// inside has the caller that opened it, and presents no credentials.
const ITSELF_PORT: u16 = 3128;

/// The kind of request from a client of the proxy port.
pub enum Opening {
    /// A CONNECT tunnel.
    Connect {
        /// The target.
        to: Authority,
        /// Whether it was answered already, as over HTTP/2.
        is_answered: bool,
    },
    /// A SOCKS5 tunnel; not answered yet.
    Socks(SocksTarget),
    /// Requests in absolute-form, not consumed yet.
    Requests,
}

gateway_names::faults! {
    /// Why a client of the proxy port is not served.
    #[derive(Debug, thiserror::Error)]
    pub enum OpeningRefused {
        /// The stream failed or ended.
        Io(#[from] io::Error) = ClientLeft "the client's connection ended",
        /// The SOCKS negotiation failed; the client was answered.
        Socks(#[from] socks::Error) = inner transparent,
        /// The CONNECT request is malformed.
        Head(#[from] WireMalformed) = inner transparent,
        /// The CONNECT target is not an authority.
        Target(#[from] AuthorityMalformed) = inner transparent,
        /// CONNECT's target and its Host field name different authorities (RFC 9112 §3.2.3).
        HostMismatch = HostMismatch "the CONNECT target and host differ",
    }
}

/// Reads a client's request. Bytes after a CONNECT stay in the stream (threats A15).
///
/// # Errors
/// [`OpeningRefused`] by cause. The caller must set a time limit.
pub async fn ask<IO: AsyncRead + AsyncWrite + Unpin>(
    io: &mut Prefixed<IO>,
) -> Result<Opening, OpeningRefused> {
    if !io.ensure(1).await? {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    match io.ahead()[0] {
        5 => Ok(Opening::Socks(socks::negotiate(io, None).await?)),
        b'C' => connect(io).await,
        _ => Ok(Opening::Requests),
    }
}

/// Returns the target of a CONNECT to the proxy itself.
#[must_use]
pub fn itself() -> Authority {
    Authority {
        host: Host::parse(GATEWAY_NAME.as_bytes()).expect("it is a host's name"),
        port: ITSELF_PORT,
    }
}

/// Whether a target is the proxy itself.
#[must_use]
pub fn is_itself(target: &Authority) -> bool {
    target.port == ITSELF_PORT && target.host.as_str() == GATEWAY_NAME
}

/// Whether the first byte that was read ahead begins SOCKS5.
#[must_use]
pub fn is_socks<IO>(io: &Prefixed<IO>) -> bool {
    io.ahead().first() == Some(&5)
}

/// Returns the credentials in the head of the first request, which stays in the stream; none if the
/// head is malformed. For a base URL, they are a token in a field of its own.
///
/// # Errors
/// Those of the stream, also if the head is too long. The caller must set a time limit.
pub async fn presented_ahead<IO: AsyncRead + Unpin>(
    io: &mut Prefixed<IO>,
    is_base: bool,
) -> io::Result<Option<Presented>> {
    let mut reader = HeadReader::default();
    while let Ok(None) = reader.read(io.ahead()) {
        if !io.read_ahead(FIRST_HEAD).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let Ok(Some(head)) = parse_head(io.ahead()) else {
        return Ok(None);
    };
    let field = if is_base {
        TOKEN_FIELD
    } else {
        PROXY_AUTHORIZATION.as_str()
    };
    let is_it = |name: &[u8]| name.eq_ignore_ascii_case(field.as_bytes());
    let values = head.fields().filter(|(name, _)| is_it(name));
    let values = values.map(|(_, value)| value);
    Ok(if is_base {
        Presented::of_tokens(values)
    } else {
        Presented::of_values(values)
    })
}

/// Returns the authority that the first request names, if its head was read and names one.
#[must_use]
pub fn asks_for<IO>(io: &Prefixed<IO>) -> Option<Authority> {
    let head = parse_head(io.ahead()).ok()??;
    asked_of(&Uri::try_from(head.target).ok()?)
}

/// Returns the authority of a target that names its host.
#[must_use]
pub fn asked_of(target: &Uri) -> Option<Authority> {
    let usual = match target.scheme_str() {
        Some("http") => Some(Scheme::Http.default_port()),
        Some("https") => Some(Scheme::Https.default_port()),
        _ => None,
    };
    Authority::parse(target.authority()?.as_str().as_bytes(), usual).ok()
}

/// Removes a refused request without content from the stream; `false` if it has content, and the
/// connection must end.
pub fn forget_head<IO>(io: &mut Prefixed<IO>) -> bool {
    let of_content = |name: &[u8]| {
        name.eq_ignore_ascii_case(b"content-length")
            || name.eq_ignore_ascii_case(b"transfer-encoding")
    };
    let length = match parse_head(io.ahead()) {
        Ok(Some(head)) if !head.fields().any(|(name, _)| of_content(name)) => head.length,
        _ => return false,
    };
    io.consume(length);
    true
}

async fn connect<IO: AsyncRead + AsyncWrite + Unpin>(
    io: &mut Prefixed<IO>,
) -> Result<Opening, OpeningRefused> {
    loop {
        if let Some(head) = parse_head(io.ahead())? {
            if head.method != b"CONNECT" {
                return Ok(Opening::Requests);
            }
            let is_host = |name: &[u8]| name.eq_ignore_ascii_case(b"host");
            let hosts = head.fields().filter(|(name, _)| is_host(name));
            let target = target(head.target, hosts.map(|(_, value)| value))?;
            let length = head.length;
            io.consume(length);
            return Ok(Opening::Connect {
                to: target,
                is_answered: false,
            });
        }
        if !io.read_ahead(CONNECT_HEAD).await? {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

/// Returns the target of a CONNECT over HTTP/2 (RFC 9113 §8.5).
///
/// # Errors
/// [`OpeningRefused`] by cause.
pub fn target_of<B>(request: &Request<B>) -> Result<Authority, OpeningRefused> {
    let named = request.uri().authority().map_or("", |named| named.as_str());
    let hosts = request.headers().get_all(HOST).iter();
    target(named.as_bytes(), hosts.map(HeaderValue::as_bytes))
}

/// Reads the target of a CONNECT, which must agree with each `Host`.
fn target<'a>(
    target: &[u8],
    mut hosts: impl Iterator<Item = &'a [u8]>,
) -> Result<Authority, OpeningRefused> {
    let target = Authority::parse(target, None)?;
    hosts.try_for_each(|host| {
        if Authority::parse(host, Some(target.port))? == target {
            Ok(())
        } else {
            Err(OpeningRefused::HostMismatch)
        }
    })?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Whether the head of `sent` has credentials, and what is left once it is removed.
    fn ahead(sent: &str) -> (bool, Option<String>) {
        let (presents, mut io) = run(async {
            let (mut client, server) = tokio::io::duplex(4096);
            client.write_all(sent.as_bytes()).await.unwrap();
            drop(client);
            let mut io = Prefixed::new(server);
            let ahead = presented_ahead(&mut io, false).await.unwrap_or_default();
            (ahead.is_some(), io)
        });
        let forgets = forget_head(&mut io);
        let left = || String::from_utf8(io.ahead().to_vec()).unwrap();
        (presents, forgets.then(left))
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn what_is_presented_is_looked_at_before_the_request_is_taken() {
        let proves = "Proxy-Authorization: Bearer gwt1_AgI\r\n";
        let connect = |fields: &str| format!("CONNECT a.test:443 HTTP/1.1\r\n{fields}\r\nGET");
        let get =
            |fields: &str| format!("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
        let host = "Host: a.test:443\r\n";
        let left = |text: &str| Some(text.to_owned());
        for (sent, wanted) in [
            (connect(&[host, proves].concat()), (true, left("GET"))),
            (connect(host), (false, left("GET"))),
            // With two values, neither counts.
            (
                connect(&[host, proves, proves].concat()),
                (false, left("GET")),
            ),
            (get(proves), (true, left(""))),
            (get("Content-Length: 2\r\n"), (false, None)),
            (get("Transfer-Encoding: chunked\r\n"), (false, None)),
            ("\u{1}\r\n\r\n".to_owned(), (false, None)),
        ] {
            assert_eq!(ahead(&sent), wanted, "{sent}");
        }
    }
}
