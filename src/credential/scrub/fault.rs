//! Why a secret cannot be searched for, and when a session is shown no more.

use gateway_names::ReasonCode;

/// Why a secret's echoes could not be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unscrubbable {
    /// Too short to be told from chance matches in content.
    #[error("secret is shorter than {} bytes", SHORTEST)]
    TooShort,
    /// Secret and phantom differ in length, or in the position of punctuation.
    #[error("phantom has not the shape of its secret")]
    ShapeDiffers,
    /// Writing the phantom would reveal the secret.
    #[error("phantom is the secret itself")]
    PhantomIsSecret,
}

/// The session received more parts of secrets than accidents explain.
///
/// It is shown no more responses that could contain a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("answers to the session held too many different parts of secrets")]
pub struct Guessed;

impl Guessed {
    /// Returns the reason code for refusals and the audit log.
    pub fn reason(self) -> ReasonCode {
        ReasonCode::SecretGuessed
    }
}

/// The shortest secret that can be told from chance matches. Stores refuse shorter ones.
pub(crate) const SHORTEST: usize = 8;
