//! The forms in which an origin may send a lent secret back, each with the form of its phantom
//! beside it.
//!
//! Found: plain; hex; hex with what stands between bytes (space, colon, hyphen, `0x`); `\x41`;
//! base64 and base64url at the three alignments; percent-encoded in the usual sets and in full;
//! escaped in JSON and HTML, in the usual sets and in full; UTF-16. The Basic form is base64 at one
//! of the alignments. Of secrets that have a [`DrawnPart`], pieces of each form are found, too, and
//! so base64 with line breaks, and escapes that are mixed at will.
//!
//! Not found: a form of a form (base64 in hex), decimal numbers (which differ in length), base32,
//! other charsets.

use zeroize::Zeroizing;

use super::fault::{SHORTEST, Unscrubbable};
use super::piece::Piece;
use super::sextets::{STANDARD, Tail, URL_SAFE, sextets};
use super::spelling::{Spelled, spellings, usual_spellings};
use crate::credential::part::DrawnPart;

/// One spelling of a secret and what is written over it.
pub(super) struct SecretForm {
    pub(super) secret: Zeroizing<Vec<u8>>,
    /// As long as the secret's spelling, with the same punctuation.
    pub(super) stand_in: Zeroizing<Vec<u8>>,
    /// The spelling of the phantom, where that is not the stand-in: it replaces the whole form, and
    /// may have another length.
    pub(super) phantom: Option<Box<[u8]>>,
    pub(super) tail: Option<Tail>,
    pub(super) piece: Option<Piece>,
    /// What stands between the bytes of a form in hex, where something does.
    pub(super) between: Option<&'static [u8]>,
}

/// What is looked for, and what stands in its place.
pub(super) struct Sought<'a> {
    pub(super) secret: &'a [u8],
    /// As long as the secret, with the same punctuation: the phantom, or a mask.
    pub(super) stand_in: &'a [u8],
    /// What the workload holds, of whatever length.
    pub(super) phantom: &'a [u8],
}

/// All forms of one secret; each spelling once.
///
/// # Errors
/// [`Unscrubbable`] by cause.
pub(super) fn forms(
    sought: &Sought<'_>,
    part: Option<&DrawnPart>,
) -> Result<Vec<SecretForm>, Unscrubbable> {
    forms_in(spellings, sought, part)
}

/// The forms in which services repeat a text that they were sent; the text is looked for as a
/// whole.
///
/// # Errors
/// As [`forms`].
pub(super) fn usual_forms(text: &[u8], mask: &[u8]) -> Result<Vec<SecretForm>, Unscrubbable> {
    let sought = Sought {
        secret: text,
        stand_in: mask,
        phantom: mask,
    };
    forms_in(usual_spellings, &sought, None)
}

fn forms_in(
    spellings: impl Fn(&[u8]) -> Vec<Spelled>,
    sought: &Sought<'_>,
    part: Option<&DrawnPart>,
) -> Result<Vec<SecretForm>, Unscrubbable> {
    if sought.secret.len() < SHORTEST {
        return Err(Unscrubbable::TooShort);
    }
    if sought.secret == sought.stand_in {
        return Err(Unscrubbable::PhantomIsSecret);
    }
    if sought.secret.len() != sought.stand_in.len() {
        return Err(Unscrubbable::ShapeDiffers);
    }
    let mut forms: Vec<SecretForm> = Vec::new();
    let mut add = |form: SecretForm| {
        if !forms.iter().any(|known| known.secret == form.secret) {
            forms.push(form);
        }
    };
    let spelled = spellings(sought.secret)
        .into_iter()
        .zip(spellings(sought.stand_in));
    for ((secret, stand_in), phantom) in spelled.zip(spellings(sought.phantom)) {
        add(sought.spelled(secret, stand_in, &phantom, part)?);
    }
    for alphabet in [STANDARD, URL_SAFE] {
        for shift in 0..3 {
            add(sought.in_base64(shift, alphabet, part));
        }
    }
    Ok(forms)
}

impl Sought<'_> {
    fn same_length(&self) -> bool {
        self.secret.len() == self.phantom.len()
    }

    /// The form of one spelling byte for byte.
    fn spelled(
        &self,
        secret: Spelled,
        stand_in: Spelled,
        phantom: &Spelled,
        part: Option<&DrawnPart>,
    ) -> Result<SecretForm, Unscrubbable> {
        let mut pairs = secret.text.iter().zip(stand_in.text.iter());
        if secret.text.len() != stand_in.text.len() || !pairs.all(|(s, p)| alike(*p, *s)) {
            return Err(Unscrubbable::ShapeDiffers);
        }
        // A secret as long as its phantom never changes a length, so one whose punctuation is
        // escaped elsewhere keeps the stand-in.
        let fits = !self.same_length() || phantom.text.len() == secret.text.len();
        Ok(SecretForm {
            piece: part.map(|part| Piece::of_spelling(&secret, part)),
            phantom: (fits && phantom.text != stand_in.text).then(|| phantom.text[..].into()),
            secret: secret.text,
            stand_in: stand_in.text,
            tail: None,
            between: secret.between,
        })
    }

    /// The form in base64 where so many bytes stand before it in the first group.
    fn in_base64(
        &self,
        shift: usize,
        alphabet: &'static [u8; 64],
        part: Option<&DrawnPart>,
    ) -> SecretForm {
        // Base64 of another length would shift what stands behind it.
        let written = match self.same_length() {
            true => self.phantom,
            false => self.stand_in,
        };
        let (secret, tail) = sextets(self.secret, shift, alphabet);
        let (stand_in, written_tail) = sextets(written, shift, alphabet);
        SecretForm {
            piece: part.map(|part| Piece::of_sextets(part, shift, secret.len())),
            secret,
            stand_in,
            phantom: None,
            tail: tail.written_as(written_tail),
            between: None,
        }
    }
}

/// Whether a byte may stand where a phantom has another: letters and digits for each other, all
/// else for itself.
pub(in crate::credential) fn alike(phantom: u8, byte: u8) -> bool {
    if phantom.is_ascii_alphanumeric() {
        byte.is_ascii_alphanumeric()
    } else {
        byte == phantom
    }
}

#[cfg(test)]
mod tests;
