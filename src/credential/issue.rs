//! Issues a session's phantoms.

use super::credentials::Credentials;
use super::error::IssueFailure;
use super::store::{StoreError, Unavailable};
use crate::names::{CredentialName, SessionId};
use crate::session::phantom::{Issue, PhantomKey, Phantoms};
use crate::session::{Binding, Role};

impl Credentials {
    /// Issues a session's phantoms for the credentials that it may hold.
    ///
    /// If no shape is declared, the secret is fetched to learn its shape. The order is that of the
    /// configuration, so replicas with the same key and configuration issue the same phantoms.
    ///
    /// # Errors
    /// [`IssueFailure`] by cause.
    pub async fn issue(
        &self,
        session: &SessionId,
        key: &PhantomKey,
        held: impl Fn(&CredentialName) -> bool,
    ) -> Result<Phantoms, IssueFailure> {
        let mut issue = Issue::new(key);
        for (at, binding) in self.bindings().all().enumerate() {
            if held(&binding.credential) {
                self.issue_one(session, &mut issue, at, binding).await?;
            }
        }
        Ok(issue.finish())
    }

    /// Issues the phantom of the binding at index `at` in the configuration.
    ///
    /// A missing optional part gets none.
    pub(super) async fn issue_one(
        &self,
        session: &SessionId,
        issue: &mut Issue<'_>,
        at: usize,
        binding: &Binding,
    ) -> Result<(), IssueFailure> {
        let name = &binding.credential;
        let source = self.source(at);
        let private_key = source.reference().private_key();
        if let (Some(shape), None) = (&binding.shape, private_key) {
            issue.issue(name, shape, |_| false)?;
            return Ok(());
        }
        let unavailable = |cause| IssueFailure::Unavailable {
            credential: name.clone(),
            cause,
        };
        let lease = match source.resolve(Some(session)).await {
            Err(cause) if cause.cause.is_absent() && is_optional(binding) => {
                return Ok(());
            }
            lease => lease.map_err(unavailable)?,
        };
        let secret = &lease.secret;
        match private_key {
            Some(algorithm) => {
                let form = secret.key_form(algorithm).map_err(|cause| {
                    let (reference, cause) =
                        (Box::new(self.reference(at)), StoreError::Unsafe(cause));
                    unavailable(Unavailable { reference, cause })
                })?;
                issue.issue_key(name, &form, |text| secret.is(text))?;
            }
            None => {
                issue.issue(name, &secret.shape(), |text| secret.is(text))?;
            }
        }
        Ok(())
    }
}

/// Whether this part of a credential may be missing.
pub(super) fn is_optional(binding: &Binding) -> bool {
    match &binding.role {
        Role::Part(signing) => signing
            .parts
            .iter()
            .any(|part| part.optional && part.credential == binding.credential),
        Role::Place | Role::Signs(_) => false,
    }
}
