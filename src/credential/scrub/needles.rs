//! The needles that responses are searched for. They depend only on secrets: sessions share them.
//!
//! A secret keeps weak references, so needles that no session uses are wiped and freed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::form::SecretForm;
use super::index::{BlockIndex, Blocks, GRID_COUNT, Grid, IndexedForm};
use super::partial::PartialMatcher;
use super::piece::Piece;
use crate::part::DrawnPart;

/// One spelling of a secret.
pub(super) struct Needle {
    pub(super) secret: Zeroizing<Vec<u8>>,
    pub(super) piece: Option<Piece>,
    /// Which of its bytes depend on the secret, rather than only on the spelling.
    telling: Zeroizing<Box<[bool]>>,
}

/// All spellings of one secret, and the blocks that find them. Has no `Debug`.
pub(super) struct Needles {
    /// Counts up with each new secret that is searched for.
    number: u64,
    part: Option<DrawnPart>,
    needles: Vec<Needle>,
    /// Indexed by grid number.
    whole: [OnceLock<Blocks>; GRID_COUNT],
    pieces: [OnceLock<Blocks>; GRID_COUNT],
    partial: WeakList<PartialMatcher>,
    /// The sets in which this secret has the highest number.
    sets: WeakList<NeedleSet>,
}

/// The needles of one secret. They belong to the secret, so a renewed secret has its own.
#[derive(Default)]
pub(crate) struct SharedNeedles(WeakList<Needles>);

impl SharedNeedles {
    /// Returns the spellings of the secret that has these forms. Sessions share them, unless the
    /// part to search for in pieces differs, which leaves out letters that the phantom has too.
    pub(super) fn of(&self, part: Option<DrawnPart>, forms: &[SecretForm]) -> Arc<Needles> {
        let is_same = |one: &Needles| one.part == part && one.needles.len() == forms.len();
        let made = || Arc::new(Needles::new(part.clone(), forms));
        self.0.find_or_make(is_same, made)
    }
}

impl Needles {
    pub(super) fn new(part: Option<DrawnPart>, forms: &[SecretForm]) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            part,
            needles: forms.iter().map(Needle::of).collect(),
            whole: Default::default(),
            pieces: Default::default(),
            partial: WeakList::default(),
            sets: WeakList::default(),
        }
    }

    pub(super) fn part(&self) -> Option<&DrawnPart> {
        self.part.as_ref()
    }

    /// Returns the secret itself, which is its first spelling.
    pub(super) fn plain(&self) -> &[u8] {
        self.first().map_or(&[], |needle| &needle.secret)
    }

    /// Returns the needle of the secret itself, which is the first.
    pub(super) fn first(&self) -> Option<&Needle> {
        self.needles.first()
    }

    /// Returns an equal matcher that another session uses, or this one.
    pub(super) fn partial(&self, of: PartialMatcher) -> Arc<PartialMatcher> {
        let made = Arc::new(of);
        self.partial
            .find_or_make(|one| *one == *made, || made.clone())
    }

    /// Returns the blocks that find whole forms.
    pub(super) fn whole(&self, grid: Grid) -> &Blocks {
        let entries = || self.needles.iter().enumerate().map(whole_of);
        self.whole[grid.number()].get_or_init(|| grid.blocks(entries()))
    }

    /// Returns the blocks that also find pieces.
    pub(super) fn pieces(&self, grid: Grid) -> &Blocks {
        let entries = || self.needles.iter().enumerate().map(piece_of);
        self.pieces[grid.number()].get_or_init(|| grid.blocks(entries()))
    }

    /// Returns the length of the shortest form.
    pub(super) fn shortest(&self) -> usize {
        let lengths = self.needles.iter().map(|needle| needle.secret.len());
        lengths.min().unwrap_or(usize::MAX)
    }

    /// Returns the length of the shortest piece, or of the shortest form if there are no pieces.
    pub(super) fn shortest_piece(&self) -> usize {
        let entries = self.needles.iter().enumerate().map(piece_of);
        entries.map(|one| one.least).min().unwrap_or(usize::MAX)
    }

    /// Returns the length of the longest run that is too short to be a piece.
    fn reach(&self) -> usize {
        let pieces = self.needles.iter().filter_map(|one| one.piece.as_ref());
        pieces.map(Piece::longest_that_is_none).max().unwrap_or(0)
    }

    /// Whether the secret is searched for in pieces.
    fn has_pieces(&self) -> bool {
        self.needles.iter().any(|needle| needle.piece.is_some())
    }
}

impl Needle {
    fn of(form: &SecretForm) -> Self {
        let pairs = form.secret.iter().zip(form.stand_in.iter());
        Self {
            secret: form.secret.clone(),
            piece: form.piece.clone(),
            telling: Zeroizing::new(pairs.map(|(one, other)| one != other).collect()),
        }
    }
}

fn whole_of((at, needle): (usize, &Needle)) -> IndexedForm<'_> {
    IndexedForm {
        form: at,
        within: 0..needle.secret.len(),
        least: needle.secret.len(),
        bytes: &needle.secret,
        telling: &needle.telling,
    }
}

fn piece_of((at, needle): (usize, &Needle)) -> IndexedForm<'_> {
    match &needle.piece {
        Some(piece) => IndexedForm {
            within: piece.within.clone(),
            least: piece.least,
            ..whole_of((at, needle))
        },
        None => whole_of((at, needle)),
    }
}

/// The blocks of several secrets in one index. Wiped on drop. Has no `Debug`.
pub(super) struct NeedleSet {
    secrets: Vec<Arc<Needles>>,
    /// Finds whole forms, at little cost.
    pub(super) whole: BlockIndex,
    /// Also finds pieces; `None` if no secret is searched for in pieces.
    pub(super) pieces: Option<BlockIndex>,
    /// The length of the shortest text that could contain an echo.
    pub(super) shortest: usize,
    /// The length of the shortest text that could contain a whole echo.
    pub(super) shortest_whole: usize,
    /// The length of the longest run that is too short to be a piece.
    pub(super) reach: usize,
}

impl NeedleSet {
    /// Returns the set of these secrets, in this order.
    pub(super) fn of(secrets: Vec<Arc<Needles>>) -> Arc<Self> {
        // The latest secret keeps the set. If it is a session's own, no other session looks it up.
        let Some(last) = secrets.iter().max_by_key(|one| one.number).cloned() else {
            return Arc::new(Self::new(secrets));
        };
        let pairs = |one: &Self| {
            one.secrets
                .iter()
                .zip(&secrets)
                .all(|(a, b)| Arc::ptr_eq(a, b))
        };
        let is_same = |one: &Self| one.secrets.len() == secrets.len() && pairs(one);
        let made = || Arc::new(Self::new(secrets.clone()));
        last.sets.find_or_make(is_same, made)
    }

    fn new(secrets: Vec<Arc<Needles>>) -> Self {
        let each = || secrets.iter();
        let shortest_whole = each().map(|one| one.shortest()).min();
        let shortest_whole = shortest_whole.unwrap_or(usize::MAX);
        let shortest = each().map(|one| one.shortest_piece()).min();
        let shortest = shortest.unwrap_or(usize::MAX);
        let numbered = || (0_u32..).map(|number| number << FORM_BITS).zip(each());
        let grid = Grid::of(shortest_whole);
        let whole = numbered().map(|(first, one)| (first, one.whole(grid)));
        let fine = Grid::of(shortest);
        let pieces = numbered().map(|(first, one)| (first, one.pieces(fine)));
        let in_pieces = each().any(|one| one.has_pieces());
        Self {
            whole: BlockIndex::of(grid, whole),
            pieces: in_pieces.then(|| BlockIndex::of(fine, pieces)),
            shortest,
            shortest_whole,
            reach: each().map(|one| one.reach()).max().unwrap_or(0),
            secrets,
        }
    }

    /// Returns the needle of a form's number.
    pub(super) fn needle(&self, number: usize) -> &Needle {
        let (secret, form) = split(number);
        &self.secrets[secret].needles[form]
    }

    /// Returns the needles of all secrets.
    pub(super) fn needles(&self) -> impl Iterator<Item = &Needle> {
        self.secrets.iter().flat_map(|one| &one.needles)
    }
}

/// Sorts secrets so that sessions that received them in another order share one set.
///
/// Equal secrets under several names keep their order: it decides which of their phantoms is
/// written.
pub(super) fn sort<T>(secrets: &mut [T], needles: impl Fn(&T) -> &Arc<Needles>) {
    let texts: BTreeSet<_> = secrets.iter().map(|one| needles(one).plain()).collect();
    if texts.len() == secrets.len() {
        secrets.sort_by_key(|one| needles(one).number);
    }
}

/// Splits a form's number into the index of its secret and its index in that secret.
pub(super) fn split(number: usize) -> (usize, usize) {
    (number >> FORM_BITS, number & ((1 << FORM_BITS) - 1))
}

const FORM_BITS: u32 = 8;

/// Values that several sessions share. Each is freed when the last of them drops it.
struct WeakList<T>(Mutex<Vec<Weak<T>>>);

impl<T> Default for WeakList<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> WeakList<T> {
    /// Returns the existing value, or a new one, which is made outside of the lock.
    fn find_or_make(&self, is_same: impl Fn(&T) -> bool, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let known = |all: &[Weak<T>]| {
            let mut live = all.iter().filter_map(Weak::upgrade);
            live.find(|one| is_same(one))
        };
        if let Some(known) = known(&self.0.lock()) {
            return known;
        }
        let made = make();
        let mut all = self.0.lock();
        if let Some(known) = known(&all) {
            return known;
        }
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&made));
        made
    }
}
