//! The search of one session's responses at one time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gateway_names::{CredentialName, SessionId};
use gateway_session::phantom::{Phantom, TemporaryPhantoms};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::error::Error;
use super::fetch::FetchedSecrets;
use super::guesses::Guesses;
use super::scrub::{EchoSearch, SecretForms};
use super::secret::{Secret, mask};
use super::signatures::{Signature, Signatures};
use super::store::CachedSecret;

/// A snapshot of a session's search.
pub(super) struct SearchSnapshot {
    pub(super) known: Vec<ExposedSecret>,
    pub(super) minted: Vec<Arc<TemporarySecrets>>,
    pub(super) exposure: Exposure,
    pub(super) echoes: Arc<EchoSearch>,
    pub(super) guesses: Arc<Guesses>,
    pub(super) signatures: Arc<Signatures>,
    /// The search that includes signatures, and the number of the last signature in it.
    with_signatures: Mutex<Option<(u64, Arc<EchoSearch>)>>,
}

/// How the session's requests were related to secrets.
#[derive(Clone, Default)]
pub(super) struct Exposure {
    /// Whether a secret was lent. If so, the responses of all origins are searched, because the
    /// workload may have passed the secret on.
    pub(super) lent: bool,
    /// The credentials of origins that received a request while no secret was issued. The response
    /// may last until one is issued.
    pub(super) awaited: Vec<CredentialName>,
}

impl Exposure {
    fn covers(&self, wanted: &Wanted<'_>) -> bool {
        let mut awaited = wanted.bound.awaited.iter();
        (self.lent || wanted.lent.is_empty()) && awaited.all(|name| self.awaited.contains(name))
    }

    pub(super) fn and(&self, wanted: &Wanted<'_>) -> Self {
        let mut awaited = self.awaited.clone();
        awaited.extend(wanted.bound.awaited.iter().cloned());
        awaited.sort_unstable();
        awaited.dedup();
        Self {
            lent: self.lent || !wanted.lent.is_empty(),
            awaited,
        }
    }
}

/// A secret that an origin could know.
#[derive(Clone)]
pub(super) struct ExposedSecret {
    pub(super) credential: CredentialName,
    pub(super) secret: Arc<Secret>,
    pub(super) forms: Arc<SecretForms>,
    /// Whether it is in the search of every session that is searched for the credential.
    pub(super) told: Arc<AtomicBool>,
    /// Whether it is the latest secret of the credential that this session was lent.
    pub(super) is_own: bool,
}

/// The secrets behind a session's temporary credentials, in the order of their phantoms.
pub(super) struct TemporarySecrets {
    pub(super) phantoms: Arc<TemporaryPhantoms>,
    pub(super) secrets: [Arc<Secret>; 3],
    forms: [Arc<SecretForms>; 3],
}

/// The secrets to search a response for, and the reasons.
pub(super) struct Wanted<'r> {
    /// The secrets that the request is lent.
    pub(super) lent: &'r FetchedSecrets,
    /// The other secrets that are bound to its origin.
    pub(super) bound: BoundSecrets,
    /// Whether a response that cannot be searched is refused.
    pub(super) strict: bool,
    /// Whether the request is signed.
    pub(super) signs: bool,
    /// Whether a credential signs for its origin.
    pub(super) signed_for: bool,
}

/// The secrets bound to an origin, except those that the request is lent.
#[derive(Default)]
pub(super) struct BoundSecrets {
    pub(super) secrets: Vec<Exposable>,
    /// The credentials of which no secret has been issued yet.
    pub(super) awaited: Vec<CredentialName>,
}

impl BoundSecrets {
    pub(super) fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.awaited.is_empty()
    }
}

/// A secret that may have been shown to an origin.
#[derive(Clone)]
pub(super) struct Exposable {
    pub(super) credential: CredentialName,
    pub(super) secret: Arc<Secret>,
    pub(super) ends: Option<Instant>,
}

impl Exposable {
    pub(super) fn new(credential: &CredentialName, cached: &CachedSecret) -> Self {
        Self {
            credential: credential.clone(),
            secret: cached.secret.clone(),
            ends: cached.expires,
        }
    }
}

impl Wanted<'_> {
    /// Returns the secrets that can be echoed. Private keys are left out: they are never sent.
    pub(super) fn all(&self) -> impl Iterator<Item = Exposable> {
        let lent = self.lent.iter();
        let lent = lent.map(|(name, cached)| Exposable::new(name, cached));
        let all = lent.chain(self.bound.secrets.iter().cloned());
        all.filter(|one| !one.secret.is_private_key())
    }
}

impl TemporarySecrets {
    /// Pairs the secrets with their phantoms.
    ///
    /// # Errors
    /// [`Error::Unscrubbable`] if one could not be found in responses.
    pub(super) fn new(
        phantoms: Arc<TemporaryPhantoms>,
        secrets: [Arc<Secret>; 3],
    ) -> Result<Self, Error> {
        let forms = |at: usize| forms(&secrets[at], Some(&phantoms.parts()[at]));
        Ok(Self {
            forms: [forms(0)?, forms(1)?, forms(2)?],
            phantoms,
            secrets,
        })
    }
}

impl SearchSnapshot {
    pub(super) fn none(session: &SessionId) -> Self {
        let guesses = Arc::new(Guesses::new(Some(session.clone())));
        Self {
            known: Vec::new(),
            minted: Vec::new(),
            exposure: Exposure::default(),
            echoes: Arc::new(EchoSearch::of(Vec::new(), guesses.clone())),
            guesses,
            signatures: Arc::default(),
            with_signatures: Mutex::default(),
        }
    }

    /// Whether this search already includes all wanted secrets.
    pub(super) fn covers(&self, wanted: &Wanted<'_>) -> bool {
        self.has(wanted, |_| true)
    }

    /// Whether this search and that of every other session include all wanted secrets.
    pub(super) fn shares(&self, wanted: &Wanted<'_>) -> bool {
        self.has(wanted, |known| known.told.load(Ordering::Acquire))
    }

    fn has(&self, wanted: &Wanted<'_>, is_enough: impl Fn(&ExposedSecret) -> bool) -> bool {
        let has = |secret: &Arc<Secret>, is_lent: bool| {
            let is_known = |known: &ExposedSecret| (known.is_own || !is_lent) && is_enough(known);
            secret.is_private_key() || self.of(secret).is_some_and(is_known)
        };
        let mut lent = wanted.lent.iter().map(|(_, cached)| &cached.secret);
        let mut bound = wanted.bound.secrets.iter().map(|bound| &bound.secret);
        self.exposure.covers(wanted)
            && lent.all(|secret| has(secret, true))
            && bound.all(|secret| has(secret, false))
    }

    /// Returns the entry of a secret.
    pub(super) fn of(&self, secret: &Arc<Secret>) -> Option<&ExposedSecret> {
        let mut known = self.known.iter();
        known.find(|known| Arc::ptr_eq(&known.secret, secret))
    }

    /// Whether the session used the credential, but its search lacks this secret of it.
    pub(super) fn lacks(&self, one: &Exposable) -> bool {
        let mut known = self.known.iter();
        let asked = self.exposure.awaited.contains(&one.credential)
            || known.any(|known| known.credential == one.credential);
        asked && self.of(&one.secret).is_none()
    }

    /// Returns the same session's search, with these secrets.
    pub(super) fn with(
        &self,
        known: Vec<ExposedSecret>,
        minted: Vec<Arc<TemporarySecrets>>,
        exposure: Exposure,
    ) -> Self {
        let bound = known.iter().map(|known| &known.forms);
        let secrets = bound.chain(minted.iter().flat_map(|minted| &minted.forms));
        let echoes = EchoSearch::of(secrets.cloned().collect(), self.guesses.clone());
        Self {
            echoes: Arc::new(echoes),
            known,
            minted,
            exposure,
            guesses: self.guesses.clone(),
            signatures: self.signatures.clone(),
            with_signatures: Mutex::default(),
        }
    }

    /// Returns the search of the response to a failed request, in which services repeat signatures.
    ///
    /// Includes the signatures made for the request, and the session's latest ones.
    pub(super) fn with_signatures(&self, made: &[Arc<Signature>]) -> Arc<EchoSearch> {
        let (number, mut signatures) = self.signatures.that_hold();
        let is_late = |one: &&Arc<Signature>| !signatures.iter().any(|late| Arc::ptr_eq(late, one));
        let older: Vec<Arc<Signature>> = made.iter().filter(is_late).cloned().collect();
        if signatures.is_empty() && older.is_empty() {
            return self.echoes.clone();
        }
        let kept = || self.with_signatures.lock();
        if let Some((of, echoes)) = &*kept()
            && *of == number
            && older.is_empty()
        {
            return echoes.clone();
        }
        let is_usual = older.is_empty();
        signatures.extend(older);
        let mut secrets = self.echoes.secrets().to_vec();
        secrets.extend(signatures.iter().filter_map(|one| one.forms()));
        let echoes = Arc::new(EchoSearch::of(secrets, self.guesses.clone()));
        if is_usual {
            *kept() = Some((number, echoes.clone()));
        }
        echoes
    }
}

/// Pairs the forms of a secret with its replacement: its phantom, or a mask if there is none.
///
/// # Errors
/// [`Error::Unscrubbable`] if the secret could not be found in responses.
pub(super) fn forms(secret: &Secret, phantom: Option<&Phantom>) -> Result<Arc<SecretForms>, Error> {
    let real = secret.expose();
    let sharing = |stand_in: &[u8], phantom: &[u8]| {
        SecretForms::sharing(secret.needles(), real, stand_in, phantom)
    };
    let forms = match phantom {
        Some(phantom) => sharing(&secret.stand_in(phantom), phantom.reveal().as_bytes()),
        None => sharing(&mask(real), &mask(real)),
    };
    forms.map(Arc::new).map_err(Error::Unscrubbable)
}
