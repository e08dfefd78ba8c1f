//! Finds the signature of a request, where a credential signs for its origin.

use super::Search;
use crate::names::CredentialName;
use crate::session::detected::Location;
use crate::session::parts::HeldParts;
use crate::session::refusal::{CredentialRefusal, RequestPart, SignatureFault};
use crate::session::signer::{Found, Signer};

impl Search<'_> {
    /// Reads the signature of a request to an origin for which a credential signs (J01, J05, J11).
    ///
    /// The parts of it that hold a phantom are judged here, and nowhere else again.
    pub(super) fn signature(&mut self) -> Result<(), CredentialRefusal> {
        for unmistakable in [true, false] {
            self.signed_with(unmistakable)?;
            if self.signed.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Asks the signers that are unmistakable, or those that are not. Several may read one request;
    /// the key's id tells which is meant.
    fn signed_with(&mut self, unmistakable: bool) -> Result<(), CredentialRefusal> {
        let (mut strange, mut unsound) = (None, None);
        for bound in self.bound {
            let signing = bound.binding.signing();
            let asked = |signer: &dyn Signer| signer.is_unmistakable() == unmistakable;
            let Some(signing) = signing.filter(|signing| asked(&*signing.signer)) else {
                continue;
            };
            let credential = &bound.binding.credential;
            let held = HeldParts::new(self.phantoms, credential, &signing.parts);
            let found = signing.signer.find(self.head, &held);
            match found.map_err(|why| unsignable(credential, why))? {
                Found::Nothing => {}
                Found::Ours {
                    claimed,
                    phantom,
                    part,
                } => {
                    self.signed = Some(claimed.clone());
                    return self.lend(bound, 0, Location::Signature(claimed), phantom, part);
                }
                Found::StrangePart { text, part } => return self.strange(&text, part),
                Found::StrangeKey { id, part } => strange = Some((id, part)),
                Found::Unsound(fault) => unsound = Some(fault),
            }
        }
        match (strange, unsound) {
            (Some((id, part)), _) => self.strange(&id, part),
            (None, Some(fault)) => Err(CredentialRefusal::Signature { fault }),
            (None, None) => Ok(()),
        }
    }

    /// Judges a part of a signature that is none of the session's.
    fn strange(&mut self, text: &[u8], part: RequestPart) -> Result<(), CredentialRefusal> {
        self.clean(text, part)?;
        self.foreign(text, part, None)
    }

    /// A request to a host for which a credential signs is signed with one of the session's, or is
    /// refused, where the way of signing says so: it is anonymous, or signed in a way that is not
    /// read here, by whomever (J05, J06). A credential in a place signs nothing: to a service that
    /// does not read that place, the request is anonymous.
    pub(super) fn unsigned(&self) -> Result<(), CredentialRefusal> {
        let (origin, managed) = (&self.head.origin, !self.bound.is_empty());
        for bound in self.bindings.of_host(&origin.authority.host) {
            if let Some(signing) = bound.binding.signing() {
                signing
                    .signer
                    .permits_unsigned(origin, self.signed.as_deref(), managed)
                    .map_err(|why| unsignable(&bound.binding.credential, why))?;
            }
        }
        Ok(())
    }
}

fn unsignable(credential: &CredentialName, why: SignatureFault) -> CredentialRefusal {
    CredentialRefusal::Unsignable {
        credential: credential.clone(),
        why,
    }
}
