//! What the answers of one session are searched for at one time.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::error::Error;
use super::fetch::Fetched;
use super::guesses::Guesses;
use super::revocation::Revocation;
use super::scrub::{EchoSearch, SecretForms};
use super::secret::{Secret, mask};
use super::signatures::{Signature, Signatures};
use super::store::CachedSecret;
use crate::names::{CredentialName, SessionId};
use crate::session::phantom::{Phantom, TemporaryPhantoms};

/// A snapshot of what is searched for.
pub(super) struct Searched {
    pub(super) known: Vec<ExposedSecret>,
    pub(super) minted: Vec<Arc<TemporarySecrets>>,
    /// Whether something was lent. If so, the answers of all origins are searched, because the
    /// workload may have passed it on.
    pub(super) lent: bool,
    pub(super) echoes: Arc<EchoSearch>,
    pub(super) guesses: Arc<Guesses>,
    pub(super) signatures: Arc<Signatures>,
    /// The search that includes signatures, and the number of the last one included.
    with_signatures: Mutex<Option<(u64, Arc<EchoSearch>)>>,
}

/// A secret that an origin could know.
#[derive(Clone)]
pub(super) struct ExposedSecret {
    pub(super) credential: CredentialName,
    pub(super) secret: Arc<Secret>,
    pub(super) forms: Arc<SecretForms>,
}

/// The secrets behind a session's temporary credentials, in the order of their phantoms.
pub(super) struct TemporarySecrets {
    pub(super) phantoms: Arc<TemporaryPhantoms>,
    pub(super) secrets: [Arc<Secret>; 3],
    /// What revokes the key that asked for them. They stay revoked when their credential gets
    /// another key.
    pub(super) revocation: Arc<Revocation>,
    forms: [Arc<SecretForms>; 3],
}

/// What an answer is searched for, and why.
pub(super) struct Wanted<'r> {
    /// The secrets that the request is lent.
    pub(super) lent: &'r Fetched,
    /// The other secrets bound to its origin.
    pub(super) bound: Vec<Exposable>,
    /// Whether an answer that cannot be searched is refused.
    pub(super) strict: bool,
    /// Whether the request is signed.
    pub(super) signs: bool,
    /// Whether a credential signs for its origin.
    pub(super) signed_for: bool,
}

/// A secret that an origin may have been shown.
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
    /// The secrets that can come back. Private keys are left out, because they are never sent.
    pub(super) fn all(&self) -> impl Iterator<Item = Exposable> {
        let lent = self.lent.iter();
        let lent = lent.map(|(name, cached)| Exposable::new(name, cached));
        let all = lent.chain(self.bound.iter().cloned());
        all.filter(|one| !one.secret.is_private_key())
    }
}

impl TemporarySecrets {
    /// Pairs the secrets with their phantoms.
    ///
    /// # Errors
    /// [`Error::Unscrubbable`] if one could not be found in answers.
    pub(super) fn new(
        phantoms: Arc<TemporaryPhantoms>,
        secrets: [Arc<Secret>; 3],
        revocation: Arc<Revocation>,
    ) -> Result<Self, Error> {
        let forms = |at: usize| forms(&secrets[at], Some(&phantoms.parts()[at]));
        Ok(Self {
            forms: [forms(0)?, forms(1)?, forms(2)?],
            phantoms,
            secrets,
            revocation,
        })
    }
}

impl Searched {
    pub(super) fn none(session: &SessionId) -> Self {
        let guesses = Arc::new(Guesses::new(Some(session.clone())));
        Self {
            known: Vec::new(),
            minted: Vec::new(),
            lent: false,
            echoes: Arc::new(EchoSearch::of(Vec::new(), guesses.clone())),
            guesses,
            signatures: Arc::default(),
            with_signatures: Mutex::default(),
        }
    }

    /// Whether this search already includes everything wanted.
    pub(super) fn covers(&self, wanted: &Wanted<'_>) -> bool {
        let lent = wanted.lent.iter().map(|(_, cached)| &cached.secret);
        let mut all = lent.chain(wanted.bound.iter().map(|bound| &bound.secret));
        (self.lent || wanted.lent.is_empty())
            && all.all(|secret| secret.is_private_key() || self.knows(secret))
    }

    fn knows(&self, secret: &Arc<Secret>) -> bool {
        let mut known = self.known.iter();
        known.any(|known| Arc::ptr_eq(&known.secret, secret))
    }

    /// Whether another secret of the credential is searched for, but not this one.
    pub(super) fn lacks(&self, one: &Exposable) -> bool {
        let mut known = self.known.iter();
        known.any(|known| known.credential == one.credential) && !self.knows(&one.secret)
    }

    /// The same session's search, with these secrets.
    pub(super) fn with(
        &self,
        known: Vec<ExposedSecret>,
        minted: Vec<Arc<TemporarySecrets>>,
        lent: bool,
    ) -> Self {
        let bound = known.iter().map(|known| &known.forms);
        let secrets = bound.chain(minted.iter().flat_map(|minted| &minted.forms));
        let echoes = EchoSearch::of(secrets.cloned().collect(), self.guesses.clone());
        Self {
            echoes: Arc::new(echoes),
            known,
            minted,
            lent,
            guesses: self.guesses.clone(),
            signatures: self.signatures.clone(),
            with_signatures: Mutex::default(),
        }
    }

    /// The search for the answer to a failed request, in which services repeat signatures.
    ///
    /// Includes the signatures made for the request, and the session's latest.
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
/// [`Error::Unscrubbable`] if the secret could not be found in answers.
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
