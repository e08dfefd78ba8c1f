//! Tests of targets: one spelling for each, and targets that have none.

use super::*;
use proptest::prelude::*;

fn parsed_with(text: &[u8], slashes: EncodedSlash) -> String {
    RequestTarget::parse(text, slashes)
        .map(|t| t.path_and_query().to_string())
        .unwrap_or_else(|e| format!("!{e:?}"))
}

fn parsed(text: &str) -> String {
    parsed_with(text.as_bytes(), EncodedSlash::Refuse)
}

#[test]
fn dot_segments_are_resolved_and_never_climb_above_the_root() {
    for (text, canonical) in [
        ("/", "/"),
        ("/a/./b", "/a/b"),
        ("/a/../b", "/b"),
        ("/public/%2e%2e/secret", "/secret"),
        ("/public/%2E./secret", "/secret"),
        ("/public/.%2e/secret", "/secret"),
        ("/a/b/..", "/a/"),
        ("/a/b/.", "/a/b/"),
        ("/a/..", "/"),
        ("/a/../", "/"),
        ("/.", "/"),
        ("/a/", "/a/"),
        ("/...", "/..."),
        ("/.hidden/..x", "/.hidden/..x"),
        ("/a//../b", "/a/b"),
        ("/a/b?x=/../y", "/a/b?x=/../y"),
        ("/..", "!DotSegment"),
        ("/a/../../b", "!DotSegment"),
        ("/%2e%2e/b", "!DotSegment"),
        ("/public/..;/secret", "!DotSegment"),
        ("/public/..%3bx/", "!DotSegment"),
        ("/public/%2e%2e%3Bx/", "!DotSegment"),
        ("/public/.;x", "!DotSegment"),
        ("/public/;../x", "!DotSegment"),
        ("/a;v=1.2/b", "/a;v=1.2/b"),
    ] {
        assert_eq!(parsed(text), canonical, "{text}");
    }
}

#[test]
fn escapes_have_one_spelling() {
    for (text, canonical) in [
        ("/%7euser/%61", "/~user/a"),
        ("/a%3ab%c3%bc", "/a%3Ab%C3%BC"),
        ("/ü?ü", "/%C3%BC?%C3%BC"),
        ("/a b", "!Character"),
        ("/{id}|^`\"<>", "/%7Bid%7D%7C%5E%60%22%3C%3E"),
        ("/a[0]?a[]=1", "/a%5B0%5D?a[]=1"),
        ("/?a=%5b%41", "/?a=%5BA"),
        ("/?a;b=1", "/?a%3Bb=1"),
        ("/?a\\b", "/?a%5Cb"),
        ("/a//b///", "/a//b///"),
        ("//evil/x", "//evil/x"),
        ("/a?", "/a?"),
        ("/a?b?c", "/a?b?c"),
        ("/a%252g", "/a%252g"),
    ] {
        assert_eq!(parsed(text), canonical, "{text}");
    }
}

#[test]
fn what_origins_read_differently_is_refused() {
    for text in [
        "/r\\..\\x",
        "/a%5cb",
        "/a%5Cb",
        "/%00",
        "/a%0d%0ab",
        "/a%7f",
        "/a#b",
        "/a?b#c",
        "/a?b=%00",
        "/a\tb",
        "/a?\x7f",
    ] {
        assert_eq!(parsed(text), "!Character", "{text:?}");
    }
    for text in [
        "/%c0%ae",
        "/%zz",
        "/%u002e",
        "/%",
        "/%2",
        "/a%f",
        "/?a=%zz",
        "/?a=%",
        "/%ff",
        "/?a=%c0%ae",
        "/%+1",
        "/%-1",
    ] {
        assert_eq!(parsed(text), "!Escape", "{text}");
    }
    for byte in (0..=0x20_u8).chain(0x7f..=0xff) {
        let expected = if byte < 0x80 { "!Character" } else { "!Escape" };
        assert_eq!(
            parsed_with(&[b'/', byte], EncodedSlash::Keep),
            expected,
            "{byte:#x}"
        );
    }
}

#[test]
fn an_encoded_slash_passes_only_where_it_is_kept() {
    for text in [
        "/a%2fb",
        "/a%2Fb",
        "/%252e%252e/b",
        "/a%252fb",
        "/a%25252Fb",
        "/a%255cb",
        "/a%25%32%65",
        "/a%25%32%46",
    ] {
        assert_eq!(parsed(text), "!EncodedSlash", "{text}");
    }
    assert_eq!(parsed_with(b"/@a%2fb", EncodedSlash::Keep), "/@a%2Fb");
    for text in [
        "/a%252fb",
        "/a%2F%255cb",
        "/a%25252fb",
        "/a%252500",
        "/a%25250a",
    ] {
        assert_eq!(
            parsed_with(text.as_bytes(), EncodedSlash::Keep),
            "!EncodedSlash",
            "{text}"
        );
    }
    assert_eq!(parsed_with(b"/..%2fb", EncodedSlash::Keep), "!DotSegment");
    assert_eq!(
        parsed_with(b"/a%2f%2e%2e%2fb", EncodedSlash::Keep),
        "!DotSegment"
    );
    assert_eq!(parsed("/?a=%2f"), "/?a=%2F");
}

#[test]
fn no_further_decoding_brings_a_dot_segment_to_light() {
    for text in [
        "/p/1/%252e%252e/2",
        "/p/1/%252e%252e%252f2",
        "/p/1/%252e%252e%2f2",
        "/p/1/.%252e/2",
        "/p/1/%2e%252e/2",
        "/p/1/..%2f2",
        "/p/1/%25252e./2",
        "/p/1/%25%32%65./2",
        "/p/1/..%253Bx/2",
        "/p/1/%252e%252e;x/2",
        "/p/1/..%20/2",
        "/p/1/..%2520/2",
        "/p/1/%EF%BC%8E%EF%BC%8E/2",
        "/p/1/%E2%80%A5/2",
        "/p/1/.%E2%80%A4/2",
        "/p/1/x%EF%BC%8F../2",
        "/p/1/%25EF%25BC%258E./2",
        "/p/1/%25c0%25ae%25c0%25ae/2",
        "/p/1/%25e0%2580%25ae%25c0%25ae/2",
        "/p/1/%25f0%2580%2580%25ae./2",
        "/p/1/a%25c0%25af..%25c0%25af2",
        "/p/1/a%25c1%259cb/2",
        "/p/1/%25252525252525252525252e/2",
        "/p/1/%25u002e%25u002E/2",
        "/p/1/%25uff0e%25uFF0E/2",
        "/p/1/..%25U002f2",
        "/p/1/..%2525u005c2",
        "/p/1/..%23/2",
        "/p/1/..%3F/2",
    ] {
        for slashes in [EncodedSlash::Keep, EncodedSlash::Refuse] {
            let reading = parsed_with(text.as_bytes(), slashes);
            assert!(reading.starts_with('!'), "{text} {slashes:?}: {reading}");
        }
    }
    for text in [
        "/@scope%2Fname",
        "/projects/group%2Fproject/files/a%2Fb.txt",
        "/a%2520b",
        "/blobs/per%25cent",
        "/blobs/100%25e4",
        "/blobs/100%25up",
        "/blobs/what%3F%23",
        "/a/...",
        "/compare/main...feature",
        "/wiki/%E5%85%A8%EF%BC%8F%E8%A7%92",
        "/a%20/b",
    ] {
        assert_eq!(parsed_with(text.as_bytes(), EncodedSlash::Keep), text);
    }
}

#[test]
fn only_origin_form_is_a_target() {
    for text in ["", "*", "evil:443", "http://evil/", "a/b", "?a"] {
        assert_eq!(parsed(text), "!Form", "{text}");
    }
}

#[test]
fn length_and_parameters_are_bounded() {
    let path = format!("/{}", "a".repeat(8191));
    assert_eq!(parsed(&path), path);
    assert_eq!(parsed(&format!("{path}a")), "!TooLong");
    assert_eq!(parsed(&format!("/{}", "{".repeat(4000))), "!TooLong");
    let query = format!("/?{}", vec!["a"; 1000].join("&"));
    assert_eq!(parsed(&query), query);
    assert_eq!(parsed(&format!("{query}&a")), "!TooManyParameters");
    assert_eq!(TargetMalformed::TooManyParameters.reason().status(), 414);
}

#[test]
fn a_query_is_an_ordered_multimap() {
    let target = RequestTarget::parse(
        b"/?repo=ok&repo=b%61d+x&=v&empty&%72epo=3",
        EncodedSlash::Refuse,
    )
    .unwrap();
    let pairs: Vec<_> = target
        .query_pairs()
        .map(|(n, v)| (n.into_owned(), v.into_owned()))
        .collect();
    let expected = [
        ("repo", "ok"),
        ("repo", "bad x"),
        ("", "v"),
        ("empty", ""),
        ("repo", "3"),
    ];
    assert_eq!(pairs, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    assert_eq!(
        RequestTarget::parse(b"/a?", EncodedSlash::Refuse)
            .unwrap()
            .query_pairs()
            .count(),
        0
    );
}

#[test]
fn a_method_in_the_query_is_seen() {
    let overrides = |text: &str| {
        RequestTarget::parse(text.as_bytes(), EncodedSlash::Refuse)
            .unwrap()
            .overrides_method()
    };
    assert!(overrides("/?_method=DELETE"));
    assert!(overrides("/?a=1&%5FMethod=DELETE"));
    assert!(overrides("/?$httpMethod=PUT"));
    assert!(!overrides("/_method?method=DELETE"));
}

#[test]
fn fields_in_the_query_are_seen() {
    let overrides = |text: &str| {
        RequestTarget::parse(text.as_bytes(), EncodedSlash::Refuse)
            .unwrap()
            .overrides_fields()
    };
    for text in [
        "/?$httpHeaders=Authorization:x",
        "/?a&%24HTTPheaders=",
        "/?$ct=text/plain",
    ] {
        assert!(overrides(text), "{text}");
    }
    assert!(!overrides("/?httpHeaders=x&ct=y"));
}

#[test]
fn a_replaced_value_stays_one_value() {
    let target = RequestTarget::parse(b"/p/x?a=1&key=PH&b=2", EncodedSlash::Refuse).unwrap();
    let replaced = target.with_query_value(1, "s&c=r#t/../").unwrap();
    assert_eq!(
        replaced.path_and_query().as_str(),
        "/p/x?a=1&key=s%26c%3Dr%23t%2F..%2F&b=2"
    );
    assert_eq!(replaced.query_pairs().nth(1).unwrap().1, "s&c=r#t/../");
    assert_eq!(
        target.with_query_value(3, "x"),
        Err(TargetMalformed::NoSuchParameter)
    );
    assert!(!format!("{replaced:?}").contains("s%26c"));
}

#[test]
fn an_objects_key_is_resolved_in_nothing_and_has_one_form() {
    for (text, form) in [
        ("/b/../c/./d", "/b/../c/./d"),
        ("/b/%2e%2E/c", "/b/../c"),
        ("/b//c///", "/b//c///"),
        ("/b/a%2Fb%2fc", "/b/a/b/c"),
        ("/b/a%252Fb", "/b/a%252Fb"),
        ("/b/%7ea+b%2B%20%c3%a9", "/b/~a+b%2B%20%C3%A9"),
        ("/b/a;b%5Cc%0A?x=%2f", "/b/a;b%5Cc%0A?x=%2F"),
        ("/b/[x]{y}", "/b/%5Bx%5D%7By%7D"),
    ] {
        assert_eq!(
            parsed_with(text.as_bytes(), EncodedSlash::Key),
            form,
            "{text}"
        );
    }
    for text in ["/b/%00", "/b/%c0%ae", "/b/%zz", "/b/a b"] {
        assert!(
            RequestTarget::parse(text.as_bytes(), EncodedSlash::Key).is_err(),
            "{text}"
        );
    }
}

/// Escapes a text once more: all of it, only its percent signs, or everything but letters.
fn nested(text: &str, style: usize) -> String {
    let plain = |byte: u8| match style {
        0 => false,
        1 => byte != b'%' && byte.is_ascii_graphic(),
        _ => byte.is_ascii_alphanumeric(),
    };
    let escape = |byte: u8| {
        if plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02x}")
        }
    };
    text.bytes().map(escape).collect()
}

/// The segments that the most lenient origin reads from a path.
fn loosely_resolved(path: &str) -> Vec<String> {
    let wide = path.replace('\u{ff0e}', ".").replace('\u{2025}', "..");
    let mut segments: Vec<String> = Vec::new();
    for segment in wide.split(['/', '\\', '\u{ff0f}']) {
        match segment.split(';').next().unwrap_or_default().trim() {
            "" | "." => {}
            ".." => drop(segments.pop()),
            name => segments.push(name.to_owned()),
        }
    }
    segments
}

proptest! {
    #[test]
    fn canonicalising_twice_changes_nothing(text in "/[a-c./%25EeFf;?&=\\[{~0-9]{0,24}", mode in 0..3) {
        let slashes = [EncodedSlash::Keep, EncodedSlash::Refuse, EncodedSlash::Key][mode as usize];
        if let Ok(once) = RequestTarget::parse(text.as_bytes(), slashes) {
            prop_assert_eq!(&RequestTarget::parse(once.path_and_query().as_str().as_bytes(), slashes).unwrap(), &once);
            prop_assert_eq!(&RequestTarget::from_parsed(once.path_and_query(), slashes).unwrap(), &once);
        }
    }

    #[test]
    fn a_canonical_path_has_no_dot_segment(text in "/[a./%2e;]{0,24}") {
        if let Ok(target) = RequestTarget::parse(text.as_bytes(), EncodedSlash::Refuse) {
            prop_assert!(target.segments().all(|s| s != "." && s != ".."));
            prop_assert!(!target.path().contains("%2F"));
        }
    }

    #[test]
    fn however_often_an_origin_decodes_it_stays_below_what_was_judged(
        pieces in proptest::collection::vec((0..14_usize, 0..4_usize, 0..3_usize), 0..7),
        keep in proptest::bool::ANY,
    ) {
        const BITS: [&str; 14] = [
            "..", ".", "/", "\\", ";", "a", "%2e", " ", "\u{ff0e}", "\u{2025}", "..;", "/../", "\0", "\u{ff0f}",
        ];
        let mut text = String::from("/pin/");
        for (bit, depth, style) in pieces {
            let mut piece = BITS[bit].to_owned();
            for _ in 0..depth {
                piece = nested(&piece, style);
            }
            text.push_str(&piece);
        }
        let slashes = if keep { EncodedSlash::Keep } else { EncodedSlash::Refuse };
        if let Ok(target) = RequestTarget::parse(text.as_bytes(), slashes)
            && target.path().starts_with("/pin/")
        {
            let mut reading = target.path().to_owned();
            for times in 0..7 {
                let resolved = loosely_resolved(&reading);
                prop_assert!(resolved.first().is_some_and(|first| first == "pin"), "{text} {times}: {resolved:?}");
                reading = String::from_utf8_lossy(&percent_encoding::percent_decode_str(&reading).collect::<Vec<_>>()).into_owned();
            }
        }
    }

    #[test]
    fn a_substituted_value_reads_back(value in "[\\x01-\\x7fé]{0,20}") {
        let target = RequestTarget::parse(b"/?a=1&key=PH", EncodedSlash::Refuse).unwrap();
        let replaced = target.with_query_value(1, &value).unwrap();
        prop_assert_eq!(replaced.query_pairs().count(), 2);
        prop_assert_eq!(replaced.query_pairs().nth(1).unwrap().1, value);
    }
}
