//! Fields that name a second path: the source of a copy, or the destination of a move.

use http::{HeaderMap, HeaderValue};

use super::authority::Authority;
use super::fields::folded_name;
use super::host::Host;
use super::target::RequestTarget;
use super::target_form::EncodedSlash;
use super::{Origin, Scheme};

/// Whether one of the fields names a path.
#[must_use]
pub fn names_path(fields: &HeaderMap) -> bool {
    fields.keys().any(|name| is_path_field(name.as_str()))
}

/// The paths that fields name, as paths of the origin that the request is for. `None` stands for a
/// path at another origin, or one that is not in canonical form.
///
/// A caller that judges a request by its path must judge these too, and refuse `None`.
pub fn named_paths<'a>(
    fields: &'a HeaderMap,
    origin: (Scheme, &'a Host, u16),
) -> impl Iterator<Item = Option<RequestTarget>> + 'a {
    let values = fields
        .iter()
        .filter(|(name, _)| is_path_field(name.as_str()));
    values.map(move |(_, value)| named_path(value, origin))
}

impl Origin {
    /// The scheme, host and port of the origin.
    pub fn parts(&self) -> (Scheme, &Host, u16) {
        (self.scheme, &self.authority.host, self.authority.port)
    }
}

/// WebDAV's `Destination`, the fields of copies and renames in object stores, and the fields from
/// which Next.js takes the path to serve.
fn is_path_field(name: &str) -> bool {
    let name = folded_name(name);
    name.ends_with("-copy-source")
        || name.ends_with("-rename-source")
        || FIELDS.contains(&name.as_ref())
}

fn named_path(
    value: &HeaderValue,
    (scheme, host, port): (Scheme, &Host, u16),
) -> Option<RequestTarget> {
    let text = value.to_str().ok()?;
    let path = match text.split_once("://") {
        Some((named, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/')?);
            let authority = Authority::parse(authority.as_bytes(), Some(scheme.default_port()));
            let authority = authority.ok()?;
            let is_here = authority.host == *host && authority.port == port;
            if !is_here || !named.eq_ignore_ascii_case(scheme.as_str()) {
                return None;
            }
            path.to_owned()
        }
        // Stores read `bucket/key` and `/bucket/key` as the same path.
        None if text.starts_with('/') => text.to_owned(),
        None => format!("/{text}"),
    };
    let target = RequestTarget::parse(path.as_bytes(), EncodedSlash::Refuse).ok()?;
    // This also refuses a query, which some stores read as a part of the name.
    (target.path() == path && !path.starts_with("//")).then_some(target)
}

const FIELDS: [&str; 6] = gateway_names::word_list(
    "destination x-copy-from x-invoke-path x-matched-path x-object-manifest x-symlink-target",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_names_one_canonical_path_of_the_origin_or_none_that_can_be_judged() {
        let host: Host = "files.example".parse().unwrap();
        let named = |name: &'static str, value: &'static str| {
            let fields = HeaderMap::from_iter([(
                http::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )]);
            let all: Vec<_> = named_paths(&fields, (Scheme::Https, &host, 443)).collect();
            assert_eq!(names_path(&fields), !all.is_empty());
            all.into_iter()
                .map(|one| one.map(|one| one.path().to_owned()))
                .next()
        };
        for (name, value) in [
            ("destination", "https://files.example/mine/a"),
            ("destination", "HTTPS://Files.Example:443/mine/a"),
            ("destination", "/mine/a"),
            ("x-copy-from", "mine/a"),
            ("x-amz-copy-source", "/mine/a"),
            ("x-ms-file-rename-source", "https://files.example/mine/a"),
            ("x_copy_from", "mine/a"),
        ] {
            let path = Some(Some("/mine/a".to_owned()));
            assert_eq!(named(name, value), path, "{name}: {value}");
        }
        for value in [
            "https://files.example.evil/mine/a",
            "https://files.example@evil/mine/a",
            "https://files.example:8443/mine/a",
            "http://files.example/mine/a",
            "https://files.example",
            "//files.example/mine/a",
            "/mine/../a",
            "/mine/%2e%2e/a",
            "mine%2Fa",
            "/mine/%61",
            "/mine/a?versionId=1",
            "/mine/a b",
        ] {
            assert_eq!(named("destination", value), Some(None), "{value}");
        }
        assert_eq!(named("x-amz-copy-source-range", "bytes=0-9"), None);
    }
}
