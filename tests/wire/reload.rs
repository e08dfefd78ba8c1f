//! A reload judges what is under way again: streams, uploads and WebSockets, over HTTP/1.1 and
//! HTTP/2, on every listener of `serve`. What is still allowed goes on, what is not is cut at once.

use std::time::{Duration, Instant};

use crate::policy::reload;
use crate::rig::frames::{DATA, END_STREAM, Frames};
use crate::rig::origin::{Answer, Step};
use crate::rig::way::{Way, Wire};
use crate::rig::{GOOD, H2, OTHER, Rig, policies};
use crate::rows;

rows![
    a_reload_that_adds_a_host_cuts_nothing,
    a_reload_that_forbids_cuts_within_50_ms,
    a_withdrawn_loan_cuts_what_carries_it_alone,
    fields_that_were_kept_are_judged_again_and_others_cut,
    a_forbid_cuts_a_thousand_streams_at_once,
];

/// The ways into `serve`, which alone reloads.
const WAYS: [Way; 6] = [
    Way::Connect,
    Way::Socks,
    Way::Tls,
    Way::Forward,
    Way::ConnectClear,
    Way::SocksClear,
];
/// Milliseconds between two events.
const PACE: u64 = 20;
/// From the word of the reload to the end of what it forbids.
const CUT_WITHIN: Duration = Duration::from_millis(50);
/// To the answer of an upload, which waits until its record is on the disk.
const REFUSED_WITHIN: Duration = Duration::from_millis(500);

/// Has E send so many events on `/events`, and frames on `/ws`, and then end both.
pub fn stream(rig: &Rig, events: usize) {
    rig.origins.on("/events", move |_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        paced(head, b"9\r\ndata: x\n\n\r\n", events, b"0\r\n\r\n")
    });
    rig.origins.on("/ws", move |seen| {
        use base64::Engine as _;
        let key = seen.all("sec-websocket-key")[0];
        let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
        let digest = aws_lc_rs::digest::digest(
            &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY,
            text.as_bytes(),
        );
        let accept = base64::engine::general_purpose::STANDARD.encode(digest);
        let head = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n");
        let mut steps = paced(&head, b"\x81\x01x", events, b"\x88\x00");
        steps.push(Step::Close);
        steps
    });
}

fn paced(head: &str, one: &[u8], count: usize, end: &[u8]) -> Vec<Step> {
    let mut steps = vec![Step::Bytes(head.as_bytes().to_vec())];
    for _ in 0..count {
        steps.push(Step::Bytes(one.to_vec()));
        steps.push(Step::Pause(PACE));
    }
    steps.push(Step::Bytes(end.to_vec()));
    steps
}

/// The host of a way: over TLS a secret is lent to it.
fn host(way: Way) -> &'static str {
    if way.is_secure() { GOOD } else { OTHER }
}

/// Begins a request of HTTP/1.1.
pub fn begin(rig: &Rig, way: Way, request: &str, fields: &str) -> Wire {
    let (method, path) = request.split_once(' ').unwrap();
    let lent = if way.is_secure() {
        "Authorization: Bearer {PH:bearer}\r\n"
    } else {
        ""
    };
    let template = format!("{method} {{T}}{path} HTTP/1.1\r\nHost: {{H}}\r\n{lent}{fields}");
    let mut wire = rig.open(way, host(way));
    wire.send(&rig.fill(way, host(way), &template));
    wire
}

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

/// A stream of events, a WebSocket and an upload, each under way on a connection of its own.
struct Three {
    events: Wire,
    socket: Wire,
    upload: Wire,
}

impl Three {
    fn begin(rig: &Rig, way: Way) -> Self {
        let mut three = Self {
            events: begin(rig, way, "GET /events", "\r\n"),
            socket: begin(rig, way, "GET /ws", WEBSOCKET),
            upload: begin(rig, way, "POST /x", CHUNKED),
        };
        assert!(three.socket.line(b"\r\n\r\n").is_some(), "{way:?}");
        three
    }
}

/// The same three over HTTP/2, on one connection: streams 1, 3 and 5.
fn three_frames(rig: &Rig, way: Way) -> Frames {
    let mut frames = rig.frames(way, GOOD);
    let bearer = format!("Bearer {}", rig.phantom(way, "bearer"));
    let lent = ("authorization", bearer.as_str());
    frames.get(1, GOOD, "/events", &[lent]);
    for (stream, method, path) in [(3, "CONNECT", "/ws"), (5, "POST", "/x")] {
        let mut fields = vec![
            (":method", method),
            (":scheme", "https"),
            (":authority", GOOD),
            (":path", path),
        ];
        if method == "CONNECT" {
            fields.push((":protocol", "websocket"));
        }
        fields.push(lent);
        if method == "CONNECT" {
            fields.push(("sec-websocket-version", "13"));
        }
        frames.headers(stream, &fields, false);
    }
    frames.frame(DATA, 0, 5, b"hello");
    frames
}

/// The records and ends so far: how many name `reason`, and all of them.
fn told(rig: &Rig, reason: &str, expected: usize) -> (usize, String) {
    let until = Instant::now() + Duration::from_secs(6);
    let (mut records, mut ends) = (Vec::new(), Vec::new());
    loop {
        records.extend(rig.every_record(Way::Connect));
        ends.extend(rig.every_end());
        let all = || records.iter().chain(&ends);
        let count = all().filter(|one| one["reason"] == reason).count();
        if count >= expected || Instant::now() > until {
            return (count, format!("{records:?} {ends:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn a_reload_that_adds_a_host_cuts_nothing(rig: &Rig) {
    const EVENTS: usize = 120;
    stream(rig, EVENTS);
    let mut all: Vec<(Way, Three)> = WAYS.map(|way| (way, Three::begin(rig, way))).into();
    let secure = WAYS.into_iter().filter(|way| way.is_secure());
    let mut frames: Vec<(Way, Frames)> = secure.map(|way| (way, three_frames(rig, way))).collect();
    std::thread::sleep(Duration::from_millis(100));
    let added = crate::policy::permit("added", "added.rig.test", "true");
    assert!(reload(rig, &format!("{}{added}", policies())));
    assert!(!reload(rig, "permit("), "a refused reload changes nothing");
    assert!(reload(rig, &policies()));
    for (way, three) in &mut all {
        three.upload.send(b"6\r\n again\r\n0\r\n\r\n");
        let answer = three.upload.response();
        assert_eq!(answer.status, 200, "{way:?} {answer:?}");
        let events = three.events.response();
        assert_eq!(events.text(), "data: x\n\n".repeat(EVENTS), "{way:?}");
        let (socket, over) = three.socket.rest();
        let expected = [b"\x81\x01x".repeat(EVENTS), b"\x88\x00".to_vec()].concat();
        assert!(over && socket == expected, "{way:?} {}", socket.len());
    }
    for (way, frames) in &mut frames {
        frames.frame(DATA, END_STREAM, 5, b" again");
        let fates = frames.fates(&[1, 3, 5]);
        let lengths: Vec<usize> = fates.iter().map(|fate| fate.body.len()).collect();
        let resets: Vec<Option<u32>> = fates.iter().map(|fate| fate.reset).collect();
        assert_eq!(
            lengths[..2],
            [9 * EVENTS, 3 * EVENTS + 2],
            "{way:?} {fates:?}"
        );
        assert!(lengths[2] > 0 && resets[0].is_none() && resets[2].is_none());
    }
    let uploads = rig.seen().into_iter().filter(|seen| seen.method == "POST");
    assert!(
        uploads
            .map(|seen| seen.body)
            .all(|body| body == b"hello again")
    );
    std::thread::sleep(Duration::from_millis(50));
    let (revoked, all) = told(rig, "revoked", 0);
    assert_eq!(revoked, 0, "{all}");
    assert!(!all.contains("\"cut\""), "{all}");
}

fn a_reload_that_forbids_cuts_within_50_ms(rig: &Rig) {
    stream(rig, 400);
    let all: Vec<(Way, Three)> = WAYS.map(|way| (way, Three::begin(rig, way))).into();
    let secure = WAYS.into_iter().filter(|way| way.is_secure());
    let frames: Vec<(Way, Frames)> = secure.map(|way| (way, three_frames(rig, way))).collect();
    let count = 3 * (all.len() + frames.len());
    std::thread::sleep(Duration::from_millis(100));
    let forbids: String = [GOOD, OTHER]
        .map(|host| format!("@id(\"revoked/{host}\")\nforbid(principal, action, resource == Gateway::Host::\"{host}\");\n"))
        .concat();
    let mut late = Vec::new();
    std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for (way, three) in all {
            let Three {
                events,
                socket,
                upload,
            } = three;
            for (what, mut wire, within) in [
                ("events", events, CUT_WITHIN),
                ("socket", socket, CUT_WITHIN),
                ("upload", upload, REFUSED_WITHIN),
            ] {
                readers.push(scope.spawn(move || {
                    let over = wire.rest().1;
                    (format!("{way:?} {what}"), over, Instant::now(), within)
                }));
            }
        }
        for (way, mut frames) in frames {
            readers.push(scope.spawn(move || {
                let fates = frames.fates(&[1, 3, 5]);
                // The upload is answered before it is reset, and the WebSocket just ends.
                let cut = fates[0].reset.is_some() && fates.iter().all(|fate| !fate.closed);
                (
                    format!("{way:?} over h2"),
                    cut,
                    Instant::now(),
                    REFUSED_WITHIN,
                )
            }));
        }
        assert!(reload(rig, &format!("{}{forbids}", policies())));
        let reloaded = Instant::now();
        for reader in readers {
            let (what, cut, at, within) = reader.join().unwrap();
            assert!(cut, "{what} went on");
            let after = at.saturating_duration_since(reloaded);
            if after > within {
                late.push((what, after));
            }
        }
    });
    assert!(reload(rig, &policies()));
    let (revoked, told) = told(rig, "revoked", count);
    assert_eq!(revoked, count, "{told}");
    assert!(late.is_empty(), "{late:?}");
    assert!(rig.seen().iter().all(|seen| seen.body.is_empty()));
}

fn a_withdrawn_loan_cuts_what_carries_it_alone(rig: &Rig) {
    const EVENTS: usize = 60;
    stream(rig, EVENTS);
    let mut lent = begin(rig, Way::Connect, "GET /events", "\r\n");
    let mut bare = rig.open(Way::Connect, GOOD);
    bare.send(&rig.fill(
        Way::Connect,
        GOOD,
        "GET /events HTTP/1.1\r\nHost: {H}\r\n\r\n",
    ));
    assert!(lent.line(b"\r\n\r\n").is_some());
    let forbid = "@id(\"withdrawn\")\nforbid(principal, action == Gateway::Action::\"lend\", resource == Gateway::Credential::\"bearer\");\n";
    assert!(reload(rig, &format!("{}{forbid}", policies())));
    let started = Instant::now();
    assert!(lent.rest().1 && started.elapsed() < Duration::from_millis(500));
    assert_eq!(bare.response().text(), "data: x\n\n".repeat(EVENTS));
    let (revoked, all) = told(rig, "revoked", 1);
    assert_eq!(revoked, 1, "{all}");
    rig.seen();
    assert!(reload(rig, &policies()));
}

fn fields_that_were_kept_are_judged_again_and_others_cut(rig: &Rig) {
    const EVENTS: usize = 60;
    stream(rig, EVENTS);
    let forbid = |role: &str| {
        format!(
            "@id(\"role\")\nforbid(principal, action, resource == Gateway::Host::\"{OTHER}\") when {{ context.fields.any.contains(\"x-mine: {role}\") }};\n"
        )
    };
    let open = || {
        let mut wire = rig.open(Way::ConnectClear, OTHER);
        wire.send(
            format!("GET /events HTTP/1.1\r\nHost: {OTHER}\r\nX-Mine: one\r\n\r\n").as_bytes(),
        );
        assert!(wire.line(b"\r\n\r\n").is_some());
        wire
    };
    let whole = |wire: &mut Wire| wire.line(b"0\r\n\r\n").is_some();
    // The rig's own policies read fields, so that these were kept.
    let mut kept = open();
    assert!(reload(rig, &format!("{}{}", policies(), forbid("two"))));
    assert!(whole(&mut kept), "another value is forbidden");
    let mut kept = open();
    assert!(reload(rig, &format!("{}{}", policies(), forbid("one"))));
    assert!(!whole(&mut kept), "this value is forbidden");
    // Without such a policy nothing is kept, and one that reads it cannot be answered.
    let plain = crate::policy::permit("plain", OTHER, "true");
    assert!(reload(rig, &plain));
    let mut unkept = open();
    assert!(reload(rig, &format!("{plain}{}", forbid("two"))));
    assert!(!whole(&mut unkept), "what was not kept is not guessed");
    let (revoked, all) = told(rig, "revoked", 2);
    assert_eq!(revoked, 2, "{all}");
    rig.seen();
    assert!(reload(rig, &policies()));
}

/// Uploads that wait for more of their content, on connections of 120 streams each.
fn a_forbid_cuts_a_thousand_streams_at_once(rig: &Rig) {
    const CONNECTIONS: usize = 8;
    rig.origins.on2("/x", |_| Answer::default());
    let streams: Vec<u32> = (0..120).map(|nth| 2 * nth + 1).collect();
    let open = || {
        let mut frames = rig.frames(Way::Connect, H2);
        for stream in &streams {
            let fields = [
                (":method", "POST"),
                (":scheme", "https"),
                (":authority", H2),
                (":path", "/x"),
            ];
            frames.headers(*stream, &fields, false);
            frames.frame(DATA, 0, *stream, b"hello");
        }
        frames
    };
    let all: Vec<Frames> = (0..CONNECTIONS).map(|_| open()).collect();
    std::thread::sleep(Duration::from_millis(1500));
    let forbid = format!(
        "@id(\"revoked\")\nforbid(principal, action, resource == Gateway::Host::\"{H2}\");\n"
    );
    let slowest = std::thread::scope(|scope| {
        let readers: Vec<_> = all
            .into_iter()
            .map(|mut frames| {
                let streams = &streams;
                scope.spawn(move || {
                    let fates = frames.fates(streams);
                    assert!(
                        fates
                            .iter()
                            .all(|fate| fate.answered || fate.reset.is_some())
                    );
                    Instant::now()
                })
            })
            .collect();
        assert!(reload(rig, &format!("{}{forbid}", policies())));
        let reloaded = Instant::now();
        let ends = readers.into_iter().map(|reader| reader.join().unwrap());
        ends.map(|at| at.saturating_duration_since(reloaded)).max()
    });
    let (revoked, all) = told(rig, "revoked", CONNECTIONS * streams.len());
    assert_eq!(
        revoked,
        CONNECTIONS * streams.len(),
        "{}",
        &all[..2000.min(all.len())]
    );
    rig.seen();
    // In a debug build that logs everything, an evaluation takes milliseconds.
    assert!(slowest < Some(Duration::from_secs(10)), "{slowest:?}");
    assert!(reload(rig, &policies()));
}
