//! Why a text is not a reference, and why a store cannot provide a secret.

use std::time::Duration;

use gateway_files::Replaceable;

use crate::secret::SecretUnsafe;

/// A text that is not a reference.
///
/// Quotes no part of the text, which may be a secret written in the wrong place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceMalformed {
    /// The problem.
    pub why: String,
    /// How to fix it.
    pub remedy: String,
}

impl ReferenceMalformed {
    pub(super) fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (why, remedy) = (why.into(), remedy.into());
        Self { why, remedy }
    }
}

impl From<Replaceable> for ReferenceMalformed {
    fn from(why: Replaceable) -> Self {
        Self::new(why.to_string(), why.remedy())
    }
}

/// Why a store cannot provide a secret. Never contains a secret or a program's output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store has no entry of that name.
    #[error("the store has no such secret")]
    Absent,
    /// The store's entry lacks the field. With the names of those that it has, in words.
    #[error("what the store has there has no text in the field `{0}`{1}")]
    NoField(Box<str>, Box<str>),
    /// The value is not text.
    #[error("what the store has there is binary: a secret is text")]
    Binary,
    /// The store cannot be reached.
    #[error("the store cannot be reached: {0}")]
    Unreachable(&'static str),
    /// The store did not answer in time.
    #[error("the store did not answer within {} seconds", .0.as_secs())]
    TimedOut(Duration),
    /// The lease cannot be renewed.
    #[error("the store does not renew it")]
    NotRenewable,
    /// The secret is issued per session, and the fetch was for none.
    #[error("the store issues it to sessions alone")]
    NoSession,
    /// The session that it was fetched for has ended.
    #[error("the session has ended")]
    Ended,
    /// No connection to the store, so nothing was sent.
    #[error("the store cannot be connected to: {0}")]
    NotConnected(Box<str>),
    /// The connection to the store broke, or the response was not valid.
    #[error("the store's answer broke off: {0}")]
    BrokenOff(Box<str>),
    /// The store is sealed or not ready.
    #[error("the store is sealed or not ready")]
    Sealed,
    /// The store refused.
    #[error("the store answered {status}{}{words}", if words.is_empty() { "" } else { ": " })]
    Refused {
        /// The status of the response.
        status: u16,
        /// The known part of its message.
        words: &'static str,
    },
    /// The response of the store does not have the expected format.
    #[error("the store's answer cannot be read")]
    Illegible,
    /// The gateway could not log in to the store.
    #[error("the login failed: {0}")]
    Login(Box<StoreError>),
    /// The gateway's own credentials for the store have expired.
    #[error("the gateway's own credentials there have expired, and must be renewed: {0}")]
    LoginExpired(&'static str),
    /// No store of that name is configured.
    #[error("the configuration has no such store")]
    NotConfigured,
    /// The reference names a place that this kind of store cannot have.
    #[error("the store has no such places")]
    Place,
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    File(std::io::ErrorKind),
    /// The file is not a plain file.
    #[error("the file is not a regular file")]
    NotRegular,
    /// The file belongs to another user.
    #[error("the file belongs neither to this user nor to root")]
    Owner,
    /// Others may replace the file, or a command in a sandbox could have written it or the program.
    #[error(transparent)]
    Replaceable(#[from] Replaceable),
    /// Other users may read or write the file.
    #[error("others may read or write the file; run `chmod 600` on it")]
    Permissions,
    /// The program cannot be started.
    #[error("the command cannot be started: {0}")]
    Start(std::io::ErrorKind),
    /// The program failed.
    #[error("the command failed with {}", .0.map_or_else(|| "a signal".to_owned(), |code| format!("status {code}")))]
    Failed(Option<i32>),
    /// The program printed more than this many bytes.
    #[error("the command printed more than {0} bytes")]
    Output(usize),
    /// The program printed an object of unknown form.
    #[error(
        "the command printed JSON that is neither {{\"secret\": TEXT, \"expires_in\": SECONDS}} nor a document of `Version` 1 \
         with `AccessKeyId`, `SecretAccessKey` and, for credentials that end, a `SessionToken` and an `Expiration` to come"
    )]
    Json,
    /// There is no login, such as after a logout. The text says how to log in.
    #[error("there is no login: {0}")]
    NoLogin(Box<str>),
    /// The stored login cannot be used. The text has the file, the cause and the remedy.
    #[error("{0}")]
    LoginUnusable(Box<str>),
    /// What the gateway itself keeps of logins, or presents to a store, cannot be used. May name
    /// files of its own, so no workload is told the text.
    #[error("{0}")]
    LoginState(Box<str>),
    /// The issuer of a login renews it no more. The cause and the remedy.
    #[error("the login is over: {0}")]
    LoginOver(Box<str>),
    /// The value cannot be used.
    #[error(transparent)]
    Unsafe(#[from] SecretUnsafe),
}

impl StoreError {
    /// Whether the store answered that it has no such secret.
    pub fn is_absent(&self) -> bool {
        matches!(
            self,
            Self::Absent | Self::NoField(..) | Self::NoLogin(_) | Self::Refused { status: 404, .. }
        )
    }

    /// Returns the error for a store over HTTP that has no such secret.
    pub(super) fn gone() -> Self {
        Self::Refused {
            status: 404,
            words: "there is no such secret",
        }
    }

    /// Whether the store stated that the secret may no longer be used.
    ///
    /// Otherwise it only could not answer now.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(status, 403 | 404),
            Self::NoLogin(_) | Self::LoginOver(_) | Self::Ended => true,
            // An operator who revokes the gateway's access does so on purpose. A server that is
            // only too busy (429) does not count.
            Self::Login(cause) => match **cause {
                Self::Refused { status, .. } => (400..=404).contains(&status),
                Self::LoginOver(_) => true,
                _ => false,
            },
            _ => false,
        }
    }
}
