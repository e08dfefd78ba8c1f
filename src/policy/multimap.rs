//! Reads queries and fields as maps in which a name may have several values and several readings.
//!
//! Origins disagree about duplicates, `a[]`, `+` and letter case. A rule that restricts must see
//! every reading. A rule that permits must see only values with a single reading. (A bare `;` is
//! `%3B` in every [`gateway_message::RequestTarget`].)

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use gateway_message::fields::folded_name;
use gateway_message::pairs::{as_text, decoded};
use gateway_message::{folded_parameters, in_lower_case, parameter_names};
use http::header::{CONTENT_TYPE, COOKIE};
use http::{HeaderMap, HeaderName};

use super::fault::FactFault;

/// A query's pairs and names.
#[derive(Default, Debug)]
pub(super) struct Query {
    /// `name=value`, in any reading.
    pub any: BTreeSet<String>,
    /// `name=value`, for names that occur once and have one reading.
    pub unique: BTreeSet<String>,
    /// The names, in any reading.
    pub names: BTreeSet<String>,
}

impl Query {
    /// Reads a raw query.
    ///
    /// # Errors
    /// [`FactFault::TooManyPairs`].
    pub fn of(raw: &str) -> Result<Self, FactFault> {
        let mut readings = Self::default();
        let pieces: Vec<&str> = raw.split('&').filter(|piece| !piece.is_empty()).collect();
        if pieces.len() > FactFault::MAX_PAIRS {
            return Err(FactFault::TooManyPairs);
        }
        for piece in &pieces {
            readings.add(piece);
        }
        readings.unique = stand_alone(&pieces);
        Ok(readings)
    }

    fn add(&mut self, piece: &str) {
        let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
        for plus in [b' ', b'+'] {
            let name = decoded(name.as_bytes(), plus).text;
            let value = decoded(value.as_bytes(), plus).text;
            for name in parameter_names(&name) {
                let name = escaped_name(&name);
                for name in [in_lower_case(&name), name] {
                    self.any.insert(format!("{name}={value}"));
                    self.names.insert(name);
                }
            }
            if !piece.contains('+') {
                break;
            }
        }
    }
}

fn stand_alone(pieces: &[&str]) -> BTreeSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut clear_pairs = Vec::new();
    for piece in pieces {
        let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
        let (name, value) = (
            decoded(name.as_bytes(), b' '),
            decoded(value.as_bytes(), b' '),
        );
        // Spring reads brackets as dots, and Protocol Buffers ignore underscores.
        let keys = folded_parameters(&name.text);
        for key in &keys {
            *seen.entry(key.clone()).or_default() += 1;
        }
        let bracketed = name.text.contains(['[', ']']) || name.text.starts_with([' ', '\t']);
        if name.clear && value.clear && !bracketed {
            let pair = format!("{}={}", escaped_name(&name.text), value.text);
            clear_pairs.push((keys, pair));
        }
    }
    let is_alone = |keys: &[String]| keys.iter().all(|key| seen.get(key) == Some(&1));
    clear_pairs
        .into_iter()
        .filter_map(|(keys, pair)| is_alone(&keys).then_some(pair))
        .collect()
}

/// Returns the name with `=` and `%` escaped, so that `name=value` splits in only one way.
fn escaped_name(name: &str) -> String {
    name.replace('%', "%25").replace('=', "%3D")
}

/// The fields' values and names.
#[derive(Default, Debug)]
pub(super) struct Fields {
    /// `name: value`, for whole values and for members of lists.
    pub any: BTreeSet<String>,
    /// `name: value`, for names with only one line.
    pub unique: BTreeSet<String>,
    /// The names, in lower case.
    pub names: BTreeSet<String>,
}

impl Fields {
    /// Reads the fields.
    ///
    /// # Errors
    /// [`FactFault::TooManyValues`].
    pub fn of(fields: &HeaderMap) -> Result<Self, FactFault> {
        let mut readings = Self::default();
        let mut values = 0;
        for (name, value) in fields {
            let text = as_text(value.as_bytes());
            let whole = format!("{name}: {text}");
            let separators: &[char] = if name == COOKIE { &[',', ';'] } else { &[','] };
            for member in text.split(separators) {
                values += 1;
                if values > FactFault::MAX_VALUES {
                    return Err(FactFault::TooManyValues);
                }
                readings
                    .any
                    .insert(format!("{name}: {}", member.trim_matches([' ', '\t'])));
            }
            let alone = fields.get_all(name).iter().nth(1).is_none();
            if alone && std::str::from_utf8(value.as_bytes()).is_ok() {
                readings.unique.insert(whole.clone());
            }
            readings.any.insert(whole);
            readings.names.insert(name.as_str().to_owned());
            readings.add_folded(name, &text, separators);
        }
        Ok(readings)
    }

    /// Adds the field under the name that CGI and WSGI origins see: they read `x_role` as `x-role`.
    fn add_folded(&mut self, name: &HeaderName, text: &str, separators: &[char]) {
        let Cow::Owned(folded) = folded_name(name.as_str()) else {
            return;
        };
        for member in text.split(separators) {
            self.any
                .insert(format!("{folded}: {}", member.trim_matches([' ', '\t'])));
        }
        self.any.insert(format!("{folded}: {text}"));
        self.names.insert(folded);
    }
}

/// Returns the media type in lower case, without parameters. Empty without a Content-Type.
///
/// # Errors
/// [`FactFault::ContentTypeRepeated`]: RFC 9110 §8.3 allows one, and recipients disagree about
/// which of several to use.
pub(super) fn content_type(fields: &HeaderMap) -> Result<String, FactFault> {
    let mut all = fields.get_all(CONTENT_TYPE).iter();
    let Some(first) = all.next() else {
        return Ok(String::new());
    };
    let text = as_text(first.as_bytes());
    let essence = text.split(';').next().unwrap_or_default().trim();
    if all.next().is_some() || essence.contains(',') {
        return Err(FactFault::ContentTypeRepeated);
    }
    Ok(essence.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn query(raw: &str) -> Query {
        Query::of(raw).unwrap()
    }

    fn has(set: &BTreeSet<String>, text: &str) -> bool {
        set.contains(text)
    }

    #[test]
    fn a_bad_value_is_seen_wherever_it_hides() {
        for raw in [
            "repo=bad",
            "repo=ok&repo=bad",
            "repo=bad&repo=ok",
            "%72epo=b%61d",
            "repo[]=bad",
            "repo%5B0%5D=bad",
            "Repo=bad",
            "&&repo=bad",
            "[repo]=bad",
            "]repo=bad",
            "+repo=bad",
            "repo[x]y=bad",
            "repo%00x=bad",
        ] {
            assert!(has(&query(raw).any, "repo=bad"), "{raw}");
            assert!(has(&query(raw).names, "repo"), "{raw}");
        }
        for raw in ["a.b=bad", "a+b=bad", "a[b=bad", "[a.b]=bad", "+A.b[]=bad"] {
            assert!(has(&query(raw).any, "a_b=bad"), "{raw}");
            assert!(has(&query(raw).names, "a_b"), "{raw}");
        }
        assert!(has(&query("q=a+b").any, "q=a b"));
        assert!(has(&query("q=a+b").any, "q=a+b"));
    }

    #[test]
    fn a_good_value_counts_only_where_it_stands_alone() {
        assert!(has(&query("repo=ok").unique, "repo=ok"));
        assert!(has(&query("page=2&repo=o%6B").unique, "repo=ok"));
        for raw in [
            "repo=ok&repo=bad",
            "repo=ok&repo=ok",
            "repo=ok&repo[]=bad",
            "repo=ok&%52epo=bad",
            "repo[]=ok",
            "repo=ok%",
            "repo=ok&repo",
            "repo=ok%FF",
            "repo=ok&[repo]=bad",
            "repo=ok&]repo=bad",
            "repo=ok&+repo=bad",
            "repo=ok&repo%00=bad",
            "+repo=ok",
            "]repo=ok",
        ] {
            assert!(!has(&query(raw).unique, "repo=ok"), "{raw}");
        }
        for other in [
            "a.b", "a+b", "a[b", "[a_b]", "aB", "a[b]", "a-b", ".a_b", "+a_b",
        ] {
            let raw = format!("a_b=ok&{other}=bad");
            assert!(!has(&query(&raw).unique, "a_b=ok"), "{raw}");
        }
        assert!(has(&query("a_b=ok&a_c=1").unique, "a_b=ok"));
    }

    #[test]
    fn a_name_with_an_equals_sign_is_no_other_pair() {
        assert!(has(&query("a%3Db=c").any, "a%3Db=c"));
        assert!(!has(&query("a%3Db=c").any, "a=b=c"));
        assert!(has(&query("a=b=c").unique, "a=b=c"));
    }

    #[test]
    fn a_flood_of_pairs_is_not_judged() {
        assert!(Query::of(&"a&".repeat(256)).is_ok());
        assert_eq!(
            Query::of(&"a&".repeat(257)).unwrap_err(),
            FactFault::TooManyPairs
        );
    }

    fn fields(pairs: &[(&'static str, &'static [u8])]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(
                HeaderName::from_static(name),
                HeaderValue::from_bytes(value).unwrap(),
            );
        }
        map
    }

    #[test]
    fn repeated_and_listed_fields_are_seen_whole_and_apart() {
        let joined = Fields::of(&fields(&[("x-role", b"user, admin")])).unwrap();
        let repeated = Fields::of(&fields(&[("x-role", b"user"), ("x-role", b"admin")])).unwrap();
        for readings in [&joined, &repeated] {
            assert!(has(&readings.any, "x-role: admin"));
            assert!(!has(&readings.unique, "x-role: user"));
        }
        assert!(has(&joined.unique, "x-role: user, admin"));
        assert!(repeated.unique.is_empty());
        let cookie = Fields::of(&fields(&[("cookie", b"a=1; b=2")])).unwrap();
        assert!(has(&cookie.any, "cookie: b=2"));
    }

    #[test]
    fn a_name_with_underscores_is_seen_as_cgi_origins_see_it() {
        let readings = Fields::of(&fields(&[("x_evil", b"a, b")])).unwrap();
        for value in ["x_evil: a, b", "x-evil: a, b", "x-evil: b"] {
            assert!(has(&readings.any, value), "{value}");
        }
        assert!(has(&readings.names, "x-evil") && has(&readings.names, "x_evil"));
        assert!(!has(&readings.unique, "x-evil: a, b"));
    }

    #[test]
    fn bytes_outside_utf8_are_escaped_and_never_once() {
        let readings = Fields::of(&fields(&[("x", b"a\xffb")])).unwrap();
        assert!(has(&readings.any, "x: a%FFb"));
        assert!(readings.unique.is_empty());
    }

    #[test]
    fn a_content_type_is_one_or_refused() {
        let of = |values: &[&'static [u8]]| {
            let pairs: Vec<_> = values
                .iter()
                .map(|value| ("content-type", *value))
                .collect();
            content_type(&fields(&pairs))
        };
        assert_eq!(of(&[]).unwrap(), "");
        assert_eq!(
            of(&[b"Application/JSON; charset=utf-8"]).unwrap(),
            "application/json"
        );
        assert_eq!(
            of(&[b"text/plain", b"text/html"]),
            Err(FactFault::ContentTypeRepeated)
        );
        assert_eq!(
            of(&[b"text/plain, text/html"]),
            Err(FactFault::ContentTypeRepeated)
        );
    }

    proptest! {
        #[test]
        fn what_stands_alone_is_among_every_reading(raw in "[ab=&%5BbD+\\[\\]]{0,24}") {
            let readings = query(&raw);
            prop_assert!(readings.unique.is_subset(&readings.any), "{readings:?}");
        }

        #[test]
        fn no_name_of_what_stands_alone_occurs_again(raw in "[aA=&%61]{0,24}") {
            let readings = query(&raw);
            let mut names: Vec<_> = readings.unique.iter()
                .map(|pair| pair.split('=').next().unwrap().to_ascii_lowercase()).collect();
            names.sort();
            let count = names.len();
            names.dedup();
            prop_assert_eq!(names.len(), count);
        }
    }
}
