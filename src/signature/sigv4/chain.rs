//! Signatures that follow on one another: the head's, and then one for each piece of the content.

use std::fmt;

use super::key::{Key, sha256};
use super::payload::EMPTY;
use super::{Algorithm, Claim, Fault, Stamp};

/// One side of a signed exchange: its key, its time and scope, and the signature that the next one follows on.
pub struct Chain {
    key: Key,
    algorithm: Algorithm,
    stamp: Stamp,
    scope: Box<str>,
    last: Box<str>,
}

impl Chain {
    /// A chain that has signed nothing yet.
    pub(super) fn new(claim: &Claim, access_key: &str, secret: &[u8], stamp: Stamp) -> Result<Chain, Fault> {
        Ok(Chain {
            key: Key::derive(claim, access_key, secret, stamp)?,
            algorithm: claim.algorithm,
            stamp,
            scope: claim.scope(stamp.day()).into(),
            last: Box::default(),
        })
    }

    /// The string to sign of a head.
    pub(super) fn head(&self, canonical: &[u8]) -> String {
        let hash = sha256(canonical);
        format!(
            "{}\n{}\n{}\n{hash}",
            self.algorithm.name(),
            self.stamp.as_str(),
            self.scope
        )
    }

    /// The string to sign of a chunk with this hash.
    pub(super) fn chunk(&self, hash: &str) -> String {
        let (name, at) = (self.algorithm.name(), self.stamp.as_str());
        format!(
            "{name}-PAYLOAD\n{at}\n{}\n{}\n{EMPTY}\n{hash}",
            self.scope, self.last
        )
    }

    /// The string to sign of a trailer with this hash.
    pub(super) fn trailer(&self, hash: &str) -> String {
        let (name, at) = (self.algorithm.name(), self.stamp.as_str());
        format!("{name}-TRAILER\n{at}\n{}\n{}\n{hash}", self.scope, self.last)
    }

    /// Signs and moves on.
    pub(super) fn sign(&mut self, text: &str) -> Result<&str, Fault> {
        self.last = self.key.sign(text.as_bytes())?.into();
        Ok(&self.last)
    }

    /// Moves on if the signature is right.
    #[must_use]
    pub(super) fn verify(&mut self, text: &str, signature: &str) -> bool {
        let right = self.key.verifies(text.as_bytes(), signature);
        if right {
            self.last = signature.into();
        }
        right
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.stamp
    }

    pub(super) fn scope(&self) -> &str {
        &self.scope
    }

    pub(super) fn last(&self) -> &str {
        &self.last
    }
}

/// Shows neither key nor signature.
impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
