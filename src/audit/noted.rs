//! The credentials whose phantoms were seen in content that the gateway does not change.

use gateway_names::CredentialName;
use parking_lot::Mutex;

use super::record::{Injected, Text};
use super::texts::{MOST_LISTED, push};

/// Gathers them while the content passes, each once. The exchange's records tell them.
pub struct Noted {
    seen: Mutex<Seen>,
    /// How many there can be.
    most: usize,
}

#[derive(Default)]
struct Seen {
    credentials: Vec<Text>,
    /// How many of them are in a record.
    told: usize,
}

impl Noted {
    /// Nothing yet, of this many credentials.
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

    /// Adds those that no record has yet to the lists of a record.
    pub fn tell(&self, list: &mut Vec<Injected>, more: &mut Option<u64>) {
        let mut seen = self.seen.lock();
        for credential in &seen.credentials[seen.told..] {
            let (credential, place) = (credential.clone(), PLACE.into());
            push(list, more, MOST_LISTED, Injected { credential, place });
        }
        seen.told = seen.credentials.len();
    }

    /// Whether every one is in a record.
    pub(super) fn is_told(&self) -> bool {
        let seen = self.seen.lock();
        seen.told == seen.credentials.len()
    }

    /// How many a record may have to list.
    pub(super) fn most(&self) -> usize {
        self.most.min(MOST_LISTED)
    }
}

/// Where they stand, as records say it.
const PLACE: &str = "content";
