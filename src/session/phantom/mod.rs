//! Phantoms: what a session holds in place of its secrets, of the same prefix, length, alphabet and
//! shape.

mod draw;
mod finder;
mod jwt;
mod known;
mod minted;
mod registry;
mod shape;

use std::ops::Range;
use std::sync::Arc;

use crate::names::CredentialName;
use crate::signature::recipe::KeyForm;

pub use draw::PhantomKey;
pub use finder::{Form, Sighting};
pub use minted::Minted;
pub use registry::Registry;
pub use shape::{Shape, ShapeMalformed};

use finder::Finder;

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

    /// What is looked for of a phantom that was minted: a session token has some thousand letters,
    /// of which any few tell it.
    fn middle(&self) -> &str {
        let surplus = self.text.len().saturating_sub(MIDDLE);
        let from = surplus / 2;
        self.text
            .get(from..self.text.len() - (surplus - from))
            .unwrap_or(&self.text)
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
        Phantoms::new(self.issued)
    }

    fn overlaps(&self, text: &str) -> bool {
        let folded = text.to_ascii_lowercase();
        self.issued.iter().any(|phantom| {
            let other = phantom.text.to_ascii_lowercase();
            folded.contains(&other) || other.contains(&folded)
        })
    }
}

/// A session's phantoms at one time, and the automata that find them. A session that is given
/// credentials while it lives has others from then on.
pub struct Phantoms {
    issued: Arc<Issued>,
    /// Those of temporary credentials, the oldest first.
    minted: Vec<Arc<Minted>>,
    finder: Finder,
}

/// What a session was issued when it began.
struct Issued {
    phantoms: Vec<Phantom>,
    finder: Finder,
}

impl Phantoms {
    /// A session that holds none.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Vec::new())
    }

    fn new(phantoms: Vec<Phantom>) -> Self {
        let finder = Finder::new(phantoms.iter().map(Phantom::mark), TIMES_ISSUED);
        Self {
            issued: Arc::new(Issued { phantoms, finder }),
            minted: Vec::new(),
            finder: Finder::new(std::iter::empty(), TIMES_MINTED),
        }
    }

    /// Those of the configured credentials, in the order in which they were issued.
    #[must_use]
    pub fn all(&self) -> &[Phantom] {
        &self.issued.phantoms
    }

    /// The phantom that was sighted.
    #[must_use]
    pub fn at(&self, sighting: &Sighting) -> &Phantom {
        let issued = self.all();
        match sighting.index.checked_sub(issued.len()) {
            None => &issued[sighting.index],
            Some(minted) => &self.minted[minted / 3].parts()[minted % 3],
        }
    }

    /// The phantom of one credential.
    #[must_use]
    pub fn of(&self, credential: &CredentialName) -> Option<&Phantom> {
        self.all()
            .iter()
            .find(|phantom| phantom.credential == *credential)
    }

    /// The phantoms of temporary credentials with this access key id, if the session was given
    /// such.
    #[must_use]
    pub fn minted(&self, access_key: &str) -> Option<Arc<Minted>> {
        let has_key = |minted: &&Arc<Minted>| minted.parts()[0].reveal() == access_key;
        self.minted.iter().find(has_key).cloned()
    }

    /// These with those of temporary credentials, and without the sets that ended or have to go for
    /// it, which are given beside.
    #[must_use]
    pub fn with(&self, minted: Arc<Minted>) -> (Self, Vec<Arc<Minted>>) {
        let (mut gone, mut kept): (Vec<_>, Vec<_>) =
            self.minted.iter().cloned().partition(|set| set.is_over());
        let surplus = (kept.len() + 1).saturating_sub(minted::MOST);
        gone.extend(kept.drain(..surplus));
        kept.push(minted);
        let parts = kept.iter().flat_map(|set| set.parts());
        let phantoms = Self {
            finder: Finder::new(parts.map(Phantom::middle), TIMES_MINTED),
            issued: self.issued.clone(),
            minted: kept,
        };
        (phantoms, gone)
    }

    /// Where all of a phantom stands that was sighted in a text of this length.
    #[must_use]
    pub fn extent(&self, sighting: &Sighting, length: usize) -> Range<usize> {
        let Range { start, end } = sighting.at;
        if sighting.form != Form::Plain || sighting.index < self.all().len() {
            return start..end;
        }
        let surplus = self.at(sighting).reveal().len() - (end - start);
        start.saturating_sub(surplus / 2)..length.min(end + surplus.div_ceil(2))
    }

    /// The shortest text that could hold a phantom in any form; shorter texts need no search.
    #[must_use]
    pub fn shortest(&self) -> usize {
        self.issued.finder.shortest().min(self.finder.shortest())
    }

    /// Counts a sighting of a minted phantom behind those that were issued.
    fn numbered(&self, sighting: Sighting) -> Sighting {
        Sighting {
            index: sighting.index + self.all().len(),
            ..sighting
        }
    }

    /// The phantoms in a text, from the left, longest first, each plain or disguised as the text
    /// stands.
    pub fn find<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = Sighting> + 'a {
        let minted = self.finder.find(text);
        let minted = minted.map(|sighting| self.numbered(sighting));
        self.issued.finder.find(text).chain(minted)
    }

    /// A phantom that appears once escapes are undone: percent-encoding up to three deep, JSON `\u`
    /// and HTML references.
    #[must_use]
    pub fn find_unescaped(&self, text: &[u8]) -> Option<Sighting> {
        let minted = || self.finder.find_unescaped(text);
        let issued = self.issued.finder.find_unescaped(text);
        issued.or_else(|| minted().map(|sighting| self.numbered(sighting)))
    }

    /// A phantom in a text that has lost its case, as host names and field names do.
    #[must_use]
    pub fn find_folded(&self, text: &[u8]) -> Option<Sighting> {
        let minted = || self.finder.find_folded(text);
        let issued = self.issued.finder.find_folded(text);
        issued.or_else(|| minted().map(|sighting| self.numbered(sighting)))
    }
}

impl std::fmt::Debug for Phantoms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let minted = self.minted.iter().flat_map(|set| set.parts());
        f.debug_list().entries(self.all()).entries(minted).finish()
    }
}

/// The least that a phantom must leave to chance, in bits.
pub const MIN_BITS: u32 = 24;
/// How often base64 is undone around a phantom; of those that come while the session lives fewer
/// forms are looked for, since they are prepared while a request waits.
const TIMES_ISSUED: usize = 2;
const TIMES_MINTED: usize = 1;
/// The most phantoms that one session is issued.
pub const MAX_PHANTOMS: usize = 256;
const MAX_ATTEMPTS: u32 = 64;
const MIDDLE: usize = 64;
/// No word around a key in PEM is as long as this, and the lines that matter are longer.
const MIN_MARK: usize = 24;

#[cfg(test)]
mod tests;
