//! What the client of a proxy presents: a token, a password or a JWT, in the one place that there
//! is.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::PROXY_AUTHORIZATION;
use zeroize::Zeroizing;

use super::jwt::{JWT_PREFIX, JwtVerifier};
use super::password::Passwords;
use super::token::{HeldToken, TokenDenied, TokenPeer, TokenVerifier};
use crate::intercept::caller::Caller;
use crate::token::PREFIX;

/// A user and a password, or what stands behind `Bearer`: then there is no user.
pub struct Presented {
    user: Zeroizing<Vec<u8>>,
    password: Zeroizing<Vec<u8>>,
}

impl Presented {
    /// A user and a password.
    #[must_use]
    pub fn login(user: &[u8], password: &[u8]) -> Self {
        Self {
            user: user.to_vec().into(),
            password: password.to_vec().into(),
        }
    }

    /// That of the fields of a request.
    #[must_use]
    pub fn of(fields: &HeaderMap) -> Option<Self> {
        let values = fields.get_all(PROXY_AUTHORIZATION).iter();
        Self::of_values(values.map(|value| value.as_bytes()))
    }

    /// That of exactly one value of `Proxy-Authorization` (RFC 6750, RFC 7617).
    pub(in crate::intercept) fn of_values<'a>(
        mut values: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Self> {
        let (Some(only), None) = (values.next(), values.next()) else {
            return None;
        };
        let space = only.iter().position(|byte| *byte == b' ')?;
        let (scheme, rest) = (&only[..space], only[space..].trim_ascii());
        if scheme.eq_ignore_ascii_case(b"bearer") {
            return Some(Self::login(b"", rest));
        }
        let is_basic = scheme.eq_ignore_ascii_case(b"basic");
        let decoded = is_basic.then(|| STANDARD.decode(rest).ok()).flatten();
        let decoded = Zeroizing::new(decoded?);
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        Some(Self::login(&decoded[..colon], &decoded[colon + 1..]))
    }

    /// A text that begins so: behind `Bearer`, as the password of the user `gateway`, or as user
    /// and password together, where each may have 255 bytes only (RFC 1929).
    fn text(&self, prefix: &str) -> Option<Zeroizing<String>> {
        let begins = |bytes: &[u8]| bytes.starts_with(prefix.as_bytes());
        let is_password = self.user.is_empty() || self.user[..] == *PRESENTED_USER.as_bytes();
        let whole = match is_password {
            true => self.password.clone(),
            false => Zeroizing::new([&self.user[..], &self.password].concat()),
        };
        let text = begins(&whole).then(|| std::str::from_utf8(&whole).ok());
        text.flatten().map(|text| Zeroizing::new(text.to_owned()))
    }
}

/// The user beside which a token or a JWT is the password.
pub const PRESENTED_USER: &str = "gateway";

/// What verifies that which clients present: each kind that a listener takes.
#[derive(Default)]
pub struct ClientVerifier {
    /// Tokens.
    pub tokens: Option<TokenVerifier>,
    /// Users and passwords.
    pub passwords: Option<Passwords>,
    /// JWTs of an issuer.
    pub jwts: Option<Arc<JwtVerifier>>,
}

/// What was taken of that which a client presented.
pub enum Taken {
    /// A token, which selects a session.
    Token(HeldToken),
    /// What shows who the caller is.
    Caller(Arc<Caller>),
}

impl ClientVerifier {
    /// Takes what a client presents now.
    ///
    /// # Errors
    /// [`PresentedDenied`], also if it is none of the kinds.
    pub fn take(
        &self,
        presented: Option<Presented>,
        peer: &TokenPeer,
    ) -> Result<Taken, PresentedDenied> {
        let presented = presented.ok_or(PresentedDenied::Missing)?;
        if let Some((by, text)) = self.tokens.as_ref().zip(presented.text(PREFIX)) {
            return Ok(Taken::Token(by.take(&text, peer.clone())?));
        }
        if let Some((by, text)) = self.jwts.as_ref().zip(presented.text(JWT_PREFIX)) {
            let held = by.take(text).map_err(PresentedDenied::Jwt)?;
            return Ok(Taken::Caller(Arc::new(Caller {
                user: Some(held.user.clone()),
                groups: held.groups.clone(),
                is_presented: true,
                jwt: Some(held),
                ..Caller::default()
            })));
        }
        let by = self
            .passwords
            .as_ref()
            .filter(|_| !presented.user.is_empty());
        let found = by
            .ok_or(PresentedDenied::Missing)?
            .caller(&presented.user, &presented.password);
        found.map(Taken::Caller).ok_or(PresentedDenied::Password)
    }

    /// Takes what a further request of a connection presents: it must show the same session and
    /// user as the `first` one. Returns the caller, if there is another one now.
    ///
    /// # Errors
    /// As [`ClientVerifier::take`], and if it shows anybody else.
    pub fn take_again(
        &self,
        first: Option<&Arc<Caller>>,
        presented: Option<Presented>,
    ) -> Result<Option<Arc<Caller>>, PresentedDenied> {
        let first = first.filter(|caller| caller.is_presented);
        let token = first.and_then(|caller| caller.token.as_ref());
        let peer = token.map(HeldToken::peer).unwrap_or_default();
        let (first, taken) = match (first, self.take(presented, &peer)) {
            (None, Err(PresentedDenied::Missing)) => return Ok(None),
            (None, _) => return Err(PresentedDenied::Beside),
            (Some(first), taken) => (first, taken?),
        };
        match (taken, token) {
            (Taken::Token(now), Some(before)) if now.session() == before.session() => {
                let (user, beside) = (first.user.clone(), first.beside.clone());
                Ok(Some(Arc::new(Caller::with_token(now, user, beside))))
            }
            (Taken::Caller(caller), None) if caller.user == first.user => Ok(Some(caller)),
            _ => Err(PresentedDenied::Other),
        }
    }
}

/// Why what a client presents is not taken, in words for the gateway's own record. None has text of
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PresentedDenied {
    /// There is nothing, or nothing that the listener takes.
    #[error("nothing that the listener takes was presented")]
    Missing,
    /// Its connection began without.
    #[error("the connection began with other evidence")]
    Beside,
    /// It is of another session or user than the connection, or of a session that does not live.
    #[error("it is of another session or user, or its session does not live")]
    Other,
    /// No user has this password.
    #[error("the user is unknown, or has another password")]
    Password,
    /// The JWT is not taken.
    #[error("the JWT is not taken: {0}")]
    Jwt(&'static str),
    /// The token is not taken.
    #[error(transparent)]
    Token(#[from] TokenDenied),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stands_behind_bearer_or_is_the_password_of_gateway_or_is_both_together() {
        for (user, password, token) in [
            ("gateway", "gwt1_AgI", Some("gwt1_AgI")),
            ("gwt1_AgI", "", Some("gwt1_AgI")),
            ("gwt1_A", "gI", Some("gwt1_AgI")),
            ("gateway", "secret", None),
            ("Gateway", "gwt1_AgI", None),
            ("alice", "gwt1_AgI", None),
        ] {
            let both = STANDARD.encode(format!("{user}:{password}"));
            let basic = format!("bAsIc  {both} ");
            let in_field = Presented::of_values([basic.as_bytes()].into_iter()).unwrap();
            for found in [
                Presented::login(user.as_bytes(), password.as_bytes()),
                in_field,
            ] {
                let found = found.text("gwt1_");
                assert_eq!(found.as_ref().map(|one| one.as_str()), token, "{user}");
            }
        }
        let text = |values: &[&[u8]]| {
            let text = Presented::of_values(values.iter().copied())?.text("gwt1_")?;
            Some(text.to_string())
        };
        let token = || Some("gwt1_AgI".to_owned());
        assert_eq!(text(&[b"bearer  gwt1_AgI "]), token());
        for none in [
            &b"Bearer AgI"[..],
            b"gwt1_AgI",
            b"Digest gwt1_AgI",
            b"Basic gwt1_AgI",
            b"Basic Z3d0MV9BZ0k=",
            b"Bearer gwt1_\xff",
            b"",
        ] {
            assert_eq!(text(&[none]), None, "{none:?}");
        }
        // Of two, none counts.
        assert_eq!(text(&[b"Bearer gwt1_AgI", b"Bearer gwt1_AgI"]), None);
    }
}
