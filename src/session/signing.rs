//! Signing credentials: secrets that are never sent.

use std::sync::Arc;

use gateway_names::CredentialName;

use super::parts::{PartTexts, SigningPart};
use super::signer::Signer;

/// The role of a binding's credential in a request.
#[derive(Debug, Clone, Default)]
pub enum Role {
    /// Its secret replaces its phantom.
    #[default]
    Place,
    /// The first part of a signing credential, which identifies signed requests. Requests are
    /// signed with all of its parts.
    Signs(Arc<Signing>),
    /// Another part of a signing credential. It is never used on its own.
    Part(Arc<Signing>),
    /// A token that only the gateway presents, if anyone does. It is lent to no request: its
    /// phantom stands in files, and in requests that the gateway answers itself.
    Kept,
}

/// A signing credential: its scheme and its parts.
#[derive(Debug)]
pub struct Signing {
    /// The scheme, with the limits on what may be signed.
    pub signer: Arc<dyn Signer>,
    /// The parts. The first one is the credential that requests use.
    pub parts: Vec<SigningPart>,
}

impl Signing {
    /// Returns the texts of the parts that have one.
    pub fn texts<'a>(
        &'a self,
        text: impl Fn(&CredentialName) -> Option<&'a [u8]>,
    ) -> PartTexts<'a> {
        let of = |part: &'a SigningPart| Some((part.name.as_str(), text(&part.credential)?));
        self.parts.iter().filter_map(of).collect()
    }
}
