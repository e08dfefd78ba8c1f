//! All phantoms of a session, and the search for them in a text.

use std::ops::Range;
use std::sync::Arc;

use gateway_names::CredentialName;

use super::finder::{Finder, Form, PhantomMatch};
use super::issue::Issue;
use super::temporary::{MOST, TemporaryPhantoms};
use super::text::Phantom;

impl Issue<'_> {
    /// Finishes issuing, and builds the search for the session's phantoms.
    #[must_use]
    pub fn finish(self) -> Phantoms {
        Phantoms::new(self.issued, self.retired)
    }
}

/// A session's phantoms at one moment, and the automata that find them. A session that receives
/// temporary credentials gets a new set.
pub struct Phantoms {
    issued: Arc<IssuedPhantoms>,
    /// The phantoms of temporary credentials, oldest first.
    minted: Vec<Arc<TemporaryPhantoms>>,
    finder: Finder,
}

/// The phantoms of configured credentials.
struct IssuedPhantoms {
    /// The phantoms in use, then the retired ones.
    phantoms: Vec<Phantom>,
    /// How many phantoms are in use.
    current: usize,
    finder: Finder,
}

impl Phantoms {
    /// Returns an empty set.
    pub fn none() -> Self {
        Self::new(Vec::new(), Vec::new())
    }

    fn new(mut phantoms: Vec<Phantom>, retired: Vec<Phantom>) -> Self {
        let current = phantoms.len();
        phantoms.extend(retired);
        let finder = Finder::new(phantoms.iter().map(Phantom::mark), TIMES_ISSUED);
        Self {
            issued: Arc::new(IssuedPhantoms {
                phantoms,
                current,
                finder,
            }),
            minted: Vec::new(),
            finder: Finder::new(std::iter::empty(), TIMES_MINTED),
        }
    }

    /// Returns the phantoms of configured credentials, in the order of issue.
    pub fn all(&self) -> &[Phantom] {
        &self.issued.phantoms[..self.issued.current]
    }

    /// Returns the phantoms of credentials that the session may no longer use, oldest first.
    pub fn retired(&self) -> &[Phantom] {
        &self.issued.phantoms[self.issued.current..]
    }

    /// Whether the phantom of a sighting is retired.
    pub fn is_retired(&self, sighting: &PhantomMatch) -> bool {
        (self.issued.current..self.issued.phantoms.len()).contains(&sighting.index)
    }

    /// Returns the phantom of a sighting.
    pub fn at(&self, sighting: &PhantomMatch) -> &Phantom {
        let issued = &self.issued.phantoms;
        match sighting.index.checked_sub(issued.len()) {
            None => &issued[sighting.index],
            Some(minted) => &self.minted[minted / 3].parts()[minted % 3],
        }
    }

    /// Returns the phantom of one credential.
    pub fn of(&self, credential: &CredentialName) -> Option<&Phantom> {
        self.all()
            .iter()
            .find(|phantom| phantom.credential == *credential)
    }

    /// Returns the phantoms of the temporary credentials with this access key id, if the session
    /// received them.
    pub fn minted(&self, access_key: &str) -> Option<Arc<TemporaryPhantoms>> {
        let has_key = |minted: &&Arc<TemporaryPhantoms>| minted.parts()[0].reveal() == access_key;
        self.minted.iter().find(has_key).cloned()
    }

    /// Returns this set with the phantoms of new temporary credentials, and the sets removed
    /// because they expired or to make room.
    #[must_use]
    pub fn with(&self, minted: Arc<TemporaryPhantoms>) -> (Self, Vec<Arc<TemporaryPhantoms>>) {
        let (mut gone, mut kept): (Vec<_>, Vec<_>) =
            self.minted.iter().cloned().partition(|set| set.is_over());
        gone.extend(kept.drain(..(kept.len() + 1).saturating_sub(MOST)));
        kept.push(minted);
        (self.with_minted(kept), gone)
    }

    /// Returns this set with the temporary credentials of another.
    #[must_use]
    pub fn with_minted_of(&self, other: &Self) -> Self {
        self.with_minted(other.minted.clone())
    }

    fn with_minted(&self, minted: Vec<Arc<TemporaryPhantoms>>) -> Self {
        let parts = minted.iter().flat_map(|set| set.parts());
        Self {
            finder: Finder::new(parts.map(Phantom::middle), TIMES_MINTED),
            issued: self.issued.clone(),
            minted,
        }
    }

    /// Returns the full range of a phantom that was sighted in a text of this length.
    pub fn extent(&self, sighting: &PhantomMatch, length: usize) -> Range<usize> {
        let Range { start, end } = sighting.at;
        if sighting.form != Form::Plain || sighting.index < self.issued.phantoms.len() {
            return start..end;
        }
        let surplus = self.at(sighting).reveal().len() - (end - start);
        start.saturating_sub(surplus / 2)..length.min(end + surplus.div_ceil(2))
    }

    /// Returns the length of the shortest text that can contain a phantom in any form. Shorter
    /// texts need no search.
    pub fn shortest(&self) -> usize {
        self.issued.finder.shortest.min(self.finder.shortest)
    }

    /// Renumbers a sighting of a minted phantom, so that it comes after the issued ones.
    fn numbered(&self, sighting: PhantomMatch) -> PhantomMatch {
        PhantomMatch {
            index: sighting.index + self.issued.phantoms.len(),
            ..sighting
        }
    }

    /// Finds the phantoms in a text, plain or encoded: left to right, longest match first. Escapes
    /// are not removed.
    pub fn find<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = PhantomMatch> + 'a {
        let minted = self.finder.find(text);
        let minted = minted.map(|sighting| self.numbered(sighting));
        self.issued.finder.find(text).chain(minted)
    }

    /// Finds the credentials whose phantoms are in a piece of content: as issued, or as forms and
    /// JSON encode them.
    pub fn find_passing<'a>(
        &'a self,
        part: &'a [u8],
    ) -> impl Iterator<Item = &'a CredentialName> + 'a {
        let issued = self.issued.finder.find_passing(part);
        let issued = issued.map(|index| &self.issued.phantoms[index]);
        let minted = self.finder.find_passing(part);
        let minted = minted.map(|index| &self.minted[index / 3].parts()[index % 3]);
        issued.chain(minted).map(Phantom::credential)
    }

    /// Returns the number of phantoms.
    pub fn count(&self) -> usize {
        let minted = self.minted.iter().flat_map(|set| set.parts());
        self.issued.phantoms.len() + minted.count()
    }

    /// Returns the length of the longest text that [`Self::find_passing`] finds.
    pub fn longest_passing(&self) -> usize {
        let issued = self.issued.finder.longest_passing();
        issued.max(self.finder.longest_passing())
    }

    /// Finds a phantom that appears once escapes are removed: percent-encoding up to three layers
    /// deep, JSON `\u` and HTML references.
    pub fn find_unescaped(&self, text: &[u8]) -> Option<PhantomMatch> {
        let minted = || self.finder.find_unescaped(text);
        let issued = self.issued.finder.find_unescaped(text);
        issued.or_else(|| minted().map(|sighting| self.numbered(sighting)))
    }

    /// Finds a phantom in text that has lost its letter case, such as host names and field names.
    pub fn find_folded(&self, text: &[u8]) -> Option<PhantomMatch> {
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

/// How many layers of base64 are searched through. Minted phantoms are prepared while a request
/// waits, so fewer forms of them are searched for.
const TIMES_ISSUED: usize = 2;
const TIMES_MINTED: usize = 1;
