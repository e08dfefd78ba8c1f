//! Makes the certificates of a session: its root, and leaves for hosts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyIdMethod, KeyUsagePurpose,
    NameConstraints, SanType, SerialNumber,
};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;

use super::key::Key;
use crate::message::Host;
use crate::names::{ReasonCode, SessionId};

/// How a session's CA is made.
#[derive(Debug, Clone)]
pub struct CaSettings {
    /// How long the CA is valid from now; the session's longest lifetime. At most 199 days, so that
    /// with the backdating it stays within the 200 days that Chromium accepts. A leaf lives for at
    /// most 7 days.
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
    #[error("a session CA lives from one second to 199 days")]
    Lifetime,
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

/// Why no leaf is made for a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MintRefused {
    /// No policy could permit a request to this host.
    #[error("no policy reaches this host")]
    NotPermitted,
    /// The session's closed list of hosts does not contain it.
    #[error("the host is outside the session's list")]
    OutsideConstraints,
    /// The session requested too many new names.
    #[error("too many new host names")]
    Throttled,
    /// The CA's life is over.
    #[error("the session's CA has expired")]
    Ended,
    /// The leaf cannot be encoded or signed.
    #[error("the certificate cannot be made")]
    Failed,
}

impl MintRefused {
    /// The short code for audit and refusals.
    #[must_use]
    pub fn reason(self) -> ReasonCode {
        match self {
            Self::NotPermitted | Self::OutsideConstraints => ReasonCode::HostNotPermitted,
            Self::Throttled => ReasonCode::MintThrottled,
            Self::Ended => ReasonCode::SessionEnded,
            Self::Failed => ReasonCode::MintFailed,
        }
    }
}

/// The keys of a session's CA and what is needed to sign with them.
pub(super) struct Mint {
    root: Certificate,
    issuer: Issuer<'static, Key>,
    leaf_key: Key,
    leaf_key_id: Vec<u8>,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
    constraints: Option<Vec<Host>>,
}

impl Mint {
    /// Makes the keys and the root of a session.
    pub(super) fn new(
        session: &SessionId,
        settings: &CaSettings,
        now: OffsetDateTime,
    ) -> Result<Self, CaError> {
        if settings.lifetime < Duration::from_secs(1) || settings.lifetime > LIFETIME_MAX {
            return Err(CaError::Lifetime);
        }
        let key = Key::generate().ok_or(CaError::Random)?;
        let leaf_key = Key::generate().ok_or(CaError::Random)?;
        let mut params = CertificateParams::default();
        params.key_identifier_method = KeyIdMethod::PreSpecified(params.key_identifier(&key));
        let leaf_key_id = CertificateParams::default().key_identifier(&leaf_key);
        params.serial_number = Some(serial().ok_or(CaError::Random)?);
        params.distinguished_name = common_name(session);
        params.not_before = now - BACKDATE;
        params.not_after = now + settings.lifetime;
        // No CA below this one, and no other use: a workload that obtained a leaf could not extend
        // the chain.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.name_constraints = settings.constraints.as_deref().map(name_constraints);
        let root = params.self_signed(&key).map_err(CaError::Encoding)?;
        Ok(Self {
            root,
            not_before: params.not_before,
            not_after: params.not_after,
            issuer: Issuer::new(params, key),
            leaf_key,
            leaf_key_id,
            constraints: settings.constraints.clone(),
        })
    }

    /// The root's certificate.
    pub(super) fn root(&self) -> &Certificate {
        &self.root
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

    /// Signs a leaf for exactly one host, and returns when to renew it.
    ///
    /// The subject is empty and the SAN therefore critical (RFC 5280 §4.2.1.6): a host name may be
    /// longer than the 64 characters of a common name, and no current client reads one.
    pub(super) fn leaf(
        &self,
        host: &Host,
        now: OffsetDateTime,
    ) -> Result<(CertifiedKey, OffsetDateTime), MintRefused> {
        if now >= self.not_after {
            return Err(MintRefused::Ended);
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = vec![subject_alt_name(host)?];
        params.serial_number = Some(serial().ok_or(MintRefused::Failed)?);
        params.not_before = (now - BACKDATE).max(self.not_before);
        params.not_after = (params.not_before + LEAF_LIFETIME).min(self.not_after);
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

impl fmt::Debug for Mint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mint").finish_non_exhaustive()
    }
}

fn common_name(session: &SessionId) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    // A common name has at most 64 characters (RFC 5280 appendix A); a session id is ASCII.
    let text: String = format!("gateway session {session}")
        .chars()
        .take(64)
        .collect();
    name.push(DnType::CommonName, text);
    name
}

/// The list as critical name constraints.
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
    Ok(match host.ip() {
        Some(ip) => SanType::IpAddress(ip),
        None => SanType::DnsName(
            host.as_str()
                .to_owned()
                .try_into()
                .map_err(|_| MintRefused::Failed)?,
        ),
    })
}

/// 16 bytes, positive and without a leading zero byte, so that the DER integer is minimal (RFC 5280
/// §4.1.2.2).
pub(super) fn serial() -> Option<SerialNumber> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    bytes[0] = (bytes[0] & 0x3f) | 0x40;
    Some(SerialNumber::from_slice(&bytes))
}

const BACKDATE: Duration = Duration::from_secs(24 * 3600);
const LEAF_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
const LIFETIME_MAX: Duration = Duration::from_secs(199 * 24 * 3600);
