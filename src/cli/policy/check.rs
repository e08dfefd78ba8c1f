//! `gateway policy check`: checks that policies load, and reports what they may not intend.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::load::{load, problem_json, tell};
use crate::app::{Code, ConfigFile, Failure, Paint, Terminal, counted};
use crate::config::Config;
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
        let unreachable = config
            .as_ref()
            .map(|config| unreachable(config, &generation))
            .unwrap_or_default();
        report(terminal, &generation, &unreachable);
        Ok(Code::Ok)
    }
}

fn report(terminal: &Terminal, generation: &Generation, unreachable: &[String]) {
    if terminal.json() {
        let [lints, notes] = [generation.lints(), generation.notes()].map(|all| {
            let shown = all.iter();
            let shown =
                shown.map(|one| json!({ "policy": one.policy, "at": problem_json(&one.at) }));
            shown.collect::<Vec<_>>()
        });
        return terminal.document(&json!({
            "holds": true, "policies": generation.len(), "warnings": lints, "notes": notes,
            "unreachable": unreachable,
        }));
    }
    // Those of presets know their services.
    for note in generation
        .notes()
        .iter()
        .filter(|one| !one.policy.starts_with("mints/"))
    {
        tell(terminal, Paint::Bold, "note", &note.at);
    }
    for lint in generation.lints() {
        tell(terminal, Paint::Yellow, "warning", &lint.at);
    }
    for text in unreachable {
        let word = terminal.paint(Paint::Yellow, "warning");
        terminal.line(format!("{word}: {text}"));
    }
    let nothing = if generation.is_empty() {
        "; without a policy everything is denied"
    } else {
        ""
    };
    let warnings = generation.lints().len() + unreachable.len();
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
