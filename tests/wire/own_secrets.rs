//! The real secret of a credential in what a workload sends.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::Value;

use crate::echoes::coded_pieces;
use crate::policy::reload;
use crate::rig::canary::forms;
use crate::rig::way::{Response, Way};
use crate::rig::{GOOD, LOOSE, OTHER, Rig, policies};
use crate::rows;
use crate::verdicts::allowed;
use crate::websockets;

rows![
    a_real_secret_is_refused_in_each_spelling_and_place,
    a_refusal_before_the_search_hides_a_real_secret_in_its_record,
    a_real_secret_is_found_in_content_however_it_is_framed_and_coded,
    content_cuts_off_where_a_real_secret_would_be_whole,
    a_real_secret_in_a_message_ends_its_websocket,
    what_only_looks_like_a_secret_arrives_as_it_was_sent,
];

/// Asks, and expects that nothing of it arrives; returns the answer and its record.
fn refused(rig: &Rig, way: Way, host: &str, request: &[u8], what: &str) -> (Response, Value) {
    let answer = rig.open(way, host).ask(request);
    let record = rig.record(way);
    assert_eq!(
        (answer.status, answer.reason().as_str()),
        (403, "secret_found"),
        "{way:?} {what}: {answer:?} {record}"
    );
    assert_eq!(record["reason"], "secret_found", "{what}: {record}");
    let secret = rig.secret("bearer");
    for (form, text) in forms(secret.as_bytes()).into_iter().filter(is_searched) {
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(
            !record.to_string().contains(&text),
            "{what} ({form}): {record}"
        );
    }
    (answer, record)
}

/// The secret in each spelling, whole; in base64 within a longer text.
fn spellings(secret: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let of_base64 = |form: &(&str, Vec<u8>)| !form.0.starts_with("base64");
    let all = forms(secret).into_iter().filter(is_searched);
    let mut all: Vec<_> = all.filter(of_base64).collect();
    for lead in ["", "-", "--"] {
        let text = [lead.as_bytes(), secret, b"--"].concat();
        all.push(("base64", STANDARD.encode(&text).into_bytes()));
        all.push(("base64url", URL_SAFE.encode(&text).into_bytes()));
    }
    all
}

/// What is not searched for in answers either.
fn is_searched((form, _): &(&'static str, Vec<u8>)) -> bool {
    *form != "reversed"
}

fn nothing_arrived(rig: &Rig, what: &str) {
    let seen = rig.seen();
    assert!(seen.is_empty(), "{what}: {seen:?}");
}

fn a_real_secret_is_refused_in_each_spelling_and_place(rig: &Rig) {
    let secret = rig.secret("bearer");
    for way in Way::SECURE {
        for host in [GOOD, OTHER, LOOSE] {
            for (template, place) in [
                ("GET /a/{S} HTTP/1.1\r\nHost: {H}\r\n\r\n", "path"),
                ("GET /a?b={S}&c HTTP/1.1\r\nHost: {H}\r\n\r\n", "query"),
                (
                    "GET /a HTTP/1.1\r\nHost: {H}\r\nX-Note: is {S}, so\r\n\r\n",
                    "header:x-note",
                ),
            ] {
                let request = rig.fill(way, host, &template.replace("{S}", secret));
                let (_, record) = refused(rig, way, host, &request, template);
                assert_eq!(
                    record["misplaced"],
                    serde_json::json!({ "credential": "bearer", "place": place }),
                    "{record}"
                );
            }
        }
    }
    for (form, text) in spellings(secret.as_bytes()) {
        let head = format!(
            "POST {{T}}/a HTTP/1.1\r\nHost: {{H}}\r\nContent-Length: {}\r\n\r\n{{\"a\":\"",
            text.len() + 8
        );
        let head = rig.fill(Way::Connect, OTHER, &head);
        let request = [&head[..], &text, b"\"}"].concat();
        let (_, record) = refused(rig, Way::Connect, OTHER, &request, form);
        let cause = record["cause"]
            .as_str()
            .unwrap_or_else(|| panic!("{form} {record}"));
        assert!(cause.contains("secret of `bearer`"), "{record}");
    }
    // As programs wrap base64, in a file or in a string.
    let coded = STANDARD.encode([b"KEY=", secret.as_bytes(), b"\n"].concat());
    let lines: Vec<&str> = coded
        .as_bytes()
        .chunks(11)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    for between in ["\n", "\r\n", "\\n", "\\r\\n", "\n    "] {
        let content = format!("{{\"content\":\"{}\"}}", lines.join(between));
        for size in [3, 1000] {
            let request = chunked(content.as_bytes(), size, "");
            let what = format!("lines with {between:?}");
            refused(rig, Way::Connect, OTHER, &request, &what);
        }
    }
    nothing_arrived(rig, "spellings");
}

fn a_refusal_before_the_search_hides_a_real_secret_in_its_record(rig: &Rig) {
    let secret = rig.secret("bearer");
    // Nothing is known of a generation until its first request.
    assert!(reload(rig, &policies()));
    let template = "GET {T}/p/{S} HTTP/1.1\r\nHost: {H}\r\nAuthorization: Bearer mine\r\n\r\n";
    let request = rig.fill(Way::Connect, GOOD, &template.replace("{S}", secret));
    let answer = rig.open(Way::Connect, GOOD).ask(&request);
    let record = rig.record(Way::Connect);
    assert_eq!(answer.reason(), "foreign_credential", "{record}");
    assert!(!record.to_string().contains(secret), "{record}");
    nothing_arrived(rig, "a foreign credential");
}

/// Content in chunks of these bytes.
fn chunked(content: &[u8], size: usize, fields: &str) -> Vec<u8> {
    let head =
        format!("POST /a HTTP/1.1\r\nHost: {{H}}\r\nTransfer-Encoding: chunked\r\n{fields}\r\n");
    let mut request = head.replace("{H}", OTHER).into_bytes();
    for chunk in content.chunks(size) {
        request.extend(format!("{:x}\r\n", chunk.len()).bytes());
        request.extend([chunk, b"\r\n"].concat());
    }
    request.extend(b"0\r\n\r\n");
    request
}

fn a_real_secret_is_found_in_content_however_it_is_framed_and_coded(rig: &Rig) {
    let secret = rig.secret("bearer").as_bytes();
    let content = [&b"it is "[..], secret, b" and no more"].concat();
    for size in [1, 7, 1000] {
        for way in [Way::Connect, Way::Tls] {
            let request = chunked(&content, size, "");
            refused(rig, way, OTHER, &request, &format!("chunks of {size}"));
        }
    }
    for coding in ["gzip", "br", "zstd"] {
        let coded = coded_pieces(coding, &[&content]).concat();
        let request = chunked(&coded, 9, &format!("Content-Encoding: {coding}\r\n"));
        refused(rig, Way::Connect, OTHER, &request, coding);
    }
    let trailers = "POST /a HTTP/1.1\r\nHost: {H}\r\nTE: trailers\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: {S}\r\n\r\n";
    let trailers = trailers.replace("{S}", rig.secret("bearer"));
    let request = rig.fill(Way::Connect, OTHER, &trailers);
    refused(rig, Way::Connect, OTHER, &request, "trailers");
    // What says that it is coded, and is not, cannot be searched.
    let request = chunked(b"no gzip at all", 99, "Content-Encoding: gzip\r\n");
    let answer = rig.open(Way::Connect, OTHER).ask(&request);
    let record = rig.record(Way::Connect);
    assert_eq!(answer.reason(), "content_unreadable", "{record}");
    // A few bytes that decode to very many are not decoded to the end.
    for coding in ["br", "zstd"] {
        let once = coded_pieces(coding, &[&vec![0; 64 << 20]]).concat();
        let bomb = coded_pieces(coding, &[&once]).concat();
        assert!(bomb.len() < 8192, "{coding}: {}", bomb.len());
        let fields = format!("Content-Encoding: {coding}, {coding}\r\n");
        let request = chunked(&bomb, 4096, &fields);
        let answer = rig.open(Way::Connect, OTHER).ask(&request);
        let record = rig.record(Way::Connect);
        assert_eq!(answer.reason(), "content_unreadable", "{coding} {record}");
    }
    rig.seen();
}

fn content_cuts_off_where_a_real_secret_would_be_whole(rig: &Rig) {
    let secret = rig.secret("bearer").as_bytes();
    let before = vec![b'-'; 4 << 20];
    let content = [&before[..], secret, b"and after"].concat();
    let head = format!(
        "POST /a HTTP/1.1\r\nHost: {OTHER}\r\nContent-Length: {}\r\n\r\n",
        content.len()
    );
    let request = [head.as_bytes(), &content].concat();
    for way in [Way::Connect, Way::Tls] {
        refused(rig, way, OTHER, &request, "4 MiB, and then a secret");
        let raw = rig.origins.take_raw();
        let has = |text: &[u8]| raw.windows(text.len()).any(|part| part == text);
        assert!(!has(secret) && !has(b"and after"), "{way:?}: it arrived");
        rig.seen();
    }
}

fn a_real_secret_in_a_message_ends_its_websocket(rig: &Rig) {
    websockets::serve(rig, "/messages");
    let secret = rig.secret("bearer").as_bytes();
    let (one, two) = secret.split_at(9);
    let whole = |first: u8| websockets::frame(first, &[b"is ", secret].concat());
    let split = [
        websockets::frame(0x01, one),
        websockets::frame(0x89, b"still there"),
        websockets::frame(0x80, two),
    ];
    for way in [Way::Connect, Way::Tls] {
        for bytes in [whole(0x81), whole(0x82), split.concat()] {
            rig.ends_now();
            let (mut wire, _) = websockets::open(rig, way, OTHER, "/messages");
            wire.send(&websockets::frame(0x81, b"harmless"));
            wire.send(&bytes);
            let (rest, _) = wire.rest();
            let end = rig.ends().remove(0);
            assert_eq!(
                (&end["outcome"], &end["reason"]),
                (&"cut".into(), &"secret_found".into()),
                "{end}"
            );
            let close = websockets::closed(1008, "secret_found", &end);
            assert!(rest.ends_with(&close), "{way:?} {rest:?}");
            rig.seen();
        }
    }
}

fn what_only_looks_like_a_secret_arrives_as_it_was_sent(rig: &Rig) {
    let secret = rig.secret("bearer");
    let most = &secret[..secret.len() - 1];
    for way in [Way::Connect, Way::Tls] {
        let phantom = rig.phantom(way, "bearer");
        let content = format!("{phantom} {most} {}", &secret[1..]);
        let request = format!(
            "POST {{T}}/a HTTP/1.1\r\nHost: {{H}}\r\nContent-Length: {}\r\n\r\n{content}",
            content.len()
        );
        allowed(rig, way, OTHER, &request);
        let seen = rig.seen().remove(0);
        assert_eq!(String::from_utf8_lossy(&seen.body), content, "{way:?}");
    }
}
