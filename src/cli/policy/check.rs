//! `gateway policy check`: checks that policies load, and reports likely mistakes.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::load::{load, problem_json, tell};
use crate::app::{Code, ConfigFile, Failure, Paint, Terminal, counted};
use crate::config::Config;
use crate::credential::preset::{self, Preset};
use crate::intercept::Evidence;
use crate::message::HostPattern;
use crate::policy::{Generation, HostScope};

/// Checks policies.
#[derive(Args)]
pub(in crate::cli) struct PolicyCheck {
    /// Policy files, or folders of them [default: those of the configuration]
    files: Vec<PathBuf>,
    #[command(flatten)]
    config: ConfigFile,
}

impl PolicyCheck {
    pub(in crate::cli) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let config = self.config.find()?;
        terminal.warn(
            config
                .as_ref()
                .map(|config| config.warnings.as_slice())
                .unwrap_or_default(),
        );
        if self.files.is_empty() && config.is_none() {
            return Err(Failure::usage("there is no policy to check")
                .because("no file is named, and no configuration")
                .next("name the files: `gateway policy check policies/*.cedar`, or the configuration: `--config FILE`"));
        }
        let Some(policies) = load(terminal, &self.files, config.as_ref())? else {
            return Ok(Code::Failed);
        };
        let generation = policies.current();
        let about = |told: fn(&Config, &Generation) -> Vec<String>| {
            let config = config.as_ref();
            config
                .map(|config| told(config, &generation))
                .unwrap_or_default()
        };
        report(
            terminal,
            &generation,
            (&about(unreachable), &about(unknown)),
        );
        Ok(Code::Ok)
    }
}

fn report(
    terminal: &Terminal,
    generation: &Generation,
    (unreachable, unknown): (&[String], &[String]),
) {
    if terminal.json() {
        let [lints, notes] = [generation.lints(), generation.notes()].map(|all| {
            let shown = all.iter();
            let shown =
                shown.map(|one| json!({ "policy": one.policy, "at": problem_json(&one.at) }));
            shown.collect::<Vec<_>>()
        });
        return terminal.document(&json!({
            "holds": true, "policies": generation.len(), "warnings": lints, "notes": notes,
            "unreachable": unreachable, "unknown": unknown,
        }));
    }
    // Those of presets know their services.
    for note in generation.notes().iter().filter(|one| {
        !["mints/", "permissions/"]
            .iter()
            .any(|own| one.policy.starts_with(own))
    }) {
        tell(terminal, Paint::Bold, "note", &note.at);
    }
    for lint in generation.lints() {
        tell(terminal, Paint::Yellow, "warning", &lint.at);
    }
    for text in unreachable.iter().chain(unknown) {
        let word = terminal.paint(Paint::Yellow, "warning");
        terminal.line(format!("{word}: {text}"));
    }
    let nothing = if generation.is_empty() {
        "; without a policy everything is denied"
    } else {
        ""
    };
    let warnings = generation.lints().len() + unreachable.len() + unknown.len();
    let policies = counted(generation.len() as u64, "policy loads", "policies load");
    let warnings = counted(warnings as u64, "warning", "warnings");
    terminal.line(format!("{policies}, {warnings}{nothing}"));
}

/// Returns the credentials' origins that no permit reaches. The credential could never go there.
fn unreachable(config: &Config, generation: &Generation) -> Vec<String> {
    let Some(scopes) = generation.hosts() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for credential in &config.credentials {
        for origin in &credential.origins {
            if !scopes.iter().any(|scope| reaches(scope, &origin.hosts)) {
                found.push(format!(
                    "no policy permits anything on {origin}, where `{}` is bound to",
                    credential.name
                ));
            }
        }
    }
    found
}

/// Returns what policies name and nothing of the configuration is. A rule of it never applies.
fn unknown(config: &Config, generation: &Generation) -> Vec<String> {
    let found = generation.entities().filter(|(_, kind, name)| match *kind {
        "credential" => !has_credential(config, name),
        _ => !has_caller(config, kind, name),
    });
    let told = found.map(|(policy, kind, name)| {
        format!(
            "policy `{policy}` names the {kind} `{name}`, which the configuration does not have"
        )
    });
    told.collect()
}

fn has_credential(config: &Config, name: &str) -> bool {
    let own = config.credentials.iter().map(|one| one.name.as_str());
    let logins = config.logins.iter().map(|one| one.login.name.as_str());
    let mut own = own
        .chain(logins)
        .chain(config.named_logins.iter().map(String::as_str));
    // A command may be lent whatever flags name.
    let is_any = config.listeners.is_empty();
    let requested = config.own_presets.iter().map(|(_, preset)| *preset);
    let mut presets = preset::all().chain(requested);
    let of_preset = |one: &Preset| {
        let mut credentials = one.credentials.iter();
        (is_any || config.presets.contains(&one.name))
            && credentials.any(|one| {
                one.name.as_str() == name || one.variables.iter().any(|variable| variable == name)
            })
    };
    // What a session logs in to has the name of its server.
    name.contains('.')
        || own.any(|known| known == name)
        || is_any && preset::login_named(name).is_some()
        || presets.any(of_preset)
}

/// Whether a session or a group is one of a listener. Evidence, and an operator with a listener for
/// tokens, make any: names that evidence gives have a colon.
fn has_caller(config: &Config, kind: &str, name: &str) -> bool {
    let mut listeners = config.listeners.iter();
    name.contains(':')
        || config.listeners.is_empty()
        || listeners.any(|one| {
            let is_its = match kind {
                "session" => one.session.as_str() == name,
                _ => one.groups.iter().any(|group| group == name),
            };
            is_its || one.who.contains(&Evidence::Token)
        })
}

fn reaches(scope: &HostScope, pattern: &HostPattern) -> bool {
    let below = |name: &str, domain: &str| {
        name == domain
            || name
                .strip_suffix(domain)
                .is_some_and(|rest| rest.ends_with('.'))
    };
    match (scope, pattern) {
        (HostScope::Host(host), HostPattern::Exact(exact)) => exact.as_str() == host,
        (HostScope::Host(host), HostPattern::Below(domain)) => {
            below(host, domain.as_str()) && host != domain.as_str()
        }
        (HostScope::Domain(scope), HostPattern::Exact(exact)) => below(exact.as_str(), scope),
        (HostScope::Domain(scope), HostPattern::Below(domain)) => {
            below(domain.as_str(), scope) || below(scope, domain.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::OriginPattern;

    #[test]
    fn a_scope_reaches_what_its_labels_say() {
        let pattern = |text: &str| {
            format!("https://{text}")
                .parse::<OriginPattern>()
                .unwrap()
                .hosts
        };
        let host = |text: &str| HostScope::Host(text.into());
        let domain = |text: &str| HostScope::Domain(text.into());
        for (scope, text, expected) in [
            (host("a.test.x"), "a.test.x", true),
            (host("a.test.x"), "*.test.x", true),
            (host("test.x"), "*.test.x", false),
            (domain("test.x"), "a.test.x", true),
            (domain("test.x"), "test.x", true),
            (domain("test.x"), "atest.x", false),
            (domain("b.test.x"), "*.test.x", true),
            (domain("test.x"), "*.b.test.x", true),
            (domain("c.x"), "*.b.test.x", false),
        ] {
            assert_eq!(
                reaches(&scope, &pattern(text)),
                expected,
                "{scope:?} {text}"
            );
        }
    }
}
