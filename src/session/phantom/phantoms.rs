//! All phantoms that a session holds, and the search for them in a text.

use std::ops::Range;
use std::sync::Arc;

use super::finder::{Finder, Form, Sighting};
use super::issue::Issue;
use super::temporary::{MOST, TemporaryPhantoms};
use super::text::Phantom;
use crate::names::CredentialName;

impl Issue<'_> {
    /// The session's phantoms, ready to be looked for.
    #[must_use]
    pub fn finish(self) -> Phantoms {
        Phantoms::new(self.issued)
    }
}

/// A session's phantoms at one time, and the automata that find them. A session that is given
/// credentials while it lives has others from then on.
pub struct Phantoms {
    issued: Arc<Issued>,
    /// Those of temporary credentials, the oldest first.
    minted: Vec<Arc<TemporaryPhantoms>>,
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
    pub fn minted(&self, access_key: &str) -> Option<Arc<TemporaryPhantoms>> {
        let has_key = |minted: &&Arc<TemporaryPhantoms>| minted.parts()[0].reveal() == access_key;
        self.minted.iter().find(has_key).cloned()
    }

    /// These with those of temporary credentials, and without the sets that ended or have to go for
    /// it, which are given beside.
    #[must_use]
    pub fn with(&self, minted: Arc<TemporaryPhantoms>) -> (Self, Vec<Arc<TemporaryPhantoms>>) {
        let (mut gone, mut kept): (Vec<_>, Vec<_>) =
            self.minted.iter().cloned().partition(|set| set.is_over());
        let surplus = (kept.len() + 1).saturating_sub(MOST);
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

/// How often base64 is undone around a phantom; of those that come while the session lives fewer
/// forms are looked for, since they are prepared while a request waits.
const TIMES_ISSUED: usize = 2;
const TIMES_MINTED: usize = 1;
