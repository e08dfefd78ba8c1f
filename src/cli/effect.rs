//! What a configuration would do, in the words of the summary of `exec`.

use std::collections::BTreeSet;

use super::failure::Failure;
use super::generation;
use super::lending;
use super::resolve::ResolvedConfig;
use super::terminal::{Paint, Terminal, rows_of_peer, safe};
use crate::config::Config;
use crate::credential::preset::{self, PresetCredential};
use crate::policy::HostScope;
use crate::session::Role;

/// What a configuration opens, lends and hides, by its name.
pub(super) struct Effect(Vec<(&'static str, String)>);

impl Effect {
    /// Finds out what a configuration alone would do.
    ///
    /// # Errors
    /// Returns a [`Failure`] if its policies or credentials are refused.
    pub(super) fn of(config: &Config) -> Result<Self, Failure> {
        let resolved = ResolvedConfig::of(config, false)?;
        // Those of every group: a flag may put a run into any.
        let hosts = generation::of_exec(config, &resolved)?.hosts();
        let hosts = hosts.map_or_else(|| vec!["any host".to_owned()], |scopes| names(&scopes));
        // What it opens stands last, where it is in sight at the question.
        let mut told = Vec::new();
        let hidden = config.sandbox.hide.iter();
        let hidden: Vec<String> = hidden.map(|path| path.display().to_string()).collect();
        if !hidden.is_empty() {
            told.push(("hides", listed(&hidden)));
        }
        told.push(("reaches", listed(&hosts)));
        let lends: Vec<String> = resolved
            .stored
            .iter()
            .filter(|stored| !matches!(stored.binding.role, Role::Part(_)))
            .map(|stored| {
                let origins = stored.binding.origins.iter();
                let origins: Vec<String> = origins.map(ToString::to_string).collect();
                let name = &stored.binding.credential;
                let asks = match lending::is_lent(config, &stored.binding) {
                    true => "",
                    false => ", as the rules say",
                };
                format!("{name} ({}) to {}{asks}", stored.from, listed(&origins))
            })
            .collect();
        let lends: Vec<String> = lends
            .into_iter()
            .chain(waiting(config, &resolved))
            .collect();
        told.push(("lends", listed(&lends)));
        Ok(Self(told))
    }

    /// Prints it to standard error, beside what a command printed.
    pub(super) fn note(&self, terminal: &Terminal) {
        for (name, text) in &self.0 {
            terminal.entry(name, &safe(text));
        }
    }

    pub(super) fn print(&self, terminal: &Terminal) {
        for (name, text) in &self.0 {
            for row in rows_of_peer(&format!("{name:<8} {}", safe(&bounded(text)))) {
                match row.strip_prefix(name) {
                    Some(text) => terminal.line(terminal.paint(Paint::Bold, name) + text),
                    None => terminal.line(row),
                }
            }
        }
    }
}

/// Returns the credentials of its presets that it will lend once their variables are set.
fn waiting<'a>(
    config: &'a Config,
    resolved: &'a ResolvedConfig,
) -> impl Iterator<Item = String> + 'a {
    let presets = config.presets.iter().filter_map(|name| preset::named(name));
    let all = presets.flat_map(|preset| &preset.credentials);
    let is_stored = |one: &PresetCredential| {
        let mut stored = resolved.stored.iter();
        stored.any(|stored| stored.binding.credential == one.name)
    };
    all.filter(move |one| !is_stored(one)).map(|one| {
        let origins: Vec<String> = one.origins.iter().map(ToString::to_string).collect();
        let to = match origins.as_slice() {
            [] => "its registry".to_owned(),
            origins => listed(origins),
        };
        format!(
            "{} to {to}, once `{}` is set",
            one.name,
            one.variables.join("` or `")
        )
    })
}

fn names(scopes: &[HostScope]) -> Vec<String> {
    let name = |scope: &HostScope| match scope {
        HostScope::Host(name) => name.clone(),
        HostScope::Domain(name) => format!("*.{name}"),
    };
    let names: BTreeSet<String> = scopes.iter().map(name).collect();
    names.into_iter().collect()
}

/// A text in few rows, so that none of them moves another out of sight.
fn bounded(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} … and more: see the text above", &text[..end]),
    }
}

/// Eight rows of a usual terminal.
const MOST_SHOWN: usize = 640;

fn listed(all: &[String]) -> String {
    match all {
        [] => "nothing".to_owned(),
        all => all.join(", "),
    }
}
