//! The summaries of `exec`: what applies, before the command starts, and what it left, after it has
//! ended.

use std::path::Path;
use std::sync::Arc;

use super::app::App;
use super::logs;
use super::resolve::ResolvedConfig;
use super::terminal::{Paint, Terminal, safe};
use crate::credential::{Stored, unexpected_reach};
use crate::launch;
use crate::launch::after::{Aftermath, Found};
use crate::session::{EndReason, Role, Session, SessionStatus};

/// Prints a short summary of what applies, before the command starts.
pub fn print_before(
    terminal: &Terminal,
    summary: &launch::Summary,
    resolved: &ResolvedConfig,
    profile: Option<&super::profile::Profile>,
    launch: &launch::Launch,
) {
    let _ = (profile, launch);
    let no_host = "nothing: name a host with --allow, or a credential with --secret";
    let mut lines = vec![
        ("network", or_none(&hosts(resolved), no_host)),
        ("lends", or_none(&lent(resolved), "no credential")),
    ];
    lines.extend(projects(summary).map(|text| ("project", text)));
    lines.push(("home", home(summary)));
    if !summary.seen.is_empty() {
        let seen: Vec<_> = summary
            .seen
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        lines.push(("sees", format!("{} (to be read)", seen.join(", "))));
    }
    let user = summary.user;
    lines.push(("user", format!("uid {} gid {}", user.uid, user.gid)));
    lines.extend(left_out(&summary.left_out, resolved).map(|text| ("left out", text)));
    for (name, text) in lines {
        let name = terminal.paint(Paint::Dim, &format!("gateway  {name:<8}"));
        terminal.note(format!("{name} {}", safe(&text)));
    }
}

fn or_none(texts: &[String], none: &str) -> String {
    if texts.is_empty() {
        none.to_owned()
    } else {
        texts.join("; ")
    }
}

/// Returns the hosts that the command can reach, with their ports.
fn hosts(resolved: &ResolvedConfig) -> Vec<String> {
    let allowed = resolved.allowed.iter();
    let origins = resolved
        .stored
        .iter()
        .flat_map(|stored| &stored.binding.origins);
    let mut hosts: Vec<String> = allowed
        .map(|allowed| format!("{}:{}", allowed.host, allowed.port))
        .chain(origins.map(|origin| format!("{}:{}", origin.hosts, origin.port)))
        .collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

/// Returns the credentials that the command can use, and where.
fn lent(resolved: &ResolvedConfig) -> Vec<String> {
    let lendable = |stored: &&Stored| !matches!(stored.binding.role, Role::Part(_));
    resolved
        .stored
        .iter()
        .filter(lendable)
        .map(lent_one)
        .collect()
}

fn lent_one(stored: &Stored) -> String {
    let binding = &stored.binding;
    let hosts: Vec<String> = binding
        .origins
        .iter()
        .map(|origin| origin.hosts.to_string())
        .collect();
    let hosts = hosts.join(", ");
    match binding.role {
        Role::Place if binding.variables.is_empty() => {
            format!("{} (phantom) to {hosts}", binding.credential)
        }
        Role::Place => format!("{} (phantom) to {hosts}", binding.variables.join(", ")),
        _ => {
            let reach = unexpected_reach(stored).map(|which| format!(", {which}"));
            let name = &binding.credential;
            format!("{name} (signs) for {hosts}{}", reach.unwrap_or_default())
        }
    }
}

/// Returns the host's own directories, the working directory first.
fn projects(summary: &launch::Summary) -> impl Iterator<Item = String> {
    let persists = if summary.persistent {
        "changes persist"
    } else {
        "changes are dropped at the end"
    };
    let own = format!("{} ({persists})", summary.working_directory.display());
    let further = summary.projects.iter();
    let further = further.filter(|project| **project != summary.working_directory);
    let further = further.map(|project| format!("{} (too; changes persist)", project.display()));
    std::iter::once(own).chain(further)
}

/// Names the variables that the command does not get and might miss; `None` if there are none.
fn left_out(names: &[String], resolved: &ResolvedConfig) -> Option<String> {
    let is_lent = |name: &&String| {
        resolved
            .stored
            .iter()
            .any(|stored| stored.binding.variables.contains(*name))
    };
    let names: Vec<&str> = names
        .iter()
        .filter(|name| !is_lent(name))
        .map(String::as_str)
        .collect();
    let (shown, more) = names.split_at(names.len().min(VARIABLES_SHOWN));
    let more = match more.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    (!shown.is_empty()).then(|| {
        format!(
            "{}{more}; --pass-env NAME passes a variable",
            shown.join(", ")
        )
    })
}

/// How many variables the summary names.
const VARIABLES_SHOWN: usize = 8;

/// Describes in one line what is visible of the home directory.
fn home(summary: &launch::Summary) -> String {
    let place = summary.home.path().display();
    let launch::Home::Own(_) = summary.home else {
        return format!("{place} (empty, in memory)");
    };
    let seen = match summary.seen_in_home.as_slice() {
        [] => String::from("nothing of yours is seen"),
        names => format!("of yours it sees {}, and nothing else", names.join(", ")),
    };
    format!("{place} (in memory; {seen}: --see-home NAME)")
}

/// Prints that an operator ended the session, if one did.
pub fn print_ended(terminal: &Terminal, app: &App) {
    let by_operator =
        |session: &Arc<Session>| session.status() == SessionStatus::Ended(EndReason::Operator);
    if app.shared.sessions.all().iter().any(by_operator) {
        terminal.note(format!(
            "{} an operator ended the session: from then on the command had no network",
            terminal.paint(Paint::Dim, "gateway  ended   ")
        ));
    }
}

/// Prints a short summary of what was refused while the command ran.
pub fn print_refused(terminal: &Terminal, app: &App) {
    let refused = app.shared.refused.all();
    for (host, reason, counted) in refused.iter().take(SHOWN) {
        let host = if host.is_empty() { "a request" } else { host };
        let times = if counted.count > 1 {
            format!(" ({} times)", counted.count)
        } else {
            String::new()
        };
        terminal.note(format!(
            "{} {}: {reason}{times}; {}",
            terminal.paint(Paint::Dim, "gateway  refused "),
            safe(host),
            safe(&logs::advice(
                counted.first,
                app.config.audit.path.as_deref()
            ))
        ));
    }
    if refused.len() > SHOWN {
        terminal.note(format!(
            "gateway  refused  {} more kinds, in the audit log",
            refused.len() - SHOWN
        ));
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
        terminal.note(format!("{} {line}", terminal.paint(Paint::Dim, "gateway ")));
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
