//! The summary of `exec` after the command has ended: refusals, and the files it left.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::app::write::write;
use crate::app::{App, Terminal, counted, safe};
use crate::audit::find;
use crate::cli::log::logs;
use crate::grant::request;
use crate::launch::repository::{Found, SweepFindings};
use crate::names::ExchangeId;
use crate::policy::Requester;
use crate::server::{Proposal, ProposalState, RequestedAccess};
use crate::session::{EndReason, Session};

/// Prints that an operator ended the session, if one did.
pub fn print_ended(terminal: &Terminal, app: &App) {
    let by_operator = |session: &Arc<Session>| {
        let ended = session.ended();
        matches!(ended, Some(EndReason::Operator | EndReason::ForGood))
    };
    if app.shared.sessions.all().iter().any(by_operator) {
        let told = "an operator ended the session: from then on the command had no network";
        terminal.entry("ended", told);
    }
}

/// Prints a short summary of the refusals while the command ran.
pub fn print_refused(terminal: &Terminal, app: &App) {
    let refused = app.shared.refused.all();
    let denied = app.shared.proposals.all().into_iter();
    let denied: Vec<Proposal> = denied
        .filter(|one| one.state == ProposalState::Refused)
        .collect();
    for (host, reason, counted) in refused.iter().take(SHOWN) {
        let denied = denied.iter().map(|one| &one.wanted);
        let denied = denied.filter(|wanted| wanted.to.authority.shown() == *host);
        let denied = crate::names::join(denied.map(RequestedAccess::shown), ", ");
        let allow = match counted.is_grantable && !host.is_empty() {
            _ if !denied.is_empty() => format!("; a person refused {denied}"),
            true if is_allowed(app, counted.first) => "; it is allowed meanwhile".to_owned(),
            true => format!("; `gateway allow {host}` permits it"),
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

/// Prints why signatures of commits were refused while the command ran.
pub fn print_unsigned(terminal: &Terminal, app: &App) {
    for (cause, count) in app.commits.refused() {
        let told = format!(
            "{cause} ({}); `gateway log --refused`",
            counted(count, "signature", "signatures")
        );
        terminal.entry("unsigned", &told);
    }
}

/// Whether what was refused is permitted by now, as the log says what it was.
fn is_allowed(app: &App, id: ExchangeId) -> bool {
    let log = app.shared.log.path().map(Path::to_owned);
    let found = log.and_then(|log| find(&[log], id).ok().flatten());
    let session = app.shared.sessions.all().into_iter().next();
    let generation = app.shared.current().policies.current();
    found.zip(session).is_some_and(|(found, session)| {
        let asker = Requester::of(&session, None, generation.number());
        request::is_allowed(&found.exchange, &generation, &asker)
    })
}

/// How many kinds of refusals are shown at the end.
const SHOWN: usize = 6;

/// Prints the paths that the command left, in groups, the most serious first. Each group has a
/// line, so that many entries of one kind do not hide another. The full list is written to `list`.
pub fn print_left(terminal: &Terminal, left: &SweepFindings, list: Option<&Path>) {
    let groups = groups(left);
    let all: usize = groups.values().map(Vec::len).sum();
    if left.was_ended {
        let told = "the command was ended: it went on making what git outside would run or obey";
        terminal.entry("ended", told);
    }
    let wanted = if all > SHOWN_IN_ALL {
        SHOWN_OF_GROUP
    } else {
        all
    };
    let is_cut = groups.values().any(|places| places.len() > wanted);
    let list = list.filter(|list| is_cut && write(list, whole(&groups).as_bytes(), 0o600).is_ok());
    let shown = if is_cut && list.is_none() {
        all
    } else {
        wanted
    };
    for (about, places) in &groups {
        let (places, more) = folded(places, about.folds, shown);
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let line = format!("{}{more}{}", places.join(", "), about.rest);
        terminal.entry_of_peer(about.name, &line);
    }
    if let Some(list) = list {
        let list = safe(&list.display().to_string());
        terminal.entry("left", &format!("all {all}: see {list}"));
    }
}

/// Returns the first paths of a group, and how many are left out. If the group `folds`, the paths
/// in one folder whose name begins with a dot count as one.
fn folded(places: &[LeftPath], folds: bool, shown: usize) -> (Vec<String>, usize) {
    let mut counts: Vec<(String, usize)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for place in places {
        let name = place.short(folds);
        let at = *known.entry(name.clone()).or_insert(counts.len());
        match counts.get_mut(at) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let left_out = counts.iter().skip(shown).map(|(_, count)| count).sum();
    let named = counts
        .into_iter()
        .take(shown)
        .map(|(name, count)| match count {
            1 => name,
            count => format!("{name} ({count} files)"),
        });
    (named.collect(), left_out)
}

/// Returns one line for every entry.
fn whole(groups: &BTreeMap<SummaryLine, Vec<LeftPath>>) -> String {
    let lines = groups.iter().flat_map(|(about, places)| {
        let line =
            |place: &LeftPath| format!("{:<9} {}{}\n", about.name, place.whole(), about.rest);
        places.iter().map(line)
    });
    lines.collect()
}

fn groups(left: &SweepFindings) -> BTreeMap<SummaryLine, Vec<LeftPath>> {
    let mut groups: BTreeMap<SummaryLine, Vec<LeftPath>> = BTreeMap::new();
    let unsearched = SummaryLine::new(
        0,
        "unsearched",
        ": look before git or another tool runs there",
    );
    for path in &left.missed {
        groups
            .entry(unsearched.clone())
            .or_default()
            .push(LeftPath::new(path, None));
    }
    for (path, found) in &left.found {
        let name = match found {
            Found::Off(name, _) => Some(name.to_string_lossy()),
            Found::Moved(path, _) => Some(path.to_string_lossy()),
            _ => None,
        };
        groups
            .entry(SummaryLine::of(found))
            .or_default()
            .push(LeftPath::new(path, name.as_deref()));
    }
    groups.values_mut().for_each(|places| places.sort());
    groups
}

/// The line for a group. The most serious rank is 0.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SummaryLine {
    rank: u8,
    name: &'static str,
    rest: String,
    /// Whether a folder stands for its content.
    folds: bool,
}

impl SummaryLine {
    fn new(rank: u8, name: &'static str, rest: impl Into<String>) -> Self {
        Self {
            rank,
            name,
            rest: rest.into(),
            folds: false,
        }
    }

    fn of(found: &Found) -> Self {
        let put_away = |why: &str| format!(": put away, since {}", safe(why));
        match found {
            Found::Armed(why) => Self::new(
                0,
                "armed",
                format!(", which could not be put away: {}", safe(why)),
            ),
            Found::Off(_, why) => Self::new(1, "off", put_away(why)),
            Found::Moved(_, why) => Self::new(1, "moved", put_away(why)),
            Found::Unreadable => Self::new(1, "unread", ", an index that git cannot read"),
            Found::Unfinished => Self::new(
                1,
                "unfinished",
                ": look at its steps before you continue it, they may be programs",
            ),
            Found::Settings => Self::new(1, "changed", ", settings of git, while the command ran"),
            Found::NewRepository => Self::new(2, "new git", ", whose settings run nothing"),
            Found::Tool(tool) => Self {
                folds: true,
                ..Self::new(2, "changed", format!(", which {tool} reads by itself"))
            },
        }
    }
}

/// A path. Paths near the top of a project come first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LeftPath {
    depth: usize,
    path: PathBuf,
    /// The name that it was renamed to.
    now: String,
}

impl LeftPath {
    fn new(path: &Path, now: Option<&str>) -> Self {
        Self {
            depth: path.components().count(),
            path: path.to_owned(),
            now: now.map_or_else(String::new, |now| format!(" (now {})", text(now))),
        }
    }

    fn whole(&self) -> String {
        format!("{}{}", text(&self.path.to_string_lossy()), self.now)
    }

    /// Formats the path for a person in the working directory. If it `folds`, up to the first
    /// folder whose name begins with a dot.
    fn short(&self, folds: bool) -> String {
        let here = std::env::current_dir().ok();
        let below = here.and_then(|here| self.path.strip_prefix(here).ok());
        let path = match below.filter(|below| !below.as_os_str().is_empty()) {
            Some(below) if folds => up_to_dot(below),
            below => below.unwrap_or(&self.path).to_owned(),
        };
        let path = text(&path.to_string_lossy());
        format!("{}{}", shortened(&path), self.now)
    }
}

fn up_to_dot(path: &Path) -> PathBuf {
    let mut parts = path.components();
    let is_dotted = |part: &Component| part.as_os_str().as_encoded_bytes().starts_with(b".");
    let mut top: PathBuf = parts.by_ref().take_while(|part| !is_dotted(part)).collect();
    let inner = parts.as_path();
    let rest = path.strip_prefix(&top).unwrap_or(path);
    top.extend(rest.components().next());
    if inner.as_os_str().is_empty() {
        top
    } else {
        top.join("")
    }
}

/// Quotes a name that could be read as several names, or as the program's own words.
fn text(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@=:~#%".contains(c);
    if name.chars().all(is_plain) {
        safe(name)
    } else {
        format!("`{}`", safe(&name.replace('`', "\\`")))
    }
}

/// Shortens a long text by its middle.
fn shortened(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    match letters.len() {
        0..=LONGEST => text.to_owned(),
        all => {
            let ends = [&letters[..LONGEST / 2], &letters[all - LONGEST / 2..]];
            ends.map(|end| end.iter().collect::<String>()).join("…")
        }
    }
}

/// How many letters of a path are shown.
const LONGEST: usize = 200;
/// How many paths are shown in any case.
const SHOWN_IN_ALL: usize = 20;
/// How many paths of a group are shown if there are more in all.
const SHOWN_OF_GROUP: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_what_is_in_it() {
        for (path, shown) in [
            (".cache/a/b", ".cache/"),
            ("src/.cache/.a", "src/.cache/"),
            ("src/.rc", "src/.rc"),
        ] {
            assert_eq!(up_to_dot(Path::new(path)).to_str(), Some(shown), "{path}");
        }
    }
}
