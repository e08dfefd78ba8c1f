//! Removes the fields that end at this hop, and those that would steer the origin or the client.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::names::{is_end_to_end, is_hop_by_hop, is_override, is_steering};

/// Information from the removed hop-by-hop fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HopByHop {
    /// Whether there was `TE: trailers`. A gRPC origin refuses requests without it, so the gateway
    /// sets it again for gRPC.
    pub te_trailers: bool,
    /// The protocol that `Upgrade` asked for, if `Connection` named it (RFC 9110 §7.8). Never
    /// `h2c`: RFC 9113 §3.1 withdrew it, and requests after it would not be judged.
    pub upgrade: Option<HeaderValue>,
}

/// Removes the fields that end at this hop, and those that `Connection` names.
///
/// RFC 9110 §7.6.1. Runs before policy, so that policy judges what the origin will see. A field
/// that is always end-to-end (credentials, content, `Host`, request signing) is kept even if
/// `Connection` names it. RFC 9110 forbids naming it, and attackers do so to make a proxy drop what
/// policy relied on.
pub fn strip_hop_by_hop(fields: &mut HeaderMap) -> HopByHop {
    // Most requests have no such field. Then none is named either, because `Connection` is itself
    // one. Most responses have only `Connection: keep-alive`, which names a field that is
    // hop-by-hop anyway.
    let mut plain = true;
    let mut hops = 0;
    for (name, value) in fields.iter() {
        if is_hop_by_hop(name.as_str()) {
            hops += 1;
            plain &=
                *name == header::CONNECTION && value.as_bytes().eq_ignore_ascii_case(b"keep-alive");
        }
    }
    if plain {
        if hops > 0 {
            fields.remove(header::CONNECTION);
        }
        return HopByHop::default();
    }
    let nominated = nominations(fields);
    let removed = HopByHop {
        te_trailers: fields
            .get_all(header::TE)
            .iter()
            .any(|te| list(te).any(|t| t.eq_ignore_ascii_case("trailers"))),
        upgrade: fields
            .get(header::UPGRADE)
            .filter(|value| nominated.contains(&header::UPGRADE) && !is_h2c(value))
            .cloned(),
    };
    for name in nominated.iter().filter(|name| !is_end_to_end(name)) {
        fields.remove(name);
    }
    remove_where(fields, is_hop_by_hop);
    removed
}

/// Removes fields that could make an origin see another method, path, host, scheme or peer than the
/// one judged.
pub fn strip_overrides(fields: &mut HeaderMap) {
    remove_where(fields, is_override);
}

/// Joins several `Cookie` fields into one, since HTTP/2 clients may split it (RFC 9113 §8.2.3). So
/// nothing can hide between two fields.
pub fn join_cookies(fields: &mut HeaderMap) {
    let none_twice = fields.len() == fields.keys_len();
    if none_twice || fields.get_all(header::COOKIE).iter().nth(1).is_none() {
        return;
    }
    let joined = fields
        .get_all(header::COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect::<Vec<_>>()
        .join(&b"; "[..]);
    // Valid values stay valid when joined by a semicolon and a space.
    if let Ok(value) = HeaderValue::from_bytes(&joined) {
        fields.insert(header::COOKIE, value);
    }
}

/// Removes the fields of a response that end at this hop, steer the client around the gateway, or
/// speak in the gateway's name.
///
/// These are hop-by-hop fields, `Alt-Svc` (RFC 7838), and fields that proxies set. Fields named by
/// `Connection` are treated as in [`strip_hop_by_hop`].
pub fn strip_response(fields: &mut HeaderMap) {
    strip_hop_by_hop(fields);
    remove_where(fields, is_steering);
}

fn is_h2c(upgrade: &HeaderValue) -> bool {
    upgrade.to_str().is_err() || list(upgrade).any(|protocol| protocol.eq_ignore_ascii_case("h2c"))
}

/// The names in all `Connection` fields. Malformed names are ignored.
fn nominations(fields: &HeaderMap) -> Vec<HeaderName> {
    let values = fields.get_all(header::CONNECTION);
    values
        .iter()
        .flat_map(list)
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .collect()
}

/// The members of a comma-separated list. A value that is not ASCII has none.
fn list(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value
        .to_str()
        .unwrap_or_default()
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']))
        .filter(|m| !m.is_empty())
}

pub(super) fn remove_where(fields: &mut HeaderMap, condition: impl Fn(&str) -> bool) {
    if fields.keys().any(|name| condition(name.as_str())) {
        let names = fields.keys().filter(|name| condition(name.as_str()));
        let names: Vec<_> = names.cloned().collect();
        for name in names {
            fields.remove(name);
        }
    }
}
