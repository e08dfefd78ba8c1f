//! Names that every crate uses: sessions, exchanges, credentials and policies. Also hexadecimal
//! digits, the system's certificate bundles, and real paths.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod budget;
mod code;
#[macro_use]
mod declared;
pub mod prefixes;
mod real_path;
mod reason;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub use budget::{Amount, Period, Unit, read_amount, shown, written};
pub use real_path::real_path;
pub use reason::{Blame, ReasonCode};

/// The prefix of a gateway token's text.
pub const TOKEN_PREFIX: &str = "gwt1_";

/// A hash map for the path of a request. Its hash is keyed at random and costs a tenth of the
/// standard library's.
///
/// The hash resists guessing less. Values that a client makes up may be looked up here, but may be
/// inserted only up to a small bound.
pub type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A session: one workload, one CA, one set of phantoms.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SessionId(Arc<str>);

/// Who is behind a connection, as the evidence names it in policy (`Gateway::User::"NAME"`) and
/// audit: `uid:1000`, `alice@example.com`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct User(Arc<str>);

/// An exchange, as named in the response, the audit log and `gateway why`.
///
/// 80 random bits, shown as 20 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExchangeId([u8; 10]);

/// A credential's name in configuration, policy (`Gateway::Credential::"NAME"`) and audit.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CredentialName(Arc<str>);

/// A person's name for a secret: a credential's name, a variable, or the place from which the
/// secret is read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SecretLabel(Arc<str>);

/// The identity that a connection to an origin is used for: the session, and the credentials
/// injected on it. Connections and TLS sessions are never shared across identities (threats P01,
/// K07).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// The session.
    pub session: SessionId,
    /// How many sessions had its name before. A later one of that name is another identity.
    pub before: u64,
    /// The credentials, in the order of their injection.
    pub credentials: Arc<[CredentialName]>,
}

/// Whether the connections to origins belong to one client connection alone.
///
/// Some logins (NTLM, Negotiate) authenticate a connection and not a request: its next user would
/// be taken for the one who logged in.
#[derive(Debug, Default)]
pub struct Tie(OnceLock<u64>);

impl Tie {
    /// Ties them from now on, and returns the number of the client's connection.
    pub fn tie(&self) -> u64 {
        static TIED: AtomicU64 = AtomicU64::new(0);
        *self.0.get_or_init(|| TIED.fetch_add(1, Ordering::Relaxed))
    }

    /// The number of the client's connection, if they are tied.
    #[must_use]
    pub fn tied(&self) -> Option<u64> {
        self.0.get().copied()
    }
}

/// A policy's name: the value of its `@id` annotation, or `file:line` without one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PolicyId(Arc<str>);

/// The error for a name that is empty, longer than 128 bytes, or has a character outside
/// `[A-Za-z0-9._:/-]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to 128 characters of A-Z a-z 0-9 . _ : / -")]
pub struct NameMalformed(());

fn checked(text: &str) -> Result<Arc<str>, NameMalformed> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    if (1..=128).contains(&text.len()) && text.bytes().all(fits) {
        Ok(Arc::from(text))
    } else {
        Err(NameMalformed(()))
    }
}

macro_rules! text_name {
    ($name:ident) => {
        as_text!($name);

        impl $name {
            /// Checks a text and makes it a name.
            ///
            /// # Errors
            /// Returns [`NameMalformed`] if the text is not a valid name.
            pub fn new(text: &str) -> Result<Self, NameMalformed> {
                checked(text).map(Self)
            }
        }
    };
}

macro_rules! as_text {
    ($name:ident) => {
        impl $name {
            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

impl User {
    /// Takes a text of 1 to 256 visible ASCII characters without `"` and `\`; else `None`.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        let is_name = (1..=256).contains(&text.len()) && text.bytes().all(fits);
        is_name.then(|| Self(Arc::from(text)))
    }
}

impl SecretLabel {
    /// Takes a text of 1 to 1,024 bytes without control characters; else `None`.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let fits = (1..=1024).contains(&text.len()) && !text.chars().any(char::is_control);
        fits.then(|| Self(Arc::from(text)))
    }
}

text_name!(SessionId);
text_name!(CredentialName);
text_name!(PolicyId);
as_text!(User);
as_text!(SecretLabel);
serde_as_text!(CredentialName, ToString::to_string, |text| {
    CredentialName::new(text).ok()
});
serde_as_text!(SessionId, ToString::to_string, |text| {
    SessionId::new(text).ok()
});
serde_as_text!(SecretLabel, ToString::to_string, SecretLabel::new);
serde_as_text!(User, ToString::to_string, User::new);

impl ExchangeId {
    /// Creates an id from ten random bytes.
    pub fn from_bytes(bytes: [u8; 10]) -> Self {
        Self(bytes)
    }

    /// Returns the id's 20 hexadecimal digits, without an allocation.
    #[must_use]
    pub fn to_hex(self) -> [u8; 20] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut out = [0; 20];
        for (pair, byte) in out.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        out
    }
}

impl fmt::Display for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_hex()).expect("hexadecimal digits are ASCII"))
    }
}

impl fmt::Debug for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Joins values, with a text between each two.
pub fn join(all: impl IntoIterator<Item: ToString>, between: &str) -> String {
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    all.join(between)
}

/// Splits a text at its single spaces into words, at compile time.
///
/// # Panics
/// Panics unless there are exactly `N` words: then nothing is compiled.
pub const fn word_list<const N: usize>(text: &'static str) -> [&'static str; N] {
    let (mut words, mut count, mut rest) = ([""; N], 0, text);
    while !rest.is_empty() {
        let mut end = 0;
        while end < rest.len() && rest.as_bytes()[end] != b' ' {
            end += 1;
        }
        let (word, after) = rest.split_at(end);
        words[count] = word;
        count += 1;
        rest = after.split_at(!after.is_empty() as usize).1;
    }
    assert!(count == N, "the list has fewer words");
    words
}

/// Where systems keep their bundle of CA certificates; the first that exists is used.
pub const SYSTEM_BUNDLES: [&str; 10] = word_list(
    "/etc/ssl/certs/ca-certificates.crt /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem \
     /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem \
     /etc/pki/tls/cert.pem /var/lib/ca-certificates/ca-bundle.pem \
     /etc/ca-certificates/extracted/tls-ca-bundle.pem /usr/local/share/certs/ca-root-nss.crt \
     /etc/ssl/certs/ca-bundle.crt",
);
