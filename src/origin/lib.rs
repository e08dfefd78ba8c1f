//! The origin side: opens a vetted, verified channel to the authorized origin, and forwards on it.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod answer_cache;
mod channel;
mod dial;
mod dialer;
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
mod response_progress;
pub mod rule;
mod sender;
mod severable_socket;
mod stores;
mod system_file;
mod tls;
mod tls_failure;
mod upstream;
mod upstream_failure;
pub mod vet;

use std::io;
use std::net::IpAddr;

use gateway_session::Revoked;

pub use channel::{Channel, Forwarded, Origins};
pub use no_answer::NoAnswer;
pub use origin_body::OriginBody;
pub use remote::{RemoteProxy, RemoteRefused, Tunnel};
pub use rule::{
    ClientIdentity, OriginDefaults, OriginProtocol, OriginRule, OriginSettings, UpstreamProxy, Via,
};
pub use stores::{StoreClient, StoreClientUnusable, StoreWay};
pub use tls::{store_tls, warm_roots};
pub use upstream_failure::UpstreamFailure;

/// Formats an error with its causes on one line. No cause contains a secret, or text from the
/// request or the origin.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

gateway_names::faults! {
    /// Why nothing was sent, or no response came. Contains no text from the origin.
    #[derive(Debug, thiserror::Error)]
    pub enum Error {
        /// A credential of the exchange was revoked.
        Revoked(#[from] Revoked) = CredentialRevoked transparent,
        /// Names cannot be resolved with the settings now in force.
        NoResolver(#[source] resolve::ResolverUnusable) = Unresolved
            "names cannot be resolved with the settings in force",
        /// Every address of the name is prohibited; this is the first.
        Prohibited(vet::Prohibited, IpAddr) = inner
            "the host's address is {1}, which may not be dialled",
        /// The origin would be reached in clear text, and the operator has not allowed that.
        ClearText = ClearText "the origin would be reached in clear text",
        /// The upstream proxy opened no tunnel to the origin.
        Upstream(UpstreamFailure) = UpstreamProxy transparent,
        /// The name has no address.
        Unresolved(#[source] resolve::Unresolved) = Unresolved
            "the origin's name could not be resolved",
        /// No address accepted a connection.
        Unreachable(#[source] Option<io::Error>) = Unreachable "the origin could not be reached",
        /// No address accepted a connection in time.
        ConnectTimeout = ConnectTimeout "the origin did not accept a connection in time",
        /// The TLS handshake took too long.
        HandshakeTimeout = HandshakeTimeout "the origin's TLS handshake did not end in time",
        /// The TLS handshake failed: certificate, version, protocol.
        Tls(#[source] io::Error) = OriginTls "{}" (tls_failure::what_failed(.0)),
        /// The host cannot appear in a certificate.
        NotCertifiable = HostSyntax "the host name cannot be certified",
        /// The configured roots or identity cannot be used.
        TlsUnusable(#[source] rustls::Error) = OriginTlsSettings
            "the TLS settings for the origin cannot be used",
        /// The system has no roots.
        NoRoots = NoRoots "no root certificates were found on this system",
        /// The channel is not that of the authorized exchange.
        WrongChannel = WrongChannel "the channel does not belong to the exchange",
        /// The origin does not speak the HTTP version that the exchange needs.
        Protocol = OriginProtocol
            "the origin does not speak the HTTP version that the exchange needs",
        /// No byte of a response was received.
        NoAnswer(NoAnswer) = NoAnswer transparent,
        /// The response's head is longer than the limit.
        HeadTooLong(#[source] hyper::Error) = AnswerHead
            "the head of the origin's answer is longer than 128 KiB or has more than 256 fields",
        /// The connection broke within the response's head, or the head was not HTTP.
        Http(#[source] hyper::Error) = BadResponse "the origin's answer could not be read",
        /// This line of the response's head could not be read.
        Line(usize, #[source] hyper::Error) = BadResponse
            "line {0} of the origin's answer could not be read",
        /// The response gives its length in two ways.
        TwoLengths = BadResponse
            "the origin's answer has a length and a transfer coding other than `chunked`",
        /// The origin sent too many informational responses (1xx) in a row.
        Informational = BadResponse
            "the origin sent more than 16 informational answers before its answer",
        /// The origin's response to an upgrade is invalid (RFC 6455 §4.1).
        BadUpgrade = Bad101 "the origin's answer to the upgrade is invalid",
        /// The response's content is not the requested range.
        Range = BadResponse
            "the origin's answer has not the range of bytes that it was asked for",
        /// The response's content has a coding that cannot be decoded, so an injected secret in it
        /// could not be found.
        Coding = Encoding "the origin's answer has a content coding that cannot be undone",
        /// The response came in a coding that was not offered, and the session's share of decoding
        /// memory is used up.
        DecodingBudget = DecodingBudget
            "the session has too many answers in compressed form under way",
    }
}

impl Error {
    /// Whether a person must act before the origin's certificate is trusted.
    pub fn is_distrust(&self) -> bool {
        match self {
            Self::Tls(error) => tls_failure::is_distrust(error),
            Self::TlsUnusable(_) | Self::NoRoots => true,
            _ => false,
        }
    }
}
