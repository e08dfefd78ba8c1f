//! A Java key store (JKS) of trusted certificates, made from PEM.
//!
//! Java reads no PEM and no variable of other clients. The format is Sun's own, and every Java from
//! 1.2 on reads it, also where the default is PKCS#12. Its digest under a password that everyone
//! knows is a checksum, not a protection.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Makes the store of all certificates in `pem`, in their order, with the password `changeit`.
///
/// What is no certificate is left out.
pub fn from_pem(pem: &[u8]) -> Vec<u8> {
    let certificates = certificates(pem);
    let mut store = Vec::with_capacity(pem.len());
    store.extend_from_slice(&MAGIC.to_be_bytes());
    store.extend_from_slice(&VERSION.to_be_bytes());
    store.extend_from_slice(&(certificates.len() as u32).to_be_bytes());
    for (index, certificate) in certificates.iter().enumerate() {
        store.extend_from_slice(&TRUSTED_CERTIFICATE.to_be_bytes());
        text(&mut store, &format!("gateway-{index}"));
        store.extend_from_slice(&0_u64.to_be_bytes()); // Made in 1970: nobody reads the date.
        text(&mut store, "X.509");
        store.extend_from_slice(&(certificate.len() as u32).to_be_bytes());
        store.extend_from_slice(certificate);
    }
    let mut digested: Vec<u8> = PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
    digested.extend_from_slice(SALT);
    digested.extend_from_slice(&store);
    store.extend_from_slice(&sha1(&digested));
    store
}

fn certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(pem);
    let mut found = Vec::new();
    let mut rest: &str = &text;
    while let Some((_, after)) = rest.split_once("-----BEGIN CERTIFICATE-----") {
        let Some((body, after)) = after.split_once("-----END CERTIFICATE-----") else {
            break;
        };
        let body: Vec<u8> = body
            .bytes()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        found.extend(STANDARD.decode(body));
        rest = after;
    }
    found
}

fn text(store: &mut Vec<u8>, text: &str) {
    store.extend_from_slice(&(text.len() as u16).to_be_bytes());
    store.extend_from_slice(text.as_bytes());
}

/// FIPS 180-4 §6.1. Fit for this checksum, and for nothing else.
fn sha1(message: &[u8]) -> [u8; 20] {
    let mut state = [
        0x6745_2301_u32,
        0xEFCD_AB89,
        0x98BA_DCFE,
        0x1032_5476,
        0xC3D2_E1F0,
    ];
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        for i in 16..80 {
            words[i] = (words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (i, word) in words.iter().enumerate() {
            let (f, k) = match i / 20 {
                0 => ((b & c) | (!b & d), 0x5A82_7999),
                1 => (b ^ c ^ d, 0x6ED9_EBA1),
                2 => ((b & c) | (b & d) | (c & d), 0x8F1B_BCDC),
                _ => (b ^ c ^ d, 0xCA62_C1D6),
            };
            let next = a
                .rotate_left(5)
                .wrapping_add(f)
                .wrapping_add(e)
                .wrapping_add(k)
                .wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (old, new) in state.iter_mut().zip([a, b, c, d, e]) {
            *old = old.wrapping_add(new);
        }
    }
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

const MAGIC: u32 = 0xFEED_FEED;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
const PASSWORD: &str = "changeit";
const SALT: &[u8] = b"Mighty Aphrodite";

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn the_digest_is_that_of_the_standards_examples() {
        assert_eq!(
            hex(&sha1(b"abc")),
            "a9993e364706816aba3e25717850c26c9cd0d89d"
        );
        assert_eq!(hex(&sha1(b"")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(
            hex(&sha1(
                b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"
            )),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1"
        );
        assert_eq!(
            hex(&sha1(&[b'a'; 1_000_000])),
            "34aa973cd4c4daa4f61eeb2bdbad27316534016f"
        );
    }

    #[test]
    fn every_certificate_of_a_bundle_is_in_the_store_and_junk_is_not() {
        let pem = "# a comment\n-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n\
            -----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n\
            -----BEGIN CERTIFICATE-----\nAwQF\r\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nAAAA";
        assert_eq!(certificates(pem.as_bytes()), [vec![0, 1, 2], vec![3, 4, 5]]);
        let store = from_pem(pem.as_bytes());
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
