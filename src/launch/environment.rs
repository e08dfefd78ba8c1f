//! Which environment variables reach the command.
//!
//! Dropped are proxies (capture needs none), agents and session buses (each would act for the user outside), and what
//! looks like a credential, by its name or by its value. The gateway's own settings, phantoms above all, come last.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the person decided about variables, over the built-in rules. Names may end in `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Passed on though the built-in rules would drop them.
    pub allow: Vec<String>,
    /// Dropped though the built-in rules would pass them on.
    pub drop: Vec<String>,
}

impl Rules {
    /// Decides whether a variable reaches the command.
    pub fn admit(&self, name: &OsStr, value: &OsStr) -> bool {
        let Some(name) = name.to_str() else { return false };
        if name.starts_with(INTERNAL_PREFIX) || matches_any(name, &self.drop) {
            return false;
        }
        if matches_any(name, &self.allow) {
            return true;
        }
        !is_proxy(name) && !is_agent(name) && !names_credential(name) && !holds_credential(value.as_bytes())
    }

    /// Keeps the variables that reach the command.
    pub fn scrub(
        &self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        variables
            .into_iter()
            .filter(|(name, value)| self.admit(name, value))
            .collect()
    }
}

/// Gives the credential files that the variables point to, and that must hence be hidden.
pub fn credential_files(variables: &[(OsString, OsString)]) -> Vec<PathBuf> {
    variables
        .iter()
        .filter(|(name, _)| CREDENTIAL_FILES.iter().any(|known| name == known))
        .flat_map(|(_, value)| std::env::split_paths(value).collect::<Vec<_>>())
        .filter(|path| path.is_absolute())
        .collect()
}

/// Gives the hidden names of `names` (relative to the home) again, below the directories to which variables have moved them.
pub fn relocated(variables: &[(OsString, OsString)], names: &[&str]) -> Vec<PathBuf> {
    let mut moved = Vec::new();
    for (variable, prefix) in RELOCATIONS {
        let Some(directory) = value(variables, variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
        else {
            continue;
        };
        moved.extend(
            names
                .iter()
                .filter_map(|name| name.strip_prefix(prefix))
                .map(|name| directory.join(name)),
        );
    }
    moved
}

/// Sets a variable, replacing one of the same name.
pub fn set(variables: &mut Vec<(OsString, OsString)>, name: impl Into<OsString>, value: impl Into<OsString>) {
    let name = name.into();
    variables.retain(|(old, _)| *old != name);
    variables.push((name, value.into()));
}

/// Gives the value of a variable.
pub fn value<'a>(variables: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    variables
        .iter()
        .find(|(known, _)| known == name)
        .map(|(_, value)| value.as_os_str())
}

fn is_proxy(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("_proxy") || matches!(name.as_str(), "npm_config_proxy" | "node_use_env_proxy")
}

fn is_agent(name: &str) -> bool {
    AGENTS.iter().any(|agent| matches(name, agent))
}

fn names_credential(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    if HARMLESS.iter().any(|harmless| matches(&name, harmless)) {
        return false;
    }
    CREDENTIAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || CREDENTIAL_PARTS.iter().any(|part| name.contains(part))
        || CREDENTIAL_SUFFIXES
            .iter()
            .any(|suffix| name == suffix[1..] || name.ends_with(suffix))
}

fn holds_credential(value: &[u8]) -> bool {
    CREDENTIAL_VALUES
        .iter()
        .any(|prefix| value.starts_with(prefix.as_bytes()))
        || value.windows(11).any(|w| w == b"PRIVATE KEY")
        || has_userinfo_password(value)
}

/// Whether a value is a URL with a password: `scheme://user:password@host`.
fn has_userinfo_password(value: &[u8]) -> bool {
    let Some(start) = value.windows(3).position(|w| w == b"://") else {
        return false;
    };
    let authority = &value[start + 3..];
    let end = authority
        .iter()
        .position(|b| matches!(b, b'/' | b'?' | b'#'))
        .unwrap_or(authority.len());
    let Some(at) = authority[..end].iter().rposition(|b| *b == b'@') else {
        return false;
    };
    authority[..at]
        .iter()
        .position(|b| *b == b':')
        .is_some_and(|colon| colon + 1 < at)
}

fn matches_any(name: &str, patterns: &[String]) -> bool {
    patterns.iter().any(|pattern| matches(name, pattern))
}

fn matches(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

/// Variables with this prefix are between the parts of this program.
pub const INTERNAL_PREFIX: &str = "GATEWAY_LAUNCH_";

const AGENTS: &[&str] = &[
    "SSH_*",
    "GPG_AGENT_INFO",
    "GNUPGHOME",
    "DBUS_*",
    "XDG_RUNTIME_DIR",
    "XAUTHORITY",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "DOCKER_*",
    "CONTAINER_HOST",
    "CONTAINERD_*",
    "PODMAN_*",
    "BUILDKIT_HOST",
    "VSCODE_*",
    "CURSOR_*",
    "TMUX*",
    "STY",
    "KITTY_*",
    "NVIM*",
    "GNOME_KEYRING_*",
    "KRB5*",
    "SUDO_*",
    "LISTEN_*",
    "NOTIFY_SOCKET",
    "WATCHDOG_*",
    "JOURNAL_STREAM",
    "CREDENTIALS_DIRECTORY",
    "WSL_*",
    "WSLENV",
    "PULSE_SERVER",
    "SESSION_MANAGER",
    "ICEAUTHORITY",
    "MEMORY_PRESSURE_*",
    "ACTIONS_*",
    "KUBERNETES_*",
    "KUBECONFIG",
    "GIT_ASKPASS",
    "SSL_CERT_DIR",
];
const CREDENTIAL_PREFIXES: &[&str] = &[
    "AWS_",
    "AZURE_",
    "ARM_",
    "VAULT_",
    "OP_",
    "BWS_",
    "PGPASS",
    "CI_JOB_JWT",
];
const CREDENTIAL_PARTS: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "APIKEY",
    "API_KEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "CLIENT_KEY",
    "COOKIE",
    "BEARER",
];
const CREDENTIAL_SUFFIXES: &[&str] = &[
    "_KEY", "_PAT", "_PASS", "_PWD", "_AUTH", "_JWT", "_DSN", "_CREDS", "_KEY_ID",
];
/// Settings that are no secrets, though the lists above hold their names. AWS's are those of its "SDKs and tools reference"
/// that name neither a key, a profile, a role nor a file.
const HARMLESS: &[&str] = &[
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_DEFAULT_OUTPUT",
    "AWS_PAGER",
    "AWS_CA_BUNDLE",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_*",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_STS_REGIONAL_ENDPOINTS",
    "AWS_MAX_ATTEMPTS",
    "AWS_RETRY_MODE",
    "AWS_DEFAULTS_MODE",
    "AWS_REQUEST_CHECKSUM_CALCULATION",
    "AWS_RESPONSE_CHECKSUM_VALIDATION",
    "AWS_DISABLE_REQUEST_COMPRESSION",
    "AWS_REQUEST_MIN_COMPRESSION_SIZE_BYTES",
    "AWS_SIGV4A_SIGNING_REGION_SET",
    "AWS_S3_USE_ARN_REGION",
    "AWS_S3_US_EAST_1_REGIONAL_ENDPOINT",
    "AWS_S3_DISABLE_MULTIREGION_ACCESS_POINTS",
    "AWS_S3_DISABLE_EXPRESS_SESSION_AUTH",
    "AWS_ENABLE_ENDPOINT_DISCOVERY",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_CLI_AUTO_PROMPT",
    "AWS_CLI_FILE_ENCODING",
    "AWS_SDK_UA_APP_ID",
    "TOKENIZERS_PARALLELISM",
    "PWD",
    "OLDPWD",
    "MAX_THINKING_TOKENS",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
];
const CREDENTIAL_VALUES: &[&str] = &[
    "sk-",
    "sk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "ASIA",
    "eyJ",
    "npm_",
    "pypi-",
    "hf_",
    "hvs.",
    "hvb.",
    "dop_v1_",
    "SG.",
    "AIza",
    "ya29.",
    "-----BEGIN",
];
const CREDENTIAL_FILES: &[&str] = &[
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "CLOUDSDK_CONFIG",
    "AZURE_CONFIG_DIR",
    "AZURE_FEDERATED_TOKEN_FILE",
    "KUBECONFIG",
    "DOCKER_CONFIG",
    "GH_CONFIG_DIR",
    "NETRC",
    "PGPASSFILE",
    "PGSERVICEFILE",
    "NPM_CONFIG_USERCONFIG",
    "GNUPGHOME",
    "PASSWORD_STORE_DIR",
    "SOPS_AGE_KEY_FILE",
    "TF_CLI_CONFIG_FILE",
    "CREDENTIALS_DIRECTORY",
    "KRB5CCNAME",
    "REGISTRY_AUTH_FILE",
];

const RELOCATIONS: &[(&str, &str)] = &[
    ("XDG_CONFIG_HOME", ".config/"),
    ("XDG_DATA_HOME", ".local/share/"),
    ("XDG_STATE_HOME", ".local/state/"),
    ("XDG_CACHE_HOME", ".cache/"),
    ("CARGO_HOME", ".cargo/"),
    ("GRADLE_USER_HOME", ".gradle/"),
    ("CLAUDE_CONFIG_DIR", ".claude/"),
    ("CODEX_HOME", ".codex/"),
    ("HF_HOME", ".cache/huggingface/"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(name: &str, value: &str) -> bool {
        Rules::default().admit(name.as_ref(), value.as_ref())
    }

    #[test]
    fn proxies_agents_and_credentials_are_dropped() {
        for name in [
            "HTTPS_PROXY",
            "all_proxy",
            "no_proxy",
            "NPM_CONFIG_HTTPS_PROXY",
            "SSH_AUTH_SOCK",
            "DBUS_SESSION_BUS_ADDRESS",
            "GITHUB_TOKEN",
            "OPENAI_API_KEY",
            "DB_PASSWORD",
            "AWS_PROFILE",
            "AWS_ENDPOINT",
            "AWS_SESSION_TOKEN",
            "AWS_ROLE_ARN",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "MY_PAT",
            "KEY",
            "aws_secret_access_key",
            "DOCKER_HOST",
        ] {
            assert!(!admits(name, "x"), "{name}");
        }
    }

    #[test]
    fn ordinary_variables_pass() {
        for name in [
            "PATH",
            "HOME",
            "LANG",
            "TERM",
            "PWD",
            "EDITOR",
            "CARGO_HOME",
            "KEYBOARD",
            "AWS_REGION",
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_SECRETS_MANAGER",
            "AWS_MAX_ATTEMPTS",
            "AWS_RETRY_MODE",
            "aws_pager",
            "MONKEYS",
        ] {
            assert!(admits(name, "/usr/bin:/bin"), "{name}");
        }
    }

    #[test]
    fn a_credential_under_a_harmless_name_is_dropped() {
        assert!(!admits("MY_SETTING", "ghp_0123456789"));
        assert!(!admits("DATABASE_URL", "postgres://app:hunter2@db/app"));
        assert!(!admits("CERT", "-----BEGIN RSA PRIVATE KEY-----"));
        assert!(!admits("AWS_ENDPOINT_URL", "http://app:hunter2@127.0.0.1:9000"));
        assert!(!admits("AWS_DEFAULT_OUTPUT", "ASIAQWERTYUIOPASDFGH"));
        assert!(admits("DATABASE_URL", "postgres://app@db/app?x=a:b@c"));
    }

    #[test]
    fn the_persons_rules_stand_over_the_built_in_ones_and_drop_over_allow() {
        let rules = Rules {
            allow: vec!["MY_*".into()],
            drop: vec!["MY_SECRET".into(), "LANG".into()],
        };
        assert!(rules.admit("MY_TOKEN".as_ref(), "x".as_ref()));
        assert!(!rules.admit("MY_SECRET".as_ref(), "x".as_ref()));
        assert!(!rules.admit("LANG".as_ref(), "C".as_ref()));
    }

    #[test]
    fn stores_that_a_variable_has_moved_are_found_where_they_are() {
        let variables = vec![
            ("XDG_CONFIG_HOME".into(), "/data/config".into()),
            ("CARGO_HOME".into(), "relative".into()),
        ];
        let names = [".config/gh", ".ssh", ".cargo/credentials"];
        assert_eq!(relocated(&variables, &names), [PathBuf::from("/data/config/gh")]);
    }

    #[test]
    fn files_that_variables_point_to_are_found() {
        let variables = vec![
            ("KUBECONFIG".into(), "/a/k1:/b/k2".into()),
            ("EDITOR".into(), "/bin/vi".into()),
        ];
        assert_eq!(
            credential_files(&variables),
            [PathBuf::from("/a/k1"), PathBuf::from("/b/k2")]
        );
    }

    proptest::proptest! {
        #[test]
        fn no_name_and_value_make_the_rules_panic(name: Vec<u8>, value: Vec<u8>) {
            let _ = Rules::default().admit(OsStr::from_bytes(&name), OsStr::from_bytes(&value));
        }
    }
}
