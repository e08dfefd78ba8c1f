//! A key of the decision cache, while it is written.

use sha2::{Digest as _, Sha256};

/// Everything that a verdict depends on, as bytes. Each text is preceded by its length, so that
/// different sequences of texts never give the same key.
pub(super) struct DecisionKey {
    bytes: Vec<u8>,
}

impl DecisionKey {
    /// Creates an empty key, with room for a typical one.
    pub fn new() -> Self {
        let bytes = Vec::with_capacity(256);
        Self { bytes }
    }

    /// Returns the key: the bytes or, if they are longer than `most`, their digest.
    ///
    /// A client chooses the path and the query, so two long keys must not be made to have one
    /// digest, and no short one may be a digest: the last byte tells them apart.
    pub fn finish(mut self, most: usize) -> Vec<u8> {
        let is_long = self.bytes.len() > most;
        if is_long {
            self.bytes = Sha256::digest(&self.bytes).to_vec();
        }
        self.bytes.push(is_long.into());
        self.bytes
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds a list of texts.
    pub fn texts<'a>(&mut self, texts: impl ExactSizeIterator<Item = &'a str>) {
        self.number(texts.len() as u64);
        texts.for_each(|text| self.text(text));
    }
}
