//! All forms of one secret, and the blocks that find them. Built once, and shared by all searches.

use std::sync::{Arc, OnceLock};

use super::fault::Unscrubbable;
use super::form::{self, SecretForm, Sought};
use super::index::{Blocks, GRID_COUNT, Grid, IndexedForm};
use super::partial::PartialMatcher;
use super::piece::Piece;
use crate::credential::part::DrawnPart;

/// A secret in every form in which it could come back. Has no `Debug`.
pub struct SecretForms {
    forms: Vec<SecretForm>,
    partial: Arc<PartialMatcher>,
    /// Indexed by grid number.
    whole: [OnceLock<Blocks>; GRID_COUNT],
    pieces: [OnceLock<Blocks>; GRID_COUNT],
}

impl SecretForms {
    /// Builds the forms of a secret.
    ///
    /// `stand_in` has the secret's length and punctuation; `phantom` is what the workload holds.
    ///
    /// # Errors
    /// [`Unscrubbable`] by cause. The secret must then not be lent.
    pub fn of(secret: &[u8], stand_in: &[u8], phantom: &[u8]) -> Result<Self, Unscrubbable> {
        let part = DrawnPart::of(secret, phantom);
        let sought = Sought {
            secret,
            stand_in,
            phantom,
        };
        Ok(Self::new(form::forms(&sought, part.as_ref())?))
    }

    /// Builds the forms of a text that services repeat unchanged; a mask replaces it.
    ///
    /// # Errors
    /// Same as [`SecretForms::of`].
    pub(in crate::credential) fn of_text(text: &[u8], mask: &[u8]) -> Result<Self, Unscrubbable> {
        Ok(Self::new(form::usual_forms(text, mask)?))
    }

    fn new(forms: Vec<SecretForm>) -> Self {
        Self {
            partial: Arc::new(PartialMatcher::of(&forms)),
            forms,
            whole: Default::default(),
            pieces: Default::default(),
        }
    }

    pub(super) fn forms(&self) -> &[SecretForm] {
        &self.forms
    }

    /// Recognizes forms that are not complete yet.
    pub(super) fn partial(&self) -> &Arc<PartialMatcher> {
        &self.partial
    }

    /// Whether pieces of it are searched for.
    pub(super) fn has_pieces(&self) -> bool {
        self.forms.iter().any(|form| form.piece.is_some())
    }

    /// Whether one of its echoes can be replaced by text of another length.
    pub(super) fn resizes(&self) -> bool {
        let resized = |form: &SecretForm| {
            let phantom = form.phantom.as_ref();
            phantom.is_some_and(|phantom| phantom.len() != form.secret.len())
        };
        self.forms.iter().any(resized)
    }

    /// The length of the shortest form.
    pub(super) fn shortest(&self) -> usize {
        let lengths = self.forms.iter().map(|form| form.secret.len());
        lengths.min().unwrap_or(usize::MAX)
    }

    /// The length of the shortest piece, or of the shortest form if there are no pieces.
    pub(super) fn shortest_piece(&self) -> usize {
        let least = self.forms.iter().enumerate().map(|one| piece_of(one).least);
        least.min().unwrap_or(usize::MAX)
    }

    /// The length of the longest run that is too short to be a piece.
    pub(super) fn reach(&self) -> usize {
        let pieces = self.forms.iter().filter_map(|form| form.piece.as_ref());
        pieces.map(Piece::longest_that_is_none).max().unwrap_or(0)
    }

    /// The blocks that find whole forms.
    pub(super) fn whole(&self, grid: Grid) -> &Blocks {
        let entries = || self.forms.iter().enumerate().map(whole_of);
        self.whole[grid.number()].get_or_init(|| grid.blocks(entries()))
    }

    /// The blocks that also find pieces.
    pub(super) fn pieces(&self, grid: Grid) -> &Blocks {
        let entries = || self.forms.iter().enumerate().map(piece_of);
        self.pieces[grid.number()].get_or_init(|| grid.blocks(entries()))
    }
}

fn whole_of((at, form): (usize, &SecretForm)) -> IndexedForm<'_> {
    IndexedForm {
        form: at,
        within: 0..form.secret.len(),
        least: form.secret.len(),
        bytes: &form.secret,
        others: &form.stand_in,
    }
}

fn piece_of((at, form): (usize, &SecretForm)) -> IndexedForm<'_> {
    match &form.piece {
        Some(piece) => IndexedForm {
            within: piece.within.clone(),
            least: piece.least,
            ..whole_of((at, form))
        },
        None => whole_of((at, form)),
    }
}
