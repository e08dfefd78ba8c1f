//! Routes: paths that select requests by whole segments.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A path and everything below it. `*` matches one segment.
///
/// Routes are used to restrict, so a route matches any reading that an origin may have of a path:
/// letter case, doubled slashes, segment parameters, and slashes that are kept encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern(Vec<Box<str>>);

/// Why a text is not a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternMalformed {
    /// It does not start with a slash.
    #[error("the path does not begin with `/`")]
    Slash,
    /// It has an empty segment, a query, or a character that a path must escape.
    #[error("the path is not made of plain segments; `*` stands for a whole one")]
    Segment,
}

impl PathPattern {
    /// Whether the canonical path equals the route or lies below it.
    pub fn holds(&self, path: &str) -> bool {
        let mut there = segments(path);
        self.0.iter().all(|mine| match there.next() {
            Some(segment) => &**mine == "*" || mine.eq_ignore_ascii_case(segment),
            None => false,
        })
    }
}

/// The segments of a path, in the reading with the most segments.
pub fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .flat_map(|segment| segment.split("%2F"))
        .map(name_of)
        .filter(|segment| !segment.is_empty())
}

/// The other readings that origins may have of a path: with doubled slashes merged (nginx), without
/// the segments' parameters (Tomcat), and both. Usually there are none.
pub fn other_readings(path: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let has_doubled_slash = path.as_bytes().windows(2).any(|two| two == b"//");
    if !has_doubled_slash && !path.contains([';', '%']) {
        return all;
    }
    let merged = merge_slashes(path);
    let plain = cut_parameters(path);
    let both = merge_slashes(&plain);
    for reading in [merged, plain, both] {
        if reading != path && !all.contains(&reading) {
            all.push(reading);
        }
    }
    all
}

/// The path and its [`other_readings`].
pub fn readings(path: &str) -> Vec<String> {
    let mut all = other_readings(path);
    all.insert(0, path.to_owned());
    all
}

/// Whether some server may treat both paths as the same: a reading of one is a reading of the
/// other. Encoded slashes count as slashes, and a slash at the end is ignored. Letter case is kept.
pub fn may_be_same(one: &str, other: &str) -> bool {
    let others = readings(other);
    let is_among = |one: &String| others.iter().any(|other| segments(one).eq(segments(other)));
    readings(one).iter().any(is_among)
}

/// The readings of a path, and each with its encoded slashes decoded, and with a slash at its end
/// and without.
pub fn spellings(path: &str) -> Vec<String> {
    let readings = readings(path).into_iter();
    let decoded = readings.flat_map(|one| [one.replace("%2F", "/"), one]);
    let all = decoded.flat_map(|one| {
        let bare = one.trim_end_matches('/').to_owned();
        [format!("{bare}/"), bare, one]
    });
    let all: BTreeSet<String> = all.filter(|one| !one.is_empty()).collect();
    all.into_iter().collect()
}

fn merge_slashes(path: &str) -> String {
    let mut merged = String::with_capacity(path.len());
    for letter in path.chars() {
        if letter != '/' || !merged.ends_with('/') {
            merged.push(letter);
        }
    }
    merged
}

fn cut_parameters(path: &str) -> String {
    let names = path.split('/').map(name_of);
    names.collect::<Vec<_>>().join("/")
}

/// The segment without its parameters (RFC 3986 §3.3).
fn name_of(segment: &str) -> &str {
    let name = segment.split(';').next().unwrap_or_default();
    name.split("%3B").next().unwrap_or_default()
}

impl FromStr for PathPattern {
    type Err = PathPatternMalformed;

    fn from_str(text: &str) -> Result<Self, PathPatternMalformed> {
        let inner = text.strip_prefix('/').ok_or(PathPatternMalformed::Slash)?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~$@:".contains(&b);
        let is_one = |one: &str| one == "*" || (!one.is_empty() && one.bytes().all(plain));
        if !inner.split('/').all(is_one) {
            return Err(PathPatternMalformed::Segment);
        }
        Ok(Self(inner.split('/').map(Into::into).collect()))
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|segment| write!(f, "/{segment}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_holds_every_reading_of_its_paths() {
        let route: PathPattern = "/api/webhooks/*/*".parse().unwrap();
        for path in [
            "/api/webhooks/1/t",
            "/api/webhooks/1/t/slack",
            "/API/Webhooks/1/t",
            "//api//webhooks/1/t",
            "/api;x/webhooks/1;y/t",
            "/api%2Fwebhooks/1%2Ft",
        ] {
            assert!(route.holds(path), "{path}");
        }
        for path in [
            "/api/webhooks/1",
            "/api/webhooks/1/",
            "/api/channels/1/webhooks",
            "/",
        ] {
            assert!(!route.holds(path), "{path}");
        }
    }

    #[test]
    fn a_path_has_other_readings() {
        for (path, readings) in [
            ("/a/b/", &[][..]),
            ("/", &[]),
            ("//a", &["/a"]),
            ("/a//", &["/a/"]),
            ("/a;x=1/b", &["/a/b"]),
            ("/a%3Bx", &["/a"]),
            ("/;x/a", &["//a", "/a"]),
            ("/;x", &["/"]),
            ("//a;x", &["/a;x", "//a", "/a"]),
        ] {
            assert_eq!(other_readings(path), readings, "{path}");
        }
    }

    #[test]
    fn two_paths_that_some_server_reads_alike_may_be_the_same() {
        for other in [
            "/admin/keys",
            "/admin/keys/",
            "//admin//keys",
            "/admin;v=1/keys",
            "/admin%2Fkeys",
            "/admin%2Fkeys;v%3B",
            "/admin%3Bx/keys/",
        ] {
            assert!(may_be_same("/admin/keys", other), "{other}");
            assert!(may_be_same(other, "/admin/keys"), "{other}");
        }
        for other in ["/Admin/keys", "/admin", "/admin/keys/1", "/adminkeys", "/"] {
            assert!(!may_be_same("/admin/keys", other), "{other}");
        }
        assert!(may_be_same("/", "//"));
        assert_eq!(spellings("/"), ["/"]);
        assert_eq!(spellings("/a%2Fb"), ["/a%2Fb", "/a%2Fb/", "/a/b", "/a/b/"]);
    }

    #[test]
    fn what_is_no_route_is_refused() {
        for text in ["", "x", "/", "/a//b", "/a/", "/a?b", "/a b", "/a*"] {
            assert!(text.parse::<PathPattern>().is_err(), "{text}");
        }
    }
}
