//! How a request describes its content.

use http::{HeaderMap, HeaderName};

use super::Fault;

/// How the signature covers the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// `x-amz-content-sha256` names the hash.
    Hash([u8; 32]),
    /// `UNSIGNED-PAYLOAD`: nothing of it.
    Unsigned,
    /// The head does not say, and the signature covers the content's hash: it must be buffered for
    /// verification.
    Absent,
    /// aws-chunked content.
    Streaming(Streaming),
    /// `STREAMING-AWS4-HMAC-SHA256-EVENTS`: signed messages.
    Events,
}

/// A form of aws-chunked content (Amazon S3 API Reference, "Signature calculations: transferring
/// payload in multiple chunks").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streaming {
    /// Each chunk is signed.
    Signed {
        /// A signed trailer follows.
        trailer: bool,
        /// With ECDSA instead of HMAC.
        ecdsa: bool,
    },
    /// `STREAMING-UNSIGNED-PAYLOAD-TRAILER`: chunks and trailer without signatures.
    Unsigned,
}

impl Payload {
    /// Reads a value of `x-amz-content-sha256`.
    pub(super) fn parse(text: &str) -> Result<Payload, Fault> {
        let signed = |trailer, ecdsa| Payload::Streaming(Streaming::Signed { trailer, ecdsa });
        Ok(match text {
            UNSIGNED => Payload::Unsigned,
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Payload::Streaming(Streaming::Unsigned),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => signed(false, false),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => signed(true, false),
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD" => signed(false, true),
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER" => signed(true, true),
            "STREAMING-AWS4-HMAC-SHA256-EVENTS" => Payload::Events,
            _ => Payload::Hash(unhex(text).ok_or(Fault::Malformed("x-amz-content-sha256"))?),
        })
    }

    /// Checks that the fields announce the content as the payload kind says.
    ///
    /// `aws-chunked` without a `STREAMING-` hash is refused. The opposite is not: several clients
    /// leave the coding out, and every server reads the framing by the hash alone.
    pub(super) fn check(self, fields: &HeaderMap) -> Result<(), Fault> {
        let chunked = fields
            .get_all(http::header::CONTENT_ENCODING)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"aws-chunked"));
        let lengths = fields.get_all(&DECODED_LENGTH).iter().count();
        match self {
            Payload::Streaming(_) if lengths == 0 => {
                Err(Fault::Missing("x-amz-decoded-content-length"))
            }
            Payload::Streaming(_) if lengths > 1 => {
                Err(Fault::Twice("x-amz-decoded-content-length"))
            }
            Payload::Streaming(_) => Ok(()),
            _ if chunked => Err(Fault::Payload),
            _ => Ok(()),
        }
    }
}

/// 64 lower-case hexadecimal digits.
pub(super) fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    let read = base16ct::lower::decode(text, &mut out).ok()?;
    (read.len() == 32).then_some(out)
}

pub(super) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// The SHA-256 of nothing.
pub(super) const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
pub(super) static CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
pub(super) static DECODED_LENGTH: HeaderName =
    HeaderName::from_static("x-amz-decoded-content-length");
