//! A place in the path: `/bot{}/`, where `{}` stands for the credential.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::path_pattern::segments;
use super::target::{LENT, RequestTarget};
use super::target_form::EncodedSlash;

/// A prefix of paths, one segment of which holds a credential. `*` stands for any other segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathPlace(Box<str>);

/// Why a text is not a path place: not canonical, or without exactly one `{}`, in its last segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the path of a place has `{{}}` once, in its last segment, as in `/bot{{}}/`")]
pub struct PathPlaceMalformed(());

impl PathPlace {
    /// Where the credential stands in a canonical path, still escaped.
    pub fn find(&self, path: &str) -> Option<Range<usize>> {
        let mut found = None;
        let mut at = 1;
        let mut there = path[1..].split('/');
        for wanted in self.0[1..].split('/') {
            // A slash at the end of the place requires another segment.
            let segment = there.next()?;
            match wanted.split_once(LENT) {
                Some((before, after)) => {
                    let inner = segment.strip_prefix(before)?.strip_suffix(after)?;
                    let from = at + before.len();
                    found = Some(from..from + inner.len());
                }
                None if wanted.is_empty() || wanted == segment => {}
                // `*` stands only for a segment that no reader splits or leaves out.
                None if wanted == "*" && !segment.is_empty() && !segment.contains(['%', ';']) => {}
                None => return None,
            }
            at += segment.len() + 1;
        }
        found
    }

    /// The range of the place in the reading of the most lenient origin, as in
    /// [`super::PathPattern`]. `None` if that is empty or `{}`.
    pub fn loosely(&self, path: &str) -> Option<Range<usize>> {
        let mut there = segments(path);
        for wanted in self.0[1..].split('/') {
            let segment = there.next()?;
            if let Some((before, after)) = wanted.split_once(LENT) {
                let (first, rest) = segment.split_at_checked(before.len())?;
                let (inner, last) = rest.split_at_checked(rest.len().checked_sub(after.len())?)?;
                let is_it = first.eq_ignore_ascii_case(before) && last.eq_ignore_ascii_case(after);
                let from = inner.as_ptr().addr() - path.as_ptr().addr();
                let is_it = is_it && !matches!(inner, "" | LENT);
                return is_it.then(|| from..from + inner.len());
            }
            if wanted != "*" && !wanted.eq_ignore_ascii_case(segment) {
                return None;
            }
        }
        None
    }
}

impl fmt::Display for PathPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PathPlace {
    type Err = PathPlaceMalformed;

    fn from_str(text: &str) -> Result<Self, PathPlaceMalformed> {
        let target = RequestTarget::judged(text.as_bytes(), EncodedSlash::Refuse);
        let is_canonical = target.is_ok_and(|target| target.path_and_query() == text);
        let (head, tail) = text.split_once(LENT).ok_or(PathPlaceMalformed(()))?;
        let is_last = matches!(tail.split_once('/'), None | Some((_, "")));
        let is_plain = !text.contains([';', '?']) && !text.contains("//");
        if is_canonical && is_last && is_plain && head.starts_with('/') {
            Ok(Self(text.into()))
        } else {
            Err(PathPlaceMalformed(()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> PathPlace {
        text.parse().unwrap()
    }

    #[test]
    fn the_credential_of_a_path_is_found_in_its_segment() {
        for (text, path, found) in [
            ("/bot{}/", "/bot1:A/getMe", Some("1:A")),
            ("/bot{}/", "/bot1:A/", Some("1:A")),
            ("/bot{}/", "/bot1:A", None),
            ("/bot{}/", "/file/bot1:A/x", None),
            ("/bot{}/", "/Bot1:A/x", None),
            ("/bot{}/", "//bot1:A/x", None),
            ("/file/bot{}/", "/file/bot1:A/x/y", Some("1:A")),
            ("/hooks/{}", "/hooks/abc", Some("abc")),
            ("/hooks/{}", "/hooks/abc/x", Some("abc")),
            ("/hooks/{}.json", "/hooks/abc.json", Some("abc")),
            ("/hooks/{}", "/hooks", None),
            ("/api/webhooks/*/{}", "/api/webhooks/7/abc", Some("abc")),
            ("/api/webhooks/*/{}", "/api/webhooks//abc", None),
            ("/api/webhooks/*/{}", "/api/webhooks/7%2F8/abc", None),
        ] {
            let range = place(text).find(path);
            assert_eq!(range.map(|range| &path[range]), found, "{text} {path}");
        }
    }

    #[test]
    fn what_a_lenient_origin_takes_for_the_credential_is_seen() {
        for (text, path, seen) in [
            ("/bot{}/", "//BOT1:A;x=1", Some("1:A")),
            ("/bot{}/", "/bot/getMe", None),
            ("/bot{}/", "/bot{}/getMe", None),
            ("/file/bot{}/", "/file%2Fbot1/x", Some("1")),
            ("/hooks/{}.json", "/hooks/a.JSON", Some("a")),
            ("/hooks/{}", "/other/a", None),
        ] {
            let range = place(text).loosely(path);
            assert_eq!(range.map(|range| &path[range]), seen, "{text} {path}");
        }
    }

    #[test]
    fn what_is_no_place_in_a_path_is_refused() {
        for text in [
            "", "/", "/bot", "bot{}", "/{}{}", "/{}/{}", "/a/../{}", "/a/{}?b", "//{}", "/{}/b",
            "/{}//", "/a;b/{}", "/{",
        ] {
            assert!(text.parse::<PathPlace>().is_err(), "{text}");
        }
    }
}
