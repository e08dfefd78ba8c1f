//! A Java key store (JKS) of trusted certificates, made from PEM.
//!
//! Java reads neither PEM nor the variables of other clients. The format is Sun's own. Every Java
//! from 1.2 on reads it, even if the default is PKCS#12. Its digest uses a publicly known password,
//! so it is a checksum, not a protection.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha1::{Digest, Sha1};

/// Creates a store of all certificates in `pem`, in their order, with the password `changeit`.
///
/// Anything that is not a certificate is left out.
pub fn from_pem(pem: &[u8]) -> Vec<u8> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).flatten().collect();
    let mut store = Vec::with_capacity(pem.len());
    store.extend_from_slice(&MAGIC.to_be_bytes());
    store.extend_from_slice(&VERSION.to_be_bytes());
    store.extend_from_slice(&(certificates.len() as u32).to_be_bytes());
    for (index, certificate) in certificates.iter().enumerate() {
        store.extend_from_slice(&TRUSTED_CERTIFICATE.to_be_bytes());
        text(&mut store, &format!("gateway-{index}"));
        store.extend_from_slice(&0_u64.to_be_bytes()); // Dated 1970; nobody reads the date.
        text(&mut store, "X.509");
        store.extend_from_slice(&(certificate.len() as u32).to_be_bytes());
        store.extend_from_slice(certificate);
    }
    let password: Vec<u8> = PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let digest = Sha1::new()
        .chain_update(password)
        .chain_update(SALT)
        .chain_update(&store)
        .finalize();
    store.extend_from_slice(&digest);
    store
}

fn text(store: &mut Vec<u8>, text: &str) {
    store.extend_from_slice(&(text.len() as u16).to_be_bytes());
    store.extend_from_slice(text.as_bytes());
}

const MAGIC: u32 = 0xFEED_FEED;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
const PASSWORD: &str = "changeit";
const SALT: &[u8] = b"Mighty Aphrodite";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_certificate_of_a_bundle_is_in_the_store_and_junk_is_not() {
        let pem = "# a comment\n-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n\
            -----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n\
            -----BEGIN CERTIFICATE-----\nAwQF\r\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nAAAA";
        let store = from_pem(pem.as_bytes());
        for certificate in [[0, 1, 2], [3, 4, 5]] {
            let with_length = [&[0, 0, 0, 3][..], &certificate].concat();
            assert!(memchr::memmem::find(&store, &with_length).is_some());
        }
        assert_eq!(
            store[..12],
            [0xFE, 0xED, 0xFE, 0xED, 0, 0, 0, 2, 0, 0, 0, 2]
        );
    }

    #[test]
    fn the_installed_java_reads_the_store() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["ca.test".into()])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), from_pem(certificate.pem().as_bytes())).unwrap();
        let java = std::process::Command::new("keytool")
            .args(["-list", "-storepass", PASSWORD, "-keystore"])
            .arg(file.path())
            .output()
            .unwrap();
        let listed = String::from_utf8_lossy(&java.stdout);
        assert!(
            listed.contains("gateway-0") && listed.contains("trustedCertEntry"),
            "{listed}"
        );
    }
}
