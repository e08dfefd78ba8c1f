//! Cases found by reading the source as an attacker would.

use crate::rig::Rig;
use crate::rig::frames::{END_HEADERS, HEADERS, block};
use crate::rig::origin::{Step, ok};
use crate::rig::way::Way;
use crate::rig::{GOOD, OTHER};
use crate::rows;

rows![
    a_stored_secret_is_found_in_a_later_answer_whatever_is_asked_for,
    a_guess_at_a_secret_comes_back_as_it_was_sent,
    an_answer_that_is_no_websocket_opens_no_stream,
];

const LENDING: &str =
    "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nAuthorization: Bearer {PH:bearer}\r\n\r\n";

/// H03, I03: the injection was earlier; the request that reads the reflected secret carries no
/// phantom.
fn a_stored_secret_is_found_in_a_later_answer_whatever_is_asked_for(rig: &Rig) {
    let secret = rig.secret("bearer").to_owned();
    rig.origins.on("/stored", move |seen| {
        let asked = [seen.all("range"), seen.all("accept-encoding")]
            .concat()
            .join(" ");
        assert!(
            !asked.contains("bytes=0-9 ") && !asked.contains("private"),
            "{asked}"
        );
        ok("", secret.as_bytes())
    });
    rig.origins.on("/strange", |_| {
        ok("Content-Encoding: private\r\n", b"what cannot be read")
    });
    for way in Way::SECURE {
        assert_eq!(rig.ask(way, GOOD, LENDING).status, 200);
        rig.record(way);
        let fields = "Range: bytes=0-9\r\nIf-Range: \"x\"\r\nAccept-Encoding: private\r\n";
        let template = format!("GET {{T}}/stored HTTP/1.1\r\nHost: {{H}}\r\n{fields}\r\n");
        let answer = rig.ask(way, GOOD, &template);
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (200, rig.phantom(way, "bearer")),
            "{way:?}"
        );
        rig.record(way);
        let answer = rig.ask(way, GOOD, "GET {T}/strange HTTP/1.1\r\nHost: {H}\r\n\r\n");
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (502, "encoding"),
            "{way:?}"
        );
        rig.record(way);
    }
}

/// Whoever makes an origin send prefixes of a secret must not learn which of them are right:
/// neither by their end nor by time.
fn a_guess_at_a_secret_comes_back_as_it_was_sent(rig: &Rig) {
    let secret = rig.secret("bearer").to_owned();
    for way in [Way::Connect, Way::Transparent] {
        assert_eq!(rig.ask(way, GOOD, LENDING).status, 200);
        rig.record(way);
        // Fewer than six drawn characters, after `sk-live-`.
        for length in [1, 9, 12] {
            let mut wrong = secret[..length].to_owned();
            let last = if wrong.pop() == Some('a') { 'b' } else { 'a' };
            wrong.push(last);
            for guess in [secret[..length].to_owned(), wrong] {
                let sent = guess.clone();
                rig.origins.on("/guess", move |_| ok("", sent.as_bytes()));
                let answer = rig.ask(way, OTHER, "GET {T}/guess HTTP/1.1\r\nHost: {H}\r\n\r\n");
                assert_eq!(answer.text(), guess, "{way:?} {length}");
                rig.record(way);
            }
        }
        // This much is not a guess.
        let most = secret[..secret.len() - 1].to_owned();
        rig.origins.on("/guess", move |_| ok("", most.as_bytes()));
        let answer = rig.ask(way, OTHER, "GET {T}/guess HTTP/1.1\r\nHost: {H}\r\n\r\n");
        let phantom = rig.phantom(way, "bearer");
        assert_eq!(answer.text(), phantom[..phantom.len() - 1], "{way:?}");
        rig.record(way);
    }
}

/// RFC 8441 §5: a 2xx to an extended CONNECT says that the stream is open.
fn an_answer_that_is_no_websocket_opens_no_stream(rig: &Rig) {
    rig.origins.on("/socket", |_| {
        vec![Step::Bytes(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno".to_vec(),
        )]
    });
    for way in [Way::Connect, Way::Transparent] {
        let mut frames = rig.frames(way, OTHER);
        let fields = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":authority", OTHER),
            (":path", "/socket"),
            ("sec-websocket-version", "13"),
        ];
        frames.frame(HEADERS, END_HEADERS, 1, &block(&fields));
        let fate = frames.fate(1);
        let record = rig.record(way);
        assert_eq!(
            (record["status"].as_u64(), record["reason"].as_str()),
            (Some(502), Some("bad_101")),
            "{fate:?} {record}"
        );
    }
}
