//! Builds the program from a valid configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::failure::Failure;
use super::generation;
use super::reload::Reloading;
use super::resolve::ResolvedConfig;
use crate::audit::{self, Log};
use crate::config::{self, Config};
use crate::gateway::{Ids, SharedState, chain};
use crate::intercept::{CaSettings, SessionCa};
use crate::message::Host;
use crate::names::SessionId;
use crate::origin::OriginRule;
use crate::session::Session;
use crate::session::phantom::{PhantomKey, Phantoms};

/// The program without listeners and threads, ready to serve.
pub struct App {
    /// What every thread shares.
    pub shared: Arc<SharedState>,
    /// The settings it was started with. A reload does not change them.
    pub config: Config,
    /// What a reload starts from.
    pub(super) reloading: Reloading,
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
        let first = generation::first(&config, resolved, rules)?;
        let ids = Ids::new().map_err(Failure::no_randomness)?;
        let shared = SharedState::new(first, log(&config)?, ids);
        Ok(Self {
            shared: Arc::new(shared),
            reloading: Reloading::of(&config),
            config,
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
        let snapshot = self.shared.current();
        let credentials = &snapshot.credentials;
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
        let session = Session::new(id.clone(), groups, phantoms, Some(ends)).with_key(key);
        let session = Arc::new(session);
        let ca = self.ca(&session)?;
        self.shared.sessions.enter(session.clone());
        Ok((session, ca))
    }

    fn ca(&self, session: &Arc<Session>) -> Result<Arc<SessionCa>, Failure> {
        let settings = CaSettings {
            lifetime: self.config.ca.lifetime,
            // Not constrained to the first hosts: a reload may add others (ADR 34).
            constraints: None,
            leaves_kept: self.config.limits.cached_certificates,
            ..CaSettings::default()
        };
        let (shared, asks) = (self.shared.clone(), session.clone());
        let may_mint = Arc::new(move |host: &Host| {
            let snapshot = shared.look();
            let policies = snapshot.policies.generation();
            policies.may_resolve(asks.id(), asks.groups(), host)
        });
        let ca = SessionCa::new(session.id(), &settings, may_mint)
            .map_err(|error| generation::failed("the session's CA", &error))?;
        Ok(Arc::new(ca))
    }
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
