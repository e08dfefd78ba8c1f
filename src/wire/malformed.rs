//! Why a request is not well-formed HTTP/1.1.

use gateway_message::AuthorityMalformed;
use gateway_names::ReasonCode;

/// Why a request is not well-formed HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireMalformed {
    /// A line that does not end in CRLF, or a carriage return elsewhere (RFC 9112 §2.2).
    #[error("a line does not end in CRLF")]
    LineEnd,
    /// Not `METHOD SP target SP version`, or an empty line before it.
    #[error("the request line is not a method, a target and a version with one space between")]
    RequestLine,
    /// The method is not a token, or is longer than 32 bytes.
    #[error("the method is not a token of at most 32 bytes")]
    Method,
    /// A version other than HTTP/1.0 or HTTP/1.1, or none.
    #[error("the version is neither HTTP/1.0 nor HTTP/1.1")]
    Version,
    /// A target with a byte that no target may contain.
    #[error("the request target holds a character that it may not hold")]
    Target,
    /// A target whose form does not fit the method (RFC 9112 §3.2).
    #[error("the request target has a form that does not fit the method")]
    TargetForm,
    /// An absolute target of a scheme that is not `http` or `https`.
    #[error("the request target has a scheme that the gateway does not speak")]
    Scheme,
    /// The target of CONNECT is not a host and a port.
    #[error("the target of CONNECT is not a host and a port")]
    Authority(#[from] AuthorityMalformed),
    /// The target is longer than 8 KiB.
    #[error("the request target is longer than 8 KiB")]
    TargetTooLong,
    /// A field line without a colon, with a name that is not a token, folded, or with a control in
    /// its value.
    #[error("a field line is not a name, a colon and a value")]
    Field,
    /// More than 100 fields, or more than 32 KiB of them.
    #[error("the fields are more than 100 or longer than 32 KiB")]
    FieldsTooLarge,
    /// Not exactly one non-empty `Host`.
    #[error("there is not exactly one host")]
    HostCount,
    /// `Content-Length` or `Transfer-Encoding` is repeated, both occur, or one is not exactly as in
    /// RFC 9112 §6.
    #[error("the length of the content is not given in exactly one way")]
    Framing,
    /// An expectation other than one `100-continue` (RFC 9110 §10.1.1).
    #[error("the expectation is not `100-continue`")]
    Expectation,
    /// Chunked coding that is not size, CRLF, data, CRLF; extensions are refused.
    #[error("the content is not in chunks")]
    Chunk,
    /// A trailer section that is malformed, too long, or contains a field that no trailer may
    /// contain.
    #[error("the trailers are malformed or hold a field that no trailer may hold")]
    Trailer,
}

impl WireMalformed {
    /// The short code for refusals and audit records.
    pub fn reason(&self) -> ReasonCode {
        match self {
            WireMalformed::LineEnd | WireMalformed::RequestLine | WireMalformed::Field => {
                ReasonCode::Syntax
            }
            WireMalformed::Method => ReasonCode::Method,
            WireMalformed::Version => ReasonCode::Version,
            WireMalformed::Target => ReasonCode::Path,
            WireMalformed::TargetForm => ReasonCode::TargetForm,
            WireMalformed::Scheme => ReasonCode::Scheme,
            WireMalformed::Authority(authority) => authority.reason(),
            WireMalformed::TargetTooLong => ReasonCode::TargetLength,
            WireMalformed::FieldsTooLarge => ReasonCode::FieldsTooLarge,
            WireMalformed::HostCount => ReasonCode::HostCount,
            WireMalformed::Framing | WireMalformed::Chunk => ReasonCode::Framing,
            WireMalformed::Expectation => ReasonCode::Expectation,
            WireMalformed::Trailer => ReasonCode::Trailer,
        }
    }
}
