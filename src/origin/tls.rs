//! TLS towards origins: trusted roots, and which sessions may resume which TLS session.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use gateway_names::{Identity, SYSTEM_BUNDLES};
use parking_lot::Mutex;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use super::Error;
use super::rule::{OriginProtocol, OriginSettings};

/// The configurations in use, one per identity and rule, so that no identity resumes another's TLS
/// session (RFC 8446 §2.2: a resumed session inherits what was authenticated).
pub(super) struct Configurations {
    known: Mutex<HashMap<TlsKey, Arc<ClientConfig>>>,
}

#[derive(PartialEq, Eq, Hash, Clone)]
struct TlsKey {
    identity: Identity,
    rule: Option<usize>,
    offer: AlpnOffer,
}

/// The protocols offered by ALPN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum AlpnOffer {
    Http1,
    Http2,
    /// HTTP/2 first.
    Both,
}

impl AlpnOffer {
    fn names(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http1 => vec![b"http/1.1".to_vec()],
            Self::Http2 => vec![b"h2".to_vec()],
            Self::Both => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        }
    }

    /// Chooses HTTP/1.1, unless the rule says otherwise or the exchange needs HTTP/2 (ADR 10).
    pub(super) fn choose(protocol: OriginProtocol, carrier: UsableVersions) -> Self {
        match (protocol, carrier) {
            (_, UsableVersions::ByHttp1) | (OriginProtocol::Http1, _) => Self::Http1,
            (OriginProtocol::Auto, UsableVersions::ByAny) => Self::Http1,
            (OriginProtocol::Auto, UsableVersions::ByHttp2) => Self::Both,
            (OriginProtocol::Http2, _) => Self::Http2,
        }
    }
}

/// The HTTP versions that can carry an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsableVersions {
    ByAny,
    /// The client asked for an upgrade, or the origin required HTTP/1.1 (RFC 9113 §7).
    ByHttp1,
    /// gRPC, and streams in both directions at once.
    ByHttp2,
}

/// How many identities' configurations are cached. A full cache is cleared, which only costs full
/// handshakes.
const REMEMBERED: usize = 1024;

impl Configurations {
    pub(super) fn new() -> Self {
        Self {
            known: Mutex::new(HashMap::new()),
        }
    }

    /// Returns the configuration for an identity under a rule.
    pub(super) fn of(
        &self,
        settings: &OriginSettings,
        identity: &Identity,
        rule: Option<usize>,
        offer: AlpnOffer,
    ) -> Result<Arc<ClientConfig>, Error> {
        let key = TlsKey {
            identity: identity.clone(),
            rule,
            offer,
        };
        let mut known = self.known.lock();
        if let Some(config) = known.get(&key) {
            return Ok(config.clone());
        }
        let config = Arc::new(configure(settings, rule, offer)?);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(key, config.clone());
        Ok(config)
    }
}

/// Makes the configuration for the rule at this index.
pub(super) fn configure(
    settings: &OriginSettings,
    rule: Option<usize>,
    offer: AlpnOffer,
) -> Result<ClientConfig, Error> {
    let (rule, key) = match rule.map(|index| settings.at(index)) {
        Some((rule, key)) => (Some(rule), key),
        None => (None, None),
    };
    let own = rule.map_or(&[][..], |rule| &rule.roots);
    let more = [own, &settings.defaults.roots].concat();
    let roots = match rule {
        Some(rule) if rule.replace_system_roots => with(RootCertStore::empty(), own)?,
        _ if !more.is_empty() => with(system_roots()?.as_ref().clone(), &more)?,
        _ => system_roots()?,
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(Error::TlsUnusable)?
        .with_root_certificates(roots);
    let identity = rule.and_then(|rule| rule.identity.as_ref());
    let mut config = match identity.zip(key) {
        Some((identity, key)) => builder
            .with_client_auth_cert(identity.chain.clone(), key.clone_key())
            .map_err(Error::TlsUnusable)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = offer.names();
    config.resumption = Resumption::in_memory_sessions(64);
    Ok(config)
}

/// Returns the settings of TLS towards a server of the gateway's own: the system's roots and more.
///
/// # Errors
/// [`Error`] if there are none, or one of them is no root.
pub fn store_tls(more: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, Error> {
    let roots = match more {
        [] => system_roots()?,
        more => with(
            system_roots().map_or_else(|_| RootCertStore::empty(), |roots| roots.as_ref().clone()),
            more,
        )?,
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(Error::TlsUnusable)?;
    Ok(Arc::new(
        builder.with_root_certificates(roots).with_no_client_auth(),
    ))
}

fn with(
    mut store: RootCertStore,
    more: &[CertificateDer<'static>],
) -> Result<Arc<RootCertStore>, Error> {
    for root in more {
        store.add(root.clone()).map_err(Error::TlsUnusable)?;
    }
    Ok(Arc::new(store))
}

/// The system's roots, read once.
///
/// Variables of the gateway's own environment, such as `SSL_CERT_FILE`, are ignored: the gateway
/// trusts the operator's system and configuration, not a variable that it happened to inherit.
fn system_roots() -> Result<Arc<RootCertStore>, Error> {
    static ROOTS: OnceLock<Option<Arc<RootCertStore>>> = OnceLock::new();
    ROOTS
        .get_or_init(read_system_roots)
        .clone()
        .ok_or(Error::NoRoots)
}

fn read_system_roots() -> Option<Arc<RootCertStore>> {
    let bundle = SYSTEM_BUNDLES
        .iter()
        .map(Path::new)
        .find(|path| path.is_file())?;
    let found = rustls_native_certs::load_certs_from_paths(Some(bundle), None);
    for error in &found.errors {
        tracing::warn!(%error, "a certificate of the system's store was not read");
    }
    let mut store = RootCertStore::empty();
    let (added, ignored) = store.add_parsable_certificates(found.certs);
    tracing::debug!(added, ignored, "system roots read");
    (added > 0).then(|| Arc::new(store))
}

/// Reads the system's roots before the first connection.
pub fn warm_roots() {
    // A failure is reported by the first exchange that needs the roots.
    let _ = system_roots();
}
