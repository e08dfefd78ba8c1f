//! The floor below all policies: origins that no policy opens. No rule is proposed for them.

use gateway_intercept::{GATEWAY_NAME, is_synthetic};
use gateway_message::{Origin, Scheme};
use gateway_names::ReasonCode;
use gateway_origin::OriginSettings;
use gateway_origin::vet::vet_host;

/// Returns why a request to an origin would be refused even if a policy permitted it; `None` if it
/// would not, as far as that is known without a DNS lookup.
#[must_use]
pub fn floor(origin: &Origin, settings: &OriginSettings) -> Option<ReasonCode> {
    let authority = &origin.authority;
    let host = authority.host.as_str();
    if host == GATEWAY_NAME || authority.host.ip().is_some_and(is_synthetic) {
        return Some(ReasonCode::OwnAddress);
    }
    let rule = settings.rule(origin);
    let exceptions = rule.map_or(&[][..], |rule| &rule.addresses);
    let is_fixed = rule.is_some_and(|rule| rule.connect.is_some());
    if let Err(why) = vet_host(authority, exceptions)
        && !(is_fixed && authority.host.ip().is_some())
    {
        return Some(why.reason());
    }
    let in_clear = origin.scheme == Scheme::Http && !rule.is_some_and(|rule| rule.cleartext);
    in_clear.then_some(ReasonCode::ClearText)
}

#[cfg(test)]
mod tests {
    use gateway_message::Authority;

    use super::*;

    fn of(scheme: Scheme, authority: &str) -> Option<ReasonCode> {
        let authority = Authority::parse(authority.as_bytes(), Some(scheme.default_port()));
        let authority = authority.unwrap();
        floor(&Origin { scheme, authority }, &OriginSettings::default())
    }

    #[test]
    fn what_no_policy_opens_is_known_without_a_lookup() {
        for (authority, reason) in [
            ("example.com", None),
            ("93.184.216.34", None),
            ("169.254.169.254", Some(ReasonCode::Metadata)),
            ("metadata.google.internal", Some(ReasonCode::Metadata)),
            ("10.0.0.1", Some(ReasonCode::SsrfResolvedIp)),
            ("127.0.0.1:8080", Some(ReasonCode::SsrfResolvedIp)),
            ("198.18.0.1", Some(ReasonCode::OwnAddress)),
            ("gateway.internal", Some(ReasonCode::OwnAddress)),
        ] {
            assert_eq!(of(Scheme::Https, authority), reason, "{authority}");
        }
        assert_eq!(of(Scheme::Http, "example.com"), Some(ReasonCode::ClearText));
        let metadata = of(Scheme::Http, "169.254.169.254");
        assert_eq!(metadata, Some(ReasonCode::Metadata));
    }
}
