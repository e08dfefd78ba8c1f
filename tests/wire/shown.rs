//! Group I: what an origin was ever shown, whole or in part, comes back only as the phantom.

use std::sync::{Arc, Mutex};

use super::echoes::{accept, ask, got};
use super::signing::{assumed, new_key, put, send, until};
use crate::rig::canary::hex;
use crate::rig::origin::{Answer, Step, ok};
use crate::rig::sigv4::mac;
use crate::rig::way::Way;
use crate::rig::{EXCHANGE, GOOD, H2, Rig, S3, SECOND};
use crate::rows;

rows![
    an_echo_that_was_stored_before_any_loan_is_found,
    an_echo_that_is_cut_at_an_end_shows_nothing,
    an_echo_that_is_cut_in_a_websocket_shows_nothing,
    an_echo_of_which_a_stream_breaks_off_shows_nothing,
    an_echo_in_the_forms_that_services_print_is_found,
    a_signature_that_was_made_is_no_answer,
    a_signature_is_no_answer_however_many_were_made_since,
    what_was_minted_is_shown_by_no_answer_that_fails,
];

/// The most consecutive characters of a secret that appear in a text.
fn letters_in_a_row(secret: &str, text: &str) -> usize {
    (1..=secret.len())
        .rev()
        .find(|length| {
            secret
                .as_bytes()
                .windows(*length)
                .any(|part| text.contains(std::str::from_utf8(part).unwrap()))
        })
        .unwrap_or(0)
}

/// The canary without the prefix that its phantom shares.
fn drawn<'s>(secret: &'s str, phantom: &str) -> &'s str {
    let same = secret
        .bytes()
        .zip(phantom.bytes())
        .take_while(|(s, p)| s == p)
        .count();
    &secret[same..]
}

/// I05: the first request to the origin carries nothing, and an earlier run has shown it the
/// secret.
fn an_echo_that_was_stored_before_any_loan_is_found(rig: &Rig) {
    let secret = rig.secret("other").to_owned();
    rig.origins.on("/stored", move |_| {
        let trailer = format!("HTTP/1.1 200 OK\r\nX-Echo: {secret}\r\nTrailer: X-Late\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{secret}\r\n0\r\nX-Late: {secret}\r\n\r\n", secret.len());
        vec![Step::Bytes(trailer.into_bytes())]
    });
    for way in Way::SECURE {
        let request = "GET /stored HTTP/1.1\r\nHost: {H}\r\nTE: trailers\r\nConnection: TE\r\nRange: bytes=0-9\r\nAccept-Encoding: rot13\r\n\r\n";
        let answer = rig.ask(way, SECOND, request);
        let record = rig.record(way);
        assert!(
            record["lent"].as_array().is_none_or(Vec::is_empty),
            "{record}"
        );
        let phantom = rig.phantom(way, "other");
        assert_eq!(
            (answer.text().as_str(), answer.field("x-echo")),
            (phantom, Some(phantom)),
            "{way:?}"
        );
        assert!(
            answer.trailers.is_empty() || answer.trailers.contains(phantom),
            "{way:?}"
        );
        let asked = rig.seen().remove(0);
        assert_eq!(asked.all("range"), ["bytes=0-65545"]);
        assert!(!asked.all("accept-encoding").contains(&"rot13"));
        assert!(
            record["scrubbed"].as_u64().is_some() || record["end"].is_null(),
            "{record}"
        );
    }
    // Nothing was injected for session B, anywhere.
    let mut wire = rig
        .dial(rig.ports.tls_b)
        .secure(Some(SECOND), &["http/1.1"])
        .unwrap();
    let answer = wire.ask(format!("GET /stored HTTP/1.1\r\nHost: {SECOND}\r\n\r\n").as_bytes());
    assert_eq!(answer.text(), rig.phantoms_b["other"]);
    rig.forget_records();
}

/// I05: the origin cuts what it repeats, where the workload says.
fn an_echo_that_is_cut_at_an_end_shows_nothing(rig: &Rig) {
    let message = |kind: &str, content: &str| {
        let length = content.len() as u32;
        match kind {
            "application/vnd.amazon.eventstream" => {
                [&(length + 4).to_be_bytes()[..], content.as_bytes()].concat()
            }
            "application/vnd.kubernetes.protobuf;stream=watch" => {
                [&length.to_be_bytes()[..], content.as_bytes()].concat()
            }
            "application/grpc" | "application/connect+json" => {
                [&[0][..], &length.to_be_bytes(), content.as_bytes()].concat()
            }
            "text/event-stream" => format!("data: {content}\n\n").into_bytes(),
            "application/json" => format!("{{\"title\":\"{content}\"}}").into_bytes(),
            _ => content.as_bytes().to_vec(),
        }
    };
    for kind in [
        "application/grpc",
        "application/connect+json",
        "application/vnd.amazon.eventstream",
        "application/vnd.kubernetes.protobuf;stream=watch",
        "text/event-stream",
        "application/json",
        "text/plain",
    ] {
        let all = move |secret: &str| {
            // Long enough that nobody guesses it.
            let cuts = [(0, 36), (0, secret.len() - 1), (10, secret.len()), (12, 44)];
            let texts = cuts.map(|(from, to)| secret[from..to.min(secret.len())].to_owned());
            texts.map(|text| message(kind, &text))
        };
        rig.origins.on("/cut", move |seen| {
            let content = all(&got(seen)[0]);
            let last = content[usize::from(seen.target.ends_with("one"))].clone();
            let mut steps = vec![Step::Bytes(
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
                )
                .into_bytes(),
            )];
            for piece in content.into_iter().chain([last]) {
                steps.push(Step::Bytes(
                    [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat(),
                ));
                steps.push(Step::Pause(30));
            }
            steps.push(Step::Bytes(b"0\r\n\r\n".to_vec()));
            steps
        });
        rig.origins.on2("/cut", move |seen| Answer {
            data: all(&got(seen)[0]).to_vec(),
            fields: vec![("content-type", kind.to_owned())],
            ..Answer::default()
        });
        for way in Way::SECURE {
            let secret = drawn(rig.secret("bearer"), rig.phantom(way, "bearer"));
            for host in [GOOD, H2] {
                let answer = match host {
                    GOOD => ask(rig, way, "/cut"),
                    host => {
                        let answer =
                            rig.ask(way, host, &super::echoes::ASK.replace("/x ", "/cut "));
                        rig.record(way);
                        answer
                    }
                };
                assert_eq!(answer.status, 200, "{way:?} {kind}");
                let shown = letters_in_a_row(secret, &answer.text());
                assert!(shown < 6, "{way:?} {host} {kind}: {shown} letters");
            }
        }
    }
}

/// L08: a message that ends within a reflected secret, and one spread over two messages.
fn an_echo_that_is_cut_in_a_websocket_shows_nothing(rig: &Rig) {
    rig.origins.on("/cut/ws", |seen| {
        let secret = got(seen)[0].clone();
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n\r\n",
            accept(seen.all("sec-websocket-key")[0])
        );
        let frame = |text: &str| [&[0x81, text.len() as u8][..], text.as_bytes()].concat();
        let frames = [frame(&secret[..40]), frame(&secret[10..]), frame("end")].concat();
        vec![Step::Bytes(head.into_bytes()), Step::Bytes(frames), Step::Close]
    });
    for way in Way::SECURE {
        let template = "GET /cut/ws HTTP/1.1\r\nHost: {H}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer {PH:bearer}\r\n\r\n";
        let mut wire = rig.open(way, GOOD);
        assert_eq!(
            wire.ask(&rig.fill(way, GOOD, template)).status,
            101,
            "{way:?}"
        );
        rig.record(way);
        let (rest, _) = wire.rest();
        let text = String::from_utf8_lossy(&rest).into_owned();
        let secret = drawn(rig.secret("bearer"), rig.phantom(way, "bearer"));
        assert!(
            text.contains("end") && letters_in_a_row(secret, &text) < 6,
            "{way:?} {text:?}"
        );
    }
}

/// I05: the connection ends within a reflected secret.
fn an_echo_of_which_a_stream_breaks_off_shows_nothing(rig: &Rig) {
    for (path, head) in [
        ("/broken/known", "Content-Length: 4000\r\n"),
        ("/broken/chunked", "Transfer-Encoding: chunked\r\n"),
    ] {
        rig.origins.on(path, move |seen| {
            let part = &got(seen)[0][..40];
            let content = match head.starts_with('C') {
                true => part.to_owned(),
                false => format!("{:x}\r\n{part}", part.len() + 100),
            };
            let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n");
            vec![
                Step::Bytes(head.into_bytes()),
                Step::Bytes(content.into_bytes()),
                Step::Pause(30),
                Step::Close,
            ]
        });
        for way in Way::SECURE {
            let answer = ask(rig, way, path);
            let secret = drawn(rig.secret("bearer"), rig.phantom(way, "bearer"));
            assert!(
                letters_in_a_row(secret, &answer.text()) < 6,
                "{way:?} {path}"
            );
        }
    }
}

/// I04: as AWS prints bytes, as sources have them, and in UTF-16.
fn an_echo_in_the_forms_that_services_print_is_found(rig: &Rig) {
    let spelled = |secret: &str, at: usize| -> Vec<u8> {
        let pairs: Vec<String> = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        let text = match at {
            0 => pairs.join(" "),
            1 => pairs.join(" ").to_uppercase(),
            2 => pairs.join(":"),
            3 => pairs.join("-"),
            4 => format!("{{0x{}}}", pairs.join(", 0x")),
            5 => pairs.iter().map(|pair| format!("\\x{pair}")).collect(),
            6 => pairs.iter().map(|pair| format!("&#x{pair};")).collect(),
            _ => secret.chars().flat_map(|letter| [letter, '\0']).collect(),
        };
        text.into_bytes()
    };
    rig.origins.on("/printed", move |seen| {
        let secret = got(seen)[0].clone();
        let all: Vec<Vec<u8>> = (0..8).map(|at| spelled(&secret, at)).collect();
        let coding = seen.target.ends_with("gzip");
        let content = all.join(&b'\n');
        match coding {
            true => ok(
                "Content-Encoding: gzip\r\n",
                &super::echoes::coded_pieces("gzip", &[&content]).concat(),
            ),
            false => ok("", &content),
        }
    });
    for way in Way::SECURE {
        for path in ["/printed", "/printed?gzip"] {
            let answer = ask(rig, way, path);
            let phantom = rig.phantom(way, "bearer");
            let expected = (0..8)
                .map(|at| spelled(phantom, at))
                .collect::<Vec<_>>()
                .join(&b'\n');
            assert_eq!(answer.body, expected, "{way:?} {path}");
        }
    }
}

/// J, I01: the service refuses, and repeats what it was sent.
fn a_signature_that_was_made_is_no_answer(rig: &Rig) {
    let made = Arc::new(Mutex::new(String::new()));
    for path in ["/refused", "/bucket/refused"] {
        let made = made.clone();
        rig.origins.on(path, move |seen| {
            let target = seen.target.split("signature=").nth(1).map(str::to_owned);
            let signed = seen
                .all("authorization")
                .first()
                .and_then(|value| value.split("Signature=").nth(1))
                .map(str::to_owned);
            let signature = target.or(signed).unwrap();
            *made.lock().unwrap() = signature.clone();
            let content =
                format!("<Error><SignatureProvided>{signature}</SignatureProvided></Error>");
            let head = format!(
                "HTTP/1.1 403 Forbidden\r\nX-Mac: {signature}\r\nContent-Length: {}\r\n\r\n",
                content.len()
            );
            vec![Step::Bytes([head.as_bytes(), content.as_bytes()].concat())]
        });
    }
    let hidden = |answer: &crate::rig::way::Response| {
        let signature = made.lock().unwrap().clone();
        assert!(signature.len() == 64 && answer.status == 403, "{answer:?}");
        assert!(
            !answer.text().contains(&signature) && !answer.head.contains(&signature),
            "{answer:?}"
        );
        assert!(
            answer.text().contains("<SignatureProvided>") && answer.text().len() > 64,
            "{answer:?}"
        );
    };
    for way in Way::SECURE {
        let key = rig.key(way, "exchange");
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
        let query = format!("symbol=BTC&timestamp={now}");
        let signature = hex(&mac(key.secret.as_bytes(), &query));
        let request = format!(
            "GET /refused?{query}&signature={signature} HTTP/1.1\r\nHost: {EXCHANGE}\r\nX-MBX-APIKEY: {}\r\n\r\n",
            key.id
        );
        hidden(&send(rig, way, EXCHANGE, request.as_bytes()));
        rig.record(way);
        let mut asked = put(b"x");
        asked.path = "/bucket/refused".to_owned();
        let bytes = asked.write(S3, &rig.key(way, "aws"), "");
        hidden(&send(rig, way, S3, &bytes));
        rig.record(way);
    }
}

/// J, I01: the answers come when many more were signed.
fn a_signature_is_no_answer_however_many_were_made_since(rig: &Rig) {
    const PARALLEL: usize = 24;
    rig.origins.on("/late", |seen| {
        let signature = seen.target.split("signature=").nth(1).unwrap();
        let head = format!(
            "HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n\r\n",
            signature.len()
        );
        vec![
            Step::Pause(1500),
            Step::Bytes([head.as_bytes(), signature.as_bytes()].concat()),
        ]
    });
    let way = Way::Connect;
    let key = rig.key(way, "exchange");
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let mut wires: Vec<_> = (0..PARALLEL)
        .map(|at| {
            let query = format!("symbol=BTC{at}&timestamp={now}");
            let signature = hex(&mac(key.secret.as_bytes(), &query));
            let request = format!(
                "GET /late?{query}&signature={signature} HTTP/1.1\r\nHost: {EXCHANGE}\r\nX-MBX-APIKEY: {}\r\n\r\n",
                key.id
            );
            (rig.open(way, EXCHANGE), request)
        })
        .collect();
    for (wire, request) in &mut wires {
        wire.send(request.as_bytes());
    }
    let shown: Vec<_> = wires.iter_mut().map(|(wire, _)| wire.response()).collect();
    rig.records(way, PARALLEL);
    let made: Vec<_> = rig
        .seen()
        .iter()
        .map(|seen| seen.target.split("signature=").nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(made.len(), PARALLEL);
    for answer in shown {
        assert_eq!((answer.status, answer.body.len()), (403, 64), "{answer:?}");
        assert!(!made.contains(&answer.text()), "{answer:?}");
    }
}

/// I07: services repeat in errors what they refuse.
fn what_was_minted_is_shown_by_no_answer_that_fails(rig: &Rig) {
    for way in [Way::Connect, Way::Transparent] {
        let real = new_key(rig);
        let (ours, _) = assumed(rig, way, &real, &until(3600));
        let written = |key: &crate::rig::sigv4::Key| {
            format!(
                "<Error>{} {}</Error>",
                key.id,
                key.token.as_deref().unwrap()
            )
        };
        let content = written(&real);
        rig.origins.on("/bucket/key", move |_| {
            let head = format!(
                "HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\n\r\n",
                content.len()
            );
            vec![Step::Bytes([head.as_bytes(), content.as_bytes()].concat())]
        });
        let answer = send(rig, way, S3, &put(b"x").write(S3, &ours, ""));
        rig.record(way);
        rig.seen();
        assert_eq!(
            (answer.status, answer.text()),
            (400, written(&ours)),
            "{way:?}"
        );
        rig.origins.on("/bucket/key", |_| ok("", b""));
    }
}
