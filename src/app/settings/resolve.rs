//! Adds the contributions of presets and the user's own variables to a configuration: credentials,
//! their places, and hosts.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use crate::Failure;
use crate::login::run_logins;
use crate::login::run_logins::UnusedLogin;
use crate::settings::shell_secrets::{ShellLoans, Withheld};
use gateway_config::{self as config, Config, HostPort};
use gateway_credential::login::Login;
use gateway_credential::preset::{
    self, PackageRegistry, Preset, PresetBlock, PresetCredential, PresetPermission,
    RegistryMapping, UserConfig,
};
use gateway_credential::signing::sigv4;
use gateway_credential::{ConfiguredCredential, SecretRef, SecretUnsafe, unexpected_reach, unfit};
use gateway_message::{HostPattern, OriginPattern};
use gateway_names::CredentialName;
use gateway_session::Binding;

/// The credentials and hosts of a configuration, including presets and known variables.
#[derive(Default)]
pub struct ResolvedConfig {
    /// The bound credentials, each with the reference of its secret.
    pub stored: Vec<ConfiguredCredential>,
    /// The logins that some of them are tokens of.
    pub logins: Vec<Login>,
    /// Logins of the agent that are not used, since another credential is bound to their hosts.
    pub unused: Vec<UnusedLogin>,
    /// Hosts that may be reached without a credential.
    pub allowed: Vec<HostPort>,
    /// Hosts of presets. They may be reached unless policy files decide.
    pub offered: Vec<HostPort>,
    /// The credentials that flags and the agent's profile name. They are lent whatever policy files
    /// permit; what these forbid stays forbidden.
    pub named: HashSet<CredentialName>,
    /// Origins whose clients send `%2F` inside a path segment.
    pub encoded_slash: Vec<OriginPattern>,
    /// The credentials of requested presets that would be lent if one of their variables were set.
    pub unset: Vec<&'static PresetCredential>,
    /// Variables that presets know and that were not requested, and why they are not lent.
    pub unfit: Vec<(String, SecretUnsafe)>,
    /// Known secrets of the shell that could be lent, and that were not named.
    pub withheld: Vec<Withheld>,
    /// The services of presets at further origins than those that the presets name.
    pub own_origins: Vec<(&'static Preset, Vec<OriginPattern>)>,
    /// What requested presets forbid.
    pub blocks: Vec<&'static PresetBlock>,
    /// The named permissions of requested presets: nothing beyond them is permitted.
    pub permissions: Vec<(&'static Preset, &'static PresetPermission)>,
    /// The mappings of requested presets' registries in the user's own files.
    pub registries: Vec<(&'static Preset, RegistryMapping)>,
}

impl ResolvedConfig {
    /// Expands a configuration, and adds the known secrets of the shell that may be lent.
    ///
    /// # Errors
    /// Returns a [`Failure`] for the first preset or credential that is invalid.
    pub fn of(config: &Config, shell: &ShellLoans) -> Result<Self, Failure> {
        let mut resolved = Self {
            allowed: [&config.allow[..], &config.offered].concat(),
            ..Self::default()
        };
        let mut bound: HashSet<CredentialName> = HashSet::new();
        for credential in &config.credentials {
            let stored = bind(credential)?;
            resolved.add(stored, credential.by_flag);
            let preset = credential.preset.as_deref().and_then(preset::named);
            let own = preset.map(|preset| (preset, credential.origins.clone()));
            resolved.own_origins.extend(own);
            bound.insert(credential.name.clone());
        }
        for own in &config.logins {
            resolved.stored.extend(own.stored());
            resolved.logins.push(own.login.clone());
            bound.insert(own.login.name.clone());
        }
        for login in run_logins::named(config, &resolved.stored)? {
            let mut named = config.flag_logins.iter();
            let is_named = named.any(|name| preset::is_login_of(&login.name, name));
            resolved.log_in(login, is_named);
        }
        let referred = run_logins::referred(config, &resolved.logins)?;
        resolved.logins.extend(referred);
        let mut presets: Vec<&'static Preset> = Vec::new();
        for name in &config.presets {
            presets.push(config.preset(name).ok_or_else(|| unknown(name))?);
        }
        no_two(&config.own_presets)?;
        resolved.permissions.clone_from(&config.permissions);
        for preset in &presets {
            resolved.blocks.extend(&preset.blocks);
            let (hosts, registry) = resolved.hosts_of(preset)?;
            let is_named = config.flag_presets.contains(&preset.name);
            resolved.reached(is_named).extend(hosts);
            resolved.lend(preset, &registry, &mut bound, (None, is_named))?;
        }
        for credential in &config.credentials {
            resolved.slashes_of(credential);
        }
        if config.policy.files.is_empty() {
            resolved.slashes_of_known();
        }
        if let Some(names) = shell.names(config)? {
            resolved.add_known(config, &names, &mut bound)?;
            let (logins, unused) = run_logins::offered(config, &resolved.stored)?;
            let logins = logins.into_iter();
            logins.for_each(|login| resolved.log_in(login, true));
            resolved.unused = unused;
        }
        for preset in presets {
            resolved.offer(preset, &bound, config.flag_presets.contains(&preset.name));
        }
        for name in &config.offered_presets {
            let preset = preset::named(name).ok_or_else(|| unknown(name))?;
            let (hosts, _) = resolved.hosts_of(preset)?;
            resolved.allowed.extend(hosts);
            resolved.offer(preset, &bound, true);
        }
        Ok(resolved)
    }

    /// Adds credentials, which flags or the agent's profile may have named.
    fn add(&mut self, stored: Vec<ConfiguredCredential>, is_named: bool) {
        let names = stored.iter().map(|one| one.binding.credential.clone());
        self.named.extend(names.filter(|_| is_named));
        self.stored.extend(stored);
    }

    /// Returns the hosts that may be reached: always, or unless policy files decide.
    fn reached(&mut self, is_named: bool) -> &mut Vec<HostPort> {
        if is_named {
            &mut self.allowed
        } else {
            &mut self.offered
        }
    }

    /// Binds the tokens of a login, and offers the host that issues them.
    fn log_in(&mut self, login: Login, is_named: bool) {
        let issuer = login.issuer.iter();
        let endpoint = issuer.map(|issuer| &issuer.endpoint.origin.authority);
        let endpoint = endpoint.map(|authority| HostPort {
            host: HostPattern::Exact(authority.host.clone()),
            port: authority.port,
        });
        self.reached(is_named).extend(endpoint);
        let lent = login.tokens.iter().flat_map(|token| &token.origins);
        let own = preset::of_login(&login.name).map(|preset| (preset, lent.cloned().collect()));
        self.own_origins.extend(own);
        self.add(run_logins::stored(&login), is_named);
        self.logins.push(login);
    }

    /// Adds the credentials of these names whose variables are set and not in use, unless their
    /// hosts have a credential already, or are allowed by a flag: configuration has precedence.
    /// Notes the others.
    fn add_known(
        &mut self,
        config: &Config,
        names: &BTreeSet<CredentialName>,
        bound: &mut HashSet<CredentialName>,
    ) -> Result<(), Failure> {
        let aws = config::Credential::aws();
        if let Some(aws) = aws.filter(|aws| !bound.contains(&aws.name)) {
            let parts = bind(&aws)?;
            let is_free = |part: &ConfiguredCredential| {
                let mut origins = part.binding.origins.iter();
                let mut variables = part.binding.variables.iter();
                // For an origin with a signing key, no unsigned request may pass.
                let is_open = origins.any(|origin| {
                    config
                        .allow
                        .iter()
                        .any(|one| one.host.overlaps(&origin.hosts))
                });
                let is_used = variables.any(|variable| self.uses(variable))
                    || part.from.env_name().is_some_and(|name| self.uses(name));
                self.leaves(&part.binding.origins) && !is_open && !is_used
            };
            if parts.iter().all(is_free) {
                let set = parts.iter().filter_map(|part| part.from.env_name());
                let unfit: Vec<_> = set.filter_map(unlendable).collect();
                if unfit.is_empty() && names.contains(&aws.name) {
                    self.stored.extend(parts);
                    bound.insert(aws.name);
                } else if unfit.is_empty() {
                    self.withheld.push(withheld_aws(aws.name, &parts));
                }
                self.unfit.extend(unfit);
            }
        }
        for (_, preset, _) in preset::known_variables(is_set) {
            let lent = || preset.credentials.iter().filter(|one| is_lent(one));
            let set = lent().filter_map(|one| one.variables.iter().find(|one| is_set(one)));
            let unfit: Vec<_> = set.filter_map(|one| unlendable(one)).collect();
            if !unfit.is_empty() {
                self.unfit.extend(unfit);
                continue;
            }
            if lent().all(|one| !one.origins.is_empty() && self.leaves(&one.origins)) {
                let is_free = |one: &&PresetCredential| !bound.contains(&one.name);
                let others = lent()
                    .filter(is_free)
                    .filter(|one| !names.contains(&one.name));
                self.withheld.extend(others.map(withheld));
                if lent().any(|one| names.contains(&one.name)) {
                    let (hosts, registry) = self.hosts_of(preset)?;
                    let mut offered = config.offered_presets.iter().chain(&config.keyed_presets);
                    let is_named = offered.any(|name| *name == preset.name);
                    self.reached(is_named).extend(hosts);
                    self.lend(preset, &registry, bound, (Some(names), is_named))?;
                }
            }
        }
        self.withheld.dedup();
        Ok(())
    }

    /// Returns the binding of each credential.
    pub fn bindings(&self) -> impl Iterator<Item = &Binding> + Clone {
        self.stored.iter().map(|stored| &stored.binding)
    }

    /// Whether a variable is the source of a credential, or holds its phantom.
    fn uses(&self, variable: &str) -> bool {
        self.stored.iter().any(|stored| {
            stored.from.env_name() == Some(variable)
                || stored.binding.variables.iter().any(|one| one == variable)
        })
    }

    /// Whether no credential is bound to any of these origins.
    fn leaves(&self, origins: &[OriginPattern]) -> bool {
        let stored = self.stored.iter();
        let mut bound = stored.flat_map(|stored| &stored.binding.origins);
        !bound.any(|bound| origins.iter().any(|origin| origin.overlaps(bound)))
    }

    /// Allows the hosts of a requested preset, whether or not its variables are set.
    fn offer(&mut self, preset: &'static Preset, bound: &HashSet<CredentialName>, is_named: bool) {
        let origins = preset.credentials.iter().flat_map(|one| &one.origins);
        self.reached(is_named).extend(origins.map(allowed));
        let unset = |one: &&PresetCredential| {
            !one.origins.is_empty() && !bound.contains(&one.name) && !is_lent(one)
        };
        let mut own = preset.credentials.iter();
        // The agent may have offered this preset, too.
        let is_told = |one: &PresetCredential| self.unset.iter().any(|told| told.name == one.name);
        if own.all(|one| unset(&one) && !is_told(one) && self.leaves(&one.origins)) {
            self.unset.extend(&preset.credentials);
        }
    }

    /// Notes the origins of a configured credential, if its preset's clients escape slashes.
    fn slashes_of(&mut self, credential: &config::Credential) {
        let preset = credential.preset.as_deref().and_then(preset::named);
        let Some(preset) = preset.filter(|preset| !preset.encoded_slash.is_empty()) else {
            return;
        };
        let known = credential.known().map(|known| known.origins.as_slice());
        let mut known = known.unwrap_or_default().iter();
        // A self-hosted origin has what the service has, if all of the service's origins have it.
        let is_everywhere = known.all(|origin| preset.encoded_slash.contains(origin));
        self.encoded_slash
            .extend_from_slice(match &credential.origins[..] {
                [] => &preset.encoded_slash,
                own if is_everywhere => own,
                _ => &[],
            });
    }

    /// Notes the origins of known services whose clients escape slashes, however they are allowed,
    /// and the registries that the user's `.npmrc` names.
    ///
    /// Called only if no policy file could judge by a path in the other spelling.
    fn slashes_of_known(&mut self) {
        for preset in preset::with_encoded_slash() {
            self.encoded_slash.extend_from_slice(&preset.encoded_slash);
            if let Some(registry) = &preset.registry {
                let user = UserConfig::of_this_user();
                let named = user.map(|user| registry.in_npmrc(&user));
                self.encoded_slash.extend(named.unwrap_or_default());
            }
        }
    }

    /// Returns the variables of the workload that hold phantoms.
    pub fn variables(&self) -> Vec<&str> {
        let all = self.stored.iter();
        let all = all.flat_map(|stored| &stored.binding.variables);
        all.map(String::as_str).collect()
    }

    /// Returns the hosts that a preset needs in addition to those of its credentials, and the
    /// registry that it lends to. Notes how its clients write paths.
    fn hosts_of(
        &mut self,
        preset: &'static Preset,
    ) -> Result<(Vec<HostPort>, Vec<OriginPattern>), Failure> {
        let mut hosts = preset.allow.clone();
        let mut lends = Vec::new();
        if let Some(registry) = &preset.registry {
            let mapping = mapping(preset, registry)?;
            lends.clone_from(&mapping.origins);
            // Clients that do not know the private registry would ask the public one for private
            // names.
            if !mapping.replaces_public {
                lends.extend_from_slice(&registry.public);
                hosts.extend_from_slice(&registry.downloads);
            }
            hosts.extend_from_slice(&lends);
            self.registries.push((preset, mapping));
        }
        if !preset.encoded_slash.is_empty() {
            let origins = preset.encoded_slash.iter().chain(&lends);
            self.encoded_slash.extend(origins.cloned());
        }
        Ok((hosts.iter().map(allowed).collect(), lends))
    }

    /// Adds the credentials of a preset whose variables are set and not in use. Credentials without
    /// their own origins are lent to the registry.
    fn lend(
        &mut self,
        preset: &'static Preset,
        registry: &[OriginPattern],
        bound: &mut HashSet<CredentialName>,
        (only, is_named): (Option<&BTreeSet<CredentialName>>, bool),
    ) -> Result<(), Failure> {
        self.own_origins.push((preset, registry.to_vec()));
        let is_meant = |one: &&PresetCredential| only.is_none_or(|names| names.contains(&one.name));
        for credential in preset.credentials.iter().filter(is_meant) {
            let set: Vec<&String> = credential
                .variables
                .iter()
                .filter(|one| is_set(one))
                .collect();
            if set.is_empty()
                || set.iter().any(|one| self.uses(one))
                || !bound.insert(credential.name.clone())
            {
                continue;
            }
            // A named login is used instead.
            if run_logins::are_at(&self.logins, &credential.origins) {
                continue;
            }
            if credential.origins.is_empty() && registry.is_empty() {
                continue;
            }
            let origins = if credential.origins.is_empty() {
                registry.to_vec()
            } else {
                Vec::new()
            };
            // Each variable stands for its own value: a variable with another value than the first
            // is a credential of its own, named after itself.
            for (nth, variable) in set.iter().enumerate() {
                let is_same =
                    |other: &&String| std::env::var_os(other) == std::env::var_os(variable);
                if set[..nth].iter().any(&is_same) {
                    continue;
                }
                let name = match nth {
                    0 => credential.name.clone(),
                    _ => CredentialName::new(variable)
                        .map_err(|error| Failure::usage(error.to_string()))?,
                };
                let mut binding = credential
                    .bind(name, origins.clone())
                    .map_err(|error| Failure::usage(error.to_string()))?;
                binding
                    .variables
                    .retain(|one| set.contains(&one) && is_same(&one));
                let from = SecretRef::env(variable.as_str());
                self.add(vec![ConfiguredCredential { binding, from }], is_named);
            }
        }
        Ok(())
    }
}

fn withheld(credential: &PresetCredential) -> Withheld {
    let origins: Vec<String> = credential.origins.iter().map(ToString::to_string).collect();
    let variables = credential.variables.iter().filter(|one| is_set(one));
    Withheld {
        name: credential.name.clone(),
        variables: variables.cloned().collect(),
        opens: origins.join(", "),
        is_aws: false,
    }
}

fn withheld_aws(name: CredentialName, parts: &[ConfiguredCredential]) -> Withheld {
    let variables = parts.iter().filter_map(|part| part.from.env_name());
    let reach = parts.first().and_then(unexpected_reach);
    Withheld {
        name,
        variables: variables.map(str::to_owned).collect(),
        opens: reach.unwrap_or_else(|| "all that it may do in AWS".to_owned()),
        is_aws: true,
    }
}

/// Returns a variable that cannot be lent, and why; `None` if it can.
fn unlendable(variable: &str) -> Option<(String, SecretUnsafe)> {
    Some((variable.to_owned(), unfit(variable)?))
}

/// Reads the mapping of a preset's registry in the user's own files.
fn mapping(preset: &Preset, registry: &PackageRegistry) -> Result<RegistryMapping, Failure> {
    let name = &preset.name;
    let user = UserConfig::of_this_user().ok_or_else(|| {
        Failure::new(format!("preset `{name}` needs your home directory"))
            .because("HOME is not set")
    })?;
    registry.mapping(&user).map_err(|doubt| {
        Failure::usage(format!(
            "preset `{name}` does not know which registry you use"
        ))
        .because(doubt.to_string())
        .next("mend it; or leave the preset out, and name hosts: `--allow HOST`")
    })
}

fn bind(credential: &config::Credential) -> Result<Vec<ConfiguredCredential>, Failure> {
    credential.stored().map_err(|doubt| {
        Failure::usage(format!("credential `{}` is refused", credential.name))
            .because(doubt.why)
            .next(doubt.remedy)
    })
}

/// Refuses two presets of the user's own with a name, a credential or a variable in common.
fn no_two(own: &[(PathBuf, &'static Preset)]) -> Result<(), Failure> {
    let mut seen: HashMap<&str, &Preset> = HashMap::new();
    for (_, preset) in own {
        let credentials = preset.credentials.iter();
        let names = credentials.flat_map(|one| {
            let variables = one.variables.iter().map(String::as_str);
            variables.chain([one.name.as_str()])
        });
        for name in std::iter::once(&*preset.name).chain(names) {
            let other = seen.insert(name, preset);
            if let Some(other) = other.filter(|other| !std::ptr::eq(*other, *preset)) {
                let (one, other) = (&preset.name, &other.name);
                return Err(Failure::usage(format!(
                    "the presets `{other}` and `{one}` of your own both have `{name}`"
                ))
                .next("call it otherwise in one of the two files"));
            }
        }
    }
    Ok(())
}

fn unknown(name: &str) -> Failure {
    Failure::usage(format!("there is no preset `{name}`")).next("see `gateway secret presets`")
}

/// Whether one of its variables is set.
pub fn is_lent(credential: &PresetCredential) -> bool {
    credential.variables.iter().any(|variable| is_set(variable))
}

/// Returns the variables of known secrets that are set, whether or not they are lent.
pub fn known_secrets() -> Vec<String> {
    let known = preset::known_variables(is_set).map(|(name, _, _)| name);
    let aws = sigv4::VARIABLES.into_iter().filter(|name| is_set(name));
    known.chain(aws).map(str::to_owned).collect()
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

fn allowed(origin: &OriginPattern) -> HostPort {
    HostPort {
        host: origin.hosts.clone(),
        port: origin.port,
    }
}
