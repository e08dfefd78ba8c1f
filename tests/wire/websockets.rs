//! Credentials in the messages that a client sends by a WebSocket.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::echoes::accept;
use crate::policy::reload;
use crate::rig::frames::DATA;
use crate::rig::origin::Step;
use crate::rig::way::{Way, Wire};
use crate::rig::{DISCORD, OTHER, Rig, policies};
use crate::rows;

rows![
    a_credential_in_a_message_is_put_in_there_alone,
    a_credential_in_a_message_over_http2_is_put_in_alike,
    a_message_that_may_not_go_on_ends_its_websocket,
    a_policy_judges_a_credential_in_messages_before_the_upgrade,
    a_withdrawn_loan_ends_the_websocket_that_it_was_for,
    without_such_a_place_messages_are_not_read,
    large_messages_go_there_and_back_without_a_wait,
];

/// A frame of a client.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = match payload.len() {
        short @ ..126 => vec![0x80 | short as u8],
        medium @ ..0x1_0000 => [&[0xfe][..], &(medium as u16).to_be_bytes()].concat(),
        long => [&[0xff][..], &(long as u64).to_be_bytes()].concat(),
    };
    let mask = [7, 0, 0xa5, 0xff];
    let masked = payload.iter().zip(mask.iter().cycle());
    let masked: Vec<u8> = masked.map(|(byte, mask)| byte ^ mask).collect();
    [&[first][..], &length, &mask, &masked].concat()
}

fn identify(token: &str, other: &str) -> String {
    format!(r#"{{"op":2,"s":"{other}","d":{{"properties":{{"os":"x"}},"token":"{token}"}}}}"#)
}

/// Has E return each message.
pub fn serve(rig: &Rig, path: &str) {
    rig.origins.on(path, |seen| {
        let accept = accept(seen.all("sec-websocket-key")[0]);
        assert!(seen.all("sec-websocket-extensions").is_empty());
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        vec![Step::Bytes(head.into_bytes()), Step::Messages]
    });
}

const ASK: &str = "GET {P} HTTP/1.1\r\nHost: {H}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n";

/// Opens a WebSocket, and gives its record.
pub fn open(rig: &Rig, way: Way, host: &str, path: &str) -> (Wire, Value) {
    let mut wire = rig.open(way, host);
    let answer = wire.ask(&rig.fill(way, host, &ASK.replace("{P}", path)));
    let record = rig.record(way);
    assert_eq!(answer.status, 101, "{way:?} {answer:?} {record}");
    (wire, record)
}

fn a_credential_in_a_message_is_put_in_there_alone(rig: &Rig) {
    serve(rig, "/gateway");
    let mut whole = Vec::new();
    for way in Way::SECURE {
        rig.ends_now();
        let (mut wire, record) = open(rig, way, DISCORD, "/gateway?v=10&encoding=json");
        assert_eq!(
            record["lent"],
            serde_json::json!([{ "credential": "discord", "place": "websocket:/d/token" }])
        );
        let (phantom, secret) = (rig.phantom(way, "discord"), rig.secret("discord"));
        let inert = format!("{{\"op\":1,\"token\":\"{phantom}\"}}");
        let message = identify(phantom, phantom);
        let (one, two) = message.as_bytes().split_at(message.len() / 2);
        for bytes in [
            frame(0x81, inert.as_bytes()),
            frame(0x01, one),
            frame(0x89, b"ping"),
            frame(0x80, two),
            frame(0x88, &1000_u16.to_be_bytes()),
        ] {
            wire.send(&bytes);
        }
        let (rest, _) = wire.rest();
        drop(wire);
        let shown = String::from_utf8_lossy(&rest).into_owned();
        // E returns what it got: the secret is its phantom again.
        assert_eq!(shown.matches(&*message).count(), 1, "{way:?} {shown:?}");
        assert!(
            shown.contains(&inert) && shown.contains("ping"),
            "{shown:?}"
        );
        let end = rig.ends().remove(0);
        assert_eq!(
            (&end["outcome"], &end["scrubbed"]),
            (&"whole".into(), &1.into()),
            "{end}"
        );
        whole.push(identify(secret, phantom));
        rig.seen();
    }
    // Each got the secret, there alone.
    let raw = rig.origins.take_raw();
    rig.origins.put_raw(&raw);
    let raw = String::from_utf8_lossy(&raw).into_owned();
    let got = |text: &String| raw.matches(text.as_str()).count();
    whole.sort_unstable();
    let all = whole.len();
    whole.dedup();
    assert_eq!(whole.iter().map(got).sum::<usize>(), all);
}

fn a_credential_in_a_message_over_http2_is_put_in_alike(rig: &Rig) {
    serve(rig, "/gateway");
    for way in Way::SECURE {
        let mut frames = rig.frames(way, DISCORD);
        let fields = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":authority", DISCORD),
            (":path", "/gateway"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-extensions", "permessage-deflate"),
        ];
        frames.headers(1, &fields, false);
        let message = identify(rig.phantom(way, "discord"), "x");
        let bytes = [frame(0x81, message.as_bytes()), frame(0x88, b"")].concat();
        for piece in bytes.chunks(7) {
            frames.frame(DATA, 0, 1, piece);
        }
        let fate = frames.fate(1);
        rig.record(way);
        let shown = String::from_utf8_lossy(&fate.body).into_owned();
        assert!(shown.contains(&message), "{way:?} {fate:?} {shown}");
        rig.seen();
    }
}

fn a_message_that_may_not_go_on_ends_its_websocket(rig: &Rig) {
    serve(rig, "/gateway");
    let doubled = r#"{"d":{"token":"{PH:discord}"},"d":{}}"#;
    let theirs = identify(&rig.phantoms_b["discord"], "x");
    for way in [Way::Connect, Way::Tls] {
        let phantom = rig.phantom(way, "discord");
        let text = |text: &str| frame(0x81, text.replace("{PH:discord}", phantom).as_bytes());
        for (bytes, status, reason) in [
            (text(doubled), 1008, "content_unreadable"),
            (
                text(&identify("attackers", "x")),
                1008,
                "foreign_credential",
            ),
            (text(&theirs), 1008, "phantom_foreign_session"),
            (text(&" ".repeat(65_537)), 1009, "websocket_message"),
            // More than is read before the end: it is read and dropped, so that no reset hides it.
            (text(&" ".repeat(1 << 20)), 1009, "websocket_message"),
            (frame(0xc1, b"deflated"), 1002, "websocket_message"),
            (vec![0x81, 1, b'x'], 1002, "websocket_message"),
            (frame(0x81, b"\xff"), 1007, "websocket_message"),
            (frame(0x82, b"{}"), 1003, "websocket_message"),
        ] {
            rig.ends_now();
            let (mut wire, _) = open(rig, way, DISCORD, "/gateway");
            wire.send(&bytes);
            let (rest, _) = wire.rest();
            let end = rig.ends().remove(0);
            assert_eq!(rest, closed(status, reason, &end), "{way:?} {reason}");
            assert_eq!(
                (&end["outcome"], &end["reason"]),
                (&"cut".into(), &reason.into()),
                "{end}"
            );
            rig.seen();
            rig.unlent(1);
        }
    }
}

fn a_policy_judges_a_credential_in_messages_before_the_upgrade(rig: &Rig) {
    serve(rig, "/nolend");
    for way in Way::SECURE {
        let answer = rig.ask(way, DISCORD, &ASK.replace("{P}", "/nolend"));
        let record = rig.record(way);
        assert_eq!(answer.reason(), "policy_forbids", "{way:?} {record}");
        assert_eq!(record["unlent"]["place"], "websocket:/d/token", "{record}");
        // What is no upgrade has no messages.
        let answer = rig.ask(way, DISCORD, "GET /x HTTP/1.1\r\nHost: {H}\r\n\r\n");
        let record = rig.record(way);
        assert_eq!(answer.status, 200, "{way:?} {record}");
        assert!(record.get("lent").is_none(), "{record}");
        rig.seen();
    }
}

fn a_withdrawn_loan_ends_the_websocket_that_it_was_for(rig: &Rig) {
    serve(rig, "/gateway");
    rig.ends_now();
    let (mut wire, _) = open(rig, Way::Connect, DISCORD, "/gateway");
    wire.send(&frame(0x81, b"first"));
    assert_eq!(wire.exactly(7).unwrap(), b"\x81\x05first");
    let forbid = "@id(\"withdrawn\")\nforbid(principal, action == Gateway::Action::\"lend\", resource == Gateway::Credential::\"discord\");\n";
    assert!(reload(rig, &format!("{}{forbid}", policies())));
    let (rest, _) = wire.rest();
    let end = rig.ends().remove(0);
    assert_eq!(rest, closed(1001, "revoked", &end));
    assert_eq!(end["reason"], "revoked");
    rig.seen();
    rig.unlent(1);
    assert!(reload(rig, &policies()));
}

fn without_such_a_place_messages_are_not_read(rig: &Rig) {
    serve(rig, "/gateway");
    for way in Way::SECURE {
        let (mut wire, record) = open(rig, way, OTHER, "/gateway");
        assert!(record.get("lent").is_none(), "{record}");
        let message = identify(rig.phantom(way, "discord"), "x");
        wire.send(&frame(0x81, message.as_bytes()));
        wire.send(&frame(0x82, &[b'{'; 70_000]));
        wire.send(&frame(0x88, b""));
        let (rest, _) = wire.rest();
        assert!(String::from_utf8_lossy(&rest).contains(&message), "{way:?}");
        rig.seen();
    }
}

fn large_messages_go_there_and_back_without_a_wait(rig: &Rig) {
    serve(rig, "/gateway");
    let message = format!(r#"{{"op":1,"d":"{}"}}"#, "x".repeat(60_000));
    let (sent, length) = (frame(0x81, message.as_bytes()), message.len() as u16);
    let returned = [&[0x81, 126], &length.to_be_bytes()[..], message.as_bytes()].concat();
    for way in [Way::Connect, Way::Tls] {
        for host in [DISCORD, OTHER] {
            let (mut wire, _) = open(rig, way, host, "/gateway");
            let mut took: Vec<Duration> = (0..50)
                .map(|_| {
                    let began = Instant::now();
                    wire.send(&sent);
                    assert!(wire.exactly(returned.len()).as_deref() == Some(&returned));
                    began.elapsed()
                })
                .collect();
            took.sort();
            println!("{way:?} {host}: {:?}, at least {:?}", took[25], took[0]);
            // A side that waits for an acknowledgement waits for 40 ms.
            assert!(took[25] < Duration::from_millis(20), "{took:?}");
            wire.send(&frame(0x88, b""));
            wire.rest();
            rig.seen();
            if host == DISCORD {
                rig.unlent(1);
            }
        }
    }
}

/// The frame with which the gateway ends a WebSocket: it names the reason, and the exchange.
pub fn closed(status: u16, reason: &str, end: &serde_json::Value) -> Vec<u8> {
    let id = end["id"].as_str().unwrap();
    let why = format!("gateway: {reason}; gateway why {id}");
    let head = [0x88, 2 + u8::try_from(why.len()).unwrap()];
    [&head[..], &status.to_be_bytes(), why.as_bytes()].concat()
}
