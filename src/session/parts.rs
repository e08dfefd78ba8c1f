//! The parts of a signing credential: their names, their texts, and the session's phantoms for
//! them.

use std::sync::Arc;

use gateway_names::CredentialName;
use gateway_recipe::Algorithm;

use super::phantom::{Phantom, Phantoms, TemporaryPhantoms};

/// A part of a signing credential.
#[derive(Debug, Clone)]
pub struct SigningPart {
    /// Its role in the signing scheme.
    pub name: String,
    /// The credential whose binding holds it.
    pub credential: CredentialName,
    /// Whether the credential may lack the part, such as a session token.
    pub optional: bool,
}

/// How a signing scheme describes one of its parts.
#[derive(Debug, Clone)]
pub struct KnownPart {
    /// Its name in configuration.
    pub name: String,
    /// The environment variable from which clients read it.
    pub variable: Option<String>,
    /// Whether a credential may lack it.
    pub optional: bool,
    /// The algorithm, if the part is a private key.
    pub private_key: Option<Algorithm>,
    /// Its member in the output of programs that print all parts together, if any do.
    pub member: Option<&'static str>,
}

/// The texts of a credential's parts, by name. Parts that the credential lacks are left out.
#[derive(Default)]
pub struct PartTexts<'a>(Vec<(&'a str, &'a [u8])>);

impl<'a> PartTexts<'a> {
    /// Returns the text of one part.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        let mut parts = self.0.iter();
        parts
            .find(|(known, _)| *known == name)
            .map(|(_, text)| *text)
    }

    /// Returns every part.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.0.iter().copied()
    }
}

impl<'a> FromIterator<(&'a str, &'a [u8])> for PartTexts<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a [u8])>>(parts: I) -> Self {
        Self(parts.into_iter().collect())
    }
}

/// The phantoms that a session holds for one signing credential.
pub struct HeldParts<'a> {
    phantoms: &'a Phantoms,
    credential: &'a CredentialName,
    parts: &'a [SigningPart],
}

impl<'a> HeldParts<'a> {
    pub(super) fn new(
        phantoms: &'a Phantoms,
        credential: &'a CredentialName,
        parts: &'a [SigningPart],
    ) -> Self {
        Self {
            phantoms,
            credential,
            parts,
        }
    }

    /// Returns the phantom that identifies the credential.
    pub fn first(&self) -> Option<&'a Phantom> {
        self.phantoms.of(self.credential)
    }

    /// Returns the phantom of a part.
    pub fn part(&self, name: &str) -> Option<&'a Phantom> {
        let mut parts = self.parts.iter();
        let part = parts.find(|part| part.name == name)?;
        self.phantoms.of(&part.credential)
    }

    /// Returns the temporary credentials with this id, if they were derived from the credential.
    pub fn temporary(&self, id: &str) -> Option<Arc<TemporaryPhantoms>> {
        let minted = self.phantoms.minted(id)?;
        (minted.parent() == self.credential).then_some(minted)
    }
}
