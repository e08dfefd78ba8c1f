//! This gateway as a replica of a fleet: it follows what the others decide, tells the store that it
//! lives, and refuses once it may lack a decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::revocations::{Untold, meant};
use crate::session::key::KeyPlaces;
use crate::store_clients;
use crate::{Failure, note};
use gateway_config::{Config, FleetSettings, LONGEST_LEASE};
use gateway_control::{Proven, ReplicaView};
use gateway_credential::{SecretRef, Stores};
use gateway_names::{SecretLabel, hex};
use gateway_server::SharedState;
use gateway_session::{Freshness, Moment};
use gateway_state::{
    Beat, Password, PostgresServer, PostgresSettings, PostgresState, Replica, ReplicaRow, Revision,
    RevokedSecret, SealingKey, SharedRevocation, StateError, unix,
};
use gateway_token::PrefixId;

/// A replica, and the store that it shares with the others.
pub struct Fleet {
    /// The store.
    pub store: Arc<PostgresState>,
    me: Replica,
    /// The lease of this replica.
    pub lease: &'static Freshness,
    /// The last decision that is in force here.
    applied: AtomicU64,
    /// What was revoked here and could not be told to the others yet.
    untold: Mutex<Vec<Untold>>,
    /// Told when an operator asks this replica to drain.
    pub drain: Notify,
    /// The generation whose digest was told last, and the digest.
    pub in_force: Mutex<(u64, String)>,
}

impl Fleet {
    /// Opens the store of a fleet, and takes this replica's name there.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the server cannot keep the state, its key is another, or a living
    /// replica has the name.
    pub async fn open(
        config: &Config,
        settings: &FleetSettings,
    ) -> Result<(Arc<Self>, Arc<SealingKey>), Failure> {
        let unusable = |error: &StateError| {
            let what = format!("the state at {} cannot be used", settings.url.shown());
            let next = "see `[state]` and the server; docs/fleet.md says what it must be";
            Failure::of(what, error).next(next)
        };
        let tls = gateway_origin::store_tls(&settings.roots.1);
        let tls = tls.map_err(|error| store_clients::failed("the way to the state", &error))?;
        let address = PostgresSettings {
            url: settings.url.clone(),
            password: settings.password.clone().map(password),
            tls,
        };
        let opened = PostgresServer::open(address).await;
        let (server, told) = opened.map_err(|error| unusable(&error))?;
        for text in told {
            note(format!("gateway: the server of the state: {text}"));
        }
        let (store, key) = KeyPlaces::of_fleet(config).unlock_server(server).await?;
        let lease = Freshness::of_process(settings.stale_after);
        let mut drawn = [0; 8];
        getrandom::fill(&mut drawn).map_err(Failure::no_randomness)?;
        let fleet = Self {
            store,
            me: Replica {
                name: settings.replica.clone(),
                instance: hex(&drawn),
                stale_after: settings.stale_after,
            },
            lease,
            applied: AtomicU64::new(0),
            untold: Mutex::default(),
            drain: Notify::new(),
            in_force: Mutex::new((u64::MAX, String::new())),
        };
        fleet.take_name().await.map_err(|error| unusable(&error))?;
        Ok((Arc::new(fleet), key))
    }

    /// Takes the name, once the lease of a process that had it is over.
    async fn take_name(&self) -> Result<(), StateError> {
        let until = Instant::now() + self.me.stale_after + Duration::from_secs(1);
        loop {
            match self.store.beat(&self.me, &Beat::default()).await {
                Err(StateError::Unfitting(_)) if Instant::now() < until => {}
                done => return done.map(drop),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// How often a beat is sent when nothing is new: several times within a lease.
    pub fn beats_every(&self) -> Duration {
        (self.me.stale_after / 4).min(BEATS_EVERY)
    }

    /// Returns what is left of the lease; `None` if it is over.
    pub fn left(&self) -> Option<Duration> {
        Some(self.lease.left()).filter(|left| !left.is_zero())
    }

    /// How long a decision may take until it is proven, by the longest lease.
    pub fn proven_within(&self) -> Duration {
        *LONGEST_LEASE.end() + Duration::from_secs(5)
    }

    /// Returns every replica.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the store does not answer.
    pub async fn replicas(&self) -> Result<Vec<ReplicaView>, Failure> {
        let rows = self.store.replicas().await.map_err(|error| away(&error))?;
        let view = |row: ReplicaRow| ReplicaView {
            live: row.is_live(),
            here: row.replica.name == self.me.name,
            name: row.replica.name,
            version: row.version,
            applied: row.beat.applied,
            beat_ms: row.age.as_millis(),
            stale_after_ms: row.replica.stale_after.as_millis(),
            in_force: row.beat.in_force,
            head: row.beat.head,
            drains: row.drains,
        };
        Ok(rows.into_iter().map(view).collect())
    }

    /// Asks a replica to stop.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there is none of this name, or it cannot be asked.
    pub async fn ask_to_drain(&self, name: &str) -> Result<(), Failure> {
        if self.store.drain(name).await.map_err(|error| away(&error))? {
            return Ok(());
        }
        Err(Failure::new(format!("there is no replica `{name}`")).next("gateway fleet status"))
    }

    /// Waits until no live replica acts against a decision.
    ///
    /// # Errors
    /// Returns a [`Failure`] if that cannot be known.
    pub async fn prove(&self, revision: Revision) -> Result<Vec<Proven>, Failure> {
        let applied = self.store.applied_by_all(revision).await;
        let applied = applied.map_err(|error| away(&error))?.into_iter();
        let proven = |(replica, took): (String, Option<Duration>)| Proven {
            replica,
            applied_ms: took.map(|took| (took.as_secs_f64() * 1e5).round() / 100.0),
        };
        Ok(applied.map(proven).collect())
    }

    /// Revokes a secret at every replica. If they cannot be told now, they are as soon as the store
    /// answers.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the fleet was not reached.
    pub async fn revoke(&self, label: &SecretLabel) -> Result<Vec<Proven>, Failure> {
        let mut secret = RevokedSecret::by(label.clone());
        secret.known.places = meant(label.as_str());
        self.tell(Untold::Secret(secret)).await
    }

    /// Revokes a token at every replica, as [`Fleet::revoke`] does a secret.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the fleet was not reached.
    pub async fn revoke_token(&self, id: PrefixId) -> Result<Vec<Proven>, Failure> {
        self.tell(Untold::Token(id)).await
    }

    async fn tell(&self, what: Untold) -> Result<Vec<Proven>, Failure> {
        match self.put(&what).await {
            Ok(revision) => self.prove(revision).await,
            Err(error) => {
                let mut untold = self.untold.lock();
                if !untold.contains(&what) {
                    untold.push(what);
                }
                Err(away(&error))
            }
        }
    }

    /// Whether it was told that this replica has applied a decision.
    pub fn has_applied(&self, revision: Revision) -> bool {
        self.applied.load(Ordering::Relaxed) == revision
    }

    /// Puts a revocation that the store does not have.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be kept.
    pub async fn put(&self, what: &Untold) -> Result<Revision, StateError> {
        match what {
            Untold::Secret(secret) => {
                let (secret, restored) = (secret.clone(), None);
                let one = SharedRevocation { secret, restored };
                self.store.put_revocation(one).await
            }
            Untold::Token(id) => self.store.revoke_token(id, unix(SystemTime::now())).await,
        }
    }

    /// Tells the others what they could not be told before.
    pub async fn tell_late(&self) -> Result<(), StateError> {
        let untold = self.untold.lock().clone();
        for what in untold {
            self.put(&what).await?;
            self.untold.lock().retain(|one| *one != what);
        }
        Ok(())
    }

    /// Takes a revocation back at every replica. Returns the labels.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the fleet was not reached. Nothing has changed then.
    pub async fn restore(&self, label: &SecretLabel) -> Result<Vec<SecretLabel>, Failure> {
        let restored = self.store.restore(label, unix(SystemTime::now())).await;
        let (restored, last) = restored.map_err(|error| away(&error))?;
        let is_it = |one: &Untold| matches!(one, Untold::Secret(secret) if secret.label == *label);
        self.untold.lock().retain(|one| !is_it(one));
        if let Some(revision) = last {
            self.prove(revision).await?;
        }
        Ok(restored)
    }

    /// Beats, with what is in force here. A lease counts from before that was looked at.
    ///
    /// # Errors
    /// [`StateError`] if the store does not answer, or another process has the name.
    pub async fn beat(&self, sent: Moment, beat: &Beat) -> Result<(), StateError> {
        let (drains, theirs) = self.store.beat(&self.me, beat).await?;
        if drains {
            tracing::warn!("an operator of the fleet asks this replica to stop");
            self.drain.notify_one();
        }
        let ours = SystemTime::now().duration_since(UNIX_EPOCH);
        if ours.unwrap_or_default().abs_diff(theirs) > CLOCKS_WITHIN {
            // Its sessions would end, and its budgets begin anew, for all.
            self.lease.close();
            return Err(StateError::Unfitting(
                "its clock and the one of this machine differ by more than 5 seconds",
            ));
        }
        self.applied.store(beat.applied, Ordering::Relaxed);
        // The others count the lease from the beat as well, and later.
        self.lease.renew(sent);
        Ok(())
    }

    /// Tells the store that this replica stops, so that nobody waits for it.
    pub async fn leave(&self) {
        let beat = Beat {
            applied: self.applied.load(Ordering::Relaxed),
            is_gone: true,
            ..Beat::default()
        };
        if let Err(error) = self.store.beat(&self.me, &beat).await {
            tracing::warn!(%error, "the fleet waits for this replica until its lease is over");
        }
    }
}

impl Fleet {
    /// Cuts what a lease that ran out must not carry any more.
    pub async fn cut_stale(self: Arc<Self>, shared: Arc<SharedState>) {
        let mut was_stale = true;
        loop {
            let left = self.lease.left();
            if left.is_zero() && !was_stale {
                shared.current().credentials.sever();
                shared.announce();
            }
            was_stale = left.is_zero();
            tokio::time::sleep(left.clamp(LOOKS_EVERY, self.beats_every())).await;
        }
    }

    /// Compares all rows with their sum: before anything is lent, whenever decisions were missed,
    /// and now and again.
    pub async fn verify(self: Arc<Self>) {
        loop {
            let again = match self.store.verify().await {
                Ok(rows) => {
                    tracing::debug!(rows, "the rows of the store are whole");
                    self.lease.trust(true);
                    VERIFIES_EVERY
                }
                Err(error @ StateError::Changed) => {
                    tracing::error!(%error, "a row of the store is not as a gateway wrote it");
                    self.lease.trust(false);
                    DISTRUSTS_FOR
                }
                Err(error) => {
                    tracing::warn!(%error, "the rows of the store were not verified");
                    AGAIN_AFTER
                }
            };
            tokio::select! {
                () = self.store.is_followed_anew() => {}
                () = tokio::time::sleep(again) => {}
            }
        }
    }
}

/// Reads the password anew for each connection.
fn password(reference: SecretRef) -> Password {
    Arc::new(move || {
        let reference = reference.clone();
        Box::pin(async move {
            let stores = Stores::new([&reference]);
            let read = stores.source(&reference).resolve(None).await.ok()?;
            Some(read.secret.state_password())
        })
    })
}

/// Returns the failure that the store does not do what it is asked for.
pub fn away(error: &StateError) -> Failure {
    Failure::of("the fleet was not reached", error).next("see the server of `[state] url`")
}

const CLOCKS_WITHIN: Duration = Duration::from_secs(5);
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const DISTRUSTS_FOR: Duration = Duration::from_secs(5);
const BEATS_EVERY: Duration = Duration::from_secs(1);
/// How exactly the end of a lease is noticed. Requests look at it themselves.
const LOOKS_EVERY: Duration = Duration::from_millis(10);
const VERIFIES_EVERY: Duration = Duration::from_secs(600);
