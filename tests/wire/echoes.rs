//! Group I: a secret that an origin reflects never reaches the sandbox.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use compression_codecs::brotli::params::EncoderParams;
use compression_codecs::core::Level;
use compression_codecs::core::util::{PartialBuffer, WriteBuffer};
use compression_codecs::flate::params::FlateEncoderParams;
use compression_codecs::{BrotliEncoder, EncodeV2, GzipEncoder, ZlibEncoder, ZstdEncoder};

use crate::rig::canary::{hex, percent};
use crate::rig::origin::{Answer, Seen, Step, ok};
use crate::rig::way::{Response, Way, Wire};
use crate::rig::{GOOD, H2, Rig};
use crate::rows;

rows![
    an_echo_in_content_becomes_the_phantom,
    an_echo_in_any_field_becomes_the_phantom,
    an_echo_behind_a_content_coding_is_found,
    what_cannot_be_decoded_is_not_passed_on,
    no_length_of_a_coded_form_is_told,
    an_echo_in_any_encoding_is_found,
    an_echo_cut_into_pieces_is_found,
    an_echo_in_trailers_is_found,
    an_echo_of_an_http2_origin_is_found,
    an_echo_in_an_event_stream_is_found,
    an_echo_in_a_later_answer_is_found,
    an_echo_in_a_websocket_is_found,
    a_websocket_that_the_gateway_cuts_is_recorded_as_cut,
    the_gateways_own_words_hold_nothing_of_the_origin,
];

pub const ASK: &str = "GET /x HTTP/1.1\r\nHost: {H}\r\nAuthorization: Bearer {PH:bearer}\r\nX-Api-Key: {PH:xkey}\r\n\r\n";

/// The secrets as E received them.
pub fn got(seen: &Seen) -> [String; 2] {
    let bearer = seen
        .all("authorization")
        .first()
        .copied()
        .unwrap_or_default()
        .trim_start_matches("Bearer ")
        .to_owned();
    [
        bearer,
        seen.all("x-api-key")
            .first()
            .copied()
            .unwrap_or_default()
            .to_owned(),
    ]
}

pub fn ask(rig: &Rig, way: Way, path: &str) -> Response {
    let answer = rig.ask(way, GOOD, &ASK.replace("/x ", &format!("{path} ")));
    let record = rig.record(way);
    assert_eq!(
        record["lent"].as_array().map(Vec::len),
        Some(2),
        "{way:?} {path} {record}"
    );
    answer
}

/// I01. [`Rig::settle`] checks that no canary came through.
fn an_echo_in_content_becomes_the_phantom(rig: &Rig) {
    rig.origins.on("/echo", |seen| {
        ok(
            "Content-Type: application/json\r\n",
            format!("{{\"got\":{:?}}}", got(seen)).as_bytes(),
        )
    });
    for way in Way::SECURE {
        let answer = ask(rig, way, "/echo");
        let expected = format!(
            "{{\"got\":{:?}}}",
            [rig.phantom(way, "bearer"), rig.phantom(way, "xkey")]
        );
        assert_eq!((answer.status, answer.text()), (200, expected), "{way:?}");
        // The length did not change, so it can be announced.
        assert_eq!(
            answer.field("content-length"),
            Some(answer.body.len().to_string().as_str()),
            "{way:?}"
        );
    }
    // HEAD, 204 and 304 have only fields.
    rig.origins.on("/nobody", |seen| {
        vec![Step::Bytes(
            format!(
                "HTTP/1.1 304 Not Modified\r\nX-Echo: {}\r\n\r\n",
                got(seen)[0]
            )
            .into_bytes(),
        )]
    });
    for way in Way::SECURE {
        let answer = ask(rig, way, "/nobody");
        assert_eq!(
            answer.field("x-echo"),
            Some(rig.phantom(way, "bearer")),
            "{way:?}"
        );
    }
}

/// I02.
fn an_echo_in_any_field_becomes_the_phantom(rig: &Rig) {
    rig.origins.on("/fields", |seen| {
        let [bearer, xkey] = got(seen);
        let head = format!(
            "HTTP/1.1 401 {bearer}\r\nSet-Cookie: t={bearer}; Path=/\r\nLocation: https://x/?k={bearer}\r\nWWW-Authenticate: Bearer realm=\"{xkey}\"\r\nLink: <https://x/{bearer}>\r\nX-Request-Id: {}\r\nX-Two: {bearer}{xkey}{bearer}\r\nContent-Length: 0\r\n\r\n",
            STANDARD.encode(&bearer)
        );
        vec![Step::Bytes(head.into_bytes())]
    });
    rig.origins.on("/interim", |seen| {
        let interim = format!(
            "HTTP/1.1 103 Early Hints\r\nLink: <https://x/{}>\r\n\r\n",
            got(seen)[0]
        );
        [vec![Step::Bytes(interim.into_bytes())], ok("", b"x")].concat()
    });
    rig.origins.on("/name", |seen| {
        ok(&format!("{}: x\r\n", got(seen)[0]), b"x")
    });
    for way in Way::SECURE {
        let answer = ask(rig, way, "/fields");
        let phantom = rig.phantom(way, "bearer");
        assert_eq!(answer.status, 401, "{way:?}");
        assert_eq!(
            answer.field("set-cookie"),
            Some(format!("t={phantom}; Path=/").as_str()),
            "{way:?}"
        );
        assert_eq!(
            answer.field("location"),
            Some(format!("https://x/?k={phantom}").as_str()),
            "{way:?}"
        );
        assert_eq!(ask(rig, way, "/interim").status, 200, "{way:?}");
        let answer = ask(rig, way, "/name");
        assert!([200, 502].contains(&answer.status), "{way:?} {answer:?}");
    }
}

/// Pieces in a coding, each of which can be decoded once it has arrived.
pub fn coded_pieces(coding: &str, pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut encoder: Box<dyn EncodeV2> = match coding {
        "gzip" | "x-gzip" | "GZIP" => {
            Box::new(GzipEncoder::new(FlateEncoderParams::from(Level::Fastest)))
        }
        "deflate" => Box::new(ZlibEncoder::new(FlateEncoderParams::from(Level::Fastest))),
        "br" => Box::new(BrotliEncoder::new(
            EncoderParams::default().quality(Level::Fastest),
        )),
        "zstd" => Box::new(ZstdEncoder::new(1)),
        _ => return pieces.iter().map(|piece| piece.to_vec()).collect(),
    };
    let mut scratch = vec![0; 4096];
    let mut all = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let mut coded = Vec::new();
        let mut input = PartialBuffer::new(*piece);
        let mut done = false;
        while !done {
            let mut output = WriteBuffer::new_initialized(&mut scratch);
            if !input.unwritten().is_empty() {
                encoder.encode(&mut input, &mut output).unwrap();
            } else if at + 1 < pieces.len() {
                done = encoder.flush(&mut output).unwrap();
            } else {
                done = encoder.finish(&mut output).unwrap();
            }
            coded.extend_from_slice(output.written());
        }
        all.push(coded);
    }
    all
}

fn coded(coding: &str, plain: &[u8]) -> Vec<u8> {
    coded_pieces(coding, &[plain]).concat()
}

/// I03.
fn an_echo_behind_a_content_coding_is_found(rig: &Rig) {
    for codings in [
        "gzip",
        "x-gzip",
        "GZIP",
        "deflate",
        "br",
        "zstd",
        "gzip, gzip",
        "br, gzip",
        "identity",
    ] {
        rig.origins.on("/coded", move |seen| {
            let mut body = format!("<{}>", got(seen).join("|")).into_bytes();
            for coding in codings.split(", ") {
                body = coded(coding, &body);
            }
            ok(
                &format!("Content-Encoding: {codings}\r\nETag: \"1\"\r\n"),
                &body,
            )
        });
        for way in Way::SECURE {
            let answer = ask(rig, way, "/coded");
            let expected = format!(
                "<{}|{}>",
                rig.phantom(way, "bearer"),
                rig.phantom(way, "xkey")
            );
            assert_eq!(
                (answer.status, answer.text()),
                (200, expected),
                "{way:?} {codings}"
            );
            if codings != "identity" {
                assert_eq!(answer.field("content-encoding"), None, "{way:?} {codings}");
            }
        }
    }
    // A client that asks for another coding does not get it from the origin.
    rig.origins.on("/asked", |seen| {
        let asked =
            ["accept-encoding", "grpc-accept-encoding"].map(|name| seen.all(name).join("|"));
        ok("", asked.concat().as_bytes())
    });
    for way in Way::SECURE {
        let answer = rig.ask(way, GOOD, "GET /asked HTTP/1.1\r\nHost: {H}\r\nAccept-Encoding: compress, rot13, gzip\r\nGrpc-Accept-Encoding: gzip, snappy\r\nAuthorization: Bearer {PH:bearer}\r\n\r\n");
        rig.record(way);
        assert_eq!(answer.text(), "identity", "{way:?}");
    }
}

/// I11: how long the coded form of an echo and the client's text is tells how alike they are
/// (BREACH).
fn no_length_of_a_coded_form_is_told(rig: &Rig) {
    rig.origins.on("/long", |seen| {
        let noise: Vec<u8> = (0..9_000u32)
            .flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        let plain = [got(seen).join("|").as_bytes(), hex(&noise).as_bytes()].concat();
        let body = coded("gzip", &plain);
        if seen.method == "HEAD" {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-MD5: x\r\nContent-Length: {length}\r\n\r\n"
            );
            return vec![Step::Bytes(head.into_bytes())];
        }
        let mut steps = vec![Step::Bytes(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
        )];
        for piece in body.chunks(1_024) {
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            steps.extend([Step::Bytes(chunk), Step::Pause(5)]);
        }
        steps.push(Step::Bytes(b"0\r\n\r\n".to_vec()));
        steps
    });
    for way in Way::SECURE {
        for method in ["HEAD", "GET"] {
            let request = ASK.replace("GET /x", &format!("{method} /long"));
            let mut wire = rig.open(way, GOOD);
            wire.send(&rig.fill(way, GOOD, &request));
            let head = wire.line(b"\r\n\r\n").unwrap();
            let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
            assert!(head.starts_with("http/1.1 200 "), "{way:?} {head}");
            for told in ["content-length", "content-encoding", "content-md5"] {
                assert!(!head.contains(told), "{way:?} {method} {head}");
            }
            if method == "GET" {
                let lengths = chunk_lengths(&mut wire);
                assert_eq!(lengths.iter().sum::<usize>() / 16_384, 4, "{lengths:?}");
                assert!(lengths.len() <= 9, "{way:?} {lengths:?}");
            }
            rig.record(way);
        }
    }
}

/// The lengths of the chunks of an answer, read to its end.
fn chunk_lengths(wire: &mut Wire) -> Vec<usize> {
    let mut lengths = Vec::new();
    loop {
        let line = String::from_utf8(wire.line(b"\r\n").unwrap()).unwrap();
        match usize::from_str_radix(line.trim(), 16).unwrap() {
            0 => return lengths,
            length => lengths.push(length),
        }
        let length = lengths[lengths.len() - 1];
        assert_eq!(wire.exactly(length + 2).unwrap().len(), length + 2);
    }
}

/// I03: an unknown coding, too many of them, and a false label.
fn what_cannot_be_decoded_is_not_passed_on(rig: &Rig) {
    for codings in [
        "rot13",
        "compress",
        "gzip, rot13",
        "gzip, gzip, gzip",
        "aes128gcm",
        "gzip;q=1",
    ] {
        rig.origins.on("/uncodable", move |seen| {
            let rotated: String = got(seen)[0].chars().rev().collect();
            ok(
                &format!("Content-Encoding: {codings}\r\n"),
                rotated.as_bytes(),
            )
        });
        for way in Way::SECURE {
            let answer = ask(rig, way, "/uncodable");
            assert_eq!(
                (answer.status, answer.reason().as_str()),
                (502, "encoding"),
                "{way:?} {codings} {answer:?}"
            );
        }
    }
    for coding in ["gzip", "br", "zstd"] {
        rig.origins.on("/lie", move |seen| {
            ok(
                &format!("Content-Encoding: {coding}\r\n"),
                got(seen)[0].as_bytes(),
            )
        });
        for way in Way::SECURE {
            let answer = ask(rig, way, "/lie");
            assert!(
                [0, 502].contains(&answer.status) || answer.body.ends_with(b"[cut]"),
                "{way:?} {coding} {answer:?}"
            );
        }
        rig.origins.on("/truncated", move |seen| {
            let whole = coded(coding, got(seen).join("|").as_bytes());
            ok(
                &format!("Content-Encoding: {coding}\r\n"),
                &whole[..whole.len() - 4],
            )
        });
        for way in Way::SECURE {
            let answer = ask(rig, way, "/truncated");
            assert!(
                [0, 502].contains(&answer.status) || answer.body.ends_with(b"[cut]"),
                "{way:?} {coding} {answer:?}"
            );
        }
    }
}

/// I04.
fn an_echo_in_any_encoding_is_found(rig: &Rig) {
    type Encoding = fn(&str) -> String;
    let encodings: [Encoding; 15] = [
        |secret| STANDARD.encode(secret),
        |secret| STANDARD.encode(format!("x{secret}")),
        |secret| STANDARD.encode(format!("xy{secret}z")),
        |secret| URL_SAFE_NO_PAD.encode(secret),
        |secret| URL_SAFE_NO_PAD.encode(format!("x{secret}")),
        |secret| URL_SAFE_NO_PAD.encode(format!("xy{secret}")),
        |secret| percent(secret.as_bytes(), |byte| byte.is_ascii_alphanumeric()),
        |secret| {
            let upper = percent(secret.as_bytes(), |byte| byte.is_ascii_alphanumeric());
            ["%2B", "%2D", "%2F"].iter().fold(upper, |text, escape| {
                text.replace(escape, &escape.to_lowercase())
            })
        },
        |secret| secret.replace('/', "\\/"),
        |secret| hex(secret.as_bytes()),
        |secret| hex(secret.as_bytes()).to_uppercase(),
        |secret| secret.replace('/', "&#x2F;"),
        |secret| secret.replace('+', "&#43;"),
        |secret| format!("{secret}{secret}"),
        |secret| format!("{}{secret}", &secret[..6]),
    ];
    for (at, encoding) in encodings.into_iter().enumerate() {
        let path = format!("/encoded/{at}");
        rig.origins.on(&path, move |seen| {
            ok(
                "",
                got(seen)
                    .map(|secret| encoding(&secret))
                    .join("\n")
                    .as_bytes(),
            )
        });
        for way in Way::SECURE {
            let answer = ask(rig, way, &path);
            assert_eq!(answer.status, 200);
            // So few characters are not a fragment, and stay. The whole secret after them does not,
            // as `settle` checks.
            if at != 14 {
                let expected = [rig.phantom(way, "bearer"), rig.phantom(way, "xkey")]
                    .map(encoding)
                    .join("\n");
                let alike = answer
                    .text()
                    .bytes()
                    .zip(expected.bytes())
                    .filter(|(a, b)| a == b)
                    .count();
                assert!(
                    answer.body.len() == expected.len() && alike * 100 >= expected.len() * 80,
                    "{way:?} {at}: {} {expected}",
                    answer.text()
                );
            }
        }
    }
}

/// I05.
fn an_echo_cut_into_pieces_is_found(rig: &Rig) {
    for (path, size) in [
        ("/pieces/1", 1),
        ("/pieces/2", 2),
        ("/pieces/7", 7),
        ("/pieces/29", 29),
    ] {
        rig.origins.on(path, move |seen| {
            let body = format!(
                "before {} between {} after",
                got(seen)[0],
                STANDARD.encode(&got(seen)[1])
            )
            .into_bytes();
            let mut steps = vec![Step::Bytes(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
            )];
            for piece in body.chunks(size) {
                steps.push(Step::Bytes(
                    [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat(),
                ));
                steps.push(Step::Pause(u64::from(size > 5)));
            }
            steps.push(Step::Bytes(b"0\r\n\r\n".to_vec()));
            steps
        });
        for way in Way::SECURE {
            let answer = ask(rig, way, path);
            let expected = format!(
                "before {} between {} after",
                rig.phantom(way, "bearer"),
                STANDARD.encode(rig.phantom(way, "xkey"))
            );
            assert_eq!(answer.text(), expected, "{way:?} {path}");
        }
    }
    // The same in a body of known length, and in one that ends with the connection.
    for (path, head) in [
        ("/known", "Content-Length: 48\r\n"),
        ("/until", "Connection: close\r\n"),
    ] {
        rig.origins.on(path, move |seen| {
            let mut steps = vec![Step::Bytes(
                format!("HTTP/1.1 200 OK\r\n{head}\r\n").into_bytes(),
            )];
            steps.extend(got(seen)[0].bytes().map(|byte| Step::Bytes(vec![byte])));
            steps.push(Step::Close);
            steps
        });
        for way in Way::SECURE {
            assert_eq!(
                ask(rig, way, path).text(),
                rig.phantom(way, "bearer"),
                "{way:?} {path}"
            );
        }
    }
}

/// I02, E19.
fn an_echo_in_trailers_is_found(rig: &Rig) {
    rig.origins.on("/trailers", |seen| {
        let [bearer, xkey] = got(seen);
        let text = format!("HTTP/1.1 200 OK\r\nTrailer: X-Echo, Grpc-Message\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Echo: {bearer}\r\nGrpc-Message: {}\r\nSet-Cookie: a={xkey}\r\n\r\n", percent(xkey.as_bytes(), |b| b.is_ascii_alphanumeric()));
        vec![Step::Bytes(text.into_bytes())]
    });
    for way in Way::SECURE {
        let answer = rig.ask(
            way,
            GOOD,
            &ASK.replace("/x ", "/trailers ")
                .replace("\r\n\r\n", "\r\nTE: trailers\r\nConnection: TE\r\n\r\n"),
        );
        rig.record(way);
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (200, "x"),
            "{way:?}"
        );
    }
}

/// I01 to I05 with an HTTP/2 origin, and an HTTP/2 client, too.
fn an_echo_of_an_http2_origin_is_found(rig: &Rig) {
    rig.origins.on2("/echo", |seen| {
        let [bearer, xkey] = got(seen);
        Answer {
            fields: vec![
                ("x-echo", bearer.clone()),
                ("x-echo", STANDARD.encode(&xkey)),
            ],
            data: format!("<{bearer}|{xkey}>")
                .bytes()
                .map(|byte| vec![byte])
                .collect(),
            trailers: vec![("grpc-status", "13".to_owned()), ("grpc-message", bearer)],
            ..Answer::default()
        }
    });
    for way in Way::SECURE {
        let answer = rig.ask(way, H2, &ASK.replace("/x ", "/echo "));
        rig.record(way);
        let expected = format!(
            "<{}|{}>",
            rig.phantom(way, "bearer"),
            rig.phantom(way, "xkey")
        );
        assert_eq!(
            (answer.status, answer.text()),
            (200, expected.clone()),
            "{way:?}"
        );
        assert_eq!(answer.field("x-echo"), Some(rig.phantom(way, "bearer")));
        let mut frames = rig.frames(way, H2);
        let bearer = format!("Bearer {}", rig.phantom(way, "bearer"));
        frames.get(
            1,
            H2,
            "/echo",
            &[
                ("authorization", &bearer),
                ("x-api-key", rig.phantom(way, "xkey")),
            ],
        );
        let fate = frames.fate(1);
        rig.record(way);
        assert_eq!(String::from_utf8(fate.body).unwrap(), expected, "{way:?}");
        assert!(rig.seen().iter().all(|seen| seen.http2));
    }
}

/// I05: events that a client joins, each one flushed separately.
fn an_echo_in_an_event_stream_is_found(rig: &Rig) {
    rig.origins.on("/events", |seen| {
        let secret = got(seen)[0].clone();
        let mut steps = vec![Step::Bytes(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
                .to_vec(),
        )];
        for event in 0..3 {
            steps.push(Step::Bytes(
                format!("data: {{\"n\":{event},\"echo\":\"{secret}\"}}\n\n").into_bytes(),
            ));
            steps.push(Step::Pause(20));
        }
        steps.push(Step::Close);
        steps
    });
    for way in Way::SECURE {
        let answer = ask(rig, way, "/events");
        assert_eq!(
            answer.text().matches(rig.phantom(way, "bearer")).count(),
            3,
            "{way:?} {answer:?}"
        );
    }
}

/// I14, I01: the origin stores what it received, and returns it to a request that carries nothing.
fn an_echo_in_a_later_answer_is_found(rig: &Rig) {
    let kept = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let (write, read) = (kept.clone(), kept);
    rig.origins.on("/keep", move |seen| {
        *write.lock().unwrap() = got(seen)[0].clone();
        ok("", b"kept")
    });
    rig.origins.on("/give", move |_| {
        let secret = read.lock().unwrap().clone();
        ok(&format!("X-Echo: {secret}\r\n"), secret.as_bytes())
    });
    for way in Way::SECURE {
        ask(rig, way, "/keep");
        let answer = rig.ask(way, GOOD, "GET /give HTTP/1.1\r\nHost: {H}\r\n\r\n");
        rig.record(way);
        assert_eq!(answer.text(), rig.phantom(way, "bearer"), "{way:?}");
    }
}

/// I12, L08.
fn an_echo_in_a_websocket_is_found(rig: &Rig) {
    rig.origins.on("/ws", |seen| {
        let secret = got(seen)[0].clone();
        let key = seen.all("sec-websocket-key")[0].to_owned();
        let extensions = seen.all("sec-websocket-extensions").join(",");
        let head = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n\r\n", accept(&key));
        let text = format!("{secret}|{extensions}");
        let whole = [&[0x81, text.len() as u8][..], text.as_bytes()].concat();
        // One message in two frames, cut inside the secret.
        let (one, two) = secret.split_at(10);
        let first = [&[0x01, one.len() as u8][..], one.as_bytes()].concat();
        let second = [&[0x80, two.len() as u8][..], two.as_bytes()].concat();
        vec![Step::Bytes(head.into_bytes()), Step::Bytes(whole), Step::Bytes(first), Step::Pause(20), Step::Bytes(second), Step::Close]
    });
    for way in Way::SECURE {
        let template = "GET /ws HTTP/1.1\r\nHost: {H}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate\r\nAuthorization: Bearer {PH:bearer}\r\n\r\n";
        rig.ends_now();
        let mut wire = rig.open(way, GOOD);
        let answer = wire.ask(&rig.fill(way, GOOD, template));
        let record = rig.record(way);
        assert_eq!(answer.status, 101, "{way:?} {answer:?} {record}");
        let (rest, _) = wire.rest();
        drop(wire);
        let end = rig.ends().remove(0);
        assert_eq!(end["outcome"], "whole", "{way:?} {end}");
        assert_eq!(end["scrubbed"], 2, "{way:?} {end}");
        let text = String::from_utf8_lossy(&rest).into_owned();
        let phantom = rig.phantom(way, "bearer");
        assert!(
            text.contains(&format!("{phantom}|")) && !text.contains("deflate"),
            "{way:?} {text:?}"
        );
        // Joined again, the pieces are the phantom's, too.
        let letters = |text: &str| {
            text.chars()
                .filter(char::is_ascii_alphanumeric)
                .collect::<String>()
        };
        let secret = letters(rig.secret("bearer"));
        assert!(!letters(&text).contains(&secret), "{way:?} {text:?}");
    }
}

/// A server must not mask its frames (RFC 6455 §5.1).
fn a_websocket_that_the_gateway_cuts_is_recorded_as_cut(rig: &Rig) {
    rig.origins.on("/masked/ws", |seen| {
        let accept = accept(seen.all("sec-websocket-key")[0]);
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        let echo = got(seen)[0].clone();
        let good = [&[0x81, echo.len() as u8][..], echo.as_bytes()].concat();
        vec![
            Step::Bytes(head.into_bytes()),
            Step::Bytes(good),
            Step::Pause(200),
            Step::Bytes(b"\x81\x82maskhi".to_vec()),
            Step::Pause(500),
            Step::Close,
        ]
    });
    let ask = "GET /masked/ws HTTP/1.1\r\nHost: {H}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer {PH:bearer}\r\n\r\n";
    for way in Way::SECURE {
        rig.ends_now();
        let mut wire = rig.open(way, GOOD);
        assert_eq!(wire.ask(&rig.fill(way, GOOD, ask)).status, 101, "{way:?}");
        rig.record(way);
        wire.rest();
        let end = rig.ends().remove(0);
        assert_eq!(end["outcome"], "cut", "{way:?} {end}");
        assert_eq!(end["reason"], "bad_response", "{way:?} {end}");
        assert_eq!(end["scrubbed"], 1, "{way:?} {end}");
    }
}

pub fn accept(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(aws_lc_rs::digest::digest(
        &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY,
        text.as_bytes(),
    ))
}

/// I06, I13.
fn the_gateways_own_words_hold_nothing_of_the_origin(rig: &Rig) {
    for (path, junk) in [
        ("/junk1", "SECRET-LOOKING garbage\r\n\r\n"),
        ("/junk2", "HTTP/1.1 200 OK\r\nSECRET-LOOKING\r\n\r\n"),
        ("/junk3", "HTTP/9.9 200 SECRET-LOOKING\r\n\r\n"),
        ("/junk4", "HTTP/1.1 999999 SECRET-LOOKING\r\n\r\n"),
    ] {
        rig.origins.on(path, move |seen| {
            vec![
                Step::Bytes(
                    junk.replace(
                        "SECRET-LOOKING",
                        &format!("SECRET-LOOKING {}", got(seen)[0]),
                    )
                    .into_bytes(),
                ),
                Step::Close,
            ]
        });
        for way in Way::SECURE {
            let answer = ask(rig, way, path);
            assert_eq!(
                (answer.status, answer.reason().as_str()),
                (502, "bad_response"),
                "{way:?} {path} {answer:?}"
            );
            assert!(!answer.text().contains("SECRET-LOOKING"), "{answer:?}");
        }
    }
}
