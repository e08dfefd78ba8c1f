//! Finds the audit logs for a command: named, configured, or in the user's state directory.

use std::path::{Path, PathBuf};

use crate::audit;
use crate::config::{Config, state};
use crate::gateway::chain;
use crate::names::ExchangeId;

use super::failure::Failure;

/// The files of one chain: the log and its rotated files.
pub(super) type Chain = Vec<PathBuf>;

/// Returns the chains to read. Named files form one chain, together with their rotated files.
///
/// # Errors
/// Returns a [`Failure`] if there is no log at all, or its folder cannot be read.
pub(super) fn chains(named: &[PathBuf], config: Option<&Config>) -> Result<Vec<Chain>, Failure> {
    if !named.is_empty() {
        let mut chain = Chain::new();
        for path in named {
            let found = files_of(path)?.into_iter();
            let new: Chain = found.filter(|path| !chain.contains(path)).collect();
            chain.extend(new);
        }
        return Ok(vec![chain]);
    }
    if let Some(path) = config.and_then(|config| config.audit.path.as_deref()) {
        return files_of(path).map(|chain| vec![chain]);
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
            chains.push(files_of(&path)?);
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

/// Returns the log and its rotated files, oldest first.
fn files_of(path: &Path) -> Result<Chain, Failure> {
    audit::files(path).map_err(|error| {
        Failure::new(format!("the audit log `{}` cannot be read", path.display()))
            .because(chain(&error))
    })
}

/// Returns the `gateway why` command for an exchange, in a form that works in any folder. It names
/// the log unless that is found by default.
pub(super) fn advice(id: ExchangeId, log: Option<&Path>) -> String {
    let Some(log) = log else {
        return format!("gateway why {id}");
    };
    let path = log.display().to_string();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%".contains(&byte);
    if path.bytes().all(plain) {
        return format!("gateway why {id} --audit {path}");
    }
    format!("gateway why {id} --audit '{}'", path.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_names_a_log_that_is_not_found_by_itself_as_a_shell_reads_it() {
        let id = ExchangeId::from_bytes([7; 10]);
        for (log, end) in [
            (None, ""),
            (
                Some("/srv/logs/audit.jsonl"),
                " --audit /srv/logs/audit.jsonl",
            ),
            (Some("/srv/it's mine"), r" --audit '/srv/it'\''s mine'"),
        ] {
            let said = advice(id, log.map(Path::new));
            assert_eq!(said, format!("gateway why {id}{end}"));
        }
    }
}
