//! The responses of Vault, read into memory that is wiped.

use std::collections::HashMap;

use serde::{Deserialize, Deserializer};

use super::super::json::{SecretFields, Text};

/// The outer object of every response.
#[derive(Deserialize)]
pub(super) struct VaultReply<T> {
    #[serde(default)]
    pub(super) lease_id: String,
    #[serde(default)]
    pub(super) renewable: bool,
    /// In seconds.
    #[serde(default, deserialize_with = "seconds")]
    pub(super) lease_duration: u64,
    pub(super) data: Option<T>,
    pub(super) auth: Option<Auth>,
}

/// An issued token.
#[derive(Deserialize)]
pub(super) struct Auth {
    pub(super) client_token: Text,
    /// In seconds; 0 means no end.
    #[serde(default, deserialize_with = "seconds")]
    pub(super) lease_duration: u64,
    #[serde(default)]
    pub(super) renewable: bool,
}

/// A token's own properties.
#[derive(Deserialize)]
pub(super) struct OwnToken {
    /// In seconds; 0 means no end.
    #[serde(default, deserialize_with = "seconds")]
    pub(super) ttl: u64,
    #[serde(default)]
    pub(super) renewable: bool,
}

/// The engine mounted at a path.
#[derive(Deserialize)]
pub(super) struct Mount {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) path: String,
    pub(super) options: Option<HashMap<String, String>>,
}

/// A version of a KV secret.
#[derive(Deserialize)]
pub(super) struct Versioned {
    /// Absent if the version is deleted.
    pub(super) data: Option<SecretFields>,
}

/// Reads a number of seconds, capped so that adding it to a time cannot overflow.
fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Ok(u64::deserialize(from)?.min(LONGEST_SECONDS))
}

/// Ten years.
const LONGEST_SECONDS: u64 = 10 * 365 * 86_400;

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;

    use super::*;

    #[test]
    fn a_time_that_no_clock_reaches_is_cut() {
        let text = format!(r#"{{"lease_duration":{}}}"#, u64::MAX);
        let reply: VaultReply<IgnoredAny> = serde_json::from_str(&text).unwrap();
        assert_eq!(reply.lease_duration, LONGEST_SECONDS);
        let text = format!(r#"{{"ttl":{}}}"#, u64::MAX);
        let token: OwnToken = serde_json::from_str(&text).unwrap();
        assert_eq!(token.ttl, LONGEST_SECONDS);
    }
}
