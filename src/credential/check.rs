//! Looks at every credential before a request needs one: what it lacks is told, and nothing of what
//! it is.

use std::time::SystemTime;

use zeroize::Zeroizing;

use super::credentials::Credentials;
use super::error::IssueFailure;
use super::store::{CachedSecret, SecretRef, Unavailable};
use super::stored::Stored;
use crate::names::{CredentialName, SessionId};
use crate::session::phantom::{Issue, PhantomKey};
use crate::session::{Binding, Role, SignatureFault, Signing, SigningPart};

/// A credential, or a part of one that signs, and what it lacks.
#[derive(Debug)]
pub struct CheckedCredential {
    /// What policies call it; parts are `NAME.PART`.
    pub credential: CredentialName,
    /// Where it is kept.
    pub reference: SecretRef,
    /// Why it could not be lent.
    pub problem: Option<CredentialProblem>,
}

/// What a credential lacks.
#[derive(Debug, thiserror::Error)]
pub enum CredentialProblem {
    /// Its secret cannot be had, or is not what the way of signing takes.
    #[error("{0}")]
    Unavailable(Unavailable),
    /// No phantom can stand in for it.
    #[error(transparent)]
    Issue(IssueFailure),
    /// The way of signing cannot use the parts together.
    #[error("{0}")]
    Signing(SignatureFault),
    /// Nothing in the sandbox would hold its phantom.
    #[error(
        "no variable holds its phantom, so that no client could sign with it: name them in `env`"
    )]
    Unheld,
}

impl Credentials {
    /// Fetches every secret and makes its phantom, as the start of a session does, and goes on
    /// where one fails.
    pub async fn check(&self, session: &SessionId, key: &PhantomKey) -> Vec<CheckedCredential> {
        let mut issue = Issue::new(key);
        let mut checked = Vec::new();
        for (at, binding) in self.bindings().all().enumerate() {
            let problem = match self.issue_one(session, &mut issue, at, binding).await {
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

    /// Whether the parts of a credential fit together. What is not there was told before.
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

/// How far a credential reaches, in words, where a person would not expect it; `None` also where it
/// does not sign.
#[must_use]
pub fn unexpected_reach(stored: &Stored) -> Option<String> {
    let id = stored
        .from
        .env_name()
        .and_then(|name| std::env::var(name).ok());
    let id = id.map(Zeroizing::new);
    let signer = &stored.binding.signing()?.signer;
    signer.reach(id.as_ref().map(|id| id.as_str()))
}
