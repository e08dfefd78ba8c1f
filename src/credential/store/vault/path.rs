//! Vault paths, as references name them.

use std::fmt;

use super::super::ReferenceMalformed;

/// The path of a secret in Vault.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VaultPath {
    /// The path without `/v1/`, and without the `data/` of KV version 2.
    pub(super) path: Box<str>,
    /// The version of a KV secret; `None` means the latest.
    pub(super) version: Option<u32>,
    /// Whether the secret is issued per session, with its own lease.
    pub(in super::super) issued: bool,
}

impl VaultPath {
    /// Parses `PATH#FIELD` or `PATH?version=N#FIELD`, and returns the field too.
    pub(in super::super) fn parse(text: &str) -> Result<(Self, Box<str>), ReferenceMalformed> {
        let (place, field) = Self::parts(text)?;
        let (path, version) = match place.split_once("?version=") {
            None => (place, None),
            Some((path, number)) => match number.parse() {
                Ok(number @ 1..) => (path, Some(number)),
                _ => return Err(malformed("a version is a number from 1 on")),
            },
        };
        Ok((Self::new(path, version, false)?, field))
    }

    /// Parses `PATH#FIELD` of a secret that is issued per session.
    pub(in super::super) fn parse_issued(
        text: &str,
    ) -> Result<(Self, Box<str>), ReferenceMalformed> {
        let (path, field) = Self::parts(text)?;
        Ok((Self::new(path, None, true)?, field))
    }

    fn new(path: &str, version: Option<u32>, issued: bool) -> Result<Self, ReferenceMalformed> {
        Ok(Self {
            path: checked(path)?,
            version,
            issued,
        })
    }

    fn parts(text: &str) -> Result<(&str, Box<str>), ReferenceMalformed> {
        let named = text.split_once('#');
        let (place, field) = named.ok_or_else(|| malformed("a reference names a field"))?;
        let fits = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        if (1..=128).contains(&field.len()) && field.bytes().all(fits) {
            Ok((place, field.into()))
        } else {
            Err(malformed("a field has 1 to 128 visible characters"))
        }
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

impl fmt::Display for VaultPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.issued { "vault-lease" } else { "vault" };
        write!(f, "{scheme}:{}", self.path)?;
        match self.version {
            Some(version) => write!(f, "?version={version}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_back_as_they_are_shown() {
        for text in ["vault:secret/app", "vault:secret/a/b.c?version=3"] {
            let rest = text.strip_prefix("vault:").unwrap();
            let (path, field) = VaultPath::parse(&format!("{rest}#token")).unwrap();
            assert_eq!((path.to_string().as_str(), &*field), (text, "token"));
        }
        let (path, _) = VaultPath::parse_issued("database/creds/app#password").unwrap();
        assert!(path.issued);
        assert_eq!(path.to_string(), "vault-lease:database/creds/app");
    }

    #[test]
    fn a_path_that_could_lead_elsewhere_is_refused() {
        for text in [
            "",
            "#x",
            "secret#x",
            "secret/app",
            "secret/app#",
            "/secret/app#x",
            "secret/../sys/raw#x",
            "secret/./app#x",
            "secret//app#x",
            "secret/app/#x",
            "secret/a%2e%2e/b#x",
            "secret/app?list=true#x",
            "secret/app?version=0#x",
            "secret/app?version=x#x",
            "secret/a b#x",
            "secret/app#a#b",
            "secret/app#a b",
        ] {
            assert!(VaultPath::parse(text).is_err(), "{text}");
        }
        assert!(VaultPath::parse_issued("database/creds/app?version=1#x").is_err());
    }
}
