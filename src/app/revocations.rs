//! What a running gateway knows of revocations: it obeys the file that all gateways of this user
//! share, and keeps there what operators revoke.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::app::Failure;
use crate::files::Unfit;
use crate::gateway::SharedState;
use crate::names::CredentialName;
use crate::state::RevokedFile;
use crate::token::PrefixId;

/// What is revoked for every gateway of this user.
#[derive(Default)]
pub(crate) struct KeptRevocations {
    file: Option<RevokedFile>,
    /// What was revoked here and could not be kept. Held while the file is read or changed and
    /// obeyed, so that what was read last is in force.
    unkept: Mutex<BTreeSet<CredentialName>>,
    /// How many connections were severed before anybody told of the row that did it.
    untold: AtomicUsize,
}

impl KeptRevocations {
    /// Those that a file keeps.
    pub(crate) fn kept_in(path: Option<PathBuf>) -> Self {
        Self {
            file: path.map(RevokedFile::at),
            unkept: Mutex::default(),
            untold: AtomicUsize::new(0),
        }
    }

    /// Revokes what is revoked by now, and takes back what no longer is.
    ///
    /// # Errors
    /// Returns a [`Failure`] if that cannot be read. Then what was known holds.
    pub(crate) fn obey(&self, shared: &SharedState) -> Result<(), Failure> {
        let severed = self.obey_with(&self.unkept.lock(), shared)?;
        self.untold.fetch_add(severed, Ordering::Relaxed);
        Ok(())
    }

    fn obey_with(
        &self,
        unkept: &BTreeSet<CredentialName>,
        shared: &SharedState,
    ) -> Result<usize, Failure> {
        let mut revoked = unkept.clone();
        if let Some(file) = &self.file {
            let unusable = |unfit| unusable(file, &unfit);
            revoked.extend(file.read().map_err(unusable)?.into_keys());
            shared.revoke_tokens(&file.tokens().map_err(unusable)?);
        }
        Ok(shared.revoke_exactly(&revoked))
    }

    /// Keeps that a credential is revoked, or no longer is, and obeys all that is kept. Returns how
    /// many connections to origins were severed for that.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be kept. A credential is revoked here all the same.
    pub(crate) fn keep(
        &self,
        (credential, is_revoked): (&CredentialName, bool),
        shared: &SharedState,
    ) -> Result<usize, Failure> {
        let mut unkept = self.unkept.lock();
        let kept = match &self.file {
            Some(file) => file
                .set(credential, is_revoked)
                .map_err(|unfit| unusable(file, &unfit)),
            None if is_revoked => Err(Failure::no_state_folder("there is no state to keep it in")),
            None => Ok(false),
        };
        if let Err(failure) = kept {
            if is_revoked {
                unkept.insert(credential.clone());
            }
            return Err(failure);
        }
        unkept.remove(credential);
        let severed = self.obey_with(&unkept, shared)?;
        Ok(severed + self.untold.swap(0, Ordering::Relaxed))
    }

    /// Keeps that a token is revoked, as it is here already.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be kept.
    pub(crate) fn keep_token(&self, id: PrefixId) -> Result<(), Failure> {
        let nowhere = || Failure::no_state_folder("there is no state to keep it in");
        let file = self.file.as_ref().ok_or_else(nowhere)?;
        let kept = file.revoke_token(&id);
        kept.map_err(|unfit| unusable(file, &unfit))
    }
}

/// Says that the file of what is revoked cannot be used.
pub(crate) fn unusable(file: &RevokedFile, unfit: &Unfit) -> Failure {
    let path = file.path().display();
    let what = format!("what is revoked cannot be read or kept in {path}");
    Failure::of(what, unfit).next("mend that file or its folder: every gateway of yours reads it")
}
