//! `gateway log`: the records of the audit log, past and new.

pub(crate) mod archive;
pub(crate) mod filter;
pub(crate) mod har;
pub(crate) mod logs;
pub(crate) mod story;
pub(crate) mod verify;
pub(crate) mod watch;
pub(crate) mod watch_events;
pub(crate) mod watch_view;

use std::cell::Cell;
use std::io::stdout;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use http_body_util::BodyExt as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::app::process::serving;
use crate::app::project::project;
use crate::app::reload::generation::EXEC;
use crate::app::{Code, ConfigFile, Context as _, Failure, Paint, Terminal, safe};
use crate::audit::{self, Event, Log, Record};
use crate::cli::log::filter::Filter;
use crate::cli::log::story::line;
use crate::cli::log::watch_events::whole_records;
use crate::cli::operate::gateways::{ChosenGateway, Gateway};
use crate::export;
use crate::names::SessionId;

/// Show what was asked and refused; verify, list and prune audit logs
///
/// Shows the last records of the audit log, and with --follow those that come.
#[derive(Args, Default)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LogCommand {
    #[command(subcommand)]
    files: Option<verify::FilesCommand>,
    /// Go on with the records that a running gateway writes
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Only of the runs of `gateway exec` in this project
    #[arg(long, conflicts_with = "follow")]
    here: bool,
    /// How many records of the past to show
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = PAST)]
    lines: usize,
    /// What each record is printed as: a line for a person, or an event of OCSF as JSON
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    format: LogFormat,
    /// Print the requests as one HTTP Archive, which the tools of browsers open
    #[arg(long, conflicts_with_all = ["follow", "format"])]
    har: bool,
    /// An audit log, with what it was rotated into [default: those of the running gateways and of
    /// your state directory]
    #[arg(long, value_name = "FILE")]
    audit: Vec<PathBuf>,
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    chosen: ChosenGateway,
}

/// A form of printed records.
#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    /// A line for a person, or with `--json` the record itself.
    #[default]
    Text,
    /// An event of OCSF.
    Ocsf,
}

impl LogCommand {
    pub(crate) fn run(mut self, terminal: &mut Terminal) -> Result<Code, Failure> {
        if let Some(command) = self.files.take() {
            return command.run(terminal);
        }
        if self.follow {
            return self.follow(terminal);
        }
        let here = self.here.then(project).transpose()?;
        let here = here.map(|folder| format!(" in {}", folder.display()));
        let mut records = Vec::new();
        for chain in self.chains(terminal)? {
            let mut own = self.read(&chain, terminal)?.0;
            own.retain(|(run, _)| here.as_ref().is_none_or(|here| run.ends_with(here)));
            records.append(&mut own);
        }
        records.sort_by(|(_, one), (_, other)| one.time.cmp(&other.time));
        let records = self.last(records, terminal);
        if self.har {
            let records = records.iter().map(|(_, record)| record);
            terminal.document(&har::archive(records));
            return Ok(Code::Ok);
        }
        self.print_all(terminal, &records);
        if let Some(session) = self
            .filter
            .session
            .as_deref()
            .filter(|_| records.is_empty())
        {
            let session = safe(session);
            terminal.note(format!(
                "gateway: these logs have no such record of `{session}`"
            ));
        }
        Ok(Code::Ok)
    }

    /// Shows the past records of one gateway, and then its new ones, until it ends.
    fn follow(&self, terminal: &Terminal) -> Result<Code, Failure> {
        self.follow_of(&self.chosen.one()?, terminal)
    }

    /// Follows one session or all, as `gateway log -f` does.
    pub(crate) fn following(session: Option<String>, chosen: ChosenGateway) -> Self {
        Self {
            follow: true,
            filter: Filter::of_session(session),
            lines: PAST,
            chosen,
            ..Self::default()
        }
    }

    pub(crate) fn follow_of(
        &self,
        gateway: &Gateway,
        terminal: &Terminal,
    ) -> Result<Code, Failure> {
        let runtime = serving::runtime()?;
        // The stream begins before the past is read, so that none is missed. Some are in both.
        let mut content = runtime.block_on(gateway.follow())?;
        let (records, past) = self.past(gateway, terminal)?;
        self.print_all(terminal, &records);
        let (mut unread, mut waiting) = (Vec::new(), Vec::new());
        let has_reader = Cell::new(true);
        let mut next = |is_waiting: bool| {
            runtime.block_on(async {
                tokio::select! {
                    frame = content.frame() => frame?.ok().map(|frame| {
                        let data = frame.data_ref().map_or(&[][..], |data| &**data);
                        whole_records(&mut unread, data)
                    }),
                    () = tokio::time::sleep(TWIN_WITHIN), if is_waiting => Some(Vec::new()),
                    () = reader_gone() => {
                        has_reader.set(false);
                        None
                    }
                }
            })
        };
        while let Some(records) = next(!waiting.is_empty()) {
            let is_new = |one: &Record| past.is_none_or(|past| one.seq > past);
            let wanted = |one: &Record| is_new(one) && self.wants(one, terminal);
            let is_last = records.is_empty() || waiting.len() > KEPT;
            waiting.extend(
                records
                    .into_iter()
                    .filter(wanted)
                    .map(|one| ("".into(), one)),
            );
            waiting = self.folded(waiting, terminal);
            // The request to a host may follow its lookup.
            let may_be_told = |(_, one): &RunRecord| is_lookup(one) && self.is_for_person(terminal);
            if is_last || !waiting.iter().any(may_be_told) {
                self.print_all(terminal, &std::mem::take(&mut waiting));
            }
        }
        self.print_all(terminal, &waiting);
        if has_reader.get() {
            terminal.note(format!("gateway: `{}` has ended", gateway.name));
        }
        Ok(Code::Ok)
    }

    /// Returns the last records of a gateway's log, and the number of its very last one.
    pub(crate) fn past(
        &self,
        gateway: &Gateway,
        terminal: &Terminal,
    ) -> Result<PastRecords, Failure> {
        if gateway.is_elsewhere() {
            return Ok((Vec::new(), None));
        }
        let files = logs::of_gateway(gateway)?;
        let (records, last) = self.read(&files.unwrap_or_default(), terminal)?;
        Ok((self.last(records, terminal), last))
    }

    /// Returns the logs to read: the named ones, the one of the named gateway, or all.
    fn chains(&self, terminal: &Terminal) -> Result<Vec<logs::Chain>, Failure> {
        let config = self.config.find()?;
        if !self.chosen.is_named() || !self.audit.is_empty() || config.is_some() {
            let found = logs::find(&self.audit, config.as_ref(), terminal)?;
            return Ok(found.chains);
        }
        let chosen = self.chosen.find()?;
        let chains = chosen.iter().map(logs::of_gateway);
        chains.filter_map(Result::transpose).collect()
    }

    /// Returns the last records of a log, each with its run, and the number of its very last one.
    fn read(&self, chain: &logs::Chain, terminal: &Terminal) -> Result<PastRecords, Failure> {
        let (mut records, mut last) = (Vec::new(), None);
        let mut run: Rc<str> = "".into();
        audit::read(chain, |record| {
            last = Some(record.seq);
            if let Some(begun) = begun(&record) {
                run = begun.into();
            }
            let is_own = OWN_RUNS.contains(&&*run) && self.audit.is_empty();
            if self.wants(&record, terminal) && !is_own {
                records.push((run.clone(), record));
            }
            // Only the last ones are shown.
            if records.len() > self.lines.saturating_add(3 * KEPT) {
                records.drain(..2 * KEPT);
            }
        })
        .context("the audit log cannot be read")?;
        Ok((records, last))
    }

    fn is_for_person(&self, terminal: &Terminal) -> bool {
        !terminal.json() && !self.har && self.format == LogFormat::Text
    }

    pub(crate) fn wants(&self, record: &Record, terminal: &Terminal) -> bool {
        let is_whole = record.kind == "end" && record.outcome.as_deref() == Some("whole");
        // For a person, the exchange's line is enough, and a run's start is its heading.
        let is_told = !self.is_for_person(terminal) || !(is_whole || begun(record).is_some());
        let is_known = matches!(
            record.kind.as_ref(),
            "exchange" | "end" | "event" | "act" | "signature" | "refused_caller"
        );
        let is_shown = is_known && is_told;
        is_shown && self.filter.takes(record)
    }

    /// Returns the requested number of last records.
    fn last(&self, mut records: Vec<RunRecord>, terminal: &Terminal) -> Vec<RunRecord> {
        records.drain(
            ..records
                .len()
                .saturating_sub(self.lines.saturating_add(KEPT)),
        );
        let mut records = self.folded(records, terminal);
        records.split_off(records.len().saturating_sub(self.lines))
    }

    /// Leaves out, for a person, each refused lookup of a host whose request was refused too.
    fn folded(&self, records: Vec<RunRecord>, terminal: &Terminal) -> Vec<RunRecord> {
        let told = |at: usize| {
            let mut later = records[at + 1..].iter();
            later.any(|later| is_twin(&records[at], later))
        };
        let told = (0..records.len()).map(|at| self.is_for_person(terminal) && told(at));
        let told: Vec<bool> = told.collect();
        let records = records.into_iter().zip(told);
        records
            .filter_map(|(one, told)| (!told).then_some(one))
            .collect()
    }

    fn print_all(&self, terminal: &Terminal, records: &[RunRecord]) {
        let mut last = "";
        for (run, record) in records {
            if **run != *last && self.is_for_person(terminal) {
                terminal.line(terminal.paint(Paint::Bold, &safe(run)));
            }
            last = run;
            self.print(terminal, record);
        }
    }

    fn print(&self, terminal: &Terminal, record: &Record) {
        match self.format {
            LogFormat::Ocsf => terminal.document(&export::event(record)),
            LogFormat::Text => print(terminal, record),
        }
    }
}

/// A record, and the run that it belongs to: the command of `gateway exec`, and its folder.
type RunRecord = (Rc<str>, Record);
/// Records, and the number of the last one of their log.
type PastRecords = (Vec<RunRecord>, Option<u64>);

/// Records the start of a run, so that `gateway log` can name it.
pub(crate) fn begin(log: &Log, what: &str) {
    let recorded = log.event(Event {
        name: BEGUN,
        session: SessionId::new(EXEC).ok().as_ref(),
        subject: what.as_bytes(),
        reason: None,
        count: 1,
    });
    if let Err(error) = recorded {
        tracing::error!(%error, "the start of a session was not recorded");
    }
}

/// Returns the run that a record begins.
fn begun(record: &Record) -> Option<&str> {
    let is_begun = record.name.as_deref() == Some(BEGUN);
    record.subject.as_deref().filter(|_| is_begun)
}

/// Whether one record is a refused lookup, and the other a refused request to the same host.
fn is_twin((run, lookup): &RunRecord, (later, record): &RunRecord) -> bool {
    is_lookup(lookup)
        && record.reason.is_some()
        && !is_lookup(record)
        && (run, &lookup.session, &lookup.host) == (later, &record.session, &record.host)
}

fn is_lookup(record: &Record) -> bool {
    record.entry.as_deref() == Some("dns")
}

/// Waits until the reader of standard output has gone, such as `head`.
async fn reader_gone() {
    let written_to = stdout();
    loop {
        let mut out = [PollFd::new(&written_to, PollFlags::empty())];
        let now = Timespec::default();
        if poll(&mut out, Some(&now)).is_ok_and(|_| out[0].revents().contains(PollFlags::ERR)) {
            return;
        }
        tokio::time::sleep(LOOKS_EVERY).await;
    }
}

/// Prints a record: one line of JSON, or one line for a person.
fn print(terminal: &Terminal, record: &Record) {
    if terminal.json() {
        return terminal.document(record);
    }
    let line = line(record);
    let paint = if line.refused {
        Paint::Red
    } else {
        Paint::Green
    };
    let verdict = terminal.paint(paint, &format!("{:<9}", line.verdict));
    let id = terminal.paint(Paint::Dim, &line.id);
    let (who, what) = (&line.who, line.whole());
    let time = when(&line.time, record.time.as_deref());
    terminal.line(format!("{time} {who:<12} {verdict} {what} {id}").trim_end());
}

/// Returns the time of a record, with its day unless that is today.
fn when(time: &str, whole: Option<&str>) -> String {
    let today = time::OffsetDateTime::now_utc().date().to_string();
    match whole.and_then(|whole| whole.get(..10)) {
        Some(day) if day != today => format!("{} {time}", safe(day)),
        _ => time.to_owned(),
    }
}

const BEGUN: &str = "session_started";
/// The program's own runs, which are shown only if their log is named.
pub(crate) const DEMO: &str = "gateway demo";
pub(crate) const DOCTOR: &str = "gateway doctor";
const OWN_RUNS: [&str; 2] = [DEMO, DOCTOR];
/// How long a refused lookup waits for the refusal of a request before it is shown.
const TWIN_WITHIN: Duration = Duration::from_secs(1);
/// How many further records are kept while a log is read, or wait for the records after them.
const KEPT: usize = 512;
/// How often standard output is checked for a reader.
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// How many past records are shown.
const PAST: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_another_day_has_its_day() {
        let past = "2026-01-02T03:04:05.000006Z";
        assert_eq!(when("03:04:05", Some(past)), "2026-01-02 03:04:05");
        let today = time::OffsetDateTime::now_utc().date();
        let now = format!("{today}T03:04:05.000006Z");
        assert_eq!(when("03:04:05", Some(&now)), "03:04:05");
        assert_eq!(when("", None), "");
    }
}
