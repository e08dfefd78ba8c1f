//! Verifies a log from its bytes alone: nothing was changed, removed, inserted or reordered.

use std::fmt;
use std::path::{Path, PathBuf};

use super::chain::{ChainHead, ChainLink, GENESIS, LinkBroken, unseal};
use super::error::Error;
use super::private::opening;
use super::record::Record;
use super::scan::{Lines, Piece, TORN_END, Torn, find_in, open};

/// What the caller already knows about the log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ExpectedHeads {
    /// The last record of files that were archived on purpose: the chain must continue from it.
    pub base: Option<ChainHead>,
    /// A record that must be present, from [`super::Log::head`] or an earlier report.
    pub head: Option<ChainHead>,
}

/// The result of a verification.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct VerifyReport {
    /// The chain's id.
    pub chain: Option<String>,
    /// The number of valid records.
    pub records: u64,
    /// How many of them are exchanges.
    pub exchanges: u64,
    /// The first valid record.
    pub first: Option<ChainHead>,
    /// The last valid record: the head to expect next time.
    pub last: Option<ChainHead>,
    /// Whether that record says that the log ends there.
    pub stopped: bool,
    /// The failures that the log itself reports; at most the first thousand.
    pub recoveries: Vec<Recovery>,
    /// The faults found; at most the first thousand.
    pub problems: Vec<LocatedFault>,
    /// How many recoveries and problems are not listed.
    pub more: u64,
}

/// A failure that the log itself reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// The file.
    pub file: PathBuf,
    /// The line of the `recover` record.
    pub line: u64,
    /// The cause: `unclean`, `refused` or `unsynced`.
    pub cause: String,
    /// How many torn bytes precede it.
    pub torn_bytes: u64,
    /// How many records could not be written.
    pub lost: u64,
}

/// One fault, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatedFault {
    /// The file.
    pub file: PathBuf,
    /// The line number; the first line is 1.
    pub line: u64,
    /// What is wrong.
    pub fault: LogFault,
}

/// What can be wrong with a log.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LogFault {
    /// A line is not a sealed record, and no `recover` record accounts for it.
    #[error("{0}")]
    Broken(LinkBroken),
    /// The last line has no end.
    #[error("the log ends in mid-record: its writer died, or is writing now")]
    TornEnd,
    /// The record's number does not follow the one before it.
    #[error("record {found} was found where record {expected} belongs")]
    Sequence {
        /// The number that follows.
        expected: u64,
        /// The number found.
        found: u64,
    },
    /// The record was sealed after a different record than the one before it.
    #[error("the record before this one is not the one that it was sealed behind")]
    Unlinked,
    /// The first record is not the first of its chain, and no base was given.
    #[error("the log begins at record {found}: earlier files are missing")]
    BeginsLate {
        /// The number of the first record.
        found: u64,
    },
    /// A `recover` record does not match the torn bytes before it.
    #[error("the torn bytes before this record are not those that it accounts for")]
    Unaccounted,
    /// The content is not the JSON of a record.
    #[error("the record cannot be read")]
    Unreadable,
    /// The expected record is not in the log.
    #[error("the expected record {0} is not here: the end is missing, or the chain is another")]
    HeadMissing(ChainHead),
    /// There are no records.
    #[error("there is no record")]
    Empty,
}

impl VerifyReport {
    /// Whether the log is free of faults.
    pub fn holds(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for LocatedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.fault)
    }
}

/// Verifies the files of one chain, given in any order, in constant memory.
///
/// Without [`ExpectedHeads::head`], missing records at the very end cannot be detected.
///
/// # Errors
/// [`Error::Open`] for the first file that cannot be read. Faults inside a file are in the report.
pub fn verify(paths: &[PathBuf], expected: ExpectedHeads) -> Result<VerifyReport, Error> {
    verify_each(paths, expected, None)
}

/// As [`verify`], and passes each record to `each`.
pub(super) fn verify_each(
    paths: &[PathBuf],
    expected: ExpectedHeads,
    each: Option<&mut dyn FnMut(Record)>,
) -> Result<VerifyReport, Error> {
    let mut verifier = Verifier {
        before: expected.base,
        expected,
        each,
        head_seen: false,
        report: VerifyReport::default(),
    };
    let files = in_order(paths)?;
    for (at, path) in files.iter().enumerate() {
        let last = at + 1 == files.len();
        verifier.file(path, last)?;
    }
    Ok(verifier.finish(files.last().map_or(Path::new(""), PathBuf::as_path)))
}

struct Verifier<'a> {
    before: Option<ChainHead>,
    expected: ExpectedHeads,
    each: Option<&'a mut dyn FnMut(Record)>,
    head_seen: bool,
    report: VerifyReport,
}

/// Bytes between two records, without the end mark that the recovery appended.
struct Gap {
    line: u64,
    broken: LinkBroken,
    torn: Torn,
    holds_back: bool,
    unterminated: bool,
}

impl Verifier<'_> {
    fn file(&mut self, path: &Path, last: bool) -> Result<(), Error> {
        let mut lines = Lines::new(open(path)?);
        let mut gap: Option<Gap> = None;
        while let Some(piece) = lines.next().map_err(opening(path))? {
            match unseal(piece.bytes) {
                Ok(link) if piece.at_start => self.record(path, &piece, &link, gap.take()),
                Ok(_) => Gap::widen(&mut gap, &piece, LinkBroken::Malformed),
                Err(broken) => Gap::widen(&mut gap, &piece, broken),
            }
        }
        if let Some(gap) = gap {
            let fault = if last && gap.unterminated {
                LogFault::TornEnd
            } else {
                LogFault::Broken(gap.broken)
            };
            self.problem(path, gap.line, fault);
        }
        Ok(())
    }

    fn record(&mut self, path: &Path, piece: &Piece<'_>, link: &ChainLink<'_>, gap: Option<Gap>) {
        let recovers = link.kind == b"recover";
        if let Some(gap) = gap.as_ref().filter(|_| !recovers) {
            self.problem(path, gap.line, LogFault::Broken(gap.broken));
        }
        self.follow(path, piece.number, link);
        self.report.records += 1;
        self.report.exchanges += u64::from(link.kind == b"exchange");
        self.report.first.get_or_insert(link.head);
        self.report.last = Some(link.head);
        self.report.stopped = link.kind == b"stop";
        self.before = Some(link.head);
        self.head_seen |= self.expected.head == Some(link.head);
        if !(recovers || self.each.is_some() || self.report.chain.is_none()) {
            return;
        }
        match serde_json::from_slice::<Record>(piece.bytes) {
            Ok(record) => {
                if recovers {
                    self.recovery(path, piece.number, &record, gap);
                }
                self.report.chain = self.report.chain.take().or(record.chain.clone());
                if let Some(each) = &mut self.each {
                    each(record);
                }
            }
            Err(_) if recovers || self.each.is_some() => {
                self.problem(path, piece.number, LogFault::Unreadable);
            }
            Err(_) => {}
        }
    }

    fn follow(&mut self, path: &Path, line: u64, link: &ChainLink<'_>) {
        let found = link.head.seq();
        let first = self.report.first.is_none() && self.expected.base.is_none();
        if first && found != 0 {
            return self.problem(path, line, LogFault::BeginsLate { found });
        }
        let expected = self.before.map_or(0, |head| head.seq() + 1);
        if found != expected {
            self.problem(path, line, LogFault::Sequence { expected, found });
        } else if link.prev != self.before.map_or(GENESIS, |head| head.hash) {
            self.problem(path, line, LogFault::Unlinked);
        }
    }

    fn recovery(&mut self, path: &Path, line: u64, record: &Record, gap: Option<Gap>) {
        let claimed = record.torn_at.zip(record.torn_bytes);
        let claimed = claimed.zip(record.torn_sha256.clone());
        let accounted = match &gap {
            Some(Gap {
                torn, holds_back, ..
            }) => *holds_back && claimed == Some(((torn.at, torn.bytes), torn.sha256())),
            None => claimed.is_none(),
        };
        if !accounted {
            let at = gap.map_or(line, |gap| gap.line);
            self.problem(path, at, LogFault::Unaccounted);
        }
        let recovery = Recovery {
            file: path.to_owned(),
            line,
            cause: record.cause.as_deref().unwrap_or_default().to_owned(),
            torn_bytes: record.torn_bytes.unwrap_or(0),
            lost: record.lost.unwrap_or(0),
        };
        push_bounded(&mut self.report.recoveries, recovery, &mut self.report.more);
    }

    fn finish(mut self, last: &Path) -> VerifyReport {
        let line = self.report.records;
        if line == 0 {
            self.problem(last, 1, LogFault::Empty);
        }
        let ExpectedHeads { base, head } = self.expected;
        if let Some(head) = head.filter(|_| !self.head_seen && base != head) {
            self.problem(last, line, LogFault::HeadMissing(head));
        }
        self.report
    }

    fn problem(&mut self, file: &Path, line: u64, fault: LogFault) {
        let problem = LocatedFault {
            file: file.to_owned(),
            line,
            fault,
        };
        push_bounded(&mut self.report.problems, problem, &mut self.report.more);
    }
}

impl Gap {
    fn widen(gap: &mut Option<Self>, piece: &Piece<'_>, broken: LinkBroken) {
        let gap = gap.get_or_insert_with(|| Self {
            line: piece.number,
            broken,
            torn: Torn::at(piece.offset),
            holds_back: false,
            unterminated: false,
        });
        gap.unterminated = !piece.bytes.ends_with(b"\n");
        if gap.holds_back {
            gap.torn.push(TORN_END);
        }
        let content = piece.bytes.strip_suffix(TORN_END);
        gap.holds_back = content.is_some();
        gap.torn.push(content.unwrap_or(piece.bytes));
    }
}

/// Sorts the files by the number of their first record; files without records come last.
fn in_order(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let keyed = |path: &PathBuf| {
        let first = find_in(path, |piece| Some(piece.link()?.head.seq()))?;
        Ok((first.unwrap_or(u64::MAX), path.clone()))
    };
    let mut keyed: Vec<_> = paths.iter().map(keyed).collect::<Result<_, Error>>()?;
    keyed.sort_by_key(|(first, _)| *first);
    Ok(keyed.into_iter().map(|(_, path)| path).collect())
}

fn push_bounded<T>(list: &mut Vec<T>, item: T, more: &mut u64) {
    if list.len() < LISTED {
        list.push(item);
    } else {
        *more += 1;
    }
}

const LISTED: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, Length, Log, Trail, find};
    use gateway_names::ExchangeId;
    use proptest::prelude::*;

    /// A log with a start, some exchanges, a torn write and its recovery, more exchanges, and a
    /// stop.
    fn sample() -> (Vec<u8>, ChainHead) {
        let (log, memory) = Log::memory(Durability::Batch).expect("a log");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        for number in 0..4 {
            if number == 2 {
                memory.leave_room(Some(60));
                drop(Trail::begin(&log, ExchangeId::from_bytes([99; 10]), "t"));
                memory.leave_room(None);
            }
            let mut trail = Trail::begin(&log, ExchangeId::from_bytes([number; 10]), "t");
            runtime
                .block_on(trail.answer(200, Length::Known(0)))
                .expect("room");
        }
        let head = log.head().expect("records");
        (memory.bytes(), head)
    }

    fn check(parts: &[&[u8]], expected: ExpectedHeads) -> VerifyReport {
        let folder = tempfile::tempdir().expect("a folder");
        let mut paths = Vec::new();
        for (at, bytes) in parts.iter().enumerate() {
            paths.push(folder.path().join(at.to_string()));
            std::fs::write(&paths[at], bytes).expect("room");
        }
        verify(&paths, expected).expect("readable files")
    }

    fn expecting(head: ChainHead) -> ExpectedHeads {
        ExpectedHeads {
            head: Some(head),
            base: None,
        }
    }

    fn lines(bytes: &[u8]) -> Vec<&[u8]> {
        bytes.split_inclusive(|&byte| byte == b'\n').collect()
    }

    #[test]
    fn an_untouched_log_holds_and_tells_of_its_recovery() {
        let (bytes, head) = sample();
        let report = check(&[&bytes], expecting(head));
        assert!(report.holds(), "{:?}", report.problems);
        assert_eq!((report.exchanges, report.records), (4, 6));
        assert_eq!(
            (report.first.map(|head| head.seq()), report.last),
            (Some(0), Some(head))
        );
        let [recovery] = &report.recoveries[..] else {
            panic!("one recovery")
        };
        assert_eq!(
            (recovery.cause.as_str(), recovery.torn_bytes, recovery.lost),
            ("refused", 60, 1)
        );
        assert_eq!(report.chain.map(|chain| chain.len()), Some(32));
    }

    #[test]
    fn every_changed_byte_is_found() {
        let (bytes, _) = sample();
        let folder = tempfile::tempdir().expect("a folder");
        let paths = [folder.path().join("log")];
        for at in 0..bytes.len() {
            for change in [0x01, 0x20, 0x80, bytes[at] ^ b'\n'] {
                if change == 0 {
                    continue;
                }
                let mut changed = bytes.clone();
                changed[at] ^= change;
                std::fs::write(&paths[0], &changed).expect("room");
                let report = verify(&paths, ExpectedHeads::default()).expect("a readable file");
                assert!(!report.holds(), "byte {at} changed by {change:#x}");
            }
        }
    }

    #[test]
    fn every_removed_or_doubled_line_is_found() {
        let (bytes, head) = sample();
        let whole = lines(&bytes);
        for at in 0..whole.len() {
            let mut removed = whole.clone();
            removed.remove(at);
            assert!(
                !check(&[&removed.concat()], expecting(head)).holds(),
                "line {at} removed"
            );
            let mut doubled = whole.clone();
            doubled.insert(at, whole[at]);
            assert!(
                !check(&[&doubled.concat()], expecting(head)).holds(),
                "line {at} doubled"
            );
        }
    }

    #[test]
    fn every_exchanged_pair_of_lines_is_found() {
        let (bytes, head) = sample();
        for first in 0..lines(&bytes).len() {
            for second in 0..first {
                let mut swapped = lines(&bytes);
                swapped.swap(first, second);
                assert!(
                    !check(&[&swapped.concat()], expecting(head)).holds(),
                    "{first} and {second}"
                );
            }
        }
    }

    #[test]
    fn every_cut_of_the_end_is_found_by_the_head() {
        let (bytes, head) = sample();
        for len in 0..bytes.len() {
            assert!(
                !check(&[&bytes[..len]], expecting(head)).holds(),
                "cut to {len}"
            );
        }
    }

    #[test]
    fn a_line_put_in_is_found() {
        let (bytes, head) = sample();
        let forged = {
            let mut line = Vec::new();
            crate::chain::seal(&mut line, Some(head), b"\"kind\":\"exchange\"");
            line
        };
        let whole = lines(&bytes);
        for at in 0..whole.len() {
            let mut longer = whole.clone();
            longer.insert(at, &forged);
            assert!(
                !check(&[&longer.concat()], expecting(head)).holds(),
                "before line {at}"
            );
        }
    }

    #[test]
    fn a_chain_goes_on_over_files_in_any_order_and_from_a_base() {
        let (bytes, head) = sample();
        let whole = lines(&bytes);
        let (old, new) = (whole[..5].concat(), whole[5..].concat());
        assert!(check(&[&new, &old], expecting(head)).holds());
        let alone = check(&[&new], ExpectedHeads::default());
        assert_eq!(alone.problems[0].fault, LogFault::BeginsLate { found: 4 });
        let base = check(&[&old], ExpectedHeads::default()).last;
        assert!(
            check(
                &[&new],
                ExpectedHeads {
                    base,
                    head: Some(head)
                }
            )
            .holds()
        );
        let wrong = check(&[&whole[..1].concat()], ExpectedHeads::default()).last;
        assert!(
            !check(
                &[&new],
                ExpectedHeads {
                    base: wrong,
                    head: None
                }
            )
            .holds()
        );
    }

    #[test]
    fn a_file_without_a_record_does_not_hold() {
        assert_eq!(
            check(&[b""], ExpectedHeads::default()).problems[0].fault,
            LogFault::Empty
        );
        assert!(!check(&[b"hello\n"], ExpectedHeads::default()).holds());
        assert!(!check(&[&vec![0; 300_000]], ExpectedHeads::default()).holds());
    }

    #[test]
    fn a_problem_names_its_file_and_line() {
        let (bytes, _) = sample();
        let mut changed = bytes.clone();
        let second = lines(&bytes)[0].len() + 40;
        changed[second] ^= 1;
        let report = check(&[&changed], ExpectedHeads::default());
        assert_eq!(
            (report.problems[0].line, &report.problems[0].fault),
            (2, &LogFault::Broken(LinkBroken::Hash))
        );
        assert!(
            report.problems[0]
                .to_string()
                .ends_with("0:2: the content does not match its hash")
        );
    }

    #[test]
    fn an_exchange_is_found_by_its_id_and_a_forged_one_is_not() {
        let (bytes, _) = sample();
        let folder = tempfile::tempdir().expect("a folder");
        let paths = [folder.path().join("log")];
        std::fs::write(&paths[0], &bytes).expect("room");
        let id = ExchangeId::from_bytes([3; 10]);
        let found = find(&paths, id).expect("readable").expect("an exchange");
        assert_eq!(
            (found.exchange.id, found.end),
            (Some("03".repeat(10).into()), None)
        );
        assert!(
            find(&paths, ExchangeId::from_bytes([50; 10]))
                .expect("readable")
                .is_none()
        );
        let text = String::from_utf8_lossy(&bytes).replace("\"status\":200", "\"status\":201");
        std::fs::write(&paths[0], text).expect("room");
        assert!(find(&paths, id).expect("readable").is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_verify_without_a_panic(noise in any::<Vec<u8>>(), at in any::<prop::sample::Index>()) {
            let (mut bytes, head) = sample();
            let at = at.index(bytes.len());
            bytes.splice(at..at, noise.iter().copied());
            let report = check(&[&bytes], expecting(head));
            prop_assert!(noise.is_empty() || !report.holds());
        }
    }
}
