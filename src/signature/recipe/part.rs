//! The parts of a credential: its texts, and how each of them is used.

use super::algorithm::Algorithm;
use super::template::Template;

/// One of the texts of a credential of this kind.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its name in the recipe and in configuration.
    pub name: String,
    /// How it is used.
    pub role: Role,
    /// Whether a credential may lack it, such as a session token.
    pub optional: bool,
    /// The shape in which the service issues it, where it is known.
    pub shape: Option<String>,
    /// The variables from which clients read it.
    pub variables: Vec<String>,
    /// The algorithm whose private key it is, if it is one; its phantom is a key too, see
    /// [`crate::KeyForm`].
    pub key_of: Option<Algorithm>,
    pub(super) read: Option<Template>,
}

/// How a part is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sent; identifies the credential: a key's id.
    Id,
    /// Sent beside the signature: a passphrase, a session token.
    Sent,
    /// Signs, and is never sent.
    Secret,
}

/// A credential's texts by the names of the recipe's parts.
#[derive(Default)]
pub struct Parts<'a>(Vec<(&'a str, &'a [u8])>);

impl<'a> Parts<'a> {
    /// Takes the texts.
    pub fn new(parts: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        Self(parts.into_iter().collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.0
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, bytes)| *bytes)
    }
}
