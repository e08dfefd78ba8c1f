//! Room: the origin side. Opens a vetted, verified channel to the authorized origin, and forwards
//! on it.

mod channel;
mod dial;
mod own;
mod patient;
mod pool;
pub mod resolve;
pub mod rule;
mod stores;
mod tls;
pub mod vet;

use std::io;

pub use channel::{Channel, Forwarded, OriginBody, Origins};
pub use rule::{ClientIdentity, OriginProtocol, OriginRule, OriginSettings};
pub use stores::{StoreClient, StoreClientUnusable};
pub use tls::warm_roots;

/// Why nothing was sent, or no answer came. Carries no text of the origin's.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Every address of the name is prohibited.
    #[error("the origin's address may not be dialled")]
    Prohibited(vet::Prohibited),
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
    #[error("the origin's TLS handshake failed")]
    Tls(#[source] io::Error),
    /// The host cannot stand in a certificate.
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
    /// The origin speaks no HTTP version that the exchange needs.
    #[error("the origin does not speak the HTTP version that the exchange needs")]
    Protocol,
    /// The connection broke, or what came was not HTTP.
    #[error("the origin's answer could not be read")]
    Http(#[source] hyper::Error),
    /// The origin answered an upgrade wrongly (RFC 6455 §4.1).
    #[error("the origin's answer to the upgrade is invalid")]
    BadUpgrade,
    /// The answer's content has a coding that cannot be undone, so a lent secret in it could not be
    /// found.
    #[error("the origin's answer has a content coding that cannot be undone")]
    Coding,
    /// The answer came in a coding that was not asked for, and the session's share of memory to
    /// undo codings is used up.
    #[error("the session has too many answers in compressed form under way")]
    DecodingBudget,
}

impl Error {
    /// The reason code in refusals and in the audit log.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Prohibited(why) => why.reason(),
            Self::Unresolved(_) => "unresolved",
            Self::Unreachable(_) => "unreachable",
            Self::ConnectTimeout => "connect_timeout",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::Tls(_) => "origin_tls",
            Self::NotCertifiable => "host_syntax",
            Self::TlsUnusable(_) => "origin_tls_settings",
            Self::NoRoots => "no_roots",
            Self::WrongChannel => "wrong_channel",
            Self::Protocol => "origin_protocol",
            Self::Http(_) => "bad_response",
            Self::BadUpgrade => "bad_101",
            Self::Coding => "encoding",
            Self::DecodingBudget => "decoding_budget",
        }
    }
}
