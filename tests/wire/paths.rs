//! Group F: path, query and method are forwarded as they were judged.

use crate::rig::way::Way;
use crate::rig::{OTHER, Rig};
use crate::rows;
use crate::verdicts::{allowed, refused_everywhere};

rows![
    dot_segments_are_resolved_before_the_verdict,
    paths_with_two_readings_are_refused,
    what_is_forwarded_is_what_was_judged,
    prefixes_end_with_segments,
    every_reading_of_a_query_is_judged,
    the_method_that_was_judged_is_the_method,
    fields_that_override_the_target_are_removed,
    a_path_that_a_field_names_is_judged_like_the_requests_own,
    content_of_any_method_is_framed_anew,
];

fn get(path: &str) -> String {
    format!("GET {{T}}{path} HTTP/1.1\r\nHost: {{H}}\r\n\r\n")
}

/// F01: every spelling of a denied path is denied.
fn dot_segments_are_resolved_before_the_verdict(rig: &Rig) {
    for path in [
        "/public/../secret",
        "/public/%2e%2e/secret",
        "/public/%2E%2e/secret",
        "/public/.%2e/secret",
        "/public/%2e./secret",
        "/./secret",
        "/%2e/secret",
        "/a/b/../../secret/x",
        "/%73%65%63%72%65%74",
        "/secret/.",
        "/secret/x/..",
        "/secret/",
        "/x/..//../secret",
    ] {
        refused_everywhere(rig, &Way::ALL, OTHER, &get(path), 403, "policy_forbids");
    }
    for path in [
        "/..",
        "/../x",
        "/%2e%2e/x",
        "/a/../../x",
        "/a/%2e%2e/.%2e/x",
    ] {
        refused_everywhere(rig, &Way::ALL, OTHER, &get(path), 400, "path");
    }
}

/// F02, F03, F04, F05.
fn paths_with_two_readings_are_refused(rig: &Rig) {
    for path in [
        "/public/..;/secret",
        "/public/..;a=b/secret",
        "/public/..%3bx/secret",
        "/public/..%3B/secret",
        "/public/.;/secret",
        "/public/%2e%2e;/secret",
        "/repos/o/r..\\x",
        "/a\\..\\secret",
        "/a%5c..%5csecret",
        "/a%5Cb",
        "/a%2fsecret",
        "/a%2Fb",
        "/..%2fsecret",
        "/%252e%252e/secret",
        "/a%252fb",
        "/a%255cb",
        "/%2573ecret",
        "/secre%2574/x",
        "/%25252573ecret",
        "/%25u0073ecret",
        "/x%00",
        "/x%00.txt",
        "/x%0d%0aHost:evil",
        "/x%0a",
        "/x%1f",
        "/x%7f",
        "/x%c0%ae",
        "/x%c0%af",
        "/x%e0%80%ae",
        "/x%ff",
        "/x%zz",
        "/x%",
        "/x%4",
        "/x%u002e",
        "/x#fragment",
        "/\u{2025}/secret",
        "/x\u{2025};/\u{ff0e}\u{ff0e}/secret",
    ] {
        refused_everywhere(rig, &Way::ALL, OTHER, &get(path), 400, "path");
    }
}

/// F01, F04: the origin receives the canonical bytes.
fn what_is_forwarded_is_what_was_judged(rig: &Rig) {
    for (path, forwarded) in [
        ("/a/../x", "/x"),
        ("/a/./x", "/a/x"),
        ("/%61/%7e%2D", "/a/~-"),
        ("/x%3a%40", "/x%3A%40"),
        ("//x", "//x"),
        ("/a//b/", "/a//b/"),
        ("/x?a=%2f%2F", "/x?a=%2F%2F"),
        ("/x?a=..%2fsecret", "/x?a=..%2Fsecret"),
        ("/x?a;b", "/x?a%3Bb"),
        ("/x?", "/x?"),
        ("/x/%e2%82%ac", "/x/%E2%82%AC"),
        ("/Z\u{fc}rich?q=\u{20ac}", "/Z%C3%BCrich?q=%E2%82%AC"),
        ("/x?a=\\b", "/x?a=%5Cb"),
    ] {
        for way in Way::ALL {
            let answer = rig.ask(way, OTHER, &get(path));
            let record = rig.record(way);
            assert_eq!(answer.status, 200, "{way:?} {path} {answer:?}");
            let seen = rig.seen().remove(0);
            assert_eq!(seen.target, forwarded, "{way:?} {path}");
            assert_eq!(
                record["path"],
                forwarded.split('?').next().unwrap(),
                "{way:?} {path}"
            );
        }
    }
}

/// F07.
fn prefixes_end_with_segments(rig: &Rig) {
    for way in Way::ALL {
        for path in [
            "/secrets",
            "/secret-evil",
            "/secret.txt",
            "/x/secret",
            "/Secret",
        ] {
            allowed(rig, way, OTHER, &get(path));
        }
        for path in [
            "/secret",
            "/secret/",
            "/secret/a/b",
            "/secret?x",
            "/admin",
            "/admin/x",
            "//secret",
            "/secret;x/y",
            "/;x/secret",
            "/secret%3Bx",
        ] {
            assert_eq!(
                rig.ask(way, OTHER, &get(path)).status,
                403,
                "{way:?} {path}"
            );
            rig.record(way);
        }
    }
    rig.seen();
}

/// F08.
fn every_reading_of_a_query_is_judged(rig: &Rig) {
    // A bare `;` is forwarded as `%3B`, so no origin reads a second parameter that was not judged.
    for way in Way::ALL {
        allowed(rig, way, OTHER, &get("/x?a=b;repo=bad"));
        assert_eq!(rig.seen().remove(0).target, "/x?a=b%3Brepo=bad", "{way:?}");
    }
    for query in [
        "repo=bad",
        "repo=ok&repo=bad",
        "repo=bad&repo=ok",
        "repo[]=bad",
        "repo%5B%5D=bad",
        "r%65po=bad",
        "repo=b%61d",
        "a=b%26repo=x&repo=bad",
        "=&repo=bad",
        "&&repo=bad",
        "REPO=bad",
    ] {
        refused_everywhere(
            rig,
            &Way::ALL,
            OTHER,
            &get(&format!("/x?{query}")),
            403,
            "policy_forbids",
        );
    }
}

/// F09.
fn the_method_that_was_judged_is_the_method(rig: &Rig) {
    for query in [
        "_method=DELETE",
        "a=b&_method=delete",
        "%5fmethod=DELETE",
        "$httpMethod=DELETE",
        "%24httpMethod=DELETE",
        "+_method=DELETE",
        ".method=DELETE",
        "[_method]=DELETE",
        "_method[]=DELETE",
    ] {
        refused_everywhere(
            rig,
            &Way::ALL,
            OTHER,
            &get(&format!("/x?{query}")),
            400,
            "method_override",
        );
    }
    for query in [
        "$httpHeaders=Authorization:%20Bearer%20x",
        "a&%24HttpHeaders=x",
        "$ct=text/plain",
    ] {
        refused_everywhere(
            rig,
            &Way::ALL,
            OTHER,
            &get(&format!("/x?{query}")),
            400,
            "field_override",
        );
    }
    for way in Way::ALL {
        let template = "POST {T}/x HTTP/1.1\r\nHost: {H}\r\nX-HTTP-Method-Override: DELETE\r\nX-Method-Override: DELETE\r\nX-HTTP-Method: DELETE\r\nContent-Length: 0\r\n\r\n";
        allowed(rig, way, OTHER, template);
        let seen = rig.seen().remove(0);
        assert_eq!(seen.method, "POST");
        assert!(
            !seen.fields.iter().any(|(name, _)| name.contains("method")),
            "{way:?} {seen:?}"
        );
    }
}

/// F10.
fn fields_that_override_the_target_are_removed(rig: &Rig) {
    let names = [
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-Forwarded-Host",
        "X-Forwarded-Prefix",
        "X-Forwarded-Proto",
        "X-Forwarded-For",
        "X-Envoy-Original-Path",
        "Forwarded",
        "X-Host",
        "X-Original-Host",
        "X-Forwarded-Server",
        "X-Real-IP",
        "True-Client-IP",
    ];
    let lines: String = names
        .iter()
        .map(|name| format!("{name}: /secret\r\n"))
        .collect();
    for way in Way::ALL {
        allowed(
            rig,
            way,
            OTHER,
            &format!("GET {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\n{lines}X-Kept: 1\r\n\r\n"),
        );
        let seen = rig.seen().remove(0);
        for name in names {
            assert!(seen.all(&name.to_lowercase()).is_empty(), "{way:?} {name}");
        }
        assert_eq!(seen.all("x-kept"), ["1"]);
    }
}

/// F10: what a request copies, or where it moves it to.
fn a_path_that_a_field_names_is_judged_like_the_requests_own(rig: &Rig) {
    let put = |field: &str| {
        format!(
            "PUT {{T}}/public/a HTTP/1.1\r\nHost: {{H}}\r\nContent-Length: 0\r\n{field}\r\n\r\n"
        )
    };
    for field in [
        "Destination: /secret/a",
        "X-Copy-From: secret/a",
        "X-Amz-Copy-Source: /secret/a",
        "X-Ms-Rename-Source: /public//../secret",
        "X-Goog-Copy-Source: secret/a",
        "X-Matched-Path: /secret",
    ] {
        let reason = match field.contains("..") {
            true => "policy_unjudged",
            false => "policy_forbids",
        };
        refused_everywhere(rig, &Way::ALL, OTHER, &put(field), 403, reason);
    }
    for field in [
        "Destination: https://elsewhere.test/public/a",
        "X-Amz-Copy-Source: public%2Fa",
        "X-Copy-From: public/%61",
    ] {
        refused_everywhere(rig, &Way::ALL, OTHER, &put(field), 403, "policy_unjudged");
    }
    for way in Way::ALL {
        allowed(rig, way, OTHER, &put("Destination: /public/b"));
        assert_eq!(rig.seen().remove(0).all("destination"), ["/public/b"]);
    }
    for way in Way::SECURE {
        let own = format!("Destination: https://{OTHER}/public/b");
        allowed(rig, way, OTHER, &put(&own));
        rig.seen();
    }
}

/// F11: content of a GET is forwarded whole, and is never the next request.
fn content_of_any_method_is_framed_anew(rig: &Rig) {
    let inner = "GET /smuggled HTTP/1.1\r\nHost: other.rig.test\r\n\r\n";
    for way in Way::ALL {
        for method in ["GET", "HEAD", "OPTIONS", "PUT", "PATCH"] {
            for chunked in [false, true] {
                let (framing, body) = if chunked {
                    (
                        "Transfer-Encoding: chunked".to_owned(),
                        format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len()),
                    )
                } else {
                    (format!("Content-Length: {}", inner.len()), inner.to_owned())
                };
                let template =
                    format!("{method} {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\n{framing}\r\n\r\n{body}");
                let mut wire = rig.open(way, OTHER);
                wire.send(&rig.fill(way, OTHER, &template));
                let head = wire.line(b"\r\n\r\n").unwrap_or_default();
                assert!(
                    head.starts_with(b"HTTP/1.1 200"),
                    "{way:?} {method} {}",
                    String::from_utf8_lossy(&head)
                );
                rig.record(way);
                let seen = rig.seen();
                assert_eq!(
                    (seen.len(), seen[0].body.as_slice()),
                    (1, inner.as_bytes()),
                    "{way:?} {method} {chunked}"
                );
                let framings =
                    seen[0].all("content-length").len() + seen[0].all("transfer-encoding").len();
                assert_eq!(framings, 1, "{way:?} {method}: {seen:?}");
            }
        }
    }
}
