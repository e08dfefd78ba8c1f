//! A store in memory, for trying the rest of the gateway without one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use zeroize::Zeroizing;

use super::{Fetched, Fetching, Lifetime, SecretStore, StoreError};
use crate::credential::secret::Secret;
use crate::session::Reference;

/// Secrets by their reference's text, changeable while it serves, with a delay and a count of
/// fetches.
#[derive(Default)]
pub struct MemoryStore {
    entries: Mutex<HashMap<String, Entry>>,
    fetches: AtomicUsize,
}

struct Entry {
    answer: Result<Arc<Secret>, StoreError>,
    lifetime: Option<Lifetime>,
    delay: Duration,
}

impl MemoryStore {
    /// Keeps a secret under a reference such as `env:NAME`.
    ///
    /// # Errors
    /// [`StoreError::Unsafe`] where the value is no secret.
    pub fn put(
        &self,
        reference: &str,
        value: &[u8],
        lifetime: Option<Lifetime>,
    ) -> Result<(), StoreError> {
        let secret = Secret::new(Zeroizing::new(value.to_vec()), false)?;
        self.set(
            reference,
            Entry {
                answer: Ok(Arc::new(secret)),
                lifetime,
                delay: Duration::ZERO,
            },
        );
        Ok(())
    }

    /// Makes every fetch of a reference fail, after a delay.
    pub fn fail(&self, reference: &str, cause: StoreError, delay: Duration) {
        self.set(
            reference,
            Entry {
                answer: Err(cause),
                lifetime: None,
                delay,
            },
        );
    }

    /// Makes every fetch of a reference that is kept take so long.
    pub fn slow(&self, reference: &str, delay: Duration) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(reference) {
            entry.delay = delay;
        }
    }

    /// How often the store was asked.
    #[must_use]
    pub fn fetches(&self) -> usize {
        self.fetches.load(Ordering::Relaxed)
    }

    fn set(&self, reference: &str, entry: Entry) {
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(reference.to_owned(), entry);
    }

    fn answer(&self, reference: &Reference) -> (Result<Fetched, StoreError>, Duration) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        match entries.get(&reference.to_string()) {
            None => (Err(StoreError::Absent), Duration::ZERO),
            Some(entry) => {
                let answer = entry.answer.clone();
                (
                    answer.map(|secret| Fetched {
                        secret,
                        lifetime: entry.lifetime,
                        run: None,
                    }),
                    entry.delay,
                )
            }
        }
    }
}

impl SecretStore for MemoryStore {
    fn fetch<'a>(&'a self, reference: &'a Reference) -> Fetching<'a> {
        Box::pin(async move {
            self.fetches.fetch_add(1, Ordering::Relaxed);
            let (answer, delay) = self.answer(reference);
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            answer
        })
    }
}
