//! References: the places of secrets, never their values.

use std::fmt;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::backend::{Backend, CommandLine, KeyringItem, SecretFile, unknown_scheme};
use super::error::{ReferenceMalformed, StoreError};
use crate::login::TokenKind;
use crate::secret::{Secret, SecretUnsafe};
use gateway_names::CredentialName;
use gateway_recipe::Algorithm;
use gateway_state::FingerprintKey;
use zeroize::Zeroizing;

/// The place of a secret, and the requirements for it.
///
/// Parsed only from configuration. Whether a secret exists is known only when the store is read.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SecretRef {
    pub(super) backend: Backend,
    /// The field of the read; `None` means the unnamed one.
    pub(super) field: Option<Box<str>>,
    allow_short: bool,
    /// The algorithm, if the secret is a private key.
    private_key: Option<Algorithm>,
}

impl SecretRef {
    /// Parses a reference, `SCHEME:PLACE`; `path` turns text into a path.
    ///
    /// # Errors
    /// [`ReferenceMalformed`] if the scheme is unknown, the rest is malformed, or other users can
    /// read the file; and any error of `path`.
    pub fn parse<E: From<ReferenceMalformed>>(
        text: &str,
        path: impl FnOnce(&str) -> Result<PathBuf, E>,
    ) -> Result<Self, E> {
        let (scheme, rest) = text.split_once(':').ok_or_else(unknown_scheme)?;
        let (backend, field) = Backend::parse(scheme, rest, path)?;
        Ok(Self {
            field,
            ..Self::to(backend)
        })
    }

    /// Checks everything that needs no fetch: a file's owner and permissions, and who could have
    /// written the file or the program.
    ///
    /// # Errors
    /// [`ReferenceMalformed`] if no fetch could use it now.
    pub fn check(&self) -> Result<(), ReferenceMalformed> {
        match &self.backend {
            Backend::File(file) => file.check(),
            Backend::Command(line) => Ok(line.check()?),
            _ => Ok(()),
        }
    }

    /// Returns a reference to a variable of the gateway's environment: `env:NAME`.
    pub fn env(name: impl Into<String>) -> Self {
        Self::to(Backend::Env(name.into()))
    }

    /// Returns a reference to a key ring item: `keyring:SERVICE/NAME`.
    pub fn keyring(service: impl Into<String>, name: impl Into<String>) -> Self {
        Self::to(Backend::Keyring(KeyringItem {
            service: service.into(),
            name: name.into(),
        }))
    }

    /// Returns a reference to a file by its absolute path: `file:/path`.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::to(Backend::File(SecretFile::at(path.into())))
    }

    /// Returns a reference to a token of a login: `login:NAME#access`.
    pub fn login(name: CredentialName, kind: TokenKind) -> Self {
        Self {
            field: Some(kind.as_str().into()),
            ..Self::to(Backend::Login(name))
        }
    }

    /// Returns a reference to the output of a program; its path is absolute.
    pub fn command(
        program: impl Into<PathBuf>,
        arguments: Vec<String>,
        ttl: Option<Duration>,
    ) -> Self {
        Self::to(Backend::Command(CommandLine {
            program: program.into(),
            arguments,
            ttl,
            pass: Vec::new(),
        }))
    }

    /// Hands a command these variables of the gateway's environment too.
    #[must_use]
    pub fn passing(mut self, variables: Vec<String>) -> Self {
        if let Backend::Command(line) = &mut self.backend {
            line.pass = variables;
        }
        self
    }

    fn to(backend: Backend) -> Self {
        Self {
            backend,
            field: None,
            allow_short: false,
            private_key: None,
        }
    }

    /// Selects a named field of the read.
    #[must_use]
    pub fn field(mut self, name: &str) -> Self {
        self.field = Some(name.into());
        self
    }

    /// Sets whether the secret may be shorter than [`crate::MIN_BYTES`].
    #[must_use]
    pub fn allowing_short(mut self, allow: bool) -> Self {
        self.allow_short = allow;
        self
    }

    /// Makes this a reference to a private key, which may have several lines and must fit the
    /// algorithm.
    #[must_use]
    pub fn to_private_key(mut self, of: Algorithm) -> Self {
        self.private_key = Some(of);
        self
    }

    /// Returns the algorithm, if the secret is a private key.
    pub fn private_key(&self) -> Option<Algorithm> {
        self.private_key
    }

    /// Returns the name of the store of the configuration that keeps the secret, if one does.
    pub fn store(&self) -> Option<&str> {
        match &self.backend {
            Backend::Store(place) => Some(&place.store),
            _ => None,
        }
    }

    /// Returns the program, if this is a reference to a command.
    pub fn program(&self) -> Option<&Path> {
        match &self.backend {
            Backend::Command(command) => Some(&command.program),
            _ => None,
        }
    }

    /// Returns the configured lifetime of a command's output, if any.
    pub fn ttl(&self) -> Option<Duration> {
        match &self.backend {
            Backend::Command(command) => command.ttl,
            _ => None,
        }
    }

    /// Returns the file, if this is a reference to one.
    pub fn path(&self) -> Option<&Path> {
        match &self.backend {
            Backend::File(file) => Some(file.path()),
            _ => None,
        }
    }

    /// Returns the login, if this is a reference to a token of one.
    pub fn login_name(&self) -> Option<&CredentialName> {
        match &self.backend {
            Backend::Login(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the environment variable, if this is a reference to one.
    pub fn env_name(&self) -> Option<&str> {
        match &self.backend {
            Backend::Env(name) => Some(name),
            _ => None,
        }
    }

    /// Whether both references have the same place, whatever the requirements and the lifetime of
    /// the secret.
    pub fn is_same_place(&self, other: &Self) -> bool {
        let is_same = match (&self.backend, &other.backend) {
            (Backend::Command(one), Backend::Command(other)) => {
                one.program == other.program && one.arguments == other.arguments
            }
            (one, other) => one == other,
        };
        is_same && self.field == other.field
    }

    /// The place as text, to tell it from every other: of a command with a fingerprint of its
    /// arguments, which can be private; of a login without the kind of token, since they end
    /// together.
    pub(crate) fn place(&self, key: Option<&FingerprintKey>) -> String {
        match (&self.backend, key) {
            (Backend::Command(line), Some(key)) => {
                let print = key.of(line.arguments.join("\0").as_bytes());
                format!(
                    "{}#{print}#{}",
                    self.backend,
                    self.field.as_deref().unwrap_or_default()
                )
            }
            (Backend::Login(_), _) => self.backend.to_string(),
            _ => self.to_string(),
        }
    }

    /// Returns the fingerprint of the present value of a variable or a file, if there is one.
    pub fn fingerprint_now(&self, key: &FingerprintKey) -> Option<String> {
        let value = match &self.backend {
            Backend::Env(name) => Zeroizing::new(std::env::var_os(name)?.into_vec()),
            Backend::File(file) => super::file::read(file.path()).ok()?,
            _ => return None,
        };
        (!value.is_empty()).then(|| key.of(&value))
    }

    /// Whether the secret is in a variable or a file, where a read costs nothing.
    pub fn is_at_hand(&self) -> bool {
        matches!(self.backend, Backend::Env(_) | Backend::File(_))
    }

    /// Returns the error for a read that lacks this field; `has` names those that it has.
    pub(super) fn lacking(&self, has: &str) -> StoreError {
        let field = self.field.clone();
        field.map_or(StoreError::Absent, |field| {
            StoreError::NoField(field, has.into())
        })
    }

    /// Makes a secret of a value that was read, if the value meets the requirements.
    pub(super) fn admit(&self, value: &Zeroizing<Vec<u8>>) -> Result<Secret, SecretUnsafe> {
        match self.private_key {
            Some(algorithm) => Secret::private_key(value, algorithm),
            None => Secret::new(value.clone(), self.allow_short),
        }
    }
}

/// Shows the store, the name and the field.
impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend.fmt(f)?;
        match &self.field {
            Some(field) => write!(f, "#{field}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
