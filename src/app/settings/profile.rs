//! Profiles of agents: the needs of a known program to start, to work and to log in. The data is in
//! `policies/agents`, and tests check it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::project::project;
use crate::settings::seeds::Seed;
use crate::{Failure, safe};
use gateway_config::{Config, HostPort, keys};
use gateway_credential::preset::{self, Preset};

/// The needs of an agent. It holds no secret, and lends none by itself.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The command's name.
    pub name: String,
    /// The agent's usual name.
    pub title: String,
    /// The presets of the services that it works with.
    #[serde(default)]
    pub presets: Vec<String>,
    /// The presets of services that it works with where the shell has their keys.
    #[serde(default)]
    keys: Vec<String>,
    /// Further hosts that it needs, each at port 443.
    #[serde(default)]
    allow: Vec<String>,
    /// The folders of the home that outlive the sandbox, relative to it.
    #[serde(default)]
    pub keep: Vec<PathBuf>,
    /// Its logins, by name.
    #[serde(default)]
    logins: Vec<String>,
    /// The variables that it gets unless they are set; `~/` stands for its home, and `$NAME` for
    /// another variable, with its phantom.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// The settings that its ready screen needs, in addition to its tokens.
    #[serde(default, rename = "seed")]
    pub seeds: Vec<Seed>,
}

impl Profile {
    /// Returns the profile that a flag names, else the one of the command's name. `none` is no
    /// profile. A program in the project, or named by a path, gets a profile by the flag alone: a
    /// project does not choose its own rights.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the flag names no known profile.
    pub fn of(flag: Option<&str>, command: &OsStr) -> Result<Option<Self>, Failure> {
        match flag {
            Some("none") => Ok(None),
            Some(name) => named(name).map(Some).ok_or_else(|| unknown(name)),
            None => Ok(command
                .to_str()
                .and_then(named)
                .filter(|_| !is_in_project(command))),
        }
    }

    /// Adds its hosts and presets to a configuration.
    pub fn add_to(&self, config: &mut Config) {
        config.offered_presets.extend(self.presets.iter().cloned());
        let keyed = self.keyed().map(|preset| preset.name.clone());
        config.keyed_presets.extend(keyed);
        config.offered.extend(self.hosts());
        config.offered_logins.extend(self.logins.iter().cloned());
    }

    /// The services that it works with: its own, and those whose keys the shell has.
    pub fn services(&self) -> impl Iterator<Item = &'static Preset> {
        self.presets
            .iter()
            .map(|name| known(name))
            .chain(self.keyed())
    }

    /// The services whose keys the shell has. Only a key that is lent opens its hosts.
    fn keyed(&self) -> impl Iterator<Item = &'static Preset> {
        let is_set = |one: &String| std::env::var_os(one).is_some_and(|value| !value.is_empty());
        let has_key = move |preset: &&Preset| {
            let mut variables = preset.credentials.iter().flat_map(|one| &one.variables);
            variables.any(is_set)
        };
        self.keys.iter().map(|name| known(name)).filter(has_key)
    }

    fn hosts(&self) -> impl Iterator<Item = HostPort> {
        let read = |host| HostPort::parse(host).expect("a test reads every profile's hosts");
        self.allow.iter().map(move |host| read(host))
    }
}

fn known(preset: &str) -> &'static Preset {
    preset::named(preset).expect("a test reads each profile's presets")
}

/// Whether the program of this name is a file of the project.
fn is_in_project(command: &OsStr) -> bool {
    let Ok(project) = project() else {
        return true;
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join(command));
    let found = programs.find(|program| program.is_file());
    found.is_some_and(|found| {
        let real = std::fs::canonicalize(&found);
        found.starts_with(&project) || real.is_ok_and(|real| real.starts_with(&project))
    })
}

/// Returns the agent that a command starts through another program: `npx @openai/codex`.
pub fn wrapped(command: &[OsString]) -> Option<&'static str> {
    let (program, rest) = command.split_first()?;
    let program = Path::new(program).file_name()?.to_str()?;
    let texts = rest.iter().filter_map(|one| one.to_str());
    let mut words = texts.flat_map(|text| text.split([' ', '/', ';', '&', '|']));
    let name_of = |word: &str| {
        let is_its = |name: &str| {
            let rest = word.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || matches!(rest, "-code" | "-cli" | "-ai"))
        };
        AGENTS
            .iter()
            .map(|(name, _)| *name)
            .find(|name| is_its(name))
    };
    let found = words.find_map(name_of);
    found.filter(|_| RUN_OTHERS.contains(&program))
}

/// Programs that run another one, which their arguments name.
const RUN_OTHERS: [&str; 14] = [
    "bash", "bunx", "dash", "env", "nice", "node", "npx", "pnpm", "sh", "time", "timeout", "uvx",
    "yarn", "zsh",
];

fn named(name: &str) -> Option<Profile> {
    let (_, text) = AGENTS.iter().find(|(known, _)| *known == name)?;
    Some(toml::from_str(text).expect("the profiles are part of the program and each is tested"))
}

fn unknown(name: &str) -> Failure {
    let names = || AGENTS.iter().map(|(name, _)| *name);
    let known = format!(
        "there are {}, and `none`",
        gateway_names::join(names(), ", ")
    );
    let failure = Failure::usage(format!("there is no profile `{}`", safe(name)));
    match keys::nearest(name, names()) {
        Some(near) => failure
            .because(known)
            .next(format!("did you mean `{near}`?")),
        None => failure.next(known),
    }
}

macro_rules! agents {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../policies/agents/", $name, ".toml")))),*]
    };
}

/// Each profile's name and text.
const AGENTS: &[(&str, &str)] = agents! {
    "aider" "claude" "codex" "copilot" "cursor-agent" "gemini" "gh" "goose" "opencode"
};

#[cfg(test)]
mod tests {
    use std::path::Component;

    use super::*;
    use gateway_config::sandbox_variable;

    #[test]
    fn every_profile_reads_and_names_presets_that_there_are() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/agents");
        let files = std::fs::read_dir(folder).unwrap();
        let names = files.map(|file| file.unwrap().path());
        let mut names: Vec<_> = names
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        assert!(names.iter().eq(AGENTS.iter().map(|(name, _)| name)));
        for name in &names {
            let profile = named(name).unwrap();
            assert_eq!(profile.name, *name);
            let mut presets = profile.presets.iter().chain(&profile.keys);
            assert!(presets.all(|name| preset::named(name).is_some()), "{name}");
            let is_known = |name: &String| preset::login_named(name).is_some();
            assert!(profile.logins.iter().all(is_known), "{name}");
            assert_eq!(profile.hosts().count(), profile.allow.len());
            for variable in profile.variables.keys() {
                assert!(sandbox_variable(variable).is_ok(), "{variable}");
                let is_phantom = profile.variables[variable].starts_with('$');
                assert!(
                    is_phantom || preset::of_variable(variable).is_none(),
                    "{variable}"
                );
            }
        }
    }

    #[test]
    fn a_profile_keeps_folders_below_the_home_and_none_in_another() {
        for profile in AGENTS.iter().map(|(name, _)| named(name).unwrap()) {
            for keep in &profile.keep {
                let mut parts = keep.components();
                assert!(parts.all(|part| matches!(part, Component::Normal(_))));
                let others = profile.keep.iter().filter(|other| *other != keep);
                assert!(others.clone().all(|other| !keep.starts_with(other)));
            }
            for seed in &profile.seeds {
                let folder = seed.file.parent().unwrap();
                assert!(profile.keep.iter().any(|keep| keep == folder), "{seed:?}");
            }
        }
    }

    #[test]
    fn a_command_has_the_profile_of_its_name_unless_a_flag_says_another() {
        let of = |flag, command: &str| Profile::of(flag, OsStr::new(command)).unwrap();
        assert_eq!(of(None, "claude").unwrap().name, "claude");
        assert!(of(None, "./claude").is_none() && of(None, "/usr/bin/claude").is_none());
        assert_eq!(of(Some("codex"), "node").unwrap().name, "codex");
        assert!(of(Some("none"), "claude").is_none() && of(None, "bash").is_none());
        for (command, name) in [
            ("env X=1 claude -p", Some("claude")),
            ("npx @anthropic-ai/claude-code", Some("claude")),
            ("npx -y opencode-ai", Some("opencode")),
            ("cat claude", None),
            ("npx claudette", None),
        ] {
            let command: Vec<OsString> = command.split(' ').map(Into::into).collect();
            assert_eq!(wrapped(&command), name, "{command:?}");
        }
        let script = ["sh", "-c", "cd x && codex exec"].map(OsString::from);
        assert_eq!(wrapped(&script), Some("codex"));
        let refused = Profile::of(Some("claud"), OsStr::new("x")).unwrap_err();
        assert_eq!(refused.next.as_deref(), Some("did you mean `claude`?"));
    }
}
