//! The message: what a request says, in the one canonical form that is judged and then forwarded.
//!
//! Everything here is pure. A host, a target or a field is read once, from bytes, by the functions
//! of this room; policy, certificates, name resolution, dialling and audit all use the result, so
//! no two of them can read a name differently.

pub mod agree;
mod authority;
mod batch;
mod canonical;
pub mod fields;
mod host;
pub mod method;
pub mod pairs;
mod pattern;
mod place;
pub mod route;
mod taken;
mod target;

pub use agree::{Disagreement, Leg, agree};
pub use authority::{Authority, AuthorityMalformed};
pub use batch::is_batch;
pub use fields::FieldsMalformed;
pub use host::{Host, HostMalformed};
pub use method::MethodRefused;
pub use pattern::{HostPattern, OriginMalformed, OriginPattern};
pub use place::{Place, PlaceMalformed};
pub use route::{Route, RouteMalformed};
pub use taken::{
    Taken, TakenMalformed, TakenPart, credential_protocol, folded_parameter,
    is_credential_parameter, sounds_like_credential,
};
pub use target::{EncodedSlash, RequestTarget, TargetMalformed};

use std::fmt;

/// The two schemes that the gateway speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// Cleartext; never carries a secret.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// The scheme in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// The port that an authority without one means (RFC 9110 §4.2).
    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The server that a request is for: scheme, host and port, all canonical.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// Who it is.
    pub authority: Authority,
}

/// Writes `https://host:port`, the port always present.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

/// A request without its content, in canonical form.
#[derive(Clone)]
pub struct RequestHead {
    /// The exact method token, already accepted by [`method::check`].
    pub method: http::Method,
    /// The origin on which every claim of the connection agreed.
    pub origin: Origin,
    /// The canonical path and query.
    pub target: RequestTarget,
    /// The end-to-end fields.
    pub fields: http::HeaderMap,
    /// The version that the client spoke.
    pub version: http::Version,
}

/// What an origin is known to read in a way of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// What an encoded slash in a path means.
    pub slashes: EncodedSlash,
    /// Whether `_` and `.` may stand in the names of fields.
    pub underscores: bool,
}

impl RequestHead {
    /// Whether this is a gRPC call, which needs HTTP/2 and trailers on both legs (gRPC over HTTP/2,
    /// "Requests").
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        let kind = self.content_type();
        kind.strip_prefix(b"application/grpc")
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    }

    /// Whether it must go on by HTTP/2: gRPC, and event streams that flow both ways at once (Amazon
    /// Transcribe, "Setting up an HTTP/2 stream").
    #[must_use]
    pub fn needs_http2(&self) -> bool {
        let streams = || {
            self.version == http::Version::HTTP_2
                && self.content_type() == b"application/vnd.amazon.eventstream"
        };
        self.is_grpc() || streams()
    }

    fn content_type(&self) -> &[u8] {
        self.fields
            .get(http::header::CONTENT_TYPE)
            .map_or(&b""[..], |value| value.as_bytes())
    }
}

/// Shows field names and never their values, because a head may carry a secret after it was
/// credentialed.
impl fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", &self.method)
            .field("origin", &self.origin)
            .field("target", &self.target)
            .field("fields", &self.fields.keys().collect::<Vec<_>>())
            .field("version", &self.version)
            .finish()
    }
}
