//! The story of a request, as `log`, `why`, `watch` and the console tell it: its line, and its
//! rows, each with who wrote its words. Any other record has a story too.

use std::fmt::Write as _;

use crate::app::safe;
use crate::audit::{Injection, PhaseTimes, Record, Text};
use crate::policy::Operation;

/// A record, with what further records say of the same exchange.
#[derive(Clone, Copy)]
pub(crate) struct Story<'a> {
    pub(crate) record: &'a Record,
    /// How its content ended.
    pub(crate) end: Option<&'a Record>,
    /// How many more callers were refused for the same cause.
    pub(crate) again: u64,
}

/// One row of a story. Its text can be shown in a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoryRow {
    /// What the row is about; empty if it goes on with the row before.
    pub(crate) name: &'static str,
    /// The verdict in one word, in the row that has it.
    pub(crate) verdict: String,
    pub(crate) text: String,
    pub(crate) words_of: WordsOf,
}

/// Who wrote the words of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordsOf {
    /// This program, or whoever configured it.
    Gateway,
    /// The program that nobody trusts.
    Workload,
}

impl StoryRow {
    pub(crate) fn new(name: &'static str, text: String) -> Self {
        Self {
            name,
            verdict: String::new(),
            text,
            words_of: WordsOf::Gateway,
        }
    }

    pub(crate) fn of_workload(name: &'static str, text: String) -> Self {
        let words_of = WordsOf::Workload;
        Self {
            words_of,
            ..Self::new(name, text)
        }
    }
}

impl<'a> Story<'a> {
    /// The story of one record alone.
    pub(crate) fn of(record: &'a Record) -> Self {
        Self {
            record,
            end: None,
            again: 0,
        }
    }

    /// Returns everything known: the request, the verdict and what made it, what was lent, how long
    /// each stage took, and the end.
    pub(crate) fn rows(&self) -> Vec<StoryRow> {
        let record = self.record;
        if !matches!(&*record.kind, "exchange" | "end" | "refused_caller") {
            let line = line(record);
            let text = format!(": {} {}", line.what, line.told);
            let verdict = line.verdict;
            let mut rows = vec![StoryRow {
                verdict,
                ..StoryRow::new("event", text)
            }];
            rows.push(StoryRow::new("", self.place()));
            return rows;
        }
        let mut rows = vec![StoryRow::of_workload("request", whole_request(record))];
        if let Some(query) = listed("with the parameters {}", &record.query) {
            rows.push(StoryRow::of_workload("", query));
        }
        rows.push(StoryRow::new("", self.place()));
        rows.push(verdict(record));
        let told = self.reasons();
        rows.extend(told.into_iter().map(|text| StoryRow::new("", text)));
        if let Some(end) = self.end {
            let reason = end.reason.as_deref();
            let reason = reason.map(|reason| format!(" ({})", safe(reason)));
            let outcome = or_dash(end.outcome.as_deref());
            rows.push(StoryRow::new(
                "ended",
                outcome + &reason.unwrap_or_default(),
            ));
        }
        rows
    }

    /// Returns what made the verdict, and what was done by it.
    fn reasons(&self) -> Vec<String> {
        let record = self.record;
        let loan = |what: &str, one: &Injection| {
            let (credential, place) = (safe(&one.credential), safe(&one.place));
            format!("{what} {credential} in {place}")
        };
        let cause = record.cause.as_deref();
        let mut told: Vec<String> = Vec::new();
        told.extend(cause.map(|cause| format!("because {}", safe(cause))));
        told.extend(listed("decided by {}", &record.policies));
        told.extend(listed("read {} of the content", &record.facts));
        told.extend(record.lent.iter().map(|one| loan("lent", one)));
        let noted = record.noted.iter();
        let noted = noted.chain(self.end.into_iter().flat_map(|end| &end.noted));
        told.extend(noted.map(|one| loan("passed on the phantom of", one)));
        told.extend(record.unlent.iter().map(|one| loan("no policy lends", one)));
        let misplaced = record.misplaced.iter();
        told.extend(misplaced.map(|one| loan("refused for a credential:", one)));
        if let Some(address) = record.dialled {
            let protocol = record.origin_protocol.as_deref().map(safe);
            let protocol = protocol.map(|name| format!(" by {name}"));
            told.push(format!(
                "connected to {address}{}",
                protocol.unwrap_or_default()
            ));
        }
        told.extend(stages(&record.us));
        told.extend(self.bytes());
        if self.again > 0 {
            let again = self.again;
            told.push(format!(
                "{again} more of this address and cause, which are counted alone"
            ));
        }
        told
    }

    /// Returns the session, the user and the time.
    fn place(&self) -> String {
        let record = self.record;
        let user = record.user.as_deref();
        let user = user.map(|user| format!(" of user {}", safe(user)));
        let from = record.client.map(|client| format!(" from {client}"));
        let entry = record.entry.as_deref();
        let entry = entry.map(|entry| format!(", by {}", safe(entry)));
        format!(
            "session {}{}{}{}, {}",
            or_dash(record.session.as_deref()),
            user.unwrap_or_default(),
            entry.unwrap_or_default(),
            from.unwrap_or_default(),
            or_dash(record.time.as_deref())
        )
    }

    fn bytes(&self) -> Option<String> {
        let last = self.end.unwrap_or(self.record);
        let (sent, got) = (last.request_bytes, last.response_bytes);
        let counted = sent.or(got).is_some();
        let number = |bytes: Option<u64>| bytes.unwrap_or_default();
        counted.then(|| {
            let scrubbed = last.scrubbed.filter(|count| *count > 0);
            let scrubbed = scrubbed.map(|count| format!(", {count} reflected secrets replaced"));
            let (sent, got) = (number(sent), number(got));
            format!(
                "{sent} bytes sent, {got} bytes answered{}",
                scrubbed.unwrap_or_default()
            )
        })
    }
}

/// Returns how long each stage took, in milliseconds from the one before.
fn stages(us: &PhaseTimes) -> Option<String> {
    let total = us.total?;
    let ms = |us: u64| format!("{}.{} ms", us / 1000, us % 1000 / 100);
    let (mut text, mut before) = (format!("took {}", ms(total)), 0);
    for (name, at) in [
        ("identified", us.identify),
        ("judged", us.authorize),
        ("connected", us.open),
        ("attached", us.attach),
        ("answered", us.answer),
    ] {
        let Some(at) = at else { continue };
        let took = ms(at.saturating_sub(before));
        let mark = if before == 0 { ": " } else { ", " };
        write!(text, "{mark}{name} {took}").unwrap_or(());
        before = at.max(1);
    }
    Some(text)
}

fn listed(what: &str, all: &[Text]) -> Option<String> {
    let all: Vec<_> = all.iter().map(|one| safe(one)).collect();
    (!all.is_empty()).then(|| what.replace("{}", &all.join(", ")))
}

/// Returns the request with its whole URL, or the lookup of a name.
fn whole_request(record: &Record) -> String {
    let host = or_dash(record.host.as_deref());
    if record.entry.as_deref() == Some("dns") {
        return format!("lookup of the name {host}");
    }
    let (method, scheme) = (record.method.as_deref(), record.scheme.as_deref());
    let port = record.port.map(|port| format!(":{port}"));
    let path = record.path.as_deref().map(safe).unwrap_or_default();
    let more = record.path_bytes.map(|bytes| format!("… ({bytes} bytes)"));
    let (method, scheme) = (or_dash(method), or_dash(scheme));
    let (port, more) = (port.unwrap_or_default(), more.unwrap_or_default());
    format!("{method} {scheme}://{host}{port}{path}{more}")
}

fn verdict(record: &Record) -> StoryRow {
    let part = |before: &str, part: Option<&str>| {
        let part = part.map(|part| format!("{before}{}", safe(part)));
        part.unwrap_or_default()
    };
    let status = record.status.map(|status| format!(" with {status}"));
    let status = status.unwrap_or_default();
    let (verdict, text) = match record.reason.as_deref().map(safe) {
        None => {
            let outcome = record.outcome.as_deref().unwrap_or("answered");
            (outcome.to_owned(), status)
        }
        Some(reason) => {
            let side = part(", side: ", record.blame.as_deref());
            let phase = part(", at ", record.phase.as_deref());
            let text = format!("{status}: {reason}{side}{phase}");
            ("refused".to_owned(), text)
        }
    };
    StoryRow {
        verdict,
        ..StoryRow::new("verdict", text)
    }
}

fn or_dash(part: Option<&str>) -> String {
    part.map_or_else(|| String::from("-"), safe)
}

/// The parts of a record's line for a person. None of them steers a terminal.
pub(crate) struct StoryLine {
    pub(crate) time: String,
    pub(crate) session: String,
    /// The session, and its user.
    pub(crate) who: String,
    pub(crate) verdict: String,
    pub(crate) what: String,
    /// The code of a refusal, and how often.
    pub(crate) told: String,
    pub(crate) id: String,
    /// Whether the record is a refusal.
    pub(crate) refused: bool,
}

impl StoryLine {
    /// Returns what was asked or done, with the code of a refusal.
    pub(crate) fn whole(&self) -> String {
        match &*self.told {
            "" => self.what.clone(),
            told => format!("{}  {told}", self.what),
        }
    }
}

/// Returns the line of a record for a person.
pub(crate) fn line(record: &Record) -> StoryLine {
    let time = shown(record.time.as_deref());
    let time = time.get(11..19).unwrap_or(&time);
    let session = shown(record.session.as_deref());
    let (verdict, what) = match record.kind.as_ref() {
        "act" => act(record),
        "signature" => signature(record),
        "event" => (
            shown(record.name.as_deref()).replace("session_", ""),
            shown(record.subject.as_deref()),
        ),
        _ => (outcome(record), request(record)),
    };
    let reason = record
        .reason
        .as_deref()
        .filter(|_| record.kind != "signature");
    let again = record.count.filter(|_| record.kind != "event");
    let again = again.map(|count| format!("{count} more"));
    let told = reason.map(safe).into_iter().chain(again);
    let told: Vec<String> = told.collect();
    StoryLine {
        time: time.to_owned(),
        session,
        who: safe(&whom(record)),
        refused: record.reason.is_some() || matches!(&*verdict, "deny" | "denied" | "failed"),
        verdict,
        what,
        told: told.join("  "),
        id: shown(record.id.as_deref()),
    }
}

/// Returns whom a record is about: the session with the user behind the connection, or the client's
/// address if it has no session.
pub(crate) fn whom(record: &Record) -> String {
    let address = || Some(record.client?.ip().to_string());
    match (record.session.as_deref(), record.user.as_deref()) {
        (Some(session), Some(user)) if user != session => format!("{session} ({user})"),
        (Some(one), _) => one.to_owned(),
        (None, user) => {
            let parts = user.map(str::to_owned).into_iter().chain(address());
            parts.collect::<Vec<_>>().join(" from ")
        }
    }
}

/// Returns whether a commit was signed, and by which key for which repository; or why not.
fn signature(record: &Record) -> (String, String) {
    let verdict = match record.reason {
        Some(_) => "refused",
        None => "signed",
    };
    let words = [
        &record.subject.as_deref(),
        &record.reason.as_deref(),
        &record.cause.as_deref(),
    ];
    let words = words.into_iter().flatten().map(|word| safe(word));
    (verdict.to_owned(), words.collect::<Vec<_>>().join(" "))
}

/// Returns the verdict on an act, and the act. A permitted refusal of a proposal permits nothing.
fn act(record: &Record) -> (String, String) {
    let verdict = record.outcome.as_deref().or(record.decision.as_deref());
    let (who, name) = (shown(record.operator.as_deref()), record.name.as_deref());
    let subject = record.subject.as_deref().unwrap_or_default();
    let is_answer = name == Some(Operation::ProposalRefuse.as_str()) && verdict == Some("allow");
    match (is_answer, subject.strip_prefix("undo ")) {
        (true, Some(what)) => {
            let what = format!("{who} takes back the refusal of {}", safe(what));
            ("undone".to_owned(), what)
        }
        (true, None) => (
            "denied".to_owned(),
            format!("{who} refuses {}", safe(subject)),
        ),
        (false, _) => {
            let verdict = match verdict {
                Some("allow") => "act".to_owned(),
                verdict => shown(verdict),
            };
            let what = format!("{who} {} {}", shown(name), about(subject));
            (verdict, what.trim_end().to_owned())
        }
    }
}

/// Returns the subject of an act: the id of a rule, else its host.
fn about(subject: &str) -> String {
    let quoted = |after: &str| subject.split_once(after)?.1.split('"').next();
    let named = quoted("@id(\"").or_else(|| quoted("Gateway::Host::\""));
    let named = named.or_else(|| quoted("Gateway::Domain::\""));
    safe(named.unwrap_or(subject))
}

fn shown(part: Option<&str>) -> String {
    part.map(safe).unwrap_or_default()
}

fn outcome(record: &Record) -> String {
    match (&record.reason, record.status) {
        (Some(_), _) if record.kind != "end" => "refused".to_owned(),
        (_, Some(status)) => status.to_string(),
        _ => record.outcome.as_deref().map(safe).unwrap_or_default(),
    }
}

fn request(record: &Record) -> String {
    let port = match record.port {
        Some(port) if port != 0 && port != 443 => format!(":{port}"),
        _ => String::new(),
    };
    let method = shown(record.method.as_deref());
    let host = shown(record.host.as_deref());
    let path = shown(record.path.as_deref());
    format!("{method} {host}{port}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_named_by_its_id_or_its_host() {
        let rule = |id: &str| {
            format!("{id}permit(principal, action, resource == Gateway::Host::\"a.test\");")
        };
        assert_eq!(about(&rule("@id(\"allow/it\")\n")), "allow/it");
        assert_eq!(about(&rule("")), "a.test");
        assert_eq!(about("FILE_TOKEN"), "FILE_TOKEN");
    }

    #[test]
    fn each_stage_is_told_with_its_own_time() {
        let us = PhaseTimes {
            identify: Some(100),
            authorize: Some(400),
            total: Some(1_500),
            ..PhaseTimes::default()
        };
        let told = stages(&us).unwrap();
        assert_eq!(told, "took 1.5 ms: identified 0.1 ms, judged 0.3 ms");
        assert_eq!(stages(&PhaseTimes::default()), None);
    }
}
