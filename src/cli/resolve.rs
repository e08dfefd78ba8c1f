//! Adds what presets and the user's own variables contribute to a configuration: credentials, their
//! places, and hosts.

use std::collections::HashSet;

use super::failure::Failure;
use crate::config::{self, Allowed, Config};
use crate::credential::preset::{self, Preset, UserConfig};
use crate::credential::{SecretRef, Stored};
use crate::message::OriginPattern;
use crate::names::CredentialName;

/// The credentials and hosts of a configuration, including presets and known variables.
#[derive(Default)]
pub struct ResolvedConfig {
    /// The bound credentials, and where each is kept.
    pub stored: Vec<Stored>,
    /// Hosts that may be reached without a credential.
    pub allowed: Vec<Allowed>,
}

impl ResolvedConfig {
    /// Expands a configuration. With `known_variables`, adds every environment variable that a
    /// preset knows.
    ///
    /// # Errors
    /// Returns a [`Failure`] for the first preset or credential that is invalid.
    pub fn of(config: &Config, known_variables: bool) -> Result<Self, Failure> {
        let mut resolved = Self {
            allowed: config.allow.clone(),
            ..Self::default()
        };
        let mut bound: HashSet<CredentialName> = HashSet::new();
        for credential in &config.credentials {
            resolved.stored.extend(bind(credential)?);
            bound.insert(credential.name.clone());
        }
        let mut presets: Vec<&Preset> = Vec::new();
        for name in &config.presets {
            presets.push(preset::named(name).ok_or_else(|| unknown(name))?);
        }
        if known_variables && let Some(aws) = config::Credential::aws() {
            resolved.stored.extend(bind(&aws)?);
        }
        if known_variables {
            for (_, preset, credential) in preset::known_variables(is_set) {
                if !credential.origins.is_empty()
                    && !presets.iter().any(|known| known.name == preset.name)
                {
                    presets.push(preset);
                }
            }
        }
        for preset in presets {
            resolved.add(preset, &mut bound)?;
        }
        Ok(resolved)
    }

    /// Returns the variables of the workload that hold phantoms.
    #[must_use]
    pub fn variables(&self) -> Vec<&str> {
        let all = self
            .stored
            .iter()
            .flat_map(|stored| &stored.binding.variables);
        all.map(String::as_str).collect()
    }

    fn add(&mut self, preset: &Preset, bound: &mut HashSet<CredentialName>) -> Result<(), Failure> {
        let registry = registry(preset)?;
        let hosts = preset.allow.iter().chain(&registry);
        self.allowed.extend(hosts.map(allowed));
        for credential in &preset.credentials {
            let mut variables = credential.variables.iter();
            let Some(variable) = variables.find(|variable| is_set(variable)) else {
                continue;
            };
            let mut stored = self.stored.iter();
            let is_stored = stored.any(|stored| stored.binding.variables.contains(variable));
            if is_stored || !bound.insert(credential.name.clone()) {
                continue;
            }
            if credential.origins.is_empty() && registry.is_empty() {
                continue;
            }
            let origins = if credential.origins.is_empty() {
                registry.clone()
            } else {
                Vec::new()
            };
            let mut binding = credential
                .bind(credential.name.clone(), origins)
                .map_err(|error| Failure::usage(error.to_string()))?;
            binding.variables.retain(|variable| is_set(variable));
            let from = SecretRef::env(variable.as_str());
            self.stored.push(Stored { binding, from });
        }
        Ok(())
    }
}

/// Returns the hosts that the user's own package manager configuration names for this preset.
fn registry(preset: &Preset) -> Result<Vec<OriginPattern>, Failure> {
    let Some(kind) = preset.registry else {
        return Ok(Vec::new());
    };
    let name = &preset.name;
    let user = UserConfig::of_this_user().ok_or_else(|| {
        Failure::new(format!("preset `{name}` needs your home directory"))
            .because("HOME is not set")
    })?;
    kind.origins(&user).map_err(|error| {
        Failure::new(format!("preset `{name}` knows no host"))
            .because(error.to_string())
            .next("name its hosts: `--allow HOST`")
    })
}

fn bind(credential: &config::Credential) -> Result<Vec<Stored>, Failure> {
    credential.stored().map_err(|doubt| {
        Failure::usage(format!("credential `{}` is refused", credential.name))
            .because(doubt.why)
            .next(doubt.remedy)
    })
}

fn unknown(name: &str) -> Failure {
    Failure::usage(format!("there is no preset `{name}`")).next("`gateway presets` lists them")
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

fn allowed(origin: &OriginPattern) -> Allowed {
    Allowed {
        host: origin.hosts.clone(),
        port: origin.port,
    }
}
