//! The configuration of the gateway's user and of the system for package registries.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The configuration of the user and of the system, never of the project. Only its files and the
/// user's own variables determine where packages come from. It is never written.
///
/// The workload can write a project's `.npmrc`, `.cargo/config.toml` or virtual environment. If
/// they were read, a host of its choice would be allowed and lent credentials.
#[derive(Debug, Clone)]
pub struct UserConfig {
    pub(super) home: PathBuf,
    pub(super) system: PathBuf,
    pub(super) variables: BTreeMap<String, String>,
}

/// A setting of the user that cannot be read, so that its registry is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct RegistryDoubt {
    /// The file and the line or key, or the variable.
    pub place: String,
    /// The problem. Quotes no part of the value, which may hold a credential.
    pub why: String,
}

impl UserConfig {
    /// Returns the configuration of the gateway's user; `None` if `HOME` is not set.
    pub fn of_this_user() -> Option<Self> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let home = PathBuf::from(std::env::var_os("HOME")?);
        Some(Self::below(&home, Path::new("/"), variables.collect()))
    }

    /// Returns a configuration under other roots, with these variables.
    pub fn below(home: &Path, system: &Path, variables: BTreeMap<String, String>) -> Self {
        Self {
            home: home.to_owned(),
            system: system.to_owned(),
            variables,
        }
    }

    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns the path that the first set variable names, or the usual one below the home.
    pub(super) fn place(&self, variables: &[&str], usual: &str) -> PathBuf {
        let named = variables.iter().find_map(|name| self.variable(name));
        let named = named.map(PathBuf::from).filter(|path| path.is_absolute());
        named.unwrap_or_else(|| self.home.join(usual))
    }

    /// Returns a path below the user's folder of settings.
    pub(super) fn settings(&self, path: &str) -> PathBuf {
        self.place(&["XDG_CONFIG_HOME"], ".config").join(path)
    }
}

/// Returns the text of a file; `None` if the file does not exist.
///
/// # Errors
/// [`RegistryDoubt`] if the file cannot be read, or is too large.
pub(super) fn text(path: &Path) -> Result<Option<String>, RegistryDoubt> {
    let doubt = |why: String| RegistryDoubt {
        place: format!("`{}`", path.display()),
        why,
    };
    match std::fs::metadata(path) {
        // `/dev/null` means that there is no file.
        Ok(about) if about.is_dir() || path == Path::new("/dev/null") => return Ok(None),
        Ok(about) if !about.is_file() || about.len() > MAX_FILE_BYTES => {
            return Err(doubt("it is no file of at most 1 MiB".to_owned()));
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        _ => {}
    }
    let read = std::fs::read_to_string(path);
    read.map(Some).map_err(|error| doubt(error.to_string()))
}

const MAX_FILE_BYTES: u64 = 1 << 20;
