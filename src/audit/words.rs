//! The phases, decisions and outcomes of an exchange, and their words in a record.

use http::Version;

gateway_names::words! {
    /// How far an exchange got.
    pub enum Phase {
        /// A connection or a head was accepted.
        Accept = "accept",
        /// The client was identified.
        Identify = "identify",
        /// Policy was evaluated.
        Authorize = "authorize",
        /// The connection to the origin was opened.
        Open = "open",
        /// Credentials were attached.
        Attach = "attach",
        /// The origin answered.
        Answer = "answer",
    }
}

gateway_names::words! {
    /// Policy's decision.
    pub enum AuditDecision {
        /// The exchange may proceed.
        Allow = "allow",
        /// The exchange is refused.
        Deny = "deny",
    }
}

gateway_names::words! {
    /// How an exchange, or its content, ended.
    pub enum Outcome {
        /// The answer's head was released to the client.
        Answered = "answered",
        /// The content was passed on to its end.
        Whole = "whole",
        /// The content ended with its connection, whose TLS was not closed: it may be cut.
        Unclosed = "unclosed",
        /// The gateway cut the content short.
        Cut = "cut",
        /// One side disconnected, or the exchange was dropped.
        Aborted = "aborted",
    }
}

/// The length of the content that the answer's head announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// This many bytes follow; also 0 if the method or the status has no content.
    Known(u64),
    /// The length is not announced.
    Open,
    /// The connection now carries something else: an upgrade or a tunnel.
    Switched,
}

/// The end of an exchange, for [`super::Trail::end`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExchangeEnd {
    /// [`Outcome::Whole`], [`Outcome::Unclosed`], [`Outcome::Cut`] or [`Outcome::Aborted`].
    pub outcome: Outcome,
    /// Why it was cut or aborted, as a reason code.
    pub reason: Option<&'static str>,
    /// Bytes of content received from the client, if known.
    pub request_bytes: Option<u64>,
    /// Bytes of content sent to the client, if known.
    pub response_bytes: Option<u64>,
    /// How many echoes of secrets were replaced in the response's fields and content.
    pub scrubbed: u64,
}

pub(super) fn protocol_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "http/1.0",
        Version::HTTP_11 => "http/1.1",
        Version::HTTP_2 => "h2",
        _ => "unknown",
    }
}
