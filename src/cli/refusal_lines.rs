//! Prints a line for each refusal, cut and end of a session of `serve`, as its audit log records
//! them.
//!
//! The text of a refusal comes from a workload. So equal refusals are counted instead of repeated,
//! the number of lines is bounded, and no text steers a terminal or a journal.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::app::{Paint, Terminal, safe};
use crate::audit::{Log, NextRefusal, Record, RefusalStop, Refusals};
use crate::cli::log::story::whom;

/// The printing thread. It ends when this is dropped, after it has printed the rest.
pub(super) struct RefusalLines {
    stop: Option<RefusalStop>,
    thread: Option<JoinHandle<()>>,
}

impl RefusalLines {
    /// Prints the new records of a log. `None` if another thread prints them already.
    pub(super) fn start(log: &Log, terminal: Terminal) -> Option<Self> {
        let (refusals, stop) = log.refusals()?;
        let printer = Printer {
            refusals,
            terminal,
            kinds: RefusalKinds::default(),
        };
        let thread = std::thread::Builder::new().name("refusals".to_owned());
        let thread = thread.spawn(move || printer.run()).ok()?;
        Some(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for RefusalLines {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop.stop();
        }
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Printer {
    refusals: Refusals,
    terminal: Terminal,
    kinds: RefusalKinds,
}

impl Printer {
    fn run(mut self) {
        let mut stops = false;
        while !stops {
            match self.refusals.next(self.kinds.summed_up_at()) {
                NextRefusal::Record(record) => {
                    if let Some(line) = self.kinds.take(&record, Instant::now()) {
                        self.note(&line);
                    }
                }
                NextRefusal::Late => {}
                NextRefusal::Stopped => stops = true,
            }
            self.kinds.miss(self.refusals.missed(), Instant::now());
            for line in self.kinds.due(Instant::now(), stops) {
                self.note(&line);
            }
        }
    }

    fn note(&self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let word = self.terminal.paint_note(Paint::Red, word);
        self.terminal.note(format!("gateway: {word} {rest}"));
    }
}

/// The kinds of refusals since the last summary, each with its count of unprinted ones.
#[derive(Default)]
struct RefusalKinds {
    since: Option<Instant>,
    counts: BTreeMap<String, u64>,
    /// How many refusals were counted without a kind of their own.
    unread: u64,
}

impl RefusalKinds {
    /// Counts a refusal. Returns its line if it is the first of its kind.
    fn take(&mut self, record: &Record, now: Instant) -> Option<String> {
        let kind = kind(record)?;
        self.since.get_or_insert(now);
        // This record counts repeats of a refusal, whose first has a record of its own.
        let is_told = record.kind == "refused_caller";
        let many = record.count.filter(|_| is_told).unwrap_or(1);
        if let Some(count) = self.counts.get_mut(&kind) {
            *count += many;
            return None;
        }
        if self.counts.len() >= MOST_KINDS {
            self.unread += many;
            return None;
        }
        let line = (!is_told).then(|| described(record, &kind));
        self.counts.insert(kind, if is_told { many } else { 0 });
        line
    }

    /// Counts refusals of unknown kinds.
    fn miss(&mut self, count: u64, now: Instant) {
        if count > 0 {
            self.since.get_or_insert(now);
            self.unread += count;
        }
    }

    /// Returns when the next summary is due, if anything was counted.
    fn summed_up_at(&self) -> Option<Instant> {
        self.since.map(|since| since + SUMMED_UP_EVERY)
    }

    /// Returns the lines about refusals that were only counted, once a minute and at the end.
    fn due(&mut self, now: Instant, stops: bool) -> Vec<String> {
        if !self.summed_up_at().is_some_and(|at| stops || now >= at) {
            return Vec::new();
        }
        let Self { counts, unread, .. } = std::mem::take(self);
        let again = counts.into_iter().filter_map(|(kind, count)| match count {
            0 => None,
            1 => Some(format!("{kind}, once more")),
            count => Some(format!("{kind}, {count} more times")),
        });
        let rest = format!("refused {unread} more requests of many kinds: gateway log --refused");
        again.chain((unread > 0).then_some(rest)).collect()
    }
}

/// Returns what equal refusals share, after the word for the event. `None` if the record is no
/// refusal.
fn kind(record: &Record) -> Option<String> {
    let reason = shown(record.reason.as_deref()?);
    let whom = match whom(record) {
        nobody if nobody.is_empty() => "-".to_owned(),
        whom => shown(&whom),
    };
    if record.name.as_deref() == Some("session_ended") {
        let how = shown(record.subject.as_deref().unwrap_or_default());
        return Some(format!("ended {whom}: {how}"));
    }
    let word = match record.kind.as_ref() {
        "end" => shown(record.outcome.as_deref().unwrap_or("cut")),
        _ => "refused".to_owned(),
    };
    let what = record.host.as_deref().or(record.subject.as_deref());
    let what = shown(what.unwrap_or("a request"));
    let port = record.port.filter(|port| ![0, 443].contains(port));
    let port = port.map_or_else(String::new, |port| format!(":{port}"));
    Some(format!("{word} {whom} {what}{port}: {reason}"))
}

/// Returns the line of one refusal: its kind, the request and the command that explains it.
fn described(record: &Record, kind: &str) -> String {
    let request = record.method.as_deref().zip(record.path.as_deref());
    let request = request.map(|(method, path)| format!(" ({} {})", shown(method), shown(path)));
    let id = record.id.as_deref();
    let why = id.map(|id| format!("; gateway why {}", shown(id)));
    let (request, why) = (request.unwrap_or_default(), why.unwrap_or_default());
    format!("{kind}{request}{why}")
}

/// Shortens a workload's text, and makes it safe for a terminal.
fn shown(text: &str) -> String {
    let cut = text.floor_char_boundary(LONGEST);
    let more = if cut < text.len() { "…" } else { "" };
    format!("{}{more}", safe(&text[..cut]))
}

const SUMMED_UP_EVERY: Duration = Duration::from_secs(60);
/// How many kinds are printed in a minute.
const MOST_KINDS: usize = 64;
/// How many bytes of each text are shown.
const LONGEST: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(session: &str, host: &str, path: &str) -> Record {
        let record = serde_json::json!({
            "v": 1, "seq": 1, "prev": "", "kind": "exchange", "session": session, "host": host,
            "method": "GET", "path": path, "reason": "policy_default_deny", "id": "07", "hash": "",
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn equal_refusals_are_counted_and_summed_up() {
        let (mut kinds, now) = (RefusalKinds::default(), Instant::now());
        let first = kinds.take(&record("a", "h.test", "/x"), now).unwrap();
        let wanted = "refused a h.test: policy_default_deny (GET /x); gateway why 07";
        assert_eq!(first, wanted);
        for _ in 0..3 {
            assert_eq!(kinds.take(&record("a", "h.test", "/y"), now), None);
        }
        assert!(kinds.take(&record("b", "h.test", "/x"), now).is_some());
        assert!(kinds.due(now, false).is_empty());
        let summary = kinds.due(now + SUMMED_UP_EVERY, false);
        assert_eq!(
            summary,
            ["refused a h.test: policy_default_deny, 3 more times"]
        );
        assert!(kinds.take(&record("a", "h.test", "/x"), now).is_some());
    }

    #[test]
    fn a_cut_is_no_refusal_and_the_end_of_a_session_is_none_of_a_request() {
        let mut kinds = RefusalKinds::default();
        let mut cut = record("a", "h.test", "/slow");
        (cut.kind, cut.outcome) = ("end".into(), Some("cut".into()));
        cut.reason = Some("revoked".into());
        let line = kinds.take(&cut, Instant::now()).unwrap();
        assert_eq!(line, "cut a h.test: revoked (GET /slow); gateway why 07");
        let ended = serde_json::json!({
            "kind": "event", "name": "session_ended", "session": "a",
            "subject": "no listener has it any more", "reason": "listener_removed",
        });
        let ended = serde_json::from_value(ended).unwrap();
        let line = kinds.take(&ended, Instant::now()).unwrap();
        assert_eq!(line, "ended a: no listener has it any more");
    }

    #[test]
    fn a_flood_of_kinds_takes_a_bounded_number_of_lines_and_all_are_counted() {
        let (mut kinds, now) = (RefusalKinds::default(), Instant::now());
        let flood = (0..50_000).map(|at| record("a", &format!("h{at}.test"), "/"));
        let printed = flood.filter_map(|record| kinds.take(&record, now)).count();
        assert_eq!(printed, MOST_KINDS);
        let rest = 50_000 - MOST_KINDS;
        let told = format!("refused {rest} more requests of many kinds: gateway log --refused");
        assert_eq!(kinds.due(now, true), [told]);
    }

    #[test]
    fn no_text_of_a_workload_steers_the_terminal_or_begins_a_line() {
        let hostile = format!("/\u{1b}[2J\r\ngateway: fine\u{202e}{}", "é".repeat(500));
        let line = RefusalKinds::default().take(&record("a", "h.test", &hostile), Instant::now());
        let line = line.unwrap();
        assert!(!line.contains(['\u{1b}', '\r', '\n', '\u{202e}']), "{line}");
        assert!(line.chars().count() < 400, "{line}");
    }
}
