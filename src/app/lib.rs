//! Builds the program from a valid configuration.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

pub mod audit_heads;
pub mod client_environment;
pub mod commits;
pub mod control;
pub mod exports;
pub mod failure;
pub mod fleet;
pub mod kept_home;
pub mod listen;
pub mod login;
pub mod notify;
pub mod process;
pub mod project;
pub mod reload;
pub mod replica;
pub mod revocations;
pub mod sandbox;
pub mod session;
pub mod settings;
pub mod store_clients;
pub mod terminal;
pub mod write;

pub use failure::{Advise, Code, Context, Failure};
pub use settings::flags::{ConfigFile, RunFlags};
pub use terminal::{Color, Paint, Terminal, counted, note, safe};

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use zeroize::Zeroizing;

use crate::commits::CommitSigning;
use crate::exports::Exports;
use crate::fleet::Fleet;
use crate::kept_home::KeptHome;
use crate::listen::listeners::LiveListeners;
use crate::login::captured::SessionLogins;
use crate::reload::generation;
use crate::reload::source::{LoadedConfig, ReloadState, RunMode};
use crate::revocations::KeptRevocations;
use crate::session::recalled::{OpenedSession, StoredSession};
use crate::session::store::{Persistence, SessionStore};
use crate::settings::resolve::ResolvedConfig;
use gateway_audit::{self as audit, Log};
use gateway_config::{self as config, Config};
use gateway_control::{PortTls, Proven};
use gateway_credential::{IssueFailure, StoreError};
use gateway_grant::Grants;
use gateway_intercept::{CaSettings, Caller, SessionCa, TokenVerifier};
use gateway_launch::JoinSender;
use gateway_message::Host;
use gateway_names::{CredentialName, SessionId};
use gateway_origin::OriginRule;
use gateway_policy::{Operators, Requester};
use gateway_server::{Ids, SharedState, Snapshot, chain};
use gateway_session::phantom::Phantoms;
use gateway_session::{Creation, EndReason, Lifetime, Moment, Session, SessionStatus};
use gateway_state::SessionRecord;

/// The program without listeners and threads, ready to serve.
pub struct App {
    /// The state that all threads share.
    pub shared: Arc<SharedState>,
    /// The settings it was started with. A reload does not change them.
    pub config: Config,
    /// The configuration in force, which a reload starts from.
    pub reloading: ReloadState,
    /// The CAs of live sessions.
    authorities: Mutex<Vec<Weak<SessionCa>>>,
    /// The policies for operators.
    pub operators: Arc<ArcSwap<Operators>>,
    /// The TLS of the control port, if there is one.
    pub control_tls: Option<PortTls>,
    /// The listeners of `serve`.
    pub listening: LiveListeners,
    /// The exports of the log's records.
    pub exports: Exports,
    /// Which sessions outlive the process.
    keeping: Persistence,
    /// The folders of the command's home that are kept.
    pub kept_home: Option<KeptHome>,
    /// The agent that signs the command's commits.
    pub commits: CommitSigning,
    /// The way into the sandbox, once its command may run.
    pub join_sender: OnceLock<JoinSender>,
    /// The store of sessions, opened with the first of them.
    keeper: OnceCell<SessionStore>,
    /// The rules that persons grant, and the proposals that they refuse.
    pub grants: Grants,
    /// The logins that sessions made and ended.
    pub logins: SessionLogins,
    /// The revocations for every gateway of this user.
    pub revocations: KeptRevocations,
}

/// A session's name and groups, and its owner.
pub type SessionIdentity<'a> = (&'a SessionId, &'a [String], Owner<'a>);

/// The owner of a session.
#[derive(Clone, Copy)]
pub enum Owner<'a> {
    /// A listener's, or a command's.
    Listener,
    /// A caller's alone.
    Caller(&'a Arc<Caller>),
    /// An operator's, who created it.
    Operator(&'a Creation),
}

impl Owner<'_> {
    fn creation(&self) -> Option<&Creation> {
        match self {
            Self::Operator(creation) => Some(creation),
            Self::Listener | Self::Caller(_) => None,
        }
    }

    /// Returns the caller, as far as it is known before the first request.
    fn caller(&self) -> Option<Arc<Caller>> {
        match self {
            Self::Listener => None,
            // A copy, since the original lasts as long as its connections.
            Self::Caller(caller) => Some(Arc::new(Caller {
                user: caller.user.clone(),
                groups: caller.groups.clone(),
                ..Caller::default()
            })),
            Self::Operator(creation) => Some(Arc::new(Caller {
                user: creation.request.user.clone(),
                ..Caller::default()
            })),
        }
    }
}

impl App {
    /// Sets up every part from the configuration, with these origin `rules` before its own.
    ///
    /// # Errors
    /// Returns a [`Failure`] that says what cannot be set up, why, and what to do.
    pub fn new(
        config: Config,
        resolved: ResolvedConfig,
        runs_as: RunMode,
        rules: Vec<OriginRule>,
    ) -> Result<Self, Failure> {
        let granted = generation::granted(&config)?;
        let read = LoadedConfig {
            sources: generation::sources(&config, &resolved, &granted)?,
            config: Arc::new(config.clone()),
            resolved,
        };
        let first = generation::first(&config, &read.resolved, (&read.sources, rules))?;
        let ids = Ids::new().map_err(Failure::no_randomness)?;
        let shared = Arc::new(SharedState::new(first, log(&config, runs_as)?, ids));
        let files = (config.granted.clone(), config.file.clone());
        let tls = config.control.port.as_ref().map(|(_, tls)| tls.door());
        Ok(Self {
            grants: Grants::new(shared.clone(), files, &granted),
            shared,
            reloading: ReloadState::of(read),
            logins: SessionLogins::default(),
            config,
            operators: Arc::new(ArcSwap::from_pointee(Operators::of_socket())),
            control_tls: tls.map(|tls| Arc::new(ArcSwap::new(tls))),
            authorities: Mutex::default(),
            listening: LiveListeners::default(),
            exports: Exports::default(),
            keeping: Persistence::Nothing,
            kept_home: None,
            commits: CommitSigning::default(),
            join_sender: OnceLock::new(),
            keeper: OnceCell::new(),
            revocations: KeptRevocations::default(),
        })
    }

    /// How many threads serve.
    pub fn threads(&self) -> NonZeroUsize {
        self.config.runtime.threads
    }

    /// Sets which sessions are kept between two starts.
    pub fn keeping(self, keeping: Persistence) -> Self {
        Self { keeping, ..self }
    }

    /// Applies the revocations in this file, and stores new ones there.
    pub fn obeying(self, revoked: Option<PathBuf>) -> Self {
        let revocations = KeptRevocations::kept_in(revoked);
        Self {
            revocations,
            ..self
        }
    }

    /// Sets the folders that are kept of the command's home.
    pub fn keeping_home(self, kept_home: Option<KeptHome>) -> Self {
        Self { kept_home, ..self }
    }

    /// Sets the agent that signs the command's commits.
    pub fn signing(self, commits: CommitSigning) -> Self {
        Self { commits, ..self }
    }

    /// Opens a session: issues its phantoms, creates its CA and starts to recognise its requests.
    ///
    /// A kept session gets its earlier phantoms and CA. It is returned when its record is on the
    /// disk.
    ///
    /// # Errors
    /// Returns a [`Failure`] if a secret that must be read is unavailable, if its shape leaves no
    /// room for a phantom, or if the record cannot be read or written.
    pub async fn open(
        &self,
        id: &SessionId,
        groups: &[String],
    ) -> Result<(Arc<Session>, Arc<SessionCa>), Failure> {
        let snapshot = self.shared.current();
        let named = [(id, groups, Owner::Listener)];
        let mut opened = self
            .prepare_and_keep(&snapshot, &self.config, &named)
            .await?;
        let opened = opened.pop().ok_or_else(too_many)?;
        self.enter(&opened);
        Ok(opened.live())
    }

    /// Opens a session in a generation that may not be in force yet. Nothing of it is stored, and
    /// no request reaches it before it is entered.
    ///
    /// # Errors
    /// As [`App::open`].
    pub async fn prepare(
        &self,
        snapshot: &Snapshot,
        config: &Config,
        (id, groups, whose): SessionIdentity<'_>,
    ) -> Result<OpenedSession, Failure> {
        let keeper = self.keeper().await?;
        let mut kept = keeper.recall(id).await?;
        if let Owner::Caller(_) = whose {
            kept = kept.of_caller()?;
        }
        let creation = whose.creation().cloned().map(Some);
        let is_others =
            |record: &SessionRecord| record.created.as_deref().map(Creation::read) != creation;
        if kept.record.as_ref().is_some_and(is_others) {
            return Err(made_by_operator(id));
        }
        let before = self.shared.sessions.get(id);
        if kept.ended().is_none() && before.is_none_or(|before| before.is_over()) {
            snapshot.credentials.begin(id);
        }
        let phantoms = self.issue(snapshot, id, &mut kept).await?;
        let session = self.session(config, (id, groups, whose), phantoms, &kept);
        let ca = self.ca(config, (&session, whose.caller()), &kept)?;
        for (other, phantoms) in keeper.others(&kept).await {
            self.shared.sessions.recognise(&other, &phantoms);
        }
        Ok(OpenedSession { session, ca, kept })
    }

    /// Does the same for several sessions, and stores them: all or none, in one change.
    ///
    /// # Errors
    /// As [`App::open`].
    pub async fn prepare_and_keep(
        &self,
        snapshot: &Snapshot,
        config: &Config,
        named: &[SessionIdentity<'_>],
    ) -> Result<Vec<OpenedSession>, Failure> {
        for _ in 0..TRIES {
            let mut opened = Vec::with_capacity(named.len());
            for one in named {
                opened.push(self.prepare(snapshot, config, *one).await?);
            }
            if self.keeper().await?.keep(&opened).await? {
                return Ok(opened);
            }
        }
        Err(too_many())
    }

    /// Stores the sessions of a change that is about to be in force, all or none.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be written, or another process was faster.
    pub async fn keep(&self, opened: &[OpenedSession]) -> Result<(), Failure> {
        if self.keeper().await?.keep(opened).await? {
            Ok(())
        } else {
            Err(too_many().next("reload again"))
        }
    }

    /// Lets requests reach a session.
    pub fn enter(&self, opened: &OpenedSession) {
        self.shared.sessions.enter(opened.session.clone());
        if let Some(keeper) = self.keeper.get() {
            keeper.tend(&opened.kept, &opened.session);
            self.restore_temporary(&opened.session, keeper.temporary(&opened.kept));
        }
    }

    fn restore_temporary(&self, session: &Arc<Session>, all: Vec<Zeroizing<Vec<u8>>>) {
        let credentials = &self.shared.current().credentials;
        for kept in all {
            if let Err(cause) = credentials.restore(session, &kept) {
                tracing::warn!(session = %session.id(), %cause, "temporary credentials are lost");
            }
        }
    }

    /// Gives a live session the temporary credentials that another replica stored.
    ///
    /// # Errors
    /// Returns a [`Failure`] if its record cannot be read.
    pub async fn learn_temporary(&self, id: &SessionId) -> Result<(), Failure> {
        if let Some(session) = self.shared.sessions.get(id) {
            let newer = self.keeper().await?.newer_temporary(id).await?;
            self.restore_temporary(&session, newer);
        }
        Ok(())
    }

    /// Returns the fleet that this gateway is a replica of, once its state is open.
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.keeper.get()?.fleet()
    }

    fn session(
        &self,
        config: &Config,
        (id, groups, whose): SessionIdentity<'_>,
        phantoms: Phantoms,
        kept: &StoredSession,
    ) -> Arc<Session> {
        let groups = groups.iter().map(|group| Arc::from(group.as_str()));
        if let Some(why) = kept.ended() {
            let (why, back) = match why {
                EndReason::Operator | EndReason::ForGood => (
                    "was ended",
                    "another name in `session` begins a new one".to_owned(),
                ),
                EndReason::Idle => {
                    let back = format!("`gateway session resume {id}` brings it back");
                    ("was not used for too long", format!("{back}, {FRESH}"))
                }
                EndReason::Expired | EndReason::Listener => ("is over", FRESH.to_owned()),
            };
            note(format!(
                "gateway: session `{id}` {why} and refuses every request; {back}"
            ));
        } else if kept.paused {
            note(format!(
                "gateway: session `{id}` is paused, as it was: `gateway session resume {id}`"
            ));
        }
        let lasts = match self.keeping {
            Persistence::Listeners => Some(config.ca.lifetime),
            // It ends with its command.
            Persistence::Project(_) | Persistence::Nothing => None,
        };
        let now = Moment::now();
        let lifetime = match whose.creation() {
            Some(creation) => Some(Lifetime::until(now, kept.ends().unwrap_or(creation.ends()))),
            None => lasts.map(|lasts| Lifetime::new(now, lasts)),
        };
        let session = Session::new(id.clone(), groups.collect(), phantoms, lifetime);
        let user = whose.caller().and_then(|caller| caller.user.clone());
        let session = session.with_key(kept.key()).of_user(user);
        let session = session.with_creation(whose.creation().cloned());
        let session = session.after(kept.before);
        session.limit_idle(config.ca.idle);
        kept.restore(&session);
        Arc::new(session)
    }

    fn ca(
        &self,
        config: &Config,
        (session, caller): (&Arc<Session>, Option<Arc<Caller>>),
        kept: &StoredSession,
    ) -> Result<Arc<SessionCa>, Failure> {
        let settings = CaSettings {
            lifetime: config.ca.lifetime,
            // Not constrained to the first hosts: a reload may add others (ADR 34), and a kept CA
            // outlives its configuration (ADR 33).
            constraints: None,
            leaves_kept: config.limits.cached_certificates,
            ..CaSettings::default()
        };
        let (shared, asks) = (self.shared.clone(), session.clone());
        let is_reached = Arc::new(move |host: &Host| {
            let snapshot = shared.look();
            let policies = snapshot.policies.generation();
            let asker = Requester::of(&asks, caller.as_deref(), policies.number());
            policies.may_resolve(asker.principal(), host)
        });
        let ca = SessionCa::again(session.id(), &settings, kept.ca().as_ref(), is_reached)
            .map_err(|error| generation::failed("the session's CA", &error))?;
        let ca = Arc::new(ca);
        self.authorities.lock().push(Arc::downgrade(&ca));
        Ok(ca)
    }

    /// Applies a configuration's settings for leaves to the CAs of live sessions.
    pub fn change_authorities(&self, config: &Config) {
        let (lifetime, most) = (config.ca.lifetime, config.limits.cached_certificates);
        self.authorities.lock().retain(|ca| {
            let live = ca.upgrade();
            live.map(|ca| ca.change(lifetime, most)).is_some()
        });
    }

    /// Issues the phantoms of a session in a generation.
    async fn issue(
        &self,
        snapshot: &Snapshot,
        id: &SessionId,
        kept: &mut StoredSession,
    ) -> Result<Phantoms, Failure> {
        let key = kept.key();
        let held = |name: &CredentialName| self.logins.may_hold(id, name);
        let issued = snapshot.credentials.issue(id, &key, &mut kept.shapes, held);
        let what = "the session's phantoms cannot be issued";
        let (phantoms, over) = issued
            .await
            .map_err(|error| unissued(what.to_owned(), &error))?;
        for (login, why) in over {
            let text = format!("gateway: the login `{login}` is over: {}", safe(&why));
            note(text);
        }
        Ok(phantoms)
    }

    /// Issues the phantoms that a session lacks in the next generation, and stores their shapes.
    ///
    /// # Errors
    /// As [`App::open`]. The session is unchanged.
    pub async fn issue_next(
        &self,
        before: &Snapshot,
        next: &Snapshot,
        session: &Session,
    ) -> Result<Option<Phantoms>, Failure> {
        let keeper = self.keeper().await?;
        for _ in 0..TRIES {
            let mut kept = keeper.recall(session.id()).await?;
            let (next, before) = (&next.credentials, &before.credentials);
            let held = |name: &CredentialName| self.logins.may_hold(session.id(), name);
            let issued = next
                .issue_next(before, session, &mut kept.shapes, held)
                .await;
            let issued = issued.map_err(|error| {
                let what = format!("session `{}` cannot have its phantoms", session.id());
                unissued(what, &error)
            })?;
            // Nothing more is stored for a session that ended for good.
            let is_past = session.is_over() && !session.was_idle();
            if is_past || keeper.keep_shapes(&kept).await? {
                return Ok(issued);
            }
        }
        Err(too_many())
    }

    /// Stores the status that an operator gave a session, for the next start.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be written.
    pub async fn keep_status(
        &self,
        id: &SessionId,
        status: SessionStatus,
    ) -> Result<Vec<Proven>, Failure> {
        self.keeper().await?.keep_status(id, status).await
    }

    /// Ends the log and the exports, once the gateway serves nothing any more.
    pub fn close(&self) {
        self.shared.tell_suppressed(true);
        self.shared.log.close();
        self.exports.end();
    }

    /// Returns the verifier of the tokens of live sessions.
    pub fn token_verifier(&self) -> TokenVerifier {
        let live = self.listening.live().clone();
        let root_of = move |id: &SessionId| {
            let (session, _) = live.get(id)?;
            Some((session.key()?.of_tokens(), session.before()))
        };
        TokenVerifier::new(root_of, self.shared.tokens.clone())
    }

    /// Returns the store of the sessions.
    ///
    /// # Errors
    /// A [`Failure`] if it cannot be opened.
    pub async fn keeper(&self) -> Result<&SessionStore, Failure> {
        let open = || {
            let (keeping, asks) = (self.keeping.clone(), &self.listening.asks().asks);
            SessionStore::open(&self.config, keeping, &self.shared, asks)
        };
        self.keeper.get_or_try_init(open).await
    }
}

/// Describes why phantoms were not issued, with advice for where the secret is kept.
fn unissued(what: String, error: &IssueFailure) -> Failure {
    let variable = match error {
        // The reason says what to do.
        IssueFailure::Unavailable { cause, .. } if matches!(cause.cause, StoreError::Unsafe(_)) => {
            return Failure::new(what).because(chain(error));
        }
        IssueFailure::Unavailable { cause, .. } => cause.reference.env_name(),
        IssueFailure::Phantom(_) => None,
    };
    let later = "with `shape = \"…\"` the secret need not be looked at now";
    let next = variable.map_or_else(
        || format!("check the credential's `from`; {later}"),
        // A running process gets no new variable.
        |name| {
            format!(
                "set the variable `{name}` to the credential alone, and start anew; or keep it in a file: `file:/PATH`"
            )
        },
    );
    Failure::new(what).because(chain(error)).next(next)
}

fn log(config: &Config, runs_as: RunMode) -> Result<Log, Failure> {
    let path = match &config.audit.path {
        Some(path) => path.clone(),
        None => default_log(runs_as)?,
    };
    Log::open(&log_settings(config, path.clone()))
        .context(format!(
            "the audit log `{}` cannot be opened",
            path.display()
        ))
        .advise("name another file with `--audit FILE` or `[audit] path`")
}

/// The settings of the log at a path.
pub fn log_settings(config: &Config, path: PathBuf) -> audit::Settings {
    audit::Settings {
        path,
        sync: config.audit.sync,
        rotate_bytes: config.audit.rotate_bytes,
        allowance: config.audit.allowance,
    }
}

/// Returns a new path for each run, since one process writes one chain. The logs of `serve` have
/// their own names, because `exec` removes old logs of `exec`.
fn default_log(runs_as: RunMode) -> Result<PathBuf, Failure> {
    let directory = config::state::audit_directory().ok_or_else(|| {
        Failure::no_state_folder("there is no place for the audit log")
            .next("name one: `--audit FILE`")
    })?;
    let now = time::OffsetDateTime::now_utc();
    let prefix = match runs_as {
        RunMode::Serve => "serve-",
        RunMode::Exec => "",
    };
    let name = format!(
        "{prefix}{}{:02}{:02}T{:02}{:02}{:02}-{}.jsonl",
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

/// Returns the failure that a name belongs to a session which an operator created.
pub fn made_by_operator(id: &SessionId) -> Failure {
    let what = format!("the name `{id}` is another session's");
    Failure::usage(what)
        .because("a session that `gateway session create` made is no listener's and no caller's")
        .next("write another name")
}

fn too_many() -> Failure {
    Failure::new("the session cannot be kept")
        .because("other gateways changed its record again and again")
}

const FRESH: &str = "`--fresh` begins it anew";
/// How often a session is reopened because another process changed its record meanwhile.
const TRIES: usize = 8;
