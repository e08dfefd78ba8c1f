//! The records that a page shows: the latest, each with the end of its exchange.

use std::collections::VecDeque;

use crate::app::Failure;
use crate::audit::{self, Record};
use crate::cli::console::day::Day;
use crate::cli::log::filter::credentials;
use crate::cli::log::logs;
use crate::cli::log::story::Story;
use crate::cli::operate::gateways::Gateway;

/// The latest records of one gateway.
#[derive(Default)]
pub(super) struct Feed {
    entries: VecDeque<Entry>,
    /// How often it has changed.
    pub(super) changes: u64,
    /// The number of the last record in its log.
    last: Option<u64>,
    pub(super) day: Day,
}

/// A record, and what later records said of the same exchange.
pub(super) struct Entry {
    /// Its place among all, by which a page names it.
    pub(super) number: u64,
    changed: u64,
    pub(super) record: Record,
    end: Option<Box<Record>>,
}

/// Which requests a page shows. An empty text chooses all; others are parts of what is looked for.
#[derive(Clone, Default)]
pub(super) struct Wanted {
    pub(super) host: String,
    pub(super) session: String,
    pub(super) user: String,
    pub(super) verdict: String,
    pub(super) secret: String,
    /// Only those before this one.
    pub(super) before: Option<u64>,
}

impl Feed {
    /// Reads the log of a gateway.
    pub(super) fn past(gateway: &Gateway) -> Result<Self, Failure> {
        let mut feed = Self::default();
        let files = logs::of_gateway(gateway)?.unwrap_or_default();
        audit::read(&files, |record| feed.add(record))
            .map_err(|error| Failure::of("the audit log cannot be read", &error))?;
        Ok(feed)
    }

    /// Takes a record, unless it was taken before.
    pub(super) fn add(&mut self, record: Record) {
        if self.last.is_some_and(|last| record.seq <= last) {
            return;
        }
        self.last = Some(record.seq);
        self.day.count(&record);
        let is_known = matches!(
            &*record.kind,
            "exchange" | "event" | "act" | "signature" | "refused_caller"
        );
        if record.kind != "end" && !is_known {
            return;
        }
        self.changes += 1;
        let (number, changed) = (self.changes, self.changes);
        if record.kind == "end" {
            let mut latest = self.entries.iter_mut().rev();
            if let Some(begun) = latest.find(|one| one.is(record.id.as_deref())) {
                (begun.end, begun.changed) = (Some(Box::new(record)), changed);
            }
            return;
        }
        self.entries.push_back(Entry {
            number,
            changed,
            record,
            end: None,
        });
        if self.entries.len() > MOST {
            self.entries.pop_front();
        }
    }

    /// Returns the entry of an exchange.
    pub(super) fn of(&self, id: &str) -> Option<&Entry> {
        let mut latest = self.entries.iter().rev();
        latest.find(|one| one.record.kind == "exchange" && one.is(Some(id)))
    }

    /// Returns the latest of the wanted entries that changed after `since`, the latest first.
    pub(super) fn latest<'a>(
        &'a self,
        wanted: &'a Wanted,
        since: u64,
    ) -> impl Iterator<Item = &'a Entry> {
        let all = self.entries.iter().rev();
        let all = all.filter(move |one| one.changed > since && wanted.takes(one));
        all.take(SHOWN)
    }
}

impl Entry {
    fn is(&self, id: Option<&str>) -> bool {
        id.is_some() && self.record.id.as_deref() == id
    }

    pub(super) fn story(&self) -> Story<'_> {
        Story {
            end: self.end.as_deref(),
            ..Story::of(&self.record)
        }
    }

    /// Returns the word by which a page is asked for such entries.
    pub(super) fn verdict(&self) -> &'static str {
        let is_cut = |end: &Record| matches!(end.outcome.as_deref(), Some("cut" | "aborted"));
        let record = &self.record;
        let is_refused = record.reason.is_some() || record.decision.as_deref() == Some("deny");
        match &*record.kind {
            _ if is_refused => "refused",
            "exchange" if self.end.as_deref().is_some_and(is_cut) => "cut",
            "exchange" => "allowed",
            _ => "event",
        }
    }
}

impl Wanted {
    fn takes(&self, entry: &Entry) -> bool {
        let has = |wanted: &str, own: Option<&str>| {
            wanted.is_empty() || own.is_some_and(|own| own.contains(wanted))
        };
        let record = &entry.record;
        has(&self.host, record.host.as_deref())
            && has(&self.session, record.session.as_deref())
            && has(&self.user, record.user.as_deref())
            && (self.verdict.is_empty() || self.verdict == entry.verdict())
            && (self.secret.is_empty() || credentials(record).any(|one| one.contains(&self.secret)))
            && self.before.is_none_or(|before| entry.number < before)
    }
}

/// How many entries are kept.
const MOST: usize = 10_000;
/// How many entries a page shows at a time.
pub(super) const SHOWN: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str) -> Record {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_end_of_an_exchange_is_its_entrys_and_no_record_is_taken_twice() {
        let mut feed = Feed::default();
        let begun = r#"{"kind":"exchange","seq":5,"id":"07","host":"a.test","session":"s"}"#;
        feed.add(record(begun));
        feed.add(record(begun));
        feed.add(record(
            r#"{"kind":"end","seq":6,"id":"07","outcome":"cut"}"#,
        ));
        assert_eq!(feed.entries.len(), 1);
        assert_eq!(feed.of("07").unwrap().verdict(), "cut");
        let count = |wanted: Wanted, since| feed.latest(&wanted, since).count();
        let with = |host: &str, verdict: &str| Wanted {
            host: host.to_owned(),
            verdict: verdict.to_owned(),
            ..Wanted::default()
        };
        assert_eq!(count(with("a.t", "cut"), 1), 1);
        assert_eq!(count(with("", ""), 2), 0);
        assert_eq!(count(with("b", ""), 0) + count(with("", "allowed"), 0), 0);
    }

    #[test]
    fn what_is_kept_and_what_is_shown_are_bounded() {
        let mut feed = Feed::default();
        for seq in 0..MOST + 7 {
            feed.add(record(&format!(r#"{{"kind":"exchange","seq":{seq}}}"#)));
        }
        assert_eq!(feed.entries.len(), MOST);
        let wanted = Wanted::default();
        assert_eq!(feed.latest(&wanted, 0).count(), SHOWN);
        let older = Wanted {
            before: Some(20),
            ..wanted
        };
        assert_eq!(feed.latest(&older, 0).count(), 12);
    }
}
