//! Every key of `gateway.toml`, in the one list that the reader, the documentation and the tests
//! use.

/// One key of the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigKey {
    /// The section that holds it, such as `listener` or `listener.authentication`.
    pub section: &'static str,
    /// The key itself.
    pub name: &'static str,
    /// What values it takes, in the words of the documentation.
    pub takes: &'static str,
    /// Its default; `required` if it has none.
    pub default: &'static str,
    /// Whether a reload applies a changed value. Where it does not, a reload with one is refused.
    pub reloads: bool,
}

/// One section of the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigSection {
    /// The section's name.
    pub name: &'static str,
    /// Whether it is written `[[name]]` and may occur many times.
    pub repeats: bool,
}

/// Returns the keys of one section, in the order of [`KEYS`].
pub fn of(section: &str) -> impl Iterator<Item = &'static ConfigKey> {
    KEYS.iter().filter(move |key| key.section == section)
}

/// Formats a section's name as it is written in the file.
#[must_use]
pub fn heading(section: &str) -> String {
    if section.is_empty() {
        return String::from("the file");
    }
    if let Some((outer, inner)) = section.split_once('.') {
        return format!("`{inner}` of {}", heading(outer));
    }
    match SECTIONS.iter().find(|known| known.name == section) {
        Some(known) if known.repeats => format!("[[{section}]]"),
        _ => format!("[{section}]"),
    }
}

/// Finds the candidate that a misspelt word most likely meant.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word: String = word.chars().take(MAX_WORD).collect();
    let word = word.to_ascii_lowercase().replace('-', "_");
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .map(|candidate| (strsim::osa_distance(&word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

const MAX_WORD: usize = 64;

const fn key(
    section: &'static str,
    name: &'static str,
    takes: &'static str,
    default: &'static str,
) -> ConfigKey {
    ConfigKey {
        section,
        name,
        takes,
        default,
        reloads: true,
    }
}

/// A key that only a new start applies.
const fn fixed(
    section: &'static str,
    name: &'static str,
    takes: &'static str,
    default: &'static str,
) -> ConfigKey {
    ConfigKey {
        reloads: false,
        ..key(section, name, takes, default)
    }
}

const fn section(name: &'static str) -> ConfigSection {
    ConfigSection {
        name,
        repeats: false,
    }
}

const fn sections(name: &'static str) -> ConfigSection {
    ConfigSection {
        name,
        repeats: true,
    }
}

/// Every section of the file.
pub const SECTIONS: &[ConfigSection] = &[
    section("ca"),
    section("state"),
    section("audit"),
    sections("export"),
    section("policy"),
    section("runtime"),
    section("resolver"),
    sections("listener"),
    sections("credential"),
    sections("login"),
    sections("origin"),
    sections("fact"),
    section("vault"),
    section("sandbox"),
    section("limits"),
    section("control"),
    section("phantoms"),
];

/// Every key of the file.
pub const KEYS: &[ConfigKey] = &[
    key("ca", "certificate", "path", "not written"),
    key("ca", "lifetime", "duration", "24h"),
    key("ca", "idle", "duration", "never"),
    fixed("state", "path", "path", "the state directory of the user"),
    fixed(
        "state",
        "key",
        "reference",
        "in the key ring, else in a file beside the state",
    ),
    fixed("audit", "path", "path", "the state directory of the user"),
    key("audit", "sync", "`batch` or `always`", "batch"),
    key("audit", "rotate", "size", "256MiB"),
    key("audit", "session_burst", "size", "256MiB"),
    key("audit", "session_rate", "size a second", "256KiB"),
    key(
        "policy",
        "files",
        "list of paths, `*` in the last part",
        "none: everything is denied",
    ),
    key("policy", "rules", "Cedar policies", "none"),
    key("policy", "allow", "list of hosts", "none"),
    key("policy", "presets", "list of names", "none"),
    key("policy", "logins", "list of names", "none"),
    fixed("runtime", "threads", "number", "1"),
    key(
        "resolver",
        "servers",
        "list of addresses",
        "those of the system",
    ),
    key("resolver", "hosts_file", "true or false", "true"),
    key("resolver", "stale", "duration", "24h"),
    key("listener", "kind", "`proxy` or `tls`", "required"),
    key("listener", "address", "address and port", "required"),
    key("listener", "session", "name", "default"),
    key("listener", "groups", "list of names", "none"),
    key("listener", "port", "number", "443"),
    key("listener", "authentication", "table", "none"),
    key("listener", "any_user", "true or false", "false"),
    key("listener.authentication", "user", "text", "required"),
    key(
        "listener.authentication",
        "password",
        "reference",
        "required",
    ),
    key("credential", "name", "name", "required"),
    key("credential", "from", "reference", "`env:` and the name"),
    key("credential.from", "command", "list of texts", "required"),
    key("credential.from", "ttl", "duration", "5m"),
    key("credential", "preset", "name", "none"),
    key(
        "credential",
        "origins",
        "list of origins",
        "those of the preset",
    ),
    key(
        "credential",
        "places",
        "list of places",
        "those of the preset, else the common ones",
    ),
    key(
        "credential",
        "env",
        "list of variables",
        "the name, else those of the preset",
    ),
    key(
        "credential",
        "shape",
        "shape of the phantom",
        "that of the preset, else of the secret",
    ),
    key("credential", "inject", "`phantom` or `always`", "phantom"),
    key(
        "credential",
        "foreign_credential",
        "`refuse` or `strip`",
        "refuse",
    ),
    key(
        "credential",
        "takes",
        "list of places",
        "those of the preset",
    ),
    key("credential", "cookies", "list of names", "none"),
    key("credential", "methods", "list of methods", "all"),
    key("credential", "path", "path prefix", "/"),
    key("credential", "allow_short", "true or false", "false"),
    key(
        "credential",
        "sign",
        "`sigv4`, or a recipe",
        "it is put in, not signed with",
    ),
    key(
        "credential",
        "parts",
        "table of references",
        "the usual variables",
    ),
    key("credential", "endpoints", "list of tables", "those of AWS"),
    key("credential", "unsigned", "list of origins", "none"),
    key("credential", "partitions", "list of names", "aws"),
    key("credential", "regions", "list of names", "all"),
    key("credential", "services", "list of names", "all"),
    key(
        "credential",
        "accounts",
        "list of numbers in quotes, or `*`",
        "all; of S3 the key's own",
    ),
    key(
        "credential",
        "buckets",
        "list of names, with a prefix or none",
        "all",
    ),
    key(
        "credential",
        "actions",
        "list of actions",
        "all but those that return credentials",
    ),
    key(
        "credential",
        "credential_actions",
        "list of actions",
        "none",
    ),
    key("credential.endpoints", "origin", "origin", "required"),
    key("credential.endpoints", "service", "name", "required"),
    key("credential.endpoints", "region", "name", "required"),
    key(
        "credential.endpoints",
        "exact_paths",
        "true or false",
        "false",
    ),
    key("login", "name", "name", "required"),
    key(
        "login",
        "grant",
        "`refresh`, `client_credentials`, `jwt_bearer`, `service_account` or `github_app`",
        "refresh",
    ),
    key("login", "token_url", "URL", "that of GitHub, or in `file`"),
    key("login", "client_id", "text", "none"),
    key("login", "client_secret", "reference", "none"),
    key("login", "client_auth", "`basic` or `post`", "basic"),
    key("login", "key", "reference", "none"),
    key("login", "algorithm", "`RS256` or `ES256`", "RS256"),
    key("login", "key_id", "text", "none"),
    key("login", "issuer", "text", "none"),
    key("login", "subject", "text", "the issuer"),
    key("login", "audience", "text", "the token URL"),
    key("login", "installation", "number in quotes", "none"),
    key("login", "file", "path", "none"),
    key("login", "scopes", "list of texts", "those of the issuer"),
    key("login", "device_url", "URL", "none"),
    key("login", "authorize_url", "URL", "none"),
    key("login", "revocation_url", "URL", "none"),
    key("login", "origins", "list of origins", "none"),
    key("login", "places", "list of places", "those of its tokens"),
    key(
        "login",
        "env",
        "list of variables",
        "the name, if it is one",
    ),
    key("login", "shape", "shape of the phantom", "`[40 alnum]`"),
    key("origin", "match", "origin, or `*`", "required"),
    key("origin", "roots", "list of paths", "none"),
    key("origin", "replace_system_roots", "true or false", "false"),
    key("origin", "client_certificate", "path", "none"),
    key("origin", "client_key", "reference", "none"),
    key("origin", "addresses", "list of networks", "none"),
    key("origin", "connect", "address and port", "DNS"),
    key(
        "origin",
        "via",
        "proxy as `http://HOST:PORT`, or `direct`",
        "that of `*`, else none",
    ),
    key("origin", "via_auth", "reference", "none"),
    key("origin", "http", "`auto`, `1.1` or `2`", "auto"),
    key("origin", "encoded_slash", "true or false", "false"),
    key("origin", "underscores", "true or false", "false"),
    key("origin", "token_answers", "`replace` or `pass`", "replace"),
    key("origin", "cleartext", "true or false", "false"),
    key("fact", "name", "name", "required"),
    key(
        "fact",
        "type",
        "`Long`, `String`, `Bool` or `Set<String>`",
        "required",
    ),
    key("fact", "origins", "list of origins", "required"),
    key(
        "fact",
        "json",
        "JSON Pointer",
        "`json` or `form` is required",
    ),
    key(
        "fact",
        "form",
        "name in a form",
        "`json` or `form` is required",
    ),
    key("vault", "addresses", "list of origins", "required"),
    key("vault", "roots", "list of paths", "those of the system"),
    key("vault", "namespace", "path", "none"),
    key(
        "vault",
        "login",
        "`token`, `approle`, `jwt`, `kubernetes` or `cert`",
        "required",
    ),
    key("vault", "mount", "path", "the name of the login"),
    key("vault", "token", "reference", "none"),
    key("vault", "role", "name", "none"),
    key("vault", "role_id", "text", "none"),
    key("vault", "secret_id", "reference", "none"),
    key("vault", "jwt", "reference", "none"),
    key("vault", "token_file", "path", "that of the service account"),
    key("vault", "client_certificate", "path", "none"),
    key("vault", "client_key", "reference", "none"),
    key("vault", "ttl", "duration", "5m"),
    key("vault", "max_stale", "duration", "1h"),
    fixed("sandbox", "see", "list of paths", "none"),
    fixed("sandbox", "see_home", "list of sets and paths", "none"),
    fixed("sandbox", "hide", "list of paths", "none"),
    fixed("sandbox", "pass_env", "list of variables", "none"),
    fixed("sandbox", "allow_userns", "true or false", "false"),
    fixed("sandbox", "guard_tools", "true or false", "false"),
    fixed("sandbox", "write", "list of paths", "none"),
    fixed("sandbox", "memory_files", "size", "half of the memory"),
    fixed("sandbox", "processes", "number", "4096"),
    fixed("sandbox", "dns", "`explain` or `strict`", "explain"),
    fixed(
        "sandbox",
        "publish",
        "list of `[HOST:]PORT[:INSIDE]`",
        "none",
    ),
    fixed("sandbox", "host_port", "list of ports", "none"),
    key("limits", "connections_per_session", "number", "1024"),
    key("limits", "connections", "number", "10000"),
    key("limits", "exchanges_per_session", "number", "1024"),
    key("limits", "head_timeout", "duration", "10s"),
    key("limits", "handshake_timeout", "duration", "10s"),
    key("limits", "connect_timeout", "duration", "10s"),
    key("limits", "idle_timeout", "duration", "60s"),
    key("limits", "progress_timeout", "duration", "900s"),
    key("limits", "drain_timeout", "duration", "30s"),
    key("limits", "streams_per_connection", "number", "128"),
    key("limits", "cached_certificates", "number", "1024"),
    key("limits", "max_buffered_request", "size", "16MiB"),
    key("limits", "max_buffered_total", "size", "64MiB"),
    key("limits", "max_decoder_memory", "size", "128MiB"),
    fixed("control", "path", "path", "in the runtime directory"),
    key(
        "control",
        "policy",
        "path",
        "none: the own user and root may all",
    ),
    fixed("control", "metrics_address", "address and port", "none"),
    key("export", "url", "URL", "required"),
    key("export", "format", "`otlp` or `ocsf`", "`otlp`"),
    key("export", "signals", "list of `logs`, `traces`", "both"),
    key("export", "token", "reference", "none"),
    key(
        "export",
        "token_field",
        "name of a field",
        "`authorization: Bearer`",
    ),
    key("export", "roots", "list of paths", "those of the system"),
    key("phantoms", "env_file", "path", "not written"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_finds_the_meant_one() {
        let keys = || of("listener").map(|key| key.name);
        assert_eq!(nearest("adress", keys()), Some("address"));
        assert_eq!(nearest("sesion", keys()), Some("session"));
        assert_eq!(nearest("Kind", keys()), Some("kind"));
        assert_eq!(nearest("prot", keys()), Some("port"));
        assert_eq!(nearest("frobnicate", keys()), None);
    }

    #[test]
    fn every_key_is_of_a_section_or_of_a_table_within_one() {
        for key in KEYS {
            let outer = key.section.split('.').next().unwrap();
            assert!(
                SECTIONS.iter().any(|known| known.name == outer),
                "{}",
                key.section
            );
        }
    }
}
