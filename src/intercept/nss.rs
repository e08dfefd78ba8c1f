//! The session's CA as an NSS certificate database, which Chromium trusts besides its own list.
//!
//! Chromium reads no variable and none of the system's files. It reads `~/.pki/nssdb/cert9.db`: one
//! SQLite table, in which each column is a PKCS #11 attribute, named by its number. A certificate
//! is one row, and its trust settings are another.

use der::asn1::AnyRef;
use der::{Decode as _, Reader as _, SliceReader};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Why no database is made.
#[derive(Debug, thiserror::Error)]
pub enum NssError {
    /// The certificate is malformed.
    #[error("the session's certificate cannot be read")]
    Certificate,
    /// SQLite failed.
    #[error("the database cannot be made")]
    Database(#[from] rusqlite::Error),
}

/// Makes a database that trusts a CA for server certificates only.
///
/// # Errors
/// [`NssError`]
pub fn database(ca_pem: &str) -> Result<Vec<u8>, NssError> {
    let certificate =
        CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(|_| NssError::Certificate)?;
    let names = CertificateNames::of(&certificate).map_err(|_| NssError::Certificate)?;
    let mut database = Connection::open_in_memory()?;
    database.execute_batch(&schema())?;
    insert(&database, 1, &as_certificate(&certificate, &names))?;
    insert(&database, 2, &as_trusted(&certificate, &names))?;
    Ok(database.serialize("main")?.to_vec())
}

type Attribute = (u32, Vec<u8>);

fn as_certificate(certificate: &[u8], names: &CertificateNames<'_>) -> Vec<Attribute> {
    vec![
        (CLASS, CERTIFICATE.to_be_bytes().to_vec()),
        (TOKEN, TRUE.to_vec()),
        (PRIVATE, FALSE.to_vec()),
        (LABEL, b"gateway".to_vec()),
        (VALUE, certificate.to_vec()),
        (CERTIFICATE_TYPE, X509.to_be_bytes().to_vec()),
        (ISSUER, names.issuer.to_vec()),
        (SERIAL_NUMBER, names.serial.to_vec()),
        (SUBJECT, names.subject.to_vec()),
        (ID, digest(certificate)),
        (MODIFIABLE, TRUE.to_vec()),
    ]
}

fn as_trusted(certificate: &[u8], names: &CertificateNames<'_>) -> Vec<Attribute> {
    vec![
        (CLASS, TRUST.to_be_bytes().to_vec()),
        (TOKEN, TRUE.to_vec()),
        (PRIVATE, FALSE.to_vec()),
        (ISSUER, names.issuer.to_vec()),
        (SERIAL_NUMBER, names.serial.to_vec()),
        (MODIFIABLE, TRUE.to_vec()),
        (SERVER_AUTH, TRUSTED_DELEGATOR.to_be_bytes().to_vec()),
        (CLIENT_AUTH, MUST_VERIFY.to_be_bytes().to_vec()),
        (CODE_SIGNING, MUST_VERIFY.to_be_bytes().to_vec()),
        (EMAIL_PROTECTION, MUST_VERIFY.to_be_bytes().to_vec()),
        (STEP_UP, FALSE.to_vec()),
        (SHA1_HASH, digest(certificate)),
    ]
}

/// NSS finds a certificate's trust by its issuer and number, and compares this digest.
fn digest(certificate: &[u8]) -> Vec<u8> {
    use aws_lc_rs::digest;
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, certificate);
    hash.as_ref().to_vec()
}

fn insert(database: &Connection, id: i64, attributes: &[Attribute]) -> rusqlite::Result<()> {
    let columns: String = attributes
        .iter()
        .map(|(number, _)| format!(", a{number:x}"))
        .collect();
    let places = ", ?".repeat(attributes.len());
    let values = attributes.iter().map(|(_, value)| value.clone());
    let values = std::iter::once(Value::from(id)).chain(values.map(Value::from));
    let sql = format!("INSERT INTO nssPublic (id{columns}) VALUES (?{places})");
    database.execute(&sql, params_from_iter(values)).map(drop)
}

/// Returns the table and its indexes, as NSS makes them.
fn schema() -> String {
    let columns = COLUMNS.split_whitespace().collect::<Vec<_>>().join(", ");
    format!(
        "CREATE TABLE nssPublic (id PRIMARY KEY UNIQUE ON CONFLICT ABORT, {columns});
         CREATE INDEX issuer ON nssPublic (a81);
         CREATE INDEX subject ON nssPublic (a101);
         CREATE INDEX label ON nssPublic (a3);
         CREATE INDEX ckaid ON nssPublic (a102);"
    )
}

/// Parts of a certificate, each in DER with its tag (RFC 5280 §4.1).
struct CertificateNames<'a> {
    serial: &'a [u8],
    issuer: &'a [u8],
    subject: &'a [u8],
}

impl<'a> CertificateNames<'a> {
    fn of(certificate: &'a [u8]) -> der::Result<Self> {
        let certificate = AnyRef::from_der(certificate)?;
        let content = AnyRef::decode(&mut SliceReader::new(certificate.value())?)?;
        let mut parts = SliceReader::new(content.value())?;
        let _version = parts.tlv_bytes()?;
        let serial = parts.tlv_bytes()?;
        let _algorithm = parts.tlv_bytes()?;
        let issuer = parts.tlv_bytes()?;
        let _validity = parts.tlv_bytes()?;
        let subject = parts.tlv_bytes()?;
        Ok(Self {
            serial,
            issuer,
            subject,
        })
    }
}

const CLASS: u32 = 0;
const TOKEN: u32 = 1;
const PRIVATE: u32 = 2;
const LABEL: u32 = 3;
const VALUE: u32 = 0x11;
const CERTIFICATE_TYPE: u32 = 0x80;
const ISSUER: u32 = 0x81;
const SERIAL_NUMBER: u32 = 0x82;
const SUBJECT: u32 = 0x101;
const ID: u32 = 0x102;
const MODIFIABLE: u32 = 0x170;
const SERVER_AUTH: u32 = 0xce53_6358;
const CLIENT_AUTH: u32 = 0xce53_6359;
const CODE_SIGNING: u32 = 0xce53_635a;
const EMAIL_PROTECTION: u32 = 0xce53_635b;
const STEP_UP: u32 = 0xce53_6360;
const SHA1_HASH: u32 = 0xce53_63b4;

const CERTIFICATE: u32 = 1;
const TRUST: u32 = 0xce53_4353;
const X509: u32 = 0;
const TRUSTED_DELEGATOR: u32 = 0xce53_4352;
const MUST_VERIFY: u32 = 0xce53_4353;
const TRUE: [u8; 1] = [1];
const FALSE: [u8; 1] = [0];

const COLUMNS: &str = "
    a0 a1 a2 a3 a10 a11 a12 a80 a81 a82 a83 a84 a85 a86 a87 a88 a89 a8a a8b a90 a100 a101 a102 a103
    a104 a105 a106 a107 a108 a109 a10a a10b a10c a110 a111 a120 a121 a122 a123 a124 a125 a126 a127
    a128 a129 a130 a131 a132 a133 a134 a160 a161 a162 a163 a164 a165 a166 a170 a180 a181 a200 a201
    a202 a210 a300 a301 a302 a400 a401 a402 a403 a404 a405 a406 a480 a481 a482 a500 a501 a502 a503
    a40000211 a40000212 a80000001 ace534351 ace534352 ace534353 ace534354 ace534355 ace534356
    ace534357 ace534358 ace534364 ace534365 ace534366 ace534367 ace534368 ace534369 ace534373
    ace534374 ace536351 ace536352 ace536353 ace536354 ace536355 ace536356 ace536357 ace536358
    ace536359 ace53635a ace53635b ace53635c ace53635d ace53635e ace53635f ace536360 ace5363b4
    ace5363b5 ad5a0db00
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificates_names_are_found_and_no_cut_of_it_is_read() {
        let made = rcgen::generate_simple_self_signed([String::from("a.test")]).unwrap();
        let der = made.cert.der();
        let names = CertificateNames::of(der).unwrap();
        assert_eq!(names.issuer, names.subject);
        assert_eq!((names.serial[0], names.issuer[0]), (0x02, 0x30));
        for end in 0..der.len() {
            assert!(CertificateNames::of(&der[..end]).is_err());
        }
        assert!(database("no certificate").is_err());
    }
}
