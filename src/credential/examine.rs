//! Looks at every credential before a request needs one: what it lacks is told, and nothing of what
//! it is.

use std::time::SystemTime;

use zeroize::Zeroizing;

use super::attach::{Credentials, IssueFailure};
use super::store::{CachedSecret, SecretRef, Unavailable};
use crate::names::{CredentialName, SessionId};
use crate::session::phantom::{Issue, PhantomKey};
use crate::session::{Binding, Role, Signer, Signing};
use crate::signature::recipe::{Fault, Parts};
use crate::signature::sigv4::account_of;

/// A credential, or a part of one that signs, and what it lacks.
#[derive(Debug)]
pub struct Examined {
    /// What policies call it; parts are `NAME.PART`.
    pub credential: CredentialName,
    /// Where it is kept.
    pub reference: SecretRef,
    /// Why it could not be lent.
    pub lack: Option<Lack>,
}

/// What a credential lacks.
#[derive(Debug, thiserror::Error)]
pub enum Lack {
    /// Its secret cannot be had, or is not what the way of signing takes.
    #[error("{0}")]
    Unavailable(Unavailable),
    /// No phantom can stand in for it.
    #[error(transparent)]
    Issue(IssueFailure),
    /// The way of signing cannot use the parts together.
    #[error("{0}")]
    Signing(Fault),
    /// Nothing in the sandbox would hold its phantom.
    #[error(
        "no variable holds its phantom, so that no client could sign with it: name them in `env`"
    )]
    Unheld,
}

impl Credentials {
    /// Fetches every secret and makes its phantom, as the start of a session does, and goes on
    /// where one fails.
    pub async fn examine(&self, session: &SessionId, key: &PhantomKey) -> Vec<Examined> {
        let mut issue = Issue::new(key);
        let mut examined = Vec::new();
        for (at, binding) in self.bindings().all().enumerate() {
            let lack = match self.issue_one(session, &mut issue, at, binding).await {
                Err(IssueFailure::Unavailable { cause, .. }) => Some(Lack::Unavailable(cause)),
                Err(other) => Some(Lack::Issue(other)),
                Ok(_) if binding.variables.is_empty() && !matches!(binding.role, Role::Place) => {
                    Some(Lack::Unheld)
                }
                Ok(_) => None,
            };
            examined.push(Examined {
                credential: binding.credential.clone(),
                reference: self.reference(at),
                lack,
            });
        }
        for (at, binding) in self.bindings().all().enumerate() {
            if let Some(signing) = binding.signing()
                && examined[at].lack.is_none()
            {
                let fault = self.parts_fit(session, at, binding, signing).await;
                examined[at].lack = fault.err().map(Lack::Signing);
            }
        }
        examined
    }

    /// Whether the parts of a credential are such that a recipe signs with them. What is not there
    /// was told before.
    async fn parts_fit(
        &self,
        session: &SessionId,
        at: usize,
        binding: &Binding,
        signing: &Signing,
    ) -> Result<(), Fault> {
        let Signer::Recipe(recipe) = &signing.signer else {
            return Ok(());
        };
        let mut leases: Vec<(&str, CachedSecret)> = Vec::new();
        for part in recipe.parts() {
            let index = match signing.part(&part.name) {
                Some(credential) => self.bindings().index_of(credential),
                None => (part.name == first(recipe.parts(), signing)).then_some(at),
            };
            let Some(index) = index else { continue };
            match self.lease(session, index).await {
                Ok(lease) => leases.push((&part.name, lease)),
                Err(_) => return Ok(()),
            }
        }
        let Some(origin) = binding.origins.first() else {
            return Ok(());
        };
        let texts = leases
            .iter()
            .map(|(name, lease)| (*name, lease.secret.expose()));
        recipe.try_key(origin, &Parts::new(texts), SystemTime::now())
    }
}

/// The part that is the credential itself: the one that no other binding keeps.
fn first<'p>(parts: &'p [crate::signature::recipe::Part], signing: &Signing) -> &'p str {
    let mut unkept = parts
        .iter()
        .filter(|part| signing.part(&part.name).is_none());
    unkept.next().map_or("", |part| part.name.as_str())
}

/// The account of the access key in a variable of the environment, if its id tells it; `None` where
/// it is kept elsewhere, or not set.
#[must_use]
pub fn account_in_environment(reference: &SecretRef) -> Option<Option<String>> {
    let id = Zeroizing::new(std::env::var(reference.env_name()?).ok()?);
    Some(account_of(&id))
}
