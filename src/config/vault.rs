//! `[vault]`: where a Vault or OpenBao server is, and how the gateway logs in to it.

use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;

use crate::credential::{LoginMethod, SecretRef, VaultLogin, VaultSettings};
use crate::message::{Authority, HostPattern, Origin, Scheme};

use super::certificates::{Certificates, certificates};
use super::diagnostic::Hint;
use super::section::Section;
use super::{network, reference, units};

/// The login methods, each with its required and its optional keys.
const LOGINS: [(&str, &[&str], &[&str]); 5] = [
    ("token", &["token"], &[]),
    ("approle", &["role_id"], &["secret_id", "mount"]),
    ("jwt", &["role", "jwt"], &["mount"]),
    ("kubernetes", &["role"], &["token_file", "mount"]),
    (
        "cert",
        &["client_certificate", "client_key"],
        &["role", "mount"],
    ),
];

/// The values of a login's keys.
struct Keys {
    token: Option<SecretRef>,
    role: Option<String>,
    role_id: Option<String>,
    secret_id: Option<SecretRef>,
    jwt: Option<SecretRef>,
    token_file: Option<PathBuf>,
    certificate: Option<Certificates>,
    key: Option<SecretRef>,
    mount: Option<String>,
}

pub(super) fn vault(section: &Section<'_, '_>) -> Option<VaultSettings> {
    if !section.has("addresses") {
        let remedy = "add `addresses = [\"https://vault.example:8200\"]`";
        section.missing("addresses", "it says where the vault is", remedy);
    }
    let servers = values(section.each("addresses", server));
    let roots = section.each("roots", |text| certificates(section.document.path(text)?));
    let namespace = section.parsed("namespace", path);
    let ttl = section.parsed("ttl", |text| units::within_a_day(text, 1));
    let max_stale = section.parsed("max_stale", |text| units::within_a_day(text, 0));
    let keys = keys(section);
    let (mut files, roots): (Vec<_>, Vec<_>) = values(roots).into_iter().unzip();
    files.extend(keys.certificate.iter().map(|(file, _)| file.clone()));
    let login = login(section, keys)?;
    (!servers.is_empty()).then(|| VaultSettings {
        servers,
        roots: roots.concat(),
        files,
        namespace: namespace.map(Spanned::into_inner),
        login,
        ttl: ttl.map_or(DEFAULT_TTL, Spanned::into_inner),
        max_stale: max_stale.map_or(DEFAULT_STALE, Spanned::into_inner),
    })
}

fn keys(section: &Section<'_, '_>) -> Keys {
    let text = |key| section.parsed(key, word).map(Spanned::into_inner);
    let local = |key| local(section, key);
    Keys {
        token: local("token"),
        role: text("role"),
        role_id: text("role_id"),
        secret_id: local("secret_id"),
        jwt: local("jwt"),
        token_file: section
            .parsed("token_file", |text| section.document.path(text))
            .map(Spanned::into_inner),
        certificate: section
            .parsed("client_certificate", |text| {
                certificates(section.document.path(text)?)
            })
            .map(Spanned::into_inner),
        key: local("client_key"),
        mount: section.parsed("mount", path).map(Spanned::into_inner),
    }
}

fn login(section: &Section<'_, '_>, keys: Keys) -> Option<VaultLogin> {
    let words = LOGINS.map(|(word, ..)| (word, word));
    if !section.has("login") {
        let remedy = "add `login = \"approle\"`, `jwt`, `kubernetes`, `cert` or `token`";
        section.missing("login", "it says how the gateway gets its token", remedy);
    }
    let chosen = section.choice("login", &words)?;
    let (_, needed, _) = LOGINS.iter().find(|(word, ..)| *word == chosen)?;
    for key in *needed {
        if !section.has(key) {
            let why = format!("`login = \"{chosen}\"` needs it");
            section.missing(key, &why, &format!("add `{key} = \"…\"`"));
        }
    }
    refuse_others(section, chosen);
    let method = match chosen {
        "token" => return Some(VaultLogin::Token(keys.token?)),
        "approle" => LoginMethod::AppRole {
            role_id: keys.role_id?,
            secret_id: keys.secret_id,
        },
        "jwt" => LoginMethod::Jwt {
            role: keys.role?,
            jwt: keys.jwt?,
        },
        "kubernetes" => LoginMethod::Kubernetes {
            role: keys.role?,
            token_file: keys.token_file.unwrap_or_else(|| SERVICE_ACCOUNT.into()),
        },
        _ => LoginMethod::Certificate {
            role: keys.role,
            chain: keys.certificate?.1,
            key: key_file(section, &keys.key?)?,
        },
    };
    Some(VaultLogin::Method {
        mount: keys.mount.unwrap_or_else(|| chosen.to_owned()),
        method,
    })
}

/// Refuses keys that the chosen login does not use, since they would have no effect.
fn refuse_others(section: &Section<'_, '_>, chosen: &str) {
    let uses = |(word, needed, allowed): &(&str, &[&str], &[&str]), key: &str| {
        *word == chosen && (needed.contains(&key) || allowed.contains(&key))
    };
    for key in LOGIN_KEYS {
        if section.has(key) && !LOGINS.iter().any(|login| uses(login, key)) {
            let what = format!("`{key}` does not belong to `login = \"{chosen}\"`");
            let hint = Hint::new("the login does not use it", format!("remove `{key}`"));
            section.error(key, what, hint);
        }
    }
}

/// Reads a reference to a store of this machine: one to a secret with which the gateway itself logs
/// in.
pub(super) fn local(section: &Section<'_, '_>, key: &'static str) -> Option<SecretRef> {
    let from = reference::read(section, key, "")?.allowing_short(true);
    if from.is_in_vault() {
        let hint = Hint::new(
            "what the gateway itself logs in with is kept on this machine",
            "write `env:NAME`, `file:/path` or `keyring:gateway/NAME`",
        );
        section.error(key, format!("`{key}` is kept in the vault"), hint);
        return None;
    }
    Some(from)
}

fn key_file(section: &Section<'_, '_>, key: &SecretRef) -> Option<PathBuf> {
    if key.path().is_none() {
        let why = "the key of a client certificate is read from a PEM file";
        let hint = Hint::new(why, "write `client_key = \"file:/path/key.pem\"`");
        section.error("client_key", "`client_key` is no file", hint);
    }
    key.path().map(PathBuf::from)
}

fn server(text: &str) -> Result<Origin, Hint> {
    let pattern = network::origin(text)?;
    if pattern.scheme == Scheme::Http && !pattern.is_loopback() {
        return Err(Hint::new(
            "secrets would travel in clear text; `http` is for loopback addresses alone",
            "write `https://`",
        ));
    }
    match pattern.hosts {
        HostPattern::Exact(host) => Ok(Origin {
            scheme: pattern.scheme,
            authority: Authority {
                host,
                port: pattern.port,
            },
        }),
        HostPattern::Below(_) => Err(Hint::new(
            "an address is that of one server",
            "write `https://vault.example:8200`",
        )),
    }
}

/// Checks a mount or a namespace, such as `auth-agents` or `team/one`.
fn path(text: &str) -> Result<String, Hint> {
    let text = text.trim_matches('/');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.bytes().all(fits);
    match text.split('/').all(is_name) && text.len() <= 256 {
        true => Ok(text.to_owned()),
        false => Err(Hint::new(
            "a mount or namespace has names of the characters A-Z, a-z, 0-9 and `-_.`",
            "write for example `team/one`",
        )),
    }
}

pub(super) fn word(text: &str) -> Result<String, Hint> {
    match (1..=256).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err(Hint::new(
            "it has 1 to 256 visible characters",
            "write the name or id",
        )),
    }
}

fn values<T>(items: Vec<Spanned<T>>) -> Vec<T> {
    items.into_iter().map(Spanned::into_inner).collect()
}

const LOGIN_KEYS: [&str; 9] = [
    "token",
    "role",
    "role_id",
    "secret_id",
    "jwt",
    "token_file",
    "client_certificate",
    "client_key",
    "mount",
];
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const DEFAULT_TTL: Duration = Duration::from_secs(300);
const DEFAULT_STALE: Duration = Duration::from_secs(3600);
