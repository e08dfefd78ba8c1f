//! `tls` of `[[listener]]` and `[control]`: the certificate of a server, and the client
//! certificates that it accepts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gateway_credential::SecretRef;
use gateway_files as files;
use gateway_intercept::{Evidence, ProxyTls, ProxyTlsMalformed, ProxyTlsSettings, is_over};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateRevocationListDer, PrivateKeyDer};
use zeroize::Zeroizing;

use crate::certificates::MOST_MIB;
use crate::diagnostic::Hint;
use crate::section::{Section, characters};

/// The TLS between a server of the gateway and its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTls {
    /// Its files, except the key. The workload must not change them.
    pub files: Vec<PathBuf>,
    /// The file of its key.
    pub key: PathBuf,
    door: Arc<ProxyTls>,
}

impl ListenerTls {
    /// Returns the TLS as it is used.
    #[must_use]
    pub fn door(&self) -> Arc<ProxyTls> {
        self.door.clone()
    }
}

/// Reads the table. Client certificates are required if they are the only evidence.
pub(crate) fn tls(
    section: &Section<'_, '_>,
    who: &[Evidence],
    protocols: &'static [&'static [u8]],
) -> Option<ListenerTls> {
    require!(section, "certificate"; "a server shows one in TLS"; "add `certificate = \"proxy.pem\"`");
    require!(section, "key"; "a certificate is shown together with a proof of its key";
        "add `key = \"proxy.key\"`");
    let certificate = section.certificates("certificate");
    let key = section.get("key", |text| key(section.document.path(text)?));
    let roots = section.certificates("client_roots");
    let revoked = section.get("client_crls", |text| lists(section.document.path(text)?));
    let trust_domain = section.get("trust_domain", |text| {
        let fits =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
        let hint = hint!("it is no trust domain"; "write for example `example.org`");
        let domain = characters(text, 255, fits).ok_or(hint)?;
        Ok(format!("spiffe://{domain}"))
    });
    check_clients(section, who);
    let (chain, key) = (certificate?.1, key?);
    if chain.first().is_some_and(is_over) {
        warning!(section, "certificate", "the time of the certificate is over";
            "clients refuse it"; "renew it; the new file is taken up by itself");
    }
    let settings = ProxyTlsSettings {
        chain,
        key,
        roots: roots.map_or_else(Vec::new, |(_, roots)| roots),
        revoked: revoked.unwrap_or_default(),
        trust_domain,
        is_optional: *who != [Evidence::Certificate],
        protocols,
    };
    let refuse = |(key, why): ProxyTlsMalformed| {
        mistake!(section, key, "`{key}` cannot be used"; "{why}";
            "name the file that goes with the others");
    };
    let door = Arc::new(ProxyTls::new(settings).map_err(refuse).ok()?);
    let files = ["certificate", "client_roots", "client_crls"];
    Some(ListenerTls {
        files: files.iter().filter_map(|file| section.path(file)).collect(),
        key: section.path("key")?,
        door,
    })
}

/// Refuses settings for client certificates that `who` does not ask for.
fn check_clients(section: &Section<'_, '_>, who: &[Evidence]) {
    if who.contains(&Evidence::Certificate) {
        require!(section, "client_roots"; "no client certificate could be verified";
            "add `client_roots = \"clients.pem\"`");
    } else {
        let of_clients = ["client_roots", "client_crls", "trust_domain"];
        let why = hint!("the listener asks for none"; "write `who = [\"certificate\"]`");
        section.refuse(&of_clients, "is of client certificates", why);
    }
}

/// Reads the key of a certificate. Its file must be as private as any secret.
fn key(path: PathBuf) -> Result<PrivateKeyDer<'static>, Hint> {
    SecretRef::file(&path).check()?;
    let text = Zeroizing::new(read(&path)?);
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes());
    key.map_err(|_| hint!("the file holds no key"; "write the key as PEM"))
}

/// Reads certificate revocation lists.
fn lists(path: PathBuf) -> Result<Vec<CertificateRevocationListDer<'static>>, Hint> {
    let text = read(&path)?;
    let lists = CertificateRevocationListDer::pem_slice_iter(text.as_bytes());
    let lists: Result<Vec<_>, _> = lists.collect();
    let found = lists.ok().filter(|lists| !lists.is_empty());
    found.ok_or(hint!("the file holds no list of revoked certificates"; "write the lists as PEM"))
}

fn read(path: &Path) -> Result<String, Hint> {
    files::read(path, MOST_MIB).map_err(|unfit| Hint::of(&unfit, path))
}
