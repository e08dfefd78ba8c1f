//! Every key of `gateway.toml`, in the one list that the reader, the documentation and the tests
//! use.

/// One key of the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigKey {
    /// The section that holds it, such as `listener` or `listener.tls`.
    pub section: &'static str,
    /// The key itself.
    pub name: &'static str,
    /// The values that it takes, in the words of the documentation.
    pub takes: &'static str,
    /// Its default; `required` if it has none.
    pub default: &'static str,
    /// Whether a reload applies a changed value. If not, a reload that changes it is refused.
    pub reloads: bool,
    /// Whether it may stand in a project's own file.
    pub project: bool,
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
    // `[vault]` is a store without a name.
    let section = if section == "vault" { "store" } else { section };
    KEYS.iter().filter(move |key| key.section == section)
}

/// Formats a section's name as it is written in the file.
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

/// Says what to write instead of an unknown word: the nearest one, the section that the word
/// belongs to, or the list of known words.
pub(super) fn instead(
    word: &str,
    near: Option<String>,
    (what, all): (&str, Vec<String>),
) -> String {
    if let Some((_, new)) = REPLACED.iter().find(|(old, _)| *old == word) {
        return format!("write {new}");
    }
    match (near, KEYS.iter().find(|key| key.name == word)) {
        (Some(near), _) => format!("did you mean {near}?"),
        (None, Some(key)) => format!("`{word}` belongs to {}", heading(key.section)),
        (None, None) => format!("remove it; the {what} are {}", all.join(", ")),
    }
}

const MAX_WORD: usize = 64;

/// Former keys, each with its replacement.
const REPLACED: &[(&str, &str)] = &[(
    "authentication",
    "`who = [\"password\"]` and `passwords = { USER = \"REFERENCE\" }`",
)];

/// Suggests the nearest name, or else what `otherwise` returns.
pub(super) fn did_you_mean<'a>(
    word: &str,
    names: impl Iterator<Item = &'a str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    nearest(word, names).map_or_else(otherwise, |near| format!("did you mean `{near}`?"))
}

impl ConfigKey {
    const fn new(
        section: &'static str,
        name: &'static str,
        takes: &'static str,
        default: &'static str,
    ) -> Self {
        Self {
            section,
            name,
            takes,
            default,
            reloads: true,
            project: false,
        }
    }

    /// A key that only a new start applies.
    const fn fixed(mut self) -> Self {
        self.reloads = false;
        self
    }

    /// A key whose text shows all that it does, so that it may stand in a project's file.
    const fn project(mut self) -> Self {
        self.project = true;
        self
    }
}

/// The sections: `once NAME`, or `many NAME` where it is written `[[NAME]]`.
macro_rules! sections {
    ($($times:ident $name:ident),*) => {
        /// Every section of the file.
        pub const SECTIONS: &[ConfigSection] = &[$(ConfigSection {
            name: stringify!($name),
            repeats: matches!(stringify!($times).as_bytes(), b"many"),
        }),*];
    };
}

/// The keys by section: `name: what it takes, its default` and its marks.
macro_rules! keys {
    ($([$section:literal]
        $($name:ident: $takes:literal, $default:literal $($mark:ident)*;)*
    )*) => {
        /// Every key of the file.
        pub const KEYS: &[ConfigKey] = &[$($(
            ConfigKey::new($section, stringify!($name), $takes, $default)$(.$mark())*
        ),*),*];
    };
}

sections! {
    once ca, once state, once audit, many export, once policy, once runtime, once resolver,
    many listener, many credential, many login, many origin, many fact, many read, many notify, many budget, many price, many store, once vault, once sandbox,
    once limits, once control, once phantoms, once sessions
}

keys! {
    ["ca"]
        certificate: "path", "not written";
        lifetime: "duration", "24h";
        idle: "duration", "never";
    ["sessions"]
        most: "number", "1024";
    ["state"]
        path: "path", "the state directory of the user" fixed;
        key: "reference", "in the key ring, else in a file beside the state" fixed;
        url: "URL of a PostgreSQL server", "none: the state is in a file" fixed;
        password: "reference", "none" fixed;
        roots: "list of paths", "those of the system" fixed;
        replica: "name", "the name of the machine" fixed;
        stale_after: "duration", "5s, with `url`" fixed;
    ["audit"]
        path: "path", "the state directory of the user" fixed;
        sync: "`batch` or `always`", "batch";
        rotate: "size", "256MiB";
        session_burst: "size", "256MiB";
        session_rate: "size a second", "256KiB";
    ["policy"]
        files: "list of paths, `*` in the last part", "none: everything is denied";
        rules: "Cedar policies", "none" project;
        allow: "list of hosts", "none" project;
        presets: "list of names", "none" project;
        logins: "list of names", "none" project;
    ["runtime"]
        threads: "number", "1" fixed;
    ["resolver"]
        servers: "list of addresses", "those of the system";
        hosts_file: "true or false", "true";
        stale: "duration", "24h";
    ["listener"]
        kind: "`proxy`, `tls`, `transparent`, `dns` or `base`", "required";
        address: "address and port, or `unix:` and a path", "required";
        mode: "`0600`, `0660` or `0666`", "0600";
        who: "list of `listener`, `token`, `password`, `jwt`, `certificate`, `tailnet`, `unix` and `mark`", "listener";
        passwords: "table of references", "required with `password`";
        jwt: "table", "required with `jwt`";
        uids: "list of user ids in quotes", "all that can connect";
        tailnet_socket: "path", "/var/run/tailscale/tailscaled.sock";
        capability: "name of an application capability", "none";
        session: "name, or `{caller}`", "default";
        groups: "list of names", "none";
        aliases: "table of origins", "required with `base`";
        port: "number", "443";
        tls: "table", "none: clear text";
        any_user: "true or false", "false";
    ["listener.jwt"]
        issuer: "text", "required";
        audience: "text", "required";
        keys: "path, or `https` URL", "required";
        user: "name of a claim", "sub";
        groups: "list of names of claims", "none";
    ["listener.tls"]
        certificate: "path", "required";
        key: "path", "required";
        client_roots: "path", "none";
        client_crls: "path", "none";
        trust_domain: "text", "any";
    ["credential"]
        name: "name", "required" project;
        from: "reference", "`env:` and the name" project;
    ["credential.from"]
        command: "list of texts", "required";
        ttl: "duration", "5m";
        pass: "list of variables", "none";
    ["credential"]
        preset: "name", "none" project;
        origins: "list of origins", "those of the preset" project;
        places: "list of places", "those of the preset, else the common ones" project;
        env: "list of variables", "the name, else those of the preset" project;
        shape: "shape of the phantom", "that of the preset, else of the secret" project;
        inject: "`phantom` or `always`", "phantom" project;
        foreign_credential: "`refuse` or `strip`", "refuse" project;
        takes: "list of places", "those of the preset" project;
        cookies: "list of names", "none" project;
        methods: "list of methods", "all" project;
        path: "path prefix", "/" project;
        allow_short: "true or false", "false";
        sign: "`sigv4`, or a recipe", "it is put in, not signed with" project;
        parts: "table of references", "the usual variables" project;
        endpoints: "list of tables", "those of AWS";
        unsigned: "list of origins", "none";
        partitions: "list of names", "aws" project;
        regions: "list of names", "all" project;
        services: "list of names", "all" project;
        accounts: "list of numbers in quotes, or `*`", "all; of S3 the key's own" project;
        buckets: "list of names, with a prefix or none", "all" project;
        actions: "list of actions", "all but those that return credentials" project;
        credential_actions: "list of actions", "none";
    ["credential.endpoints"]
        origin: "origin", "required";
        service: "name", "required";
        region: "name", "required";
        exact_paths: "true or false", "false";
    ["login"]
        name: "name", "required";
        grant: "`refresh`, `client_credentials`, `jwt_bearer`, `service_account` or `github_app`", "refresh";
        token_url: "URL", "that of GitHub, or in `file`";
        client_id: "text", "none";
        client_secret: "reference", "none";
        client_auth: "`basic` or `post`", "basic";
        key: "reference", "none";
        algorithm: "`RS256` or `ES256`", "RS256";
        key_id: "text", "none";
        issuer: "text", "none";
        subject: "text", "the issuer";
        audience: "text", "the token URL";
        installation: "number in quotes", "none";
        file: "path", "none";
        scopes: "list of texts", "those of the issuer";
        device_url: "URL", "none";
        authorize_url: "URL", "none";
        revocation_url: "URL", "none";
        origins: "list of origins", "none";
        places: "list of places", "those of its tokens";
        env: "list of variables", "the name, if it is one";
        shape: "shape of the phantom", "`[40 alnum]`";
    ["origin"]
        match: "origin, or `*`", "required" project;
        roots: "list of paths", "none";
        replace_system_roots: "true or false", "false";
        client_certificate: "path", "none";
        client_key: "reference", "none";
        addresses: "list of networks", "none";
        connect: "address and port", "DNS";
        via: "proxy as `http://HOST:PORT`, or `direct`", "that of `*`, else none";
        via_auth: "reference", "none";
        http: "`auto`, `1.1` or `2`", "auto" project;
        encoded_slash: "true or false", "false" project;
        underscores: "true or false", "false" project;
        token_answers: "`replace` or `pass`", "replace";
        cleartext: "true or false", "false";
    ["fact"]
        name: "name", "required" project;
        type: "`Long`, `String`, `Bool` or `Set<String>`", "required" project;
        origins: "list of origins", "required" project;
        json: "JSON Pointer", "one of these four" project;
        form: "name in a form", "one of these four" project;
        multipart: "name in a form in parts", "one of these four" project;
        text: "true or false", "one of these four" project;
        tool: "name of a tool", "none" project;
    ["read"]
        as: "`git`, `graphql`, `mcp` or `model`", "required" project;
        origins: "list of origins", "required" project;
        path: "path; `*` is one segment", "all" project;
    ["store"]
        name: "name", "its kind";
        kind: "`vault`, `op`, `aws-secret`, `aws-parameter`, `gcp-secret` or `azure-secret`", "required";
        addresses: "list of origins", "those of AWS and Google, else required";
        roots: "list of paths", "those of the system";
        namespace: "path", "none";
        login: "`token`, `approle`, `jwt`, `kubernetes` or `cert`", "required for a vault";
        mount: "path", "the name of the login";
        token: "reference", "none";
        role: "name", "none";
        role_id: "text", "none";
        secret_id: "reference", "none";
        jwt: "reference", "none";
        token_file: "path", "that of the service account";
        client_certificate: "path", "none";
        client_key: "reference", "none";
        command: "path", "/usr/bin/op";
        region: "name", "none";
        profile: "name", "none: the usual variables";
        file: "path", "none";
        token_url: "URL", "none";
        client_id: "text", "none";
        client_secret: "reference", "none";
        ttl: "duration", "5m";
        max_stale: "duration", "1h";
    ["sandbox"]
        see: "list of paths", "none" fixed;
        see_home: "list of sets and paths", "none" fixed;
        hide: "list of paths", "none" fixed project;
        pass_env: "list of variables", "none" fixed;
        allow_userns: "true or false", "false" fixed;
        guard_tools: "true or false", "false" fixed project;
        no_sign: "true or false", "false" fixed project;
        write: "list of paths", "none" fixed;
        memory_files: "size", "half of the memory" fixed project;
        processes: "number", "4096" fixed project;
        dns: "`explain` or `strict`", "explain" fixed project;
        publish: "list of `[HOST:]PORT[:INSIDE]`", "none" fixed;
        host_port: "list of ports", "none" fixed;
    ["limits"]
        connections_per_session: "number", "1024";
        connections: "number", "10000";
        exchanges_per_session: "number", "1024";
        head_timeout: "duration", "10s";
        handshake_timeout: "duration", "10s";
        connect_timeout: "duration", "10s";
        idle_timeout: "duration", "60s";
        progress_timeout: "duration", "900s";
        drain_timeout: "duration", "30s";
        streams_per_connection: "number", "128";
        cached_certificates: "number", "1024";
        max_buffered_request: "size", "16MiB";
        max_buffered_total: "size", "64MiB";
        max_decoder_memory: "size", "128MiB";
    ["control"]
        path: "path", "in the runtime directory" fixed;
        policy: "path", "none: the own user and root may all, over the network nobody";
        metrics_address: "address and port", "none" fixed;
        address: "address and port", "none" fixed;
        tls: "table", "required with `address`";
    ["control.tls"]
        certificate: "path", "required";
        key: "path", "required";
        client_roots: "path", "required";
        client_crls: "path", "none";
        trust_domain: "text", "any";
    ["export"]
        url: "URL", "required";
        format: "`otlp` or `ocsf`", "`otlp`";
        signals: "list of `logs`, `traces`", "both";
        token: "reference", "none";
        token_field: "name of a field", "`authorization: Bearer`";
        roots: "list of paths", "those of the system";
    ["notify"]
        command: "list: a program and its arguments", "none" fixed;
        url: "URL", "none" fixed;
        key: "reference", "required with `url`" fixed;
        roots: "list of paths", "those of the system" fixed;
        desktop: "true or false", "false" fixed;
    ["budget"]
        name: "name", "required";
        unit: "`requests`, `bytes`, `tokens` or `usd`", "required";
        most: "number, or of `usd` a text such as `\"5.00\"`", "required";
        per: "`minute`, `hour`, `day`, `week`, `month` or `session`", "required";
        by: "`all`, `session`, `user`, `group`, `secret` or `host`", "`all`";
    ["price"]
        host: "host", "everywhere";
        model: "name, `*` at the end", "required";
        input: "USD for a million tokens", "required";
        output: "USD for a million tokens", "required";
        cache_read: "USD for a million tokens", "that of `input`";
        cache_written: "USD for a million tokens", "that of `input`";
        context: "number", "unknown";
        until: "day", "none";
    ["phantoms"]
        env_file: "path", "not written";
}

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
