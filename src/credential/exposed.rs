//! The secrets that a session's responses are searched for: every secret that an origin could know,
//! no matter which session it was lent to.

pub(super) mod own;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use gateway_names::CredentialName;
use gateway_session::phantom::{Issue, Phantom, TemporaryPhantoms};
use gateway_session::{OriginBindings, Session};
use parking_lot::Mutex;

use self::own::{HiddenSecrets, OwnSecrets};
use super::credentials::Credentials;
use super::error::Error;
use super::fetch::FetchedSecrets;
use super::issue::is_optional;
use super::redactor::Redactor;
use super::scrub;
use super::scrub::Guessed;
use super::search_snapshot::{
    BoundSecrets, Exposable, ExposedSecret, Exposure, SearchSnapshot, TemporarySecrets, Wanted,
    forms,
};
use super::secret::Secret;
use super::store::StoreError;

/// The secrets that the origins of one session could know. Dropped with the session.
pub(super) struct ExposedSecrets {
    now: Arc<ArcSwap<SearchSnapshot>>,
    /// What its requests are searched for.
    pub(super) own: Arc<ArcSwap<OwnSecrets>>,
    /// Held while the search is extended, so that concurrent requests extend it only once. A
    /// request that finds what it needs never waits for this lock.
    growing: Mutex<()>,
}

impl ExposedSecrets {
    /// Replaces the search with the result of `grown`, if there is one.
    fn grow(
        &self,
        grown: impl FnOnce(&SearchSnapshot) -> Result<Option<SearchSnapshot>, Error>,
    ) -> Result<(), Error> {
        let _growing = self.growing.lock();
        if let Some(grown) = grown(&self.now.load())? {
            self.now.store(Arc::new(grown));
        }
        Ok(())
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.now.load().known.is_empty()
    }

    /// Returns the secrets behind temporary credentials.
    pub(super) fn minted(
        &self,
        phantoms: &Arc<TemporaryPhantoms>,
    ) -> Option<Arc<TemporarySecrets>> {
        let now = self.now.load();
        let mut minted = now.minted.iter();
        minted
            .find(|one| Arc::ptr_eq(&one.phantoms, phantoms))
            .cloned()
    }

    /// Keeps temporary credentials and searches later responses for them.
    ///
    /// `gone` are the temporary credentials that the session no longer holds.
    pub(super) fn mint(
        &self,
        minted: TemporarySecrets,
        gone: &[Arc<TemporaryPhantoms>],
    ) -> Result<(), Error> {
        let is_gone =
            |one: &Arc<TemporarySecrets>| gone.iter().any(|g| Arc::ptr_eq(g, &one.phantoms));
        self.grow(|now| {
            let mut all = now.minted.clone();
            all.retain(|one| !is_gone(one));
            all.push(Arc::new(minted));
            let exposure = Exposure {
                lent: true,
                ..now.exposure.clone()
            };
            Ok(Some(now.with(now.known.clone(), all, exposure)))
        })
    }
}

impl Credentials {
    /// Fetches every secret bound to an origin, except those that the request is lent.
    ///
    /// It does not matter whether this session holds the credential: another session or an earlier
    /// run may have shown it to the origin, which may show it to any client.
    ///
    /// A secret absent from its store is skipped. If the store fails and never gave the secret, an
    /// echo of it could not be recognized in the response, so that is an error. If it gave one
    /// before, that value is searched for while the store fails or hangs.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a store fails that never gave its secret.
    pub(super) async fn fetch_bound(
        &self,
        here: &OriginBindings,
        lent: &FetchedSecrets,
    ) -> Result<BoundSecrets, Error> {
        let (mut bound, mut awaited) = (Vec::new(), Vec::new());
        for index in here.positions() {
            let binding = self.bindings().at(index).ok_or(Error::Unknown)?;
            let is_lent = || lent.iter().any(|(name, _)| *name == binding.credential);
            let slot = self.slot(index)?;
            // An origin cannot echo a secret that it was never sent. Not even a signature reveals a
            // private key.
            if slot.source.reference().private_key().is_some() || is_lent() {
                continue;
            }
            // No secret is issued just to be searched for; those already issued to any session are
            // included.
            if !slot.source.is_issued() {
                let is_known = || slot.history.given.is_some();
                match slot.source.resolve_soon(is_known).await {
                    Ok(cached) => {
                        bound.push(Exposable::new(&binding.credential, &cached));
                        continue;
                    }
                    Err(why) if why.cause.is_absent() || is_optional(binding) => {}
                    // The value is unusable, so it was never used.
                    Err(why) if matches!(why.cause, StoreError::Unsafe(_)) => {}
                    Err(_) if is_known() => {}
                    Err(why) => return Err(Error::Unavailable(Box::new(why))),
                }
            }
            // An earlier value from the store may have been shown, whatever the store gives now.
            let given = slot.given_before();
            if given.is_empty() && slot.source.is_issued() {
                awaited.push(binding.credential.clone());
            }
            bound.extend(given.into_iter().map(|secret| Exposable {
                credential: binding.credential.clone(),
                secret,
                ends: None,
            }));
        }
        // An origin still knows the secret after a reload.
        let former = self.formerly_bound(here.origin()).into_iter();
        bound.extend(former.map(|(credential, secret)| Exposable {
            credential,
            secret,
            ends: None,
        }));
        // A secret that is too short cannot be lent either.
        bound.retain(|one| one.secret.expose().len() >= scrub::SHORTEST);
        Ok(BoundSecrets {
            secrets: bound,
            awaited,
        })
    }

    /// Extends the search of the session's responses, and returns the search of this response.
    pub(super) fn look_for(
        &self,
        session: &Arc<Session>,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Redactor>, Error> {
        let exposed = self.exposed(session)?;
        let searched = exposed.now.load_full();
        if searched.guesses.are_spent() {
            return Err(Guessed.into());
        }
        let lends = !wanted.lent.is_empty();
        let is_bound = !wanted.bound.is_empty();
        if !lends && !wanted.signs && !is_bound && !searched.exposure.lent {
            return Ok(None);
        }
        if !searched.shares(wanted) {
            exposed.grow(|now| {
                if now.covers(wanted) {
                    Ok(None)
                } else {
                    self.extended(session, now, wanted).map(Some)
                }
            })?;
            self.tell_others(session, &exposed.now.load(), wanted);
        }
        Ok(Some(Redactor {
            searched: exposed.now.clone(),
            failed: false,
            made: Vec::new(),
            signed_for: wanted.signed_for,
            strict: wanted.strict,
            signed: !wanted.strict && (wanted.signs || !lends && is_bound),
        }))
    }

    /// Returns the search of the session's responses, which is empty at first.
    pub(super) fn exposed<'s>(
        &self,
        session: &'s Arc<Session>,
    ) -> Result<&'s ExposedSecrets, Error> {
        let none = || {
            let mut all = self.exposed_to();
            if all.len() == all.capacity() {
                all.retain(|one| one.strong_count() > 0);
            }
            all.push(Arc::downgrade(session));
            ExposedSecrets {
                now: Arc::new(ArcSwap::from_pointee(SearchSnapshot::none(session.id()))),
                own: Arc::default(),
                growing: Mutex::default(),
            }
        };
        let exposed: &ExposedSecrets = session.state(none).ok_or(Error::Unknown)?;
        session.hide(|| Box::new(HiddenSecrets(exposed.own.clone())));
        Ok(exposed)
    }

    /// Extends the search of other sessions whose responses are in transit.
    ///
    /// This applies to sessions that sent a request to an origin of the same credential, which may
    /// repeat to them the secret it sees now. Later requests are searched for all its secrets.
    fn tell_others(&self, session: &Arc<Session>, searched: &SearchSnapshot, wanted: &Wanted<'_>) {
        let told = |one: &Exposable| searched.of(&one.secret).map(|known| &known.told);
        let is_told = |one: &Exposable| told(one).is_some_and(|told| told.load(Ordering::Acquire));
        let new: Vec<_> = wanted.all().filter(|one| !is_told(one)).collect();
        if new.is_empty() {
            return;
        }
        let others: Vec<_> = self.exposed_to().iter().filter_map(Weak::upgrade).collect();
        for other in others.iter().filter(|other| !Arc::ptr_eq(other, session)) {
            let Ok(exposed) = self.exposed(other) else {
                continue;
            };
            let grown = exposed.grow(|now| {
                let lacking = new.iter().filter(|one| now.lacks(one));
                let secrets: Vec<_> = lacking.cloned().collect();
                if secrets.is_empty() {
                    return Ok(None);
                }
                let wanted = Wanted {
                    bound: BoundSecrets {
                        secrets,
                        awaited: Vec::new(),
                    },
                    lent: &Vec::new(),
                    strict: false,
                    signs: false,
                    signed_for: false,
                };
                self.extended(other, now, &wanted).map(Some)
            });
            if let Err(error) = grown {
                // A response that cannot be searched for a secret it may contain is not shown.
                tracing::error!(session = %other.id(), %error, "answers cannot be searched for a renewed secret");
                exposed.now.load().guesses.spend();
            }
        }
        for told in new.iter().filter_map(told) {
            told.store(true, Ordering::Release);
        }
    }

    /// Builds a search for the known and the wanted secrets, and for all earlier ones of the same
    /// stores.
    ///
    /// A secret shown earlier may come back now. Secrets that ended too long ago are left out.
    fn extended(
        &self,
        session: &Session,
        before: &SearchSnapshot,
        wanted: &Wanted<'_>,
    ) -> Result<SearchSnapshot, Error> {
        let wanted_now: Vec<_> = wanted.all().collect();
        let exposure = before.exposure.and(wanted);
        let mut names: Vec<_> = before.known.iter().map(|known| &known.credential).collect();
        // Secrets may have been issued since these credentials had none to search for.
        names.extend(&exposure.awaited);
        let mut all: Vec<(CredentialName, Arc<Secret>)> = Vec::new();
        for one in &wanted_now {
            if let Some(index) = self.bindings().index_of(&one.credential) {
                self.slot(index)?.history.given.add(&one.secret, one.ends);
            }
            all.push((one.credential.clone(), one.secret.clone()));
            names.push(&one.credential);
        }
        names.sort_unstable();
        names.dedup();
        for name in names {
            if let Some(index) = self.bindings().index_of(name) {
                let given = self.slot(index)?.given_before();
                all.extend(given.into_iter().map(|secret| (name.clone(), secret)));
            } else {
                // A removed credential: origins may still know its secret.
                let known = before.known.iter().filter(|one| one.credential == *name);
                all.extend(known.map(|one| (name.clone(), one.secret.clone())));
            }
        }
        // The secrets lent to the session itself stay, however many the store has given since.
        let is_lent = |name: &CredentialName| wanted.lent.iter().any(|(lent, _)| lent == name);
        let own = before.known.iter().filter(|one| one.is_own);
        let own = own.filter(|one| !is_lent(&one.credential));
        all.extend(own.map(|one| (one.credential.clone(), one.secret.clone())));
        let mut known: Vec<ExposedSecret> = Vec::with_capacity(all.len());
        for (name, secret) in all {
            let is_same = |known: &&ExposedSecret| Arc::ptr_eq(&known.secret, &secret);
            if known.iter().any(|one| is_same(&one)) {
                continue;
            }
            let mut one = match before.known.iter().find(is_same) {
                Some(before) => before.clone(),
                None => self.known(session, name, secret.clone())?,
            };
            if is_lent(&one.credential) {
                let mut lent = wanted.lent.iter();
                one.is_own = lent.any(|(_, lent)| Arc::ptr_eq(&lent.secret, &secret));
            }
            known.push(one);
        }
        Ok(before.with(known, before.minted.clone(), exposure))
    }

    fn known(
        &self,
        session: &Session,
        credential: CredentialName,
        secret: Arc<Secret>,
    ) -> Result<ExposedSecret, Error> {
        let phantom = session.phantoms().of(&credential).cloned();
        let phantom = phantom.or_else(|| self.stranger(&credential, &secret));
        Ok(ExposedSecret {
            forms: forms(&secret, phantom.as_ref())?,
            told: self.told(&credential, &secret),
            is_own: false,
            credential,
            secret,
        })
    }

    /// Returns the flag whether every session's search was extended by a secret.
    fn told(&self, credential: &CredentialName, secret: &Arc<Secret>) -> Arc<AtomicBool> {
        let index = self.bindings().index_of(credential);
        let slot = index.and_then(|index| self.slot(index).ok());
        slot.map(|slot| slot.history.given.told(secret))
            .unwrap_or_default()
    }

    /// Draws a stand-in for a secret that the session has no phantom for.
    ///
    /// It is drawn like a phantom, but from a key that no session has, so it is worthless in every
    /// session.
    fn stranger(&self, name: &CredentialName, secret: &Secret) -> Option<Phantom> {
        let mut issue = Issue::new(self.strangers()?);
        issue
            .issue(name, &secret.shape(None), |text| secret.is(text))
            .ok()
    }
}

#[cfg(test)]
mod tests;
