//! The origin side: opens a vetted, verified channel to the authorized origin, and forwards on it.

mod answers;
mod carrier;
mod channel;
mod dial;
mod dialer;
mod heard;
mod ignore_write_errors;
mod name_servers;
mod no_answer;
mod origin_body;
mod pool;
mod race;
mod reach;
mod remote;
mod request;
pub mod resolve;
pub mod rule;
mod sender;
mod stores;
mod system_file;
mod tls;
mod tls_failure;
mod upstream;
mod upstream_failure;
pub mod vet;

use std::io;
use std::net::IpAddr;

use crate::names::ReasonCode;
use crate::session::Revoked;
pub use channel::{Channel, Forwarded, Origins};
pub use no_answer::NoAnswer;
pub use origin_body::OriginBody;
pub use remote::{RemoteProxy, RemoteRefused, Tunnel};
pub use rule::{
    ClientIdentity, OriginDefaults, OriginProtocol, OriginRule, OriginSettings, UpstreamProxy, Via,
};
pub use stores::{StoreClient, StoreClientUnusable, StoreWay};
pub use tls::warm_roots;
pub use upstream_failure::UpstreamFailure;

/// Why nothing was sent, or no response came. Contains no text from the origin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A credential of the exchange was revoked.
    #[error(transparent)]
    Revoked(#[from] Revoked),
    /// Names cannot be resolved with the settings now in force.
    #[error("names cannot be resolved with the settings in force")]
    NoResolver(#[source] resolve::ResolverUnusable),
    /// Every address of the name is prohibited; this is the first.
    #[error("the host's address is {1}, which may not be dialled")]
    Prohibited(vet::Prohibited, IpAddr),
    /// The origin would be reached in clear text, and the operator has not allowed that.
    #[error("the origin would be reached in clear text")]
    ClearText,
    /// The upstream proxy opened no way to the origin.
    #[error(transparent)]
    Upstream(UpstreamFailure),
    /// The name has no address.
    #[error("the origin's name could not be resolved")]
    Unresolved(#[source] resolve::Unresolved),
    /// No address accepted a connection.
    #[error("the origin could not be reached")]
    Unreachable(#[source] Option<io::Error>),
    /// No address accepted a connection in time.
    #[error("the origin did not accept a connection in time")]
    ConnectTimeout,
    /// The TLS handshake took too long.
    #[error("the origin's TLS handshake did not end in time")]
    HandshakeTimeout,
    /// The TLS handshake failed: certificate, version, protocol.
    #[error("{}", tls_failure::what_failed(.0))]
    Tls(#[source] io::Error),
    /// The host cannot appear in a certificate.
    #[error("the host name cannot be certified")]
    NotCertifiable,
    /// The configured roots or identity cannot be used.
    #[error("the TLS settings for the origin cannot be used")]
    TlsUnusable(#[source] rustls::Error),
    /// The system has no roots.
    #[error("no root certificates were found on this system")]
    NoRoots,
    /// The channel is not that of the authorized exchange.
    #[error("the channel does not belong to the exchange")]
    WrongChannel,
    /// The origin does not speak the HTTP version that the exchange needs.
    #[error("the origin does not speak the HTTP version that the exchange needs")]
    Protocol,
    /// No byte of a response came.
    #[error(transparent)]
    NoAnswer(NoAnswer),
    /// The response's head is longer than is read.
    #[error("the head of the origin's answer is longer than 128 KiB or has more than 256 fields")]
    HeadTooLong(#[source] hyper::Error),
    /// The connection broke inside the response's head, or that was not HTTP.
    #[error("the origin's answer could not be read")]
    Http(#[source] hyper::Error),
    /// The response gives its length in two ways.
    #[error("the origin's answer has a length and a transfer coding other than `chunked`")]
    TwoLengths,
    /// The origin sent one informational response (1xx) after the other.
    #[error("the origin sent more than 16 informational answers before its answer")]
    Informational,
    /// The origin answered an upgrade wrongly (RFC 6455 §4.1).
    #[error("the origin's answer to the upgrade is invalid")]
    BadUpgrade,
    /// The response's content is not the part that was asked for.
    #[error("the origin's answer has not the range of bytes that it was asked for")]
    Range,
    /// The response's content has a coding that cannot be decoded, so an injected secret in it
    /// could not be found.
    #[error("the origin's answer has a content coding that cannot be undone")]
    Coding,
    /// The response came in a coding that was not offered, and the session's share of decoding
    /// memory is used up.
    #[error("the session has too many answers in compressed form under way")]
    DecodingBudget,
}

impl Error {
    /// The reason code in refusals and in the audit log.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Revoked(_) => ReasonCode::CredentialRevoked,
            Self::NoResolver(_) => ReasonCode::Unresolved,
            Self::Prohibited(why, _) => why.reason(),
            Self::ClearText => ReasonCode::ClearText,
            Self::Upstream(_) => ReasonCode::UpstreamProxy,
            Self::Unresolved(_) => ReasonCode::Unresolved,
            Self::Unreachable(_) => ReasonCode::Unreachable,
            Self::ConnectTimeout => ReasonCode::ConnectTimeout,
            Self::HandshakeTimeout => ReasonCode::HandshakeTimeout,
            Self::Tls(_) => ReasonCode::OriginTls,
            Self::NotCertifiable => ReasonCode::HostSyntax,
            Self::TlsUnusable(_) => ReasonCode::OriginTlsSettings,
            Self::NoRoots => ReasonCode::NoRoots,
            Self::WrongChannel => ReasonCode::WrongChannel,
            Self::Protocol => ReasonCode::OriginProtocol,
            Self::NoAnswer(_) => ReasonCode::NoAnswer,
            Self::HeadTooLong(_) => ReasonCode::AnswerHead,
            Self::Http(_) | Self::TwoLengths | Self::Informational | Self::Range => {
                ReasonCode::BadResponse
            }
            Self::BadUpgrade => ReasonCode::Bad101,
            Self::Coding => ReasonCode::Encoding,
            Self::DecodingBudget => ReasonCode::DecodingBudget,
        }
    }
}
