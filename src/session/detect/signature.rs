//! Finds the signature of a request, if a credential signs for its origin.

use gateway_names::CredentialName;

use super::Search;
use crate::detected::Location;
use crate::parts::HeldParts;
use crate::refusal::{CredentialRefusal, RequestPart, SignatureFault};
use crate::signer::{Finding, Signer};

impl Search<'_> {
    /// Reads the signature of a request, if a credential signs for its origin (J01, J05, J11).
    ///
    /// Parts of the signature that hold a phantom are judged only here.
    pub(super) fn signature(&mut self) -> Result<(), CredentialRefusal> {
        for unmistakable in [true, false] {
            self.signed_with(unmistakable)?;
            if self.signed.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Tries either the unmistakable signers or the others. Several may be able to read one
    /// request; the key id shows which one is meant.
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
                Finding::Nothing => {}
                Finding::Ours {
                    claimed,
                    phantom,
                    part,
                } => {
                    self.signed = Some(claimed.clone());
                    return self.lend(bound, 0, Location::Signature(claimed), phantom, part);
                }
                Finding::StrangePart { text, part } => return self.strange(&text, part),
                Finding::StrangeKey { id, part } => strange = Some((id, part)),
                Finding::Unsound(fault) => unsound = Some(fault),
            }
        }
        match (strange, unsound) {
            (Some((id, part)), _) => self.strange(&id, part),
            (None, Some(fault)) => Err(CredentialRefusal::Signature { fault }),
            (None, None) => Ok(()),
        }
    }

    /// Handles a part of a signature that does not belong to the session.
    fn strange(&mut self, text: &[u8], part: RequestPart) -> Result<(), CredentialRefusal> {
        self.clean(text, part.clone())?;
        self.foreign(text, part, None)
    }

    /// Refuses a request that is not signed with one of the session's keys, if its host has a
    /// signing credential whose scheme requires that (J05, J06).
    ///
    /// Such a request is anonymous, or signed in a way that is not read here. A credential in a
    /// place signs nothing: a service that does not read that place sees an anonymous request.
    pub(super) fn unsigned(&self) -> Result<(), CredentialRefusal> {
        let (origin, managed) = (&self.head.origin, !self.bound.is_empty());
        for bound in &self.found.here.host_signers {
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
