//! Reloads: reads the configuration anew, and puts it in force as a whole or not at all.

pub mod fixed;
pub mod flag_policies;
pub mod generation;
pub mod login_capture;
pub mod source;
pub mod watch_list;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::client_environment::OwnPages;
use crate::exports::ExportChange;
use crate::listen::change::ListenerChange;
use crate::listen::publish::Publication;
use crate::reload::login_capture::LoginCapture;
use crate::reload::source::{ConfigSource, CurrentConfig, LoadedConfig, ReloadOutcome, RunMode};
use crate::session::store::no_budgets;
use crate::{App, Failure, log_settings};
use gateway_config::Config;
use gateway_credential::login::Login;
use gateway_files as files;
use gateway_grant as grant;
use gateway_names::CredentialName;
use gateway_policy::{Operators, Source};
use gateway_server::Snapshot;
use gateway_session::phantom::Phantoms;
use gateway_session::{Lifetime, Moment, Session};

/// A configuration that was read and checked, with every step done that can fail. Nothing is in
/// force yet.
struct PreparedChange {
    config: Arc<Config>,
    next: Snapshot,
    /// The phantoms of live sessions.
    renewed: Vec<(Arc<Session>, Phantoms)>,
    listeners: ListenerChange,
    operators: Operators,
    exports: ExportChange,
    publication: Publication,
}

impl App {
    /// Sets where the configuration is read again. Without this, it cannot be reloaded.
    #[must_use]
    pub fn reloading_from(self, source: ConfigSource) -> Arc<Self> {
        // All are set once, where the program is assembled.
        let _ = self.reloading.source.set(source);
        let app = Arc::new(self);
        let captures = LoginCapture(Arc::downgrade(&app));
        let _ = app.shared.captures.set(Arc::new(captures));
        let _ = app.shared.pages.set(&OwnPages);
        app
    }

    /// Reads the configuration again and puts it in force as one generation. The flags stay.
    ///
    /// It is read and checked off the data path, on its own thread. It applies to the next request,
    /// and requests under way are judged again.
    ///
    /// # Errors
    /// Returns a [`Failure`] with the reasons, if any part is refused. Nothing has changed then.
    pub async fn reload(self: &Arc<Self>) -> Result<ReloadOutcome, Failure> {
        self.reload_granting(None).await
    }

    /// Does the same after an operator granted a rule here, which overrides earlier refusals by a
    /// person.
    ///
    /// # Errors
    /// As [`App::reload`].
    pub async fn reload_granting(
        self: &Arc<Self>,
        rule: Option<Source>,
    ) -> Result<ReloadOutcome, Failure> {
        let app = self.clone();
        let reloading = async move {
            let mut latest = app.reloading.latest.lock().await;
            loop {
                if let Some(applied) = app.reload_here(&mut latest, rule.as_slice()).await? {
                    return Ok(applied);
                }
            }
        };
        let reloaded = self.beside(reloading).await;
        self.shared.metrics.reload(reloaded.is_ok());
        let generation = self.shared.current().number();
        reloaded.map_err(|failure| failure.of_a_change(generation))
    }

    /// Removes expired granted rules from those in force. It reads nothing, so no change in a file
    /// or a store can interfere.
    pub async fn end_granted(self: &Arc<Self>) -> Result<(), Failure> {
        let app = self.clone();
        let ending = async move {
            let read = &mut app.reloading.latest.lock().await.read;
            let name = read.config.granted.as_ref();
            let name = name.map(|path| path.display().to_string());
            let mut granted = Vec::new();
            for source in &mut read.sources {
                if name.as_ref() == Some(&source.name) {
                    grant::leave_out_ended(source);
                    granted.push(source.clone());
                }
            }
            let captured = app.captured(&read.resolved.stored);
            let next = generation::with_logins(&app.shared.current(), read, &captured)?;
            app.shared.replace(next);
            app.grants.follow(&granted);
            Ok(())
        };
        self.beside(ending).await
    }

    /// Makes a change off the data path, on a thread of its own.
    pub async fn beside<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let (draining, runtime) = (self.shared.draining.clone(), Handle::current());
        // A store may take long. The gateway's end does not wait for it.
        let run = async move {
            tokio::select! {
                changed = change => changed,
                () = draining.cancelled() => Err(Failure::new("the gateway stops")),
            }
        };
        let changed = spawn_blocking(move || runtime.block_on(run)).await;
        changed.unwrap_or_else(|error| {
            Err(Failure::new("the change broke off").because(error.to_string()))
        })
    }

    /// Returns the bound addresses, each with its session. A reload that waits for a store does not
    /// delay this.
    pub fn listeners(&self) -> Vec<(String, String)> {
        let open = self.listening.open().into_iter().map(|open| open.known);
        open.map(|one| (one.address.to_string(), one.session.to_string()))
            .collect()
    }

    /// Reloads whenever a file of the configuration changes, for ever. `tell` gets each outcome.
    pub async fn watch(self: Arc<Self>, tell: impl Fn(Result<ReloadOutcome, Failure>)) {
        let mut changed = None;
        loop {
            let pause = match changed {
                None => LOOKED_AT_EVERY,
                Some(_) => LOOKED_AT_AGAIN,
            };
            tokio::time::sleep(pause).await;
            let (watched, known) = {
                let latest = self.reloading.latest.lock().await;
                (latest.watched.clone(), latest.files.clone())
            };
            // A file system that hangs must not delay the end of the program.
            let look = spawn_blocking(move || Some(watched.look()).filter(|now| *now != known));
            let now = look.await.unwrap_or_default();
            // A file that is still being written is left until it stays the same.
            if now.is_some() && now == changed {
                tell(self.reload().await);
            }
            changed = now;
        }
    }

    /// Reloads, unless a person meanwhile refuses what a granted rule would permit. Then nothing
    /// has changed, and it returns `None`.
    async fn reload_here(
        self: &Arc<Self>,
        latest: &mut CurrentConfig,
        allowed: &[Source],
    ) -> Result<Option<ReloadOutcome>, Failure> {
        let source = self.reloading.source.get().ok_or_else(|| {
            Failure::new("this command has no configuration that could be reloaded")
        })?;
        // The files are looked at before they are read, so a later change reloads again.
        latest.files = latest.watched.look();
        let (read, named) = files::traced(|| source.read());
        // If it is refused, a correction of a file that only it names reloads again.
        latest.also_watch(read.as_ref().ok().map(|(config, _)| config), named);
        let (config, resolved) = read?;
        self.refuse_fixed(source, &latest.read.config, &config, &resolved)?;
        self.revocations.refuse_own(&config)?;
        if !config.budgets.is_empty() && self.shared.budgets.get().is_none() {
            return Err(no_budgets());
        }
        let before = self.shared.current();
        let mut granted = generation::granted(&config)?;
        self.grants.withhold(&mut granted, allowed);
        let read = LoadedConfig {
            sources: generation::sources(&config, &resolved, &granted)?,
            config: Arc::new(config),
            resolved,
        };
        let old = latest.read.config.clone();
        let captured = self.captured(&read.resolved.stored);
        let next = generation::next(&before, &old, &read, &captured)?;
        let former = &latest.read.resolved.logins[..];
        let new = (read.config.clone(), &read.resolved.logins[..], former);
        let change = self.prepare_change(source, &before, next, new).await?;
        // This is the last step that can fail.
        self.keep(&change.listeners.opened).await?;
        let extended = if old.ca.lifetime == change.config.ca.lifetime {
            Vec::new()
        } else {
            self.extended(change.config.ca.lifetime).await?
        };
        if self.grants.withhold(&mut granted, allowed) {
            return Ok(None);
        }
        let mut applied = self.put_in_force(&before, change);
        self.grants.follow(&granted);
        for (session, lifetime) in extended {
            session.extend(lifetime);
        }
        latest.follow(read);
        let (new, old) = (self.shared.current(), before.clone());
        let (new, old) = (new.policies.current(), old.policies.current());
        let compared = spawn_blocking(move || new.widened(&old, COMPARED_WITHIN)).await;
        applied.widened = compared.unwrap_or_default();
        tokio::spawn(give_back(before, self.shared.current()));
        Ok(Some(applied))
    }

    /// Performs every step of a change that can fail.
    async fn prepare_change(
        &self,
        source: &ConfigSource,
        before: &Snapshot,
        next: Snapshot,
        (config, logins, former): (Arc<Config>, &[Login], &[Login]),
    ) -> Result<PreparedChange, Failure> {
        let exports = self.exports.prepare(&self.shared, &config)?;
        let operators = generation::operators(config.control.policy.as_ref())?;
        let renewed = self.phantoms(before, &next).await?;
        let mut listeners = ListenerChange::default();
        let mut publication = Publication::default();
        if source.runs_as == RunMode::Serve {
            listeners = self.change_listeners(&next, &config, None).await?;
            let bindings = next.credentials.bindings();
            let given = (&**bindings, logins, former);
            for (session, ca) in self.listening.sessions_of(&config, &listeners.opened) {
                let mut gained = renewed.iter();
                let gained = gained.find(|(renewed, _)| Arc::ptr_eq(renewed, &session));
                let held = session.phantoms();
                let phantoms = gained.map_or(&*held, |(_, phantoms)| phantoms);
                let certificate = publication.certificate(&config, &session, &ca);
                let written = certificate
                    .and_then(|()| publication.phantoms(&config, given, (&session, phantoms)));
                let known: Vec<_> = bindings.environment(&held).collect();
                let gains = !bindings
                    .environment(phantoms)
                    .all(|one| known.contains(&one));
                // A user who may write to the folder of a session's files must not be able to block
                // a change that gives the session nothing.
                let mut opened = listeners.opened.iter();
                let is_new = opened.any(|one| Arc::ptr_eq(&one.session, &session));
                match written {
                    Err(failure) if is_new || gains => return Err(failure),
                    Err(failure) => unpublished(&failure),
                    Ok(()) => {}
                }
            }
        }
        Ok(PreparedChange {
            config,
            next,
            renewed,
            listeners,
            operators,
            exports,
            publication,
        })
    }

    /// Puts a change in force. Reports files for workloads that cannot be replaced.
    fn put_in_force(self: &Arc<Self>, before: &Snapshot, change: PreparedChange) -> ReloadOutcome {
        let PreparedChange { config, next, .. } = change;
        change.publication.publish().iter().for_each(unpublished);
        let changed = self.exports.change(&self.shared, &config, change.exports);
        let (exports_begun, exports_ended) = changed;
        let applied = ReloadOutcome {
            generation: next.number(),
            gained: missing(&next, before),
            lost: missing(before, &next),
            added: change.listeners.added(),
            removed: change.listeners.removed(),
            exports_begun,
            exports_ended,
            widened: Vec::new(),
        };
        for (session, phantoms) in &change.renewed {
            session.hold(phantoms);
        }
        for session in self.shared.sessions.all() {
            session.limit_idle(config.ca.idle);
        }
        let holding = next.credentials.holding();
        holding.budget.resize(config.limits.max_buffered_total);
        holding.decoding.resize(config.limits.max_decoder_memory);
        if let Some(path) = self.shared.log.path() {
            let settings = log_settings(&config, path.to_owned());
            self.shared.log.change(&settings);
        }
        self.change_authorities(&config);
        if let Some(ledger) = self.shared.budgets.get() {
            ledger.replace(config.budgets.clone());
        }
        self.operators.store(Arc::new(change.operators));
        if let Some((held, (_, tls))) = self.control_tls.as_ref().zip(config.control.port.as_ref())
        {
            held.store(tls.door());
        }
        change.listeners.regroup(next.number());
        self.shared.replace(next);
        for opened in &change.listeners.opened {
            self.enter(opened);
        }
        let (left, closing) = change.listeners.apply(&self.shared, &self.listening);
        for session in left {
            tokio::spawn(self.clone().retire(session, closing.clone()));
        }
        applied
    }

    /// Stores the new end of the listeners' sessions, `lasts` from now if they are not renewed any
    /// more, and returns them.
    async fn extended(&self, lasts: Duration) -> Result<Vec<(Arc<Session>, Lifetime)>, Failure> {
        let mut sessions = self.shared.sessions.all();
        let is_renewed = |one: &Session| one.lifetime().is_some() && one.creation().is_none();
        sessions.retain(|session| !session.is_over() && is_renewed(session));
        let ends = SystemTime::now() + lasts;
        self.keeper().await?.keep_ends(&sessions, ends).await?;
        let extended = sessions.into_iter().filter_map(|session| {
            let lifetime = session.lifetime()?.lasting(Moment::now(), lasts);
            Some((session, lifetime))
        });
        Ok(extended.collect())
    }

    /// Returns the phantoms of every live session in the next generation.
    async fn phantoms(
        &self,
        before: &Snapshot,
        next: &Snapshot,
    ) -> Result<Vec<(Arc<Session>, Phantoms)>, Failure> {
        let mut renewed = Vec::new();
        for session in self.shared.sessions.all() {
            let issued = self.issue_next(before, next, &session).await?;
            renewed.extend(issued.map(|phantoms| (session, phantoms)));
        }
        Ok(renewed)
    }
}

fn unpublished(failure: &Failure) {
    let why = failure.why.as_deref().unwrap_or_default();
    tracing::error!(
        "{}: {why}. The workload's file is the old one",
        failure.what
    );
}

/// Gives back the leases that only the earlier generation was issued.
async fn give_back(before: Arc<Snapshot>, next: Arc<Snapshot>) {
    let stores = next.credentials.stores();
    before.credentials.stores().give_back(stores).await;
}

/// The credentials of one generation that another lacks.
fn missing(of: &Snapshot, other: &Snapshot) -> Vec<CredentialName> {
    let all = of.credentials.bindings().all();
    let gone = all.filter(|binding| !other.credentials.bindings().has(&binding.credential));
    gone.map(|binding| binding.credential.clone()).collect()
}

/// How often the files of the configuration are checked.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);
/// How long requests are tried to tell what a change permits, which is in force by then.
pub const COMPARED_WITHIN: Duration = Duration::from_millis(500);
/// The pause before changed files are checked again. If they stayed the same, they are applied.
const LOOKED_AT_AGAIN: Duration = Duration::from_millis(250);
