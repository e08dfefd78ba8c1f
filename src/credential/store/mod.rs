//! Stores: where secrets come from, each behind one small trait.

mod cache;
mod command;
mod env;
mod file;
mod keyring;
mod memory;
mod set;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::secret::{Secret, SecretUnsafe};
use crate::session::Reference;

pub use cache::{Lease, Source, Stores, Unavailable};
pub use env::EnvStore;
pub use memory::MemoryStore;

pub(super) use keyring::blocking as blocking_keyring;

/// A place from which secrets are fetched.
pub trait SecretStore: Send + Sync {
    /// Fetches what a reference names, within the store's own deadline.
    ///
    /// Dropping the future ends the work: nothing that it started outlives it but a key ring's own
    /// answer.
    fn fetch<'a>(&'a self, reference: &'a Reference) -> Fetching<'a>;
}

/// A fetch under way.
pub type Fetching<'a> = Pin<Box<dyn Future<Output = Result<Fetched, StoreError>> + Send + 'a>>;

/// What a store answers.
pub struct Fetched {
    /// The secret.
    pub secret: Arc<Secret>,
    /// How long it may be used without asking again; `None` is for ever.
    pub lifetime: Option<Lifetime>,
    /// Which run of a program it is of, where its other parts must be of the same.
    pub run: Option<u64>,
}

/// How long a fetched secret may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// From when on the store is asked again while the secret still serves.
    pub refresh_after: Duration,
    /// When it serves no longer.
    pub expires_after: Duration,
}

impl Lifetime {
    /// The lifetime of a secret that expires after so long; it is refreshed at 80 per cent of that.
    #[must_use]
    pub fn of(expires_after: Duration) -> Self {
        Self {
            refresh_after: expires_after * 4 / 5,
            expires_after,
        }
    }
}

/// Why a store has no secret to give. Nothing of a secret or of a program's output is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store has nothing of that name.
    #[error("the store has no such secret")]
    Absent,
    /// The store cannot be reached.
    #[error("the store cannot be reached: {0}")]
    Unreachable(&'static str),
    /// The store did not answer in time.
    #[error("the store did not answer within {} seconds", .0.as_secs())]
    TimedOut(Duration),
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    File(std::io::ErrorKind),
    /// The file is not a plain file.
    #[error("the file is not a regular file")]
    NotRegular,
    /// The file belongs to somebody else.
    #[error("the file belongs neither to this user nor to root")]
    Owner,
    /// Others may read or write the file.
    #[error("others may read or write the file; run `chmod 600` on it")]
    Permissions,
    /// The program cannot be started.
    #[error("the command cannot be started: {0}")]
    Start(std::io::ErrorKind),
    /// The program failed.
    #[error("the command failed with {}", .0.map_or_else(|| "a signal".to_owned(), |code| format!("status {code}")))]
    Failed(Option<i32>),
    /// The program printed more than [`MAX_OUTPUT_BYTES`].
    #[error("the command printed more than {MAX_OUTPUT_BYTES} bytes")]
    Output,
    /// The program printed an object that is not `{"secret": …, "expires_in": …}`.
    #[error("the command printed JSON that is not {{\"secret\": TEXT, \"expires_in\": SECONDS}}")]
    Json,
    /// The program printed something else than a set of parts.
    #[error(
        "the command printed something else than a document of `Version` 1 with `AccessKeyId`, `SecretAccessKey` and, for \
         credentials that end, a `SessionToken` and an `Expiration` to come"
    )]
    Set,
    /// The value cannot be used.
    #[error(transparent)]
    Unsafe(#[from] SecretUnsafe),
}

impl StoreError {
    /// The short code for audit records and refusals.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unsafe(_) => "secret_unsafe",
            _ => "secret_unavailable",
        }
    }
}

/// The most that a command may print, in bytes.
pub const MAX_OUTPUT_BYTES: usize = 64 * 1024;
