//! All forms of one secret for one session, and their replacements.

use std::sync::{Arc, OnceLock};

use zeroize::Zeroizing;

use super::fault::Unscrubbable;
use super::form::{self, EchoPattern, SecretForm};
use super::needles::{Needles, SharedNeedles};
use super::partial::PartialMatcher;
use super::sextets::Tail;
use crate::part::DrawnPart;

/// A secret in every form in which it could be echoed. Has no `Debug`.
pub struct SecretForms {
    needles: Arc<Needles>,
    partial: Arc<PartialMatcher>,
    resizes: bool,
    stand_in: Zeroizing<Vec<u8>>,
    phantom: Zeroizing<Vec<u8>>,
    /// Made when the first echo is found, which is rare.
    replacements: OnceLock<Vec<Replacement>>,
}

/// The replacement of one spelling of a secret in one session.
pub(super) struct Replacement {
    /// Has the length and punctuation of the secret's spelling.
    pub(super) stand_in: Zeroizing<Vec<u8>>,
    /// The phantom's spelling, if it differs from the stand-in. It replaces the whole form, and may
    /// have another length.
    pub(super) phantom: Option<Box<[u8]>>,
    pub(super) tail: Option<Tail>,
}

impl SecretForms {
    /// Builds the forms of a secret whose needles are not shared with other sessions.
    ///
    /// # Errors
    /// Same as `sharing`.
    pub fn of(secret: &[u8], stand_in: &[u8], phantom: &[u8]) -> Result<Self, Unscrubbable> {
        Self::sharing(&SharedNeedles::default(), secret, stand_in, phantom)
    }

    /// Builds the forms of a secret, with the needles that sessions share.
    ///
    /// `stand_in` has the secret's length and punctuation; the workload holds `phantom`.
    ///
    /// # Errors
    /// [`Unscrubbable`] by cause. The secret must then not be lent.
    pub(crate) fn sharing(
        shared: &SharedNeedles,
        secret: &[u8],
        stand_in: &[u8],
        phantom: &[u8],
    ) -> Result<Self, Unscrubbable> {
        let part = DrawnPart::of(secret, phantom);
        let sought = EchoPattern {
            secret,
            stand_in,
            phantom,
        };
        let forms = form::forms(&sought, part.as_ref())?;
        Ok(Self::new(&sought, shared.of(part, &forms), &forms))
    }

    /// Builds the forms of a text that services repeat unchanged; a mask replaces it.
    ///
    /// # Errors
    /// Same as [`SecretForms::of`].
    pub(crate) fn of_text(text: &[u8], mask: &[u8]) -> Result<Self, Unscrubbable> {
        let forms = form::usual_forms(text, mask)?;
        let sought = EchoPattern {
            secret: text,
            stand_in: mask,
            phantom: mask,
        };
        let made = Self::new(&sought, Arc::new(Needles::new(None, &forms)), &forms);
        Ok(Self {
            replacements: OnceLock::from(replacements(forms)),
            ..made
        })
    }

    fn new(sought: &EchoPattern<'_>, needles: Arc<Needles>, forms: &[SecretForm]) -> Self {
        Self {
            partial: needles.partial(PartialMatcher::of(forms)),
            needles,
            resizes: forms.iter().any(resizes),
            stand_in: Zeroizing::new(sought.stand_in.to_vec()),
            phantom: Zeroizing::new(sought.phantom.to_vec()),
            replacements: OnceLock::new(),
        }
    }

    /// Returns the needles to search for.
    pub(super) fn needles(&self) -> &Arc<Needles> {
        &self.needles
    }

    /// Returns the replacement of the form with this index.
    pub(super) fn replacement(&self, form: usize) -> &Replacement {
        &self.replacements.get_or_init(|| self.replacements())[form]
    }

    fn replacements(&self) -> Vec<Replacement> {
        let sought = EchoPattern {
            secret: self.needles.plain(),
            stand_in: &self.stand_in,
            phantom: &self.phantom,
        };
        // The forms were built from the same three texts before, without a fault.
        let forms = form::forms(&sought, self.needles.part());
        forms.map(replacements).unwrap_or_default()
    }

    /// Returns the matcher that recognizes incomplete forms.
    pub(super) fn partial(&self) -> &Arc<PartialMatcher> {
        &self.partial
    }

    /// Whether an echo of it can be replaced by text of another length.
    pub(super) fn resizes(&self) -> bool {
        self.resizes
    }
}

fn replacements(forms: Vec<SecretForm>) -> Vec<Replacement> {
    let replacement = |form: SecretForm| Replacement {
        stand_in: form.stand_in,
        phantom: form.phantom,
        tail: form.tail,
    };
    forms.into_iter().map(replacement).collect()
}

fn resizes(form: &SecretForm) -> bool {
    let phantom = form.phantom.as_ref();
    phantom.is_some_and(|phantom| phantom.len() != form.secret.len())
}
