//! Draws phantoms from a session's key: one for each credential, and none inside another.

use std::sync::Arc;

use gateway_names::CredentialName;
use gateway_recipe::KeyForm;

use super::draw::PhantomKey;
use super::shape::{MIN_BITS, Shape};
use super::text::Phantom;

/// Why no phantom could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PhantomFailure {
    /// The shape leaves too little to draw, so a phantom could be guessed or occur by chance.
    #[error(
        "a phantom for credential `{credential}` would have {bits} random bits; at least {MIN_BITS} are needed"
    )]
    TooGuessable {
        /// The credential.
        credential: CredentialName,
        /// How many random bits its shape leaves.
        bits: u32,
    },
    /// Every attempt collided with the secret or another phantom of the session.
    #[error("no phantom for credential `{credential}` differs from the session's others")]
    Crowded {
        /// The credential.
        credential: CredentialName,
    },
    /// The session already has a phantom for the credential.
    #[error("credential `{credential}` already has a phantom")]
    Issued {
        /// The credential.
        credential: CredentialName,
    },
    /// The session already has the maximum number of phantoms.
    #[error("a session has at most {MAX_PHANTOMS} phantoms")]
    TooMany,
}

/// Issues a session's phantoms, in the order of its credentials. `finish` ends it.
pub struct Issue<'k> {
    key: &'k PhantomKey,
    pub(super) issued: Vec<Phantom>,
    /// Phantoms that the session held before and may no longer use, oldest first.
    pub(super) retired: Vec<Phantom>,
}

impl<'k> Issue<'k> {
    /// Starts a session's phantoms. Each session has one key, shared by its replicas.
    pub fn new(key: &'k PhantomKey) -> Self {
        Self {
            key,
            issued: Vec::new(),
            retired: Vec::new(),
        }
    }

    /// Continues from the phantoms that the session held before, and from those already retired.
    /// Phantoms for which `keeps` returns `false` are retired: they are still recognised, so that
    /// they are refused by name.
    #[must_use]
    pub fn after(
        key: &'k PhantomKey,
        (before, retired): (&[Phantom], &[Phantom]),
        keeps: impl Fn(&CredentialName) -> bool,
    ) -> Self {
        let all = before.iter().cloned();
        let (issued, gone): (Vec<_>, Vec<_>) = all.partition(|one| keeps(&one.credential));
        let mut retired = retired.to_vec();
        retired.extend(gone);
        retired.drain(..retired.len().saturating_sub(MAX_RETIRED));
        Self {
            key,
            issued,
            retired,
        }
    }

    /// Whether the session has a phantom for the credential.
    #[must_use]
    pub fn has(&self, credential: &CredentialName) -> bool {
        let mut issued = self.issued.iter();
        issued.any(|phantom| phantom.credential == *credential)
    }

    /// Issues the phantom of one credential.
    ///
    /// The same key, name and shape give the same phantom. `taken` returns whether a candidate is
    /// the secret itself, which only `credential` knows. No phantom lies inside another.
    ///
    /// # Errors
    /// [`PhantomFailure`] by cause.
    pub fn issue(
        &mut self,
        credential: &CredentialName,
        shape: &Shape,
        taken: impl Fn(&[u8]) -> bool,
    ) -> Result<Phantom, PhantomFailure> {
        let bits = shape.entropy_bits();
        if bits < MIN_BITS {
            return Err(PhantomFailure::TooGuessable {
                credential: credential.clone(),
                bits,
            });
        }
        self.draw(credential, taken, |key, attempt| {
            Some(shape.fill(&mut key.stream(credential.as_str(), attempt)))
        })
    }

    /// Issues the phantom of a private key: another key of the same form, which any client can sign
    /// with.
    ///
    /// The same key, name and form give the same phantom.
    ///
    /// # Errors
    /// [`PhantomFailure`] by cause.
    pub fn issue_key(
        &mut self,
        credential: &CredentialName,
        form: &KeyForm,
        taken: impl Fn(&[u8]) -> bool,
    ) -> Result<Phantom, PhantomFailure> {
        self.draw(credential, taken, |key, attempt| {
            let seed = key.stream(credential.as_str(), attempt).seed();
            Some(form.phantom(&seed)?.to_string())
        })
    }

    /// Retires the phantom of a former shape of a credential, so that it is refused by name. Not
    /// one that contains another phantom or is part of one: the two could not be told apart.
    pub fn retire(&mut self, credential: &CredentialName, shape: &Shape) {
        let text = shape.fill(&mut self.key.stream(credential.as_str(), 0));
        let mut others = self.issued.iter().chain(&self.retired);
        let is_apart =
            |other: &Phantom| !other.text.contains(&text) && !text.contains(&*other.text);
        if shape.entropy_bits() >= MIN_BITS && others.all(is_apart) {
            self.retired.push(Phantom {
                credential: credential.clone(),
                text: Arc::from(text),
            });
        }
    }

    fn draw(
        &mut self,
        credential: &CredentialName,
        taken: impl Fn(&[u8]) -> bool,
        make: impl Fn(&PhantomKey, u32) -> Option<String>,
    ) -> Result<Phantom, PhantomFailure> {
        if self.issued.len() == MAX_PHANTOMS {
            return Err(PhantomFailure::TooMany);
        }
        if self.has(credential) {
            return Err(PhantomFailure::Issued {
                credential: credential.clone(),
            });
        }
        let text = (0..MAX_ATTEMPTS)
            .filter_map(|attempt| make(self.key, attempt))
            .find(|text| !taken(text.as_bytes()) && !self.overlaps(credential, text))
            .ok_or_else(|| PhantomFailure::Crowded {
                credential: credential.clone(),
            })?;
        let phantom = Phantom {
            credential: credential.clone(),
            text: Arc::from(text),
        };
        // A credential that comes back has its former phantom.
        self.retired.retain(|old| old.text != phantom.text);
        self.issued.push(phantom.clone());
        Ok(phantom)
    }

    fn overlaps(&self, credential: &CredentialName, text: &str) -> bool {
        let folded = text.to_ascii_lowercase();
        let retired = self.retired.iter();
        let others = retired.filter(|old| old.credential != *credential);
        self.issued.iter().chain(others).any(|phantom| {
            let other = phantom.text.to_ascii_lowercase();
            folded.contains(&other) || other.contains(&folded)
        })
    }
}

/// The most phantoms issued to one session.
const MAX_PHANTOMS: usize = 256;
/// The most retired phantoms that one session's requests are searched for.
const MAX_RETIRED: usize = 64;
const MAX_ATTEMPTS: u32 = 64;
