//! Makes generations of the configuration: the first one, and those that reloads put in force.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::failure::Failure;
use super::resolve::ResolvedConfig;
use crate::config::{self, Config};
use crate::credential::{Credentials, Holding, SecretRef, Stored, Stores, Vault, VaultSettings};
use crate::gateway::{Snapshot, chain};
use crate::message::HostPattern;
use crate::origin::resolve::StubResolver;
use crate::origin::{ClientIdentity, OriginRule, OriginSettings, StoreClient};
use crate::policy::{Policies, Problems, Source, generate};
use crate::session::{Binding, BindingMalformed, Bindings, Role};

/// Makes the first generation, with the given origin rules before those of the configuration.
///
/// # Errors
/// Returns a [`Failure`] that says what is refused, why, and what to do.
pub fn first(
    config: &Config,
    resolved: ResolvedConfig,
    rules: Vec<OriginRule>,
) -> Result<Snapshot, Failure> {
    let ResolvedConfig { stored, allowed } = resolved;
    let credentials = credentials(config, stored)?.with_holding(config.limits.holding());
    let sources = sources(config, &allowed, credentials.bindings())?;
    let policies = Policies::load(&sources, config.facts.clone());
    Ok(Snapshot {
        policies: policies.map_err(|problems| refused("the policies", &problems))?,
        credentials,
        limits: config.limits.clone(),
        origins: Arc::new(origins(config, rules)?),
    })
}

/// Makes the generation after `before`, which was made from `old`. Nothing is in force yet.
///
/// # Errors
/// As [`first`].
pub fn next(
    before: &Snapshot,
    old: &Config,
    config: &Config,
    resolved: ResolvedConfig,
) -> Result<Snapshot, Failure> {
    let ResolvedConfig { stored, allowed } = resolved;
    let credentials = next_credentials(&before.credentials, old, config, stored)?;
    let sources = sources(config, &allowed, credentials.bindings())?;
    let policies = before.policies.next(&sources, config.facts.clone());
    let policies = policies.map_err(|problems| refused("the new policies", &problems))?;
    let origins = origins(config, Vec::new())?;
    if origins.resolver != before.origins.resolver {
        StubResolver::new(&origins.resolver).map_err(|error| failed("the resolver", &error))?;
    }
    Ok(Snapshot {
        policies,
        credentials,
        limits: config.limits.clone(),
        // Unchanged settings stay the same object, and so do the caches made for them.
        origins: match origins == *before.origins {
            true => before.origins.clone(),
            false => Arc::new(origins),
        },
    })
}

/// Returns the credentials of a configuration, with their stores.
///
/// # Errors
/// Returns a [`Failure`] if they are ambiguous, too wide or too open.
pub fn credentials(config: &Config, stored: Vec<Stored>) -> Result<Credentials, Failure> {
    let stores = stores(config, &stored)?;
    Credentials::new(stored, &stores).map_err(|error| ambiguous(&error))
}

/// Returns the credentials that follow others, with what those already read.
fn next_credentials(
    before: &Credentials,
    old: &Config,
    config: &Config,
    stored: Vec<Stored>,
) -> Result<Credentials, Failure> {
    let same_vault = old.vault == config.vault && old.resolver == config.resolver;
    let made = match same_vault {
        true => Stores::new(references(&stored)),
        false => stores(config, &stored)?,
    };
    let stores = made.after(before.stores(), references(&stored), same_vault);
    let next = before.next(stored, &stores);
    let holding = Holding {
        limit: config.limits.max_buffered_request,
        ..before.holding().clone()
    };
    Ok(next
        .map_err(|error| ambiguous(&error))?
        .with_holding(holding))
}

fn references(stored: &[Stored]) -> impl Iterator<Item = &SecretRef> {
    stored.iter().map(|stored| &stored.from)
}

fn stores(config: &Config, stored: &[Stored]) -> Result<Stores, Failure> {
    Ok(match &config.vault {
        None => Stores::new(references(stored)),
        Some(settings) => Stores::with_vault(references(stored), vault(config, settings)?),
    })
}

fn ambiguous(error: &BindingMalformed) -> Failure {
    Failure::usage("the credentials are refused")
        .because(error.to_string())
        .next("see docs/config.md, `[[credential]]`")
}

/// Creates the Vault client and its connection settings.
pub(super) fn vault(config: &Config, settings: &VaultSettings) -> Result<Vault, Failure> {
    let identity = settings
        .client_certificate()
        .map(|(chain, key)| ClientIdentity {
            chain: chain.to_vec(),
            key: key.clone(),
        });
    let client = StoreClient::new(
        settings.servers.clone(),
        settings.roots.clone(),
        identity,
        config.resolver.clone(),
    )
    .map_err(|error| failed("the way to the vault", &error))?;
    Ok((settings.clone(), Arc::new(client)))
}

/// Says that a part cannot be set up.
pub fn failed(what: &str, error: &dyn std::error::Error) -> Failure {
    Failure::of(format!("{what} cannot be set up"), error)
}

fn refused(what: &str, problems: &Problems) -> Failure {
    Failure::usage(format!("{what} are refused"))
        .because(problems.to_string())
        .next("gateway policy check")
}

/// Returns the policies from files, and those that flags and presets stand for.
fn sources(
    config: &Config,
    allowed: &[config::Allowed],
    bindings: &Bindings,
) -> Result<Vec<Source>, Failure> {
    let mut sources = config.policy.sources().map_err(|problems| {
        Failure::usage("the policies cannot be read")
            .because(problems.to_string())
            .next("gateway policy check")
    })?;
    let flags = flag_policies(config, allowed, bindings);
    if !flags.is_empty() {
        sources.push(Source::new("flags", flags));
    }
    let is_listed = |path: &Path| config.policy.paths().iter().any(|one| one == path);
    let granted = config.granted.as_deref();
    if let Some(granted) = granted.filter(|path| path.exists() && !is_listed(path)) {
        let read = Source::read(granted);
        sources.extend(read.map_err(|problems| refused("the granted rules", &problems))?);
    }
    Ok(sources)
}

/// Writes flags and presets as Cedar: what is allowed, and what is lent where it is bound. If
/// policies come from files, those say which credential is lent to whom.
fn flag_policies(config: &Config, allowed: &[config::Allowed], bindings: &Bindings) -> String {
    let mut permits = BTreeSet::new();
    for one in allowed {
        permits.insert(generate::permit_host(
            None,
            &one.host.to_string(),
            Some(one.port),
        ));
    }
    if config.policy.files.is_empty() {
        let lendable = |binding: &&Binding| !matches!(binding.role, Role::Part(_));
        for binding in bindings.all().filter(lendable) {
            for origin in &binding.origins {
                let host = origin.hosts.to_string();
                // Strangers also have names below a cloud's domain. Only signed requests may go
                // there.
                permits.insert(match (binding.signing(), &origin.hosts) {
                    (Some(_), HostPattern::Below(_)) => {
                        generate::permit_with(None, &binding.credential, &host, Some(origin.port))
                    }
                    _ => generate::permit_host(None, &host, Some(origin.port)),
                });
                permits.insert(generate::permit_lend(
                    None,
                    &binding.credential,
                    &host,
                    Some(origin.port),
                ));
            }
        }
    }
    permits.into_iter().map(|permit| permit + "\n").collect()
}

/// Returns the origin settings, with the given rules before those of the configuration.
pub(super) fn origins(
    config: &Config,
    mut rules: Vec<OriginRule>,
) -> Result<OriginSettings, Failure> {
    rules.extend(config.origins.iter().map(|origin| origin.rule.clone()));
    let mut settings = config.limits.origins();
    settings.resolver = config.resolver.clone();
    settings
        .with_rules(rules)
        .map_err(|error| Failure::new(error.to_string()).because(chain(&error)))
}
