//! A chain of signatures: first the head's, then one for each piece of the content.

use std::fmt;

use super::key::{DerivedKey, sha256};
use super::payload::EMPTY;
use super::{Algorithm, AmzDate, ClientSignature, Fault, Payload};

/// One side of a signed exchange: its keys, its time and scope, and the signature on which the next
/// one builds.
pub(super) struct Chain {
    algorithm: Algorithm,
    signed_at: AmzDate,
    /// The head's day, and the next one if messages with their own times follow.
    days: Box<[Day]>,
    last: Box<str>,
}

struct Day {
    day: Box<str>,
    scope: Box<str>,
    key: DerivedKey,
}

impl Chain {
    /// A chain that has signed nothing yet.
    pub(super) fn new(
        claim: &ClientSignature,
        access_key: &str,
        secret: &[u8],
        signed_at: AmzDate,
    ) -> Result<Chain, Fault> {
        let mut stamps = vec![signed_at];
        if claim.payload == Payload::Events {
            stamps.push(signed_at.next_day()?);
        }
        let day = |signed_at: AmzDate| {
            Ok(Day {
                day: signed_at.day().into(),
                scope: claim.scope(signed_at.day()).into(),
                key: DerivedKey::derive(claim, access_key, secret, signed_at)?,
            })
        };
        Ok(Chain {
            algorithm: claim.algorithm,
            signed_at,
            days: stamps.into_iter().map(day).collect::<Result<_, Fault>>()?,
            last: Box::default(),
        })
    }

    /// The string to sign for a head.
    pub(super) fn head(&self, canonical: &[u8]) -> String {
        let (algorithm, at) = (self.algorithm.name(), self.signed_at.as_str());
        let (scope, hash) = (self.scope(), sha256(canonical));
        format!("{algorithm}\n{at}\n{scope}\n{hash}")
    }

    /// The string to sign for a chunk with this hash.
    pub(super) fn chunk(&self, hash: &str) -> String {
        let (name, at) = (self.algorithm.name(), self.signed_at.as_str());
        let scope = self.scope();
        let last = &self.last;
        format!("{name}-PAYLOAD\n{at}\n{scope}\n{last}\n{EMPTY}\n{hash}")
    }

    /// The string to sign for a trailer with this hash.
    pub(super) fn trailer(&self, hash: &str) -> String {
        let (name, at) = (self.algorithm.name(), self.signed_at.as_str());
        let scope = self.scope();
        let last = &self.last;
        format!("{name}-TRAILER\n{at}\n{scope}\n{last}\n{hash}")
    }

    /// Signs with the head's key and advances the chain.
    pub(super) fn sign(&mut self, text: &str) -> Result<&str, Fault> {
        let day = self.days.first().ok_or(Fault::Key)?;
        self.last = day.key.sign(text.as_bytes())?.into();
        Ok(&self.last)
    }

    /// Advances the chain if the signature was made with the head's key.
    #[must_use]
    pub(super) fn verify(&mut self, text: &str, signature: &str) -> bool {
        let day = self.days.first();
        let right = day.is_some_and(|day| day.key.verifies(text.as_bytes(), signature));
        if right {
            self.last = signature.into();
        }
        right
    }

    /// Signs a message with this time and advances the chain.
    pub(super) fn sign_message(
        &mut self,
        at: AmzDate,
        head: &[u8],
        payload: &[u8],
    ) -> Result<&str, Fault> {
        let (day, text) = self.message(at, head, payload)?;
        self.last = day.key.sign(text.as_bytes())?.into();
        Ok(&self.last)
    }

    /// Advances the chain if the signature is right for a message with this time.
    pub(super) fn verify_message(
        &mut self,
        at: AmzDate,
        head: &[u8],
        payload: &[u8],
        signature: &str,
    ) -> Result<(), Fault> {
        let (day, text) = self.message(at, head, payload)?;
        if !day.key.verifies(text.as_bytes(), signature) {
            return Err(Fault::PartMismatch);
        }
        self.last = signature.into();
        Ok(())
    }

    /// The string to sign for a message: its own time, the hash of its head without the signature,
    /// and that of its payload.
    fn message(&self, at: AmzDate, head: &[u8], payload: &[u8]) -> Result<(&Day, String), Fault> {
        let day = self
            .days
            .iter()
            .find(|day| *day.day == *at.day())
            .ok_or(Fault::Date)?;
        let (name, last) = (self.algorithm.name(), &self.last);
        let (head, payload) = (sha256(head), sha256(payload));
        let time = at.as_str();
        let scope = &day.scope;
        let text = format!("{name}-PAYLOAD\n{time}\n{scope}\n{last}\n{head}\n{payload}");
        Ok((day, text))
    }

    pub(super) fn signed_at(&self) -> AmzDate {
        self.signed_at
    }

    pub(super) fn scope(&self) -> &str {
        self.days.first().map_or("", |day| &day.scope)
    }
}

/// Shows neither key nor signature.
impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain")
            .field("scope", &self.scope())
            .finish_non_exhaustive()
    }
}
