//! Groups P and Q, as far as bytes show them: bounds, clients that leave, and logs; and that the
//! rig itself sees what it must.

use std::io::Write as _;
use std::time::Duration;

use crate::rig::canary;
use crate::rig::origin::{Step, ok};
use crate::rig::way::Way;
use crate::rig::{GOOD, OTHER, Rig};
use crate::rows;

rows![
    the_rig_sees_what_it_must,
    clients_that_leave_at_any_byte_leave_nothing_behind,
    many_connections_do_not_starve_another_session,
    an_answer_without_end_has_bounds,
    text_of_the_client_stays_on_its_line,
];

/// A rig that saw nothing would pass everything.
fn the_rig_sees_what_it_must(rig: &Rig) {
    let secret = rig.secret("xkey").as_bytes();
    for (form, bytes) in canary::forms(secret) {
        let found = canary::seen(&rig.canaries, &[b"before ", &bytes[..], b" after"].concat());
        assert!(!found.is_empty(), "{form}");
    }
    assert!(canary::seen(&rig.canaries, rig.phantom(Way::Tls, "xkey").as_bytes()).is_empty());
    let before = rig.origins.touched();
    let touch = std::net::TcpStream::connect(rig.origins.x).unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(2);
    while rig.origins.touched() == before {
        assert!(
            std::time::Instant::now() < until,
            "X did not notice a touch"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(touch);
    rig.origins.forget_touches();
    let asks = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    asks.send_to(
        b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04evil\0\0\x01\0\x01",
        rig.names.address,
    )
    .unwrap();
    asks.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    asks.recv(&mut [0; 64]).unwrap();
    assert_eq!(rig.names.take_asked(), ["evil"]);
    for gate in [&rig.served, &rig.sandboxed] {
        assert!(
            std::fs::read_to_string(&gate.log)
                .unwrap()
                .contains("TRACE"),
            "{} is not at trace",
            gate.log.display()
        );
    }
}

/// P08.
fn clients_that_leave_at_any_byte_leave_nothing_behind(rig: &Rig) {
    let template = "POST /x HTTP/1.1\r\nHost: {H}\r\nAuthorization: Bearer {PH:bearer}\r\nContent-Length: 20\r\n\r\n0123456789";
    for way in Way::SECURE {
        let request = rig.fill(way, GOOD, template);
        for length in (1..request.len()).step_by(17) {
            let mut wire = rig.open(way, GOOD);
            wire.send(&request[..length]);
        }
        std::thread::sleep(Duration::from_millis(150));
        rig.abandon_records(way);
        assert!(
            rig.seen().is_empty(),
            "{way:?}: E never gets a whole request"
        );
    }
    // While the origin thinks, and while it answers.
    rig.origins.on("/slow", |_| {
        [vec![Step::Pause(200)], ok("", b"late")].concat()
    });
    rig.origins.on("/long", |_| {
        let mut steps = vec![Step::Bytes(
            b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".to_vec(),
        )];
        steps.extend((0..50).flat_map(|_| [Step::Bytes(vec![b'x'; 20_000]), Step::Pause(5)]));
        steps
    });
    for way in Way::SECURE {
        for path in ["/slow", "/long"] {
            let mut wire = rig.open(way, OTHER);
            wire.send(format!("GET {path} HTTP/1.1\r\nHost: {OTHER}\r\n\r\n").as_bytes());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    rig.abandon_records(Way::Tls);
    rig.abandon_records(Way::Transparent);
    rig.seen();
    rig.ends_now();
}

/// P03, P04: A opens as many as it may, and B is still served.
fn many_connections_do_not_starve_another_session(rig: &Rig) {
    let mut held = Vec::new();
    for _ in 0..1100 {
        match std::net::TcpStream::connect(rig.ports.proxy) {
            Ok(mut stream) => {
                let _ = stream.write_all(b"G");
                held.push(stream);
            }
            Err(error) => panic!("the system's limits end the test: {error}"),
        }
    }
    let mut wire = rig.dial(rig.ports.proxy_b);
    let answer =
        wire.ask(format!("GET http://{OTHER}/x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n").as_bytes());
    assert_eq!(answer.status, 200, "session B is served");
    let mut over = rig.dial(rig.ports.proxy);
    over.send(format!("GET http://{OTHER}/x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n").as_bytes());
    assert!(
        [0, 503].contains(&over.response().status),
        "session A is over its limit"
    );
    drop(held);
    std::thread::sleep(Duration::from_millis(400));
    rig.forget_records();
    rig.seen();
}

/// P05.
fn an_answer_without_end_has_bounds(rig: &Rig) {
    rig.origins.on("/line", |_| {
        vec![
            Step::Bytes([b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'a'; 2_000_000]].concat()),
            Step::Close,
        ]
    });
    rig.origins.on("/fields", |_| {
        let mut text = String::from("HTTP/1.1 200 OK\r\n");
        (0..50_000).for_each(|at| text.push_str(&format!("X-{at}: y\r\n")));
        vec![Step::Bytes(text.into_bytes()), Step::Close]
    });
    rig.origins.on("/chunk", |_| {
        vec![
            Step::Bytes(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc"
                    .to_vec(),
            ),
            Step::Close,
        ]
    });
    for way in Way::SECURE {
        for path in ["/line", "/fields", "/chunk"] {
            let answer = rig.ask(
                way,
                OTHER,
                &format!("GET {path} HTTP/1.1\r\nHost: {{H}}\r\n\r\n"),
            );
            assert!(
                [0, 502].contains(&answer.status) || answer.body.ends_with(b"[cut]"),
                "{way:?} {path} {}",
                answer.status
            );
            rig.record(way);
        }
    }
    rig.ends_now();
}

/// Q05: each record is one line of ASCII, whatever the client writes. [`Rig::settle`] parses every
/// line.
fn text_of_the_client_stays_on_its_line(rig: &Rig) {
    for way in Way::ALL {
        for (path, field) in [
            ("/%1b%5B31m", "x"),
            ("/x%0a{\"v\":1}", "x"),
            ("/%E2%80%AEevil", "\u{202e}evil"),
            ("/x?%0d%0a=1&\u{1b}", "\x1b[2J"),
            ("/\"},{\"seq\":0", "\"}\\n"),
        ] {
            let mut wire = rig.open(way, OTHER);
            let answer = wire.ask(&rig.fill(
                way,
                OTHER,
                &format!("GET {{T}}{path} HTTP/1.1\r\nHost: {{H}}\r\nUser-Agent: {field}\r\n\r\n"),
            ));
            assert!(
                [200, 400].contains(&answer.status),
                "{way:?} {path} {answer:?}"
            );
            rig.record(way);
        }
    }
    let audit = std::fs::read(&rig.served.audit).unwrap();
    assert!(
        audit
            .iter()
            .all(|byte| *byte == b'\n' || (0x20..0x7f).contains(byte))
    );
    let log = std::fs::read(&rig.served.log).unwrap();
    assert!(!log.contains(&0x1b), "no escape of a terminal in the log");
    rig.seen();
}
