//! Verifying a token, once for a connection, and judging what is done with it.

use gateway_names::{CredentialName, PolicyId, SessionId};
use subtle::ConstantTimeEq;

use super::caveat::{Caveat, CaveatMalformed, TokenLimit};
use super::chain::{PrefixId, chain};
use super::format::{TokenMalformed, predicates, read, typed};
use super::judge::{CaveatDenied, ConnectionEvidence, TokenUse};
use super::key::TokenKey;

/// A token that was made with the session's key, and whose caveats are all understood.
#[derive(Debug)]
pub struct VerifiedToken {
    session: SessionId,
    caveats: Box<[Caveat]>,
    prefixes: Box<[PrefixId]>,
}

/// Why a token is refused. Never says whether its form, its key or its MAC was wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// No key of this gateway made it.
    #[error("the token is none of this gateway's")]
    NotOurs,
    /// Its holder added a caveat that is none.
    #[error("the token's caveat {0:?} is none: {1}")]
    Caveat(String, CaveatMalformed),
}

/// Verifies a token with the key for its number and session.
///
/// # Errors
/// [`TokenRefused::NotOurs`], or [`TokenRefused::Caveat`] once the MAC is known to be right.
pub fn verify(
    text: &str,
    key: impl FnOnce(u8, &SessionId) -> Option<TokenKey>,
) -> Result<VerifiedToken, TokenRefused> {
    let (macaroon, number, session) = read(text).map_err(|_| TokenRefused::NotOurs)?;
    let key = key(number, &session);
    // Where there is no key, it takes as long to say no.
    let root = key.as_ref().map_or(&[0; 32], TokenKey::root);
    let (mac, prefixes) = chain(root, macaroon.identifier(), predicates(&macaroon));
    let signature: &[u8; 32] = macaroon.signature().as_ref();
    if !bool::from(mac.ct_eq(signature)) || key.is_none() {
        return Err(TokenRefused::NotOurs);
    }
    let caveats = typed(&macaroon).map_err(|malformed| match malformed {
        TokenMalformed::Caveat(text, malformed) => TokenRefused::Caveat(text, malformed),
        _ => TokenRefused::NotOurs,
    })?;
    Ok(VerifiedToken {
        session,
        caveats,
        prefixes,
    })
}

impl VerifiedToken {
    /// The session that it selects.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Its own id.
    #[must_use]
    pub fn id(&self) -> Option<PrefixId> {
        self.prefixes.last().copied()
    }

    /// Whether it, or what it was derived from, is revoked.
    #[must_use]
    pub fn is_revoked(&self, is_revoked: &impl Fn(&PrefixId) -> bool) -> bool {
        self.prefixes.iter().any(is_revoked)
    }

    /// What it may use up, or be used for: each limit with the id of the link that it begins at,
    /// which all tokens derived from there share. Who uses it must keep to them.
    pub fn limits(&self) -> impl Iterator<Item = (PrefixId, &TokenLimit)> {
        // The first id is that of the token without any caveat.
        let links = self.prefixes.iter().skip(1).zip(&self.caveats);
        links.filter_map(|(id, caveat)| match caveat {
            Caveat::Limit(limit) => Some((*id, limit)),
            _ => None,
        })
    }

    /// Judges the connection, when it begins and when its evidence is looked at again.
    ///
    /// # Errors
    /// [`CaveatDenied`] by the first caveat that refuses.
    pub fn at_connection(&self, door: &ConnectionEvidence<'_>) -> Result<(), CaveatDenied> {
        let ends = self.caveats.iter().filter_map(|caveat| match caveat {
            Caveat::Before(end) => Some(*end),
            _ => None,
        });
        let latest = door.now.saturating_add(LONGEST_LIFE);
        if ends.min().is_none_or(|end| end > latest) {
            return Err(CaveatDenied::Endless);
        }
        if self.limits().count() > MOST_LIMITS {
            return Err(CaveatDenied::TooMany);
        }
        let mut caveats = self.caveats.iter();
        caveats.try_for_each(|caveat| caveat.admits(door))
    }

    /// Whether it may be lent a credential.
    #[must_use]
    pub fn lends(&self, credential: &CredentialName) -> bool {
        self.caveats.iter().all(|caveat| match caveat {
            Caveat::Credential(names) => names.contains(credential),
            _ => true,
        })
    }

    /// Judges one request of a connection that was judged. Allocates nothing.
    ///
    /// # Errors
    /// [`CaveatDenied`] by the first caveat that refuses.
    pub fn allows<'a, C, P>(&self, of: &TokenUse<'a, C, P>) -> Result<(), CaveatDenied>
    where
        C: Iterator<Item = &'a CredentialName> + Clone,
        P: Iterator<Item = &'a PolicyId> + Clone,
    {
        self.caveats.iter().try_for_each(|caveat| caveat.allows(of))
    }
}

/// Each is counted on the disk.
const MOST_LIMITS: usize = 4;
/// A year, in seconds: what is to last longer is minted again.
const LONGEST_LIFE: u64 = 366 * 24 * 60 * 60;

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
