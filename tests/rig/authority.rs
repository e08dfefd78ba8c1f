//! An authority of client and server certificates, with lists of those that it revoked.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use time::OffsetDateTime;

/// An authority, and its own certificate as PEM.
pub struct Authority(Issuer<'static, KeyPair>, pub String);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let name = format!("{:?}", &key.public_key_raw()[..16]);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self(Issuer::new(params, key), pem)
    }

    /// Writes `NAME.pem` and `NAME.key`.
    pub fn issue(&self, folder: &Path, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.0).unwrap();
        fs::write(folder.join(format!("{name}.pem")), leaf.pem()).unwrap();
        let path = folder.join(format!("{name}.key"));
        fs::write(&path, key.serialize_pem()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }

    /// A list of the certificates of these serial numbers.
    pub fn list(&self, serials: &[u64]) -> String {
        let now = OffsetDateTime::now_utc();
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: now,
            next_update: now + Duration::from_secs(3600),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

/// A client of this common name and these URIs.
pub fn client<'a>(name: &'a str, uris: &'a [&str]) -> impl FnOnce(&mut CertificateParams) + 'a {
    move |params| {
        if !name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        let uris = uris.iter().map(|uri| (*uri).try_into().unwrap());
        params.subject_alt_names = uris.map(SanType::URI).collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.serial_number = Some(SerialNumber::from(7));
    }
}
