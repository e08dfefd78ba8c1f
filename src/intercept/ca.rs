//! The session's own certificate authority: it trusts nothing else, and ends with the session.

use std::sync::Arc;
use std::time::Duration;

use gateway_message::Host;
use gateway_names::SessionId;
use rustls::ServerConfig;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use time::OffsetDateTime;

use super::leaves::{self, Leaves, ReachFilter};
use super::mint::{CaError, CaSettings, KeptCa, Mint, MintRefused};

/// The CA of one session, its leaves, and the TLS server configuration that presents them.
///
/// The sandbox gets only the certificate. The key leaves this process only sealed, with the record
/// of a session that outlives it.
pub struct SessionCa {
    leaves: Arc<Leaves>,
    config: Arc<ServerConfig>,
}

impl SessionCa {
    /// Creates the CA of a session. `is_reached` says whether any policy could permit a request to
    /// the host: leaves for other hosts have a cache and a rate of their own.
    ///
    /// # Errors
    /// `CaError` if the lifetime is out of range, or keys, certificates or TLS cannot be set up.
    pub fn new(
        session: &SessionId,
        settings: &CaSettings,
        is_reached: ReachFilter,
    ) -> Result<Self, CaError> {
        Self::again(session, settings, None, is_reached)
    }

    /// Recreates the CA of a session of another process, with the same key and certificate.
    ///
    /// # Errors
    /// As [`SessionCa::new`], and `CaError::Kept` if the kept key is not valid.
    pub fn again(
        session: &SessionId,
        settings: &CaSettings,
        kept: Option<&KeptCa>,
        is_reached: ReachFilter,
    ) -> Result<Self, CaError> {
        let mint = Mint::new(session, settings, kept, OffsetDateTime::now_utc())?;
        let leaves = Arc::new(Leaves::new(mint, settings, is_reached));
        let config = leaves::config_with_tickets(Arc::clone(&leaves) as _).map_err(CaError::Tls)?;
        Ok(Self {
            leaves,
            config: Arc::new(config),
        })
    }

    /// Returns the CA's certificate as PEM, for the sandbox's trust stores.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        self.leaves.mint().root_pem().to_owned()
    }

    /// Returns the state from which another process recreates the CA; `None` if the key cannot be
    /// encoded.
    #[must_use]
    pub fn keep(&self) -> Option<KeptCa> {
        self.leaves.mint().keep()
    }

    /// Returns the one TLS server configuration of this session.
    ///
    /// Tickets are sealed with a key that only this session has.
    #[must_use]
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Returns a configuration for one connection to a host that the client did not name (an
    /// address without SNI).
    ///
    /// Without tickets: a ticket contains no address, so it could be used at another one.
    pub(super) fn server_config_without_sni(
        &self,
        leaf: Arc<CertifiedKey>,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        Ok(Arc::new(leaves::config_without_tickets(Arc::new(
            SingleCertAndKey::from(leaf),
        ))?))
    }

    /// Changes the lifetime of leaves, and the size of their cache.
    pub fn change(&self, lifetime: Duration, leaves_kept: usize) {
        self.leaves.change(lifetime, leaves_kept);
    }

    /// Returns the leaf for a host: cached, or minted now (about 20 µs).
    ///
    /// # Errors
    /// `MintRefused` if the closed list, the rate or the CA's expiry forbids it.
    pub fn leaf(&self, host: &Host) -> Result<Arc<CertifiedKey>, MintRefused> {
        self.leaves.leaf(host)
    }

    /// Returns how many leaves are cached now, and how many were minted so far.
    #[must_use]
    pub fn leaves(&self) -> (usize, u64) {
        self.leaves.counted()
    }
}

gateway_names::concealed!(SessionCa);

#[cfg(test)]
mod tests;
