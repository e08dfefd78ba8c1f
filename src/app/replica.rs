//! Follows a fleet: applies what the others decide, and beats.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::fleet::{Fleet, away};
use crate::session::renewal::Followed;
use crate::{App, Context as _, Failure};
use gateway_names::hex;
use gateway_session::Moment;
use gateway_state::{Beat, StateError, StateStore as _};

impl App {
    /// Follows the fleet for ever, if this gateway is a replica of one.
    pub async fn follow_fleet(self: Arc<Self>) {
        let Ok(keeper) = self.keeper().await else {
            return;
        };
        let Some(fleet) = keeper.fleet().cloned() else {
            return;
        };
        tokio::spawn(fleet.clone().cut_stale(self.shared.clone()));
        tokio::spawn(fleet.clone().verify());
        let (mut at, mut told, mut beaten) = (Followed::default(), String::new(), None);
        loop {
            // Without a first round, nothing is lent.
            if at.seen.is_some() {
                let _ = fleet.store.woken().await;
            }
            match self.follow_once(&fleet, &mut at, &mut beaten).await {
                Ok(()) => told.clear(),
                Err(failure) => {
                    let text = failure.to_string();
                    if text != told {
                        tracing::error!("{text}");
                        told = text;
                    }
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        }
    }

    /// Applies what is new, and beats. A lease counts from before the store was asked.
    async fn follow_once(
        self: &Arc<Self>,
        fleet: &Fleet,
        at: &mut Followed,
        beaten: &mut Option<Moment>,
    ) -> Result<(), Failure> {
        let (sent, keeper) = (Moment::now(), self.keeper().await?);
        fleet.tell_late().await.map_err(|error| away(&error))?;
        match keeper.round(at).await {
            Err(StateError::WentBack) => {
                fleet.lease.close();
                tracing::error!("the store went back: it is told again what was decided");
                let told = fleet.store.tell_again().await;
                told.map_err(|error| away(&error))?;
                at.seen = None;
                return Ok(());
            }
            Err(error @ StateError::Changed) => {
                fleet.lease.close();
                return Err(away(&error));
            }
            Err(error) => return Err(away(&error)),
            Ok(mut news) => {
                at.owed.revocations |= news.revocations;
                at.owed.sessions.append(&mut news.sessions);
            }
        }
        // What fails is owed, and nothing is beaten before it is done.
        if at.owed.revocations {
            self.mirror(fleet).await?;
            at.owed.revocations = false;
        }
        while let Some(id) = at.owed.sessions.first().cloned() {
            self.learn_temporary(&id).await?;
            at.owed.sessions.remove(&id);
        }
        let applied = at.seen.unwrap_or(0);
        let is_due = beaten.is_none_or(|before| sent.is_later_than(before, fleet.beats_every()));
        if is_due || !fleet.has_applied(applied) {
            let beat = Beat {
                applied,
                head: self
                    .shared
                    .log
                    .head()
                    .map_or_else(String::new, |head| head.to_string()),
                in_force: self.in_force(fleet),
                is_gone: false,
            };
            *beaten = Some(sent);
            let told = fleet.beat(sent, &beat).await;
            told.map_err(|error| away(&error))?;
        }
        Ok(())
    }

    /// Writes the revocations of the fleet to the file of this user, which a gateway obeys even
    /// without a store, and applies them.
    async fn mirror(self: &Arc<Self>, fleet: &Fleet) -> Result<(), Failure> {
        let read = fleet.store.revocations().await;
        let (secrets, tokens) = read.map_err(|error| away(&error))?;
        let app = self.clone();
        let mirrored = tokio::task::spawn_blocking(move || {
            let own = app.revocations.mirror(&secrets, &tokens)?;
            app.revocations.obey(&app.shared).map(|()| own)
        });
        let own = mirrored.await.context("revocations cannot be applied")??;
        // What this machine revoked while the fleet was not reached, also before a restart.
        for what in own {
            let put = fleet.put(&what).await;
            put.map_err(|error| away(&error))?;
        }
        Ok(())
    }

    /// Returns the digest of the configuration and the policies in force.
    fn in_force(&self, fleet: &Fleet) -> String {
        let number = self.shared.current().number();
        let mut held = fleet.in_force.lock();
        // No beat waits for a reload under way.
        let latest = self.reloading.latest.try_lock();
        let Some(latest) = latest.ok().filter(|_| held.0 != number) else {
            return held.1.clone();
        };
        let mut digest = Sha256::new();
        for source in &latest.read.sources {
            digest.update(source.text.as_bytes());
            digest.update(b"\0");
        }
        let file = latest.read.config.file.as_ref();
        digest.update(
            file.and_then(|file| std::fs::read(file).ok())
                .unwrap_or_default(),
        );
        *held = (number, hex(&digest.finalize()));
        held.1.clone()
    }
}

const AGAIN_AFTER: Duration = Duration::from_millis(100);
