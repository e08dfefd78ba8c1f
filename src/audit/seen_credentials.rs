//! The credentials whose phantoms were seen in content that the gateway does not change.

use gateway_names::CredentialName;
use parking_lot::Mutex;

use super::record::{Injection, Text};
use super::texts::{MOST_LISTED, push};

/// Collects these credentials while the content passes, each once, for the exchange's records.
pub struct SeenCredentials {
    seen: Mutex<SeenState>,
    /// How many credentials there can be.
    most: usize,
}

#[derive(Default)]
struct SeenState {
    credentials: Vec<Text>,
    /// How many of them are in a record.
    told: usize,
}

impl SeenCredentials {
    /// Starts empty, for up to this many credentials.
    #[must_use]
    pub fn of(most: usize) -> Self {
        let seen = Mutex::default();
        Self { seen, most }
    }

    /// Notes that a credential's phantom was seen.
    pub fn add(&self, credential: &CredentialName) {
        let known = &mut self.seen.lock().credentials;
        if !known.iter().any(|known| known == credential.as_str()) {
            known.push(credential.as_str().into());
        }
    }

    /// Adds the credentials that no record has yet to the list of a record.
    pub fn tell(&self, list: &mut Vec<Injection>, more: &mut Option<u64>) {
        let mut seen = self.seen.lock();
        for credential in &seen.credentials[seen.told..] {
            let (credential, place) = (credential.clone(), PLACE.into());
            push(list, more, MOST_LISTED, Injection { credential, place });
        }
        seen.told = seen.credentials.len();
    }

    /// Whether every credential is in a record.
    pub(super) fn is_told(&self) -> bool {
        let seen = self.seen.lock();
        seen.told == seen.credentials.len()
    }

    /// How many a record may have to list.
    pub(super) fn most(&self) -> usize {
        self.most.min(MOST_LISTED)
    }
}

/// Their place, as records name it.
const PLACE: &str = "content";
