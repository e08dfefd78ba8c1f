//! The summary of `exec` after the command has ended: what was refused, and what it left.

use std::path::Path;
use std::sync::Arc;

use super::app::App;
use super::logs;
use super::terminal::{Paint, Terminal, safe};
use crate::launch::after::{Aftermath, Found};
use crate::session::{EndReason, Session, SessionStatus};

/// Prints that an operator ended the session, if one did.
pub fn print_ended(terminal: &Terminal, app: &App) {
    let by_operator =
        |session: &Arc<Session>| session.status() == SessionStatus::Ended(EndReason::Operator);
    if app.shared.sessions.all().iter().any(by_operator) {
        let told = "an operator ended the session: from then on the command had no network";
        terminal.entry("ended", told);
    }
}

/// Prints a short summary of what was refused while the command ran.
pub fn print_refused(terminal: &Terminal, app: &App) {
    let refused = app.shared.refused.all();
    for (host, reason, counted) in refused.iter().take(SHOWN) {
        let allow = match counted.is_grantable && !host.is_empty() {
            true => format!("; `--allow {host}` permits it"),
            false => String::new(),
        };
        let host = if host.is_empty() { "a request" } else { host };
        let times = if counted.count > 1 {
            format!(" ({} times)", counted.count)
        } else {
            String::new()
        };
        let advice = logs::advice(counted.first, app.config.audit.path.as_deref());
        let told = format!("{host}: {reason}{times}{allow}; {advice}");
        terminal.entry("refused", &safe(&told));
    }
    if refused.len() > SHOWN {
        let more = refused.len() - SHOWN;
        terminal.entry("refused", &format!("{more} more kinds, in the audit log"));
    }
}

/// How many kinds of refusals are shown at the end.
const SHOWN: usize = 6;

/// Prints a short summary of files that the user's tools would run. Disarmed ones come first.
pub fn print_left(terminal: &Terminal, aftermath: &Aftermath) {
    let found = aftermath.found.iter();
    let mut lines: Vec<(u8, String)> = found.map(|(path, found)| left(path, found)).collect();
    if let Some(missed) = &aftermath.missed {
        let missed = safe(&missed.display().to_string());
        let text = format!(
            "unsearched {missed}, and maybe more: look before git or another tool runs there"
        );
        lines.push((0, text));
    }
    lines.sort();
    let more = lines.len().saturating_sub(SHOWN_FILES);
    for (_, line) in lines.into_iter().take(SHOWN_FILES) {
        terminal.note(format!(
            "{} {line}",
            terminal.paint_note(Paint::Dim, "gateway ")
        ));
    }
    if more > 0 {
        terminal.note(format!(
            "gateway  {more} more files that tools run are new or changed; `--guard-tools` refuses such files"
        ));
    }
}

/// Returns a line about one thing that the command left, and its rank. The most serious rank is 0.
fn left(path: &Path, found: &Found) -> (u8, String) {
    let path = safe(&path.display().to_string());
    match found {
        Found::Armed(why) => {
            let why = safe(why);
            (0, format!("armed    {path} could not be set aside: {why}"))
        }
        Found::Disarmed => {
            let what = "its settings and hooks are set aside in it";
            (1, format!("new git  {path}: {what}"))
        }
        Found::SetAside(name) => {
            let name = safe(&name.to_string_lossy());
            (1, format!("set aside {path}, as {name}"))
        }
        Found::Apart => {
            let what = "is out of sight until the other sandboxes here end";
            (1, format!("new git  {path} {what}"))
        }
        Found::Unlinked => {
            let what = "through which git would have written elsewhere";
            (1, format!("unlinked {path}, {what}"))
        }
        Found::LeadsOut => (2, format!("new link {path} leads out of the project")),
        Found::Changed(tool) => (2, format!("changed  {path}, which {tool} runs or obeys")),
        Found::New(tool) => (3, format!("new      {path}, which {tool} runs or obeys")),
    }
}

/// How many lines about files are shown at the end.
const SHOWN_FILES: usize = 20;
