//! How clients present a token: by a field of HTTP, or as user and password.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::format::{LONGEST, PREFIX};

/// The token of a user and a password: the password of the user `gateway`, or both together, where
/// each may have 255 bytes only (RFC 1929).
#[must_use]
pub fn presented(user: &str, password: &str) -> Option<Zeroizing<String>> {
    if user.starts_with(PREFIX) {
        return Some(Zeroizing::new([user, password].concat()));
    }
    let is_token = user == TOKEN_USER && password.starts_with(PREFIX);
    is_token.then(|| Zeroizing::new(password.to_owned()))
}

/// The token of a value of `Proxy-Authorization`: after `Bearer`, or as user and password after
/// `Basic`.
#[must_use]
pub fn presented_in(value: &[u8]) -> Option<Zeroizing<String>> {
    if value.len() > 2 * LONGEST {
        return None;
    }
    let (scheme, rest) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let rest = rest.trim_matches(' ');
    if scheme.eq_ignore_ascii_case("bearer") {
        let token = rest.starts_with(PREFIX).then(|| rest.to_owned());
        return token.map(Zeroizing::new);
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = Zeroizing::new(STANDARD.decode(rest).ok()?);
    let (user, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    presented(user, password)
}

/// The user beside which a token is the password.
pub const TOKEN_USER: &str = "gateway";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_password_of_gateway_or_user_and_password_together() {
        for (user, password, token) in [
            ("gateway", "gwt1_AgI", Some("gwt1_AgI")),
            ("gwt1_AgI", "", Some("gwt1_AgI")),
            ("gwt1_A", "gI", Some("gwt1_AgI")),
            ("gateway", "secret", None),
            ("Gateway", "gwt1_AgI", None),
            ("alice", "gwt1_AgI", None),
            ("", "gwt1_AgI", None),
        ] {
            let found = presented(user, password);
            let basic = format!("bAsIc {}", STANDARD.encode(format!("{user}:{password}")));
            let in_field = presented_in(basic.as_bytes());
            assert_eq!(found.as_ref().map(|one| one.as_str()), token, "{user}");
            assert_eq!(in_field, found, "{user}");
        }
    }

    #[test]
    fn a_field_has_a_token_after_its_scheme() {
        for (value, token) in [
            ("Bearer gwt1_AgI", Some("gwt1_AgI")),
            ("bearer  gwt1_AgI ", Some("gwt1_AgI")),
            ("Bearer AgI", None),
            ("gwt1_AgI", None),
            ("Digest gwt1_AgI", None),
            ("Basic gwt1_AgI", None),
            ("Basic Z3d0MV9BZ0k=", None),
            ("", None),
        ] {
            let found = presented_in(value.as_bytes());
            assert_eq!(found.as_ref().map(|one| one.as_str()), token, "{value}");
        }
        let long = format!("Bearer gwt1_{}", "A".repeat(2 * LONGEST));
        assert_eq!(presented_in(long.as_bytes()), None);
        assert_eq!(presented_in(b"Bearer gwt1_\xff"), None);
    }
}
