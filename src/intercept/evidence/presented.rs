//! The credentials that the client of a proxy presents: a token, a password or a JWT, in the one
//! place for credentials.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_token::PREFIX;
use http::HeaderMap;
use http::header::PROXY_AUTHORIZATION;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// A user and a password; or the token after `Bearer`, without a user.
pub struct Presented {
    user: Zeroizing<Vec<u8>>,
    password: Zeroizing<Vec<u8>>,
}

impl Presented {
    /// Creates the credentials of a user and a password.
    #[must_use]
    pub fn login(user: &[u8], password: &[u8]) -> Self {
        Self {
            user: user.to_vec().into(),
            password: password.to_vec().into(),
        }
    }

    /// Whether a user is presented.
    pub(super) fn has_user(&self) -> bool {
        !self.user.is_empty()
    }

    /// Whether both are equal, in a time that does not show how much of them is.
    pub(super) fn is(&self, other: &Self) -> bool {
        bool::from(self.user.ct_eq(&other.user) & self.password.ct_eq(&other.password))
    }

    /// Returns the credentials in the fields of a request.
    #[must_use]
    pub fn of(fields: &HeaderMap) -> Option<Self> {
        let values = fields.get_all(PROXY_AUTHORIZATION).iter();
        Self::of_values(values.map(|value| value.as_bytes()))
    }

    /// Returns the token, if the token field has exactly one value.
    pub(crate) fn of_tokens<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let (Some(only), None) = (values.next(), values.next()) else {
            return None;
        };
        let is_token = only.starts_with(PREFIX.as_bytes());
        is_token.then(|| Self::login(b"", only))
    }

    /// Returns the credentials, if there is exactly one `Proxy-Authorization` (RFC 6750, RFC 7617).
    pub(crate) fn of_values<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
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

    /// Returns a text with this prefix: after `Bearer`, as the password of the user `gateway`, or
    /// split into user and password, which may have only 255 bytes each (RFC 1929).
    pub(super) fn text(&self, prefix: &str) -> Option<Zeroizing<String>> {
        let begins = |bytes: &[u8]| bytes.starts_with(prefix.as_bytes());
        let is_password = self.user.is_empty() || self.user[..] == *PRESENTED_USER.as_bytes();
        let whole = if is_password {
            self.password.clone()
        } else {
            Zeroizing::new([&self.user[..], &self.password].concat())
        };
        let text = begins(&whole).then(|| std::str::from_utf8(&whole).ok());
        text.flatten().map(|text| Zeroizing::new(text.to_owned()))
    }
}

gateway_names::concealed!(Presented);

/// The field of a token in a request to a base URL.
pub(crate) const TOKEN_FIELD: &str = "gateway-token";

/// The user with which a token or a JWT is sent as the password.
pub const PRESENTED_USER: &str = "gateway";

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
        // With two values, neither counts.
        assert_eq!(text(&[b"Bearer gwt1_AgI", b"Bearer gwt1_AgI"]), None);
    }
}
