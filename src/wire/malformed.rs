//! Why a request is not well-formed HTTP/1.1.

use gateway_message::AuthorityMalformed;

gateway_names::faults! {
    /// Why a request is not well-formed HTTP/1.1.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    pub enum WireMalformed {
        /// A line that does not end in CRLF, or a carriage return elsewhere (RFC 9112 §2.2).
        LineEnd = Syntax "a line does not end in CRLF",
        /// Not `METHOD SP target SP version`, or an empty line before it.
        RequestLine = Syntax
            "the request line is not a method, a target and a version with one space between",
        /// The method is not a token, or is longer than 32 bytes.
        Method = Method "the method is not a token of at most 32 bytes",
        /// A version other than HTTP/1.0 or HTTP/1.1, or none.
        Version = Version "the version is neither HTTP/1.0 nor HTTP/1.1",
        /// A target with a byte that no target may contain.
        Target = Path "the request target holds a character that it may not hold",
        /// A target whose form does not fit the method (RFC 9112 §3.2).
        TargetForm = TargetForm "the request target has a form that does not fit the method",
        /// An absolute target of a scheme that is not `http` or `https`.
        Scheme = Scheme "the request target has a scheme that the gateway does not speak",
        /// The target of CONNECT is not a host and a port.
        Authority(#[from] AuthorityMalformed) = inner
            "the target of CONNECT is not a host and a port",
        /// The target is longer than 8 KiB.
        TargetTooLong = TargetLength "the request target is longer than 8 KiB",
        /// A field line without a colon, with a name that is not a token, folded, or with a control
        /// in its value.
        Field = Syntax "a field line is not a name, a colon and a value",
        /// More than 100 fields, or more than 32 KiB of them.
        FieldsTooLarge = FieldsTooLarge "the fields are more than 100 or longer than 32 KiB",
        /// Not exactly one non-empty `Host`.
        HostCount = HostCount "there is not exactly one host",
        /// `Content-Length` or `Transfer-Encoding` is repeated, both occur, or one is not exactly
        /// as in RFC 9112 §6.
        Framing = Framing "the length of the content is not given in exactly one way",
        /// An expectation other than one `100-continue` (RFC 9110 §10.1.1).
        Expectation = Expectation "the expectation is not `100-continue`",
        /// Chunked coding that is not size, CRLF, data, CRLF; extensions are refused.
        Chunk = Framing "the content is not in chunks",
        /// A trailer section that is malformed, too long, or contains a field that no trailer may
        /// contain.
        Trailer = Trailer "the trailers are malformed or hold a field that no trailer may hold",
    }
}
