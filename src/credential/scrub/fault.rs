//! Why a secret cannot be searched for, and when a session is shown nothing more.

use crate::names::ReasonCode;

/// Says why a secret's echoes could not be replaced in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unscrubbable {
    /// Too short to be told from chance in content.
    #[error("secret is shorter than {} bytes", SHORTEST)]
    TooShort,
    /// Secret and phantom differ in length, or in where their special characters stand.
    #[error("phantom has not the shape of its secret")]
    ShapeDiffers,
    /// There would be nothing to hide behind.
    #[error("phantom is the secret itself")]
    PhantomIsSecret,
}

/// The session met more parts of secrets than accidents make, so it is shown nothing more in which
/// one could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("answers to the session held too many different parts of secrets")]
pub struct Guessed;

impl Guessed {
    /// The reason code in refusals and audit.
    #[must_use]
    pub fn reason(self) -> ReasonCode {
        ReasonCode::SecretGuessed
    }
}

/// The shortest secret that can be told from chance; the stores refuse shorter ones.
pub(in crate::credential) const SHORTEST: usize = 8;
