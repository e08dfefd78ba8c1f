//! `gateway secret set NAME`: stores secrets in the operating system's key ring, under the
//! gateway's own service.

use std::io::{IsTerminal as _, Read as _, Write as _};

use gateway_names::CredentialName;
use gateway_recipe::KeyForm;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use zeroize::Zeroizing;

use super::secret::{MAX_BYTES, Secret, SecretUnsafe, trim_line_end};
use super::store::{DEFAULT_SERVICE, StoreError, blocking_keyring};

/// Why the key ring could not be changed or read.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The value cannot be used as a secret.
    #[error(transparent)]
    Unsafe(#[from] SecretUnsafe),
    /// The key ring failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The value could not be read from standard input or the terminal.
    #[error("the secret could not be read: {0}")]
    Input(std::io::ErrorKind),
    /// The user pressed Ctrl-C.
    #[error("nothing was stored")]
    Cancelled,
}

/// Stores a secret, which `keyring:gateway/NAME` then refers to.
///
/// Blocks while the key ring prompts its user.
///
/// # Errors
/// [`RingError`] by cause. A value that no request could carry is already refused here.
pub fn set(name: &CredentialName, value: Zeroizing<Vec<u8>>) -> Result<(), RingError> {
    // The algorithm of a private key is set by its credential, not by its name. A key that no
    // algorithm signs with is refused here.
    let secret = if KeyForm::is_pem(&value) {
        let algorithm = KeyForm::algorithm(&value).map_err(SecretUnsafe::from)?;
        Secret::private_key(&value, algorithm)?
    } else {
        Secret::new(value, false)?
    };
    Ok(blocking_keyring::set(
        DEFAULT_SERVICE,
        name.as_str(),
        secret.expose(),
    )?)
}

/// Deletes a secret.
///
/// # Errors
/// [`RingError::Store`], with [`StoreError::Absent`] if there is none.
pub fn delete(name: &CredentialName) -> Result<(), RingError> {
    Ok(blocking_keyring::delete(DEFAULT_SERVICE, name.as_str())?)
}

/// Returns the names of the stored secrets, sorted.
///
/// # Errors
/// [`RingError::Store`].
pub fn list() -> Result<Vec<String>, RingError> {
    Ok(blocking_keyring::list(DEFAULT_SERVICE)?)
}

/// Reads a secret from standard input: from a terminal, one line without echo; otherwise everything
/// to the end.
///
/// # Errors
/// [`RingError::Input`], [`RingError::Cancelled`], or [`SecretUnsafe::TooLong`].
pub fn read_secret(prompt: &str) -> Result<Zeroizing<Vec<u8>>, RingError> {
    let stdin = std::io::stdin();
    let hidden = stdin.is_terminal();
    let quiet = if hidden {
        Some(EchoOff::begin(prompt)?)
    } else {
        None
    };
    let mut value = Zeroizing::new(Vec::with_capacity(MAX_BYTES + 3));
    // Bypass std's handle, whose buffer would keep a copy.
    let mut file = std::fs::File::from(rustix::io::dup(&stdin).map_err(failed)?);
    let mut piece = Zeroizing::new([0_u8; 512]);
    loop {
        let read = file
            .read(&mut piece[..])
            .map_err(|error| RingError::Input(error.kind()))?;
        value.extend_from_slice(&piece[..read]);
        if value.len() > MAX_BYTES + 2 {
            return Err(SecretUnsafe::TooLong.into());
        }
        if hidden && value.contains(&INTERRUPT) {
            return Err(RingError::Cancelled);
        }
        if read == 0 || (hidden && value.last() == Some(&b'\n')) {
            break;
        }
    }
    drop(quiet);
    trim_line_end(&mut value);
    Ok(value)
}

/// A terminal without echo, restored on drop. Ctrl-C arrives as a byte, so it cannot skip the
/// restoration.
struct EchoOff {
    before: Termios,
}

impl EchoOff {
    fn begin(prompt: &str) -> Result<Self, RingError> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).map_err(failed)?;
        let mut quiet = before.clone();
        quiet
            .local_modes
            .remove(LocalModes::ECHO | LocalModes::ISIG);
        // With signals off, Ctrl-C itself must end the line.
        quiet.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
        tcsetattr(&stdin, OptionalActions::Flush, &quiet).map_err(failed)?;
        // The prompt is a courtesy: input is read even if it cannot be written.
        let _ = write!(std::io::stderr(), "{prompt}");
        Ok(Self { before })
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        // Nothing can be done if the terminal is gone.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.before);
        let _ = writeln!(std::io::stderr());
    }
}

fn failed(error: rustix::io::Errno) -> RingError {
    RingError::Input(std::io::Error::from(error).kind())
}

const INTERRUPT: u8 = 3;
