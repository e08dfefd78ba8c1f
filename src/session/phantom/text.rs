//! One phantom: the text that stands for a secret, and what of it is looked for.

use std::sync::Arc;

use crate::names::CredentialName;
use crate::recipe::KeyForm;

/// What a session holds in place of one secret. Debug names the credential and never prints the
/// text.
#[derive(Clone)]
pub struct Phantom {
    pub(super) credential: CredentialName,
    pub(super) text: Arc<str>,
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
    pub(super) fn mark(&self) -> &str {
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
    pub(super) fn middle(&self) -> &str {
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

/// The letters of a temporary phantom that are looked for.
const MIDDLE: usize = 64;
/// No word around a key in PEM is as long as this, and the lines that matter are longer.
const MIN_MARK: usize = 24;
