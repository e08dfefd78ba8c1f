//! Requests to a `base` listener, for clients with a base URL as their only setting: the first
//! segment of the path is an alias of an origin.

use std::collections::BTreeMap;

use gateway_message::{Authority, Disagreement, Origin, Scheme};
use http::header::{HOST, LOCATION, ORIGIN, SET_COOKIE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Uri};

use super::synthetic::GATEWAY_NAME;

/// The aliases of a `base` listener, and their origins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aliases(pub BTreeMap<String, Origin>);

impl Aliases {
    /// Returns the origin that a request is for, and the target there. `Host` names the gateway,
    /// not the origin.
    ///
    /// # Errors
    /// [`Disagreement`] if the target is no path, or does not begin with an alias, spelled exactly.
    pub(super) fn origin(
        &self,
        uri: &Uri,
        fields: &HeaderMap,
    ) -> Result<(Origin, Uri), Disagreement> {
        let mut hosts = fields.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(Disagreement::HostCount);
        };
        // Stops web pages, whose requests a browser sends and whose names can resolve to here.
        let host = Authority::parse(host.as_bytes(), Some(Scheme::Http.default_port()))?.host;
        let is_here = host.ip().is_some() || host.as_str() == "localhost";
        if !is_here || fields.contains_key(ORIGIN) || fields.contains_key("sec-fetch-site") {
            return Err(Disagreement::Browser);
        }
        let is_path = uri.scheme().is_none() && uri.authority().is_none();
        let target = uri.path_and_query().filter(|_| is_path);
        let target = target.ok_or(Disagreement::TargetForm)?.as_str();
        let named = target.strip_prefix('/').ok_or(Disagreement::TargetForm)?;
        let (alias, rest) = named.split_at(named.find(['/', '?']).unwrap_or(named.len()));
        let origin = match self.0.get(alias) {
            None if alias == GATEWAY_NAME => own_pages()?,
            known => known.ok_or(Disagreement::Alias)?.clone(),
        };
        let rest = if rest.starts_with('/') {
            PathAndQuery::try_from(rest)
        } else {
            PathAndQuery::try_from(format!("/{rest}"))
        };
        // A suffix of a valid target is valid, if it begins with a slash.
        let rest = rest.map_err(|_| Disagreement::TargetForm)?;
        Ok((origin, rest.into()))
    }
}

/// Returns the origin of the gateway's own pages, which each `base` listener has under that alias.
fn own_pages() -> Result<Origin, Disagreement> {
    let scheme = Scheme::Http;
    let authority = Authority::parse(GATEWAY_NAME.as_bytes(), Some(scheme.default_port()))?;
    Ok(Origin { scheme, authority })
}

/// Binds a response to its origin, since all aliases share one origin for the client. Redirects
/// lead to the origin itself, and cookies, which other aliases would get, are removed.
pub fn answer_of(origin: &Origin, fields: &mut HeaderMap) {
    fields.remove(SET_COOKIE);
    let Some(location) = fields.remove(LOCATION) else {
        return;
    };
    let to = location.to_str().unwrap_or_default();
    let to = match to.parse::<Uri>() {
        Ok(uri) if uri.scheme().is_some() => to.to_owned(),
        _ if to.starts_with("//") => format!("{}:{to}", origin.scheme.as_str()),
        _ if to.starts_with('/') => {
            format!("{}://{}{to}", origin.scheme.as_str(), origin.host_field())
        }
        // A relative path: the client resolves it against the path that has the alias.
        _ => return,
    };
    fields.extend(HeaderValue::try_from(to).ok().map(|to| (LOCATION, to)));
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

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
        let value = HeaderValue::from_static;
        for (fields, is_taken) in [
            (vec![host.clone()], true),
            (vec![host.clone(), host.clone()], false),
            (vec![], false),
            (vec![(HOST, value("localhost:8081"))], true),
            (vec![(HOST, value("[::1]:8081"))], true),
            // A name that its owner let resolve to the gateway.
            (vec![(HOST, value("rebound.example:8081"))], false),
            (vec![host.clone(), (ORIGIN, value("null"))], false),
            (
                vec![
                    host,
                    (HeaderName::from_static("sec-fetch-site"), value("none")),
                ],
                false,
            ),
        ] {
            let fields: HeaderMap = fields.into_iter().collect();
            let asked = aliases.origin(&"/api/".parse().unwrap(), &fields);
            assert_eq!(asked.is_ok(), is_taken, "{fields:?}");
        }
    }

    #[test]
    fn an_answer_leads_to_its_origin_and_sets_no_cookie_for_others() {
        let origin = Origin {
            scheme: Scheme::Https,
            authority: Authority::parse(b"api.example", Some(443)).unwrap(),
        };
        for (location, leads) in [
            ("/b/v1", Some("https://api.example/b/v1")),
            ("//other.example/", Some("https://other.example/")),
            ("https://other.example/a", Some("https://other.example/a")),
            ("../b", None),
            ("", None),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(LOCATION, location.parse().unwrap());
            fields.insert(SET_COOKIE, HeaderValue::from_static("a=b; Path=/"));
            answer_of(&origin, &mut fields);
            let now = fields.get(LOCATION).map(|to| to.to_str().unwrap());
            assert_eq!((now, fields.len()), (leads, usize::from(leads.is_some())));
        }
    }
}
