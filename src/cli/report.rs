//! What `exec` says: what will hold, before the command starts, and what it left, when it has
//! ended.

use super::assembly::Assembly;
use super::expand::Expanded;
use super::logs;
use super::screen::{Paint, Screen, safe};
use crate::credential::{Stored, unexpected_reach};
use crate::launch;
use crate::launch::after::{Aftermath, Found};
use crate::session::Role;

/// What will hold, in a few lines, before the command starts.
pub fn before(screen: &Screen, summary: &launch::Summary, expanded: &Expanded) {
    let mut lent: Vec<String> = Vec::new();
    let lendable = |stored: &&Stored| !matches!(stored.binding.role, Role::Part(_));
    for stored in expanded.stored.iter().filter(lendable) {
        let binding = &stored.binding;
        let hosts: Vec<String> = binding
            .origins
            .iter()
            .map(|origin| origin.hosts.to_string())
            .collect();
        let names = if binding.variables.is_empty() {
            binding.credential.to_string()
        } else {
            binding.variables.join(", ")
        };
        let what = match binding.role {
            Role::Place => format!("{names} (phantom) to {}", hosts.join(", ")),
            _ => {
                let reach = unexpected_reach(stored).map(|which| format!(", {which}"));
                let (name, hosts) = (&binding.credential, hosts.join(", "));
                format!("{name} (signs) for {hosts}{}", reach.unwrap_or_default())
            }
        };
        lent.push(what);
    }
    let mut hosts: Vec<String> = expanded
        .allowed
        .iter()
        .map(|allowed| format!("{}:{}", allowed.host, allowed.port))
        .collect();
    hosts.extend(expanded.stored.iter().flat_map(|stored| {
        let origins = &stored.binding.origins;
        origins
            .iter()
            .map(|origin| format!("{}:{}", origin.hosts, origin.port))
    }));
    hosts.sort();
    hosts.dedup();
    let or_none = |lines: Vec<String>, none: &str| {
        if lines.is_empty() {
            none.to_owned()
        } else {
            lines.join("; ")
        }
    };
    let note = |name: &str, text: String| {
        screen.note(format!(
            "{} {}",
            screen.paint(Paint::Dim, name),
            safe(&text)
        ))
    };
    note(
        "gateway  network ",
        or_none(
            hosts,
            "nothing: name a host with --allow, or a credential with --secret",
        ),
    );
    note("gateway  lends   ", or_none(lent, "no credential"));
    let persists = if summary.persistent {
        "changes persist"
    } else {
        "changes are dropped at the end"
    };
    note(
        "gateway  project ",
        format!("{} ({persists})", summary.working_directory.display()),
    );
    for further in &summary.projects {
        if *further != summary.working_directory {
            note(
                "gateway  project ",
                format!("{} (too; changes persist)", further.display()),
            );
        }
    }
    note("gateway  home    ", home(summary));
    if !summary.seen.is_empty() {
        let seen: Vec<String> = summary
            .seen
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        note(
            "gateway  sees    ",
            format!("{} (to be read)", seen.join(", ")),
        );
    }
    note(
        "gateway  user    ",
        format!("uid {} gid {}", summary.user.uid, summary.user.gid),
    );
    if let Some(text) = left_out(&summary.left_out, expanded) {
        note("gateway  left out", text);
    }
}

/// Names the variables that the command does not get and might miss; `None` where there is none.
fn left_out(names: &[String], expanded: &Expanded) -> Option<String> {
    let is_lent = |name: &&String| {
        expanded
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

/// Variables that are named in the summary.
const VARIABLES_SHOWN: usize = 8;

/// What of the home is seen, in one line.
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

/// What was refused while the command ran, in a few lines.
pub fn refused(screen: &Screen, assembly: &Assembly) {
    let refused = assembly.shared.refused.all();
    for (host, reason, counted) in refused.iter().take(SHOWN) {
        let host = if host.is_empty() { "a request" } else { host };
        let times = if counted.count > 1 {
            format!(" ({} times)", counted.count)
        } else {
            String::new()
        };
        screen.note(format!(
            "{} {}: {reason}{times}; {}",
            screen.paint(Paint::Dim, "gateway  refused "),
            safe(host),
            safe(&logs::advice(
                counted.first,
                assembly.config.audit.path.as_deref()
            ))
        ));
    }
    if refused.len() > SHOWN {
        screen.note(format!(
            "gateway  refused  {} more kinds, in the audit log",
            refused.len() - SHOWN
        ));
    }
}

/// Kinds of refusals that are shown at the end.
const SHOWN: usize = 6;

/// What the command left that a person's tools would run, in a few lines: what was disarmed first.
pub fn left(screen: &Screen, aftermath: &Aftermath) {
    let mut lines: Vec<(u8, String)> = Vec::new();
    for (path, found) in &aftermath.found {
        let path = safe(&path.display().to_string());
        lines.push(match found {
            Found::Armed(why) => (
                0,
                format!("armed    {path} could not be set aside: {}", safe(why)),
            ),
            Found::Disarmed => (
                1,
                format!("new git  {path}: its settings and hooks are set aside in it"),
            ),
            Found::SetAside(name) => (
                1,
                format!("set aside {path}, as {}", safe(&name.to_string_lossy())),
            ),
            Found::Apart => (
                1,
                format!("new git  {path} is out of sight until the other sandboxes here end"),
            ),
            Found::Unlinked => (
                1,
                format!("unlinked {path}, through which git would have written elsewhere"),
            ),
            Found::LeadsOut => (2, format!("new link {path} leads out of the project")),
            Found::Changed(tool) => (2, format!("changed  {path}, which {tool} runs or obeys")),
            Found::New(tool) => (3, format!("new      {path}, which {tool} runs or obeys")),
        });
    }
    if let Some(missed) = &aftermath.missed {
        let missed = safe(&missed.display().to_string());
        lines.push((
            0,
            format!(
                "unsearched {missed}, and maybe more: look before git or another tool runs there"
            ),
        ));
    }
    lines.sort();
    let more = lines.len().saturating_sub(SHOWN_FILES);
    for (_, line) in lines.into_iter().take(SHOWN_FILES) {
        screen.note(format!("{} {line}", screen.paint(Paint::Dim, "gateway ")));
    }
    if more > 0 {
        screen.note(format!(
            "gateway  {more} more files that tools run are new or changed; `--guard-tools` refuses such files"
        ));
    }
}

/// Lines about files that are shown at the end.
const SHOWN_FILES: usize = 20;
