//! What presets and the user's own variables add to a configuration: credentials, their places, and
//! hosts.

use std::collections::HashSet;
use std::sync::Arc;

use super::failure::Failure;
use super::screen::Screen;
use crate::config::{self, Allowed, Config};
use crate::credential;
use crate::credential::preset::{self, Preset, PresetCredential, UserConfig};
use crate::credential::{SecretRef, Stored};
use crate::message::{Host, HostPattern, Origin, OriginPattern, Place, RequestTarget, Scheme};
use crate::names::CredentialName;
use crate::origin::{OriginSettings, Origins};
use crate::session::{Binding, Foreign, Role, SigV4, Signer, Signing, SigningPart, When};

/// The credentials and hosts that a configuration means, presets and known variables included.
#[derive(Default)]
pub struct Expanded {
    /// The credentials, bound, with where they are kept.
    pub stored: Vec<Stored>,
    /// Hosts that may be asked without a credential.
    pub allowed: Vec<Allowed>,
    /// Pages that name further hosts.
    pages: Vec<(Origin, RequestTarget)>,
}

impl Expanded {
    /// Expands a configuration; with `known_variables`, also every variable of the environment that
    /// a preset knows.
    ///
    /// # Errors
    /// A [`Failure`] for the first preset or credential that does not fit.
    pub fn of(config: &Config, known_variables: bool) -> Result<Self, Failure> {
        let mut expanded = Self {
            allowed: config.allow.clone(),
            ..Self::default()
        };
        let mut bound: HashSet<CredentialName> = HashSet::new();
        for credential in &config.credentials {
            match &credential.signing {
                Some(signing) => expanded.stored.extend(bind_signing(credential, signing)?),
                None => expanded.stored.push(bind(credential)?),
            }
            bound.insert(credential.name.clone());
        }
        let mut presets: Vec<&Preset> = Vec::new();
        for name in &config.presets {
            presets.push(preset::named(name).ok_or_else(|| unknown(name))?);
        }
        if known_variables
            && let Some(aws) = config::Credential::aws()
            && let Some(signing) = &aws.signing
        {
            expanded.stored.extend(bind_signing(&aws, signing)?);
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
            expanded.add(preset, &mut bound)?;
        }
        Ok(expanded)
    }

    /// The variables of the workload that hold phantoms.
    #[must_use]
    pub fn variables(&self) -> Vec<&str> {
        let all = self
            .stored
            .iter()
            .flat_map(|stored| &stored.binding.variables);
        all.map(String::as_str).collect()
    }

    /// Asks the indexes of the presets from which hosts their packages are downloaded, and allows
    /// those, too: the index is trusted to say so, since it says what is installed. What cannot be
    /// asked adds nothing, and is told.
    pub async fn discover(&mut self, settings: OriginSettings, screen: &Screen) {
        if self.pages.is_empty() {
            return;
        }
        let origins = match Origins::new(Arc::new(settings)) {
            Ok(origins) => origins,
            Err(error) => return screen.note(format!("gateway: {error}")),
        };
        for (origin, target) in std::mem::take(&mut self.pages) {
            match origins.page(&origin, target).await {
                Ok(page) => self.allowed.extend(linked(&page)),
                Err(error) => screen.note(format!(
                    "gateway: {} was not asked for its download hosts ({error}); name them with --allow HOST",
                    origin.authority.host
                )),
            }
        }
    }

    fn add(&mut self, preset: &Preset, bound: &mut HashSet<CredentialName>) -> Result<(), Failure> {
        let mut hosts = preset.allow.clone();
        let mut registry = Vec::new();
        if let Some(kind) = preset.registry {
            let user = UserConfig::of_this_user().ok_or_else(|| {
                Failure::new(format!(
                    "preset `{}` needs your home directory",
                    preset.name
                ))
                .because("HOME is not set")
            })?;
            self.pages.extend(kind.pages(&user));
            registry = kind.origins(&user).map_err(|error| {
                Failure::new(format!("preset `{}` knows no host", preset.name))
                    .because(error.to_string())
                    .next("name its hosts: `--allow HOST`")
            })?;
            hosts.extend(registry.iter().cloned());
        }
        self.allowed.extend(hosts.iter().map(allowed));
        for credential in &preset.credentials {
            let Some(variable) = credential
                .variables
                .iter()
                .find(|variable| is_set(variable))
            else {
                continue;
            };
            if self
                .stored
                .iter()
                .any(|stored| stored.binding.variables.contains(variable))
                || !bound.insert(credential.name.clone())
            {
                continue;
            }
            if credential.origins.is_empty() && registry.is_empty() {
                continue;
            }
            let from = SecretRef::env(variable.as_str());
            let origins = if credential.origins.is_empty() {
                registry.clone()
            } else {
                Vec::new()
            };
            let mut binding = credential
                .bind(credential.name.clone(), origins)
                .map_err(|error| Failure::usage(error.to_string()))?;
            binding.variables.retain(|variable| is_set(variable));
            self.stored.push(Stored { binding, from });
        }
        Ok(())
    }
}

/// The hosts of the `https` links in a page, each once, the first few.
fn linked(page: &[u8]) -> Vec<Allowed> {
    let mut hosts: Vec<Host> = Vec::new();
    for at in memchr::memmem::find_iter(page, b"https://") {
        let rest = &page[at + b"https://".len()..];
        let end = rest
            .iter()
            .position(|byte| !(byte.is_ascii_alphanumeric() || b".-".contains(byte)));
        let Ok(host) = Host::parse(&rest[..end.unwrap_or(rest.len()).min(253)]) else {
            continue;
        };
        // Only a name with a dot, and no address: what may be dialled is judged again where it is
        // dialled.
        if host.ip().is_none()
            && host.as_str().contains('.')
            && !hosts.contains(&host)
            && hosts.len() < MOST_HOSTS
        {
            hosts.push(host);
        }
    }
    let port = Scheme::Https.default_port();
    hosts
        .into_iter()
        .map(|host| Allowed {
            host: HostPattern::Exact(host),
            port,
        })
        .collect()
}

/// Download hosts that one index may name.
const MOST_HOSTS: usize = 4;

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

/// A credential of the configuration, what it leaves out filled in by its preset.
fn bind(credential: &config::Credential) -> Result<Stored, Failure> {
    let refused = |why: String| {
        Failure::usage(format!("credential `{}` is refused", credential.name)).because(why)
    };
    let preset = match &credential.preset {
        None => None,
        Some(name) => Some(preset_credential(credential, name)?),
    };
    let mut origins = credential.origins.clone();
    if origins.is_empty() {
        origins = preset
            .map(|preset| preset.origins.clone())
            .unwrap_or_default();
    }
    let places = match preset {
        Some(preset) if credential.places.is_empty() => preset.places.clone(),
        _ => credential.places_or_common(),
    };
    let shape = credential
        .shape
        .as_deref()
        .map(crate::session::phantom::Shape::parse)
        .transpose();
    let binding = Binding {
        credential: credential.name.clone(),
        shape: shape.map_err(|error| refused(error.to_string()))?,
        origins,
        places,
        methods: credential.methods.clone(),
        paths: credential.path.iter().cloned().collect(),
        when: credential.when,
        foreign: credential.foreign,
        takes: match preset {
            Some(preset) if credential.takes.is_none() => preset.takes.clone(),
            _ => credential.takes.clone().unwrap_or_default(),
        },
        cookies: {
            let known = preset
                .map(|preset| preset.cookies.as_slice())
                .unwrap_or_default();
            known.iter().chain(&credential.cookies).cloned().collect()
        },
        batches: preset
            .map(|preset| preset.batches.clone())
            .unwrap_or_default(),
        basic_user: preset.and_then(|preset| preset.basic_user.clone()),
        variables: credential.env.clone(),
        role: Role::Place,
    };
    let from = credential.from.clone();
    Ok(Stored {
        binding,
        from: from.allowing_short(credential.allow_short),
    })
}

/// A signing credential: a binding for each part, the first of which is the one that is lent.
fn bind_signing(
    credential: &config::Credential,
    signing: &config::Signing,
) -> Result<Vec<Stored>, Failure> {
    let refused = |why: String| {
        Failure::usage(format!("credential `{}` is refused", credential.name)).because(why)
    };
    let name = |part: &str| {
        CredentialName::new(&format!("{}.{part}", credential.name))
            .map_err(|error| refused(error.to_string()))
    };
    let others = signing.parts.iter().skip(1);
    let parts = others.map(|part| {
        Ok(SigningPart {
            name: part.name.clone(),
            credential: name(&part.name)?,
            optional: part.optional,
        })
    });
    let signs = Arc::new(Signing {
        signer: match &signing.way {
            config::SigningWay::SigV4 => Signer::SigV4(Box::new(SigV4::new(
                signing.scope.clone(),
                signing.endpoints.clone(),
                signing.unsigned.clone(),
            ))),
            config::SigningWay::Recipe(recipe) => Signer::Recipe(recipe.clone()),
        },
        parts: parts.collect::<Result<_, Failure>>()?,
    });
    let origins = credential.own_origins();
    let mut stored = Vec::with_capacity(signing.parts.len());
    for (at, part) in signing.parts.iter().enumerate() {
        let kept = part.from.clone().allowing_short(credential.allow_short);
        let kept = match signing.way.private_key(&part.name) {
            Some(algorithm) => kept.to_private_key(algorithm),
            None => kept,
        };
        let binding = Binding {
            credential: match at {
                0 => credential.name.clone(),
                _ => name(&part.name)?,
            },
            shape: None,
            origins: origins.clone(),
            places: match at {
                0 => vec![Place::Signature(signing.way.name().to_owned())],
                _ => Vec::new(),
            },
            methods: credential.methods.clone(),
            paths: credential.path.iter().cloned().collect(),
            when: When::Phantom,
            foreign: Foreign::Refuse,
            takes: credential.takes.clone().unwrap_or_default(),
            cookies: credential.cookies.clone(),
            batches: Vec::new(),
            basic_user: None,
            variables: part.variable.iter().cloned().collect(),
            role: match at {
                0 => Role::Signs(signs.clone()),
                _ => Role::Part(signs.clone()),
            },
        };
        stored.push(Stored {
            binding,
            from: kept,
        });
    }
    Ok(stored)
}

/// Which buckets of S3 a credential reaches that names none; `None` where it names some, or does
/// not sign for AWS.
pub fn unnamed_buckets(stored: &Stored) -> Option<String> {
    let Signer::SigV4(signer) = &stored.binding.signing()?.signer else {
        return None;
    };
    if !signer.is_for_own_account() {
        return None;
    }
    Some(match credential::account_in_environment(&stored.from) {
        Some(Some(account)) => format!("buckets of S3 in account {account} alone"),
        Some(None) => String::from(
            "EVERY bucket of S3, also a stranger's, because its key does not tell its account: name buckets with `--bucket NAME` or \
             `buckets`",
        ),
        None => String::from(
            "buckets of S3 in its key's account alone, if the key tells it, else EVERY one: `--bucket NAME` or `buckets` names them",
        ),
    })
}

/// The preset's credential that this one is: by one of its variables, or the only one.
fn preset_credential(
    credential: &config::Credential,
    name: &str,
) -> Result<&'static PresetCredential, Failure> {
    let preset = preset::named(name).ok_or_else(|| unknown(name))?;
    let by_variable = preset.credentials.iter().find(|known| {
        credential
            .env
            .iter()
            .any(|variable| known.variables.contains(variable))
    });
    by_variable
        .or_else(|| preset.credentials.first())
        .ok_or_else(|| {
            Failure::usage(format!("preset `{name}` has no credential"))
                .because(format!("`{}` takes its places from it", credential.name))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_in_links_are_download_hosts_and_only_a_few() {
        let page = br#"<a href="https://files.example.test/a.whl">a</a> "url":"https://files.example.test/b" https://10.0.0.1/x
            https://localhost/ "https://Second.Example.test:8443/y" https://"#;
        let hosts: Vec<String> = linked(page)
            .iter()
            .map(|allowed| allowed.host.to_string())
            .collect();
        assert_eq!(hosts, ["files.example.test", "second.example.test"]);
        let many: String = (0..100)
            .map(|at| format!("https://h{at}.example.test/ "))
            .collect();
        assert_eq!(linked(many.as_bytes()).len(), MOST_HOSTS);
    }

    #[test]
    fn what_a_credential_takes_is_its_own_word_or_its_presets() {
        let name = CredentialName::new("GITLAB_TOKEN").unwrap();
        let preset = preset::named("gitlab").unwrap();
        let mut credential = config::Credential::named(name, SecretRef::env("GITLAB_TOKEN"));
        credential.preset = Some("gitlab".to_owned());
        assert_eq!(
            bind(&credential).unwrap().binding.takes,
            preset.credentials[0].takes
        );
        credential.takes = Some(vec!["query:ticket".parse().unwrap()]);
        credential.cookies = vec!["lang".to_owned()];
        let bound = bind(&credential).unwrap().binding;
        assert_eq!(Some(bound.takes), credential.takes);
        assert_eq!(bound.cookies, ["lang"]);
        credential.takes = Some(Vec::new());
        assert!(bind(&credential).unwrap().binding.takes.is_empty());
    }
}
