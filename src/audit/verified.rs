//! Verified records, from which a rule may be made: those of a log without faults.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use super::chain::ChainHead;
use super::error::Error;
use super::file::files;
use super::read::steady;
use super::record::Record;
use super::verify::{ExpectedHeads, LocatedFault, LogFault, verify_each};

/// A record of a log without faults. Only [`verified`] and [`verified_chain`] make one.
pub struct VerifiedRecord(Record);

impl Deref for VerifiedRecord {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.0
    }
}

/// Why a log yields no verified records.
#[derive(Debug, thiserror::Error)]
pub enum LogUnverified {
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Error),
    /// Something was changed, removed, inserted or reordered.
    #[error("{0}")]
    Fault(LocatedFault),
}

/// Reads the log at `path` with its rotated files, and returns the value that `each` built from the
/// records, if the whole log is without faults and has `head`.
///
/// Ignores a last line without an end. Earlier files may be missing if there is a `head`: the rest
/// of the chain leads to it.
///
/// # Errors
/// [`LogUnverified`] with the first fault.
pub fn verified<T: Default>(
    path: &Path,
    head: Option<ChainHead>,
    each: impl Fn(&mut T, VerifiedRecord),
) -> Result<T, LogUnverified> {
    steady(path, |files| whole(files, head, &each))
}

/// As [`verified`] without a head, for the files of one chain; the last is the log itself. If all
/// are files of that log, files from a rotation meanwhile are read too.
///
/// # Errors
/// As [`verified`].
pub fn verified_chain<T: Default>(
    chain: &[PathBuf],
    each: impl Fn(&mut T, VerifiedRecord),
) -> Result<T, LogUnverified> {
    let together =
        |log: &&PathBuf| files(log).is_ok_and(|all| chain.iter().all(|file| all.contains(file)));
    match chain.last().filter(together) {
        Some(log) => verified(log, None, each),
        None => whole(chain, None, &each),
    }
}

fn whole<T: Default>(
    files: &[PathBuf],
    head: Option<ChainHead>,
    each: &impl Fn(&mut T, VerifiedRecord),
) -> Result<T, LogUnverified> {
    let expected = ExpectedHeads { base: None, head };
    let is_harmless = |fault: &LogFault| match fault {
        LogFault::TornEnd => true,
        LogFault::BeginsLate { .. } => head.is_some(),
        _ => false,
    };
    let mut made = T::default();
    let mut take = |record| each(&mut made, VerifiedRecord(record));
    let report = verify_each(files, expected, Some(&mut take))?;
    let mut problems = report.problems.into_iter();
    match problems.find(|problem| !is_harmless(&problem.fault)) {
        Some(problem) => Err(LogUnverified::Fault(problem)),
        None => Ok(made),
    }
}

#[cfg(test)]
mod tests {
    use gateway_names::ExchangeId;

    use super::*;
    use crate::{Log, Settings, Trail};

    fn ids(path: &Path, head: Option<ChainHead>) -> Result<Vec<String>, LogUnverified> {
        verified(path, head, |all: &mut Vec<String>, record| {
            all.extend(record.id.as_deref().map(str::to_owned));
        })
    }

    #[test]
    fn records_are_given_if_all_of_the_log_holds_and_not_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own/log.jsonl");
        let log = Log::open(&Settings::at(&path)).unwrap();
        for n in 0..3 {
            drop(Trail::begin(&log, ExchangeId::from_bytes([n; 10]), "t"));
        }
        let head = log.head();
        assert_eq!(ids(&path, head).unwrap().len(), 3);
        let whole = std::fs::read_to_string(&path).unwrap();
        // A line that is not written whole yet is no record.
        std::fs::write(&path, format!("{whole}{{\"v\":1,")).unwrap();
        assert_eq!(ids(&path, head).unwrap().len(), 3);
        let chain = [path.clone()];
        let all = verified_chain(&chain, |count: &mut u32, _| *count += 1);
        assert_eq!(all.unwrap(), 4);
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        let late = lines[2..].concat();
        std::fs::write(&path, &late).unwrap();
        assert_eq!(ids(&path, head).unwrap().len(), 2);
        assert!(ids(&path, None).is_err());
        for changed in [
            whole.replacen("\"t\"", "\"u\"", 1),
            [lines[0], lines[2]].concat(),
            [lines[0], "{}\n", &late].concat(),
            lines[..3].concat(),
        ] {
            std::fs::write(&path, changed).unwrap();
            assert!(matches!(ids(&path, head), Err(LogUnverified::Fault(_))));
        }
    }
}
