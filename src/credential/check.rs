//! Checks every credential before a request needs one, and reports problems without revealing
//! values.

use std::time::SystemTime;

use gateway_names::{CredentialName, SessionId};
use gateway_session::phantom::{Issue, KeptShapes, PhantomKey};
use gateway_session::{Binding, Role, SignatureFault, Signing, SigningPart};
use zeroize::Zeroizing;

use super::configured::ConfiguredCredential;
use super::credentials::Credentials;
use super::error::IssueFailure;
use super::store::{CachedSecret, SecretRef, Unavailable};

/// A credential, or one part of a signing credential, and its problem if it has one.
#[derive(Debug)]
pub struct CheckedCredential {
    /// The name that policies use; parts are `NAME.PART`.
    pub credential: CredentialName,
    /// Where it is stored.
    pub reference: SecretRef,
    /// Why it could not be lent.
    pub problem: Option<CredentialProblem>,
}

/// A problem with a credential.
#[derive(Debug, thiserror::Error)]
pub enum CredentialProblem {
    /// Its secret is not available, or does not suit the signing scheme.
    #[error("{0}")]
    Unavailable(Unavailable),
    /// No phantom can be made for it.
    #[error(transparent)]
    Issue(IssueFailure),
    /// The signing scheme cannot use the parts together.
    #[error("{0}")]
    Signing(SignatureFault),
    /// No variable in the sandbox would hold its phantom.
    #[error(
        "no variable holds its phantom, so that no client could sign with it: name them in `env`"
    )]
    Unheld,
}

impl Credentials {
    /// Fetches every secret and makes its phantom, as a new session does.
    ///
    /// Continues after each failure.
    pub async fn check(&self, session: &SessionId, key: &PhantomKey) -> Vec<CheckedCredential> {
        let mut issue = Issue::new(key);
        let (mut checked, mut kept) = (Vec::new(), KeptShapes::default());
        for (at, binding) in self.bindings().all().enumerate() {
            let issued = self.issue_one((session, false), &mut issue, &mut kept, at, binding);
            let problem = match issued.await {
                Err(IssueFailure::Unavailable { cause, .. }) => {
                    Some(CredentialProblem::Unavailable(cause))
                }
                Err(other) => Some(CredentialProblem::Issue(other)),
                Ok(_) if binding.variables.is_empty() && !matches!(binding.role, Role::Place) => {
                    Some(CredentialProblem::Unheld)
                }
                Ok(_) => None,
            };
            checked.push(CheckedCredential {
                credential: binding.credential.clone(),
                reference: self.reference(at),
                problem,
            });
        }
        for (at, binding) in self.bindings().all().enumerate() {
            if let Some(signing) = binding.signing()
                && checked[at].problem.is_none()
            {
                let fault = self.parts_fit(session, binding, signing).await;
                checked[at].problem = fault.err().map(CredentialProblem::Signing);
            }
        }
        checked
    }

    /// Checks that the parts of a credential fit together. Missing parts were reported before.
    async fn parts_fit(
        &self,
        session: &SessionId,
        binding: &Binding,
        signing: &Signing,
    ) -> Result<(), SignatureFault> {
        let mut leases: Vec<(&CredentialName, CachedSecret)> = Vec::new();
        for SigningPart { credential, .. } in &signing.parts {
            let index = self.bindings().index_of(credential);
            let Some(index) = index else { continue };
            match self.lease(session, index).await {
                Ok(lease) => leases.push((credential, lease)),
                Err(_) => return Ok(()),
            }
        }
        let Some(origin) = binding.origins.first() else {
            return Ok(());
        };
        let texts = signing.texts(|part| {
            let mut leases = leases.iter();
            let (_, lease) = leases.find(|(known, _)| *known == part)?;
            Some(lease.secret.expose())
        });
        signing.signer.try_parts(origin, &texts, SystemTime::now())
    }
}

/// Describes the reach of a credential, if it may surprise a person.
///
/// `None` if the reach is as expected, or the credential does not sign.
pub fn unexpected_reach(stored: &ConfiguredCredential) -> Option<String> {
    let variable = stored.from.env_name();
    let id = variable.and_then(|name| std::env::var(name).ok());
    let id = id.map(Zeroizing::new);
    let signer = &stored.binding.signing()?.signer;
    signer.reach(id.as_ref().map(|id| id.as_str()))
}
