//! Vault paths, as references name them.

use super::super::ReferenceMalformed;

/// The path of a secret in Vault.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VaultPath {
    /// The path without `/v1/`, and without the `data/` of KV version 2.
    pub(super) path: Box<str>,
    /// The version of a KV secret; `None` means the latest.
    pub(super) version: Option<u32>,
}

impl VaultPath {
    /// Parses `PATH` or `PATH?version=N`; of a secret that is issued, `PATH` alone.
    pub(in super::super) fn parse(text: &str, issued: bool) -> Result<Self, ReferenceMalformed> {
        let (path, version) = match text.split_once("?version=").filter(|_| !issued) {
            None => (text, None),
            Some((path, number)) => match number.parse() {
                Ok(number @ 1..) => (path, Some(number)),
                _ => return Err(malformed("a version is a number from 1 on")),
            },
        };
        Ok(Self {
            path: checked(path)?,
            version,
        })
    }
}

/// Checks that a path is unambiguous: no empty or dot segments, and no characters that would be
/// escaped.
fn checked(path: &str) -> Result<Box<str>, ReferenceMalformed> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~@+=:,".contains(&byte);
    let is_segment =
        |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(fits);
    if path.len() > 512 || !path.split('/').all(is_segment) || !path.contains('/') {
        return Err(malformed(
            "a path has a mount and a name, of the characters A-Z, a-z, 0-9 and `-_.~@+=:,`",
        ));
    }
    // Such paths return the gateway's own token, or the store's own keys. `auth/token` may also lie
    // in a namespace.
    if path.starts_with("auth/") || path.starts_with("sys/") || path.contains("/auth/token/") {
        return Err(malformed(
            "`auth/` and `sys/` hold no secrets of yours, but what the store itself lives by",
        ));
    }
    Ok(path.into())
}

fn malformed(why: &str) -> ReferenceMalformed {
    ReferenceMalformed::new(
        why,
        "write `vault:secret/app#token`, or `vault-lease:database/creds/app#password`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_and_a_lease_has_none() {
        let path = VaultPath::parse("secret/a/b.c?version=3", false).unwrap();
        assert_eq!((&*path.path, path.version), ("secret/a/b.c", Some(3)));
        let issued = VaultPath::parse("database/creds/app", true).unwrap();
        assert_eq!(
            (&*issued.path, issued.version),
            ("database/creds/app", None)
        );
        assert!(VaultPath::parse("database/creds/app?version=1", true).is_err());
    }

    #[test]
    fn a_path_that_could_lead_elsewhere_is_refused() {
        for text in [
            "",
            "secret",
            "/secret/app",
            "secret/../sys/raw",
            "secret/./app",
            "secret//app",
            "secret/app/",
            "secret/a%2e%2e/b",
            "secret/app?list=true",
            "secret/app?version=0",
            "secret/app?version=x",
            "secret/a b",
        ] {
            assert!(VaultPath::parse(text, false).is_err(), "{text}");
        }
    }
}
