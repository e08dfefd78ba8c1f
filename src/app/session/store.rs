//! Stores sessions between two starts of the gateway: the phantoms of each, and the CAs of sessions
//! with listeners.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use crate::fleet::Fleet;
use crate::project::{project_folders, project_id};
use crate::session::key::{KeyError, KeyPlaces};
use crate::session::recalled::{OpenedSession, StoredSession, creation, drawn, lives};
use crate::session::renewal::{Followed, News, SessionRenewal};
use crate::{Context as _, Failure, note};
use gateway_config::Config;
use gateway_control::Proven;
use gateway_credential::KeptCredentials;
use gateway_intercept::SessionCa;
use gateway_names::{CredentialName, SessionId};
use gateway_server::{SessionRequest, SharedState};
use gateway_session::phantom::{Issue, KeptShapes, Phantom, PhantomKey};
use gateway_session::{Creation, EndReason, Session, SessionStatus};
use gateway_spend::Ledger;
use gateway_state::{
    KeptCertificate, KeptLogin, KeptSecrets, KeptTemporary, Revision, SealingKey, SessionDecision,
    SessionRecord, SqliteState, StateError, StateFile, StateStore, unix,
};

/// The sessions that outlive the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Persistence {
    /// None, as in a demo.
    Nothing,
    /// The sessions of listeners, with their CAs.
    Listeners,
    /// The phantoms of commands that this user runs in this folder.
    Project(PathBuf),
}

/// The store of sessions, and the key that unseals its records.
pub struct SessionStore {
    store: Arc<dyn StateStore>,
    key: Arc<SealingKey>,
    keeping: Persistence,
    /// Whether the next start knows the sessions. Without a place for the state, it does not.
    outlast: bool,
    fresh: bool,
    /// The sessions that this process opened, which are not fresh any more.
    begun: Mutex<HashSet<SessionId>>,
    /// The user that the command runs as, if it is another.
    user: Option<String>,
    renewal: SessionRenewal,
    /// The fleet that this gateway is a replica of.
    fleet: Option<Arc<Fleet>>,
    /// The sealed forms of the temporary credentials that sessions here have.
    temporary: Mutex<HashSet<KeptTemporary>>,
    /// Whether the phantoms of other sessions were requested.
    recognises: AtomicBool,
}

impl SessionStore {
    /// Opens the state of a configuration.
    ///
    /// If no place for it is configured and the default cannot be used, sessions are kept in
    /// memory, with a notice. `serve` does so only if there is no state: in one that it cannot
    /// read, a session may be ended or paused.
    ///
    /// # Errors
    /// Returns a [`Failure`] if existing state cannot be used, or its key is lost.
    pub async fn open(
        config: &Config,
        keeping: Persistence,
        state: &Arc<SharedState>,
        asks: &mpsc::Sender<SessionRequest>,
    ) -> Result<Self, Failure> {
        let asks = (keeping == Persistence::Listeners).then_some(asks);
        let with = |store: Arc<dyn StateStore>, key, outlast, fleet: Option<Arc<Fleet>>| Self {
            renewal: SessionRenewal::new(
                store.clone(),
                state.clone(),
                asks.cloned(),
                fleet.is_some(),
            ),
            fleet,
            temporary: Mutex::default(),
            store,
            key,
            keeping: keeping.clone(),
            outlast,
            fresh: config.state.fresh,
            begun: Mutex::default(),
            user: config.sandbox.user.clone(),
            recognises: AtomicBool::new(false),
        };
        let in_memory = |outlast| {
            if state.budgets.get().is_none() && !config.budgets.is_empty() {
                return Err(no_budgets());
            }
            let (store, key) = SqliteState::in_memory()
                .map_err(|error| Failure::of("no state can be kept in memory", &error))?;
            Ok(with(Arc::new(store), key, outlast, None))
        };
        let listens = keeping == Persistence::Listeners;
        let count = |store: Arc<dyn StateStore>| {
            // Every command's session has the same name.
            let run = (!listens).then(|| {
                let begun = unix(SystemTime::now());
                format!("{}-{begun}", std::process::id())
            });
            let ledger = Ledger::new(store, config.budgets.clone(), run);
            let _ = state.budgets.set(Arc::new(ledger));
        };
        if keeping == Persistence::Nothing {
            return in_memory(true);
        }
        if let Some(settings) = &config.state.fleet {
            if !listens {
                return Err(Failure::usage("`[state] url` is for `gateway serve`")
                    .because("a command's sessions are of one machine")
                    .next("leave `url` out of the file of `exec`"));
            }
            let (fleet, key) = Fleet::open(config, settings).await?;
            count(fleet.store.clone());
            return Ok(with(fleet.store.clone(), key, true, Some(fleet)));
        }
        let path = config.state_file(listens);
        let nowhere = || std::io::Error::other("no HOME or XDG_STATE_HOME names a folder").into();
        let opened = path.as_ref().ok_or_else(nowhere);
        let opened = opened.and_then(|path| StateFile::open_anew(path));
        let path = path.unwrap_or_default();
        let error = match opened {
            Ok((store, aside)) => {
                note_set_aside(aside);
                let folder = path.parent().unwrap_or(Path::new("/"));
                // `--fresh` begins one project of `exec` anew, and every session of a `serve`.
                let forgets = config.state.fresh && listens;
                return match KeyPlaces::new(config, folder).unlock(store, forgets).await {
                    Ok((store, key)) => {
                        let store = Arc::new(store);
                        count(store.clone());
                        Ok(with(store, key, true, None))
                    }
                    Err(KeyError::Lost(failure)) if !listens => {
                        note_run_alone(&failure, &path);
                        count(budgets_alone(&path)?);
                        in_memory(true)
                    }
                    Err(KeyError::Lost(failure) | KeyError::Unusable(failure)) => Err(failure),
                };
            }
            Err(error) => error,
        };
        let is_usual = config.state.path.is_none() && error.is_no_place();
        if is_usual && (!listens || is_absent(&path)) {
            note(format!(
                "gateway: phantoms and CAs will be others at the next start: no place to keep them ({error})"
            ));
            return in_memory(false);
        }
        let what = format!("the state in {} cannot be used", path.display());
        let remedy = if error.is_no_place() {
            "let `HOME` or `XDG_STATE_HOME` name a folder of this user, or name the state: `[state] path`".to_owned()
        } else {
            error.remedy(&path)
        };
        Err(Failure::of(what, &error).next(remedy))
    }

    /// Returns the fleet that this gateway is a replica of.
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.fleet.as_ref()
    }

    /// Applies what others decided, as [`SessionRenewal::round`] does.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be read.
    pub async fn round(&self, at: &mut Followed) -> Result<News, StateError> {
        self.renewal.round(at).await
    }

    /// Returns the stored state of a session, or a new one to be stored.
    ///
    /// # Errors
    /// Returns a [`Failure`] if its record cannot be read.
    pub async fn recall(&self, session: &SessionId) -> Result<StoredSession, Failure> {
        let (id, record) = self
            .find(session)
            .await
            .map_err(|error| unreadable(&error))?;
        let known = record.as_ref();
        let (paused, before) = known.map_or((false, 0), |known| (known.paused, known.before));
        let is_decided = |record: &SessionRecord| record.ended.is_some() && !record.was_idle;
        // Sessions that operators created before a fresh start have ended, so this one is later.
        let is_later = |record: &SessionRecord| record.created.is_some();
        let stays =
            |record: &SessionRecord| !self.is_fresh(&id) || is_decided(record) || is_later(record);
        let Some(record) = record.filter(stays) else {
            return StoredSession::new(id, paused, before);
        };
        let secrets = record.open(&self.key).map_err(|error| unreadable(&error))?;
        let shapes = KeptShapes::read(&record.shapes).map_err(|error| unreadable(&error))?;
        Ok(StoredSession {
            id,
            record: Some(record),
            secrets,
            shapes,
            paused,
            before,
        })
    }

    /// Returns the live sessions that operators created, unless they are a fleet's, which wake
    /// where their tokens are used. If all begin anew, these end.
    ///
    /// # Errors
    /// Returns a [`Failure`] if their records cannot be read, or they cannot be ended.
    pub async fn created(&self) -> Result<Vec<(SessionId, Creation)>, Failure> {
        if self.fresh {
            self.begin_anew().await?;
        }
        if self.fresh || self.fleet.is_some() {
            return Ok(Vec::new());
        }
        let records = self.store.unended().await;
        let records = records.map_err(|error| unreadable(&error))?.into_iter();
        let read =
            |record: SessionRecord| Some((SessionId::new(&record.id).ok()?, creation(&record)?));
        Ok(records.filter_map(read).collect())
    }

    /// Returns the request by which an operator created a live session.
    ///
    /// # Errors
    /// Returns a [`Failure`] if its record cannot be read.
    pub async fn creation(&self, id: &SessionId) -> Result<Option<Creation>, Failure> {
        let record = self.store.session(id).await;
        let record = record.map_err(|error| unreadable(&error))?;
        Ok(record.as_ref().and_then(creation))
    }

    /// Revokes the means of access to every live session, even to those that this process does not
    /// open: operators' sessions end, and all others get another seed, and another CA when opened.
    async fn begin_anew(&self) -> Result<(), Failure> {
        if !self.keeps_ca() {
            return Ok(());
        }
        let records = self.store.unended().await;
        let records = records.map_err(|error| unreadable(&error))?.into_iter();
        let all = records.map(|record| self.anew(record));
        if self.decide(all.collect::<Result<_, _>>()?).await? {
            Ok(())
        } else {
            Err(Failure::new("not every session begins anew")
                .because("another process changed one meanwhile")
                .next("start again with `--fresh`"))
        }
    }

    fn anew(&self, mut record: SessionRecord) -> Result<SessionDecision, Failure> {
        if record.created.is_some() {
            return Ok(SessionDecision::End {
                session: SessionId::new(&record.id).map_err(|error| unreadable(&error))?,
                at: unix(SystemTime::now()),
                was_idle: false,
                for_good: false,
            });
        }
        record.certificate = None;
        let sealed = record.seal(&self.key, &drawn()?);
        sealed.context("the session cannot be sealed")?;
        Ok(SessionDecision::Reissue(record))
    }

    /// Moves the end of a session. Returns whether it had not been ended.
    ///
    /// # Errors
    /// Returns a [`Failure`] if this cannot be written.
    pub async fn extend(&self, id: &SessionId, ends: SystemTime) -> Result<bool, Failure> {
        let (session, ends) = (id.clone(), unix(ends));
        self.decide(vec![SessionDecision::Extend { session, ends }])
            .await
    }

    /// Stores sessions that were opened, all or none. Returns whether it did: if another process
    /// stored one first, the caller recalls that one.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the record cannot be written.
    pub async fn keep(&self, all: &[OpenedSession]) -> Result<bool, Failure> {
        let decisions = all
            .iter()
            .map(|one| self.decisions(&one.kept, &one.session, &one.ca));
        let decisions: Vec<_> = decisions.collect::<Result<_, _>>()?;
        let is_kept = self.decide(decisions.concat()).await?;
        if is_kept {
            let ids = all.iter().map(|one| one.kept.id.clone());
            self.begun.lock().extend(ids);
        }
        Ok(is_kept)
    }

    /// Stores the shapes that a live session's phantoms gained. Returns as [`SessionStore::keep`].
    ///
    /// # Errors
    /// As [`SessionStore::keep`].
    pub async fn keep_shapes(&self, kept: &StoredSession) -> Result<bool, Failure> {
        self.decide(kept.new_shapes()).await
    }

    /// Stores a change of a login by a session of `serve`. Returns whether the session lives.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be written.
    pub async fn keep_login(
        &self,
        session: &SessionId,
        login: &CredentialName,
        kept: KeptLogin,
    ) -> Result<bool, Failure> {
        if !self.keeps_ca() {
            return Ok(true);
        }
        let (session, login) = (session.clone(), login.clone());
        self.decide(vec![SessionDecision::Login {
            session,
            login,
            kept,
        }])
        .await
    }

    /// Returns the changes of logins by a live session of `serve`.
    ///
    /// # Errors
    /// Returns a [`Failure`] if its record cannot be read.
    pub async fn logins(
        &self,
        session: &SessionId,
    ) -> Result<BTreeMap<String, KeptLogin>, Failure> {
        if !self.keeps_ca() {
            return Ok(BTreeMap::new());
        }
        let record = self.recall(session).await?.record;
        Ok(record
            .filter(lives)
            .map_or_else(BTreeMap::new, |known| known.logins))
    }

    /// Stores temporary credentials that a session of `serve` was issued. Returns whether it lives.
    ///
    /// # Errors
    /// Returns a [`Failure`] if they cannot be sealed or written.
    pub async fn keep_temporary(
        &self,
        session: &SessionId,
        kept: &KeptCredentials,
    ) -> Result<bool, Failure> {
        if !self.keeps_ca() {
            return Ok(true);
        }
        let secrets = self.recall(session).await?.secrets;
        let plain = (unix(kept.expires), &kept.content[..]);
        let sealed = KeptTemporary::seal(&self.key, (session, &secrets), plain);
        let kept = sealed.context("temporary credentials cannot be sealed")?;
        self.temporary.lock().insert(kept.clone());
        let decision = SessionDecision::Temporary {
            session: session.clone(),
            kept,
            at: unix(SystemTime::now()),
        };
        let Some(revision) = self.revised(vec![decision]).await? else {
            return Ok(false);
        };
        // Its workload may use them through another replica at once.
        if let Some(fleet) = &self.fleet {
            let _ = tokio::time::timeout(TOLD_WITHIN, fleet.prove(revision)).await;
        }
        Ok(true)
    }

    /// Stores labels that a session of `serve` is about to get. Returns whether it lives.
    ///
    /// # Errors
    /// Returns a [`Failure`] if they cannot be written.
    pub async fn keep_labels(
        &self,
        session: &SessionId,
        labels: Vec<String>,
    ) -> Result<bool, Failure> {
        if !self.keeps_ca() {
            return Ok(true);
        }
        let session = session.clone();
        self.decide(vec![SessionDecision::Label { session, labels }])
            .await
    }

    /// Returns a session's stored temporary credentials. Those of its predecessor of the same name
    /// do not open any more.
    pub fn temporary(&self, kept: &StoredSession) -> Vec<Zeroizing<Vec<u8>>> {
        let all = kept.record.iter().flat_map(|record| &record.temporary);
        self.temporary.lock().extend(all.clone().cloned());
        let opened = all.filter_map(|one| one.open(&self.key, (&kept.id, &kept.secrets)).ok());
        opened.collect()
    }

    /// Returns a session's temporary credentials that another replica stored since.
    ///
    /// # Errors
    /// Returns a [`Failure`] if its record cannot be read.
    pub async fn newer_temporary(
        &self,
        id: &SessionId,
    ) -> Result<Vec<Zeroizing<Vec<u8>>>, Failure> {
        let mut kept = self.recall(id).await?;
        let now = unix(SystemTime::now());
        if let Some(record) = &mut kept.record {
            let mut known = self.temporary.lock();
            known.retain(|one| one.expires > now);
            record.temporary.retain(|one| !known.contains(one));
        }
        Ok(self.temporary(&kept))
    }

    /// Stores the status that an operator gave a session.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be written, or if the next start will not know of a pause
    /// or an end.
    pub async fn keep_status(
        &self,
        id: &SessionId,
        status: SessionStatus,
    ) -> Result<Vec<Proven>, Failure> {
        if !self.keeps_ca() {
            return Ok(Vec::new());
        }
        let session = id.clone();
        let decision = match status {
            SessionStatus::Active => SessionDecision::Resume(session),
            SessionStatus::Paused => SessionDecision::Pause(session),
            SessionStatus::Ended(_) => SessionDecision::End {
                session,
                at: unix(SystemTime::now()),
                was_idle: status == SessionStatus::Ended(EndReason::Idle),
                for_good: status == SessionStatus::Ended(EndReason::ForGood),
            },
        };
        let revised = self.revised(vec![decision]).await?;
        if revised.is_some() && status == SessionStatus::Paused {
            self.renewal.halted(id);
        }
        match (revised, &self.fleet) {
            (Some(revision), Some(fleet)) => fleet.prove(revision).await,
            (Some(_), None) if !self.outlast && status != SessionStatus::Active => Err(
                Failure::new("it holds for this process alone, which has no state")
                    .next("give the state a place: `[state] path`"),
            ),
            (Some(_), None) => Ok(Vec::new()),
            (None, _) => Err(Failure::new("the session was ended, and that is kept")),
        }
    }

    /// Stores when sessions end, if they are not renewed any more.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be written.
    pub async fn keep_ends(
        &self,
        sessions: &[Arc<Session>],
        ends: SystemTime,
    ) -> Result<(), Failure> {
        for session in sessions.iter().filter(|_| self.keeps_ca()) {
            let (session, ends) = (session.id().clone(), unix(ends));
            // A session that was ended elsewhere refuses this, and stays ended.
            self.decide(vec![SessionDecision::Extend { session, ends }])
                .await?;
        }
        Ok(())
    }

    async fn decide(&self, decisions: Vec<SessionDecision>) -> Result<bool, Failure> {
        Ok(decisions.is_empty() || self.revised(decisions).await?.is_some())
    }

    /// Applies decisions. Returns their revision; `None` if one is refused.
    async fn revised(&self, decisions: Vec<SessionDecision>) -> Result<Option<Revision>, Failure> {
        match self.store.decide(decisions).await {
            Ok(revision) => Ok(Some(revision)),
            Err(StateError::Refused(_)) => Ok(None),
            Err(error) => Err(Failure::of("the session cannot be kept", &error)),
        }
    }

    fn is_fresh(&self, id: &SessionId) -> bool {
        self.fresh && !self.begun.lock().contains(id)
    }

    /// Renews a session as long as this process lives, if it has a record of its own to renew.
    pub fn tend(&self, kept: &StoredSession, session: &Arc<Session>) {
        // An idle session may be resumed.
        let lasts = matches!(kept.ended(), None | Some(EndReason::Idle));
        if session.lifetime().is_some() && lasts {
            self.renewal.add(kept.id.clone(), session);
        }
    }

    /// Returns the stored phantoms of other sessions, each with the id of its record. Only the
    /// first call does: sessions that are opened later are known then.
    pub async fn others(&self, own: &StoredSession) -> Vec<(SessionId, Vec<Phantom>)> {
        if self.recognises.swap(true, Ordering::Relaxed) {
            return Vec::new();
        }
        let records = self.store.sessions(RECOGNISED).await.unwrap_or_default();
        let others = records.iter().filter(|record| record.id != own.id.as_str());
        // Without a record that cannot be opened, only an explanation is lost.
        others.filter_map(|record| self.phantoms(record)).collect()
    }

    fn phantoms(&self, record: &SessionRecord) -> Option<(SessionId, Vec<Phantom>)> {
        let secrets = record.open(&self.key).ok()?;
        let key = PhantomKey::from_bytes(*secrets.seed);
        let mut issue = Issue::new(&key);
        let shapes = KeptShapes::read(&record.shapes).ok()?;
        let phantoms = shapes
            .all()
            .filter_map(|(credential, shape)| issue.issue(credential, shape, |_| false).ok())
            .collect();
        Some((SessionId::new(&record.id).ok()?, phantoms))
    }

    async fn find(
        &self,
        session: &SessionId,
    ) -> Result<(SessionId, Option<SessionRecord>), StateError> {
        let Persistence::Project(folder) = &self.keeping else {
            let record = match self.store.session(session).await {
                // A fresh session ignores the damaged record.
                Err(StateError::Changed | StateError::Damaged(_)) if self.is_fresh(session) => None,
                read => read?,
            };
            return Ok((session.clone(), record));
        };
        let mut own = None;
        for folder in project_folders(folder) {
            let id = project_id(folder, self.user.as_deref());
            match self.store.session(&id).await {
                Ok(None) => drop(own.get_or_insert(id)),
                Ok(record) => return Ok((id, record)),
                // A fresh session ignores the damaged record.
                Err(StateError::Changed | StateError::Damaged(_)) if self.is_fresh(&id) => {
                    return Ok((id, None));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((own.unwrap_or_else(|| session.clone()), None))
    }

    fn decisions(
        &self,
        kept: &StoredSession,
        session: &Session,
        ca: &SessionCa,
    ) -> Result<Vec<SessionDecision>, Failure> {
        let Some(record) = &kept.record else {
            let record = self.record(kept, session, ca)?;
            return Ok(vec![
                if self.is_fresh(&kept.id) && session.creation().is_none() {
                    SessionDecision::Replace(record)
                } else {
                    SessionDecision::Create(record)
                },
            ]);
        };
        if kept.ended().is_some() && self.keeps_ca() {
            return Ok(Vec::new());
        }
        let mut decisions = kept.new_shapes();
        let pem = record.certificate.as_ref().map(|kept| kept.pem.as_str());
        let is_another = self.keeps_ca() && pem != Some(ca.certificate_pem().as_str());
        let idle = session.idle().map(|idle| idle.as_secs());
        if is_another || record.parents != groups(session) || record.idle != idle {
            decisions.push(SessionDecision::Reissue(self.record(kept, session, ca)?));
        }
        // The end of an operator's session is in its record.
        let renewed = session.lifetime().filter(|_| session.creation().is_none());
        if let (Some(lifetime), true) = (renewed, self.keeps_ca()) {
            decisions.push(SessionDecision::Extend {
                session: kept.id.clone(),
                ends: unix(lifetime.ends()),
            });
        }
        Ok(decisions)
    }

    fn record(
        &self,
        kept: &StoredSession,
        session: &Session,
        ca: &SessionCa,
    ) -> Result<SessionRecord, Failure> {
        let ca = self.keeps_ca().then(|| ca.keep()).flatten();
        let named = |(name, shape): (&CredentialName, &gateway_session::phantom::Shape)| {
            (name.to_string(), shape.to_text())
        };
        let mut record = SessionRecord {
            version: SessionRecord::VERSION,
            id: kept.id.to_string(),
            parents: groups(session),
            made: unix(SystemTime::now()),
            ends: session.lifetime().map(|lifetime| unix(lifetime.ends())),
            idle: session.idle().map(|idle| idle.as_secs()),
            was_idle: false,
            for_good: false,
            before: kept.before,
            paused: kept.paused,
            ended: None,
            created: session.creation().map(Creation::text),
            logins: BTreeMap::new(),
            temporary: Vec::new(),
            labels: session
                .labels()
                .iter()
                .flat_map(|all| all.iter())
                .map(ToString::to_string)
                .collect(),
            shapes: kept.shapes.all().map(named).collect(),
            certificate: ca.as_ref().map(|ca| KeptCertificate {
                pem: ca.pem.clone(),
                from: ca.from,
                to: ca.to,
            }),
            sealed: Vec::new(),
        };
        let secrets = KeptSecrets {
            seed: kept.secrets.seed.clone(),
            ca_key: ca.map(|ca| ca.key).unwrap_or_default(),
        };
        let sealed = record.seal(&self.key, &secrets);
        sealed.context("the session cannot be sealed")?;
        Ok(record)
    }

    fn keeps_ca(&self) -> bool {
        self.keeping == Persistence::Listeners
    }
}

fn groups(session: &Session) -> Vec<String> {
    session
        .last_groups()
        .iter()
        .map(|group| group.to_string())
        .collect()
}

/// Whether there is certainly no file at a path.
fn is_absent(path: &Path) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    path.symlink_metadata()
        .is_err_and(|error| matches!(error.kind(), NotFound | NotADirectory))
}

/// Opens a state whose key is lost, for its budgets, which are not sealed.
fn budgets_alone(path: &Path) -> Result<Arc<dyn StateStore>, Failure> {
    let unusable = |error: StateError| Failure::of("the budgets cannot be counted", &error);
    let (_, key) = SqliteState::in_memory().map_err(unusable)?;
    let mark = key.mark("none").context("the budgets cannot be counted")?;
    let file = StateFile::open(path).map_err(unusable)?;
    Ok(Arc::new(file.unlock(key, &mark)))
}

/// Why budgets need a state that outlasts the process.
pub fn no_budgets() -> Failure {
    Failure::new("no budget can be counted")
        .because("the state is in memory alone, so a restart would give each budget anew")
        .next("give the state a place: `[state] path`; with `exec`, one that the command may not write")
}

/// Reports that the state of an earlier version was set aside, if it was.
fn note_set_aside(aside: Option<PathBuf>) {
    if let Some(aside) = aside {
        note(format!(
            "gateway: the sessions of an earlier version are set aside in {}: all begin anew, with \
             new phantoms and new CAs",
            aside.display()
        ));
    }
}

/// Reports that this run has its own phantoms, since the stored ones cannot be opened. A login
/// without the key ring must not stop a command.
fn note_run_alone(failure: &Failure, state: &Path) {
    let why = failure.why.as_deref().unwrap_or(&failure.what);
    note(format!(
        "gateway: the phantoms of this run are its own: the key of {} cannot be had ({why}). Unlock the key ring or give the key back; if it is lost for good, remove that file",
        state.display()
    ));
}

fn unreadable(error: &dyn std::error::Error) -> Failure {
    Failure::of("the session that is kept cannot be read", error)
        .next("start with `--fresh`: the workload then needs its new phantoms and CA")
}

/// How long the answer to a workload waits for other replicas.
const TOLD_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);
/// How many other sessions' phantoms are recognised, the latest first.
const RECOGNISED: usize = 128;
