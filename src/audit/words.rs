//! What a trail is told of an exchange, and the words for it in a record.

use http::Version;

/// How far an exchange came along its path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Phase {
    /// A connection or a head was taken in.
    #[default]
    Accept,
    /// It is known who asks.
    Identify,
    /// Policy was asked.
    Authorize,
    /// The origin was connected to.
    Open,
    /// Credentials were put in.
    Attach,
    /// The origin answered.
    Answer,
}

/// What policy said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The exchange may go on.
    Allow,
    /// The exchange is refused.
    Deny,
}

/// How an exchange, or its content, ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The answer's head was released to the client.
    Answered,
    /// The content went through to its end.
    Whole,
    /// The gateway cut the content short.
    Cut,
    /// A side went away, or the exchange was dropped.
    Aborted,
}

/// What the answer's head says of the content behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// So many bytes follow; 0 also where the method or the status has no content.
    Known(u64),
    /// The content ends when it ends.
    Open,
    /// The connection now carries something else: an upgrade or a tunnel.
    Switched,
}

/// The end of an exchange, for [`super::Trail::end`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// [`Outcome::Whole`], [`Outcome::Cut`] or [`Outcome::Aborted`].
    pub outcome: Outcome,
    /// Why it was cut or aborted, as a code.
    pub reason: Option<&'static str>,
    /// How many bytes of content came from the client, where that is known.
    pub request_bytes: Option<u64>,
    /// How many bytes of content went to the client, where that is known.
    pub response_bytes: Option<u64>,
    /// How many echoes of secrets were replaced in the response, fields and content.
    pub scrubbed: u64,
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Identify => "identify",
            Self::Authorize => "authorize",
            Self::Open => "open",
            Self::Attach => "attach",
            Self::Answer => "answer",
        }
    }
}

impl Decision {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl Outcome {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Whole => "whole",
            Self::Cut => "cut",
            Self::Aborted => "aborted",
        }
    }
}

pub(super) fn protocol_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "http/1.0",
        Version::HTTP_11 => "http/1.1",
        Version::HTTP_2 => "h2",
        _ => "unknown",
    }
}
