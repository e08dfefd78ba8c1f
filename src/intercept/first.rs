//! Recognises a connection's protocol by its first bytes, so that any other than TLS and HTTP is
//! refused at once.

use std::io;

use gateway_names::ReasonCode;
use tokio::io::AsyncRead;

use super::prefixed::Prefixed;

/// The protocol that the first bytes indicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstBytes {
    /// A TLS handshake record (RFC 8446 §5.1).
    Tls,
    /// Possibly HTTP, which only an HTTP parser can judge.
    Http,
    /// A protocol that the gateway does not carry.
    Foreign(ReasonCode),
}

impl FirstBytes {
    /// Reads ahead until the protocol is known; `None` if the stream ends without a byte.
    ///
    /// # Errors
    /// Those of the stream. The caller must set a time limit.
    pub async fn read<IO: AsyncRead + Unpin>(io: &mut Prefixed<IO>) -> io::Result<Option<Self>> {
        loop {
            if let Some(known) = Self::of(io.ahead()) {
                return Ok(Some(known));
            }
            if !io.read_ahead(usize::MAX).await? {
                let some = !io.ahead().is_empty();
                return Ok(some.then_some(Self::Foreign(ReasonCode::UnknownProtocol)));
            }
        }
    }

    /// Returns the protocol, once there are enough bytes.
    fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [] | [b'*'] => None,
            [TLS_HANDSHAKE, ..] => Some(Self::Tls),
            // A Redis command is an array: `*` and the number of its parts.
            [b'*', b'0'..=b'9', ..] => Some(Self::Foreign(ReasonCode::ProtocolRedis)),
            [0, ..] => postgres(bytes),
            _ if bytes.starts_with(SSH) => Some(Self::Foreign(ReasonCode::ProtocolSsh)),
            _ if SSH.starts_with(bytes) => None,
            // The start of a request line, or an empty line.
            [first, ..] if first.is_ascii_graphic() || matches!(first, b' ' | b'\r' | b'\n') => {
                Some(Self::Http)
            }
            _ => Some(Self::Foreign(ReasonCode::UnknownProtocol)),
        }
    }
}

/// A Postgres message begins with a length of four bytes, then a version or a request code.
fn postgres(bytes: &[u8]) -> Option<FirstBytes> {
    let (_, rest) = bytes.split_first_chunk::<4>()?;
    let (code, _) = rest.split_first_chunk::<4>()?;
    let known = matches!(
        u32::from_be_bytes(*code),
        0x0003_0000..=0x0003_ffff | CANCEL..=ENCRYPT_BY_GSSAPI
    );
    Some(FirstBytes::Foreign(if known {
        ReasonCode::ProtocolPostgres
    } else {
        ReasonCode::UnknownProtocol
    }))
}

const TLS_HANDSHAKE: u8 = 22;
/// RFC 4253 §4.2.
const SSH: &[u8] = b"SSH-";
/// `CancelRequest`, `SSLRequest` and `GSSENCRequest`.
const CANCEL: u32 = 80_877_102;
const ENCRYPT_BY_GSSAPI: u32 = 80_877_104;

/// Whether servers speak first on a port, which clients of HTTP or TLS never use: FTP, SSH, Telnet,
/// SMTP, POP3, NNTP, IMAP, MySQL, VNC.
#[must_use]
pub fn server_speaks_first(port: u16) -> bool {
    matches!(
        port,
        21 | 22 | 23 | 25 | 110 | 119 | 143 | 587 | 2525 | 3306 | 5900
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Option<FirstBytes> {
        FirstBytes::of(bytes)
    }

    #[test]
    fn protocols_are_recognised_by_as_few_bytes_as_possible() {
        let foreign = |reason| Some(FirstBytes::Foreign(reason));
        for (bytes, expected) in [
            (&b"\x16"[..], Some(FirstBytes::Tls)),
            (b"G", Some(FirstBytes::Http)),
            (b"\r\nGET / HTTP/1.1", Some(FirstBytes::Http)),
            (b"SSHX / HTTP/1.1", Some(FirstBytes::Http)),
            (b"SSH-2.0-OpenSSH", foreign(ReasonCode::ProtocolSsh)),
            (b"*1\r\n$4\r\nPING", foreign(ReasonCode::ProtocolRedis)),
            (
                b"\0\0\0\x08\x04\xd2\x16\x2f",
                foreign(ReasonCode::ProtocolPostgres),
            ),
            (
                b"\0\0\0\x54\0\x03\0\0user",
                foreign(ReasonCode::ProtocolPostgres),
            ),
            (
                b"\0\0\0\x54\0\x12\0\0user",
                foreign(ReasonCode::UnknownProtocol),
            ),
            (b"\x80\x2e\x01", foreign(ReasonCode::UnknownProtocol)),
        ] {
            assert_eq!(of(bytes), expected, "{bytes:?}");
        }
        for undecided in [
            &b""[..],
            b"S",
            b"SSH",
            b"*",
            b"\0",
            b"\0\0\0\x08\x04\xd2\x16",
        ] {
            assert_eq!(of(undecided), None, "{undecided:?}");
        }
    }

    #[tokio::test]
    async fn bytes_that_decide_nothing_and_end_are_foreign() {
        let mut io = Prefixed::new(&b"SS"[..]);
        let read = FirstBytes::read(&mut io).await.unwrap();
        assert_eq!(read, Some(FirstBytes::Foreign(ReasonCode::UnknownProtocol)));
        let mut nothing = Prefixed::new(&b""[..]);
        assert_eq!(FirstBytes::read(&mut nothing).await.unwrap(), None);
    }
}
