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
    pub leaves: usize,
    /// Content of one request that is held, where it must be seen whole before it goes on.
    pub hold: Limit,
    /// Content of all requests that is held.
    pub hold_all: Limit,
    /// What undoing the content codings of all answers takes.
    pub decoding_all: Limit,
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
            leaves: CaSettings::default().leaves_kept,
            hold: Holding::REQUEST,
            hold_all: Holding::REQUESTS,
            decoding_all: Holding::DECODING,
        }
    }
}

impl Limits {
    /// What they say of content that is held.
    #[must_use]
    pub fn holding(&self) -> Holding {
        Holding {
            limit: self.hold,
            budget: HoldBudget::new(self.hold_all),
            decoding: HoldBudget::new(self.decoding_all),
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
