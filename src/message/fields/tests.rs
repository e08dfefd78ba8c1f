//! Tests of fields: which end at this hop, which steer, and which are single-valued.

use http::Version;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

fn map(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(n, v)| {
            (
                HeaderName::from_bytes(n.as_bytes()).unwrap(),
                HeaderValue::from_str(v).unwrap(),
            )
        })
        .collect()
}

fn names(fields: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<_> = fields.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn hop_by_hop_and_nominated_fields_go() {
    let mut fields = map(&[
        ("connection", "keep-alive, X-Hop"),
        ("connection", "upgrade,  x-other ,"),
        ("keep-alive", "5"),
        ("proxy-connection", "close"),
        ("proxy-authorization", "Basic x"),
        ("te", "gzip, Trailers"),
        ("upgrade", "websocket"),
        ("http2-settings", "AA"),
        ("x-hop", "1"),
        ("x-other", "1"),
        ("x-kept", "1"),
    ]);
    let removed = strip_hop_by_hop(&mut fields);
    assert_eq!(names(&fields), ["x-kept"]);
    assert!(removed.te_trailers);
    assert_eq!(removed.upgrade.unwrap(), "websocket");
}

#[test]
fn an_upgrade_that_connection_does_not_name_is_none() {
    assert_eq!(
        strip_hop_by_hop(&mut map(&[("upgrade", "websocket")])).upgrade,
        None
    );
}

#[test]
fn end_to_end_fields_cannot_be_nominated() {
    let kept = [
        "authorization",
        "content-type",
        "cookie",
        "host",
        "x-amz-date",
        "x-api-key",
    ];
    let mut fields: HeaderMap = map(&kept.map(|name| (name, "v")));
    fields.insert(
        "connection",
        HeaderValue::from_static(
            "Authorization, Host, X-Amz-Date, Cookie, content-type, x-api-key",
        ),
    );
    strip_hop_by_hop(&mut fields);
    assert_eq!(names(&fields), kept);
}

#[test]
fn overrides_go() {
    let mut fields = map(&[
        ("x-http-method-override", "DELETE"),
        ("x-original-url", "/admin"),
        ("x-forwarded-host", "evil"),
        ("x-forwarded-anything", "evil"),
        ("forwarded", "host=evil"),
        ("x-envoy-original-path", "/admin"),
        ("x-kept", "1"),
    ]);
    strip_overrides(&mut fields);
    assert_eq!(names(&fields), ["x-kept"]);
}

#[test]
fn a_field_with_one_value_stands_once() {
    let check = |pairs| super::check(&map(pairs), Version::HTTP_11);
    assert_eq!(
        check(&[
            ("host", "a"),
            ("accept", "a"),
            ("accept", "b"),
            ("cookie", "a"),
            ("cookie", "b")
        ]),
        Ok(())
    );
    assert_eq!(
        check(&[("host", "a"), ("host", "a")]),
        Err(FieldsMalformed::HostCount)
    );
    assert_eq!(
        check(&[("content-length", "1"), ("content-length", "1")]),
        Err(FieldsMalformed::Framing)
    );
    assert_eq!(
        check(&[
            ("transfer-encoding", "chunked"),
            ("transfer-encoding", "chunked")
        ]),
        Err(FieldsMalformed::Framing)
    );
    assert_eq!(
        check(&[("authorization", "a"), ("authorization", "b")]),
        Err(FieldsMalformed::Duplicate)
    );
    assert_eq!(
        check(&[("x-api-key", "a"), ("x-api-key", "b")]),
        Err(FieldsMalformed::Duplicate)
    );
}

#[test]
fn an_underscore_does_not_make_another_name() {
    let check = |name| super::check(&map(&[(name, "v")]), Version::HTTP_11);
    for name in [
        "content_length",
        "x_api_key",
        "x_forwarded_host",
        "transfer_encoding",
        "x-api_key",
        "x_amz_date",
        "x_original_url",
    ] {
        assert_eq!(check(name), Err(FieldsMalformed::Alias), "{name}");
    }
    assert_eq!(check("x_my_field"), Ok(()));
    assert!(reads_as(
        &HeaderName::from_static("my_key"),
        &HeaderName::from_static("my-key")
    ));
    assert!(!reads_as(
        &HeaderName::from_static("mykey"),
        &HeaderName::from_static("my-key")
    ));
}

#[test]
fn two_fields_that_are_one_to_some_origins_are_refused() {
    for names in [
        ["x-a", "x_a"],
        ["x.a", "x_a"],
        ["x_role", "x-role"],
        ["x!a", "x-a"],
        ["_x", "-x"],
    ] {
        let fields = map(&[(names[0], "1"), (names[1], "2")]);
        assert_eq!(
            super::check(&fields, Version::HTTP_2),
            Err(FieldsMalformed::Alias),
            "{names:?}"
        );
    }
    assert_eq!(
        super::check(&map(&[("x_a", "1"), ("x-b", "2")]), Version::HTTP_11),
        Ok(())
    );
}

#[test]
fn names_are_letters_digits_and_dashes_unless_that_is_said() {
    for (name, everywhere, where_said) in [
        ("x-role-2", true, true),
        ("x_role", false, true),
        ("x.role", false, true),
        ("x-amz-meta-file_name", true, true),
        ("x-ms-meta-a.b", true, true),
        ("x_amz_meta_a", false, true),
        ("x-amz-meta-a~b", false, false),
        ("x!role", false, false),
        ("x+role", false, false),
        ("x|role", false, false),
    ] {
        let fields = map(&[(name, "v")]);
        assert_eq!(check_names(&fields, false).is_ok(), everywhere, "{name}");
        assert_eq!(check_names(&fields, true).is_ok(), where_said, "{name}");
    }
    assert_eq!(
        super::check(&map(&[("x-amz-meta-file_name", "v")]), Version::HTTP_11),
        Ok(())
    );
    assert!(!is_request_trailer("grpc-a_b") && is_request_trailer("grpc-status"));
}

#[test]
fn the_proxy_of_cgi_programs_is_removed() {
    let mut fields = map(&[("proxy", "http://evil.example"), ("x-kept", "1")]);
    strip_overrides(&mut fields);
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["x-kept"]);
}

#[test]
fn fields_are_bounded() {
    let many = |count: usize| {
        (0..count)
            .map(|_| {
                (
                    HeaderName::from_static("x-a"),
                    HeaderValue::from_static("v"),
                )
            })
            .collect::<HeaderMap>()
    };
    assert_eq!(check(&many(100), Version::HTTP_11), Ok(()));
    assert_eq!(
        check(&many(101), Version::HTTP_11),
        Err(FieldsMalformed::TooLarge)
    );
    let long = |size: usize| map(&[("x-a", &"v".repeat(size - 7))]);
    assert_eq!(check(&long(32 * 1024), Version::HTTP_2), Ok(()));
    assert_eq!(
        check(&long(32 * 1024 + 1), Version::HTTP_2),
        Err(FieldsMalformed::TooLarge)
    );
}

#[test]
fn http2_has_no_connection_specific_field() {
    for name in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ] {
        assert_eq!(
            check(&map(&[(name, "chunked")]), Version::HTTP_2),
            Err(FieldsMalformed::Framing),
            "{name}"
        );
        assert_eq!(
            check(&map(&[(name, "chunked")]), Version::HTTP_11),
            Ok(()),
            "{name}"
        );
    }
    assert_eq!(check(&map(&[("te", "trailers")]), Version::HTTP_2), Ok(()));
    assert_eq!(
        check(&map(&[("te", "gzip")]), Version::HTTP_2),
        Err(FieldsMalformed::Framing)
    );
}

#[test]
fn white_space_at_the_edges_of_a_value_is_removed() {
    for (value, trimmed) in [
        (" v", "v"),
        ("v ", "v"),
        ("\ta b\t", "a b"),
        (" ", ""),
        ("", ""),
    ] {
        let mut fields = map(&[("x-a", value)]);
        trim(&mut fields);
        assert_eq!(fields["x-a"], trimmed, "{value:?}");
    }
}

#[test]
fn cookies_become_one_field() {
    let mut fields = map(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2; c=3")]);
    join_cookies(&mut fields);
    assert_eq!(
        fields.get_all("cookie").iter().collect::<Vec<_>>(),
        ["a=1; b=2; c=3"]
    );
}

#[test]
fn request_trailers_only_speak_of_the_content() {
    let mut trailers = map(&[
        ("x-amz-checksum-crc32", "AAAA"),
        ("grpc-status", "0"),
        ("authorization", "PH"),
        ("host", "evil"),
        ("content-length", "1"),
        ("x-role", "admin"),
    ]);
    filter_request_trailers(&mut trailers);
    assert_eq!(names(&trailers), ["grpc-status", "x-amz-checksum-crc32"]);
}

#[test]
fn answers_neither_steer_nor_speak_for_the_gateway() {
    let mut fields = map(&[
        ("alt-svc", "h3=\"evil:443\""),
        ("proxy-status", "x"),
        ("proxy-authenticate", "Basic"),
        ("connection", "close, x-hop"),
        ("x-hop", "1"),
        ("set-cookie", "a=1"),
        ("content-type", "text/plain"),
    ]);
    strip_response(&mut fields);
    assert_eq!(names(&fields), ["content-type", "set-cookie"]);
    let mut trailers = map(&[
        ("grpc-message", "ok"),
        ("my-metadata", "x"),
        ("set-cookie", "a"),
        ("content-length", "1"),
        ("transfer-encoding", "x"),
    ]);
    filter_response_trailers(&mut trailers);
    assert_eq!(names(&trailers), ["grpc-message", "my-metadata"]);
}

proptest! {
    #[test]
    fn what_passes_has_no_two_names_that_are_one_to_any_origin(names in proptest::collection::vec("[ab_.!-]{1,4}", 0..6)) {
        let fields: HeaderMap = names
            .iter()
            .map(|name| (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_static("v")))
            .collect();
        if super::check(&fields, Version::HTTP_11).is_ok() {
            let folded: std::collections::HashSet<_> = fields.keys().map(|name| folded_name(name.as_str())).collect();
            prop_assert_eq!(folded.len(), fields.keys_len());
        }
    }
}
