//! Requests in the canonical form that policy judges and the gateway forwards.
//!
//! Everything here is pure. The functions of this module parse a host, a target or a field once,
//! from bytes. Policy, certificates, name resolution, dialling and audit all use the result, so no
//! two of them can read a name differently.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod accepted_credential;
pub mod agree;
mod authority;
mod batch;
mod canonical;
pub mod content_name;
pub mod fields;
mod host;
pub mod json;
pub mod method;
mod named_path;
pub mod pairs;
mod parameter;
pub mod path_pattern;
mod path_place;
mod pattern;
mod place;
mod range;
mod suffix;
mod target;
mod target_form;

pub use accepted_credential::{
    AcceptedCredential, AcceptedMalformed, AcceptedPart, credential_protocol,
    is_credential_parameter, sounds_like_credential,
};
pub use agree::{ConnectionClaims, Disagreement, agree};
pub use authority::{Authority, AuthorityMalformed};
pub use batch::is_batch;
pub use content_name::{FormName, Pointer};
pub use fields::FieldsMalformed;
pub use host::{Host, HostMalformed};
pub use method::MethodRefused;
pub use named_path::{named_paths, names_path};
pub use parameter::{folded, folded_parameter, folded_parameters, in_lower_case, parameter_names};
pub use path_pattern::PathPattern;
pub use pattern::{HostPattern, OriginPattern, PatternMalformed};
pub use place::Place;
pub use range::{ByteRange, RangePart, is_part_of};
pub use suffix::{SuffixOwner, shared};
pub use target::{LENT, RequestTarget};
pub use target_form::{EncodedSlash, TargetMalformed};

use std::fmt;

gateway_names::words! {
    /// The two schemes that the gateway supports.
    pub enum Scheme {
        /// Cleartext. Never carries a secret.
        Http = "http",
        /// Over TLS.
        Https = "https",
    }
}

impl Scheme {
    /// The port of an authority without one (RFC 9110 §4.2).
    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// The server that a request is for: scheme, host and port, all canonical.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// The protocol.
    pub scheme: Scheme,
    /// The host and port.
    pub authority: Authority,
}

impl Origin {
    /// Returns the authority as in a `Host` field: with the port only if it is not the scheme's.
    pub fn host_field(&self) -> String {
        if self.authority.port == self.scheme.default_port() {
            self.authority.host.to_uri()
        } else {
            self.authority.to_string()
        }
    }
}

/// Writes `https://host:port`, always with the port.
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
    /// The origin that all claims about the destination agree on.
    pub origin: Origin,
    /// The canonical path and query.
    pub target: RequestTarget,
    /// The end-to-end fields.
    pub fields: http::HeaderMap,
    /// The client's version of HTTP.
    pub version: http::Version,
}

/// How an origin is known to read requests differently from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OriginQuirks {
    /// What an encoded slash in a path means.
    pub slashes: EncodedSlash,
    /// Whether field names may contain `_` and `.`.
    pub underscores: bool,
}

impl RequestHead {
    /// Whether this is a gRPC call, which needs HTTP/2 and trailers on both sides (gRPC over
    /// HTTP/2, "Requests").
    pub fn is_grpc(&self) -> bool {
        let kind = self.content_type();
        kind.strip_prefix(b"application/grpc")
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    }

    /// Whether it must be forwarded over HTTP/2: gRPC, and event streams that flow both ways at
    /// once (Amazon Transcribe, "Setting up an HTTP/2 stream").
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

/// Shows field names and never their values, because a head may contain a secret once credentials
/// are attached.
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
