//! `gateway why ID`: explains from the audit log what became of one request.

use std::path::PathBuf;

use clap::Args;

use crate::audit::{Expected, Found, Record, find, verify};
use crate::config::Config;
use crate::names::{ExchangeId, ReasonCode};

use super::failure::{Code, Failure};
use super::flags::ConfigFile;
use super::logs::{self, Chain};
use super::terminal::{Paint, Terminal, safe};

/// Tells what became of a request.
#[derive(Args)]
pub(super) struct Why {
    /// The id in the response: 20 hexadecimal digits
    id: String,
    /// An audit log, with what it was rotated into [default: that of `--config`, or those of your
    /// state directory]
    #[arg(long, value_name = "FILE")]
    audit: Vec<PathBuf>,
    #[command(flatten)]
    config: ConfigFile,
}

impl Why {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let found = self.find()?;
        if terminal.json() {
            terminal.document(&found);
        } else {
            print(terminal, &found);
        }
        Ok(Code::Ok)
    }

    /// Returns the configuration, if one is named.
    pub(super) fn config(&self) -> Result<Option<Config>, Failure> {
        self.config.find()
    }

    /// Returns the record of the exchange from a log whose chain verifies. The user may put the
    /// policy proposed from it into use, so the log must be intact.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the id is invalid, no log contains it, or the log does not verify.
    pub(super) fn find_in_whole_log(&self) -> Result<Found, Failure> {
        let (found, chain) = self.search()?;
        let report = verify(&chain, Expected::default())
            .map_err(|error| Failure::of("the audit log cannot be verified", &error))?;
        if report.holds() {
            return Ok(found);
        }
        Err(Failure::new(format!(
            "the audit log `{}` does not hold",
            found.file.display()
        ))
        .because("records were changed, removed or put in, so nothing is proposed after it")
        .next("see `gateway audit verify`"))
    }

    /// Returns the record of the exchange.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the id is invalid, or no log contains it.
    fn find(&self) -> Result<Found, Failure> {
        self.search().map(|(found, _)| found)
    }

    /// Returns the record of the exchange, and the log that contains it.
    fn search(&self) -> Result<(Found, Chain), Failure> {
        let id = exchange_id(&self.id)?;
        let config = if self.audit.is_empty() {
            self.config.find()?
        } else {
            None
        };
        let chains = logs::chains(&self.audit, config.as_ref())?;
        let mut files = Vec::new();
        for chain in chains {
            let found = find(&chain, id)
                .map_err(|error| Failure::of("the audit log cannot be read", &error))?;
            if let Some(found) = found {
                return Ok((found, chain));
            }
            files.extend(chain.iter().map(|path| path.display().to_string()));
        }
        Err(Failure::new(format!("no record has the id {id}"))
            .because(format!("searched {}", files.join(", ")))
            .next("name the audit log of that gateway: `--audit FILE`"))
    }
}

/// Parses an id as written in a response.
pub(super) fn exchange_id(text: &str) -> Result<ExchangeId, Failure> {
    let mut bytes = [0; 10];
    let fits = text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (byte, pair) in bytes
        .iter_mut()
        .zip(text.as_bytes().chunks(2))
        .filter(|_| fits)
    {
        let digits = std::str::from_utf8(pair)
            .ok()
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        *byte = digits.unwrap_or(0);
    }
    if fits {
        return Ok(ExchangeId::from_bytes(bytes));
    }
    Err(Failure::usage("the id cannot be read")
        .because("an id has 20 hexadecimal digits")
        .next("copy it from the response: `request_id` in the JSON, or the `Proxy-Status` field"))
}

fn print(terminal: &Terminal, found: &Found) {
    let record = &found.exchange;
    let bold = |part: &str| terminal.paint(Paint::Bold, part);
    print_request(terminal, record);
    let verdict = verdict(terminal, record);
    terminal.line(format!("{} {verdict}", bold("verdict")));
    if !record.policies.is_empty() {
        let policies: Vec<_> = record.policies.iter().map(|policy| safe(policy)).collect();
        terminal.line(format!("  decided by {}", policies.join(", ")));
    }
    if !record.facts.is_empty() {
        let facts: Vec<_> = record.facts.iter().map(|fact| safe(fact)).collect();
        terminal.line(format!("  read {} of the content", facts.join(", ")));
    }
    for lent in &record.lent {
        let (credential, place) = (safe(&lent.credential), safe(&lent.place));
        terminal.line(format!("  lent {credential} in {place}"));
    }
    if let Some(address) = record.dialled {
        terminal.line(format!("  connected to {address}"));
    }
    if let Some(end) = &found.end {
        let reason = end
            .reason
            .as_deref()
            .map(|reason| format!(" ({})", safe(reason)));
        let (outcome, reason) = (or_dash(end.outcome.as_deref()), reason.unwrap_or_default());
        terminal.line(format!("{} {outcome}{reason}", bold("ended")));
    }
    if let Some(reason) = &record.reason {
        terminal.line(format!("{} {}", bold("next"), next_step(reason)));
    }
    let file = safe(&found.file.display().to_string());
    terminal.line(format!("  {file}:{}", found.line));
}

/// Prints what was requested, by whom and when.
fn print_request(terminal: &Terminal, record: &Record) {
    let port = record.port.map(|port| format!(":{port}"));
    terminal.line(format!(
        "{} {} {}://{}{}{}",
        terminal.paint(Paint::Bold, "request"),
        or_dash(record.method.as_deref()),
        or_dash(record.scheme.as_deref()),
        or_dash(record.host.as_deref()),
        port.unwrap_or_default(),
        record.path.as_deref().map(safe).unwrap_or_default()
    ));
    terminal.line(format!(
        "  session {}, by {}, {}",
        or_dash(record.session.as_deref()),
        or_dash(record.entry.as_deref()),
        or_dash(record.time.as_deref())
    ));
}

fn or_dash(part: Option<&str>) -> String {
    part.map_or_else(|| String::from("-"), safe)
}

fn verdict(terminal: &Terminal, record: &Record) -> String {
    let status = record
        .status
        .map(|status| format!(" with {status}"))
        .unwrap_or_default();
    match (&record.reason, &record.blame) {
        (Some(reason), blame) => {
            let blame = blame
                .as_deref()
                .map(|side| format!(", side: {}", safe(side)))
                .unwrap_or_default();
            let came = record
                .phase
                .as_deref()
                .map(|phase| format!(", at {}", safe(phase)))
                .unwrap_or_default();
            format!(
                "{}{status}: {}{blame}{came}",
                terminal.paint(Paint::Red, "refused"),
                safe(reason)
            )
        }
        (None, _) => format!(
            "{}{status}",
            terminal.paint(
                Paint::Green,
                record.outcome.as_deref().unwrap_or("answered")
            )
        ),
    }
}

/// Returns what the user can do about a refusal, by its code.
fn next_step(reason: &str) -> &'static str {
    match ReasonCode::named(reason).map_or("", ReasonCode::next_step) {
        "" => "The client's request is at fault: docs/refusals.md has the code.",
        next => next,
    }
}
