//! The TLS of a proxy itself: the certificate that it shows, and the client certificates that it
//! takes.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::aws_lc_rs::digest::{Context, SHA256};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, version};

use super::x509::CertificateHolder;
use crate::names::User;

/// What the TLS of a proxy is made of.
pub struct DoorSettings {
    /// The proxy's certificate, and those that lead to its root.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key of its certificate.
    pub key: PrivateKeyDer<'static>,
    /// Which client certificates it takes, if any.
    pub clients: Option<ClientTrust>,
}

/// Which client certificates are taken.
pub struct ClientTrust {
    /// Those that lead to one of these.
    pub roots: Vec<CertificateDer<'static>>,
    /// And are in none of these lists. If there are any, each issuer needs one that is current.
    pub revoked: Vec<CertificateRevocationListDer<'static>>,
    /// And have a SPIFFE id of this domain, if one is named.
    pub trust_domain: Option<String>,
    /// Whether a client without one is taken.
    pub is_optional: bool,
}

/// Why there can be no such TLS.
#[derive(Debug, thiserror::Error)]
pub enum DoorMalformed {
    /// The key is another certificate's.
    #[error("it is not the key of the certificate")]
    Key,
    /// The certificate or its key cannot be used.
    #[error("it cannot be used: {0}")]
    Certificate(rustls::Error),
    /// A client root is none.
    #[error("a certificate in it is no root: {0}")]
    Roots(rustls::Error),
    /// A list of revoked certificates cannot be used.
    #[error("it cannot be used: {0}")]
    Revoked(rustls::server::VerifierBuilderError),
}

/// The TLS of a proxy. Two are equal if they were made of the same.
pub struct DoorTls {
    pub(super) config: Arc<ServerConfig>,
    clients: Option<(Arc<dyn ClientCertVerifier>, Option<String>)>,
    made_of: [u8; 32],
}

impl DoorTls {
    /// TLS 1.3 and 1.2 for HTTP/1.1 and SOCKS. Nothing is resumed, so that no ticket outlives a
    /// certificate or its roots.
    ///
    /// # Errors
    /// [`DoorMalformed`] by cause.
    pub fn new(settings: DoorSettings) -> Result<Self, DoorMalformed> {
        let made_of = settings.digest();
        let DoorSettings {
            chain,
            key,
            clients,
        } = settings;
        let clients = clients.map(ClientTrust::verifier).transpose()?;
        let provider = Arc::new(default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(DoorMalformed::Certificate)?;
        let config = match &clients {
            Some((verifier, _)) => config.with_client_cert_verifier(verifier.clone()),
            None => config.with_no_client_auth(),
        };
        let mut config = config
            .with_single_cert(chain, key)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => DoorMalformed::Key,
                error => DoorMalformed::Certificate(error),
            })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self {
            config: Arc::new(config),
            clients,
            made_of,
        })
    }

    /// Whether it takes a client certificate now that it took, or that another one took.
    pub(super) fn takes(&self, chain: &[CertificateDer<'_>], user: &User) -> bool {
        let Some(((verifier, _), [own, others @ ..])) = self.clients.as_ref().zip(Some(chain))
        else {
            return false;
        };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now()));
        verifier.verify_client_cert(own, others, now).is_ok() && self.is_of_domain(user)
    }

    /// Whether a user is of the trust domain, if one is named.
    pub(super) fn is_of_domain(&self, user: &User) -> bool {
        let named = self.clients.as_ref().and_then(|(_, named)| named.as_ref());
        named.is_none_or(|domain| {
            let path = user.as_str().strip_prefix("spiffe://");
            let path = path.and_then(|id| id.strip_prefix(domain.as_str()));
            path.is_some_and(|path| path.starts_with('/'))
        })
    }
}

impl ClientTrust {
    fn verifier(self) -> Result<(Arc<dyn ClientCertVerifier>, Option<String>), DoorMalformed> {
        let mut roots = RootCertStore::empty();
        for root in self.roots {
            roots.add(root).map_err(DoorMalformed::Roots)?;
        }
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .with_crls(self.revoked)
            .enforce_revocation_expiration();
        let verifier = match self.is_optional {
            true => verifier.allow_unauthenticated(),
            false => verifier,
        };
        let verifier = verifier.build().map_err(DoorMalformed::Revoked)?;
        Ok((verifier, self.trust_domain))
    }
}

impl DoorSettings {
    fn digest(&self) -> [u8; 32] {
        let mut all = Context::new(&SHA256);
        let mut add = |part: &[u8]| {
            all.update(&(part.len() as u64).to_be_bytes());
            all.update(part);
        };
        self.chain.iter().for_each(|one| add(one));
        add(self.key.secret_der());
        if let Some(clients) = &self.clients {
            add(&[u8::from(clients.is_optional)]);
            add(clients
                .trust_domain
                .as_deref()
                .unwrap_or_default()
                .as_bytes());
            clients.roots.iter().for_each(|one| add(one));
            add(&[]);
            clients.revoked.iter().for_each(|one| add(one));
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(all.finish().as_ref());
        digest
    }
}

impl PartialEq for DoorTls {
    fn eq(&self, other: &Self) -> bool {
        self.made_of == other.made_of
    }
}

impl Eq for DoorTls {}

impl fmt::Debug for DoorTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoorTls").finish_non_exhaustive()
    }
}

/// Whether the time of a certificate is over.
#[must_use]
pub fn is_over(certificate: &CertificateDer<'_>) -> bool {
    CertificateHolder::read(certificate).is_some_and(|holder| holder.ends < now())
}

/// The second of Unix time. A clock before 1970 has all evidence end.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(u64::MAX, |since| since.as_secs())
}
