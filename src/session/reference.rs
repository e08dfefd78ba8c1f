//! References: where a secret is, never what it is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::signature::recipe::Algorithm;

/// Where a secret is kept. The configuration alone makes one of text, and checks it; a store that
/// finds nothing there says so.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    pub(crate) keeper: Keeper,
    pub(crate) allow_short: bool,
    /// The algorithm whose private key is kept there, where that is so.
    pub(crate) private_key: Option<Algorithm>,
}

/// Which store keeps it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Keeper {
    /// A variable of the gateway's own environment.
    Env(String),
    /// A file that holds nothing else, and that its owner alone can read.
    File(PathBuf),
    /// An item of the operating system's key ring.
    Keyring { service: String, name: String },
    /// What a program prints.
    Command(CommandLine),
}

/// A program that prints a secret: no shell, an absolute path, a small environment.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct CommandLine {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// How long its answer serves, where it does not say so itself.
    pub(crate) ttl: Option<Duration>,
    /// Which part of the set that it prints is meant.
    pub(crate) member: Option<Member>,
}

/// A part of the set that a `credential_process` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Member {
    /// `AccessKeyId`.
    AccessKey,
    /// `SecretAccessKey`.
    SecretKey,
    /// `SessionToken`.
    SessionToken,
}

impl Reference {
    /// A reference to a variable of the gateway's environment: `env:NAME`.
    #[must_use]
    pub fn env(name: impl Into<String>) -> Self {
        Self::plain(Keeper::Env(name.into()))
    }

    /// A reference to an item of the key ring: `keyring:SERVICE/NAME`.
    #[must_use]
    pub fn keyring(service: impl Into<String>, name: impl Into<String>) -> Self {
        Self::plain(Keeper::Keyring {
            service: service.into(),
            name: name.into(),
        })
    }

    /// A reference to a file, by its absolute path: `file:/path`.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::plain(Keeper::File(path.into()))
    }

    /// A reference to what a program prints; its path is absolute.
    #[must_use]
    pub fn command(
        program: impl Into<PathBuf>,
        arguments: Vec<String>,
        ttl: Option<Duration>,
    ) -> Self {
        Self::plain(Keeper::Command(CommandLine {
            program: program.into(),
            arguments,
            ttl,
            member: None,
        }))
    }

    /// The same reference, whose secret may be shorter than [`crate::credential::MIN_BYTES`] if
    /// that is so.
    #[must_use]
    pub fn allowing_short(mut self, allow: bool) -> Self {
        self.allow_short = allow;
        self
    }

    /// The same reference, to a private key, which may have several lines and must be one that the
    /// algorithm signs with.
    #[must_use]
    pub fn to_private_key(mut self, of: Algorithm) -> Self {
        self.private_key = Some(of);
        self
    }

    /// The same reference, to one part of the set that its program prints.
    #[must_use]
    pub fn member(mut self, member: Member) -> Self {
        if let Keeper::Command(line) = &mut self.keeper {
            line.member = Some(member);
        }
        self
    }

    /// The program that is run for the secret, for a reference to a command.
    #[must_use]
    pub fn program(&self) -> Option<&Path> {
        match &self.keeper {
            Keeper::Command(command) => Some(&command.program),
            _ => None,
        }
    }

    /// How long what the program prints serves, for a reference to a command that says so.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        match &self.keeper {
            Keeper::Command(command) => command.ttl,
            _ => None,
        }
    }

    /// The file, for a reference to one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.keeper {
            Keeper::File(path) => Some(path),
            _ => None,
        }
    }

    /// The variable of the gateway's environment that it names, if it names one.
    #[must_use]
    pub fn env_name(&self) -> Option<&str> {
        match &self.keeper {
            Keeper::Env(name) => Some(name),
            _ => None,
        }
    }

    fn plain(keeper: Keeper) -> Self {
        Self {
            keeper,
            allow_short: false,
            private_key: None,
        }
    }
}

/// Shows the store and the name; of a command the program alone, for arguments can be private.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.keeper {
            Keeper::Env(name) => write!(f, "env:{name}"),
            Keeper::File(path) => write!(f, "file:{}", path.display()),
            Keeper::Keyring { service, name } => write!(f, "keyring:{service}/{name}"),
            Keeper::Command(line) => write!(f, "command:{}", line.program.display()),
        }
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl CommandLine {
    /// The program, whichever part of what it prints is meant.
    pub(crate) fn whole(&self) -> Self {
        Self {
            member: None,
            ..self.clone()
        }
    }
}

/// The key ring's service where a reference names none.
pub const DEFAULT_SERVICE: &str = "gateway";
/// The `PATH` that a command gets.
pub(crate) const FIXED_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
pub(crate) const MAX_TTL_SECONDS: u64 = 86_400;
