//! Verifies the credentials of a proxy's client, by the kinds that a listener accepts.

use std::sync::Arc;

use gateway_token::{PREFIX, UnverifiedToken, inspect};
use http::{HeaderMap, HeaderValue};

use super::jwt::{JWT_PREFIX, JwtVerifier};
use super::password::Passwords;
use super::presented::{Presented, TOKEN_FIELD};
use super::token::{HeldToken, TokenDenied, TokenPeer, TokenVerifier};
use crate::caller::Caller;

/// Verifies credentials, by the kinds that a listener accepts.
#[derive(Default)]
pub struct ClientVerifier {
    /// Tokens.
    pub tokens: Option<TokenVerifier>,
    /// Users and passwords.
    pub passwords: Option<Passwords>,
    /// JWTs of an issuer.
    pub jwts: Option<Arc<JwtVerifier>>,
}

/// Accepted credentials.
pub enum Proof {
    /// A token, which selects a session, and how it was presented.
    Token(HeldToken, Presented),
    /// A password or a JWT, which shows the caller.
    Caller(Arc<Caller>),
}

impl ClientVerifier {
    /// Verifies the credentials that a client presents now.
    ///
    /// # Errors
    /// [`PresentedDenied`], also if they are of no accepted kind.
    pub fn take(
        &self,
        presented: Option<Presented>,
        peer: &TokenPeer,
    ) -> Result<Proof, PresentedDenied> {
        let presented = presented.ok_or(PresentedDenied::Missing)?;
        if let Some((by, text)) = self.tokens.as_ref().zip(presented.text(PREFIX)) {
            return Ok(Proof::Token(by.take(&text, peer.clone())?, presented));
        }
        if let Some((by, text)) = self.jwts.as_ref().zip(presented.text(JWT_PREFIX)) {
            let held = by.take(text).map_err(PresentedDenied::Jwt)?;
            return Ok(Proof::Caller(Arc::new(Caller {
                user: Some(held.user.clone()),
                groups: held.groups.clone(),
                presented: Some(presented),
                holds: vec![Arc::new(held)],
                ..Caller::default()
            })));
        }
        let by = self.passwords.as_ref().filter(|_| presented.has_user());
        let found = by.ok_or(PresentedDenied::Missing)?.caller(&presented);
        found.map(Proof::Caller).ok_or(PresentedDenied::Password)
    }

    /// Reads a presented token without verifying it.
    pub fn token_of(&self, presented: Option<&Presented>) -> Option<UnverifiedToken> {
        let text = presented?.text(PREFIX).filter(|_| self.tokens.is_some());
        inspect(&text?).ok()
    }

    /// Removes the token of a request to a base URL from the fields, and returns it.
    ///
    /// # Errors
    /// [`PresentedDenied`] if the field occurs, but not once and with the prefix of a token.
    pub fn token_in(fields: &mut HeaderMap) -> Result<Option<Presented>, PresentedDenied> {
        let values: Vec<_> = fields.get_all(TOKEN_FIELD).iter().cloned().collect();
        fields.remove(TOKEN_FIELD);
        let token = Presented::of_tokens(values.iter().map(HeaderValue::as_bytes));
        match token {
            None if !values.is_empty() => Err(PresentedDenied::Missing),
            token => Ok(token),
        }
    }

    /// Verifies the credentials of a later request on a connection: they must show the same session
    /// and user as the `first` caller. Returns the new caller if it differs.
    ///
    /// # Errors
    /// As [`ClientVerifier::take`], and if they show another session or user.
    pub fn take_again(
        &self,
        first: Option<&Arc<Caller>>,
        presented: Option<Presented>,
    ) -> Result<Option<Arc<Caller>>, PresentedDenied> {
        let first = first.filter(|caller| caller.presented.is_some());
        let token = first.and_then(|caller| caller.token.as_deref());
        // Credentials that equal verified ones need no second check for as long as those hold.
        let before = first.and_then(|caller| caller.presented.as_ref());
        let same = before.zip(presented.as_ref());
        if same.is_some_and(|(before, now)| before.is(now))
            && !first.is_some_and(|one| one.is_over())
        {
            token.map_or(Ok(()), HeldToken::holds)?;
            return Ok(None);
        }
        let peer = token.map(HeldToken::peer).unwrap_or_default();
        let (first, taken) = match (first, self.take(presented, &peer)) {
            (None, Err(PresentedDenied::Missing)) => return Ok(None),
            (None, _) => return Err(PresentedDenied::Beside),
            (Some(first), taken) => (first, taken?),
        };
        match (taken, token) {
            (Proof::Token(now, by), Some(before)) if now.session() == before.session() => {
                Ok(Some(Arc::new(Caller {
                    user: first.user.clone(),
                    groups: first.groups.clone(),
                    token: Some(Arc::new(now)),
                    presented: Some(by),
                    holds: first.holds.clone(),
                    ..Caller::default()
                })))
            }
            (Proof::Caller(caller), None) if caller.user == first.user => Ok(Some(caller)),
            _ => Err(PresentedDenied::Other),
        }
    }
}

/// Why a client's credentials are refused, in words for the gateway's own record, without text of
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PresentedDenied {
    /// There are none, or none that the listener accepts.
    #[error("nothing that the listener takes was presented")]
    Missing,
    /// The connection began without credentials.
    #[error("the connection began with other evidence")]
    Beside,
    /// They are for another session or user than the connection, or for a session that is not live.
    #[error("it is of another session or user, or its session does not live")]
    Other,
    /// No user has this password.
    #[error("the user is unknown, or has another password")]
    Password,
    /// The JWT is refused.
    #[error("the JWT is not taken: {0}")]
    Jwt(&'static str),
    /// The token is refused.
    #[error(transparent)]
    Token(#[from] TokenDenied),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::password::UserPassword;

    #[test]
    fn what_is_presented_again_is_verified_once_as_long_as_it_holds() {
        let user = |password: &[u8]| vec![UserPassword::new("agent", password)];
        let by = ClientVerifier {
            passwords: Some(Passwords::new(user(b"first"))),
            ..ClientVerifier::default()
        };
        let login = |password: &[u8]| Some(Presented::login(b"agent", password));
        let Ok(Proof::Caller(first)) = by.take(login(b"first"), &TokenPeer::default()) else {
            panic!("it is not taken");
        };
        let again = |password: &[u8]| by.take_again(Some(&first), login(password));
        assert!(matches!(again(b"first"), Ok(None)));
        assert_eq!(again(b"second").unwrap_err(), PresentedDenied::Password);
        let missing = by.take_again(Some(&first), None);
        assert_eq!(missing.unwrap_err(), PresentedDenied::Missing);
        by.passwords.as_ref().unwrap().replace(user(b"second"));
        assert_eq!(again(b"first").unwrap_err(), PresentedDenied::Password);
        assert!(matches!(again(b"second"), Ok(Some(_))));
        assert_eq!(format!("{:?}", first.presented), "Some(Presented { .. })");
    }
}
