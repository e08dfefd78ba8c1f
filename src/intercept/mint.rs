//! Makes the certificates of a session: its root, and leaves for hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gateway_message::Host;
use gateway_names::SessionId;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyIdMethod, KeyUsagePurpose,
    NameConstraints, SanType, SerialNumber,
};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::key::Key;

/// The settings of a session's CA.
#[derive(Debug, Clone)]
pub struct CaSettings {
    /// How long the session lives before it must be renewed; at most 199 days. A leaf lives no
    /// longer, and for at most 7 days. The CA's own certificate is valid for ten years, since a
    /// client reads it once and may run for long (ADR 33).
    pub lifetime: Duration,
    /// The closed list of hosts that may ever be requested, if there is one. They become critical
    /// name constraints. A name covers itself and everything below it (RFC 5280 §4.2.1.10), so
    /// `*.example.com` is given as `example.com`. If no address is listed, all are excluded. This
    /// is only a second barrier: policy is the first.
    pub constraints: Option<Vec<Host>>,
    /// How many leaves are cached; the least recently used is evicted first.
    pub leaves_kept: usize,
    /// How many leaves may be minted at once, and then per second; a cached name costs nothing.
    pub mint_burst: u32,
    /// See [`CaSettings::mint_burst`].
    pub mint_per_second: u32,
}

impl Default for CaSettings {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(24 * 3600),
            constraints: None,
            leaves_kept: 1_024,
            mint_burst: 512,
            mint_per_second: 32,
        }
    }
}

/// Why a CA cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// The lifetime is zero or more than 199 days.
    #[error("a session lives from one second to 199 days")]
    Lifetime,
    /// The kept key is not the key of a CA.
    #[error("the kept key of the CA cannot be read")]
    Kept,
    /// The system's random source failed.
    #[error("no random numbers for a key")]
    Random,
    /// A certificate could not be encoded or signed.
    #[error("the certificate cannot be encoded")]
    Encoding(#[source] rcgen::Error),
    /// TLS could not be configured.
    #[error("TLS cannot be configured")]
    Tls(#[source] rustls::Error),
}

gateway_names::faults! {
    /// Why no leaf is minted for a host.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    pub enum MintRefused {
        /// The session's closed list of hosts does not contain it.
        OutsideConstraints = HostNotPermitted "the host is outside the session's list",
        /// The session requested too many new names.
        Throttled = MintThrottled "too many new host names",
        /// The session's CA has expired.
        Ended = SessionEnded "the session's CA has expired",
        /// The leaf cannot be encoded or signed.
        Failed = MintFailed "the certificate cannot be made",
    }
}

/// Signs the certificates of a session with its CA's key.
pub(super) struct Mint {
    root: CaCertificate,
    issuer: Issuer<'static, Key>,
    leaf_key: Key,
    leaf_key_id: Vec<u8>,
    /// The lifetime of leaves, in seconds.
    leaves_live: AtomicU64,
    constraints: Option<Vec<Host>>,
}

/// A CA as it is kept from one process to the next: its certificate, and its key.
pub struct KeptCa {
    /// The certificate as PEM.
    pub pem: String,
    /// When the certificate begins to be valid, in seconds since 1970.
    pub from: i64,
    /// When the certificate expires, in seconds since 1970.
    pub to: i64,
    /// The private key as PKCS #8.
    pub key: Zeroizing<Vec<u8>>,
}

/// A CA's certificate, and its validity.
struct CaCertificate {
    pem: String,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

impl Mint {
    /// Creates the keys and the root of a session, or recreates those of `kept`.
    ///
    /// A kept certificate that is half-way to its end is replaced by one with the same name and
    /// key. Clients accept leaves under either.
    pub(super) fn new(
        session: &SessionId,
        settings: &CaSettings,
        kept: Option<&KeptCa>,
        now: OffsetDateTime,
    ) -> Result<Self, CaError> {
        if settings.lifetime < Duration::from_secs(1) || settings.lifetime > LIFETIME_MAX {
            return Err(CaError::Lifetime);
        }
        let key = match kept {
            Some(kept) => Key::read(&kept.key).ok_or(CaError::Kept)?,
            None => Key::generate().ok_or(CaError::Random)?,
        };
        let params = root_params(session, settings, &key, now)?;
        let root = match kept.and_then(|kept| CaCertificate::kept(kept, now)) {
            Some(root) => root,
            None => CaCertificate::sign(&params, &key)?,
        };
        let leaf_key = leaf_key()?;
        Ok(Self {
            root,
            issuer: Issuer::new(params, key),
            leaf_key_id: CertificateParams::default().key_identifier(&leaf_key),
            leaf_key,
            leaves_live: AtomicU64::new(settings.lifetime.min(LEAF_LIFETIME).as_secs()),
            constraints: settings.constraints.clone(),
        })
    }

    /// Changes the lifetime of leaves. Returns whether it became shorter.
    pub(super) fn live(&self, lifetime: Duration) -> bool {
        let lifetime = lifetime.min(LEAF_LIFETIME).as_secs();
        self.leaves_live.swap(lifetime, Ordering::Relaxed) > lifetime
    }

    /// Returns the root's certificate as PEM.
    pub(super) fn root_pem(&self) -> &str {
        &self.root.pem
    }

    /// Returns the state from which another process recreates the CA.
    pub(super) fn keep(&self) -> Option<KeptCa> {
        Some(KeptCa {
            pem: self.root.pem.clone(),
            from: self.root.not_before.unix_timestamp(),
            to: self.root.not_after.unix_timestamp(),
            key: self.issuer.key().pkcs8()?,
        })
    }

    /// Whether the name constraints allow the host, so that clients would accept a leaf for it.
    pub(super) fn covers(&self, host: &Host) -> bool {
        let Some(list) = &self.constraints else {
            return true;
        };
        list.iter().any(|listed| match (listed.ip(), host.ip()) {
            (Some(listed), Some(host)) => listed == host,
            (None, None) => host.domains().any(|domain| domain == listed.as_str()),
            _ => false,
        })
    }

    /// Signs a leaf for exactly one host. Also returns when to renew it.
    ///
    /// The subject is empty and the SAN therefore critical (RFC 5280 §4.2.1.6): a host name may be
    /// longer than the 64 characters of a common name, and no current client reads one.
    pub(super) fn leaf(
        &self,
        host: &Host,
        now: OffsetDateTime,
    ) -> Result<(CertifiedKey, OffsetDateTime), MintRefused> {
        let root = &self.root;
        if now >= root.not_after {
            return Err(MintRefused::Ended);
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = vec![subject_alt_name(host)?];
        params.serial_number = Some(serial().ok_or(MintRefused::Failed)?);
        params.not_before = (now - BACKDATE).max(root.not_before);
        let longest = (params.not_before + LEAF_LIFETIME).min(root.not_after);
        let live = Duration::from_secs(self.leaves_live.load(Ordering::Relaxed));
        params.not_after = (now + live).min(longest);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.key_identifier_method = KeyIdMethod::PreSpecified(self.leaf_key_id.clone());
        let certificate = params
            .signed_by(&self.leaf_key, &self.issuer)
            .map_err(|_| MintRefused::Failed)?;
        let key = CertifiedKey::new(
            vec![certificate.der().clone()],
            Arc::new(self.leaf_key.clone()),
        );
        // Renewed half-way, so that no client sees a leaf in its last hours.
        Ok((key, now + (params.not_after - now) / 2))
    }
}

impl CaCertificate {
    fn sign(params: &CertificateParams, key: &Key) -> Result<Self, CaError> {
        let certificate = params.self_signed(key).map_err(CaError::Encoding)?;
        Ok(Self {
            pem: certificate.pem(),
            not_before: params.not_before,
            not_after: params.not_after,
        })
    }

    /// Returns the kept certificate, if it has more than half of its time left.
    fn kept(kept: &KeptCa, now: OffsetDateTime) -> Option<Self> {
        let not_before = OffsetDateTime::from_unix_timestamp(kept.from).ok()?;
        let not_after = OffsetDateTime::from_unix_timestamp(kept.to).ok()?;
        let fresh = not_before <= now && now + ROOT_LIFETIME / 2 < not_after;
        fresh.then(|| Self {
            pem: kept.pem.clone(),
            not_before,
            not_after,
        })
    }
}

fn root_params(
    session: &SessionId,
    settings: &CaSettings,
    key: &Key,
    now: OffsetDateTime,
) -> Result<CertificateParams, CaError> {
    let mut params = CertificateParams::default();
    params.key_identifier_method = KeyIdMethod::PreSpecified(params.key_identifier(key));
    params.serial_number = Some(serial().ok_or(CaError::Random)?);
    params.distinguished_name = common_name(session);
    params.not_before = now - BACKDATE;
    params.not_after = now + ROOT_LIFETIME;
    // No CA below this one, and no other use: a workload that obtained a leaf could not extend the
    // chain.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.name_constraints = settings.constraints.as_deref().map(name_constraints);
    Ok(params)
}

/// Returns the key of every leaf of this process. A leaf is worth as much as the CA that signed it.
fn leaf_key() -> Result<Key, CaError> {
    static KEY: OnceLock<Key> = OnceLock::new();
    if let Some(key) = KEY.get() {
        return Ok(key.clone());
    }
    let key = Key::generate().ok_or(CaError::Random)?;
    Ok(KEY.get_or_init(|| key).clone())
}

gateway_names::concealed!(KeptCa);

gateway_names::concealed!(Mint);

fn common_name(session: &SessionId) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    // A common name has at most 64 characters (RFC 5280 appendix A); a session id is ASCII.
    let text = format!("gateway session {session}");
    let text: String = text.chars().take(64).collect();
    name.push(DnType::CommonName, text);
    name
}

/// Returns the list as critical name constraints.
///
/// If no address is listed, all are excluded. If one is, addresses stay unconstrained here, and
/// only our own check ([`Mint::covers`]) enforces the list: BoringSSL (gRPC) rejects every chain in
/// which it would have to check one.
fn name_constraints(hosts: &[Host]) -> NameConstraints {
    let mut permitted: Vec<GeneralSubtree> = hosts
        .iter()
        .filter(|host| host.ip().is_none())
        .map(|host| GeneralSubtree::DnsName(host.as_str().to_owned()))
        .collect();
    if permitted.is_empty() {
        // A name type without a permitted subtree is not constrained at all, so permit one that
        // cannot exist (RFC 6761 §6.4).
        permitted.push(GeneralSubtree::DnsName("invalid".to_owned()));
    }
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let addresses = any.map(|ip| GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(ip, 0)));
    let excluded = if hosts.iter().any(|host| host.ip().is_some()) {
        Vec::new()
    } else {
        addresses.to_vec()
    };
    NameConstraints {
        permitted_subtrees: permitted,
        excluded_subtrees: excluded,
    }
}

fn subject_alt_name(host: &Host) -> Result<SanType, MintRefused> {
    if let Some(ip) = host.ip() {
        return Ok(SanType::IpAddress(ip));
    }
    let name = host.as_str().to_owned().try_into();
    name.map(SanType::DnsName).map_err(|_| MintRefused::Failed)
}

/// Returns 16 bytes, positive and without a leading zero byte, so that the DER integer is minimal
/// (RFC 5280 §4.1.2.2).
pub(super) fn serial() -> Option<SerialNumber> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    bytes[0] = (bytes[0] & 0x3f) | 0x40;
    Some(SerialNumber::from_slice(&bytes))
}

const BACKDATE: Duration = Duration::from_secs(24 * 3600);
const LEAF_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
const ROOT_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const LIFETIME_MAX: Duration = Duration::from_secs(199 * 24 * 3600);
