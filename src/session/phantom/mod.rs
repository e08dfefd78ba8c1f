//! Phantoms: what a session holds in place of its secrets, of the same prefix, length, alphabet and
//! shape.

mod draw;
mod finder;
mod jwt;
mod known;
mod purse;
mod registry;
mod shape;

use std::sync::Arc;

use crate::names::CredentialName;
use crate::signature::recipe::KeyForm;

pub use draw::PhantomKey;
pub use finder::{Form, Sighting};
pub use purse::Minted;
pub use registry::Registry;
pub use shape::{Shape, ShapeMalformed};

use finder::Finder;
use purse::Purse;

/// What a session holds in place of one secret. Debug names the credential and never prints the
/// text.
#[derive(Clone)]
pub struct Phantom {
    credential: CredentialName,
    text: Arc<str>,
}

/// Why no phantom is made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PhantomFailure {
    /// The shape leaves too little to draw, so that a phantom would be guessed or met by chance.
    #[error(
        "a phantom for credential `{credential}` would have {bits} random bits; at least {MIN_BITS} are needed"
    )]
    TooGuessable {
        /// The credential.
        credential: CredentialName,
        /// What its shape leaves to draw.
        bits: u32,
    },
    /// Every attempt met the secret or another phantom of the session.
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
    /// The session has as many phantoms as it may.
    #[error("a session has at most {MAX_PHANTOMS} phantoms")]
    TooMany,
}

impl Phantom {
    /// The credential that it stands for.
    #[must_use]
    pub fn credential(&self) -> &CredentialName {
        &self.credential
    }

    /// What the sandbox gets to hold, in an environment variable or a file.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// What is looked for in requests: the text, or one line of a private key, which has that of no
    /// other.
    fn mark(&self) -> &str {
        if !KeyForm::is_pem(self.text.as_bytes()) {
            return &self.text;
        }
        // The first line is much the same in all keys of a kind, so it serves where there is no
        // second.
        let lines = self
            .text
            .split("\\n")
            .flat_map(str::split_ascii_whitespace)
            .filter(|line| line.len() >= MIN_MARK);
        lines.take(2).last().unwrap_or(&self.text)
    }

    /// Whether it has the shape of a credential: one length, and the same punctuation at the same
    /// positions; letters, digits and `-._` are never escaped (RFC 3986 §2.3), whichever of them
    /// stand there.
    #[cfg(test)]
    pub(crate) fn fits(&self, credential: &[u8]) -> bool {
        let escapable = |byte: u8| !(byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        let phantom = self.text.as_bytes();
        phantom.len() == credential.len()
            && phantom
                .iter()
                .zip(credential)
                .all(|(ours, theirs)| ours == theirs || !(escapable(*ours) || escapable(*theirs)))
    }
}

impl std::fmt::Debug for Phantom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Phantom(for {})", self.credential)
    }
}

/// A session's phantoms while they are issued, in the order of its credentials;
/// [`finish`](Self::finish) ends it.
pub struct Issue<'k> {
    key: &'k PhantomKey,
    issued: Vec<Phantom>,
}

impl<'k> Issue<'k> {
    /// Begins a session's phantoms. One key per session; replicas of the session share it.
    #[must_use]
    pub fn new(key: &'k PhantomKey) -> Self {
        Self {
            key,
            issued: Vec::new(),
        }
    }

    /// Issues the phantom of one credential.
    ///
    /// The same key, name and shape give the same phantom. `taken` says of a candidate whether it
    /// is the secret itself, which only the credential room can tell. No phantom lies inside
    /// another.
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

    /// Issues the phantom of a private key: another key of the same form, with which any client
    /// signs.
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

    fn draw(
        &mut self,
        credential: &CredentialName,
        taken: impl Fn(&[u8]) -> bool,
        make: impl Fn(&PhantomKey, u32) -> Option<String>,
    ) -> Result<Phantom, PhantomFailure> {
        if self.issued.len() == MAX_PHANTOMS {
            return Err(PhantomFailure::TooMany);
        }
        if self
            .issued
            .iter()
            .any(|phantom| phantom.credential == *credential)
        {
            return Err(PhantomFailure::Issued {
                credential: credential.clone(),
            });
        }
        let text = (0..MAX_ATTEMPTS)
            .filter_map(|attempt| make(self.key, attempt))
            .find(|text| !taken(text.as_bytes()) && !self.overlaps(text))
            .ok_or_else(|| PhantomFailure::Crowded {
                credential: credential.clone(),
            })?;
        let phantom = Phantom {
            credential: credential.clone(),
            text: Arc::from(text),
        };
        self.issued.push(phantom.clone());
        Ok(phantom)
    }

    /// The session's phantoms, ready to be looked for.
    #[must_use]
    pub fn finish(self) -> Phantoms {
        let finder = Finder::new(self.issued.iter().map(Phantom::mark));
        Phantoms {
            issued: self.issued,
            finder,
            purse: Purse::default(),
        }
    }

    fn overlaps(&self, text: &str) -> bool {
        let folded = text.to_ascii_lowercase();
        self.issued.iter().any(|phantom| {
            let other = phantom.text.to_ascii_lowercase();
            folded.contains(&other) || other.contains(&folded)
        })
    }
}

/// A session's phantoms, and the automaton that finds them.
pub struct Phantoms {
    issued: Vec<Phantom>,
    finder: Finder,
    purse: Purse,
}

impl Phantoms {
    /// A session that holds none.
    #[must_use]
    pub fn none() -> Self {
        Self {
            issued: Vec::new(),
            finder: Finder::new(std::iter::empty()),
            purse: Purse::default(),
        }
    }

    /// All of them, in the order in which they were issued; a [`Sighting`]'s index counts in it.
    #[must_use]
    pub fn all(&self) -> &[Phantom] {
        &self.issued
    }

    /// The phantom of one credential.
    #[must_use]
    pub fn of(&self, credential: &CredentialName) -> Option<&Phantom> {
        self.issued
            .iter()
            .find(|phantom| phantom.credential == *credential)
    }

    /// The phantoms of temporary credentials with this access key id, if the session was given
    /// such.
    #[must_use]
    pub fn minted(&self, access_key: &str) -> Option<Arc<Minted>> {
        self.purse.of(access_key)
    }

    /// Keeps phantoms of temporary credentials; gives those that the session no longer holds for
    /// it.
    pub fn keep(&self, minted: Arc<Minted>) -> Vec<Arc<Minted>> {
        self.purse.keep(minted)
    }

    /// The shortest text that could hold a phantom in any form; shorter texts need no search.
    #[must_use]
    pub fn shortest(&self) -> usize {
        self.finder.shortest()
    }

    /// The phantoms in a text, from the left, longest first, each plain or disguised as the text
    /// stands.
    pub fn find<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = Sighting> + 'a {
        self.finder.find(text)
    }

    /// A phantom that appears once escapes are undone: percent-encoding up to three deep, JSON `\u`
    /// and HTML references.
    #[must_use]
    pub fn find_unescaped(&self, text: &[u8]) -> Option<Sighting> {
        self.finder.find_unescaped(text)
    }

    /// A phantom in a text that has lost its case, as host names and field names do.
    #[must_use]
    pub fn find_folded(&self, text: &[u8]) -> Option<Sighting> {
        self.finder.find_folded(text)
    }
}

impl std::fmt::Debug for Phantoms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.issued).finish()
    }
}

/// The least that a phantom must leave to chance, in bits.
pub const MIN_BITS: u32 = 24;
/// The most phantoms that one session holds.
pub const MAX_PHANTOMS: usize = 256;
const MAX_ATTEMPTS: u32 = 64;
/// No word around a key in PEM is as long as this, and the lines that matter are longer.
const MIN_MARK: usize = 24;

#[cfg(test)]
mod tests;
