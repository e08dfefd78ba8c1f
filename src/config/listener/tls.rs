//! `tls` of `[[listener]]`: the certificate of a proxy, and the client certificates that it takes.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateRevocationListDer, PrivateKeyDer};

use crate::config::certificates::MOST_MIB;
use crate::config::diagnostic::Hint;
use crate::config::section::{Section, characters};
use crate::credential::SecretRef;
use crate::files;
use crate::intercept::{ClientTrust, DoorMalformed, DoorSettings, DoorTls, Evidence, is_over};

/// The TLS that the clients of a proxy speak to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTls {
    /// Its files, which the workload must not change, but for the key.
    pub files: Vec<PathBuf>,
    /// The file of its key.
    pub key: PathBuf,
    pub(super) door: Arc<DoorTls>,
}

/// Reads the table. Client certificates are needed, or one kind of evidence among others.
pub(super) fn tls(section: &Section<'_, '_>, who: &[Evidence]) -> Option<ListenerTls> {
    require!(section, "certificate"; "a proxy shows one in TLS"; "add `certificate = \"proxy.pem\"`");
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
        characters(text, 255, fits).ok_or(hint)
    });
    check_clients(section, who);
    let ((file, chain), (key_file, key)) = certificate.zip(key)?;
    if chain.first().is_some_and(is_over) {
        warning!(section, "certificate", "the time of the certificate is over";
            "clients refuse it"; "renew it; the new file is taken up by itself");
    }
    let mut files = vec![file];
    let clients = roots.map(|(file, roots)| {
        files.push(file);
        ClientTrust {
            roots,
            trust_domain,
            is_optional: *who != [Evidence::Certificate],
            revoked: revoked.map_or_else(Vec::new, |(file, lists)| {
                files.push(file);
                lists
            }),
        }
    });
    let made = DoorTls::new(DoorSettings {
        chain,
        key,
        clients,
    });
    let refuse = |malformed: DoorMalformed| {
        let (key, remedy) = match malformed {
            DoorMalformed::Key => ("key", "name the key that the certificate was made for"),
            DoorMalformed::Certificate(_) => ("certificate", "write the proxy's own one first"),
            DoorMalformed::Roots(_) => ("client_roots", "write certificates of authorities alone"),
            DoorMalformed::Revoked(_) => ("client_crls", "write lists of those authorities"),
        };
        mistake!(section, key, "`{key}` cannot be used"; "{malformed}"; "{remedy}");
    };
    let door = Arc::new(made.map_err(refuse).ok()?);
    Some(ListenerTls {
        files,
        key: key_file,
        door,
    })
}

/// Refuses settings for client certificates that nobody asks for.
fn check_clients(section: &Section<'_, '_>, who: &[Evidence]) {
    if !who.contains(&Evidence::Certificate) {
        section.refuse(
            &["client_roots", "client_crls", "trust_domain"],
            "is of client certificates",
            hint!("the listener asks for none"; "write `who = [\"certificate\"]`"),
        );
        return;
    }
    require!(section, "client_roots"; "no client certificate could be verified";
        "add `client_roots = \"clients.pem\"`");
}

/// Reads the key of a certificate, which is this user's alone.
fn key(path: PathBuf) -> Result<(PathBuf, PrivateKeyDer<'static>), Hint> {
    SecretRef::file(&path).check()?;
    let text = zeroize::Zeroizing::new(read(&path)?);
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes());
    let key = key.map_err(|_| hint!("the file holds no key"; "write the key as PEM"))?;
    Ok((path, key))
}

/// Reads lists of revoked certificates.
fn lists(path: PathBuf) -> Result<(PathBuf, Vec<CertificateRevocationListDer<'static>>), Hint> {
    let text = read(&path)?;
    let lists = CertificateRevocationListDer::pem_slice_iter(text.as_bytes());
    match lists.collect::<Result<Vec<_>, _>>() {
        Ok(lists) if !lists.is_empty() => Ok((path, lists)),
        _ => refused!("the file holds no list of revoked certificates"; "write the lists as PEM"),
    }
}

fn read(path: &std::path::Path) -> Result<String, Hint> {
    files::read(path, MOST_MIB).map_err(|unfit| Hint::of(&unfit, path))
}
