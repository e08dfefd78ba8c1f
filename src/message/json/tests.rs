//! The strict walk of JSON, row by row.

use super::*;

fn whole(text: &str) -> Result<Json<'_>, JsonFault> {
    Json::read(text.as_bytes(), &Wanted::whole())
}

#[test]
fn values_are_found_where_they_stand() {
    let text = r#" { "a" : [1, {"b":2}] ,"c\"":"x,}\\ \u00e9\ud83d\ude00\/", "n":null } "#;
    let json = whole(text).unwrap();
    let found: Vec<_> = json.root().members().collect();
    let raw: Vec<_> = found.iter().map(|(name, one)| (*name, one.raw())).collect();
    assert_eq!(
        raw,
        [
            ("a", r#"[1, {"b":2}]"#),
            ("c\"", r#""x,}\\ \u00e9\ud83d\ude00\/""#),
            ("n", "null"),
        ]
    );
    let list: Vec<_> = found[0].1.elements().map(|(_, one)| one.raw()).collect();
    assert_eq!(list, ["1", r#"{"b":2}"#]);
    assert_eq!(found[1].1.text().as_deref(), Some("x,}\\ é😀/"));
    assert!(found[2].1.is_null());
}

#[test]
fn what_readers_take_for_two_documents_is_not_read() {
    for text in [
        "",
        " ",
        "{",
        "{}x",
        "{} {}",
        "{\"a\":1,}",
        "[1,]",
        "[,]",
        "{a:1}",
        "{'a':1}",
        "01",
        "+1",
        "1.",
        ".5",
        "1e",
        "1e400",
        "-",
        "NaN",
        "tru",
        "\"\t\"",
        "\"\\x\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\\u00e\"",
        "\"",
        "{\"a\"}",
        "{\"a\" 1}",
        "[1 2]",
        "\u{feff}{}",
        "{}\0",
        "{}//",
        "\u{a0}{}",
        "{\"\\ud800\":1}",
    ] {
        assert!(
            matches!(whole(text), Err(JsonFault::Malformed(_))),
            "{text:?}"
        );
    }
    assert!(Json::read(b"\"\xff\"", &Wanted::default()).is_err());
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"[{"b":{"a":1,"a":1}}]"#,
    ] {
        assert_eq!(whole(text).unwrap_err(), JsonFault::Doubled, "{text}");
    }
    for text in [
        "0",
        "-0",
        "1.50",
        "1E+5",
        "-1e-400",
        "\"\u{7f}\"",
        "{}",
        "[[]]",
        " [ { } , [ ] ] ",
    ] {
        assert!(whole(text).is_ok(), "{text}");
    }
    let nested = |depth: usize| whole(&("[".repeat(depth) + &"]".repeat(depth))).is_ok();
    assert!(nested(127) && !nested(128) && !nested(1_000_000));
}

#[test]
fn what_is_kept_is_bounded_by_what_is_wanted() {
    let many = format!("{{\"a\":[{}1],\"b\":{{\"c\":7}}}}", "1,".repeat(100_000));
    assert_eq!(whole(&many).unwrap_err(), JsonFault::Excess);
    let mut wanted = Wanted::default();
    wanted.member_of("B").member_of("c");
    wanted.member_of("a").texts();
    let json = Json::read(many.as_bytes(), &wanted).unwrap();
    let c = json.root().member("b").and_then(|one| one.member("c"));
    assert_eq!(c.and_then(Value::number), Some(7));
    let kept = json.root().member("a").unwrap().elements().len();
    assert_eq!(kept, MOST_TEXTS + 1);
    let names: Vec<String> = (0..70_000).map(|nth| format!("\"k{nth}\":0")).collect();
    let names = format!("{{{}}}", names.join(","));
    let read = Json::read(names.as_bytes(), &Wanted::default());
    assert_eq!(read.unwrap_err(), JsonFault::Excess);
}
