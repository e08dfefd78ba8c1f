//! The bounds of the data path.

use std::time::Duration;

use crate::body::{HoldBudget, Limit};
use crate::credential::Holding;
use crate::intercept::CaSettings;
use crate::origin::OriginSettings;

/// The bounds of the data path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections of one session at a time.
    pub connections_per_session: usize,
    /// Connections of all sessions at a time.
    pub connections: usize,
    /// Exchanges of one session under way at a time, on all its connections.
    pub exchanges_per_session: usize,
    /// HTTP/2 streams of one connection at a time.
    pub streams_per_connection: u32,
    /// For one head to be complete from its first byte.
    pub head_timeout: Duration,
    /// For a CONNECT or SOCKS request, a first byte, and a TLS handshake on either side, each.
    pub handshake_timeout: Duration,
    /// For a connection to an origin, all of its addresses together.
    pub connect_timeout: Duration,
    /// For which a connection may have no exchange under way.
    pub idle_timeout: Duration,
    /// For which an exchange may see no byte move in either direction.
    pub progress_timeout: Duration,
    /// Leaf certificates that one session keeps.
    pub cached_certificates: usize,
    /// Content of one request that is held, where it must be seen whole before it goes on.
    pub max_buffered_request: Limit,
    /// Content of all requests that is held.
    pub max_buffered_total: Limit,
    /// What undoing the content codings of all answers takes.
    pub max_decoder_memory: Limit,
}

impl Default for Limits {
    fn default() -> Self {
        let origins = OriginSettings::default();
        Self {
            connections_per_session: 1024,
            connections: 10_000,
            exchanges_per_session: 1024,
            streams_per_connection: 128,
            head_timeout: Duration::from_secs(10),
            handshake_timeout: origins.handshake_timeout,
            connect_timeout: origins.connect_timeout,
            idle_timeout: origins.idle_timeout,
            progress_timeout: Duration::from_secs(300),
            cached_certificates: CaSettings::default().leaves_kept,
            max_buffered_request: Holding::REQUEST,
            max_buffered_total: Holding::REQUESTS,
            max_decoder_memory: Holding::DECODING,
        }
    }
}

impl Limits {
    /// What they say of content that is held.
    #[must_use]
    pub fn holding(&self) -> Holding {
        Holding {
            limit: self.max_buffered_request,
            budget: HoldBudget::new(self.max_buffered_total),
            decoding: HoldBudget::new(self.max_decoder_memory),
        }
    }

    /// What they say of origins.
    #[must_use]
    pub fn origins(&self) -> OriginSettings {
        let mut settings = OriginSettings::default();
        settings.connect_timeout = self.connect_timeout;
        settings.handshake_timeout = self.handshake_timeout;
        settings.idle_timeout = self.idle_timeout;
        settings
    }
}
