//! `[[origin]]`: how certain origins are reached and verified, and the exceptions to the address
//! floor.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use toml::Spanned;

use crate::credential::SecretRef;
use crate::message::{OriginPattern, Scheme};

use super::mistake::Doubt;
use super::network::{self, Network};
use super::page::Section;
use super::pattern;
use super::reference;

/// Says how the origins of a pattern are reached and verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginRule {
    /// The origins that it is about.
    pub matches: OriginPattern,
    /// Files with further roots.
    pub roots: Vec<PathBuf>,
    /// Whether those roots replace the system's.
    pub only_roots: bool,
    /// The client certificate that these origins ask for.
    pub identity: Option<ClientIdentity>,
    /// Networks that the address floor does not keep these origins from.
    pub addresses: Vec<Network>,
    /// The address that is connected to instead of asking DNS; it is an exception to the floor by
    /// itself.
    pub connect: Option<SocketAddr>,
    /// The HTTP version that these origins speak.
    pub http: HttpVersion,
    /// Whether `%2F` in a path is kept instead of refused.
    pub encoded_slash: bool,
    /// Whether `_` and `.` may stand in the names of fields.
    pub underscores: bool,
    /// Whether these origins may be spoken to without TLS.
    pub cleartext: bool,
}

/// Holds a client certificate and where its key is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The file of the certificate chain.
    pub certificate: PathBuf,
    /// Where the key is kept.
    pub key: SecretRef,
}

/// Names the HTTP version that an origin speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// What ALPN agrees on.
    Auto,
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2 alone.
    Http2,
}

pub(super) fn origin(section: &Section<'_, '_>) -> Option<OriginRule> {
    if !section.has("match") {
        section.missing(
            "match",
            "it says which origins the settings are for",
            "add `match = \"https://*.corp.test\"`",
        );
    }
    let matches = section.parsed("match", pattern::origin);
    let roots = section.each("roots", |text| certificates(section.page.path(text)?));
    let addresses = section.each("addresses", Network::exception);
    let connect = section.parsed("connect", |text| {
        let address = text.parse::<SocketAddr>().map_err(|_| {
            Doubt::new(
                "it is no address and port; names are not looked up",
                "write for example `127.0.0.1:8443`",
            )
        })?;
        network::reachable(address.ip())?;
        if address.port() == 0 {
            return Err(Doubt::new("port 0 is none", "write the port of the origin"));
        }
        Ok(address)
    });
    let versions = [
        ("auto", HttpVersion::Auto),
        ("1.1", HttpVersion::Http1),
        ("2", HttpVersion::Http2),
    ];
    let rule = OriginRule {
        roots: roots.into_iter().map(Spanned::into_inner).collect(),
        only_roots: section.truth("only_roots").unwrap_or(false),
        identity: identity(section),
        addresses: addresses.into_iter().map(Spanned::into_inner).collect(),
        connect: connect.map(Spanned::into_inner),
        http: section
            .choice("http", &versions)
            .unwrap_or(HttpVersion::Auto),
        encoded_slash: section.truth("encoded_slash").unwrap_or(false),
        underscores: section.truth("underscores").unwrap_or(false),
        cleartext: section.truth("cleartext").unwrap_or(false),
        matches: matches?.into_inner(),
    };
    contradictions(section, &rule);
    Some(rule)
}

fn identity(section: &Section<'_, '_>) -> Option<ClientIdentity> {
    let certificate = section.parsed("client_certificate", |text| {
        certificates(section.page.path(text)?)
    });
    let key = reference::read(section, "client_key", "");
    for (key, other) in [
        ("client_certificate", "client_key"),
        ("client_key", "client_certificate"),
    ] {
        if section.has(key) && !section.has(other) {
            let why = "a client certificate is presented together with a proof of its key";
            section.error(
                key,
                format!("`{key}` stands without `{other}`"),
                Doubt::new(why, format!("add `{other}`")),
            );
        }
    }
    Some(ClientIdentity {
        certificate: certificate?.into_inner(),
        key: key?,
    })
}

/// Checks that a file holds at least one certificate and nothing that is none.
pub(super) fn certificates(path: PathBuf) -> Result<PathBuf, Doubt> {
    let read = std::fs::read(&path).map_err(|error| {
        Doubt::new(
            format!("the file cannot be read: {error}"),
            "create it, or correct the path",
        )
    })?;
    let count = CertificateDer::pem_slice_iter(&read)
        .try_fold(0_usize, |count, certificate| certificate.map(|_| count + 1))
        .map_err(|_| Doubt::new("the file is damaged PEM", "write the certificates as PEM"))?;
    if count == 0 {
        return Err(Doubt::new(
            "the file holds no certificate",
            "write the certificates as PEM",
        ));
    }
    Ok(path)
}

fn contradictions(section: &Section<'_, '_>, rule: &OriginRule) {
    let error = |key: &'static str, what: &str, why: &str, remedy: &str| {
        section.error(key, what, Doubt::new(why, remedy))
    };
    if rule.only_roots && !section.has("roots") {
        error(
            "only_roots",
            "`only_roots` stands without `roots`",
            "no origin could be verified",
            "add `roots`, or remove `only_roots`",
        );
    }
    if rule.connect.is_some() && section.has("addresses") {
        error(
            "addresses",
            "`addresses` contradicts `connect`",
            "with a fixed address no other one is ever dialled",
            "remove one of the two",
        );
    }
    if rule.matches.scheme == Scheme::Https {
        if rule.cleartext {
            error(
                "cleartext",
                "`cleartext` contradicts `match`",
                "an https origin is always spoken to by TLS",
                "remove `cleartext`",
            );
        }
        return;
    }
    let local = rule.matches.is_loopback()
        || rule
            .connect
            .is_some_and(|address| address.ip().to_canonical().is_loopback());
    if rule.cleartext && !local {
        error(
            "cleartext",
            "`cleartext` is for an origin beyond loopback",
            "credentials and content would be readable and changeable on the way",
            "use https, or `connect` to a tunnel's end on loopback",
        );
    }
    for key in ["roots", "only_roots", "client_certificate"] {
        if section.has(key) {
            let what = format!("`{key}` contradicts `match`");
            section.error(
                key,
                what,
                Doubt::new(
                    "an http origin shows no certificate",
                    "write `https://`, or remove the key",
                ),
            );
        }
    }
    if rule.http == HttpVersion::Http2 {
        error(
            "http",
            "`http = \"2\"` contradicts `match`",
            "HTTP/2 is spoken over TLS only",
            "write `http = \"1.1\"`, or `https://`",
        );
    }
}

impl OriginRule {
    /// The paths that the rule reads, which the workload must not change.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let identity = self
            .identity
            .iter()
            .map(|identity| identity.certificate.as_path());
        self.roots.iter().map(PathBuf::as_path).chain(identity)
    }
}
