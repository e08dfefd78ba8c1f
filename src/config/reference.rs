//! Reads references to secrets from text and checks them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway_credential::{ReferenceMalformed, SecretRef, variable_name};

use super::diagnostic::Hint;
use super::document::{Document, literal_hint};
use super::literal::{known_prefix, looks_secret};
use super::section::Section;
use super::units;

/// Reads `SCHEME:PLACE`; `resolve` turns its text into a path.
///
/// The hints never repeat the text. It may be a secret that someone wrote instead of a reference.
///
/// # Errors
/// Returns a [`Hint`] if the scheme is unknown, the rest is malformed, or others can read the file.
pub fn parse(
    text: &str,
    resolve: impl FnOnce(&str) -> Result<PathBuf, Hint>,
) -> Result<SecretRef, Hint> {
    if known_prefix(text) {
        return Err(literal_hint());
    }
    match text.split_once(':') {
        Some(("env", name)) if looks_secret(name) => Err(literal_hint()),
        None if looks_secret(text) => Err(literal_hint()),
        _ => SecretRef::parse(text, resolve),
    }
}

impl From<ReferenceMalformed> for Hint {
    fn from(malformed: ReferenceMalformed) -> Self {
        Self::new(malformed.why, malformed.remedy)
    }
}

/// Reads the reference at a key: a text, or a table with a command.
pub(super) fn read(
    section: &Section<'_, '_>,
    key: &'static str,
    table: &'static str,
) -> Option<SecretRef> {
    let value = section.value(key)?;
    if value.get_ref().is_table() && !table.is_empty() {
        let reference = command(&section.inner(key, table)?)?;
        check(section.document, &value.span(), key, &reference);
        return Some(reference);
    }
    let text = section.text(key)?;
    read_at(section.document, &text.span(), key, text.get_ref())
}

/// Reads a reference to a secret of the gateway's own login, which must be stored on this machine.
pub(super) fn local(section: &Section<'_, '_>, key: &'static str) -> Option<SecretRef> {
    let text = section.text(key)?;
    let from = usable(section.document, &text.span(), key, text.get_ref())?;
    let from = from.allowing_short(true);
    if from.store().is_some() {
        mistake!(section, key, "`{key}` is kept in a store";
            "what the gateway itself logs in with is kept on this machine";
            "write `env:NAME`, `file:/path` or `keyring:gateway/NAME`");
        return None;
    }
    Some(from)
}

/// Reads the reference at a place of the file. One to a store is checked when all stores are known.
pub(super) fn read_at(
    document: &Document<'_>,
    span: &Range<usize>,
    key: &str,
    text: &str,
) -> Option<SecretRef> {
    let reference = usable(document, span, key, text)?;
    if reference.store().is_some() {
        document.note_in_store(span, key, &reference);
    }
    Some(reference)
}

fn usable(
    document: &Document<'_>,
    span: &Range<usize>,
    key: &str,
    text: &str,
) -> Option<SecretRef> {
    let refuse = |hint| document.error(span, unusable(key), hint);
    let reference = parse(text, |path| document.path(path))
        .map_err(refuse)
        .ok()?;
    check(document, span, key, &reference);
    Some(reference)
}

/// Records a secret that cannot be used at present.
pub(super) fn check(
    document: &Document<'_>,
    span: &Range<usize>,
    key: &str,
    reference: &SecretRef,
) {
    if let Err(malformed) = reference.check() {
        document.unusable(span, unusable(key), malformed.into());
    }
}

pub(super) fn unusable(key: &str) -> String {
    format!("`{key}` refers to no usable secret")
}

fn command(section: &Section<'_, '_>) -> Option<SecretRef> {
    // A command is run at most once a second and at least once a day.
    let ttl = section.get("ttl", |text| units::within_a_day(text, 1));
    let pass = section.all("pass", variable);
    Some(program(section, ttl)?.passing(pass))
}

/// Reads a program and its arguments: `command`.
pub(super) fn program(section: &Section<'_, '_>, ttl: Option<Duration>) -> Option<SecretRef> {
    let mut argv = section.all("command", |text| match text {
        _ if looks_secret(text) && !text.starts_with('/') => Err(literal_hint()),
        _ if text.contains('\0') => refused!("an argument holds no NUL"; "remove it"),
        _ => Ok(text.to_owned()),
    });
    if argv.is_empty() && section.has("command") {
        mistake!(section, "command", "`command` is empty"; "there is nothing to run";
            "write the program and its arguments");
    }
    require!(section, "command"; "it says which program is run";
        "add `command = [\"/path\", \"argument\"]`");
    let program = argv.drain(..1.min(argv.len())).next()?;
    if !Path::new(&program).is_absolute() {
        mistake!(section, "command", "the program is no absolute path";
            "a program that is looked up by PATH may be another one";
            "write its whole path, such as `/usr/bin/pass`");
        return None;
    }
    Some(SecretRef::command(program, argv, ttl))
}

/// Checks the name of an environment variable.
///
/// # Errors
/// Returns a [`Hint`] if it has a character outside `A-Z a-z 0-9 _`, starts with a digit, or looks
/// like a secret.
pub fn variable(name: &str) -> Result<String, Hint> {
    if looks_secret(name) {
        return Err(literal_hint());
    }
    Ok(variable_name(name)?.to_owned())
}

/// Reads the name of a variable, or a prefix of several names followed by `*`.
///
/// # Errors
/// Returns a [`Hint`] if the name or the prefix is not a valid variable name.
pub fn variables(pattern: &str) -> Result<String, Hint> {
    variable(pattern.strip_suffix('*').unwrap_or(pattern)).map(|_| pattern.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SecretRef, Hint> {
        let read = super::parse(text, |path| Ok(PathBuf::from(path)))?;
        read.check()?;
        Ok(read)
    }

    #[test]
    fn references_read_back_as_they_are_shown() {
        for text in [
            "env:GITHUB_TOKEN",
            "keyring:gateway/GITHUB_TOKEN",
            "vault:secret/a/b.c?version=3#token",
            "prod-lease:database/creds/app#password",
            "login:claude#access",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_literal_secret_is_recognised_and_not_repeated() {
        for secret in [
            "ghp_0123456789abcdefghijABCDEFGHIJ012345",
            "env:ghp_0123456789abcdefghijABCDEFGHIJ012345",
            "hunter2",
        ] {
            let hint = parse(secret).unwrap_err();
            assert!(!format!("{hint:?}").contains(secret), "{hint:?}");
            assert!(!format!("{hint:?}").contains("0123456789abc"), "{hint:?}");
        }
    }

    #[test]
    fn malformed_references_are_refused() {
        for text in [
            "",
            "env:",
            "env:A-B",
            "env:1A",
            "keyring:",
            "keyring:x",
            "keyring:/x",
            "keyring:a/b/c",
            "command:/bin/x",
            "vault:",
            "Vault:x",
            "a-lease-lease:x",
            "login:claude",
            "login:claude#refresh",
            "login:#access",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_and_one_that_they_cannot_is_taken() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, "canary-content").unwrap();
        let text = format!("file:{}", path.display());
        for mode in [0o644, 0o660, 0o602, 0o604] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(
                parse(&text).unwrap_err().remedy.contains("chmod 600"),
                "{mode:o}"
            );
        }
        // The group is one of this process.
        for mode in [0o600, 0o640, 0o440] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(parse(&text), Ok(SecretRef::file(path.clone())));
        }
        assert!(parse("file:/nonexistent/secret").is_err());
    }
}
