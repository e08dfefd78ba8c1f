//! Group E: framing and integrity of HTTP/1.

use std::time::Duration;

use crate::rig::origin::Step;
use crate::rig::way::Way;
use crate::rig::{GOOD, MONEY, OTHER, Rig};
use crate::rows;
use crate::verdicts::{allowed, refused, refused_everywhere};

rows![
    a_plain_request_passes_on_every_listener,
    content_is_told_in_exactly_one_way,
    chunks_are_exactly_chunks,
    lines_and_fields_have_one_reading,
    a_head_has_one_host_and_a_known_version,
    pipelined_requests_are_judged_one_by_one,
    each_request_of_a_connection_is_judged_by_itself,
    content_behind_a_refusal_is_never_a_request,
    only_an_upgrade_to_websocket_is_possible,
    a_101_that_nobody_asked_for_ends_both_sides,
    http2_without_tls_is_not_spoken,
    expectations_other_than_continue_are_refused,
    an_answer_with_two_lengths_never_reaches_the_next_client,
    methods_are_exact_tokens_and_never_reflect,
    what_ends_at_this_hop_is_not_forwarded,
    trailers_carry_no_fields_that_matter,
    one_credential_field_reaches_the_origin,
    every_line_of_a_field_is_judged,
    too_much_head_is_refused,
    a_head_that_never_ends_is_given_up,
];

fn a_plain_request_passes_on_every_listener(rig: &Rig) {
    for way in Way::ALL {
        let answer = rig.ask(way, OTHER, "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n");
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (200, "E answers\n"),
            "{way:?}"
        );
        assert_eq!(rig.record(way)["decision"], "allow");
    }
    for way in Way::SECURE {
        let template =
            "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nAuthorization: Bearer {PH:bearer}\r\n\r\n";
        let answer = rig.ask(way, GOOD, template);
        assert_eq!(answer.status, 200, "{way:?} {answer:?}");
        assert_eq!(rig.record(way)["lent"].as_array().map(Vec::len), Some(1));
        let seen = rig.seen();
        assert_eq!(
            seen.last().unwrap().all("authorization"),
            [format!("Bearer {}", rig.secret("bearer"))]
        );
    }
}

/// E01, E02, E03: each is refused before anything is sent, and what follows it is never a request.
fn content_is_told_in_exactly_one_way(rig: &Rig) {
    let heads = [
        "Content-Length: 6\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 6",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -1",
        "Content-Length: 0x5",
        "Content-Length: 5_0",
        "Content-Length: 05",
        "Content-Length:",
        "Content-Length: 5 5",
        "Content-Length:\t5",
        "Content-Length: 18446744073709551616",
        "Content-Length: 9223372036854775808",
        "Content-Length: 5;",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: ,chunked",
        "Transfer-Encoding: chunked,",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: \tchunked",
        "Transfer-Encoding: chunked\t",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: identity",
        "Transfer-Encoding:",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: \u{a0}chunked",
    ];
    for head in heads {
        let template = format!(
            "POST {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\n{head}\r\n\r\n0\r\n\r\nGET {{T}}/smuggled HTTP/1.1\r\nHost: {{H}}\r\n\r\n"
        );
        refused_everywhere(rig, &Way::ALL, OTHER, &template, 400, "framing");
    }
    let template =
        "POST {T}/x HTTP/1.0\r\nHost: {H}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    refused_everywhere(rig, &Way::ALL, OTHER, template, 400, "framing");
}

/// E04: the head is valid, so the request is judged, but E never gets a complete one, and nothing
/// after it.
fn chunks_are_exactly_chunks(rig: &Rig) {
    let long = "a".repeat(17_000);
    let bodies = [
        "0x5\r\nhello\r\n0\r\n\r\n".to_owned(),
        "+5\r\nhello\r\n0\r\n\r\n".to_owned(),
        "-5\r\nhello\r\n0\r\n\r\n".to_owned(),
        " 5\r\nhello\r\n0\r\n\r\n".to_owned(),
        "5 \r\nhello\r\n0\r\n\r\n".to_owned(),
        "\r\nhello\r\n0\r\n\r\n".to_owned(),
        "ffffffffffffffff1\r\nhello\r\n0\r\n\r\n".to_owned(),
        "5\nhello\r\n0\r\n\r\n".to_owned(),
        "5\rhello\r\n0\r\n\r\n".to_owned(),
        "5\r\nhello\n0\r\n\r\n".to_owned(),
        "5\r\nhelloXX0\r\n\r\n".to_owned(),
        "5\r\nhello0\r\n\r\n".to_owned(),
        "5;\nx\r\nhello\r\n0\r\n\r\n".to_owned(),
        "5;a=\rb\r\nhello\r\n0\r\n\r\n".to_owned(),
        format!("5;{long}\r\nhello\r\n0\r\n\r\n"),
        "5;x=y\r\nhello\r\n0\r\n\r\n".to_owned(),
        "5\r\nhello\r\n0\n\r\n".to_owned(),
        "5\r\nhello\r\n0\r\n\n".to_owned(),
        "5\r\nhello\r\n0\r\nX: y\n\r\n".to_owned(),
        "5\r\nhello\r\n0\r\nX : y\r\n\r\n".to_owned(),
        "5\r\nhello\r\n0\r\n folded\r\n\r\n".to_owned(),
    ];
    // It streams, or is held because a policy reads it.
    for (body, (host, path)) in bodies
        .iter()
        .flat_map(|body| [(OTHER, "/x"), (MONEY, "/v1/refunds")].map(|to| (body, to)))
    {
        for way in Way::ALL {
            let template = format!(
                "POST {{T}}{path} HTTP/1.1\r\nHost: {{H}}\r\nTransfer-Encoding: chunked\r\n\r\n{body}GET {{T}}/smuggled HTTP/1.1\r\nHost: {{H}}\r\n\r\n"
            );
            let mut wire = rig.open(way, host);
            let answer = wire.ask(&rig.fill(way, host, &template));
            let record = rig.record(way);
            assert!(
                [0, 400].contains(&answer.status),
                "{way:?} {body:?} {answer:?}"
            );
            let outcome = (record["outcome"].as_str(), record["reason"].as_str());
            assert!(
                matches!(
                    outcome,
                    (_, Some("framing" | "trailer" | "syntax" | "client_left"))
                ),
                "{way:?} {body:?} {record}"
            );
            assert!(wire.is_over(), "{way:?} {body:?}");
            assert!(rig.seen().is_empty(), "{way:?} {body:?}");
        }
    }
    // The same without a fault is one whole request.
    for way in Way::ALL {
        let template = "POST {T}/x HTTP/1.1\r\nHost: {H}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        assert_eq!(rig.ask(way, OTHER, template).status, 200);
        rig.record(way);
        assert_eq!(rig.seen().remove(0).body, b"hello");
    }
}

/// E05.
fn lines_and_fields_have_one_reading(rig: &Rig) {
    for head in [
        "GET {T}/x HTTP/1.1\nHost: {H}\n\n",
        "GET {T}/x HTTP/1.1\r\nHost: {H}\nX: y\r\n\r\n",
        "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nX: a\rb\r\n\r\n",
        "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nX: a\0b\r\n\r\n",
        "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nX: a\x01b\r\n\r\n",
        "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nX: a\r\n folded\r\n\r\n",
        "GET {T}/x HTTP/1.1\r\n folded\r\nHost: {H}\r\n\r\n",
        "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nX : y\r\n\r\n",
        "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n: y\r\n\r\n",
        "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nno-colon\r\n\r\n",
        "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nX\u{e9}: y\r\n\r\n",
        "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nX(: y\r\n\r\n",
        "GET  {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n",
        "GET {T}/x  HTTP/1.1\r\nHost: {H}\r\n\r\n",
        "GET\t{T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n",
        " GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n",
        "\r\nGET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n",
    ] {
        for way in Way::ALL {
            let mut wire = rig.open(way, OTHER);
            let answer = wire.ask(&rig.fill(way, OTHER, head));
            let record = rig.record(way);
            let reason = record["reason"].as_str().unwrap_or_default();
            assert!(
                ["syntax", "method", "version", "path"].contains(&reason),
                "{way:?} {head:?} {record}"
            );
            assert_eq!(
                (answer.status, answer.reason().as_str()),
                (400, reason),
                "{way:?} {head:?}"
            );
            assert!(wire.is_over(), "{way:?} {head:?}");
        }
    }
}

/// A08, E15.
fn a_head_has_one_host_and_a_known_version(rig: &Rig) {
    for (head, status, reason) in [
        (
            "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nHost: {H}\r\n\r\n",
            400,
            "host_count",
        ),
        (
            "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nHost: evil.rig.test\r\n\r\n",
            400,
            "host_count",
        ),
        ("GET {T}/x HTTP/1.1\r\nX: y\r\n\r\n", 400, "host_count"),
        ("GET {T}/x HTTP/1.0\r\nX: y\r\n\r\n", 400, "host_count"),
        ("GET {T}/x HTTP/1.1\r\nHost:\r\n\r\n", 400, "host_count"),
        ("GET {T}/x HTTP/1.2\r\nHost: {H}\r\n\r\n", 505, "version"),
        ("GET {T}/x HTTP/2.0\r\nHost: {H}\r\n\r\n", 505, "version"),
        ("GET {T}/x HTTP/0.9\r\nHost: {H}\r\n\r\n", 505, "version"),
        ("GET {T}/x\r\n", 505, "version"),
        ("GET {T}/x HTTP/1.10\r\nHost: {H}\r\n\r\n", 400, "syntax"),
        ("GET {T}/x http/1.1\r\nHost: {H}\r\n\r\n", 400, "syntax"),
    ] {
        refused_everywhere(rig, &Way::ALL, OTHER, head, status, reason);
    }
}

/// E06.
fn pipelined_requests_are_judged_one_by_one(rig: &Rig) {
    for way in Way::ALL {
        let mut wire = rig.open(way, OTHER);
        let one = "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n";
        let two = "GET {T}/secret/x HTTP/1.1\r\nHost: {H}\r\n\r\n";
        let first = wire.ask(&rig.fill(way, OTHER, &format!("{one}{two}{one}")));
        let (second, third) = (wire.response(), wire.response());
        assert_eq!(
            [first.status, second.status, third.status],
            [200, 403, 200],
            "{way:?}"
        );
        let decisions: Vec<_> = rig
            .records(way, 3)
            .iter()
            .map(|record| record["decision"].clone())
            .collect();
        assert_eq!(decisions, ["allow", "deny", "allow"]);
        assert_eq!(rig.seen().len(), 2, "{way:?}");
    }
}

/// E07: path, method, credential and host are those of each request, whatever the first one was.
fn each_request_of_a_connection_is_judged_by_itself(rig: &Rig) {
    for way in Way::SECURE {
        let mut wire = rig.open(way, GOOD);
        let with = "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nAuthorization: Bearer {PH:bearer}\r\n\r\n";
        assert_eq!(wire.ask(&rig.fill(way, GOOD, with)).status, 200);
        let without = "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n";
        assert_eq!(wire.ask(&rig.fill(way, GOOD, without)).status, 200);
        let denied =
            "DELETE {T}/x HTTP/1.1\r\nHost: {H}\r\nAuthorization: Bearer {PH:bearer}\r\n\r\n";
        assert_eq!(wire.ask(&rig.fill(way, GOOD, denied)).status, 403);
        let elsewhere = "GET {T}/x HTTP/1.1\r\nHost: other.rig.test\r\n\r\n";
        let answer = wire.ask(&rig.fill(way, GOOD, elsewhere));
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (421, "authority_mismatch"),
            "{way:?}"
        );
        let seen = rig.seen();
        assert_eq!(seen[0].all("authorization").len(), 1);
        assert!(
            seen[1].all("authorization").is_empty(),
            "the second request inherits no credential"
        );
        assert_eq!((seen.len(), rig.records(way, 4).len()), (2, 4));
    }
}

/// E08.
fn content_behind_a_refusal_is_never_a_request(rig: &Rig) {
    let inner = "GET /smuggled HTTP/1.1\r\nHost: other.rig.test\r\n\r\n";
    for way in Way::ALL {
        let mut wire = rig.open(way, OTHER);
        let head = format!(
            "POST {{T}}/secret HTTP/1.1\r\nHost: {{H}}\r\nContent-Length: {}\r\n\r\n",
            200_000
        );
        let answer = wire.ask(&rig.fill(way, OTHER, &head));
        assert_eq!(answer.status, 403, "{way:?} {answer:?}");
        for _ in 0..200_000 / inner.len() {
            wire.send(inner.as_bytes());
        }
        wire.finish();
        let (rest, _) = wire.rest();
        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(!rest.contains("E answers"), "{way:?} {rest}");
        rig.record(way);
        assert!(rig.seen().is_empty());
    }
}

/// E09.
fn only_an_upgrade_to_websocket_is_possible(rig: &Rig) {
    // Any other is ignored (RFC 9110 §7.8), and what follows is judged.
    for way in Way::ALL {
        for protocol in ["foo", "TLS/1.2", "tcp", "SPDY/3.1", "h2c, websocket"] {
            let mut wire = rig.open(way, OTHER);
            let template = format!(
                "GET {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\nGET {{T}}/secret HTTP/1.1\r\nHost: {{H}}\r\n\r\n"
            );
            let answer = wire.ask(&rig.fill(way, OTHER, &template));
            assert_eq!(answer.status, 200, "{way:?} {protocol} {answer:?}");
            let next = wire.response();
            assert_eq!(next.status, 403, "{way:?} {protocol} {next:?}");
            rig.records(way, 2);
            let seen = rig.seen();
            assert!(
                seen.len() == 1 && seen[0].all("upgrade").is_empty(),
                "{seen:?}"
            );
        }
    }
    // A WebSocket that the origin declines stays HTTP: what is pipelined after it is judged.
    for way in Way::SECURE {
        let upgrade = "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
        let mut wire = rig.open(way, OTHER);
        let answer = wire.ask(&rig.fill(
            way,
            OTHER,
            &format!("{upgrade}GET {{T}}/secret HTTP/1.1\r\nHost: {{H}}\r\n\r\n"),
        ));
        assert_eq!(answer.status, 200, "{way:?} {answer:?}");
        let next = wire.response();
        assert!([0, 403].contains(&next.status), "{way:?} {next:?}");
        rig.records(way, if next.status == 0 { 1 } else { 2 });
        assert_eq!(rig.seen().len(), 1);
    }
}

/// E10.
fn a_101_that_nobody_asked_for_ends_both_sides(rig: &Rig) {
    let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: wrong\r\n\r\n";
    rig.origins
        .on("/101", |_| vec![Step::Bytes(switch.to_vec()), Step::Echo]);
    for way in Way::SECURE {
        let plain = "GET {T}/101 HTTP/1.1\r\nHost: {H}\r\n\r\n";
        let answer = rig.ask(way, OTHER, plain);
        assert_eq!(answer.status, 502, "{way:?} {answer:?}");
        let upgrade = "GET {T}/101 HTTP/1.1\r\nHost: {H}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
        let answer = rig.ask(way, OTHER, upgrade);
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (502, "bad_101"),
            "{way:?} {answer:?}"
        );
        rig.records(way, 2);
    }
}

/// E11.
fn http2_without_tls_is_not_spoken(rig: &Rig) {
    for way in Way::ALL {
        let template = "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
        let answer = rig.ask(way, OTHER, template);
        assert_eq!(answer.status, 200, "{way:?} {answer:?}");
        rig.record(way);
        let seen = rig.seen().remove(0);
        assert!(
            seen.all("upgrade").is_empty() && seen.all("http2-settings").is_empty(),
            "{seen:?}"
        );
    }
    for way in Way::ALL {
        let mut wire = rig.open(way, OTHER);
        wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        let answer = wire.response();
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (505, "version"),
            "{way:?} {answer:?}"
        );
        rig.record(way);
    }
}

/// E12.
fn expectations_other_than_continue_are_refused(rig: &Rig) {
    for expect in [
        "y 100-continue",
        "100-continue, x",
        "nothing",
        "100-continue\r\nExpect: 100-continue",
    ] {
        let template = format!(
            "POST {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\nExpect: {expect}\r\nContent-Length: 2\r\n\r\n"
        );
        refused_everywhere(rig, &Way::ALL, OTHER, &template, 417, "expectation");
    }
    // The verdict comes before 100: the content of a denied request is never asked for.
    for way in Way::ALL {
        let template = "POST {T}/secret HTTP/1.1\r\nHost: {H}\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
        let mut wire = rig.open(way, OTHER);
        wire.send(&rig.fill(way, OTHER, template));
        let first = wire.line(b"\r\n").unwrap();
        assert!(
            first.starts_with(b"HTTP/1.1 403"),
            "{way:?} {}",
            String::from_utf8_lossy(&first)
        );
        rig.record(way);
    }
    for way in Way::SECURE {
        let template =
            "POST {T}/x HTTP/1.1\r\nHost: {H}\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
        let mut wire = rig.open(way, OTHER);
        wire.send(&rig.fill(way, OTHER, template));
        let first = wire.line(b"\r\n\r\n").unwrap();
        assert!(
            first.starts_with(b"HTTP/1.1 100"),
            "{way:?} {}",
            String::from_utf8_lossy(&first)
        );
        assert_eq!(wire.ask(b"hi").status, 200);
        rig.record(way);
        assert_eq!(rig.seen().remove(0).body, b"hi");
    }
}

/// E13: what an origin sends beyond its response is never somebody else's response.
fn an_answer_with_two_lengths_never_reaches_the_next_client(rig: &Rig) {
    let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    for (path, head) in [
        (
            "/d1",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nab".to_owned(),
        ),
        (
            "/d2",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
        ),
        (
            "/d3",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab".to_owned(),
        ),
        (
            "/d4",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n".to_owned(),
        ),
        (
            "/d5",
            "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n".to_owned(),
        ),
        (
            "/d6",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n".to_owned(),
        ),
    ] {
        rig.origins.on(path, move |_| {
            vec![Step::Bytes([head.as_bytes(), poison.as_bytes()].concat())]
        });
        for way in Way::SECURE {
            let mut wire = rig.open(way, OTHER);
            let template = format!("GET {{T}}{path} HTTP/1.1\r\nHost: {{H}}\r\n\r\n");
            let answer = wire.ask(&rig.fill(way, OTHER, &template));
            assert!(
                !answer.text().contains("poison"),
                "{way:?} {path} {answer:?}"
            );
            rig.record(way);
            std::thread::sleep(Duration::from_millis(20));
            let next = rig.ask(way, OTHER, "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n");
            assert_eq!(next.text(), "E answers\n", "{way:?} {path}");
            rig.record(way);
        }
    }
    rig.ends();
    // A response whose content breaks off is reported as broken off.
    rig.origins.on("/short", |_| {
        vec![
            Step::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_vec()),
            Step::Close,
        ]
    });
    rig.origins.on("/unended", |_| {
        vec![
            Step::Bytes(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n".to_vec(),
            ),
            Step::Close,
        ]
    });
    for path in ["/short", "/unended"] {
        for way in Way::SECURE {
            let template = format!("GET {{T}}{path} HTTP/1.1\r\nHost: {{H}}\r\n\r\n");
            let answer = rig.ask(way, OTHER, &template);
            assert!(answer.body.ends_with(b"[cut]"), "{way:?} {path} {answer:?}");
            rig.record(way);
        }
    }
    assert!(rig.ends().iter().all(|end| end["outcome"] != "whole"));
}

/// E16, E17.
fn methods_are_exact_tokens_and_never_reflect(rig: &Rig) {
    for (method, status, reason) in [
        ("TRACE", 405, "method_prohibited"),
        ("TRACK", 405, "method_prohibited"),
        ("DEBUG", 405, "method_prohibited"),
        ("G=\":<", 400, "method"),
        ("GE(T", 400, "method"),
        ("get", 400, "method"),
        ("PROPFIND", 403, "policy_forbids"),
    ] {
        for way in Way::ALL {
            let template = format!("{method} {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\n\r\n");
            let answer = rig.ask(way, OTHER, &template);
            let record = rig.record(way);
            assert_eq!(answer.status, status, "{way:?} {method} {record}");
            assert_eq!(record["reason"], answer.reason(), "{way:?} {method}");
            if status != 403 {
                assert_eq!(answer.reason(), reason, "{way:?} {method}");
            }
        }
    }
    let long = format!(
        "{} {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\n\r\n",
        "M".repeat(1024)
    );
    refused_everywhere(rig, &Way::ALL, OTHER, &long, 400, "method");
    for way in Way::SECURE {
        refused(
            rig,
            way,
            OTHER,
            "OPTIONS * HTTP/1.1\r\nHost: {H}\r\n\r\n",
            400,
            "target_form",
        );
        refused(
            rig,
            way,
            OTHER,
            "GET * HTTP/1.1\r\nHost: {H}\r\n\r\n",
            400,
            "target_form",
        );
    }
}

/// E18.
fn what_ends_at_this_hop_is_not_forwarded(rig: &Rig) {
    for way in Way::SECURE {
        let template = "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nConnection: Authorization, Host, X-Mine, close\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic cHJveHk6cHJveHk=\r\nX-Mine: 1\r\nX-Kept: 1\r\nAuthorization: Bearer {PH:bearer}\r\n\r\n";
        assert_eq!(rig.ask(way, GOOD, template).status, 200, "{way:?}");
        rig.record(way);
        let seen = rig.seen().remove(0);
        for gone in [
            "keep-alive",
            "te",
            "proxy-connection",
            "proxy-authorization",
            "x-mine",
        ] {
            assert!(seen.all(gone).is_empty(), "{way:?} {gone}: {seen:?}");
        }
        assert_eq!(
            (
                seen.all("x-kept").len(),
                seen.all("authorization").len(),
                seen.host.as_str()
            ),
            (1, 1, GOOD)
        );
    }
    // The proxy's own password ends at the proxy, in CONNECT and in absolute-form.
    let password = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD
            .encode(format!("agent:{}", crate::rig::PROXY_PASSWORD))
    };
    for authorized in [false, true] {
        let field = if authorized {
            format!("Proxy-Authorization: Basic {password}\r\n")
        } else {
            String::new()
        };
        let mut wire = rig.dial(rig.ports.guarded);
        let answer = wire.ask(
            format!("GET http://{OTHER}/x HTTP/1.1\r\nHost: {OTHER}\r\n{field}\r\n").as_bytes(),
        );
        assert_eq!(answer.status, if authorized { 200 } else { 407 });
        let mut wire = rig.dial(rig.ports.guarded);
        wire.send(
            format!("CONNECT {OTHER}:80 HTTP/1.1\r\nHost: {OTHER}:80\r\n{field}\r\n").as_bytes(),
        );
        let head = String::from_utf8(wire.line(b"\r\n\r\n").unwrap()).unwrap();
        if authorized {
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            assert_eq!(
                wire.ask(format!("GET /x HTTP/1.1\r\nHost: {OTHER}\r\n{field}\r\n").as_bytes())
                    .status,
                200
            );
        } else {
            assert!(head.starts_with("HTTP/1.1 407"), "{head}");
        }
        // Callers that are refused for one cause have one record.
        rig.records(Way::Connect, if authorized { 2 } else { 1 });
    }
    assert!(
        rig.seen()
            .iter()
            .all(|seen| seen.all("proxy-authorization").is_empty())
    );
}

/// E19.
fn trailers_carry_no_fields_that_matter(rig: &Rig) {
    for way in Way::SECURE {
        for trailer in [
            "Authorization: Bearer {PH:bearer}",
            "Host: evil",
            "Content-Length: 5",
            "X-HTTP-Method-Override: DELETE",
            "Cookie: a=b",
        ] {
            let template = format!(
                "POST {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\nTrailer: Authorization\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n{trailer}\r\n\r\n"
            );
            let answer = rig.ask(way, GOOD, &template);
            assert!(
                [0, 400].contains(&answer.status),
                "{way:?} {trailer} {answer:?}"
            );
            rig.record(way);
            assert!(rig.seen().is_empty(), "{way:?} {trailer}");
        }
        let template = "POST {T}/x HTTP/1.1\r\nHost: {H}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Role: admin\r\n\r\n";
        assert_eq!(rig.ask(way, GOOD, template).status, 200);
        rig.record(way);
        let raw = String::from_utf8(rig.seen().remove(0).raw).unwrap();
        assert!(!raw.to_lowercase().contains("x-role"), "{raw}");
    }
}

/// E20, H20.
fn one_credential_field_reaches_the_origin(rig: &Rig) {
    for way in Way::SECURE {
        for (fields, reason) in [
            (
                "Authorization: Bearer {PH:bearer}\r\nAuthorization: Bearer mine",
                "field_duplicate",
            ),
            (
                "Authorization: Bearer mine\r\nauthorization: Bearer {PH:bearer}",
                "field_duplicate",
            ),
            (
                "Authorization: Bearer {PH:bearer}\r\nAuthorization: Bearer {PH:bearer}",
                "field_duplicate",
            ),
            ("X_Api_Key: mine\r\nX-Api-Key: {PH:xkey}", "field_alias"),
            ("x-api_key: mine", "field_alias"),
        ] {
            let template = format!("GET {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\n{fields}\r\n\r\n");
            let answer = rig.ask(way, GOOD, &template);
            let record = rig.record(way);
            assert!(
                [400, 403].contains(&answer.status),
                "{way:?} {fields} {answer:?}"
            );
            let known = [reason, "foreign_credential", "phantom_count"];
            assert!(
                known.contains(&record["reason"].as_str().unwrap()),
                "{way:?} {fields} {record}"
            );
        }
        allowed(
            rig,
            way,
            GOOD,
            "GET {T}/x HTTP/1.1\r\nHost: {H}\r\naUTHORIZATION: bEARER {PH:bearer}\r\nX-API-KEY: {PH:xkey}\r\n\r\n",
        );
        let seen = rig.seen().remove(0);
        assert_eq!(
            (seen.all("authorization").len(), seen.all("x-api-key")),
            (1, vec![rig.secret("xkey")])
        );
    }
}

/// E21.
fn every_line_of_a_field_is_judged(rig: &Rig) {
    for fields in [
        "X-Role: user\r\nX-Role: admin",
        "X-Role: user,admin",
        "X-Role: user , admin",
        "x-role: admin",
    ] {
        let template = format!("GET {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\n{fields}\r\n\r\n");
        refused_everywhere(rig, &Way::ALL, OTHER, &template, 403, "policy_forbids");
    }
}

/// F17.
fn too_much_head_is_refused(rig: &Rig) {
    let path = format!(
        "GET {{T}}/{} HTTP/1.1\r\nHost: {{H}}\r\n\r\n",
        "a".repeat(8200)
    );
    refused_everywhere(rig, &Way::ALL, OTHER, &path, 414, "target_length");
    let many = format!(
        "GET {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\n{}\r\n",
        "X-Y: z\r\n".repeat(101)
    );
    refused_everywhere(rig, &Way::ALL, OTHER, &many, 431, "fields_too_large");
    let long = format!(
        "GET {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\nX: {}\r\n\r\n",
        "a".repeat(33 << 10)
    );
    refused_everywhere(rig, &Way::ALL, OTHER, &long, 431, "fields_too_large");
    let query = format!(
        "GET {{T}}/x?{} HTTP/1.1\r\nHost: {{H}}\r\n\r\n",
        "a&".repeat(1001)
    );
    refused_everywhere(rig, &Way::ALL, OTHER, &query, 414, "target_length");
    for way in Way::ALL {
        let template = format!(
            "GET {{T}}/{} HTTP/1.1\r\nHost: {{H}}\r\n{}\r\n",
            "a".repeat(8000),
            "X-Y: z\r\n".repeat(90)
        );
        allowed(rig, way, OTHER, &template);
    }
}

/// P03: a head that arrives byte by byte is given up, and nobody else waits for it.
fn a_head_that_never_ends_is_given_up(rig: &Rig) {
    let wires: Vec<_> = Way::SECURE
        .iter()
        .map(|way| {
            let mut wire = rig.open(*way, OTHER);
            wire.send(b"GET /x HTTP/1.1\r\nHost: other.rig.test\r\nX-Slow: ");
            wire
        })
        .collect();
    assert_eq!(
        rig.ask(
            Way::Connect,
            OTHER,
            "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n"
        )
        .status,
        200
    );
    rig.record(Way::Connect);
    let started = std::time::Instant::now();
    for mut wire in wires {
        let (_, over) = wire.rest();
        assert!(
            over && started.elapsed() < Duration::from_secs(6),
            "{:?}",
            started.elapsed()
        );
    }
    rig.forget_records();
}
