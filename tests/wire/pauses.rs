//! Group I: no pause inside a reflected secret, whoever caused it, shows a part of the secret; and
//! what is not a reflection does not wait.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::echoes::{ASK, accept, ask, coded_pieces, got};
use crate::rig::origin::{Answer, Step};
use crate::rig::way::Way;
use crate::rig::{GOOD, H2, Rig};
use crate::rows;

rows![
    a_pause_inside_an_echo_shows_no_part_of_it,
    a_pause_behind_a_content_coding_shows_no_part,
    a_pause_of_an_http2_origin_shows_no_part,
    a_client_that_does_not_read_cannot_make_an_echo_come_in_parts,
    a_pause_in_a_websocket_shows_no_part,
    what_a_broken_websocket_held_back_stays_back,
    what_cannot_begin_an_echo_waits_for_nothing,
];

fn chunk(bytes: &[u8]) -> Step {
    Step::Bytes([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())
}

fn chunked(fields: &str, pieces: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{fields}\r\n");
    let mut steps = vec![Step::Bytes(head.into_bytes())];
    steps.extend(pieces);
    steps.push(Step::Bytes(b"0\r\n\r\n".to_vec()));
    steps
}

/// I05: at each place where a secret can be cut, plain and in base64.
fn a_pause_inside_an_echo_shows_no_part_of_it(rig: &Rig) {
    for (path, pause, step, ways) in [
        ("/pause/50", 50, 1, &Way::SECURE[..1]),
        ("/pause/500", 500, 20, &Way::SECURE[..]),
        ("/pause/3000", 3000, 40, &Way::SECURE[..1]),
    ] {
        let texts = move |secret: &str| match step {
            1 => vec![secret.to_owned(), STANDARD.encode(secret)],
            _ => vec![secret.to_owned()],
        };
        let cuts = move |text: &str| (7..text.len()).step_by(step);
        rig.origins.on(path, move |seen| {
            let mut pieces = Vec::new();
            for text in texts(&got(seen)[0]) {
                for cut in cuts(&text) {
                    let (one, two) = text.split_at(cut);
                    let two = format!("{two}\n");
                    pieces.extend([
                        chunk(one.as_bytes()),
                        Step::Pause(pause),
                        chunk(two.as_bytes()),
                    ]);
                }
            }
            chunked("Content-Type: text/plain\r\n", pieces)
        });
        for &way in ways {
            let answer = ask(rig, way, path);
            let lines = texts(rig.phantom(way, "bearer"))
                .into_iter()
                .map(|text| format!("{text}\n").repeat(cuts(&text).count()));
            assert!(
                answer.text() == lines.collect::<String>(),
                "{way:?} {path} {answer:?}"
            );
        }
    }
}

/// I03, I05.
fn a_pause_behind_a_content_coding_shows_no_part(rig: &Rig) {
    for coding in ["gzip", "deflate", "br", "zstd"] {
        rig.origins.on("/pause/coded", move |seen| {
            let secret = got(seen)[0].clone();
            let (one, two) = secret.split_at(secret.len() / 2);
            let pieces = coded_pieces(coding, &[one.as_bytes(), two.as_bytes()]);
            let pieces = [chunk(&pieces[0]), Step::Pause(200), chunk(&pieces[1])];
            chunked(&format!("Content-Encoding: {coding}\r\n"), pieces)
        });
        for way in Way::SECURE {
            let answer = ask(rig, way, "/pause/coded");
            assert_eq!(
                answer.text(),
                rig.phantom(way, "bearer"),
                "{way:?} {coding}"
            );
        }
    }
}

/// I05 over HTTP/2, with trailers after it.
fn a_pause_of_an_http2_origin_shows_no_part(rig: &Rig) {
    rig.origins.on2("/pause", |seen| {
        let secret = got(seen)[0].clone();
        Answer {
            data: secret.as_bytes().chunks(9).map(<[u8]>::to_vec).collect(),
            pause: 100,
            trailers: vec![("grpc-status", "0".to_owned())],
            ..Answer::default()
        }
    });
    for way in Way::SECURE {
        let answer = rig.ask(way, H2, &ASK.replace("/x ", "/pause "));
        rig.record(way);
        assert_eq!(answer.text(), rig.phantom(way, "bearer"), "{way:?}");
    }
}

/// I05: the client stops the origin by flow control, inside a reflected secret, and what it then
/// reads arrives 100 ms later.
fn a_client_that_does_not_read_cannot_make_an_echo_come_in_parts(rig: &Rig) {
    const ECHOES: usize = 60_000;
    let content = |secret: &str| format!("{secret}\n").repeat(ECHOES).into_bytes();
    rig.origins.on("/stalled", move |seen| {
        let content = content(&got(seen)[0]);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            content.len()
        );
        vec![Step::Bytes(head.into_bytes()), Step::Far(content, 100)]
    });
    rig.origins.on2("/stalled", move |seen| Answer {
        data: vec![content(&got(seen)[0])],
        far: 100,
        ..Answer::default()
    });
    let way = Way::Connect;
    let phantom = rig.phantom(way, "bearer");
    let expected = content(phantom);
    let bearer = format!("Bearer {phantom}");
    for host in [GOOD, H2] {
        let mut wire = rig.open(way, host);
        wire.patience(Duration::from_secs(20));
        wire.send(&rig.fill(way, host, &ASK.replace("/x ", "/stalled ")));
        std::thread::sleep(Duration::from_millis(700));
        assert!(wire.response().body == expected, "{host} over HTTP/1.1");
        rig.record(way);

        let mut frames = rig.frames(way, host);
        frames.get(1, host, "/stalled", &[("authorization", &bearer)]);
        std::thread::sleep(Duration::from_millis(700));
        assert!(frames.fate(1).body == expected, "{host} over HTTP/2");
        rig.record(way);
    }
}

const SWITCH: &str = "GET {P} HTTP/1.1\r\nHost: {H}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer {PH:bearer}\r\n\r\n";

fn switched(key: &str) -> Step {
    let fields = format!(
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}",
        accept(key)
    );
    Step::Bytes(format!("HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n\r\n").into_bytes())
}

/// What followed the head of an upgrade.
fn websocket(rig: &Rig, way: Way, path: &str) -> Vec<u8> {
    let mut wire = rig.open(way, GOOD);
    let answer = wire.ask(&rig.fill(way, GOOD, &SWITCH.replace("{P}", path)));
    assert_eq!(answer.status, 101, "{way:?} {answer:?}");
    rig.record(way);
    wire.rest().0
}

/// I12: within a frame, and between two of a message.
fn a_pause_in_a_websocket_shows_no_part(rig: &Rig) {
    rig.origins.on("/pause/ws", |seen| {
        let secret = got(seen)[0].clone();
        let (one, two) = secret.split_at(11);
        let (two, three) = two.split_at(11);
        let first = (one.len() + two.len()) as u8;
        vec![
            switched(seen.all("sec-websocket-key")[0]),
            Step::Bytes([&[0x01, first][..], one.as_bytes()].concat()),
            Step::Pause(200),
            Step::Bytes(two.as_bytes().to_vec()),
            Step::Pause(200),
            Step::Bytes([&[0x80, three.len() as u8][..], three.as_bytes()].concat()),
            Step::Close,
        ]
    });
    for way in Way::SECURE {
        let phantom = rig.phantom(way, "bearer").as_bytes();
        let expected = [
            &[0x01, 22][..],
            &phantom[..22],
            &[0x80, (phantom.len() - 22) as u8],
            &phantom[22..],
        ];
        assert_eq!(
            websocket(rig, way, "/pause/ws"),
            expected.concat(),
            "{way:?}"
        );
    }
}

/// I12: the connection breaks off inside a message.
fn what_a_broken_websocket_held_back_stays_back(rig: &Rig) {
    rig.origins.on("/broken/ws", |seen| {
        let secret = got(seen)[0].clone();
        vec![
            switched(seen.all("sec-websocket-key")[0]),
            Step::Bytes([&[0x81, 100][..], b"it is: ", &secret.as_bytes()[..30]].concat()),
            Step::Close,
        ]
    });
    for way in Way::SECURE {
        assert_eq!(
            websocket(rig, way, "/broken/ws"),
            b"\x81\x64it is: ",
            "{way:?}"
        );
    }
}

/// I05: events, JSON and length-prefixed messages arrive at once; only a text that ends in a letter
/// waits for what follows it.
fn what_cannot_begin_an_echo_waits_for_nothing(rig: &Rig) {
    const SILENCE: Duration = Duration::from_millis(1500);
    let cases: [(&str, &str, &[u8], bool); 5] = [
        (
            "/now/events",
            "text/event-stream",
            b"data: {\"text\":\"ghp\"}\n\n",
            true,
        ),
        ("/now/json", "application/json", b"{\"text\":\"ghp\"}", true),
        ("/now/grpc", "application/grpc", b"\0\0\0\0\x05hello", true),
        (
            "/now/eventstream",
            "application/vnd.amazon.eventstream",
            b"\0\0\0\x0cmessages",
            true,
        ),
        ("/now/text", "text/plain", b"hello", false),
    ];
    for (path, kind, piece, at_once) in cases {
        rig.origins.on(path, move |_| {
            let pause = Step::Pause(SILENCE.as_millis() as u64);
            // A NUL after a letter could be UTF-16; in messages it starts the next one.
            let last = if at_once { b"\0" } else { b"\n" };
            chunked(
                &format!("Content-Type: {kind}\r\n"),
                [chunk(piece), pause, chunk(last)],
            )
        });
        let way = Way::Connect;
        let mut wire = rig.open(way, GOOD);
        let started = Instant::now();
        wire.send(&rig.fill(way, GOOD, &ASK.replace("/x ", &format!("{path} "))));
        assert!(wire.line(piece).is_some(), "{path}");
        let took = started.elapsed();
        assert_eq!(took < SILENCE, at_once, "{path} took {took:?}");
        rig.record(way);
        assert!(wire.line(b"0\r\n\r\n").is_some(), "{path}");
    }
}
