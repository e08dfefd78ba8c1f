//! Revokes a credential while the gateway runs.

use std::sync::Arc;

use super::app::App;
use super::failure::Failure;
use crate::names::CredentialName;

impl App {
    /// Revokes a credential. Requests that present it are refused, exchanges that were lent it are
    /// cut, and connections that could carry its secret are severed, in every thread.
    ///
    /// From the moment this returns, no byte of the secret leaves. It holds until the process ends,
    /// or until the configuration names another place for the secret. Returns how many connections
    /// to origins were severed.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there is no such credential.
    #[expect(dead_code, reason = "the control socket is to call it")]
    pub fn revoke(self: &Arc<Self>, credential: &str) -> Result<usize, Failure> {
        let unknown = || {
            Failure::usage(format!(
                "there is no credential `{}`",
                super::safe(credential)
            ))
            .next("`gateway status` lists the credentials")
        };
        let name = CredentialName::new(credential).map_err(|_| unknown())?;
        self.shared.revoke(&name).ok_or_else(unknown)
    }
}
