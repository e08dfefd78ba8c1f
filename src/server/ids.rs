//! The ids of exchanges.

use std::sync::atomic::{AtomicU64, Ordering};

use gateway_names::ExchangeId;
use sha2::{Digest as _, Sha256};

/// Makes exchange ids: 80 bits that no client can guess or repeat.
pub struct Ids {
    key: [u8; 32],
    next: AtomicU64,
}

impl Ids {
    /// Creates a source keyed by the system's random generator.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self {
            key,
            next: AtomicU64::new(0),
        })
    }

    /// Returns the next id: a keyed hash of a counter.
    pub fn next(&self) -> ExchangeId {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let hash = Sha256::new()
            .chain_update(self.key)
            .chain_update(count.to_le_bytes())
            .finalize();
        let mut id = [0; 10];
        id.copy_from_slice(&hash[..10]);
        ExchangeId::from_bytes(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_ids_are_the_same() {
        let (ids, others) = (Ids::new().unwrap(), Ids::new().unwrap());
        let mut all: Vec<_> = [&ids, &others]
            .into_iter()
            .flat_map(|ids| (0..1000).map(|_| ids.next().to_string()))
            .collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 2000);
    }
}
