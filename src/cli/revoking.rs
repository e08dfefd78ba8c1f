//! What a running gateway knows of revocations: it obeys the file that all gateways of this user
//! share, and keeps there what operators revoke.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::app::App;
use super::failure::Failure;
use crate::files::Unfit;
use crate::names::CredentialName;
use crate::state::RevokedFile;

/// What is revoked for every gateway of this user.
#[derive(Default)]
pub(super) struct KeptRevocations {
    file: Option<RevokedFile>,
    /// What was revoked here and could not be kept. Held while the file is read or changed and
    /// obeyed, so that what was read last is in force.
    unkept: Mutex<BTreeSet<CredentialName>>,
}

impl KeptRevocations {
    /// Those that a file keeps.
    pub(super) fn kept_in(path: Option<PathBuf>) -> Self {
        Self {
            file: path.map(RevokedFile::at),
            unkept: Mutex::default(),
        }
    }
}

impl App {
    /// Revokes what is revoked by now, and takes back what no longer is. Returns how many
    /// connections to origins were severed.
    ///
    /// # Errors
    /// Returns a [`Failure`] if that cannot be read. Then what was known holds.
    pub(super) fn obey(&self) -> Result<usize, Failure> {
        self.obey_with(&self.revocations.unkept.lock())
    }

    fn obey_with(&self, unkept: &BTreeSet<CredentialName>) -> Result<usize, Failure> {
        let mut revoked = unkept.clone();
        if let Some(file) = &self.revocations.file {
            let kept = file.read().map_err(|unfit| unusable(file, &unfit))?;
            revoked.extend(kept.into_keys());
        }
        Ok(self.shared.revoke_exactly(&revoked))
    }

    /// Keeps that a credential is revoked, or no longer is, and obeys all that is kept.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be kept. A credential is revoked here all the same.
    pub(super) fn keep_revoked(
        &self,
        credential: &CredentialName,
        is_revoked: bool,
    ) -> Result<usize, Failure> {
        let mut unkept = self.revocations.unkept.lock();
        let kept = match &self.revocations.file {
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
        self.obey_with(&unkept)
    }

    /// Obeys what is revoked while nobody tells this gateway: it may have no control socket.
    pub(super) async fn keep_obeying(self: Arc<Self>) {
        loop {
            tokio::time::sleep(EVERY).await;
            let app = self.clone();
            if let Ok(Err(failure)) = tokio::task::spawn_blocking(move || app.obey()).await {
                tracing::warn!(%failure, "revocations cannot be followed");
            }
        }
    }
}

/// Says that the file of what is revoked cannot be used.
pub(super) fn unusable(file: &RevokedFile, unfit: &Unfit) -> Failure {
    let path = file.path().display();
    let what = format!("what is revoked cannot be read or kept in {path}");
    Failure::of(what, unfit).next("mend that file or its folder: every gateway of yours reads it")
}

const EVERY: Duration = Duration::from_secs(1);
