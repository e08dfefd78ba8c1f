//! Requests to a `base` listener, for clients of which only the base URL can be set: the first
//! segment of the path is an alias of an origin.

use std::collections::BTreeMap;

use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderMap, Uri};

use crate::message::{Disagreement, Origin};

/// The aliases of a `base` listener, and their origins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aliases(pub BTreeMap<String, Origin>);

impl Aliases {
    /// Returns the origin that a request is for, and the target there. `Host` names the gateway,
    /// and says nothing.
    ///
    /// # Errors
    /// [`Disagreement`] if the target is no path, or begins with no alias as it is written.
    pub(super) fn origin(
        &self,
        uri: &Uri,
        fields: &HeaderMap,
    ) -> Result<(Origin, Uri), Disagreement> {
        if fields.get_all(HOST).iter().count() != 1 {
            return Err(Disagreement::HostCount);
        }
        let is_path = uri.scheme().is_none() && uri.authority().is_none();
        let target = uri.path_and_query().filter(|_| is_path);
        let target = target.ok_or(Disagreement::TargetForm)?.as_str();
        let named = target.strip_prefix('/').ok_or(Disagreement::TargetForm)?;
        let (alias, rest) = named.split_at(named.find(['/', '?']).unwrap_or(named.len()));
        let origin = self.0.get(alias).ok_or(Disagreement::Alias)?;
        let rest = match rest.starts_with('/') {
            true => PathAndQuery::try_from(rest),
            false => PathAndQuery::try_from(format!("/{rest}")),
        };
        // A part of a target is one, with a slash before it.
        let rest = rest.map_err(|_| Disagreement::TargetForm)?;
        Ok((origin.clone(), rest.into()))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::message::{Authority, Scheme};

    #[test]
    fn the_first_segment_as_written_names_the_origin_and_goes() {
        let origin = Origin {
            scheme: Scheme::Https,
            authority: Authority::parse(b"api.example", Some(443)).unwrap(),
        };
        let aliases = Aliases(BTreeMap::from([("api".to_owned(), origin.clone())]));
        let host = (HOST, HeaderValue::from_static("127.0.0.1:8081"));
        let one: HeaderMap = [host.clone()].into_iter().collect();
        for (target, rest) in [
            ("/api/v1/models?limit=2", Some("/v1/models?limit=2")),
            ("/api", Some("/")),
            ("/api/", Some("/")),
            ("/api?page=2", Some("/?page=2")),
            ("/api//other/", Some("//other/")),
            ("/api/../other", Some("/../other")),
            ("/API/v1", None),
            ("/%61pi/v1", None),
            ("//api/v1", None),
            ("/./api/v1", None),
            ("/other", None),
            ("/", None),
            ("http://api/v1", None),
            ("*", None),
        ] {
            let asked = aliases.origin(&target.parse().unwrap(), &one);
            let asked = asked.map(|(to, uri)| (to, uri.to_string()));
            let expected = rest.map(|rest| (origin.clone(), rest.to_owned()));
            assert_eq!(asked.ok(), expected, "{target}");
        }
        let two: HeaderMap = [host.clone(), host].into_iter().collect();
        for fields in [two, HeaderMap::new()] {
            assert!(aliases.origin(&"/api/".parse().unwrap(), &fields).is_err());
        }
    }
}
