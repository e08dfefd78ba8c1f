//! A session as it is stored: public members in the clear, secrets sealed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_files::known_version;
use gateway_names::SessionId;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::error::StateError;
use super::login_rows::GrantId;
use super::seal::{SealBroken, SealingKey};

/// A session as it is stored. Times are seconds since 1970 by the clock of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRecord {
    /// The version of this format. A reader refuses a version that it does not know.
    pub version: u32,
    /// The session's id.
    pub id: String,
    /// The groups that the session belongs to.
    pub parents: Vec<String>,
    /// When it was created.
    pub made: u64,
    /// When it ends unless it is extended; `None` if it does not end by itself.
    pub ends: Option<u64>,
    /// The seconds without a request after which it ends, if it has such a limit.
    pub idle: Option<u64>,
    /// Whether it is paused.
    pub paused: bool,
    /// When a decision ended it.
    pub ended: Option<u64>,
    /// Whether it was ended for being idle.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_idle: bool,
    /// Whether it was ended for good, so that its caller gets no other session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_good: bool,
    /// How many earlier sessions with its name are used up.
    #[serde(default)]
    pub before: u64,
    /// The settings with which an operator created it at run time, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// What the session did with logins, by login.
    #[serde(default)]
    pub logins: BTreeMap<String, KeptLogin>,
    /// The temporary credentials that the session was issued, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub temporary: Vec<KeptTemporary>,
    /// What its requests did, in the words of policies.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<String>,
    /// The shape of each credential's phantom, by the credential's name.
    pub shapes: BTreeMap<String, String>,
    /// The certificate of its CA, if the CA is kept.
    pub certificate: Option<KeptCertificate>,
    /// The seed of its phantoms and the key of its CA, sealed.
    #[serde(skip)]
    pub sealed: Vec<u8>,
}

/// What a session did with a login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptLogin {
    /// The row that holds the tokens, sealed; `None` once the session logged out.
    pub grant: Option<GrantId>,
    /// The resource that its client wants to use it at.
    pub resource: Option<String>,
}

/// Temporary credentials of a session, sealed for as long as the session has its phantoms.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptTemporary {
    /// When they expire, in seconds since 1970.
    pub expires: u64,
    sealed: String,
}

/// A CA certificate and its validity, in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptCertificate {
    /// The certificate as PEM.
    pub pem: String,
    /// The start of its validity.
    pub from: i64,
    /// The end of its validity.
    pub to: i64,
}

/// The secrets of a session that only the gateway may know. Wiped on drop; has no `Debug`.
pub struct KeptSecrets {
    /// The seed that the session's phantoms are derived from.
    pub seed: Zeroizing<[u8; 32]>,
    /// The key of its CA as PKCS #8; empty if the CA is not kept.
    pub ca_key: Zeroizing<Vec<u8>>,
}

impl SessionRecord {
    /// The latest version that this gateway reads, and the one that it writes.
    pub const VERSION: u32 = 6;
    /// The earliest version that it reads: without `created`, `for_good`, `before`, `temporary` and
    /// `labels`.
    pub const EARLIEST: u32 = 2;

    /// Seals the session's secrets into this record, bound to its id. The store binds the record.
    ///
    /// # Errors
    /// [`SealBroken`] if the system has no random numbers.
    pub fn seal(&mut self, key: &SealingKey, secrets: &KeptSecrets) -> Result<(), SealBroken> {
        let mut plain = Zeroizing::new(Vec::with_capacity(32 + secrets.ca_key.len()));
        plain.extend_from_slice(&secrets.seed[..]);
        plain.extend_from_slice(&secrets.ca_key);
        self.sealed = key.seal(&[SECRETS, self.id.as_bytes()], &plain)?;
        Ok(())
    }

    /// Opens the session's secrets.
    ///
    /// # Errors
    /// [`SealBroken`] if the key is another one, or if the secrets are another session's.
    pub fn open(&self, key: &SealingKey) -> Result<KeptSecrets, SealBroken> {
        let plain = key.open(&[SECRETS, self.id.as_bytes()], &self.sealed)?;
        let (seed, ca_key) = plain.split_first_chunk::<32>().ok_or(SealBroken)?;
        Ok(KeptSecrets {
            seed: Zeroizing::new(*seed),
            ca_key: Zeroizing::new(ca_key.to_vec()),
        })
    }

    /// Reads a record from its text and its sealed part.
    pub(super) fn read(version: u32, text: &str, sealed: Vec<u8>) -> Result<Self, StateError> {
        if !(Self::EARLIEST..Self::VERSION).contains(&version) {
            known_version("it", version, Self::VERSION)?;
        }
        let damaged = |why: serde_json::Error| StateError::Damaged(why.to_string());
        let record: Self = serde_json::from_str(text).map_err(damaged)?;
        Ok(Self { sealed, ..record })
    }

    /// The record's text, without its sealed part.
    pub(super) fn text(&self) -> Result<String, StateError> {
        serde_json::to_string(self).map_err(|why| StateError::Damaged(why.to_string()))
    }

    /// Whether it was ended and the next session of its name may begin. A session that an operator
    /// created has no successor.
    pub fn is_used_up(&self) -> bool {
        self.ended.is_some() && !self.was_idle && !self.for_good && self.created.is_none()
    }

    /// The session's id, checked.
    pub(super) fn session(&self) -> Result<SessionId, StateError> {
        SessionId::new(&self.id).map_err(|why| StateError::Damaged(why.to_string()))
    }
}

impl KeptTemporary {
    /// Seals temporary credentials until they expire.
    ///
    /// # Errors
    /// [`SealBroken`] if the system has no random numbers.
    pub fn seal(
        key: &SealingKey,
        (session, secrets): (&SessionId, &KeptSecrets),
        (expires, plain): (u64, &[u8]),
    ) -> Result<Self, SealBroken> {
        let place = [TEMPORARY, session.as_str().as_bytes(), &secrets.seed[..]];
        let sealed = STANDARD.encode(key.seal(&place, plain)?);
        Ok(Self { expires, sealed })
    }

    /// Opens the temporary credentials.
    ///
    /// # Errors
    /// [`SealBroken`] if the key is another one, or the session began anew since.
    pub fn open(
        &self,
        key: &SealingKey,
        (session, secrets): (&SessionId, &KeptSecrets),
    ) -> Result<Zeroizing<Vec<u8>>, SealBroken> {
        let place = [TEMPORARY, session.as_str().as_bytes(), &secrets.seed[..]];
        let sealed = STANDARD.decode(&self.sealed).map_err(|_| SealBroken)?;
        key.open(&place, &sealed)
    }
}

/// The seconds since 1970 of a time.
pub fn unix(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

const SECRETS: &[u8] = b"secrets of a session";
const TEMPORARY: &[u8] = b"temporary credentials of a session";
