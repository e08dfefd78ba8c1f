//! Reaches an origin through an HTTP proxy that the operator names, in a CONNECT tunnel (RFC 9110
//! §9.3.6). The proxy resolves the name; TLS is spoken with the origin, inside the tunnel.

use std::time::Duration;

use gateway_message::Authority;
use http::HeaderValue;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::Error;
use super::reach::{anywhere, to_authority};
use super::resolve::Resolve;
use super::rule::UpstreamProxy;
use super::upstream_failure::{UpstreamFailure, UpstreamFault};

/// Opens a tunnel to an origin.
///
/// # Errors
/// [`Error::Upstream`] with the proxy's fault.
pub(super) async fn connect(
    proxy: &UpstreamProxy,
    origin: &Authority,
    resolver: &dyn Resolve,
    limit: Duration,
) -> Result<TcpStream, Error> {
    let opened = open(proxy, origin, resolver, limit).await;
    opened.map_err(|fault| {
        Error::Upstream(UpstreamFailure {
            proxy: proxy.authority.clone(),
            fault: Box::new(fault),
        })
    })
}

async fn open(
    proxy: &UpstreamProxy,
    origin: &Authority,
    resolver: &dyn Resolve,
    limit: Duration,
) -> Result<TcpStream, UpstreamFault> {
    let login = match &proxy.login {
        None => None,
        Some(login) => Some(login.field().await.map_err(UpstreamFault::NoLogin)?),
    };
    // The operator names the proxy, so any address is allowed; metadata services stay prohibited.
    let stream = to_authority(&proxy.authority, &anywhere(), resolver, limit).await;
    let mut stream = stream.map_err(|error| UpstreamFault::Unreached(error.into()))?;
    let asked = ask(&mut stream, origin, login.as_ref());
    let answered = timeout(limit, asked).await;
    let (status, early) = answered.map_err(|_| UpstreamFault::Late)??;
    match status {
        // An origin does not send before it receives.
        200..300 if !early.is_empty() => Err(UpstreamFault::Malformed),
        200..300 => Ok(stream),
        407 if login.is_some() => Err(UpstreamFault::RefusesLogin),
        407 => Err(UpstreamFault::AsksLogin),
        status @ 500..600 => Err(UpstreamFault::Failed(status)),
        status => Err(UpstreamFault::Refused(status)),
    }
}

/// Sends CONNECT. Returns the status of the response, and the bytes after its head, which on
/// success are those of the origin.
async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    origin: &Authority,
    login: Option<&HeaderValue>,
) -> Result<(u16, Vec<u8>), UpstreamFault> {
    let mut request = Zeroizing::new(Vec::with_capacity(LONGEST));
    request.extend(format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n").bytes());
    if let Some(login) = login {
        let field = [b"Proxy-Authorization: ", login.as_bytes(), b"\r\n"];
        field
            .iter()
            .for_each(|part| request.extend_from_slice(part));
    }
    request.extend_from_slice(b"\r\n");
    let sent = async {
        stream.write_all(&request).await?;
        stream.flush().await
    };
    sent.await.map_err(UpstreamFault::Ended)?;
    let mut head = Vec::new();
    loop {
        let read = stream.read_buf(&mut head).await;
        let is_over = read.map_err(UpstreamFault::Ended)? == 0;
        if let Some(end) = memchr::memmem::find(&head, b"\r\n\r\n") {
            let status = status(&head).ok_or(UpstreamFault::Malformed)?;
            return Ok((status, head.split_off(end + 4)));
        }
        if is_over || head.len() > LONGEST {
            return Err(UpstreamFault::Malformed);
        }
    }
}

/// Returns the status in the head of a response.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.strip_prefix(b"HTTP/1.")?;
    let (digits, after) = (line.get(2..5)?, line.get(5)?);
    let is_one = matches!(line, [b'0' | b'1', b' ', ..]) && matches!(after, b' ' | b'\r');
    let status = std::str::from_utf8(digits).ok()?.parse().ok();
    status.filter(|status| is_one && (200..600).contains(status))
}

/// The longest head of a response, in bytes.
const LONGEST: usize = 16 << 10;
