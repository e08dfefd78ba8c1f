//! The proxy that the user's shell names. The gateway takes its own from the configuration alone.

use crate::config::{Config, state};
use crate::message::Authority;

/// Says that the shell names a proxy which is not used, and what would use it.
pub(crate) fn unused(config: &Config) -> Option<String> {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let name = VARIABLES.into_iter().find(is_set)?;
    if config.defaults.settings.via.is_some() {
        return None;
    }
    let value = std::env::var(name).unwrap_or_default();
    let rest = value.split_once("://").map_or(&*value, |(_, rest)| rest);
    let (login, address) = rest.rsplit_once('@').unwrap_or(("", rest));
    // Only what is an address is shown: anything else may be a part of the login.
    let address = Authority::parse(address.trim_end_matches('/').as_bytes(), None);
    let address = address.map_or_else(|_| String::from("HOST:PORT"), |one| one.to_string());
    let login = match login {
        "" => "",
        _ => ", `via_auth = \"file:/path\"` (which holds user:password)",
    };
    let file = config.file.clone().or_else(state::user_file)?;
    Some(format!(
        "{name} is set and not used: `[[origin]]`, `match = \"*\"`, `via = \"http://{address}\"`{login} in {} would",
        file.display()
    ))
}

const VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
