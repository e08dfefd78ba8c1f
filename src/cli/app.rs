//! Builds the program from a valid configuration.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use super::resolve::ResolvedConfig;
use crate::audit::{self, Log};
use crate::config::{self, Config};
use crate::credential::{Credentials, Stored, Stores, Vault, VaultSettings};
use crate::gateway::{Ids, RefusalCounts, SharedState, chain};
use crate::intercept::{CaSettings, SessionCa};
use crate::message::{Host, HostPattern};
use crate::names::SessionId;
use crate::origin::{ClientIdentity, OriginRule, OriginSettings, StoreClient};
use crate::policy::{HostScope, Policies, Source, generate};
use crate::session::phantom::{PhantomKey, Phantoms};
use crate::session::{Binding, Bindings, Role, Session, Sessions};

/// The program without listeners and threads, ready to serve.
pub struct App {
    /// What every thread shares.
    pub shared: Arc<SharedState>,
    /// The settings it was built from.
    pub config: Config,
    /// The policies that flags and presets stand for, as Cedar.
    flags: String,
}

impl App {
    /// Sets up every part from the configuration.
    ///
    /// # Errors
    /// Returns a [`Failure`] that says what cannot be set up, why, and what to do.
    pub fn new(config: Config, resolved: ResolvedConfig) -> Result<Self, Failure> {
        Self::with_origins(config, resolved, Vec::new())
    }

    /// Does the same with further origin rules, which come before those of the configuration.
    ///
    /// # Errors
    /// As [`App::new`].
    pub fn with_origins(
        config: Config,
        resolved: ResolvedConfig,
        rules: Vec<OriginRule>,
    ) -> Result<Self, Failure> {
        let ResolvedConfig {
            stored, allowed, ..
        } = resolved;
        let credentials = credentials(&config, stored)?.with_holding(config.limits.holding());
        let flags = flag_policies(&config, &allowed, credentials.bindings());
        let shared = SharedState {
            sessions: Sessions::default(),
            policies: Policies::load(&sources(&config, &flags)?, config.facts.clone())
                .map_err(|problems| refused("the policies", problems))?,
            credentials,
            log: log(&config)?,
            limits: config.limits.clone(),
            origin_settings: Arc::new(origins(&config, rules)?),
            refused: RefusalCounts::default(),
            open: Arc::default(),
            listening: Arc::default(),
            draining: CancellationToken::new(),
            ids: Ids::new().map_err(Failure::no_randomness)?,
        };
        Ok(Self {
            shared: Arc::new(shared),
            config,
            flags,
        })
    }

    /// Opens a session: issues its phantoms, creates its CA and starts to recognise its requests.
    ///
    /// # Errors
    /// Returns a [`Failure`] if a secret that must be read is unavailable, or if its shape leaves
    /// no room for a phantom.
    pub async fn open(
        &self,
        id: &SessionId,
        groups: &[String],
    ) -> Result<(Arc<Session>, Arc<SessionCa>), Failure> {
        let credentials = &self.shared.credentials;
        // Each session has a key of its own. With a shared key, a phantom would also be valid in
        // another session (threats H11).
        let key = PhantomKey::random().map_err(Failure::no_randomness)?;
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
            leaves_kept: self.config.limits.cached_certificates,
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

    /// Returns the hosts that policy can ever permit, if that list is closed.
    ///
    /// Policies read from files may change during the session. So only a set that is fixed for the
    /// session constrains the CA.
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

    /// Reloads the policies. If the new ones are refused, the old ones stay in force.
    ///
    /// # Errors
    /// Returns a [`Failure`] with every problem of the new policies.
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

/// Returns the credentials of a configuration, with their stores.
///
/// # Errors
/// Returns a [`Failure`] if they are ambiguous, too wide or too open.
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

/// Creates the Vault client and its connection settings.
fn vault(config: &Config, settings: &VaultSettings) -> Result<Vault, Failure> {
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
    .map_err(|error| failed("the way to the vault", error))?;
    Ok((settings.clone(), Arc::new(client)))
}

fn failed(what: &str, error: impl std::error::Error) -> Failure {
    Failure::new(format!("{what} cannot be set up")).because(chain(&error))
}

fn refused(what: &str, problems: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{what} are refused"))
        .because(problems.to_string())
        .next("gateway policy check")
}

/// Returns the policies from files, and those that the flags stand for.
fn sources(config: &Config, flags: &str) -> Result<Vec<Source>, Failure> {
    let mut sources = config.policy.sources().map_err(|problems| {
        Failure::usage("the policies cannot be read")
            .because(problems.to_string())
            .next("gateway policy check")
    })?;
    if !flags.is_empty() {
        sources.push(Source::new("flags", flags));
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

fn log(config: &Config) -> Result<Log, Failure> {
    let path = match &config.audit.path {
        Some(path) => path.clone(),
        None => default_log()?,
    };
    let settings = audit::Settings {
        path: path.clone(),
        sync: config.audit.sync,
        rotate_bytes: config.audit.rotate_bytes,
        allowance: config.audit.allowance,
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

/// Returns a new path for each run of `exec`, since one process writes one chain.
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

/// Returns the origin settings, with the given rules before those of the configuration.
fn origins(config: &Config, mut rules: Vec<OriginRule>) -> Result<OriginSettings, Failure> {
    rules.extend(config.origins.iter().map(|origin| origin.rule.clone()));
    let mut settings = config.limits.origins();
    settings.resolver = config.resolver.clone();
    settings
        .with_rules(rules)
        .map_err(|error| Failure::new(error.to_string()).because(chain(&error)))
}
