//! The access and the credentials of a run, as its policies decide them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::app::project::project;
use crate::app::reload::generation;
use crate::app::reload::generation::EXEC;
use crate::app::settings::resolve::{ResolvedConfig, is_lent};
use crate::app::settings::shell_secrets::{SecretAnswers, ShellLoans};
use crate::app::terminal::rows_of_peer;
use crate::app::{Failure, Paint, Terminal, safe};
use crate::config::{Config, Credential, state};
use crate::credential::ConfiguredCredential;
use crate::credential::preset::{self, PresetCredential};
use crate::message::OriginPattern;
use crate::names::{CredentialName, SessionId};
use crate::policy::{Generation, HostScope, Requester};
use crate::session::{Binding, Role};

/// The access and the credentials of a run.
pub(super) struct ConfigSummary {
    /// The hosts; `None` if they are not known beforehand.
    pub reaches: Option<BTreeSet<HostScope>>,
    /// Each credential that is lent, with the origins that it is lent to.
    pub lends: Vec<(ConfiguredCredential, Vec<OriginPattern>)>,
    /// The credentials that no rule lends.
    pub unlent: Vec<ConfiguredCredential>,
}

/// The policies of a run, and its principals: the session in its groups, and with every user and
/// group that rules name.
struct RunPolicies {
    policies: Arc<Generation>,
    askers: Vec<Requester>,
}

impl RunPolicies {
    fn of(config: &Config, resolved: &ResolvedConfig, in_any: bool) -> Result<Self, Failure> {
        let policies = generation::of_exec(config, resolved)?;
        let session = SessionId::new(EXEC).map_err(|error| Failure::new(error.to_string()))?;
        let own = config.groups.iter().map(|group| group.as_str().into());
        let mut askers = vec![Requester {
            session: session.clone(),
            user: None,
            groups: own.collect(),
        }];
        if in_any {
            askers.extend(policies.askers(&session));
        }
        Ok(Self { policies, askers })
    }

    fn summary(&self, resolved: &ResolvedConfig) -> ConfigSummary {
        let reaches = self.askers.iter().map(|asker| self.policies.reaches(asker));
        let reaches: Option<Vec<_>> = reaches.collect();
        let whole =
            |one: &&ConfiguredCredential| !matches!(one.binding.role, Role::Part(_) | Role::Kept);
        let all = resolved.stored.iter().filter(whole);
        let all = all.map(|one| (one.clone(), self.lends(&one.binding)));
        let (unlent, lends): (Vec<_>, Vec<_>) = all.partition(|(_, to)| to.is_empty());
        ConfigSummary {
            reaches: reaches.map(|each| each.concat().into_iter().collect()),
            lends,
            unlent: unlent.into_iter().map(|(one, _)| one).collect(),
        }
    }

    fn lends(&self, binding: &Binding) -> Vec<OriginPattern> {
        let lends = |to: &&OriginPattern| {
            let mut askers = self.askers.iter();
            askers.any(|asker| self.policies.may_lend(asker, binding, to))
        };
        binding.origins.iter().filter(lends).cloned().collect()
    }
}

impl ConfigSummary {
    /// Evaluates the policies of a run of `exec`.
    ///
    /// # Errors
    /// Returns a [`Failure`] if its policies or credentials are refused.
    pub(super) fn of(config: &Config, resolved: &ResolvedConfig) -> Result<Self, Failure> {
        Ok(RunPolicies::of(config, resolved, false)?.summary(resolved))
    }

    /// Returns the hosts by name.
    pub(super) fn hosts(&self) -> Option<Vec<String>> {
        let name = |scope: &HostScope| match scope {
            HostScope::Host(name) => name.clone(),
            HostScope::Domain(name) => format!("*.{name}"),
        };
        Some(self.reaches.as_ref()?.iter().map(name).collect())
    }
}

/// The next run with a file, without flags and without an agent.
struct NextRun {
    config: Config,
    /// The known secrets that it may lend.
    names: BTreeSet<CredentialName>,
    judge: RunPolicies,
    summary: ConfigSummary,
}

impl NextRun {
    fn of(config: &Config) -> Result<Self, Failure> {
        let project = project()?;
        let mut config = config.clone();
        config.granted = state::granted_for(&project, config.file.as_deref());
        let shell = ShellLoans::of(None, &SecretAnswers::of(&project)?);
        let resolved = ResolvedConfig::of(&config, &shell)?;
        // A flag may put a run into any group.
        let judge = RunPolicies::of(&config, &resolved, true)?;
        Ok(Self {
            summary: judge.summary(&resolved),
            names: shell.names(&config)?.unwrap_or_default(),
            config,
            judge,
        })
    }
}

/// The effects that a person consents to: those of the next run with a file, by named lines.
pub(super) struct ConsentEffects(Vec<(&'static str, String)>);

impl ConsentEffects {
    /// Determines the effects of the next run with this configuration, without those of flags and
    /// of an agent's profile.
    ///
    /// # Errors
    /// Returns a [`Failure`] if its policies or credentials are refused.
    pub(super) fn of(config: &Config) -> Result<Self, Failure> {
        let run = NextRun::of(config)?;
        let (config, summary) = (&run.config, &run.summary);
        let mut told = Vec::new();
        let hidden = config.sandbox.hide.iter();
        let hidden: Vec<_> = hidden.map(|path| path.display()).collect();
        if !hidden.is_empty() {
            told.push(("hides", listed(&hidden)));
        }
        // The access it gives comes last, where it is in sight at the question.
        let hosts = summary.hosts();
        told.push((
            "reaches",
            hosts.map_or("any host".to_owned(), |all| listed(&all)),
        ));
        let lends = summary.lends.iter().map(|(stored, to)| {
            let (name, from) = (&stored.binding.credential, &stored.from);
            format!("{name} ({from}) to {}", listed(to))
        });
        let lends: Vec<String> = lends.chain(waiting(&run)).collect();
        told.push(("lends", listed(&lends)));
        if config.policy.decide() && !summary.unlent.is_empty() {
            let names = summary.unlent.iter().map(|one| &one.binding.credential);
            let names = listed(&names.collect::<Vec<_>>());
            told.push(("stops", format!("{names}: no rule lends it any more")));
        }
        let text =
            "an agent that is known by its name, and flags, get their own hosts and keys, too";
        told.push(("agents", text.to_owned()));
        Ok(Self(told))
    }

    /// Prints it to standard error, apart from a command's output.
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

/// Returns the credentials that will be lent once their variables are set.
fn waiting(run: &NextRun) -> Vec<String> {
    let NextRun {
        config,
        names,
        judge,
        ..
    } = run;
    let all = preset::all().flat_map(|preset| {
        let is_asked_for = config.presets.contains(&preset.name);
        let all = preset.credentials.iter();
        all.filter(move |one| is_asked_for || names.contains(&one.name))
    });
    let once = |one: &PresetCredential| {
        let to = match one.bind(one.name.clone(), Vec::new()) {
            Err(_) => "its registry".to_owned(),
            Ok(binding) if !config.policy.decide() => listed(&binding.origins),
            Ok(binding) => match judge.lends(&binding) {
                none if none.is_empty() => return None,
                to => listed(&to),
            },
        };
        let variables = one.variables.join("` or `");
        Some(format!("{} to {to}, once `{variables}` is set", one.name))
    };
    let mut told: Vec<String> = all.filter(|one| !is_lent(one)).filter_map(once).collect();
    // A rule may name a login, which an agent or the flag brings.
    let logins = preset::logins().filter(|login| names.contains(&login.name));
    let is_bound = |name: &CredentialName| {
        let mut lent = run.summary.lends.iter();
        lent.any(|(stored, _)| stored.binding.credential == *name)
    };
    told.extend(logins.filter_map(|login| {
        let stored = login
            .begun()
            .filter(|login| !is_bound(&login.name))?
            .stored();
        let to = stored.iter().flat_map(|one| judge.lends(&one.binding));
        let (to, name) = (to.collect::<Vec<_>>(), &login.name);
        (!to.is_empty()).then(|| format!("login {name} to {}, by `--login {name}`", listed(&to)))
    }));
    if names.iter().any(|name| name.as_str() == "aws") && Credential::aws().is_none() {
        told.push("aws to AWS, once its variables are set".to_owned());
    }
    told
}

/// Limits a text to few rows, so that it moves no other text out of sight.
fn bounded(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} … and more: see the text above", &text[..end]),
    }
}

/// Eight rows of a usual terminal.
const MOST_SHOWN: usize = 640;

fn listed(all: &[impl ToString]) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    if all.is_empty() {
        "nothing".to_owned()
    } else {
        all.join(", ")
    }
}

#[cfg(test)]
#[path = "config_summary_tests.rs"]
mod tests;
