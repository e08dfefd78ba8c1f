//! Decides which environment variables reach the command.
//!
//! A variable passes if its name is on a list (`passed`) and its value does not look like a
//! credential (`detect`), or if the person names it. The gateway's own settings, above all
//! phantoms, come last.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{detect, list, passed};

/// What the user chose about variables, beyond the built-in list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariableRules {
    /// Passed unchanged. Names may end in `*`.
    pub allow: Vec<String>,
    /// Variables of known secrets: no name that ends in `*` passes them.
    pub secrets: Vec<String>,
}

impl VariableRules {
    /// Returns whether a variable reaches the command.
    pub fn admit(&self, name: &OsStr, value: &OsStr) -> bool {
        let Some(name) = name.to_str() else {
            return false;
        };
        let mut allowed = self.allow.iter();
        let is_secret = self.secrets.iter().any(|one| one == name);
        allowed.any(|one| one == name || !is_secret && passed::matches(name, one))
            || passed::passes(name) && !detect::holds_credential(value.as_bytes())
    }

    /// Returns only the variables that reach the command.
    pub fn scrub(
        &self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        variables
            .into_iter()
            .filter(|(name, value)| self.admit(name, value))
            .collect()
    }

    /// Returns the names of variables that do not reach the command and that it might miss, in
    /// order, those of secrets first.
    pub fn left_out(
        &self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Vec<String> {
        let mut names: Vec<String> = variables
            .into_iter()
            .filter(|(name, value)| !value.is_empty() && !self.admit(name, value))
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .filter(|name| !passed::is_routine(name))
            .collect();
        names.sort_by_cached_key(|name| (!detect::is_secret_name(name.as_bytes()), name.clone()));
        names
    }
}

/// Returns the credential files that variables point to. They must be hidden, too.
pub fn credential_files(variables: &[(OsString, OsString)]) -> Vec<PathBuf> {
    let points = |name: &OsStr| {
        list::lines(include_str!("data/credential_files.txt")).any(|known| name == known)
    };
    variables
        .iter()
        .filter(|(name, _)| points(name))
        .flat_map(|(_, value)| std::env::split_paths(value).collect::<Vec<_>>())
        .filter(|path| path.is_absolute())
        .collect()
}

/// Returns the hidden `names` (relative to the home directory) below the directories to which
/// variables have moved them.
pub fn relocated(variables: &[(OsString, OsString)], names: &[&str]) -> Vec<PathBuf> {
    let moved = list::pairs(include_str!("data/relocations.txt")).filter_map(|(name, prefix)| {
        let directory = PathBuf::from(value(variables, name)?);
        directory.is_absolute().then_some((directory, prefix))
    });
    let inside = moved.flat_map(|(directory, prefix)| {
        let inner = names
            .iter()
            .filter_map(move |name| name.strip_prefix(prefix));
        inner.map(move |name| directory.join(name))
    });
    inside.collect()
}

/// Sets a variable, replacing one of the same name.
pub fn set(
    variables: &mut Vec<(OsString, OsString)>,
    name: impl Into<OsString>,
    value: impl Into<OsString>,
) {
    let name = name.into();
    variables.retain(|(old, _)| *old != name);
    variables.push((name, value.into()));
}

/// Returns the value of a variable.
pub fn value<'a>(variables: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    variables
        .iter()
        .find(|(known, _)| known == name)
        .map(|(_, value)| value.as_os_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(name: &str, value: &str) -> bool {
        VariableRules::default().admit(name.as_ref(), value.as_ref())
    }

    #[test]
    fn only_what_is_known_to_be_harmless_passes() {
        for (name, value) in [
            ("PATH", "/usr/bin:/bin"),
            ("LANG", "C"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000"),
        ] {
            assert!(admits(name, value), "{name}");
        }
        for name in ["FOO", "GITHUB_TOKEN", "path", "PATH_", "", "A=B"] {
            assert!(!admits(name, "x"), "{name}");
        }
        assert!(!VariableRules::default().admit(OsStr::from_bytes(b"LC_\xff"), "x".as_ref()));
    }

    #[test]
    fn a_credential_under_a_harmless_name_is_left_out() {
        assert!(!admits("EDITOR", "ghp_0123456789"));
        assert!(!admits(
            "AWS_ENDPOINT_URL",
            "http://app:hunter2@127.0.0.1:9000"
        ));
        assert!(!admits(
            "PIP_INDEX_URL",
            "https://token@pypi.example.test/simple"
        ));
        assert!(!admits("AWS_DEFAULT_OUTPUT", "ASIAQWERTYUIOPASDFGH"));
    }

    #[test]
    fn what_the_person_names_passes_as_it_is() {
        let rules = VariableRules {
            allow: vec!["MY_*".into(), "EDITOR".into()],
            ..VariableRules::default()
        };
        assert!(rules.admit("MY_TOKEN".as_ref(), "ghp_0123456789".as_ref()));
        assert!(rules.admit("EDITOR".as_ref(), "ghp_0123456789".as_ref()));
        assert!(!rules.admit("OUR_TOKEN".as_ref(), "x".as_ref()));
    }

    #[test]
    fn the_person_hears_of_what_a_program_might_miss_and_not_of_the_sessions_own() {
        let variables = [
            "ZOO_KEEPER",
            "PATH",
            "SSH_AUTH_SOCK",
            "XDG_SESSION_ID",
            "https_proxy",
            "DATABASE_URL",
            "MINE",
        ];
        let variables = variables.map(|name| (name.into(), "x".into())).into_iter();
        let rules = VariableRules {
            allow: vec!["MINE".into()],
            ..VariableRules::default()
        };
        let empty = ("NOTHING".into(), "".into());
        assert_eq!(
            rules.left_out(variables.chain([empty])),
            ["DATABASE_URL", "ZOO_KEEPER"]
        );
    }

    #[test]
    fn stores_that_a_variable_has_moved_are_found_where_they_are() {
        let variables = vec![
            ("XDG_CONFIG_HOME".into(), "/data/config".into()),
            ("CARGO_HOME".into(), "relative".into()),
        ];
        let names = [".config/gh", ".ssh", ".cargo/credentials"];
        assert_eq!(
            relocated(&variables, &names),
            [PathBuf::from("/data/config/gh")]
        );
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
            let _ = VariableRules::default().admit(OsStr::from_bytes(&name), OsStr::from_bytes(&value));
        }
    }
}
