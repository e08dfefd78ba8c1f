//! A value is found in its place alone, and a secret written there changes nothing else.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use super::*;
use crate::fact::PlainContent;
use crate::{Document, Questions};

/// The values at the places.
fn spots(
    fields: &HeaderMap,
    query: &str,
    content: &PlainContent,
    places: &[&Place],
) -> Result<Vec<Option<ValueSpan>>, AmbiguousJson> {
    let mut questions = Questions::default();
    places.iter().for_each(|place| questions.place(place));
    let document = Document::read(fields, query, content, &questions);
    places.iter().map(|place| document.spot(place)).collect()
}

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
const PARTS: &str = "multipart/form-data; boundary=b";

fn plain(content: &str) -> PlainContent {
    PlainContent {
        bytes: content.to_owned().into(),
        ..PlainContent::default()
    }
}

/// The value at the place: the raw bytes and the text. `Err` if readers may disagree.
fn seen(
    kind: &str,
    query: &str,
    content: &str,
    place: &str,
) -> Result<Option<(String, String)>, ()> {
    let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_str(kind).unwrap())]);
    let place: Place = place.parse().unwrap();
    let found = spots(&fields, query, &plain(content), &[&place]).map_err(|AmbiguousJson| ())?;
    let spot = found.into_iter().next().unwrap();
    let exact = spot.filter(|spot| spot.is_exact);
    Ok(exact.map(|spot| (content[spot.at].to_owned(), spot.text.unwrap_or_default())))
}

fn text(kind: &str, content: &str, place: &str) -> Option<String> {
    seen(kind, "", content, place)
        .unwrap()
        .map(|(_, text)| text)
}

#[test]
fn a_value_is_found_where_every_reader_finds_it() {
    for (kind, content, place, found) in [
        (FORM, "a=b&token=x%2By&c", "form:token", Some("x+y")),
        (FORM, "t%6Fken=x", "form:token", Some("x")),
        (FORM, "card[number]=4", "form:card[number]", Some("4")),
        (FORM, "Token=x", "form:token", None),
        (FORM, "token=x&token=x", "form:token", None),
        (FORM, "token=x&TOKEN[]=y", "form:token", None),
        (FORM, "a=1;token=x", "form:token", None),
        (JSON, "{\"token\":\"x\"}", "form:token", None),
        (
            JSON,
            " { \"a\" : [1,{}], \"token\" : \"x\\u0041\\/\" } ",
            "json:/token",
            Some("xA/"),
        ),
        (JSON, "{\"\\u0074oken\":\"x\"}", "json:/token", Some("x")),
        (
            JSON,
            "{\"a\":[{\"b\":\"]}\"},{\"b~/\":\"x\"}]}",
            "json:/a/1/b~0~1",
            Some("x"),
        ),
        (JSON, "{\"Token\":\"x\"}", "json:/token", None),
        (JSON, "{\"a\":{\"token\":\"x\"}}", "json:/token", None),
        (JSON, "{\"token\":null}", "json:/token", None),
        (JSON, "{\"token\":7}", "json:/token", Some("")),
        (JSON, "[\"x\"]", "json:/0", Some("x")),
        (JSON, "7", "json:/token", None),
        (
            "application/vnd.a+json",
            "{\"token\":\"x\"}",
            "json:/token",
            Some("x"),
        ),
        (FORM, "token=x", "json:/token", None),
        (
            PARTS,
            "--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\nx\r\n--b--",
            "multipart:token",
            Some("x"),
        ),
        (PARTS, "token=x", "multipart:token", None),
    ] {
        assert_eq!(
            text(kind, content, place).as_deref(),
            found,
            "{content} {place}"
        );
    }
    assert!(
        seen(FORM, "token=y", "token=x", "form:token")
            .unwrap()
            .is_none()
    );
    for (kind, query, content) in [
        (JSON, "", "{\"token\":\"x\"} {}"),
        (JSON, "", "{\"token\":\"x\",\"a\":1,\"a\":2}"),
        (JSON, "", "{\"token\":\"x\",\"TOKEN\":\"y\"}"),
        (JSON, "", "\u{feff}{\"token\":\"x\"}"),
        (JSON, "", "{\"token\":\"x\""),
        (JSON, "", ""),
        (JSON, "token=y", "{\"token\":\"x\"}"),
        ("text/plain", "", " {\"token\":\"x\"}"),
        ("application/json; charset=utf-16", "", "{\"token\":\"x\"}"),
    ] {
        assert!(
            seen(kind, query, content, "json:/token").is_err(),
            "{kind} {query} {content}"
        );
    }
}

/// The document with the value, and the same with other members around it.
fn form(before: &[(String, String)], raw: &str, after: &[(String, String)]) -> String {
    let write = |(name, value): &(String, String)| {
        let value = utf8_percent_encode(value, ESCAPED).to_string();
        format!("x{name}={value}")
    };
    let before = before.iter().map(write);
    let all = before
        .chain([format!("token={raw}")])
        .chain(after.iter().map(write));
    all.collect::<Vec<_>>().join("&")
}

fn json(before: &[(String, String)], raw: &str, after: &[(String, String)]) -> String {
    let write = |(at, (name, value)): (usize, &(String, String))| {
        let value = serde_json::Value::from(value.as_str());
        format!("\"x{at}{name}\" :{{\"token\":[{value}]}}")
    };
    let count = before.len();
    let before = before.iter().enumerate().map(write);
    let after = after
        .iter()
        .enumerate()
        .map(|(at, one)| write((at + count, one)));
    let all = before.chain([format!("\"token\": {raw}")]).chain(after);
    format!("{{{}}}", all.collect::<Vec<_>>().join(","))
}

fn multipart(before: &[(String, String)], raw: &str, after: &[(String, String)]) -> String {
    let write = |(name, value): &(String, String)| {
        let value = value.replace('b', "c");
        format!(
            "--b\r\nContent-Disposition: form-data; name=\"x{name}\"; filename=\"f\"\r\n\r\n{value}\r\n"
        )
    };
    let own = format!("--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n{raw}\r\n");
    let before = before.iter().map(write);
    before
        .chain([own])
        .chain(after.iter().map(write))
        .collect::<String>()
        + "--b--\r\n"
}

fn members() -> impl Strategy<Value = Vec<(String, String)>> {
    proptest::collection::vec(("[a-z]{0,4}", "[ -~é\"{}\\[\\],:=&+%]{0,12}"), 0..4)
}

proptest! {
    #[test]
    fn a_secret_stands_in_its_place_and_every_other_byte_stays(
        before in members(), after in members(),
        phantom in "[A-Za-z0-9_/+=.~-]{8,40}", secret in "[!-~]{8,60}",
    ) {
        type Write = fn(&[(String, String)], &str, &[(String, String)]) -> String;
        let cases: [(&str, &str, Write); 3] = [
            (FORM, "form:token", form),
            (JSON, "json:/token", json),
            (PARTS, "multipart:token", multipart),
        ];
        for (kind, place, write) in cases {
            let own: Place = place.parse().unwrap();
            // A line that begins with the delimiter ends a part: no phantom begins so.
            let ends = |text: &str| place == "multipart:token" && text.contains("--b");
            if ends(&phantom) {
                continue;
            }
            let written = escaped(&own, &phantom);
            let content = write(&before, &written, &after);
            let (raw, text) = seen(kind, "", &content, place).unwrap().unwrap();
            prop_assert_eq!((&raw, &text), (&written, &phantom));
            let with = write(&before, &escaped(&own, &secret), &after);
            if !ends(&secret) {
                let (_, text) = seen(kind, "", &with, place).unwrap().unwrap();
                prop_assert_eq!(text, secret.clone());
            }
        }
    }

    #[test]
    fn no_content_makes_the_search_fail(content in "[\"{}\\[\\],:a0 \\\\\r\n=&-]{0,40}") {
        let places = ["form:a", "json:/a/0", "multipart:a"].map(|place| place.parse::<Place>().unwrap());
        for kind in [FORM, JSON, PARTS, "text/plain"] {
            let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            let _either = spots(&fields, "a=1", &plain(&content), &places.each_ref());
        }
    }
}
