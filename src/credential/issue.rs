//! Issues a session's phantoms.

use gateway_names::{CredentialName, SessionId};
use gateway_session::phantom::{Issue, KeptShapes, PhantomFailure, PhantomKey, Phantoms, Shape};
use gateway_session::{Binding, Role, Session};

use super::credentials::Credentials;
use super::error::IssueFailure;
use super::store::{StoreError, Unavailable};

/// A login that has ended: its name, and why, with how to log in again.
pub type LoginEnd = (CredentialName, Box<str>);

impl Credentials {
    /// Issues a session's phantoms for the credentials that it may hold.
    ///
    /// A phantom has the declared shape, else the shape kept from an earlier start if that shows
    /// the same as the present secret, else the shape of the secret. The order is that of the
    /// configuration, so the same key, shapes and configuration give the same phantoms. Also
    /// returns the logins that have ended, which get no phantom, and why.
    ///
    /// # Errors
    /// [`IssueFailure`] by cause.
    pub async fn issue(
        &self,
        session: &SessionId,
        key: &PhantomKey,
        kept: &mut KeptShapes,
        held: impl Fn(&CredentialName) -> bool,
    ) -> Result<(Phantoms, Vec<LoginEnd>), IssueFailure> {
        let (mut issue, mut over) = (Issue::new(key), Vec::new());
        for (at, binding) in self.bindings().all().enumerate() {
            // For its own earlier logins, the session gets the phantoms that it had.
            let has_none = kept.of(&binding.credential).is_none() && self.is_own(session, at);
            if held(&binding.credential) && !has_none {
                let why = self.issue_one((session, false), &mut issue, kept, at, binding);
                let why = why.await?.filter(|_| matches!(binding.role, Role::Place));
                over.extend(why.map(|why| (binding.credential.clone(), why)));
            }
        }
        // What it had and may hold no more, such as a login that it ended, is refused by name.
        for (name, shape) in kept.all().filter(|(name, _)| !held(name)) {
            issue.retire(name, shape);
        }
        Ok((issue.finish(), over))
    }

    /// Issues the phantoms that a live session lacks, drawn from its key, when these credentials
    /// replace those of `before`.
    ///
    /// The session's phantoms are unchanged, unless the credential is gone, is not `held` or has
    /// another declared form: such phantoms are retired. A login is read in its present state,
    /// without a request to its issuer: no session can prevent or delay an operator's change.
    ///
    /// # Errors
    /// [`IssueFailure`] by cause. The session is unchanged.
    pub async fn issue_next(
        &self,
        before: &Self,
        session: &Session,
        kept: &mut KeptShapes,
        held: impl Fn(&CredentialName) -> bool,
    ) -> Result<Option<Phantoms>, IssueFailure> {
        let Some(key) = session.key() else {
            return Ok(None);
        };
        let phantoms = session.phantoms();
        let keeps = |name: &CredentialName| held(name) && self.keeps_form(before, name);
        let mut issue = Issue::after(key, (phantoms.all(), phantoms.retired()), keeps);
        for (at, binding) in self.bindings().all().enumerate() {
            if held(&binding.credential) && !issue.has(&binding.credential) {
                self.issue_one((session.id(), true), &mut issue, kept, at, binding)
                    .await?;
            }
        }
        Ok(Some(issue.finish()))
    }

    /// Whether a credential of `before` still exists, and its phantom would look the same.
    fn keeps_form(&self, before: &Self, name: &CredentialName) -> bool {
        let form = |credentials: &Self| {
            let index = credentials.bindings().index_of(name)?;
            let binding = credentials.bindings().at(index)?;
            let reference = credentials.reference(index);
            Some((binding.shape.clone(), reference.private_key()))
        };
        let (then, now) = (form(before), form(self));
        then.is_some() && then == now
    }

    /// Whether this is a token of a login that the session itself made and that is stored.
    fn is_own(&self, session: &SessionId, at: usize) -> bool {
        let login = self.source(at).reference().login_name();
        login.is_some_and(|login| self.stores().logins().grant(session, login).is_some())
    }

    /// Issues the phantom of the binding at index `at` in the configuration.
    ///
    /// A missing optional part gets no phantom, nor does a login that a session has yet to make,
    /// nor a login that has ended, for which the reason is returned.
    pub(super) async fn issue_one(
        &self,
        (session, is_live): (&SessionId, bool),
        issue: &mut Issue<'_>,
        kept: &mut KeptShapes,
        at: usize,
        binding: &Binding,
    ) -> Result<Option<Box<str>>, IssueFailure> {
        let name = &binding.credential;
        let source = self.source(at);
        let private_key = source.reference().private_key();
        let known = binding.shape.as_ref().or(kept.of(name)).cloned();
        // Whether an optional part exists is checked each time. A login may have ended, and its
        // issuer need not have issued every token.
        let is_login = source.is_of_login();
        let is_optional = is_optional(binding) || is_login;
        // An issuer that a session chose cannot keep the gateway from starting. A source at hand
        // that cannot be used is reported at once.
        let is_asked = is_optional || source.reference().is_at_hand();
        let is_settled = binding.shape.is_some() || !is_asked || self.is_own(session, at);
        let unavailable = |cause| IssueFailure::Unavailable {
            credential: name.clone(),
            cause,
        };
        if let (Some(shape), None, true) = (&known, private_key, is_settled) {
            issue_as(issue, kept, (name, shape), |_| false)?;
            return Ok(None);
        }
        // No request is sent to an issuer for a live session, or with a revoked credential.
        let is_revoked = binding.revocations.iter().any(|one| one.is_revoked());
        let is_looked_at = is_login && (is_live || is_revoked);
        let secret = if is_looked_at {
            source.look(Some(session)).await
        } else {
            source
                .resolve(Some(session))
                .await
                .map(|lease| lease.secret)
        };
        let secret = match secret {
            Err(cause) if cause.cause.is_absent() && is_optional => return Ok(None),
            Err(Unavailable {
                cause: StoreError::LoginOver(why),
                ..
            }) if is_login => return Ok(Some(why)),
            Err(Unavailable { cause, .. }) if is_looked_at => {
                if self.stores().logins().is_new(name, &cause.to_string()) {
                    tracing::warn!(%session, login = %name, %cause, "a session goes on without a login");
                }
                return Ok(None);
            }
            secret => secret.map_err(unavailable)?,
        };
        self.note(at, &secret);
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
                let now = secret.shape(binding.claims.as_deref());
                let shows = |shape: &Shape| binding.shape.is_some() || shape.shows(&now);
                let shape = known.filter(shows).unwrap_or(now);
                issue_as(issue, kept, (name, &shape), |text| secret.is(text))?;
            }
        }
        Ok(None)
    }
}

/// Issues a phantom of a shape and keeps the shape. A phantom of the previous shape is retired.
fn issue_as(
    issue: &mut Issue<'_>,
    kept: &mut KeptShapes,
    (name, shape): (&CredentialName, &Shape),
    taken: impl Fn(&[u8]) -> bool,
) -> Result<(), PhantomFailure> {
    issue.issue(name, shape, taken)?;
    if let Some(before) = kept.of(name).filter(|before| *before != shape) {
        issue.retire(name, before);
    }
    kept.keep(name, shape.clone());
    Ok(())
}

/// Whether this part of a credential may be missing.
pub(super) fn is_optional(binding: &Binding) -> bool {
    match &binding.role {
        Role::Part(signing) => signing
            .parts
            .iter()
            .any(|part| part.optional && part.credential == binding.credential),
        Role::Place | Role::Signs(_) | Role::Kept => false,
    }
}
