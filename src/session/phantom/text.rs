//! One phantom: the text that stands in for a secret, and the part of it to search for.

use std::sync::Arc;

use gateway_names::CredentialName;
use gateway_recipe::KeyForm;

/// The text that a session holds in place of one secret. `Debug` names the credential and never
/// prints the text.
#[derive(Clone)]
pub struct Phantom {
    pub(super) credential: CredentialName,
    pub(super) text: Arc<str>,
}

impl Phantom {
    /// Returns the credential that it stands in for.
    pub fn credential(&self) -> &CredentialName {
        &self.credential
    }

    /// Returns the text itself, which the sandbox holds in an environment variable or a file.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Returns the part that is searched for: the whole text, or for a private key one line that no
    /// other key has.
    pub(super) fn mark(&self) -> &str {
        if !KeyForm::is_pem(self.text.as_bytes()) {
            return &self.text;
        }
        // The first line is almost the same in all keys of a kind, so it is used only if there is
        // no second line.
        let lines = self
            .text
            .split("\\n")
            .flat_map(str::split_ascii_whitespace)
            .filter(|line| line.len() >= MIN_MARK);
        lines.take(2).last().unwrap_or(&self.text)
    }

    /// Returns the part that is searched for in a minted phantom. A session token has thousands of
    /// letters, and a few of them identify it.
    pub(super) fn middle(&self) -> &str {
        let surplus = self.text.len().saturating_sub(MIDDLE);
        let from = surplus / 2;
        self.text
            .get(from..self.text.len() - (surplus - from))
            .unwrap_or(&self.text)
    }

    /// Whether it has the shape of a credential: the same length, and the same punctuation at the
    /// same positions. Letters, digits and `-._` may differ: they are never escaped (RFC 3986
    /// §2.3).
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

/// The number of letters of a temporary phantom that are searched for.
const MIDDLE: usize = 64;
/// Longer than any label around a key in PEM, and shorter than the lines of the key.
const MIN_MARK: usize = 24;
