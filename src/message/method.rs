//! Methods: which tokens may be requested at all.

use http::Method;

gateway_names::faults! {
    /// Why a method is refused before policy is evaluated.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    pub enum MethodRefused {
        /// A token with a lower-case letter or an unusual character, or longer than 32 bytes.
        Malformed = Method "the method is not a plain upper-case token of at most 32 bytes",
        /// A method that reflects, tunnels or debugs: TRACE, TRACK, DEBUG, CONNECT, PRI.
        Prohibited = MethodProhibited "the method is never forwarded",
    }
}

/// Checks that a method may go to policy.
///
/// Methods are case-sensitive (RFC 9110 §9.1), yet many origins read `get` as `GET`. So only
/// `[A-Z][A-Z0-9_-]*` passes, which covers every registered method. `TRACE` would reflect
/// credentials (RFC 9110 §9.3.8).
///
/// # Errors
/// [`MethodRefused::Malformed`] means a bad request. [`MethodRefused::Prohibited`] means a denial,
/// whatever the policy says.
pub fn check(method: &Method) -> Result<(), MethodRefused> {
    let token = method.as_str().as_bytes();
    let plain = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    if token.len() > LONGEST
        || !token.first().is_some_and(u8::is_ascii_uppercase)
        || !token.iter().all(plain)
    {
        return Err(MethodRefused::Malformed);
    }
    match method.as_str() {
        "TRACE" | "TRACK" | "DEBUG" | "CONNECT" | "PRI" => Err(MethodRefused::Prohibited),
        _ => Ok(()),
    }
}

const LONGEST: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_upper_case_tokens_are_methods() {
        for token in [
            "GET",
            "PATCH",
            "M-SEARCH",
            "VERSION-CONTROL",
            "PROPFIND",
            "QUERY",
            &"A".repeat(32),
        ] {
            assert_eq!(
                check(&Method::from_bytes(token.as_bytes()).unwrap()),
                Ok(()),
                "{token}"
            );
        }
        for token in [
            "get",
            "Get",
            "gET",
            "DELETe",
            "G'T",
            "-GET",
            "1GET",
            &"A".repeat(33),
            &"A".repeat(1024),
        ] {
            assert_eq!(
                check(&Method::from_bytes(token.as_bytes()).unwrap()),
                Err(MethodRefused::Malformed),
                "{token}"
            );
        }
    }

    #[test]
    fn methods_that_reflect_or_tunnel_are_prohibited() {
        for token in ["TRACE", "TRACK", "DEBUG", "CONNECT", "PRI"] {
            assert_eq!(
                check(&Method::from_bytes(token.as_bytes()).unwrap()),
                Err(MethodRefused::Prohibited),
                "{token}"
            );
        }
    }
}
