//! Signing credentials: secrets that are never sent.

use std::sync::Arc;

use super::parts::{PartTexts, SigningPart};
use super::signer::Signer;
use crate::names::CredentialName;

/// What a binding is for.
#[derive(Debug, Clone, Default)]
pub enum Role {
    /// Its secret is put where its phantom stands.
    #[default]
    Place,
    /// It is the first part of a signing credential, by which signed requests are known. Requests
    /// are signed with all of its parts.
    Signs(Arc<Signing>),
    /// It is another part of a signing credential, and is never lent by itself.
    Part(Arc<Signing>),
}

/// A signing credential: the way it signs, and its parts.
#[derive(Debug)]
pub struct Signing {
    /// How it signs, and what may be signed.
    pub signer: Arc<dyn Signer>,
    /// Its parts. The first is the credential that is lent.
    pub parts: Vec<SigningPart>,
}

impl Signing {
    /// The texts of its parts, as far as there are any.
    pub fn texts<'a>(
        &'a self,
        text: impl Fn(&CredentialName) -> Option<&'a [u8]>,
    ) -> PartTexts<'a> {
        let of = |part: &'a SigningPart| Some((part.name.as_str(), text(&part.credential)?));
        self.parts.iter().filter_map(of).collect()
    }
}
