//! The keys by which tokens are made and verified.

use gateway_names::SessionId;
use libmacaroon::{Macaroon, MacaroonKey};

use super::caveat::Caveat;
use super::chain::mac;
use super::format::{Token, TokenMalformed, identifier, written};

/// The key of one session's tokens. It is overwritten when dropped, and never shown.
pub struct TokenKey {
    number: u8,
    session: SessionId,
    root: MacaroonKey,
}

impl TokenKey {
    /// Derives the key of a session's tokens from what it has for that, which has a number.
    ///
    /// It is HKDF-Expand (RFC 5869 §2.3) of that key for `macaroon` and the session's id, and is
    /// then used as every macaroon library uses a key.
    #[must_use]
    pub fn derive(key: &[u8; 32], number: u8, session: &SessionId) -> Self {
        let expanded = mac(key, &[b"macaroon", session.as_str().as_bytes(), &[1]]);
        Self {
            number,
            session: session.clone(),
            root: MacaroonKey::generate(&*expanded),
        }
    }

    /// Makes a token of the session. Without new `random` bytes each time, one cannot be revoked
    /// without the other.
    ///
    /// # Errors
    /// [`TokenMalformed::TooManyCaveats`] or [`TokenMalformed::TooLong`].
    pub fn mint(&self, random: [u8; 12], caveats: &[Caveat]) -> Result<Token, TokenMalformed> {
        let identifier = identifier(self.number, &self.session, random);
        let macaroon = Macaroon::create(Some(""), &self.root, identifier);
        written(macaroon.map_err(|_| TokenMalformed::Form)?, caveats)
    }

    pub(crate) fn root(&self) -> &[u8; 32] {
        self.root.as_ref()
    }
}
