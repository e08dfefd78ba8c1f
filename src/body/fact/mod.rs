//! Facts read from content: single values of a JSON document or a form, if every origin reads them
//! the same way.
//!
//! A value that is missing, repeated, of another type, too large or ambiguous is not read. One
//! fault anywhere in the content, and nothing is read from it.

mod form;
mod form_remainder;
pub(crate) mod json;
mod kind;
mod location;
mod multipart;
mod plain_content;
mod value;
mod value_span;

pub use form_remainder::FormRemainder;
pub use json::spot_in_message;
pub use location::Location;
pub use multipart::is_multipart_name;
pub use plain_content::{PlainContent, plain};
pub use value::{FactType, FactTypeUnknown, FactValue};
pub use value_span::{AmbiguousJson, ValueSpan, escaped};

pub(crate) use form::{Pairs, is_named};
pub(crate) use kind::{ContentKind, is_text};
pub(crate) use multipart::{Part, Parts, multipart_fact, multipart_parts};
pub(crate) use value::{of_number, of_string, of_text};

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;
    use http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::{Document, Questions};

    /// The values of these facts in one reading of the content.
    fn read(
        fields: &HeaderMap,
        query: &str,
        content: &PlainContent,
        wanted: &[(&Location, FactType)],
    ) -> Vec<Option<FactValue>> {
        let mut questions = Questions::default();
        for (at, kind) in wanted {
            questions.fact(at, *kind);
        }
        let document = Document::read(fields, query, content, &questions);
        let values = wanted.iter().map(|(at, kind)| document.fact(at, *kind));
        values.collect()
    }

    fn at(location: &str) -> Location {
        if location.starts_with('/') {
            Location::Json(location.parse().unwrap())
        } else {
            Location::Form(location.parse().unwrap())
        }
    }

    fn as_it_is(content: &[u8]) -> PlainContent {
        PlainContent {
            bytes: content.to_vec().into(),
            ..PlainContent::default()
        }
    }

    fn one(kind: &str, content: &[u8], location: &str, wanted: FactType) -> Option<FactValue> {
        let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_str(kind).unwrap())]);
        read(&fields, "", &as_it_is(content), &[(&at(location), wanted)]).remove(0)
    }

    fn json(content: impl AsRef<[u8]>, wanted: FactType) -> Option<FactValue> {
        one("application/json", content.as_ref(), "/a", wanted)
    }

    fn form(content: impl AsRef<[u8]>, wanted: FactType) -> Option<FactValue> {
        let kind = "application/x-www-form-urlencoded";
        one(kind, content.as_ref(), "a", wanted)
    }

    fn long(number: i64) -> Option<FactValue> {
        Some(FactValue::Long(number))
    }

    fn text(text: &str) -> Option<FactValue> {
        Some(FactValue::String(text.to_owned()))
    }

    #[test]
    fn a_value_of_its_type_is_read() {
        assert_eq!(json(r#"{"a":5}"#, FactType::Long), long(5));
        assert_eq!(
            json(" {\"b\":[1.5e3],\n\"a\":-7 } ", FactType::Long),
            long(-7)
        );
        let most = (1 << 53) - 1;
        assert_eq!(
            json(format!("{{\"a\":{most}}}"), FactType::Long),
            long(most)
        );
        assert_eq!(form(format!("a=-{most}"), FactType::Long), long(-most));
        assert_eq!(
            json(r#"{"\u0061":"x\u00e9"}"#, FactType::String),
            text("xé")
        );
        assert_eq!(json(r#"{"a":""}"#, FactType::String), text(""));
        assert_eq!(
            json(r#"{"a":true}"#, FactType::Bool),
            Some(FactValue::Bool(true))
        );
        let both = Some(FactValue::Strings(vec!["x".into(), "y".into()]));
        assert_eq!(json(r#"{"a":["x","y"]}"#, FactType::Strings), both);
        let none = Some(FactValue::Strings(Vec::new()));
        assert_eq!(json(r#"{"a":[]}"#, FactType::Strings), none);
        assert_eq!(form("b=1&a=6000", FactType::Long), long(6000));
        assert_eq!(form("%61=x+%2B%c3%a9", FactType::String), text("x +é"));
        assert_eq!(
            form("a=false", FactType::Bool),
            Some(FactValue::Bool(false))
        );
    }

    #[test]
    fn a_value_of_another_type_or_form_is_left_out() {
        for value in [
            "\"5\"",
            "5.0",
            "5e0",
            "-0",
            "05",
            "+5",
            "0x5",
            "9223372036854775808",
            "9007199254740993",
            "-9007199254740992",
            "null",
            "[5]",
            "{\"a\":5}",
            "true",
            "1e400",
            "NaN",
            "Infinity",
            "5 5",
            "",
        ] {
            let content = format!("{{\"a\":{value}}}");
            assert_eq!(json(&content, FactType::Long), None, "{value}");
        }
        for value in ["5", "true", "null", "[\"x\"]", "{}", "\"x\\u0000y\""] {
            let content = format!("{{\"a\":{value}}}");
            assert_eq!(json(&content, FactType::String), None, "{value}");
        }
        for value in [
            "[\"x\",1]",
            "[[\"x\"]]",
            "\"x\"",
            "[\"x\",null]",
            "{\"0\":\"x\"}",
        ] {
            let content = format!("{{\"a\":{value}}}");
            assert_eq!(json(&content, FactType::Strings), None, "{value}");
        }
        for value in [
            "",
            "5.0",
            "5e0",
            "-0",
            "05",
            "+5",
            "%2B5",
            " 5",
            "5+",
            "9223372036854775808",
            "9007199254740993",
            "-9007199254740992",
            "5%00",
            "5;",
            "5\r\n",
            "٥",
            "0x5",
            "5%0a",
        ] {
            assert_eq!(form(format!("a={value}"), FactType::Long), None, "{value}");
        }
        assert_eq!(form("a=True", FactType::Bool), None);
        assert_eq!(form("a=1", FactType::Strings), None);
        assert_eq!(form("a=x%00", FactType::String), None);
    }

    #[test]
    fn a_json_document_that_reads_two_ways_is_not_read_at_all() {
        for content in [
            &br#"{"a":5,"a":6}"#[..],
            br#"{"a":5,"\u0061":6}"#,
            br#"{"a":5,"b":{"c":1,"c":1}}"#,
            br#"{"a":5,"b":[{"c":1,"c":1}]}"#,
            b"\xef\xbb\xbf{\"a\":5}",
            b"{\"a\":5} {}",
            b"{\"a\":5}\0",
            b"{\"a\":5,}",
            b"{\"a\":5} // x",
            b"{'a':5}",
            b"{a:5}",
            b"\xff\xfe{\0\"\0",
            b"{\"a\":5,\"b\":\"\xff\"}",
            br#"{"a":5,"b":"\ud800"}"#,
            br#"{"a":5,"b":1e400}"#,
            br#"{"a":5,"b":"#,
            b"",
            b" ",
        ] {
            let shown = String::from_utf8_lossy(content).into_owned();
            assert_eq!(json(content, FactType::Long), None, "{shown}");
        }
        let deep = format!("{{\"a\":5,\"b\":{}1{}}}", "[".repeat(200), "]".repeat(200));
        assert_eq!(json(deep, FactType::Long), None);
        let many: Vec<String> = (0..100_000).map(|nth| format!("\"k{nth}\":0")).collect();
        let many = format!("{{\"a\":5,{}}}", many.join(","));
        assert_eq!(json(many, FactType::Long), None);
    }

    #[test]
    fn a_key_in_another_case_is_the_same_key_to_some_origins() {
        for content in [r#"{"a":5,"A":6}"#, r#"{"A":6}"#, r#"{"A":6,"a":5}"#] {
            assert_eq!(json(content, FactType::Long), None, "{content}");
        }
        // Elsewhere in the document both may appear.
        assert_eq!(
            json(r#"{"a":5,"b":{"c":1,"C":2}}"#, FactType::Long),
            long(5)
        );
        let kelvin = one(
            "application/json",
            "{\"k\":1,\"\u{212a}\":2}".as_bytes(),
            "/k",
            FactType::Long,
        );
        assert_eq!(kelvin, None);
        // Protocol Buffers have two spellings of each name.
        let protobuf = one(
            "application/json",
            br#"{"max_amount":5,"maxAmount":6}"#,
            "/max_amount",
            FactType::Long,
        );
        assert_eq!(protobuf, None);
        // Readers that use C strings end this name at NUL.
        assert_eq!(json(r#"{"a\u0000":6,"a":5}"#, FactType::Long), None);
        let long_s = one(
            "application/json",
            "{\"s\":1,\"\u{17f}\":2}".as_bytes(),
            "/s",
            FactType::Long,
        );
        assert_eq!(long_s, None);
    }

    #[test]
    fn a_pointer_leads_through_objects_and_lists() {
        let content = br#"{"m":[{"r":"x"},{"r":"y"}],"x/y":{"~":{"":3}}}"#;
        let at = |pointer: &str, wanted| one("application/json", content, pointer, wanted);
        assert_eq!(at("/m/1/r", FactType::String), text("y"));
        assert_eq!(at("/x~1y/~0/", FactType::Long), long(3));
        assert_eq!(at("/m/2/r", FactType::String), None);
        assert_eq!(at("/m/01/r", FactType::String), None);
        assert_eq!(at("/m/-/r", FactType::String), None);
    }

    #[test]
    fn a_value_that_a_form_has_twice_in_any_spelling_is_left_out() {
        assert_eq!(form("a=5&b=6", FactType::Long), long(5));
        for content in [
            "a=5&a=5",
            "a=5&A=6",
            "a=5&%61=6",
            "a=5&a[]=6",
            "a=5&a%5B0%5D=6",
            "a=5&+a=6",
            "a=5&$a=6",
            "a=5&a%00=6",
            "a=5&a",
            "a=5;a=6",
            "b=1;a=6&a=5",
            "a=5\na=6",
            "a=5&b=1;a",
            "a",
            "a[]=5",
            "A=5",
            "+a=5",
            "\u{feff}a=6&a=5",
            "{\"a\":6}&a=5",
            "a=5&_charset_=utf-7",
            "a=5&a\u{200b}=6",
            "a=5&[a]=6",
            "a=5&]a=6",
            "a=5&a[x]y=6",
            "a=5&b[=6",
            "a=5&.a=6",
            "a=5&%u0061=6",
            "a=5&%ff%61=6",
            "[a]=5",
        ] {
            assert_eq!(form(content, FactType::Long), None, "{content}");
        }
        let fields = HeaderMap::from_iter([(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        )]);
        for (query, expected) in [
            ("", long(5)),
            ("b=1", long(5)),
            ("a=6", None),
            ("%41=6", None),
        ] {
            let read = read(
                &fields,
                query,
                &as_it_is(b"a=5"),
                &[(&at("a"), FactType::Long)],
            );
            assert_eq!(read, [expected], "{query}");
        }
    }

    #[test]
    fn a_value_that_stands_in_the_query_too_is_left_out() {
        let read = |query: &str, location: &str| {
            let json = HeaderValue::from_static("application/json");
            let fields = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
            let content = as_it_is(br#"{"a":5,"b":{"c":5}}"#);
            read(&fields, query, &content, &[(&at(location), FactType::Long)]).remove(0)
        };
        for (query, location, expected) in [
            ("", "/a", long(5)),
            ("b=6", "/a", long(5)),
            ("a=6", "/a", None),
            ("x=1&%41[]=6", "/a", None),
            ("b[c]=6", "/b/c", None),
            ("b=6", "/b/c", None),
            ("b[d]=6", "/b/c", long(5)),
        ] {
            assert_eq!(read(query, location), expected, "{query} {location}");
        }
    }

    #[test]
    fn a_form_of_more_pairs_than_origins_read_is_left_out() {
        let after = |pairs: usize| format!("{}a=5", "b=1&".repeat(pairs));
        assert_eq!(form(after(999), FactType::Long), long(5));
        assert_eq!(form(after(1_000), FactType::Long), None);
        let long_value = |bytes: usize| format!("a=5&b={}", "x".repeat(bytes));
        assert_eq!(form(long_value(1 << 19), FactType::Long), long(5));
        assert_eq!(form(long_value(1 << 20), FactType::Long), None);
    }

    #[test]
    fn a_value_that_stands_in_the_coded_bytes_too_is_left_out() {
        let read = |kind: &'static str, plain: &[u8], coded: &[u8], location: &str| {
            let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            let content = PlainContent {
                coded: coded.to_vec().into(),
                ..as_it_is(plain)
            };
            read(&fields, "", &content, &[(&at(location), FactType::Long)]).remove(0)
        };
        let form = "application/x-www-form-urlencoded";
        let named = b"\x1f\x8b\x08\x08\0\0\0\0\0\xff&a=6&\0";
        assert_eq!(read(form, b"a=5", named, "a"), None);
        assert_eq!(read(form, b"a=5", b"\x1f\x8b\x08\x08&b=6&\0", "a"), long(5));
        assert_eq!(read(form, b"a=5", b" {\"a\":6}", "a"), None);
        assert_eq!(read(form, b"a=5", &b"&".repeat(65_536), "a"), None);
        let json = "application/json";
        assert_eq!(read(json, b"{\"a\":5}", b" {\"a\":6,\"a\":6}", "/a"), None);
        assert_eq!(
            read(json, b"{\"a\":5}", b"\x1f\x8b{\"a\":6}", "/a"),
            long(5)
        );
    }

    #[test]
    fn a_nested_name_of_a_form_is_doubled_by_what_is_above_or_below_it() {
        let nested = |content: &str| {
            let kind = "application/x-www-form-urlencoded";
            one(kind, content.as_bytes(), "card[number]", FactType::Long)
        };
        assert_eq!(nested("card[number]=5&card[cvc]=1"), long(5));
        assert_eq!(nested("card%5Bnumber%5D=5"), long(5));
        for content in [
            "card[number]=5&card=6",
            "card[number]=5&card[number][]=6",
            "card[number]=5&Card[Number]=6",
            "card[number]=5&card[]=6",
            "card[number]=5&[card][number]=6",
            "card[number]=5&card[number]x=6",
            "card[number]=5&card.number=6",
            "card[number]=5&card_number=6",
            "card[number]x=5",
        ] {
            assert_eq!(nested(content), None, "{content}");
        }
        let underscored = |content: &str| {
            let kind = "application/x-www-form-urlencoded";
            one(kind, content.as_bytes(), "max_amount", FactType::Long)
        };
        assert_eq!(underscored("max_amount=5&max=1"), long(5));
        for other in [
            "max.amount",
            "max+amount",
            "max[amount",
            "maxAmount",
            "max-amount",
        ] {
            let content = format!("max_amount=5&{other}=6");
            assert_eq!(underscored(&content), None, "{content}");
        }
    }

    #[test]
    fn content_is_read_by_its_one_declared_type() {
        let json_type = |kind: &str| one(kind, b"{\"a\":5}", "/a", FactType::Long);
        for kind in [
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/vnd.api+json",
            "application/json; charset=\"utf-8\"",
            "application/json;profile=x",
        ] {
            assert_eq!(json_type(kind), long(5), "{kind}");
        }
        for kind in [
            "",
            "text/plain",
            "text/json",
            "application/jsonx",
            "application/json, text/plain",
            "application/json; charset=utf-16",
            "application/json; charset=latin1",
            "application/json; charset=utf-8; charset=utf-16",
            "multipart/form-data; boundary=x",
            "application/x-www-form-urlencoded",
            "application/json+x",
            "+json",
            "a/b/c+json",
            "application/json; charset",
            "application/json; charset='utf-8'",
        ] {
            assert_eq!(json_type(kind), None, "{kind}");
        }
        let mut fields = HeaderMap::new();
        fields.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let content = as_it_is(b"{\"a\":5}");
        let twice = read(&fields, "", &content, &[(&at("/a"), FactType::Long)]);
        assert_eq!(twice, [None]);
    }
}
