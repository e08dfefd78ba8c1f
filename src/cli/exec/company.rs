//! The proxy and the CA that the user's shell names, usually a company's. The gateway reads its own
//! from the configuration alone.

use std::path::Path;

use crate::config::{Config, state};
use crate::message::Authority;

/// Reports each unused setting of the shell, and the key that would apply it.
pub(crate) fn unused(config: &Config) -> Vec<String> {
    let Some(file) = config.file.clone().or_else(state::user_file) else {
        return Vec::new();
    };
    let settings = &config.defaults.settings;
    let proxy = settings.via.is_none().then(proxy).flatten();
    let roots = settings.roots.is_empty().then(roots).flatten();
    let lines = proxy.into_iter().chain(roots).map(|(name, key)| {
        format!(
            "{name} is set and not used: `[[origin]]`, `match = \"*\"`, {key} in {} would",
            file.display()
        )
    });
    lines.collect()
}

/// Returns the variable that names a proxy, and the keys for it.
fn proxy() -> Option<(&'static str, String)> {
    let (name, value) = set(&PROXIES)?;
    let rest = value.split_once("://").map_or(&*value, |(_, rest)| rest);
    let (login, address) = rest.rsplit_once('@').unwrap_or(("", rest));
    // Only an address is shown: any other text may be a part of the login.
    let address = Authority::parse(address.trim_end_matches('/').as_bytes(), None);
    let address = address.map_or_else(|_| String::from("HOST:PORT"), |one| one.to_string());
    let login = match login {
        "" => "",
        _ => ", `via_auth = \"file:/path\"` (which holds user:password)",
    };
    Some((name, format!("`via = \"http://{address}\"`{login}")))
}

/// Returns the variable that names further roots, and the key for them.
fn roots() -> Option<(&'static str, String)> {
    let (name, value) = set(&CERTIFICATES)?;
    let file = Path::new(&value).canonicalize().ok()?;
    let is_systems = SYSTEM.iter().any(|folder| file.starts_with(folder));
    (!is_systems).then(|| (name, format!("`roots = [{value:?}]`")))
}

/// Returns the first of these variables that is set, with its value.
fn set(names: &[&'static str]) -> Option<(&'static str, String)> {
    let value = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    names.iter().find_map(|&name| Some((name, value(name)?)))
}

const PROXIES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
const CERTIFICATES: [&str; 4] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];
/// The folders of the system's own certificates, which are roots in any case.
const SYSTEM: [&str; 4] = ["/etc/ssl", "/etc/pki", "/usr", "/nix"];
