//! From a valid configuration to the rooms that it sets up.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::expand::Expanded;
use super::failure::Failure;
use crate::audit::{self, Log};
use crate::body::{HoldBudget, Limit};
use crate::config::{self, Config, HttpVersion};
use crate::credential::{Credentials, Holding, Stored, Stores, Vault, VaultSettings};
use crate::gateway::{Ids, Limits, Shared, Tally, chain};
use crate::intercept::{CaSettings, SessionCa};
use crate::message::{Host, HostPattern};
use crate::names::SessionId;
use crate::origin::resolve::ResolverSettings;
use crate::origin::vet::AddressRange;
use crate::origin::{ClientIdentity, OriginProtocol, OriginRule, OriginSettings, StoreClient};
use crate::policy::{HostScope, Policies, Source, quick};
use crate::session::phantom::{PhantomKey, Phantoms};
use crate::session::{Binding, Bindings, Role, Session, Sessions};

/// Everything but listeners and threads, ready to serve.
pub struct Assembly {
    /// What every thread shares.
    pub shared: Arc<Shared>,
    /// The settings that it was made by.
    pub config: Config,
    /// The policies that flags and presets stand for.
    flags: String,
}

impl Assembly {
    /// Sets up every room by the configuration; `sessions` are those that its policies are about.
    ///
    /// # Errors
    /// A [`Failure`] that names what cannot be set up, why, and what to do.
    pub fn new(config: Config, expanded: Expanded) -> Result<Self, Failure> {
        Self::with_origins(config, expanded, Vec::new())
    }

    /// The same with further rules for origins, before those of the configuration.
    ///
    /// # Errors
    /// As [`Assembly::new`].
    pub fn with_origins(
        config: Config,
        expanded: Expanded,
        mut rules: Vec<OriginRule>,
    ) -> Result<Self, Failure> {
        let Expanded {
            stored, allowed, ..
        } = expanded;
        let credentials = credentials(&config, stored)?.with_holding(holding(&config));
        let flags = flag_policies(&config, &allowed, credentials.bindings());
        let shared = Shared {
            sessions: Sessions::default(),
            policies: Policies::load(&sources(&config, &flags)?)
                .map_err(|problems| refused("the policies", problems))?,
            credentials,
            log: log(&config)?,
            limits: limits(&config),
            origin_settings: Arc::new({
                let mut settings = origins(&config)?;
                rules.append(&mut settings.rules);
                OriginSettings { rules, ..settings }
            }),
            refused: Tally::default(),
            open: Arc::default(),
            ids: Ids::new().map_err(no_randomness)?,
        };
        Ok(Self {
            shared: Arc::new(shared),
            config,
            flags,
        })
    }

    /// Opens a session: its phantoms are issued, its CA is made, and its requests are known from
    /// now on.
    ///
    /// # Errors
    /// A [`Failure`] where a secret that must be looked at cannot be had, or its shape leaves no
    /// room for a phantom.
    pub async fn open(
        &self,
        id: &SessionId,
        groups: &[String],
    ) -> Result<(Arc<Session>, Arc<SessionCa>), Failure> {
        let credentials = &self.shared.credentials;
        // A key for each session: with one for all, a phantom would be as good in another session
        // (threats H11).
        let key = PhantomKey::random().map_err(no_randomness)?;
        let phantoms: Phantoms = credentials.issue(id, &key, |_| true).await.map_err(|error| {
            Failure::new("the session's phantoms cannot be issued")
                .because(chain(&error))
                .next("check the credential's `from`; with `shape = \"…\"` the secret need not be looked at now")
        })?;
        let groups: Vec<Arc<str>> = groups
            .iter()
            .map(|group| Arc::from(group.as_str()))
            .collect();
        let ends = Instant::now() + self.config.ca.lifetime;
        let bindings = credentials.bindings().clone();
        let session = Arc::new(Session::new(
            id.clone(),
            groups,
            bindings,
            phantoms,
            Some(ends),
        ));
        let ca = self.ca(&session)?;
        self.shared.sessions.enter(session.clone());
        Ok((session, ca))
    }

    fn ca(&self, session: &Arc<Session>) -> Result<Arc<SessionCa>, Failure> {
        let settings = CaSettings {
            lifetime: self.config.ca.lifetime,
            constraints: self.constraints(),
            leaves_kept: self.config.limits.leaves,
            ..CaSettings::default()
        };
        let (shared, asks) = (self.shared.clone(), session.clone());
        let may_mint = Arc::new(move |host: &Host| {
            shared
                .policies
                .current()
                .may_resolve(asks.id(), asks.groups(), host)
        });
        let ca = SessionCa::new(session.id(), &settings, may_mint)
            .map_err(|error| failed("the session's CA", error))?;
        Ok(Arc::new(ca))
    }

    /// The hosts that policy can ever permit, where that list is closed. Policies that are read
    /// from files may change while the session lives, so only a set that is fixed for its life
    /// constrains the CA.
    fn constraints(&self) -> Option<Vec<Host>> {
        if !self.config.policy.files.is_empty() {
            return None;
        }
        let scopes = self.shared.policies.current().hosts()?;
        let host = |scope: &HostScope| match scope {
            HostScope::Host(name) | HostScope::Domain(name) => Host::parse(name.as_bytes()).ok(),
        };
        scopes.iter().map(host).collect()
    }

    /// Reads the policies anew; the old ones stay in force where the new ones are refused.
    ///
    /// # Errors
    /// A [`Failure`] with every problem of the new policies.
    pub fn reload(&self) -> Result<u64, Failure> {
        let sources = sources(&self.config, &self.flags)?;
        let generation = self
            .shared
            .policies
            .replace(&sources)
            .map_err(|problems| refused("the new policies", problems))?;
        Ok(generation.number())
    }
}

/// The credentials of a configuration, with their stores.
///
/// # Errors
/// A [`Failure`] where they are ambiguous, too wide or open.
pub fn credentials(config: &Config, stored: Vec<Stored>) -> Result<Credentials, Failure> {
    let references = stored.iter().map(|stored| &stored.from);
    let stores = match &config.vault {
        None => Stores::new(references),
        Some(settings) => Stores::with_vault(references, vault(config, settings)?),
    };
    Credentials::new(stored, &stores).map_err(|error| {
        Failure::usage("the credentials are refused")
            .because(error.to_string())
            .next("see docs/config.md, `[[credential]]`")
    })
}

/// A Vault, and the way to its servers.
fn vault(config: &Config, settings: &VaultSettings) -> Result<Vault, Failure> {
    let mut roots = Vec::new();
    for path in &settings.roots {
        roots.extend(certificates(path)?);
    }
    let identity = match settings.client_certificate() {
        None => None,
        Some((chain, key)) => Some(Arc::new(ClientIdentity {
            chain: certificates(chain)?,
            key: PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?,
        })),
    };
    let client = StoreClient::new(settings.servers.clone(), roots, identity, resolver(config))
        .map_err(|error| failed("the way to the vault", error))?;
    Ok((settings.clone(), Arc::new(client)))
}

fn resolver(config: &Config) -> ResolverSettings {
    ResolverSettings {
        servers: config.resolver.servers.clone(),
        hosts_file: config.resolver.hosts_file,
    }
}

fn failed(what: &str, error: impl std::error::Error) -> Failure {
    Failure::new(format!("{what} cannot be set up")).because(chain(&error))
}

fn no_randomness(error: getrandom::Error) -> Failure {
    Failure::new("the system gives no random bytes").because(error.to_string())
}

fn refused(what: &str, problems: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{what} are refused"))
        .because(problems.to_string())
        .next("gateway policy check")
}

/// The policies of the files, and those that the flags stand for.
fn sources(config: &Config, flags: &str) -> Result<Vec<Source>, Failure> {
    let read = config.policy.sources().map_err(|unreadable| {
        let all: Vec<String> = unreadable.iter().map(ToString::to_string).collect();
        Failure::usage("the policies cannot be read").because(all.join("; "))
    })?;
    let mut sources: Vec<Source> = read
        .into_iter()
        .map(|file| Source::new(file.path.display().to_string(), file.text))
        .collect();
    if !flags.is_empty() {
        sources.push(Source::new("flags", flags));
    }
    Ok(sources)
}

/// Flags and presets as Cedar: what is allowed, and what is lent where it is bound. Where policies
/// come from files, those say which credential is lent to whom.
fn flag_policies(config: &Config, allowed: &[config::Allowed], bindings: &Bindings) -> String {
    let mut permits = BTreeSet::new();
    for one in allowed {
        permits.insert(quick::permit_host(
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
                // Below a domain of a cloud strangers have names, too: only what is signed may go
                // there.
                permits.insert(match (binding.signing(), &origin.hosts) {
                    (Some(_), HostPattern::Below(_)) => {
                        quick::permit_with(None, &binding.credential, &host, Some(origin.port))
                    }
                    _ => quick::permit_host(None, &host, Some(origin.port)),
                });
                permits.insert(quick::permit_lend(
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

fn log(config: &Config) -> Result<Log, Failure> {
    let path = match &config.audit.path {
        Some(path) => path.clone(),
        None => default_log()?,
    };
    let settings = audit::Settings {
        sync: match config.audit.sync {
            config::Sync::Batch => audit::Sync::Batch,
            config::Sync::Always => audit::Sync::Always,
        },
        rotate_bytes: config.audit.rotate.as_u64(),
        allowance: audit::Allowance {
            burst: config.audit.session_burst.as_u64(),
            per_second: config.audit.session_rate.as_u64(),
        },
        ..audit::Settings::at(&path)
    };
    Log::open(&settings).map_err(|error| {
        Failure::new(format!(
            "the audit log `{}` cannot be opened",
            path.display()
        ))
        .because(chain(&error))
        .next("name another file with `--audit FILE` or `[audit] path`")
    })
}

/// Each run of `exec` has a log of its own, since one process writes one chain.
fn default_log() -> Result<PathBuf, Failure> {
    let directory = config::state::audit_directory().ok_or_else(|| {
        Failure::new("there is no place for the audit log")
            .because("neither HOME nor XDG_STATE_HOME names a folder")
            .next("name one: `--audit FILE`")
    })?;
    let now = time::OffsetDateTime::now_utc();
    let name = format!(
        "{}{:02}{:02}T{:02}{:02}{:02}-{}.jsonl",
        now.year(),
        u8::from(now.month()),
        now.day(),
        now.hour(),
        now.minute(),
        now.second(),
        std::process::id()
    );
    Ok(directory.join(name))
}

fn holding(config: &Config) -> Holding {
    Holding {
        limit: Limit::bytes(config.limits.hold.as_u64()),
        budget: HoldBudget::new(Limit::bytes(config.limits.hold_all.as_u64())),
        decoding: HoldBudget::new(Limit::bytes(config.limits.decoding_all.as_u64())),
    }
}

fn limits(config: &Config) -> Limits {
    let limits = &config.limits;
    Limits {
        connections_per_session: limits.connections_per_session,
        connections: limits.connections,
        exchanges_per_session: limits.exchanges_per_session,
        streams_per_connection: limits.streams_per_connection,
        handshake_timeout: limits.handshake_timeout,
        idle_timeout: limits.idle_timeout,
        head_timeout: limits.head_timeout,
        progress_timeout: limits.progress_timeout,
    }
}

/// The origin side's settings.
///
/// # Errors
/// A [`Failure`] for a file of roots or an identity that cannot be read.
pub fn origins(config: &Config) -> Result<OriginSettings, Failure> {
    // The first rule that covers an origin holds, and the one of the very host, else of the longest
    // domain, must be it.
    let mut ordered: Vec<&config::OriginRule> = config.origins.iter().collect();
    ordered.sort_by_key(|rule| match &rule.matches.hosts {
        HostPattern::Exact(_) => (0, 0),
        HostPattern::Below(domain) => (1, usize::MAX - domain.as_str().len()),
    });
    let rules = ordered
        .into_iter()
        .map(origin)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(OriginSettings {
        rules,
        resolver: resolver(config),
        connect_timeout: config.limits.connect_timeout,
        handshake_timeout: config.limits.handshake_timeout,
        idle_timeout: config.limits.idle_timeout,
        ..OriginSettings::default()
    })
}

fn origin(rule: &config::OriginRule) -> Result<OriginRule, Failure> {
    let mut roots = Vec::new();
    for path in &rule.roots {
        roots.extend(certificates(path)?);
    }
    let identity = match &rule.identity {
        None => None,
        Some(identity) => {
            let Some(key) = identity.key.path() else {
                return Err(Failure::usage("`client_key` is not a file")
                    .because("the key of a client certificate is read from a PEM file")
                    .next("write `client_key = \"file:/path/key.pem\"`"));
            };
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
            Some(Arc::new(ClientIdentity {
                chain: certificates(&identity.certificate)?,
                key,
            }))
        }
    };
    let exceptions = rule
        .addresses
        .iter()
        .filter_map(|network| AddressRange::new(network.address(), network.prefix()));
    Ok(OriginRule {
        scheme: Some(rule.matches.scheme),
        host: rule.matches.hosts.clone(),
        port: Some(rule.matches.port),
        roots,
        only_roots: rule.only_roots,
        identity,
        exceptions: exceptions.collect(),
        connect: rule.connect,
        protocol: match rule.http {
            HttpVersion::Auto => OriginProtocol::Auto,
            HttpVersion::Http1 => OriginProtocol::Http1,
            HttpVersion::Http2 => OriginProtocol::Http2,
        },
        encoded_slash: rule.encoded_slash,
        underscores: rule.underscores,
    })
}

fn certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(path, &error))?;
    found
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &std::path::Path, error: &dyn std::error::Error) -> Failure {
    Failure::new(format!("`{}` cannot be read", path.display())).because(chain(error))
}
