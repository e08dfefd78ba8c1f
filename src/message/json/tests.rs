//! The strict walk of JSON, row by row.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::Value as Tree;

use super::*;

fn whole(text: &str) -> Result<Json<'_>, JsonFault> {
    Json::read(text.as_bytes(), &JsonParts::whole())
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
    assert!(Json::read(b"\"\xff\"", &JsonParts::default()).is_err());
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
    let mut wanted = JsonParts::default();
    wanted.member_of("B").member_of("c");
    wanted.member_of("a").texts();
    let json = Json::read(many.as_bytes(), &wanted).unwrap();
    let c = json.root().member("b").and_then(|one| one.member("c"));
    assert_eq!(c.and_then(Value::number), Some(7));
    let kept = json.root().member("a").unwrap().elements().len();
    assert_eq!(kept, MOST_TEXTS + 1);
    let names: Vec<String> = (0..70_000).map(|nth| format!("\"k{nth}\":0")).collect();
    let names = format!("{{{}}}", names.join(","));
    let read = Json::read(names.as_bytes(), &JsonParts::default());
    assert_eq!(read.unwrap_err(), JsonFault::Excess);
}

/// What another parser would make of the value.
fn tree(value: Value<'_>) -> Tree {
    let text = || value.text().map(|text| Tree::from(&*text));
    if value.is_object() {
        let members = value.members();
        Tree::Object(
            members
                .map(|(name, one)| (name.to_owned(), tree(one)))
                .collect(),
        )
    } else if value.is_list() {
        Tree::Array(value.elements().map(|(_, one)| tree(one)).collect())
    } else {
        text().unwrap_or_else(|| value.raw().parse().unwrap())
    }
}

fn any_tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::from),
        any::<i64>().prop_map(Tree::from),
        any::<i32>().prop_map(|number| Tree::from(f64::from(number) / 8.0)),
        any::<String>().prop_map(Tree::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let members = btree_map(any::<String>(), inner.clone(), 0..6);
        prop_oneof![
            vec(inner, 0..6).prop_map(Tree::Array),
            members.prop_map(|all| Tree::Object(all.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_document_that_is_written_is_read(written in any_tree(), is_wide: bool) {
        let text = if is_wide { format!("{written:#}") } else { written.to_string() };
        prop_assert_eq!(tree(whole(&text).unwrap().root()), written);
    }
}
