//! A store in memory, for tests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gateway_names::SessionId;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::{Backend, Lease, Material, SecretStore, StoreError, StoreFuture};

/// Secrets by reference text. Tests can change them, delay fetches and count them.
#[derive(Default)]
pub struct MemoryStore {
    entries: Mutex<HashMap<String, Entry>>,
    fetches: AtomicUsize,
}

type Fields = Vec<(String, Zeroizing<Vec<u8>>)>;

struct Entry {
    /// Its fields; the unnamed one has an empty name.
    answer: Result<Fields, StoreError>,
    lease: Option<Lease>,
    delay: Duration,
}

impl MemoryStore {
    /// Stores a secret under a reference such as `env:NAME`.
    pub fn put(&self, reference: &str, value: &[u8], lease: Option<Lease>) {
        self.put_fields(reference, &[("", value)], lease);
    }

    /// Stores the named fields of one read.
    pub fn put_fields(&self, reference: &str, fields: &[(&str, &[u8])], lease: Option<Lease>) {
        let field =
            |(name, value): &(&str, &[u8])| ((*name).to_owned(), Zeroizing::new((*value).to_vec()));
        self.set(
            reference,
            Entry {
                answer: Ok(fields.iter().map(field).collect()),
                lease,
                delay: Duration::ZERO,
            },
        );
    }

    /// Makes every fetch of a reference fail, after a delay.
    pub fn fail(&self, reference: &str, cause: StoreError, delay: Duration) {
        self.set(
            reference,
            Entry {
                answer: Err(cause),
                lease: None,
                delay,
            },
        );
    }

    /// Delays every fetch of a stored reference.
    pub fn slow(&self, reference: &str, delay: Duration) {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(reference) {
            entry.delay = delay;
        }
    }

    /// Returns how many fetches there were.
    pub fn fetches(&self) -> usize {
        self.fetches.load(Ordering::Relaxed)
    }

    fn set(&self, reference: &str, entry: Entry) {
        self.entries.lock().insert(reference.to_owned(), entry);
    }

    fn answer(&self, from: &Backend) -> (Result<Material, StoreError>, Duration) {
        let entries = self.entries.lock();
        let Some(entry) = entries.get(&from.to_string()) else {
            return (Err(StoreError::Absent), Duration::ZERO);
        };
        let material = entry.answer.clone().map(|fields| {
            let empty = Material::new(entry.lease.clone());
            fields
                .into_iter()
                .fold(empty, |material, (name, value)| material.with(&name, value))
        });
        (material, entry.delay)
    }
}

impl SecretStore for MemoryStore {
    fn fetch<'a>(
        &'a self,
        from: &'a Backend,
        _: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material> {
        Box::pin(async move {
            self.fetches.fetch_add(1, Ordering::Relaxed);
            let (answer, delay) = self.answer(from);
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            answer
        })
    }
}
