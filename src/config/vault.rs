//! `[vault]`: the address of a Vault or OpenBao server, and the gateway's login to it.

use std::path::PathBuf;
use std::time::Duration;

use gateway_credential::{LoginMethod, SecretRef, VaultLogin, VaultSettings};
use gateway_message::Origin;

use super::certificates::Certificates;
use super::diagnostic::Hint;
use super::section::{Section, Variant, characters};
use super::{network, reference, units};

/// The login methods, each with its required and its optional keys.
const LOGINS: [Variant; 5] = [
    ("token", "token", ""),
    ("approle", "role_id", "secret_id mount"),
    ("jwt", "role jwt", "mount"),
    ("kubernetes", "role", "token_file mount"),
    ("cert", "client_certificate client_key", "role mount"),
];

pub(super) fn vault(section: &Section<'_, '_>) -> Option<VaultSettings> {
    require!(section, "addresses"; "it says where the vault is";
        "add `addresses = [\"https://vault.example:8200\"]`");
    let servers = section.all("addresses", server);
    let (mut files, roots) = section.roots("roots");
    let namespace = section.get("namespace", path);
    let ttl = section.get("ttl", |text| units::within_a_day(text, 1));
    let max_stale = section.get("max_stale", |text| units::within_a_day(text, 0));
    let certificate = section.certificates("client_certificate");
    files.extend(certificate.iter().map(|(file, _)| file.clone()));
    let login = login(section, certificate)?;
    (!servers.is_empty()).then(|| VaultSettings {
        servers,
        roots,
        files,
        namespace,
        login,
        ttl: ttl.unwrap_or(DEFAULT_TTL),
        max_stale: max_stale.unwrap_or(DEFAULT_STALE),
    })
}

fn login(section: &Section<'_, '_>, certificate: Option<Certificates>) -> Option<VaultLogin> {
    let local = |key| local(section, key);
    let (token, secret_id) = (local("token"), local("secret_id"));
    let (jwt, key) = (local("jwt"), local("client_key"));
    let (role, role_id) = (section.get("role", word), section.get("role_id", word));
    let token_file = section.path("token_file");
    let mount = section.get("mount", path);
    require!(section, "login"; "it says how the gateway gets its token";
        "add `login = \"approle\"`, `jwt`, `kubernetes`, `cert` or `token`");
    let chosen = section.choice("login", &LOGINS.map(|(word, ..)| (word, word)))?;
    section.variant(("login", chosen), (&LOGINS, COMMON));
    let method = match chosen {
        "token" => return token.map(VaultLogin::Token),
        "approle" => LoginMethod::AppRole {
            role_id: role_id?,
            secret_id,
        },
        "jwt" => LoginMethod::Jwt {
            role: role?,
            jwt: jwt?,
        },
        "kubernetes" => LoginMethod::Kubernetes {
            role: role?,
            token_file: token_file.unwrap_or_else(|| SERVICE_ACCOUNT.into()),
        },
        _ => LoginMethod::Certificate {
            role,
            chain: certificate?.1,
            key: key_file(section, &key?)?,
        },
    };
    Some(VaultLogin::Method {
        mount: mount.unwrap_or_else(|| chosen.to_owned()),
        method,
    })
}

/// Reads a reference to a secret of the gateway's own login, which must be stored on this machine.
pub(super) fn local(section: &Section<'_, '_>, key: &'static str) -> Option<SecretRef> {
    let from = reference::read(section, key, "")?.allowing_short(true);
    if from.is_in_vault() {
        mistake!(section, key, "`{key}` is kept in the vault";
            "what the gateway itself logs in with is kept on this machine";
            "write `env:NAME`, `file:/path` or `keyring:gateway/NAME`");
        return None;
    }
    Some(from)
}

fn key_file(section: &Section<'_, '_>, key: &SecretRef) -> Option<PathBuf> {
    if key.path().is_none() {
        mistake!(section, "client_key", "`client_key` is no file";
            "the key of a client certificate is read from a PEM file";
            "write `client_key = \"file:/path/key.pem\"`");
    }
    key.path().map(PathBuf::from)
}

fn server(text: &str) -> Result<Origin, Hint> {
    let server = network::server(
        text,
        hint!("an address is that of one server"; "write `https://vault.example:8200`"),
    )?;
    if network::is_open(&server) {
        return refused!("secrets would travel in clear text; `http` is for loopback addresses alone";
            "write `https://`");
    }
    Ok(server)
}

/// Checks a mount or a namespace, such as `auth-agents` or `team/one`.
fn path(text: &str) -> Result<String, Hint> {
    let text = text.trim_matches('/');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.bytes().all(fits);
    if text.split('/').all(is_name) && text.len() <= 256 {
        Ok(text.to_owned())
    } else {
        refused!("a mount or namespace has names of the characters A-Z, a-z, 0-9 and `-_.`";
                "write for example `team/one`")
    }
}

pub(super) fn word(text: &str) -> Result<String, Hint> {
    characters(text, 256, |byte| byte.is_ascii_graphic())
        .ok_or_else(|| hint!("it has 1 to 256 visible characters"; "write the name or id"))
}

/// The keys of every login.
const COMMON: &str = "addresses roots namespace login ttl max_stale";
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const DEFAULT_TTL: Duration = Duration::from_secs(300);
const DEFAULT_STALE: Duration = Duration::from_secs(3600);
