//! What a configuration would do, in the words of the summary of `exec`.

use std::collections::BTreeSet;

use super::failure::Failure;
use super::generation;
use super::lending;
use super::resolve::ResolvedConfig;
use super::terminal::{Paint, Terminal, safe};
use crate::config::Config;
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
        let hosts = generation::hosts(config, &resolved)?;
        let hosts = hosts.map_or_else(|| vec!["any host".to_owned()], |scopes| names(&scopes));
        let mut told = vec![("reaches", listed(&hosts))];
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
        told.push(("lends", listed(&lends)));
        let hidden = config.sandbox.hide.iter();
        let hidden: Vec<String> = hidden.map(|path| path.display().to_string()).collect();
        if !hidden.is_empty() {
            told.push(("hides", listed(&hidden)));
        }
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
            let name = terminal.paint(Paint::Bold, &format!("{name:<8}"));
            terminal.line(format!("{name} {}", safe(text)));
        }
    }
}

fn names(scopes: &[HostScope]) -> Vec<String> {
    let name = |scope: &HostScope| match scope {
        HostScope::Host(name) => name.clone(),
        HostScope::Domain(name) => format!("*.{name}"),
    };
    let names: BTreeSet<String> = scopes.iter().map(name).collect();
    names.into_iter().collect()
}

fn listed(all: &[String]) -> String {
    match all {
        [] => "nothing".to_owned(),
        all => all.join(", "),
    }
}
