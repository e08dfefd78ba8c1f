//! The canonical forms of facts' values, and why a literal in a policy can never match.

use gateway_intercept::Entry;
use gateway_message::{EncodedSlash, Place, RequestTarget};

use super::fact::Fact;

/// Returns why no request can have this value in this fact. `None` if a request may have it.
pub(super) fn literal_fault(fact: Fact, literal: &str) -> Option<String> {
    match fact {
        Fact::Path => path_fault(literal),
        Fact::Prefixes => prefix_fault(literal),
        Fact::Place => place_fault(literal),
        _ => form_fault(fact, literal).map(Into::into),
    }
}

fn path_fault(literal: &str) -> Option<String> {
    match RequestTarget::judged(literal.as_bytes(), EncodedSlash::Keep) {
        Ok(target) if target.query().is_some() => {
            Some("a path has no query; ask `context.query.unique`".into())
        }
        Ok(target) if target.path() == literal => None,
        Ok(target) => Some(format!("its one form is `{}`", target.path())),
        Err(error) => Some(error.to_string()),
    }
}

fn prefix_fault(literal: &str) -> Option<String> {
    match literal {
        "/" => None,
        _ if !literal.starts_with('/') || literal.ends_with('/') => {
            Some("a prefix begins with `/` and ends with a segment: `/repos/o/r`".into())
        }
        _ => path_fault(literal),
    }
}

fn place_fault(literal: &str) -> Option<String> {
    match literal.parse::<Place>() {
        Ok(place) if place.to_string() == literal => None,
        Ok(place) => Some(format!("its one form is `{place}`")),
        Err(error) => Some(error.to_string()),
    }
}

fn form_fault(fact: Fact, literal: &str) -> Option<&'static str> {
    match fact {
        Fact::Method
            if METHODS.contains(&&*literal.to_ascii_uppercase()) && has_lower_case(literal) =>
        {
            Some("a method is as HTTP writes it, in upper case: `GET`")
        }
        Fact::Entry if Entry::named(literal).is_none() => Some(fact.row().about),
        Fact::Scheme if !["http", "https"].contains(&literal) => Some("it is `http` or `https`"),
        Fact::Segments | Fact::AnySegments if !is_placed(literal) => {
            Some("a segment is written with its place, from 0: `0:repos`")
        }
        Fact::QueryAny | Fact::QueryUnique if !literal.contains('=') => {
            Some("a pair is written `name=value`; for the name alone, ask `context.query.names`")
        }
        Fact::FieldsAny | Fact::FieldsUnique => match literal.split_once(": ") {
            Some((name, _)) if !has_upper_case(name) => None,
            _ => Some("a field is written `name: value`, the name in lower case"),
        },
        Fact::FieldsNames if has_upper_case(literal) => {
            Some("field names are written in lower case")
        }
        Fact::ContentType if has_upper_case(literal) || literal.contains(';') => {
            Some("a content type is in lower case and without parameters: `application/json`")
        }
        Fact::Upgrade | Fact::ModelHostedTools if has_upper_case(literal) => {
            Some("it is written in lower case")
        }
        Fact::GitRefs if !is_change_of_ref(literal) => {
            Some("a ref is written with its change: `update refs/heads/main`, or `delete` for any")
        }
        Fact::GraphqlFields
            if !literal.contains('.') || !begins_with(&OPERATIONS, '.', literal) =>
        {
            Some("a field is written with its root type: `mutation.mergePullRequest`")
        }
        Fact::GraphqlOperations if !begins_with(&OPERATIONS, ' ', literal) => {
            Some("an operation is written with its type: `mutation`, or `mutation NAME`")
        }
        _ => None,
    }
}

fn is_placed(literal: &str) -> bool {
    let place = literal.split_once(':').map_or("", |(place, _)| place);
    place
        .parse::<u8>()
        .is_ok_and(|number| number.to_string() == place)
}

fn is_change_of_ref(literal: &str) -> bool {
    let (change, name) = literal.split_once(' ').unwrap_or((literal, "refs/"));
    ["create", "update", "delete"].contains(&change) && name.starts_with("refs/")
}

fn begins_with(words: &[&str], separator: char, literal: &str) -> bool {
    let first = literal.split(separator).next();
    first.is_some_and(|first| words.contains(&first))
}

const OPERATIONS: [&str; 3] = ["query", "mutation", "subscription"];

/// The methods of RFC 9110 and RFC 5789 that may be requested.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

fn has_lower_case(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_lowercase())
}

fn has_upper_case(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_that_no_request_has_is_at_fault_and_its_neighbour_is_not() {
        for (fact, good, bad) in [
            (Fact::Path, "/a/b", "/a/../b"),
            (Fact::Path, "/", "a"),
            (Fact::Path, "/a%2Fb", "/a%2fb"),
            (Fact::Path, "/~x", "/%7Ex"),
            (Fact::Path, "/a", "/a?b=1"),
            (Fact::Path, "/bot{}/x", "/{}/{}"),
            (Fact::Prefixes, "/bot{}", "/bot{"),
            (Fact::Prefixes, "/", "/a/"),
            (Fact::Prefixes, "/a", "a"),
            (Fact::Prefixes, "/a/b", "/a/./b"),
            (Fact::Segments, "0:a", "a"),
            (Fact::Segments, "10:a:b", "01:a"),
            (Fact::AnySegments, "0:a", "a"),
            (Fact::QueryAny, "a=", "a"),
            (Fact::FieldsAny, "x-a: B", "X-A: b"),
            (Fact::FieldsNames, "x-a", "X-a"),
            (Fact::ContentType, "text/plain", "text/plain; charset=utf-8"),
            (Fact::Upgrade, "websocket", "WebSocket"),
            (Fact::Place, "header:x-api-key", "header:X-Api-Key"),
            (Fact::Place, "basic:user", "body:user"),
            (Fact::GitRefs, "delete", "refs/heads/main"),
            (Fact::GitRefs, "update refs/heads/main", "update main"),
            (Fact::Method, "GET", "get"),
            (Fact::Entry, "connect", "tailnet"),
            (Fact::Scheme, "https", "ftp"),
            (Fact::GraphqlFields, "query.a", "a"),
            (Fact::GraphqlFields, "mutation.a", "mutation"),
            (Fact::GraphqlOperations, "query", "mutation.a"),
            (Fact::GraphqlOperations, "query A", "A"),
            (Fact::ModelHostedTools, "google_search", "googleSearch"),
        ] {
            assert_eq!(literal_fault(fact, good), None, "{good}");
            assert!(literal_fault(fact, bad).is_some(), "{bad}");
        }
    }
}
