//! The forms in which an origin may return a lent secret, each paired with the form of its phantom.
//!
//! Found: plain; hex; hex with separators (space, colon, hyphen, `0x`); `\x41`; base64 and
//! base64url at the three alignments; percent-encoding, in the usual sets and in full; JSON and
//! HTML escapes, in the usual sets and in full; UTF-16; all letters in lower or upper case. A Basic
//! credential is base64 at one of the alignments. For secrets with a [`DrawnPart`], pieces of each
//! form are found too, and with them base64 with line breaks and mixed escapes.
//!
//! Not found: a form of a form (base64 in hex), decimal numbers (which differ in length), base32,
//! other charsets.

use zeroize::Zeroizing;

use super::fault::{SHORTEST, Unscrubbable};
use super::piece::Piece;
use super::sextets::{STANDARD, Tail, URL_SAFE, sextets};
use super::spelling::{SpelledText, spellings, usual_spellings};
use crate::part::DrawnPart;

/// One spelling of a secret, and its replacement.
pub(super) struct SecretForm {
    pub(super) secret: Zeroizing<Vec<u8>>,
    /// Has the length and punctuation of the secret's spelling.
    pub(super) stand_in: Zeroizing<Vec<u8>>,
    /// The phantom's spelling, if it differs from the stand-in. It replaces the whole form, and may
    /// have another length.
    pub(super) phantom: Option<Box<[u8]>>,
    pub(super) tail: Option<Tail>,
    pub(super) piece: Option<Piece>,
    /// The separator of a form in hex, if it has one.
    pub(super) between: Option<&'static [u8]>,
}

/// A text to search for, and its replacement.
pub(super) struct EchoPattern<'a> {
    pub(super) secret: &'a [u8],
    /// Has the secret's length and punctuation: the phantom, or a mask.
    pub(super) stand_in: &'a [u8],
    /// The phantom that the workload holds, of any length.
    pub(super) phantom: &'a [u8],
}

/// Builds all forms of one secret, each spelling once.
///
/// # Errors
/// [`Unscrubbable`] by cause.
pub(super) fn forms(
    sought: &EchoPattern<'_>,
    part: Option<&DrawnPart>,
) -> Result<Vec<SecretForm>, Unscrubbable> {
    forms_in(spellings, sought, part)
}

/// Builds the forms in which services repeat a text that they received. The text is searched for
/// only as a whole.
///
/// # Errors
/// Same as [`forms`].
pub(super) fn usual_forms(text: &[u8], mask: &[u8]) -> Result<Vec<SecretForm>, Unscrubbable> {
    let sought = EchoPattern {
        secret: text,
        stand_in: mask,
        phantom: mask,
    };
    forms_in(usual_spellings, &sought, None)
}

fn forms_in(
    spellings: impl Fn(&[u8]) -> Vec<SpelledText>,
    sought: &EchoPattern<'_>,
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

impl EchoPattern<'_> {
    fn same_length(&self) -> bool {
        self.secret.len() == self.phantom.len()
    }

    /// Builds the form of one spelling byte by byte.
    fn spelled(
        &self,
        secret: SpelledText,
        stand_in: SpelledText,
        phantom: &SpelledText,
        part: Option<&DrawnPart>,
    ) -> Result<SecretForm, Unscrubbable> {
        let mut pairs = secret.text.iter().zip(stand_in.text.iter());
        if secret.text.len() != stand_in.text.len() || !pairs.all(|(s, p)| alike(*p, *s)) {
            return Err(Unscrubbable::ShapeDiffers);
        }
        // A secret as long as its phantom must never change the length. If the escapes make their
        // spellings differ in length, the stand-in is kept.
        let fits = !self.same_length() || phantom.text.len() == secret.text.len();
        // In another case only hex stays a secret, and a few letters of others are common words.
        let in_another_case =
            *secret.text != *self.secret && secret.text.eq_ignore_ascii_case(self.secret);
        let part =
            part.filter(|_| !in_another_case || self.secret.iter().all(u8::is_ascii_hexdigit));
        Ok(SecretForm {
            piece: part.map(|part| Piece::of_spelling(&secret, part)),
            phantom: (fits && phantom.text != stand_in.text).then(|| phantom.text[..].into()),
            secret: secret.text,
            stand_in: stand_in.text,
            tail: None,
            between: secret.between,
        })
    }

    /// Builds the base64 form with `shift` bytes before it in the first group.
    fn in_base64(
        &self,
        shift: usize,
        alphabet: &'static [u8; 64],
        part: Option<&DrawnPart>,
    ) -> SecretForm {
        // Base64 of another length would shift the characters after it.
        let written = if self.same_length() {
            self.phantom
        } else {
            self.stand_in
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

/// Whether a byte may stand where a phantom has another: a letter or digit for any other,
/// everything else only for itself.
pub(crate) fn alike(phantom: u8, byte: u8) -> bool {
    if phantom.is_ascii_alphanumeric() {
        byte.is_ascii_alphanumeric()
    } else {
        byte == phantom
    }
}

#[cfg(test)]
mod tests;
