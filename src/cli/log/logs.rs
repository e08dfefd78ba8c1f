//! Finds the audit logs for a command: named ones, configured ones, or those of the running
//! gateways and of the user's state directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::audit::{self, LogUnverified, VerifiedRecord};
use crate::config::{Config, state};
use crate::grant::RecordedDenials;
use crate::launch::trust;
use crate::names::ExchangeId;
use crate::server::chain as causes;

use crate::app::terminal::text::as_argument;
use crate::app::{Failure, Terminal, safe};
use crate::cli::operate::gateways::{ChosenGateway, Gateway};

/// The files of one chain: the log and its rotated files.
pub(crate) type Chain = Vec<PathBuf>;

/// The logs that a command reads.
pub(crate) struct FoundLogs {
    pub chains: Vec<Chain>,
    /// Whether the log of a running gateway is missing.
    pub is_partial: bool,
}

/// Returns the logs to read. Named files are grouped by the ids of their chains, and come with
/// their rotated files. If neither files nor a configuration are named, these are the logs of the
/// running gateways and of the state directory; unavailable ones are reported.
///
/// # Errors
/// Returns a [`Failure`] if there is no log at all, or its folder cannot be read.
pub(crate) fn find(
    named: &[PathBuf],
    config: Option<&Config>,
    terminal: &Terminal,
) -> Result<FoundLogs, Failure> {
    let whole = |chains| FoundLogs {
        chains,
        is_partial: false,
    };
    if !named.is_empty() {
        return by_chain(named).map(whole);
    }
    if let Some(path) = config.and_then(|config| config.audit.path.as_deref()) {
        return files_of(path).map(|chain| whole(vec![chain]));
    }
    let (mut chains, missing) = running();
    for failure in &missing {
        terminal.warning("careful", &safe(&failure.to_string()));
    }
    match stored() {
        Ok(stored) => chains.extend(stored),
        Err(_) if chains.is_empty() && Path::new(trust::BUNDLE).exists() => {
            return Err(Failure::new("the audit log is outside of this sandbox")
                .next("ask what was refused here: `curl http://gateway.internal/refused`"));
        }
        Err(failure) if chains.is_empty() => return Err(failure),
        Err(_) => {}
    }
    chains.sort();
    chains.dedup();
    let is_partial = !missing.is_empty();
    Ok(FoundLogs { chains, is_partial })
}

/// Returns the logs of the running gateways, and why others are missing.
fn running() -> (Vec<Chain>, Vec<Failure>) {
    let (mut chains, mut missing) = (Vec::new(), Vec::new());
    match ChosenGateway::default().find() {
        Ok(gateways) => {
            for gateway in gateways {
                match of_gateway(&gateway) {
                    Ok(chain) => chains.extend(chain),
                    Err(failure) => missing.push(failure),
                }
            }
        }
        Err(failure) => missing.push(failure),
    }
    (chains, missing)
}

/// Returns the log of a running gateway.
///
/// # Errors
/// Returns a [`Failure`] if the gateway does not answer, or the log cannot be read.
pub(crate) fn of_gateway(gateway: &Gateway) -> Result<Option<Chain>, Failure> {
    if gateway.is_elsewhere() {
        return Err(
            Failure::usage("the log of a gateway elsewhere is read on its own machine")
                .next("follow its new records: `gateway log -f`"),
        );
    }
    let state = gateway.get_soon("/v1/status")?;
    let path = state["audit"].as_str();
    path.map(|path| files_of(Path::new(path))).transpose()
}

/// Returns the logs of the state directory.
fn stored() -> Result<Vec<Chain>, Failure> {
    let directory = state::audit_directory().ok_or_else(|| {
        Failure::no_state_folder("there is no audit log to look at").next("name the files")
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
    Ok(chains)
}

/// Groups files by their chain. A file without an intact record that names its chain belongs to the
/// chain of its log.
fn by_chain(named: &[PathBuf]) -> Result<Vec<Chain>, Failure> {
    let mut files = Chain::new();
    for path in named {
        files.extend(files_of(path)?);
    }
    files.sort();
    files.dedup();
    let (mut of_file, mut of_log) = (BTreeMap::new(), BTreeMap::new());
    for file in &files {
        let id = audit::chain_of(file).map_err(|error| unreadable(file, &error))?;
        if let Some(id) = id {
            of_file.insert(file.clone(), id.clone());
            of_log.insert(log_of(file), id);
        }
    }
    let mut chains: BTreeMap<_, Chain> = BTreeMap::new();
    for file in files {
        let log = log_of(&file);
        let id = of_file.get(&file).or_else(|| of_log.get(&log)).cloned();
        let key = id.unwrap_or_else(|| log.display().to_string());
        chains.entry(key).or_default().push(file);
    }
    let mut chains: Vec<Chain> = chains.into_values().collect();
    chains.iter_mut().for_each(oldest_first);
    chains.sort();
    Ok(chains)
}

/// A log's own file sorts before the older ones, and holds the records after theirs.
fn oldest_first(chain: &mut Chain) {
    chain.sort_by_key(|file| (log_of(file), log_of(file) == *file, file.clone()));
}

/// Returns the log that a file belongs to by its name: itself, or for a rotated file its log.
fn log_of(file: &Path) -> PathBuf {
    let number = file.extension().unwrap_or_default().as_encoded_bytes();
    if number.len() == 20 && number.iter().all(u8::is_ascii_digit) {
        file.with_extension("")
    } else {
        file.to_owned()
    }
}

/// The record of an exchange in a verified log, and the refusals by a person.
type RecordedExchange = (Option<VerifiedRecord>, RecordedDenials);

/// Reads the facts that a rule for an exchange depends on from a whole chain.
///
/// # Errors
/// Returns a [`Failure`] if the log cannot be read, or fails verification.
pub(crate) fn told(chain: &Chain, id: &str) -> Result<RecordedExchange, Failure> {
    let told = audit::verified_chain(chain, |(found, denied): &mut RecordedExchange, record| {
        denied.note(&record);
        if record.kind == "exchange" && record.id.as_deref() == Some(id) {
            *found = Some(record);
        }
    });
    told.map_err(|why| {
        let log = chain.last().map(|path| path.display().to_string());
        let log = log.unwrap_or_default();
        let (what, why) = match why {
            LogUnverified::Unreadable(error) => ("cannot be read", causes(&error)),
            LogUnverified::Fault(problem) => ("does not hold", problem.to_string()),
        };
        Failure::new(format!("the audit log `{log}` {what}"))
            .because(format!("{why}, so nothing is proposed after it"))
            .next("see `gateway log verify`")
    })
}

/// Returns the log and its rotated files, oldest first.
fn files_of(path: &Path) -> Result<Chain, Failure> {
    audit::files(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &audit::Error) -> Failure {
    Failure::new(format!("the audit log `{}` cannot be read", path.display()))
        .because(causes(error))
}

/// Returns the `gateway why` command for an exchange, in a form that works in any folder. It names
/// the log unless the default finds it.
pub(crate) fn advice(id: ExchangeId, log: Option<&Path>) -> String {
    let Some(log) = log else {
        return format!("gateway why {id}");
    };
    format!("gateway why {id} --audit {}", as_argument(log))
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
