//! Finds the audit logs that a command is about: named, configured, or those of the user's state directory.

use std::path::{Path, PathBuf};

use crate::config::{Config, state};

use super::failure::Failure;

/// The files of one chain: the log and what it was before it grew too large.
pub(super) type Chain = Vec<PathBuf>;

/// The chains to look at; named files are one chain.
///
/// # Errors
/// A [`Failure`] where there is no log at all, or its folder cannot be read.
pub(super) fn chains(named: &[PathBuf], config: Option<&Config>) -> Result<Vec<Chain>, Failure> {
    if !named.is_empty() {
        return Ok(vec![named.to_vec()]);
    }
    if let Some(path) = config.and_then(|config| config.audit.path.as_deref()) {
        return siblings(path).map(|chain| vec![chain]);
    }
    let directory = state::audit_directory().ok_or_else(|| {
        Failure::new("there is no audit log to look at")
            .because("neither HOME nor XDG_STATE_HOME names a folder")
            .next("name the files")
    })?;
    let unreadable = |error: std::io::Error| {
        Failure::new("there is no audit log to look at")
            .because(format!("`{}`: {error}", directory.display()))
            .next("name the files, or the configuration that says where they are")
    };
    let mut chains = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if !name.starts_with('.') && name.ends_with(".jsonl") {
            chains.push(siblings(&path)?);
        }
    }
    if chains.is_empty() {
        let why = format!("`{}` holds none", directory.display());
        return Err(Failure::new("there is no audit log to look at")
            .because(why)
            .next("name the files"));
    }
    chains.sort();
    Ok(chains)
}

/// The log and the files that it was rotated into: its name with 20 digits behind it.
fn siblings(path: &Path) -> Result<Chain, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::new(format!("the audit log `{}` cannot be read", path.display())).because(error.to_string())
    };
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut chain = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let found = entry.file_name().to_string_lossy().into_owned();
        let number = found.strip_prefix(&name).and_then(|rest| rest.strip_prefix('.'));
        if number.is_some_and(|number| number.len() == 20 && number.bytes().all(|byte| byte.is_ascii_digit()))
        {
            chain.push(entry.path());
        }
    }
    chain.sort();
    if path.exists() || chain.is_empty() {
        chain.push(path.to_owned());
    }
    Ok(chain)
}
