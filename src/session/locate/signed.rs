//! Finds the signature of a request, where a credential signs for its origin.

use std::sync::Arc;

use http::{HeaderName, header};

use super::Search;
use crate::message::RequestHead;
use crate::session::binding::Bound;
use crate::session::phantom::Phantom;
use crate::session::presented::{Lend, Spot};
use crate::session::refusal::{CredentialRefusal, Part};
use crate::session::signing::{SIGV4_PARTS, SigV4, Signer, Signing};
use crate::signature::recipe::Recipe;
use crate::signature::sigv4::{ClientSignature, Location};
use crate::signature::{Fault, recipe};

/// What of the request belongs to a signature that was found, and was judged with it.
#[derive(Default)]
pub(super) enum Signed {
    #[default]
    Nothing,
    SigV4Fields,
    SigV4Query,
    Recipe(Arc<Recipe>),
}

impl Signed {
    /// Whether a field is a part of the signature.
    pub(super) fn has_field(&self, name: &HeaderName) -> bool {
        match self {
            Self::Nothing | Self::SigV4Query => false,
            Self::SigV4Fields => FIELDS.contains(&name.as_str()),
            Self::Recipe(recipe) => {
                stands(recipe, "header:", name.as_str())
                    || (name == header::AUTHORIZATION
                        && recipe
                            .slots()
                            .any(|slot| slot.starts_with("authorization:")))
            }
        }
    }

    /// Whether a field holds the signature without a part beside it: it is no foreign credential,
    /// and has no phantom either.
    pub(super) fn is_signature(&self, name: &HeaderName) -> bool {
        matches!(self, Self::Recipe(recipe) if recipe.is_signature_field(name.as_str()))
    }

    /// Whether a query parameter does.
    pub(super) fn is_signature_parameter(&self, name: &str) -> bool {
        matches!(self, Self::Recipe(recipe) if recipe.is_signature_parameter(name))
    }

    /// Whether a field holds a credential that is bound to the key of the signature.
    pub(super) fn goes_with(&self, name: &HeaderName, value: &[u8]) -> bool {
        matches!(self, Self::Recipe(recipe) if recipe.goes_with(name.as_str(), value))
    }

    /// Whether a query parameter is a part of the signature.
    pub(super) fn has_parameter(&self, name: &str) -> bool {
        match self {
            Self::Nothing | Self::SigV4Fields => false,
            Self::SigV4Query => PARAMETERS.contains(&name),
            Self::Recipe(recipe) => stands(recipe, "query:", name),
        }
    }
}

fn stands(recipe: &Recipe, kind: &str, name: &str) -> bool {
    recipe
        .slots()
        .any(|slot| slot.strip_prefix(kind) == Some(name))
}

impl<'a> Search<'a> {
    /// Reads the signature of a request to an origin for which a credential signs (J01, J05, J11).
    ///
    /// The parts of it that hold a phantom are judged here, and nowhere else again.
    pub(super) fn signature(&mut self) -> Result<(), CredentialRefusal> {
        let mut sigv4 = Vec::new();
        let mut recipes = Vec::new();
        for bound in self.bound.iter().copied() {
            match bound
                .binding
                .signing()
                .map(|signing| (signing, &signing.signer))
            {
                Some((signing, Signer::SigV4(signer))) => sigv4.push((bound, signing, &**signer)),
                Some((_, Signer::Recipe(recipe))) => recipes.push((bound, recipe)),
                None => {}
            }
        }
        if !sigv4.is_empty() {
            self.sigv4(&sigv4)?;
        }
        if !recipes.is_empty() && self.found.lends.is_empty() {
            self.recipe(&recipes)?;
        }
        Ok(())
    }

    fn sigv4(
        &mut self,
        signers: &[(&'a Arc<Bound>, &'a Signing, &'a SigV4)],
    ) -> Result<(), CredentialRefusal> {
        let unsound = |fault| CredentialRefusal::Signature {
            fault: Fault::SigV4(fault),
        };
        let Some(claim) = ClientSignature::read(self.head).map_err(unsound)? else {
            return self.unsigned(signers);
        };
        let (part, signed) = match claim.location() {
            Location::Fields => (Part::Field, Signed::SigV4Fields),
            Location::Query { .. } => (Part::Query, Signed::SigV4Query),
        };
        let key = claim.access_key().as_bytes();
        let minted = self.phantoms.minted(claim.access_key());
        let ours = signers.iter().find_map(|(bound, signing, signer)| {
            let minted = minted
                .clone()
                .filter(|minted| *minted.parent() == bound.binding.credential);
            let phantom = match &minted {
                Some(minted) => minted.parts()[0].clone(),
                None => self.is_phantom(bound, key)?,
            };
            Some((*bound, signing, signer, phantom, minted))
        });
        let Some((bound, signing, signer, phantom, minted)) = ours else {
            self.clean(key, part)?;
            return self.foreign(key, part, None);
        };
        let token = match &minted {
            Some(minted) => Some(&minted.parts()[2]),
            None => signing
                .part(SIGV4_PARTS[2])
                .and_then(|token| self.phantoms.of(token)),
        };
        match (claim.session_token(), token) {
            (None, None) => {}
            (Some(theirs), Some(ours)) if theirs == ours.reveal() => {}
            (theirs, _) => {
                let theirs = theirs.unwrap_or_default().as_bytes();
                self.clean(theirs, part)?;
                return self.foreign(theirs, part, None);
            }
        }
        let credential = phantom.credential().clone();
        let request = signer
            .permits(self.head, claim, minted)
            .map_err(|why| CredentialRefusal::Unsignable { credential, why })?;
        self.signed = signed;
        self.lend(bound, 0, Spot::SigV4(Arc::new(request)), phantom, part)
    }

    /// A request without a signature is no use of a credential; but one whose answer is a
    /// credential is refused all the same, since that would come to the client as it is (J03).
    fn unsigned(
        &self,
        signers: &[(&'a Arc<Bound>, &'a Signing, &'a SigV4)],
    ) -> Result<(), CredentialRefusal> {
        for (bound, _, signer) in signers {
            let credential = bound.binding.credential.clone();
            signer
                .permits_unsigned(self.head)
                .map_err(|why| CredentialRefusal::Unsignable { credential, why })?;
        }
        Ok(())
    }

    /// A request to a host for which a credential signs is signed with one of the session's, or is
    /// refused: it is anonymous, or signed in a way that is not read here, by whomever (J05, J06).
    /// A credential in a place signs nothing: to a service that does not read that place, the
    /// request is anonymous.
    pub(super) fn unsigned_by_any(&self) -> Result<(), CredentialRefusal> {
        let signs = |lend: &Lend| matches!(lend.spot(), Spot::SigV4(_));
        if self.found.lends.iter().any(signs) {
            return Ok(());
        }
        let origin = &self.head.origin;
        for bound in self.bindings.of_host(&origin.authority.host) {
            if let Some(Signer::SigV4(signer)) =
                bound.binding.signing().map(|signing| &signing.signer)
            {
                let credential = bound.binding.credential.clone();
                signer
                    .permits_unsigned_by_any(origin, !self.bound.is_empty())
                    .map_err(|why| CredentialRefusal::Unsignable { credential, why })?;
            }
        }
        Ok(())
    }

    /// A request that is signed by a recipe. Several may read one request; the key's id tells which
    /// is meant.
    fn recipe(
        &mut self,
        signers: &[(&'a Arc<Bound>, &'a Arc<Recipe>)],
    ) -> Result<(), CredentialRefusal> {
        let (mut strange, mut unsound) = (None, None);
        for (bound, recipe) in signers {
            match self.claimed(bound, recipe) {
                Ok(None) => {}
                Ok(Some(Claimed::Ours(phantom))) => {
                    self.signed = Signed::Recipe(Arc::clone(recipe));
                    return self.lend(bound, 0, Spot::Recipe, phantom, Part::Field);
                }
                Ok(Some(Claimed::Strange(id))) => strange = Some(id),
                Err(fault) => unsound = Some(fault),
            }
        }
        match (strange, unsound) {
            (Some(id), _) => {
                self.clean(&id, Part::Field)?;
                self.foreign(&id, Part::Field, None)
            }
            (None, Some(fault)) => Err(CredentialRefusal::Signature {
                fault: Fault::Recipe(fault),
            }),
            (None, None) => Ok(()),
        }
    }

    fn claimed(&self, bound: &Bound, recipe: &Recipe) -> Result<Option<Claimed>, recipe::Fault> {
        let head: &RequestHead = self.head;
        let Some(claim) = recipe.claim(head)? else {
            return Ok(None);
        };
        // Where no id is in the head, the signature itself proves whose it is.
        let phantom = match claim.key_id() {
            Some(id) => self.is_phantom(bound, id),
            None => self.phantoms.of(&bound.binding.credential).cloned(),
        };
        let strange = || Claimed::Strange(claim.key_id().unwrap_or_default().to_vec());
        Ok(Some(phantom.map_or_else(strange, Claimed::Ours)))
    }
}

/// Whose key a request is signed with.
enum Claimed {
    Ours(Phantom),
    Strange(Vec<u8>),
}

/// The parts of a SigV4 signature that the claim has read, each of which stands once.
const FIELDS: [&str; 3] = [
    "authorization",
    "x-amz-security-token",
    "x-amz-s3session-token",
];
const PARAMETERS: [&str; 4] = [
    "X-Amz-Credential",
    "X-Amz-Security-Token",
    "X-Amz-S3session-Token",
    "X-Amz-Signature",
];
