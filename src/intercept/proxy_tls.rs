//! The TLS of a proxy: the certificate that it presents, and the client certificates that it
//! accepts.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::verify_server_name;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, version};

use super::evidence::CertificateHolder;

/// The settings for the TLS of a proxy.
#[derive(PartialEq, Eq)]
pub struct ProxyTlsSettings {
    /// The proxy's certificate chain.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key of its certificate.
    pub key: PrivateKeyDer<'static>,
    /// The roots of client certificates. If there is none, no certificate is requested.
    pub roots: Vec<CertificateDer<'static>>,
    /// Revocation lists of client certificates. If there is one, each issuer needs a current one.
    pub revoked: Vec<CertificateRevocationListDer<'static>>,
    /// The trust domain, a group, that client certificates must have, if one is named.
    pub trust_domain: Option<String>,
    /// Whether a client without a certificate is accepted.
    pub is_optional: bool,
    /// The protocols that a client may choose from, by ALPN.
    pub protocols: &'static [&'static [u8]],
}

/// HTTP/1.1, as ALPN names it.
pub const HTTP1: &[u8] = b"http/1.1";
/// HTTP/2, as ALPN names it.
pub const HTTP2: &[u8] = b"h2";

/// Why the settings are unusable: the wrong setting, and what is wrong with it.
pub type ProxyTlsMalformed = (&'static str, String);

/// The TLS of a proxy. Two are equal if their settings are equal.
pub struct ProxyTls {
    pub(super) config: Arc<ServerConfig>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    settings: ProxyTlsSettings,
}

impl ProxyTls {
    /// Creates the TLS: 1.3 and 1.2. Nothing is resumed, so that no
    /// ticket outlives a certificate or its roots.
    ///
    /// # Errors
    /// [`ProxyTlsMalformed`].
    pub fn new(settings: ProxyTlsSettings) -> Result<Self, ProxyTlsMalformed> {
        let asks = !settings.roots.is_empty();
        let verifier = asks.then(|| settings.verifier()).transpose()?;
        let unfit = |error: rustls::Error| match error {
            rustls::Error::InconsistentKeys(_) => {
                ("key", "it is not the key of the certificate".to_owned())
            }
            error => ("certificate", error.to_string()),
        };
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(unfit)?;
        let config = match &verifier {
            Some(verifier) => config.with_client_cert_verifier(verifier.clone()),
            None => config.with_no_client_auth(),
        };
        let (chain, key) = (settings.chain.clone(), settings.key.clone_key());
        let mut config = config.with_single_cert(chain, key).map_err(unfit)?;
        let protocols = settings.protocols.iter();
        config.alpn_protocols = protocols.map(|name| name.to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self {
            config: Arc::new(config),
            verifier,
            settings,
        })
    }

    /// Whether a certificate that was accepted, perhaps under other settings, is accepted now.
    pub(super) fn takes(&self, chain: &[CertificateDer<'_>], groups: &[Arc<str>]) -> bool {
        let (Some(verifier), [own, others @ ..]) = (&self.verifier, chain) else {
            return false;
        };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now()));
        verifier.verify_client_cert(own, others, now).is_ok() && self.is_of_domain(groups)
    }

    /// Whether its certificate is for this host, as a client verifies it.
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        let own = self.settings.chain.first();
        let own = own.and_then(|own| ParsedCertificate::try_from(own).ok());
        let named = ServerName::try_from(host).ok();
        own.zip(named)
            .is_some_and(|(own, named)| verify_server_name(&own, &named).is_ok())
    }

    /// Whether these groups include the trust domain, if one is named.
    pub(super) fn is_of_domain(&self, groups: &[Arc<str>]) -> bool {
        let named = self.settings.trust_domain.as_deref();
        named.is_none_or(|domain| groups.iter().any(|group| **group == *domain))
    }
}

impl ProxyTlsSettings {
    fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, ProxyTlsMalformed> {
        let mut roots = RootCertStore::empty();
        for root in &self.roots {
            let added = roots.add(root.clone());
            added.map_err(|error| ("client_roots", error.to_string()))?;
        }
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .with_crls(self.revoked.iter().cloned())
            .enforce_revocation_expiration();
        let verifier = if self.is_optional {
            verifier.allow_unauthenticated()
        } else {
            verifier
        };
        let verifier = verifier.build();
        verifier.map_err(|error| ("client_crls", error.to_string()))
    }
}

impl PartialEq for ProxyTls {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}

impl Eq for ProxyTls {}

gateway_names::concealed!(ProxyTls);

/// Whether a certificate has expired.
#[must_use]
pub fn is_over(certificate: &CertificateDer<'_>) -> bool {
    CertificateHolder::read(certificate).is_some_and(|holder| holder.ends < now())
}

/// Returns the Unix time in seconds. With a clock before 1970, all evidence has ended.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(u64::MAX, |since| since.as_secs())
}
