//! Splits a path into its segments, and into the prefixes that end with a segment.

use std::collections::BTreeSet;

use gateway_message::path_pattern;

use super::fault::FactFault;

/// Returns the path's segments. `/` has none, and a trailing slash adds none.
pub(super) fn segments(path: &str) -> Result<impl Iterator<Item = &str>, FactFault> {
    Ok(inner(path).split('/').take(depth(path)?))
}

/// Returns the path's segments with their positions, in any reading: with encoded slashes as
/// separators, and without an extension, such as `.json`, by which some services choose a format.
pub(super) fn any_segments(path: &str) -> Result<BTreeSet<String>, FactFault> {
    let all = segments(path)?.enumerate();
    let both = |(place, whole): (usize, &str)| {
        let bare = whole.rsplit_once('.').map_or(whole, |(bare, _)| bare);
        [whole, bare].map(|one| format!("{place}:{one}"))
    };
    let all = all.chain(path_pattern::segments(path).enumerate());
    Ok(all.flat_map(both).collect())
}

/// Returns how many segments the path has.
pub(super) fn depth(path: &str) -> Result<usize, FactFault> {
    let inner = inner(path);
    match memchr::memchr_iter(b'/', inner.as_bytes()).count() {
        0 if inner.is_empty() => Ok(0),
        slashes if slashes < FactFault::MAX_SEGMENTS => Ok(slashes + 1),
        _ => Err(FactFault::TooManySegments),
    }
}

fn inner(path: &str) -> &str {
    let inner = path.strip_prefix('/').unwrap_or_default();
    inner.strip_suffix('/').unwrap_or(inner)
}

/// Returns every prefix of the path that ends with a whole segment, starting with `/`.
pub(super) fn prefixes(path: &str) -> Result<Vec<&str>, FactFault> {
    let mut all = vec!["/"];
    let mut end = 0;
    for segment in segments(path)? {
        end += 1 + segment.len();
        if !segment.is_empty() {
            all.push(&path[..end]);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments_of(path: &str) -> Vec<&str> {
        segments(path).unwrap().collect()
    }

    #[test]
    fn prefixes_end_with_whole_segments() {
        assert_eq!(
            prefixes("/repos/o/r-evil").unwrap(),
            ["/", "/repos", "/repos/o", "/repos/o/r-evil"]
        );
        assert_eq!(
            prefixes("/graphql-explorer").unwrap(),
            ["/", "/graphql-explorer"]
        );
        assert_eq!(prefixes("/").unwrap(), ["/"]);
        assert_eq!(prefixes("/a/").unwrap(), ["/", "/a"]);
        assert_eq!(prefixes("/a//b").unwrap(), ["/", "/a", "/a//b"]);
    }

    #[test]
    fn segments_have_their_places() {
        assert_eq!(segments_of("/repos/o/r"), ["repos", "o", "r"]);
        assert_eq!(segments_of("/a//b/"), ["a", "", "b"]);
        assert!(segments_of("/").is_empty());
    }

    #[test]
    fn any_reading_of_a_segment_has_its_place() {
        let has = |path: &str, all: &[&str]| {
            let found = any_segments(path).unwrap();
            assert!(all.iter().all(|one| found.contains(*one)), "{found:?}");
        };
        has("/user/keys.json", &["0:user", "1:keys.json", "1:keys"]);
        has("/user%2Fkeys", &["0:user%2Fkeys", "0:user", "1:keys"]);
        has("/user%2F%2Fkeys.xml", &["0:user", "1:keys"]);
        has(
            "/p/g%2Fr/keys",
            &["1:g%2Fr", "2:keys", "1:g", "2:r", "3:keys"],
        );
        assert!(!any_segments("/a/keys-of").unwrap().contains("1:keys"));
        assert!(any_segments(&"/a".repeat(65)).is_err());
    }

    #[test]
    fn a_flood_of_segments_is_not_judged() {
        assert!(prefixes(&"/a".repeat(64)).is_ok());
        assert_eq!(
            prefixes(&"/a".repeat(65)).unwrap_err(),
            FactFault::TooManySegments
        );
        assert_eq!(
            prefixes(&"/".repeat(8192)).unwrap_err(),
            FactFault::TooManySegments
        );
    }
}
