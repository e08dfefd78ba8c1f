//! `gateway log ls` and `prune`: the logs of past sessions, and the removal of those that need not
//! be kept.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::json;

use crate::app::{Code, Failure, Paint, Terminal, audit_heads, counted, safe};
use crate::audit::{self, PruneReport, Retention, StoredLog};
use crate::config::{Hint, duration, show_duration, size, state};

/// List the logs of your sessions, the newest first
#[derive(Args)]
pub(crate) struct ListLogs {
    /// All of them, rather than the newest 20
    #[arg(long)]
    all: bool,
}

/// Remove logs of your sessions that need not be kept; a log that is being written stays
#[derive(Args)]
#[command(after_help = "Without a limit: what `exec` keeps by itself, 90 days.")]
pub(crate) struct PruneLogs {
    /// Remove logs that were last written longer ago, such as `30d`
    #[arg(long, value_name = "DURATION", value_parser = span)]
    older_than: Option<Duration>,
    /// Keep only the newest logs: as many as this number, or as fit in this size (`256MiB`)
    #[arg(long, value_name = "NUMBER|SIZE", value_parser = amount)]
    keep: Option<Retention>,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
}

/// How many logs are listed.
const NEWEST: usize = 20;

/// The limits by which `exec` keeps the logs of your sessions.
pub(crate) const KEPT: Retention = Retention {
    within: Some(Duration::from_secs(90 * 86_400)),
    // No limit: a command that fills its own log must not push out the logs of others.
    bytes: None,
    logs: None,
};

/// Removes logs of past sessions beyond these limits. Nothing waits for it, and the next run
/// removes what is left.
pub(crate) fn prune_kept() {
    let Some(folder) = state::audit_directory() else {
        return;
    };
    KEPT.within.into_iter().for_each(audit_heads::forget_old);
    match audit::prune(&folder, KEPT, false) {
        Ok(pruned) => {
            for (log, cause) in pruned.failed {
                tracing::warn!(log = %log.display(), cause, "an old audit log was not removed");
            }
        }
        Err(error) => tracing::warn!(%error, "old audit logs were not removed"),
    }
}

impl ListLogs {
    pub(crate) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let logs = audit::stored(&folder()?).map_err(unreadable)?;
        if terminal.json() {
            let logs: Vec<_> = logs.iter().map(document).collect();
            terminal.document(&json!({ "logs": logs }));
            return Ok(Code::Ok);
        }
        let shown = if self.all { logs.len() } else { NEWEST };
        for log in logs.iter().take(shown) {
            terminal.line(line(terminal, log));
        }
        let bytes = show_bytes(logs.iter().map(|log| log.bytes).sum());
        let sum = format!("{}, {bytes}", counted(logs.len() as u64, "log", "logs"));
        terminal.line(match logs.len().saturating_sub(shown) {
            0 => sum,
            older => format!("{sum}; {older} older: `--all`"),
        });
        Ok(Code::Ok)
    }
}

impl PruneLogs {
    pub(crate) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let keep = match (self.older_than, self.keep) {
            (None, None) => KEPT,
            (within, amount) => Retention {
                within,
                ..amount.unwrap_or_default()
            },
        };
        let pruned = audit::prune(&folder()?, keep, self.dry_run).map_err(unreadable)?;
        if terminal.json() {
            terminal.document(&json!({
                "removed": pruned.removed.iter().map(document).collect::<Vec<_>>(),
                "given_back": pruned.given_back, "dry_run": self.dry_run,
                "failed": pruned.failed.iter().map(failed).collect::<Vec<_>>(),
            }));
        } else {
            self.tell(terminal, &pruned);
        }
        Ok(if pruned.failed.is_empty() {
            Code::Ok
        } else {
            Code::Failed
        })
    }

    fn tell(&self, terminal: &Terminal, pruned: &PruneReport) {
        for log in &pruned.removed {
            terminal.line(line(terminal, log));
        }
        for (log, cause) in &pruned.failed {
            let log = safe(&log.display().to_string());
            terminal.note(format!("gateway: `{log}` was not removed: {}", safe(cause)));
        }
        let bytes: u64 = pruned.removed.iter().map(|log| log.bytes).sum();
        let verb = if self.dry_run {
            "would be removed"
        } else {
            "removed"
        };
        terminal.line(format!(
            "{} logs {verb}, {}{}",
            pruned.removed.len(),
            show_bytes(bytes),
            match pruned.given_back {
                0 => String::new(),
                more => format!(
                    "; {} given back that crashes left reserved",
                    show_bytes(more)
                ),
            }
        ));
    }
}

fn folder() -> Result<PathBuf, Failure> {
    state::audit_directory()
        .ok_or_else(|| Failure::no_state_folder("there are no logs of sessions"))
}

fn unreadable(error: audit::Error) -> Failure {
    Failure::of("the logs of your sessions cannot be read", &error)
}

fn span(text: &str) -> Result<Duration, String> {
    duration(text).map_err(told)
}

/// Reads a limit on the newest logs: their number, or their size in all.
fn amount(text: &str) -> Result<Retention, String> {
    let mut keep = Retention {
        logs: text.parse().ok(),
        ..Retention::default()
    };
    if keep.logs.is_none() {
        keep.bytes = Some(size(text).map_err(told)?.as_bytes());
    }
    Ok(keep)
}

fn told(hint: Hint) -> String {
    format!("{}: {}", hint.why, hint.remedy)
}

fn line(terminal: &Terminal, log: &StoredLog) -> String {
    let path = safe(&log.path.display().to_string());
    let live = || format!(" {}", terminal.paint(Paint::Green, "live"));
    let state = log.live.then(live).unwrap_or_default();
    let bytes = show_bytes(log.bytes);
    format!("{bytes:>9}  {:>9}  {path}{state}", age(log))
}

fn age(log: &StoredLog) -> String {
    let age = SystemTime::now().duration_since(log.written);
    let seconds = age.unwrap_or_default().as_secs();
    let mut units = [86_400, 3_600, 60].into_iter();
    let unit = units.find(|unit| seconds >= *unit).unwrap_or(1);
    let whole = Duration::from_secs(seconds / unit * unit);
    format!("{} ago", show_duration(whole))
}

fn show_bytes(bytes: u64) -> String {
    let (unit, name) = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
        .into_iter()
        .find(|(unit, _)| bytes >= *unit)
        .unwrap_or((1, "B"));
    format!("{}{name}", bytes.div_ceil(unit))
}

fn document(log: &StoredLog) -> serde_json::Value {
    let since = log.written.duration_since(SystemTime::UNIX_EPOCH);
    json!({
        "log": log.path, "files": log.files, "bytes": log.bytes, "live": log.live,
        "written": since.unwrap_or_default().as_secs(),
    })
}

fn failed((log, cause): &(PathBuf, String)) -> serde_json::Value {
    json!({ "log": Path::new(log), "why": cause })
}
