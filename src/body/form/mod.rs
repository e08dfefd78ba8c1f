//! Forms: members that an origin reads from content by name, whatever the format.

mod search;

use http::{HeaderMap, HeaderValue, header};

pub use search::{FormFault, Member};

/// The format of content that an origin may read as a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormKind {
    /// `application/x-www-form-urlencoded`, a missing type, and any type that is not listed
    /// elsewhere: services read forms with such types. Content that begins as JSON is also read as
    /// JSON (Slack accepts it as `text/plain`).
    Pairs,
    /// `multipart/*` (RFC 7578).
    Parts,
    /// A JSON object, a list of objects, or several in a row.
    Json,
}

impl FormKind {
    /// The format that these fields announce. `None` if the declared type holds no members.
    ///
    /// # Errors
    /// [`FormFault::Coded`] or [`FormFault::Charset`].
    pub fn of(fields: &HeaderMap) -> Result<Option<Self>, FormFault> {
        let coded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
        match Self::of_decoded(fields) {
            Ok(Some(_)) if fields.get_all(header::CONTENT_ENCODING).iter().any(coded) => {
                Err(FormFault::Coded)
            }
            kind => kind,
        }
    }

    /// As [`FormKind::of`], for decoded content.
    ///
    /// # Errors
    /// [`FormFault::Charset`].
    pub fn of_decoded(fields: &HeaderMap) -> Result<Option<Self>, FormFault> {
        let mut values = fields.get_all(header::CONTENT_TYPE).iter();
        let value = values.next().map_or(&b""[..], HeaderValue::as_bytes);
        if values.next().is_some() {
            return Err(FormFault::Charset);
        }
        // What most clients send, without the reading below.
        if value == b"application/json" {
            return Ok(Some(Self::Json));
        }
        let text = String::from_utf8_lossy(value).to_ascii_lowercase();
        let (kind, parameters) = text.split_once(';').unwrap_or((&text, ""));
        let kind = match kind.trim() {
            kind if kind.contains("form-urlencoded") => Self::Pairs,
            kind if kind.starts_with("multipart/") => Self::Parts,
            kind if kind.contains("json") => Self::Json,
            kind if is_binary(kind) => return Ok(None),
            _ => Self::Pairs,
        };
        let mut charsets = parameters
            .split(';')
            .filter_map(|parameter| parameter.trim().strip_prefix("charset"))
            // No other parameter begins so but `charset*=` (RFC 2231), which few readers know.
            .map(|rest| rest.trim_start().strip_prefix('='))
            .map(|charset| charset.map(|charset| charset.trim().trim_matches('"')));
        if charsets.all(|charset| charset.is_some_and(|charset| CHARSETS.contains(&charset))) {
            Ok(Some(kind))
        } else {
            Err(FormFault::Charset)
        }
    }
}

/// Whether a type declares binary content, in which no service looks for members.
fn is_binary(kind: &str) -> bool {
    // With other characters, some readers may see two types instead of one.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/.+-_".contains(&b);
    let (top, sub) = kind.split_once('/').unwrap_or((kind, ""));
    let listed = match top {
        "image" | "audio" | "video" | "font" => true,
        "application" => {
            BINARY.contains(&sub)
                || BINARY_BEGINNINGS
                    .iter()
                    .any(|beginning| sub.starts_with(beginning))
        }
        _ => false,
    };
    listed && kind.bytes().all(plain)
}

const CHARSETS: [&str; 5] = ["utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1"];
/// Types of files, packages and messages, in which no member is read by name.
const BINARY: [&str; 23] = gateway_names::word_list(
    "octet-stream cbor gzip java-archive msgpack ogg pdf protobuf vnd.debian.binary-package \
     vnd.google.protobuf vnd.rar wasm x-7z-compressed x-bzip2 x-compressed x-gzip x-msgpack \
     x-protobuf x-rpm x-tar x-xz zip zstd",
);
/// Beginnings of such types: those of gRPC streams, and of git.
const BINARY_BEGINNINGS: [&str; 2] = ["grpc", "x-git-"];

#[cfg(test)]
mod tests;
