//! What a trail learns about an exchange, and the words for it in a record.

use http::Version;

/// How far an exchange got.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Phase {
    /// A connection or a head was accepted.
    #[default]
    Accept,
    /// The client was identified.
    Identify,
    /// Policy was evaluated.
    Authorize,
    /// The connection to the origin was opened.
    Open,
    /// Credentials were attached.
    Attach,
    /// The origin answered.
    Answer,
}

/// Policy's decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The exchange may proceed.
    Allow,
    /// The exchange is refused.
    Deny,
}

/// How an exchange, or its content, ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The answer's head was released to the client.
    Answered,
    /// The content was passed on to its end.
    Whole,
    /// The content ended with its connection, whose TLS was not closed: it may be cut.
    Unclosed,
    /// The gateway cut the content short.
    Cut,
    /// One side disconnected, or the exchange was dropped.
    Aborted,
}

/// What the answer's head says about the length of its content.
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
pub struct End {
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

/// The words of an enumeration.
macro_rules! words {
    ($kind:ident { $($word:ident = $name:literal),+ $(,)? }) => {
        impl $kind {
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Self::$word => $name,)+
                }
            }
        }
    };
}
pub(super) use words;

words!(Phase {
    Accept = "accept", Identify = "identify", Authorize = "authorize",
    Open = "open", Attach = "attach", Answer = "answer",
});
words!(Decision { Allow = "allow", Deny = "deny" });
words!(Outcome { Answered = "answered", Whole = "whole", Unclosed = "unclosed", Cut = "cut", Aborted = "aborted" });

pub(super) fn protocol_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "http/1.0",
        Version::HTTP_11 => "http/1.1",
        Version::HTTP_2 => "h2",
        _ => "unknown",
    }
}
