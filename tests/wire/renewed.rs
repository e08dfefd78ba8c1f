//! Groups H and I: a secret that was renewed while the session lives, with another length than the
//! phantom that the session holds (ADR 2).

use std::time::Duration;

use super::echoes::{accept, coded_pieces};
use crate::rig::canary::hex;
use crate::rig::origin::{Answer, Seen, Step, ok};
use crate::rig::way::{Response, Way};
use crate::rig::{RENEWALS, RENEWED, RENEWED2, Rig};
use crate::rows;

rows![
    a_renewed_secret_of_another_length_is_lent,
    echoes_of_old_and_new_come_back_as_the_phantom,
    an_echo_of_a_renewed_secret_is_found_in_every_framing,
    a_long_answer_keeps_its_length_and_shows_nothing,
    messages_with_lengths_keep_them_and_show_nothing,
];

const ASK: &str = "GET /x HTTP/1.1\r\nHost: {H}\r\nX-Renewed: {PH:renewed}\r\n\r\n";

fn got(seen: &Seen) -> String {
    seen.all("x-renewed")[0].to_owned()
}

fn ask(rig: &Rig, way: Way, host: &str, path: &str) -> Response {
    let answer = rig.ask(way, host, &ASK.replace("/x ", &format!("{path} ")));
    let record = rig.record(way);
    assert_eq!(record["lent"][0]["credential"], "renewed", "{record}");
    assert_eq!(answer.status, 200, "{way:?} {path} {answer:?} {record}");
    answer
}

/// Waits until a renewed secret is lent: its store is read anew in the background.
fn is_lent(rig: &Rig, way: Way, name: &str) {
    let is_it = || {
        ask(rig, way, RENEWED, "/lent");
        let lent = got(&rig.seen()[0]) == rig.secret(name);
        std::thread::sleep(Duration::from_millis(if lent { 0 } else { 200 }));
        lent
    };
    assert!((0..50).any(|_| is_it()), "{name} is not lent by {way:?}");
}

/// A length that is told is the content's.
fn has_its_length(answer: &Response) {
    if let Some(length) = answer.field("content-length") {
        assert_eq!(length, answer.body.len().to_string(), "{answer:?}");
    }
}

/// Each secret in turn, the first one last again.
fn each_renewal(rig: &Rig, mut case: impl FnMut(&str)) {
    for name in ["renewed-long", "renewed-short", "renewed-first"] {
        rig.renew(name);
        case(name);
    }
}

/// H14, R11: what was renewed is put in where the same phantom stands.
fn a_renewed_secret_of_another_length_is_lent(rig: &Rig) {
    for host in [RENEWED, RENEWED2] {
        rig.origins.on("/lent", |_| ok("", b"fine"));
        rig.origins.on2("/lent", |_| Answer {
            data: vec![b"fine".to_vec()],
            ..Answer::default()
        });
        each_renewal(rig, |name| {
            for way in Way::SECURE {
                assert_eq!(ask(rig, way, host, "/lent").text(), "fine");
                assert_eq!(got(&rig.seen()[0]), rig.secret(name), "{way:?}");
                let mut frames = rig.frames(way, host);
                frames.get(
                    1,
                    host,
                    "/lent",
                    &[("x-renewed", rig.phantom(way, "renewed"))],
                );
                assert_eq!(frames.fate(1).body, b"fine");
                rig.record(way);
                assert_eq!(got(&rig.seen()[0]), rig.secret(name), "{way:?}");
            }
        });
    }
}

/// I01, I02, I04, I05: all that were ever lent, in fields and content.
fn echoes_of_old_and_new_come_back_as_the_phantom(rig: &Rig) {
    let secrets = RENEWALS.map(|(name, _)| rig.secret(name).to_owned());
    let shown = move |seen: &Seen| [&secrets[..], &[got(seen)]].concat();
    let content = |tokens: &[String]| {
        let hex: Vec<String> = tokens.iter().map(|token| hex(token.as_bytes())).collect();
        format!("{{\"tokens\":{tokens:?},\"hex\":{hex:?}}}")
    };
    rig.origins.on("/all", {
        let shown = shown.clone();
        move |seen| {
            let tokens = shown(seen);
            ok(
                &format!("X-Echo: a {}\r\nX-Echo: {}\r\n", tokens[1], tokens[2]),
                content(&tokens).as_bytes(),
            )
        }
    });
    rig.origins.on2("/all", move |seen| {
        let tokens = shown(seen);
        let text = content(&tokens);
        Answer {
            fields: vec![
                ("content-length", text.len().to_string()),
                ("x-echo", format!("a {}", tokens[1])),
            ],
            data: vec![text.into_bytes()],
            ..Answer::default()
        }
    });
    // What was never lent in this process is not known to it: each is lent once first.
    each_renewal(rig, |name| {
        for way in Way::SECURE {
            is_lent(rig, way, name);
        }
    });
    for host in [RENEWED, RENEWED2] {
        for way in Way::SECURE {
            let answer = ask(rig, way, host, "/all");
            let phantom = rig.phantom(way, "renewed").to_owned();
            let field = format!("a {phantom}");
            let expected = content(&vec![phantom.clone(); 4]);
            assert_eq!(answer.text(), expected, "{way:?} {host}");
            assert_eq!(answer.field("x-echo"), Some(field.as_str()), "{way:?}");
            has_its_length(&answer);
            let mut frames = rig.frames(way, host);
            frames.get(1, host, "/all", &[("x-renewed", &phantom)]);
            let fate = frames.fate(1);
            assert_eq!(String::from_utf8(fate.body).unwrap(), expected, "{way:?}");
            rig.record(way);
        }
    }
}

/// I03, I05: in every coding, cut anywhere, with and without a length, in trailers.
fn an_echo_of_a_renewed_secret_is_found_in_every_framing(rig: &Rig) {
    let expected = |token: &str| format!("<{token}>\n{{\"a\":\"{token}\"}} end");
    each_renewal(rig, |name| {
        let secret = rig.secret(name).to_owned();
        for coding in ["identity", "gzip", "deflate", "br", "zstd"] {
            for (path, cut) in [("/whole", 0), ("/cut", 23), ("/pieces", 150)] {
                let text = expected(&secret);
                let late = secret.clone();
                rig.origins.on(path, move |_| {
                    let pieces: Vec<&[u8]> = match cut {
                        0 => vec![text.as_bytes()],
                        cut => text.as_bytes().chunks(cut).collect(),
                    };
                    let pieces = coded_pieces(coding, &pieces);
                    let fields = format!("Content-Encoding: {coding}\r\n");
                    if cut == 0 {
                        return ok(&fields, &pieces.concat());
                    }
                    let head = format!("HTTP/1.1 200 OK\r\n{fields}Trailer: X-Late\r\nTransfer-Encoding: chunked\r\n\r\n");
                    let mut steps = vec![Step::Bytes(head.into_bytes())];
                    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
                        let size = format!("{:x}\r\n", piece.len());
                        steps.push(Step::Bytes([size.as_bytes(), piece, b"\r\n"].concat()));
                    }
                    steps.push(Step::Bytes(format!("0\r\nX-Late: {late}\r\n\r\n").into_bytes()));
                    steps
                });
                for way in Way::SECURE {
                    let answer = ask(rig, way, RENEWED, path);
                    let phantom = rig.phantom(way, "renewed");
                    assert_eq!(answer.text(), expected(phantom), "{way:?} {coding} {path}");
                    assert!(!answer.trailers.contains(&secret), "{way:?}");
                    has_its_length(&answer);
                }
            }
        }
    });
}

/// I01: a download keeps its length, and the mask has that of the secret.
fn a_long_answer_keeps_its_length_and_shows_nothing(rig: &Rig) {
    rig.origins.on("/long", |seen| {
        let filler = ".".repeat(40_000);
        ok("", format!("{filler}<{}>{filler}", got(seen)).as_bytes())
    });
    rig.origins.on("/bare", |_| {
        vec![Step::Bytes(
            b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n".to_vec(),
        )]
    });
    each_renewal(rig, |name| {
        for way in Way::SECURE {
            let answer = ask(rig, way, RENEWED, "/long");
            let length = 80_002 + rig.secret(name).len();
            assert_eq!(answer.body.len(), length, "{way:?}");
            let told = answer.field("content-length").map(str::to_owned);
            assert_eq!(told, Some(length.to_string()), "{way:?}");
            assert!(!answer.text().contains(rig.secret(name)), "{way:?}");
            // What has no content tells the length of another answer.
            let mut wire = rig.open(way, RENEWED);
            wire.send(&rig.fill(way, RENEWED, &ASK.replace("GET /x ", "HEAD /bare ")));
            let head = wire.line(b"\r\n\r\n").unwrap_or_default();
            let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
            assert!(head.contains("content-length: 1234"), "{way:?} {head}");
            rig.record(way);
        }
    });
}

/// I05, L08: a message's length stands before it.
fn messages_with_lengths_keep_them_and_show_nothing(rig: &Rig) {
    rig.origins.on("/grpc", |seen| {
        let text = format!("<{}>", got(seen));
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        let message = [&[0][..], &length, text.as_bytes()].concat();
        ok("Content-Type: application/grpc\r\n", &message.repeat(2))
    });
    rig.origins.on("/ws", |seen| {
        let text = got(seen);
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n\r\n",
            accept(seen.all("sec-websocket-key")[0])
        );
        let length = u16::try_from(text.len()).unwrap().to_be_bytes();
        let frame = match text.len() {
            short @ ..126 => [&[0x81, short as u8][..], text.as_bytes()].concat(),
            _ => [&[0x81, 126][..], &length, text.as_bytes()].concat(),
        };
        let end = [0x81, 3, b'e', b'n', b'd'];
        vec![Step::Bytes(head.into_bytes()), Step::Bytes(frame), Step::Bytes(end.to_vec()), Step::Close]
    });
    each_renewal(rig, |name| {
        let length = rig.secret(name).len();
        for way in Way::SECURE {
            let answer = ask(rig, way, RENEWED, "/grpc");
            assert_eq!(answer.body.len(), 2 * (5 + 2 + length), "{way:?}");
            has_its_length(&answer);
            let template = "GET /ws HTTP/1.1\r\nHost: {H}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nX-Renewed: {PH:renewed}\r\n\r\n";
            let mut wire = rig.open(way, RENEWED);
            let answer = wire.ask(&rig.fill(way, RENEWED, template));
            assert_eq!(answer.status, 101, "{way:?}");
            rig.record(way);
            let (rest, _) = wire.rest();
            let head = if length < 126 { 2 } else { 4 };
            assert_eq!(rest.len(), head + length + 5, "{way:?}");
            assert!(rest.ends_with(b"end"), "{way:?}");
        }
    });
}
