//! Requests that an origin did not process: sent once more where that is safe, and never where it
//! is not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::rig::frames::{DATA, END_STREAM};
use crate::rig::origin::{Answer, Step, ok};
use crate::rig::way::Way;
use crate::rig::{EITHER, FRAIL, FRESH, H2, OTHER, Rig};
use crate::{rows, websockets};

rows![
    a_used_connection_that_ends_is_replaced_for_what_is_idempotent_alone,
    a_new_connection_that_ends_is_not_replaced,
    a_refused_stream_is_sent_again_on_another_connection,
    streams_behind_a_goaway_are_sent_again_and_no_other,
    an_origin_that_asks_for_http1_gets_it_from_then_on,
    an_upgrade_goes_over_http1_where_other_requests_go_over_http2,
];

/// Answers `?first`, and ends the connection of that answer at the next request.
fn ends_when_used(rig: &Rig, path: &str) {
    rig.origins.on(path, |seen| {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let is_first = seen.target.ends_with("?first");
        if LAST.swap(seen.connection, Ordering::SeqCst) == seen.connection && !is_first {
            return vec![Step::Close];
        }
        ok("", b"answered")
    });
}

fn a_used_connection_that_ends_is_replaced_for_what_is_idempotent_alone(rig: &Rig) {
    ends_when_used(rig, "/ends-when-used");
    for way in Way::SECURE {
        for (method, repeated) in [("GET", true), ("PUT", true), ("POST", false)] {
            let mut wire = rig.open(way, OTHER);
            let mut ask = |head: &str, content: &str| {
                let ask = format!("{head} HTTP/1.1\r\nHost: {{H}}\r\n{content}");
                wire.ask(&rig.fill(way, OTHER, &ask))
            };
            let first = ask("GET /ends-when-used?first", "\r\n");
            assert_eq!(first.status, 200, "{way:?} {first:?}");
            // Until then its connection is kept.
            std::thread::sleep(Duration::from_millis(100));
            let second = ask(
                &format!("{method} /ends-when-used"),
                "Content-Length: 4\r\n\r\nbody",
            );
            let seen = rig.seen();
            let expected = if repeated { (200, 3) } else { (502, 2) };
            assert_eq!((second.status, seen.len()), expected, "{way:?} {second:?}");
            assert!(
                seen[1..].iter().all(|seen| seen.body == b"body"),
                "{seen:?}"
            );
            let records = rig.records(way, 2);
            if repeated {
                assert_eq!(records[1]["request_bytes"], 4, "{records:?}");
                rig.uncounted(1);
                continue;
            }
            assert_eq!(second.reason(), "no_answer", "{way:?} {second:?}");
            assert_eq!(second.field("x-should-retry"), Some("false"), "{second:?}");
            let said = second.text();
            assert!(
                said.contains("without an answer") && said.contains("\"retry\":false"),
                "{said}"
            );
        }
    }
    rig.ends_now();
}

fn a_new_connection_that_ends_is_not_replaced(rig: &Rig) {
    rig.origins.on("/ends", |_| vec![Step::Close]);
    for way in Way::SECURE {
        let answer = rig.ask(way, FRESH, "GET /ends HTTP/1.1\r\nHost: {H}\r\n\r\n");
        assert_eq!(answer.reason(), "no_answer", "{way:?} {answer:?}");
        // What changes nothing may be sent again by its client.
        assert!(answer.text().contains("\"retry\":true"), "{answer:?}");
        rig.record(way);
        assert_eq!(rig.seen().len(), 1);
    }
}

/// Every second stream, with a credential and with content.
fn a_refused_stream_is_sent_again_on_another_connection(rig: &Rig) {
    rig.origins.on2("/every-second", |_| {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Answer {
            refused: COUNT.fetch_add(1, Ordering::SeqCst) % 2 == 1,
            data: vec![b"taken".to_vec()],
            ..Answer::default()
        }
    });
    let way = Way::Connect;
    for at in 0..30 {
        let content = "x".repeat(1000 * at);
        let ask = format!(
            "POST /every-second HTTP/1.1\r\nHost: {{H}}\r\nAuthorization: Bearer {{PH:bearer}}\r\nContent-Length: {}\r\n\r\n{content}",
            content.len()
        );
        let answer = rig.ask(way, H2, &ask);
        assert_eq!(answer.status, 200, "{at} {answer:?}");
        let record = rig.record(way);
        assert_eq!(record["lent"].as_array().map(Vec::len), Some(1), "{record}");
        let seen = rig.seen();
        assert_eq!((seen.len(), seen[0].body.len()), (1, content.len()), "{at}");
        assert_eq!(
            seen[0].all("authorization"),
            [format!("Bearer {}", rig.secret("bearer"))]
        );
    }
    // Content beyond what is kept is not sent again.
    let long = "x".repeat(300_000);
    let statuses: Vec<u16> = (0..2)
        .map(|_| {
            let ask = format!(
                "POST /every-second HTTP/1.1\r\nHost: {{H}}\r\nContent-Length: {}\r\n\r\n{long}",
                long.len()
            );
            let answer = rig.ask(way, H2, &ask);
            rig.record(way);
            answer.status
        })
        .collect();
    assert!(
        statuses.contains(&200) && statuses.contains(&502),
        "{statuses:?}"
    );
    rig.ends_now();
}

/// The origin says GOAWAY after one stream to nineteen, while others are on their way: what it took
/// is answered once, and what it did not take is taken elsewhere.
fn streams_behind_a_goaway_are_sent_again_and_no_other(rig: &Rig) {
    const ROUNDS: u32 = 12;
    const AT_ONCE: u32 = 16;
    let way = Way::Tls;
    let mut frames = rig.frames(way, FRAIL);
    for round in 0..ROUNDS {
        let streams: Vec<u32> = (0..AT_ONCE)
            .map(|at| 2 * (AT_ONCE * round + at) + 1)
            .collect();
        for stream in &streams {
            let method = if stream % 4 == 1 { "POST" } else { "GET" };
            let fields = [
                (":method", method),
                (":scheme", "https"),
                (":authority", FRAIL),
                (":path", "/frail"),
            ];
            frames.headers(*stream, &fields, method == "GET");
            if method == "POST" {
                frames.frame(DATA, END_STREAM, *stream, b"once");
            }
        }
        frames.fates(&streams);
    }
    let count = (ROUNDS * AT_ONCE) as usize;
    let records = rig.records(way, count);
    let failed: Vec<_> = records
        .iter()
        .filter(|record| record["status"] != 200)
        .collect();
    assert!(failed.is_empty(), "{} of {count}: {failed:?}", failed.len());
    assert_eq!(rig.seen().len(), count, "each is taken once");
    rig.ends_now();
}

fn an_origin_that_asks_for_http1_gets_it_from_then_on(rig: &Rig) {
    for way in Way::SECURE {
        let mut wire = rig.open(way, EITHER);
        let mut used = Vec::new();
        for method in ["GET", "POST", "PATCH", "POST"] {
            let ask =
                format!("{method} /x HTTP/1.1\r\nHost: {{H}}\r\nContent-Length: 4\r\n\r\nonce");
            let answer = wire.ask(&rig.fill(way, EITHER, &ask));
            let record = rig.record(way);
            assert_eq!(answer.status, 200, "{way:?} {method} {answer:?} {record}");
            let seen = rig.seen();
            assert_eq!((seen.len(), seen[0].http2), (1, false), "{way:?} {seen:?}");
            assert_eq!(seen[0].body, b"once");
            used.push(seen[0].connection);
        }
        // Asked once for HTTP/2, and never again.
        assert!(used.iter().all(|one| *one == used[0]), "{way:?} {used:?}");
    }
}

fn an_upgrade_goes_over_http1_where_other_requests_go_over_http2(rig: &Rig) {
    websockets::serve(rig, "/upgrade");
    for way in Way::SECURE {
        let (mut wire, _) = websockets::open(rig, way, EITHER, "/upgrade");
        wire.finish();
        assert!(!rig.seen().remove(0).http2);
    }
    rig.ends_now();
}
