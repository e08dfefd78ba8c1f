//! The limits of the data path.

use std::time::Duration;

use gateway_body::{HoldBudget, Limit};
use gateway_credential::BufferLimits;
use gateway_intercept::CaSettings;
use gateway_origin::OriginSettings;

/// The limits of the data path.
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
    /// How long a head may take, from its first byte.
    pub head_timeout: Duration,
    /// How long each of these may take: a CONNECT or SOCKS request, the first byte, and a TLS
    /// handshake on either side.
    pub handshake_timeout: Duration,
    /// How long connecting to an origin may take, over all of its addresses.
    pub connect_timeout: Duration,
    /// How long a connection may have no exchange under way.
    pub idle_timeout: Duration,
    /// How long an exchange may go without a byte in either direction: while a model thinks, or a
    /// WebSocket or a stream of events has nothing to say.
    pub progress_timeout: Duration,
    /// How long exchanges under way may take after the gateway begins to stop.
    pub drain_timeout: Duration,
    /// Leaf certificates that one session caches.
    pub cached_certificates: usize,
    /// Buffered content of one request, if it must be complete before it is forwarded.
    pub max_buffered_request: Limit,
    /// Buffered content of all requests.
    pub max_buffered_total: Limit,
    /// Memory for decoding the content of all responses.
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
            progress_timeout: Duration::from_secs(900),
            drain_timeout: Duration::from_secs(30),
            cached_certificates: CaSettings::default().leaves_kept,
            max_buffered_request: BufferLimits::REQUEST,
            max_buffered_total: BufferLimits::REQUESTS,
            max_decoder_memory: BufferLimits::DECODING,
        }
    }
}

impl Limits {
    /// Returns the limits for buffered content.
    #[must_use]
    pub fn holding(&self) -> BufferLimits {
        BufferLimits {
            limit: self.max_buffered_request,
            budget: HoldBudget::new(self.max_buffered_total),
            decoding: HoldBudget::new(self.max_decoder_memory),
        }
    }

    /// Returns the settings for origins, with these limits.
    #[must_use]
    pub fn origins(&self) -> OriginSettings {
        let mut settings = OriginSettings::default();
        settings.connect_timeout = self.connect_timeout;
        settings.handshake_timeout = self.handshake_timeout;
        settings.idle_timeout = self.idle_timeout;
        settings
    }
}
