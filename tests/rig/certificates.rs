//! Certificates of the test's origins: good ones, and each kind of bad one.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The CA of the origins.
pub struct Authority {
    /// Its certificate.
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new CA.
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "rig");
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    fn leaf(&self, name: &str, kind: Kind) -> Arc<CertifiedKey> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = match kind {
            Kind::Good => params.signed_by(&key, &self.issuer),
            Kind::SelfSigned => params.self_signed(&key),
            Kind::OfACa => {
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                params.signed_by(&key, &self.issuer)
            }
            Kind::Expired => {
                params.not_before = date_time_ymd(2020, 1, 1);
                params.not_after = date_time_ymd(2021, 1, 1);
                params.signed_by(&key, &self.issuer)
            }
            Kind::ForClients => {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                params.signed_by(&key, &self.issuer)
            }
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
        Arc::new(CertifiedKey::new(
            vec![certificate.unwrap().der().clone()],
            key,
        ))
    }
}

enum Kind {
    Good,
    SelfSigned,
    OfACa,
    Expired,
    ForClients,
}

/// Chooses the certificate by the name that the gateway asks for.
pub struct ByName(pub Arc<Authority>);

impl std::fmt::Debug for ByName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByName")
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name()?;
        Some(match name {
            "expired.rig.test" => self.0.leaf(name, Kind::Expired),
            "selfsigned.rig.test" => self.0.leaf(name, Kind::SelfSigned),
            "ofaca.rig.test" => self.0.leaf(name, Kind::OfACa),
            "wrongname.rig.test" => self.0.leaf("another.test", Kind::Good),
            "wrongusage.rig.test" => self.0.leaf(name, Kind::ForClients),
            name => self.0.leaf(name, Kind::Good),
        })
    }
}
