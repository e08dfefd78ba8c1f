//! Several gateways with one state: a real PostgreSQL, and replicas of the shipped program.

#[path = "../rig/addresses.rs"]
mod addresses;
mod database;
mod decided;
mod faults;
mod replica;
#[expect(dead_code, reason = "the tests of Vault use the rest of it")]
#[path = "../vault/server.rs"]
mod server;
mod start;
mod store;
mod temporary;

use std::sync::{Arc, OnceLock};

use database::Databases;

/// The one server of all tests of this program. It ends with the last of them.
fn databases() -> Arc<Databases> {
    static SERVER: OnceLock<std::sync::Mutex<std::sync::Weak<Databases>>> = OnceLock::new();
    let mut held = SERVER
        .get_or_init(std::sync::Mutex::default)
        .lock()
        .unwrap();
    held.upgrade().unwrap_or_else(|| {
        let started = Arc::new(Databases::start());
        *held = Arc::downgrade(&started);
        started
    })
}

/// Settings of TLS that trust this root, or none.
fn tls(root: Option<&str>) -> Arc<rustls::ClientConfig> {
    use rustls::pki_types::pem::PemObject as _;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut roots = rustls::RootCertStore::empty();
    let root = root.map(|pem| rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()));
    if let Some(root) = root {
        roots.add(root.unwrap()).unwrap();
    }
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}
