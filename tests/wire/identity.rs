//! Groups A and B: one destination, in one canonical form, on every listener.

use std::time::Duration;

use crate::rig::frames::{DATA, END_STREAM};
use crate::rig::way::{Way, Wire};
use crate::rig::{DISCORD, EVIL, GOOD, OTHER, Rig, SECOND, SLACK};
use crate::rows;
use crate::verdicts::{allowed, refused, refused_everywhere};

rows![
    a_host_that_is_not_the_server_name_is_misdirected,
    a_tunnel_and_its_server_name_agree,
    a_captured_address_is_never_dialled,
    an_authority_and_a_host_field_agree_over_http2,
    one_http2_connection_is_for_one_host,
    an_absolute_target_agrees_with_host_and_connection,
    https_is_not_spoken_in_clear_text,
    ports_are_part_of_the_destination,
    only_the_form_of_the_method_is_a_target,
    without_a_server_name_there_is_no_tunnel,
    a_split_client_hello_is_the_same_and_a_stalled_one_is_cut,
    bytes_that_are_neither_tls_nor_http_go_nowhere,
    protocols_that_are_not_carried_are_refused_at_once_and_recorded,
    tls_without_http_inside_is_refused_at_once_and_recorded,
    a_record_tells_where_the_client_is,
    there_is_no_tunnel_inside_a_tunnel,
    bytes_behind_connect_are_the_beginning_of_the_tunnel,
    socks_names_are_host_names,
    every_deny_is_the_same_on_every_listener,
    a_ticket_is_good_for_its_own_name_alone,
    hosts_have_one_canonical_form,
    what_is_no_host_is_refused_everywhere,
    special_addresses_in_any_spelling_are_not_dialled,
    look_alikes_of_a_host_are_other_hosts,
];

/// A01, A09.
fn a_host_that_is_not_the_server_name_is_misdirected(rig: &Rig) {
    for way in Way::SECURE {
        for host in [
            EVIL,
            OTHER,
            "good.rig.test.evil.rig.test",
            "good.rig.test:8443",
            "good.rig.test:80",
            "127.0.0.1",
        ] {
            let template = format!(
                "GET /x HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {{PH:bearer}}\r\n\r\n"
            );
            refused(rig, way, GOOD, &template, 421, "authority_mismatch");
        }
    }
    for way in [Way::ConnectClear, Way::SocksClear, Way::TransparentClear] {
        // Capture knows the name by its synthetic address, so the request must name it in clear
        // text, too.
        refused(
            rig,
            way,
            OTHER,
            &format!("GET /x HTTP/1.1\r\nHost: {EVIL}\r\n\r\n"),
            421,
            "authority_mismatch",
        );
    }
}

/// A02: before TLS is answered.
fn a_tunnel_and_its_server_name_agree(rig: &Rig) {
    for way in [Way::Connect, Way::Socks, Way::Transparent] {
        for (to, sni) in [(GOOD, EVIL), (GOOD, OTHER), (OTHER, GOOD)] {
            let wire = rig.tunnel(way, to, 443).unwrap();
            let error = wire
                .secure(Some(sni), &["http/1.1"])
                .err()
                .expect("the handshake fails");
            assert!(
                error.to_string().to_lowercase().contains("unrecognised"),
                "{way:?} {error}"
            );
            assert_eq!(rig.record(way)["reason"], "sni_connect_mismatch", "{way:?}");
        }
    }
    refused_inside(rig, EVIL);
}

/// Of a name that no policy reaches, the gateway says so in TLS, or in clear text, at each door.
pub fn refused_inside(rig: &Rig, host: &str) {
    let ways = [Way::SECURE, Way::CLEAR].concat();
    for way in ways.into_iter().filter(|way| *way != Way::Forward) {
        let mut wire = rig.tunnel(way, host, way.port()).unwrap();
        if way == Way::Transparent {
            assert_eq!(rig.record(way)["reason"], "dns_name", "{host}");
        }
        if way.is_secure() {
            wire = wire.secure(Some(host), &["http/1.1"]).unwrap();
        }
        let answer = wire.ask(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        let met = (answer.status, answer.reason());
        let refused = (403, String::from("policy_default_deny"));
        assert_eq!(met, refused, "{way:?} {host}");
        assert!(answer.text().contains(host), "{way:?} {answer:?}");
        assert_eq!(rig.record(way)["host"], host, "{way:?}");
    }
}

/// A03: the address is X's own, which the sandbox could reach if capture let it through.
fn a_captured_address_is_never_dialled(rig: &Rig) {
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    probe.connect("192.0.2.1:9").unwrap();
    let x = std::net::SocketAddr::new(probe.local_addr().unwrap().ip(), rig.origins.x.port());
    let wire = rig.inside(&x.to_string()).unwrap();
    let mut wire = wire.secure(Some(GOOD), &["http/1.1"]).unwrap();
    let host = format!("{GOOD}:{}", x.port());
    let answer = wire.ask(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    assert_eq!(answer.status, 200, "{answer:?}");
    let record = rig.record(Way::Transparent);
    assert_eq!(
        record["dialled"],
        rig.origins.tls.to_string(),
        "E by its name, not X by the address"
    );
    assert_eq!(rig.seen().len(), 1);
    // Without a name, the address itself is the host, and policy does not know it.
    let mut wire = rig.inside(&x.to_string()).unwrap();
    let answer = wire.ask(format!("GET /x HTTP/1.1\r\nHost: {x}\r\n\r\n").as_bytes());
    assert_eq!(
        (answer.status, answer.reason().as_str()),
        (403, "policy_default_deny")
    );
    let mut wire = rig.inside(&x.to_string()).unwrap();
    let answer =
        wire.ask(format!("GET /x HTTP/1.1\r\nHost: {EVIL}:{}\r\n\r\n", x.port()).as_bytes());
    assert_eq!(
        (answer.status, answer.reason().as_str()),
        (403, "policy_default_deny")
    );
    rig.records(Way::Transparent, 2);
}

/// A04, L05.
fn an_authority_and_a_host_field_agree_over_http2(rig: &Rig) {
    for way in Way::SECURE {
        for host in [EVIL, OTHER] {
            let mut frames = rig.frames(way, OTHER);
            let conflict = if host == OTHER { GOOD } else { host };
            frames.get(1, OTHER, "/x", &[("host", conflict)]);
            let fate = frames.fate(1);
            let reason = rig.record(way)["reason"].clone();
            assert!(
                fate.is_refused_as_malformed() || reason == "authority_host_conflict",
                "{way:?} {fate:?} {reason}"
            );
            assert!(rig.seen().is_empty());
        }
        let mut frames = rig.frames(way, OTHER);
        frames.get(1, OTHER, "/x", &[("host", OTHER)]);
        assert!(frames.fate(1).answered);
        rig.record(way);
        assert_eq!(rig.seen().len(), 1);
    }
}

/// A05.
fn one_http2_connection_is_for_one_host(rig: &Rig) {
    for way in Way::SECURE {
        let mut frames = rig.frames(way, OTHER);
        let ours = format!("Bearer {}", rig.phantom(way, "bearer"));
        frames.get(1, OTHER, "/x", &[]);
        frames.get(3, GOOD, "/x", &[("authorization", &ours)]);
        frames.get(5, EVIL, "/x", &[]);
        frames.get(7, OTHER, "/x", &[]);
        frames.fates(&[1, 3, 5, 7]);
        let mut outcomes: Vec<_> = rig
            .records(way, 4)
            .iter()
            .map(|record| (record["status"].as_u64(), record["reason"].clone()))
            .collect();
        outcomes.sort_by_key(|(status, _)| *status);
        let statuses: Vec<_> = outcomes.iter().map(|(status, _)| status.unwrap()).collect();
        assert_eq!(statuses, [200, 200, 421, 421], "{way:?} {outcomes:?}");
        assert_eq!(rig.seen().len(), 2);
    }
}

/// A06.
fn an_absolute_target_agrees_with_host_and_connection(rig: &Rig) {
    for way in Way::ALL {
        let scheme = if way.is_secure() { "https" } else { "http" };
        for (target, host) in [(EVIL, OTHER), (OTHER, EVIL), (GOOD, OTHER), (OTHER, GOOD)] {
            let template = format!("GET {scheme}://{target}/x HTTP/1.1\r\nHost: {host}\r\n\r\n");
            refused(rig, way, OTHER, &template, 400, "host_mismatch");
        }
        let template = format!("GET {scheme}://{OTHER}/x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n");
        allowed(rig, way, OTHER, &template);
        let seen = rig.seen().remove(0);
        assert_eq!(
            (seen.target.as_str(), seen.host.as_str()),
            ("/x", OTHER),
            "{way:?}: origin-form at the origin"
        );
    }
    // The two agree, but not with the connection.
    for way in Way::SECURE {
        let template = format!("GET https://{SECOND}/x HTTP/1.1\r\nHost: {SECOND}\r\n\r\n");
        refused(rig, way, OTHER, &template, 421, "authority_mismatch");
    }
    let template = format!("GET http://{EVIL}/x HTTP/1.1\r\nHost: {EVIL}\r\n\r\n");
    refused(
        rig,
        Way::Forward,
        OTHER,
        &template,
        403,
        "policy_default_deny",
    );
}

/// A07, C11.
fn https_is_not_spoken_in_clear_text(rig: &Rig) {
    for way in Way::CLEAR {
        let template = format!("GET https://{OTHER}/x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n");
        refused(rig, way, OTHER, &template, 400, "scheme");
    }
    for way in Way::SECURE {
        let template = format!("GET http://{OTHER}/x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n");
        refused(rig, way, OTHER, &template, 400, "scheme");
    }
    for way in Way::ALL {
        for scheme in ["file", "ftp", "gopher", "unix", "ws", "javascript"] {
            let template = format!("GET {scheme}://{OTHER}/x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n");
            refused(rig, way, OTHER, &template, 400, "scheme");
        }
    }
}

/// A09, B11, C07.
fn ports_are_part_of_the_destination(rig: &Rig) {
    for way in [Way::Connect, Way::Socks, Way::Transparent] {
        let wire = rig.tunnel(way, GOOD, 8443).unwrap();
        let mut wire = wire.secure(Some(GOOD), &["http/1.1"]).unwrap();
        let answer = wire.ask(format!("GET /x HTTP/1.1\r\nHost: {GOOD}\r\n\r\n").as_bytes());
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (421, "authority_mismatch"),
            "{way:?}"
        );
        rig.record(way);
        // A port that no policy allows is denied, whatever protocol is there.
        let wire = rig.tunnel(way, GOOD, 22).unwrap();
        let mut wire = wire.secure(Some(GOOD), &["http/1.1"]).unwrap();
        let answer = wire.ask(format!("GET /x HTTP/1.1\r\nHost: {GOOD}:22\r\n\r\n").as_bytes());
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (403, "policy_default_deny"),
            "{way:?}"
        );
        rig.record(way);
    }
    for port in [
        ":0", ":", ":0443", ":+443", ":99999", ":65536", ":4 43", ":443x",
    ] {
        for way in Way::SECURE {
            let template = format!("GET /x HTTP/1.1\r\nHost: {OTHER}{port}\r\n\r\n");
            let answer = rig.ask(way, OTHER, &template);
            let record = rig.record(way);
            assert_eq!(answer.status, 400, "{way:?} {port} {answer:?} {record}");
        }
        let mut wire = rig.dial(rig.ports.proxy);
        let answer =
            wire.ask(format!("CONNECT {OTHER}{port} HTTP/1.1\r\nHost: {OTHER}\r\n\r\n").as_bytes());
        assert_eq!(answer.status, 400, "{port} {answer:?}");
        rig.record(Way::Connect);
    }
    assert!(rig.seen().is_empty());
}

/// A10.
fn only_the_form_of_the_method_is_a_target(rig: &Rig) {
    for way in Way::ALL {
        for target in [
            format!("{EVIL}:443"),
            OTHER.to_owned(),
            "x".to_owned(),
            "*".to_owned(),
            "?q".to_owned(),
        ] {
            let template = format!("GET {target} HTTP/1.1\r\nHost: {OTHER}\r\n\r\n");
            let answer = rig.ask(way, OTHER, &template);
            let record = rig.record(way);
            assert_eq!(answer.status, 400, "{way:?} {target} {answer:?}");
            assert!(
                ["target_form", "path", "scheme"].contains(&record["reason"].as_str().unwrap()),
                "{way:?} {target} {record}"
            );
        }
    }
    for way in Way::SECURE {
        allowed(
            rig,
            way,
            OTHER,
            &format!("GET //{EVIL}/x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n"),
        );
        let seen = rig.seen().remove(0);
        assert_eq!(
            (seen.target, seen.host.as_str()),
            (format!("//{EVIL}/x"), OTHER),
            "{way:?}: a path stays a path"
        );
    }
    refused(
        rig,
        Way::Forward,
        OTHER,
        "GET /x HTTP/1.1\r\nHost: {H}\r\n\r\n",
        400,
        "target_form",
    );
}

/// A11, K03.
fn without_a_server_name_there_is_no_tunnel(rig: &Rig) {
    for way in Way::SECURE {
        let wire = rig.tunnel(way, GOOD, 443).unwrap();
        assert!(wire.secure(None, &["http/1.1"]).is_err(), "{way:?}");
        assert_eq!(rig.record(way)["reason"], "no_sni", "{way:?}");
    }
    // Names of the right length replace the one in a valid ClientHello.
    let hello = client_hello("aaaaaaaa.rig.test");
    for name in [
        &b"a\0aaaaaa.rig.test"[..],
        b"*.aaaaaa.rig.test",
        b"aaa..aaa.rig.test",
        b".aaaaaaa.rig.test",
        b"aaaa aaa.rig.test",
        b"aaaa/aaa.rig.test",
        b"aaaa\xe9aaa.rig.test",
        b"192.168.100.200.1",
        b"0000127.000.0.001",
        b"-aaaaaaa.rig.tes-",
    ] {
        let mut bytes = hello.clone();
        let at = memchr::memmem::find(&bytes, b"aaaaaaaa.rig.test").unwrap();
        bytes[at..at + 17].copy_from_slice(name);
        for way in Way::SECURE {
            let mut wire = rig.tunnel(way, GOOD, 443).unwrap();
            wire.send(&bytes);
            let (answer, over) = wire.rest();
            assert!(
                over && answer.first().is_none_or(|first| *first == 21),
                "{way:?} {name:?}: an alert or nothing"
            );
            rig.record(way);
        }
    }
    for way in Way::SECURE {
        allowed(rig, way, OTHER, "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n");
    }
}

/// The first flight of a client.
fn client_hello(name: &str) -> Vec<u8> {
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let mut connection = rustls::ClientConnection::new(config.into(), name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

/// A12, K09.
fn a_split_client_hello_is_the_same_and_a_stalled_one_is_cut(rig: &Rig) {
    let hello = client_hello(EVIL);
    // One TLS record cut in two, each with its own header.
    let (head, content) = hello.split_at(5);
    let (one, two) = content.split_at(content.len() / 2);
    let record = |part: &[u8]| {
        [
            &head[..3],
            &u16::try_from(part.len()).unwrap().to_be_bytes(),
            part,
        ]
        .concat()
    };
    let splits: [Vec<Vec<u8>>; 3] = [
        vec![
            hello[..3].to_vec(),
            hello[3..40].to_vec(),
            hello[40..].to_vec(),
        ],
        vec![record(one), record(two)],
        hello.iter().map(|byte| vec![*byte]).collect(),
    ];
    for pieces in &splits {
        for way in [Way::Connect, Way::Socks, Way::Transparent] {
            let mut wire = rig.tunnel(way, GOOD, 443).unwrap();
            for piece in pieces {
                wire.send(piece);
                if pieces.len() < 5 {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            let (answer, over) = wire.rest();
            assert!(over && answer[0] == 21, "{way:?}: an alert");
            assert_eq!(rig.record(way)["reason"], "sni_connect_mismatch", "{way:?}");
        }
    }
    let stalled: Vec<(Way, Wire)> = Way::SECURE
        .map(|way| {
            let mut wire = rig.tunnel(way, GOOD, 443).unwrap();
            wire.send(&hello[..60]);
            (way, wire)
        })
        .into();
    for (way, mut wire) in stalled {
        let (_, over) = wire.rest();
        assert!(over, "{way:?}: given up after handshake_timeout");
        assert_eq!(rig.record(way)["reason"], "client_timeout", "{way:?}");
    }
    // A hello that is never completed.
    for way in Way::SECURE {
        let mut wire = rig.tunnel(way, GOOD, 443).unwrap();
        wire.send(&[&[22, 3, 1, 0x40, 0][..], &[1, 0, 0xff, 0xff], &[7; 0x3ffc]].concat());
        for _ in 0..6 {
            wire.send(&[&[22, 3, 1, 0x40, 0][..], &[7; 0x4000]].concat());
        }
        let (_, over) = wire.rest();
        assert!(over, "{way:?}");
        rig.record(way);
    }
}

/// A13: bytes that nobody understood are never copied.
fn bytes_that_are_neither_tls_nor_http_go_nowhere(rig: &Rig) {
    for way in Way::SECURE {
        for bytes in [
            &b"SSH-2.0-OpenSSH_9.6\r\n"[..],
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
            b"EHLO evil\r\nMAIL FROM:<a@b>\r\n",
            b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
            b"\x80\x2e\x01\x00\x02\x00\x15",
            b"*1\r\n$4\r\nPING\r\n\r\n",
            &[0xff; 300],
        ] {
            let mut wire = rig.tunnel(way, OTHER, 443).unwrap();
            wire.send(bytes);
            wire.finish();
            let (answer, over) = wire.rest();
            assert!(over, "{way:?}");
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert!(
                answer.is_empty()
                    || answer.starts_with("HTTP/1.1 400")
                    || answer.starts_with("HTTP/1.1 505"),
                "{way:?} {answer}"
            );
        }
        // HTTP is judged as such, in clear text, where nothing is injected.
        let mut wire = rig.tunnel(way, GOOD, 443).unwrap();
        let template = format!(
            "GET /x HTTP/1.1\r\nHost: {GOOD}:443\r\nAuthorization: Bearer {{PH:bearer}}\r\n\r\n"
        );
        let answer = wire.ask(&rig.fill(way, GOOD, &template));
        assert!(
            [400, 403, 421].contains(&answer.status),
            "{way:?} {answer:?}"
        );
        assert!(rig.seen().is_empty());
        rig.abandon_records(way);
    }
}

/// A13: what people meet with git over SSH, databases and mail.
fn protocols_that_are_not_carried_are_refused_at_once_and_recorded(rig: &Rig) {
    for way in [Way::Connect, Way::Socks, Way::Transparent] {
        for (port, bytes, reason) in [
            (22, &b"SSH-2.0-OpenSSH_9.6\r\n"[..], "protocol_ssh"),
            (5432, b"\0\0\0\x08\x04\xd2\x16\x2f", "protocol_postgres"),
            (6379, b"*1\r\n$4\r\nPING\r\n", "protocol_redis"),
            (9092, b"\0\0\0\x20\0\x12\0\x03", "unknown_protocol"),
            // The server speaks first.
            (3306, b"", "client_silent"),
            // This could have become HTTP.
            (7000, b"NICK somebody\r\n", "version"),
        ] {
            let began = std::time::Instant::now();
            let mut wire = rig.tunnel(way, OTHER, port).unwrap();
            wire.send(bytes);
            let (_, over) = wire.rest();
            let record = rig.record(way);
            assert!(over, "{way:?} {port} {record}");
            assert_eq!(
                (&record["reason"], &record["host"], &record["port"]),
                (&reason.into(), &OTHER.into(), &port.into()),
                "{way:?} {record}"
            );
            let took = began.elapsed();
            assert!(
                took < std::time::Duration::from_millis(1500),
                "{took:?} {record}"
            );
        }
    }
}

/// A13, inside TLS: MQTT, AMQP, Redis.
fn tls_without_http_inside_is_refused_at_once_and_recorded(rig: &Rig) {
    for way in Way::SECURE {
        for (bytes, reason) in [
            (&b"\x10\x20\0\x04MQTT"[..], "method"),
            (b"AMQP\0\0\x09\x01", "method"),
            (b"*1\r\n$4\r\nPING\r\n", "version"),
        ] {
            let began = std::time::Instant::now();
            let mut wire = rig.open(way, OTHER);
            wire.send(bytes);
            let (_, over) = wire.rest();
            let record = rig.record(way);
            assert!(over, "{way:?} {record}");
            assert_eq!(record["reason"], reason, "{way:?} {record}");
            assert_eq!(record["host"], OTHER, "{way:?} {record}");
            let took = began.elapsed();
            assert!(
                took < std::time::Duration::from_millis(1500),
                "{took:?} {record}"
            );
        }
    }
}

/// Whether it was answered, or refused with or before its first request. Nobody but the sandbox
/// itself comes out of a sandbox.
fn a_record_tells_where_the_client_is(rig: &Rig) {
    let told = |way: Way, wire: &Wire| {
        let record = rig.record(way);
        let client = wire.address().map(|address| address.to_string());
        assert_eq!(
            record["client"].as_str(),
            client.as_deref(),
            "{way:?} {record}"
        );
    };
    for way in Way::ALL {
        let mut wire = rig.open(way, OTHER);
        for path in ["/", "/x/../../y%00"] {
            let template = format!("GET {{T}}{path} HTTP/1.1\r\nHost: {OTHER}\r\n\r\n");
            wire.ask(&rig.fill(way, OTHER, &template));
            told(way, &wire);
        }
        rig.abandon();
    }
    for way in [Way::Connect, Way::Socks, Way::Transparent] {
        let mut wire = rig.tunnel(way, OTHER, 22).unwrap();
        wire.send(b"SSH-2.0-OpenSSH_9.6\r\n");
        wire.rest();
        told(way, &wire);
    }
}

/// A14.
fn there_is_no_tunnel_inside_a_tunnel(rig: &Rig) {
    for way in Way::SECURE {
        let mut wire = rig.open(way, GOOD);
        let answer =
            wire.ask(format!("CONNECT {GOOD}:443 HTTP/1.1\r\nHost: {GOOD}:443\r\n\r\n").as_bytes());
        assert_eq!(answer.status, 405, "{way:?} {answer:?}");
        rig.record(way);
        let mut frames = rig.frames(way, OTHER);
        frames.headers(
            1,
            &[
                (":method", "CONNECT"),
                (":authority", &format!("{OTHER}:443")),
            ],
            true,
        );
        let fate = frames.fate(1);
        let record = rig.record(way);
        assert!(
            fate.reset.is_some() || record["status"] == 405,
            "{way:?} {fate:?} {record}"
        );
        for protocol in ["connect-udp", "webtransport", "x"] {
            let mut frames = rig.frames(way, OTHER);
            frames.headers(
                1,
                &[
                    (":method", "CONNECT"),
                    (":protocol", protocol),
                    (":scheme", "https"),
                    (":authority", OTHER),
                    (":path", "/x"),
                ],
                false,
            );
            frames.frame(DATA, END_STREAM, 1, b"");
            frames.fate(1);
            assert_eq!(rig.record(way)["reason"], "upgrade", "{way:?} {protocol}");
        }
        assert!(rig.seen().is_empty());
    }
}

/// A15.
fn bytes_behind_connect_are_the_beginning_of_the_tunnel(rig: &Rig) {
    let head = format!("CONNECT {OTHER}:443 HTTP/1.1\r\nHost: {OTHER}:443\r\n\r\n");
    let mut wire = rig.dial(rig.ports.proxy);
    wire.send(&[head.as_bytes(), &client_hello(OTHER)].concat());
    assert!(wire.line(b"\r\n\r\n").unwrap().starts_with(b"HTTP/1.1 200"));
    let first = wire.exactly(6).unwrap();
    assert_eq!((first[0], first[5]), (22, 2), "a ServerHello");
    drop(wire);
    // A plaintext request there is inside the tunnel: it is never a request to the proxy.
    let mut wire = rig.dial(rig.ports.proxy);
    wire.send(format!("{head}GET http://{EVIL}/x HTTP/1.1\r\nHost: {EVIL}\r\n\r\n").as_bytes());
    assert!(wire.line(b"\r\n\r\n").unwrap().starts_with(b"HTTP/1.1 200"));
    let answer = wire.response();
    assert!([400, 421].contains(&answer.status), "{answer:?}");
    rig.abandon_records(Way::Connect);
    assert!(rig.seen().is_empty());
}

/// A16.
fn socks_names_are_host_names(rig: &Rig) {
    for name in [
        &b"evil\0.good.rig.test"[..],
        b"good.rig.test\0",
        b"\0",
        b"",
        b"good.rig.test:443",
        b"a@good.rig.test",
        b"good.rig.test/",
        b"good..rig.test",
        b"[::1]x",
        &[b'a'; 255],
    ] {
        let mut wire = rig.dial(rig.ports.proxy);
        assert_eq!(rig.socks(&mut wire, name, 443), 2, "{name:?}");
        assert!(wire.is_over());
        assert_eq!(rig.record(Way::Socks)["reason"], "host_charset", "{name:?}");
    }
    // The length byte lies, in both directions.
    let mut wire = rig.dial(rig.ports.proxy);
    wire.send(&[5, 1, 0]);
    wire.exactly(2);
    wire.send(&[&[5, 1, 0, 3, 200][..], b"good.rig.test\x01\xbb"].concat());
    wire.finish();
    assert!(wire.is_over());
    for greeting in [
        &[4, 1, 0, 80, 127, 0, 0, 1, 0][..],
        &[5, 0],
        &[5, 1, 2],
        &[5, 1, 0, 5, 2, 0, 1, 127, 0, 0, 1, 0, 80],
    ] {
        let mut wire = rig.dial(rig.ports.proxy);
        wire.send(greeting);
        wire.finish();
        let (_, over) = wire.rest();
        assert!(over, "{greeting:?}");
    }
    rig.abandon_records(Way::Socks);
}

/// A17, H15: the matrix. Each request that must not pass, on each listener that can carry it, in
/// each version of HTTP.
fn every_deny_is_the_same_on_every_listener(rig: &Rig) {
    /// Method, host, path, fields, reason.
    type Deny<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, &'a str)], &'a str);
    let cases: [Deny<'_>; 34] = [
        ("GET", GOOD, "/secret", &[], "policy_forbids"),
        ("GET", GOOD, "/secret/x", &[], "policy_forbids"),
        ("GET", GOOD, "/a/../secret", &[], "policy_forbids"),
        ("GET", GOOD, "/%73ecret", &[], "policy_forbids"),
        ("GET", GOOD, "/admin/x", &[], "policy_forbids"),
        ("DELETE", GOOD, "/x", &[], "policy_forbids"),
        ("PROPFIND", GOOD, "/x", &[], "policy_forbids"),
        ("GET", GOOD, "/x?repo=bad", &[], "policy_forbids"),
        ("GET", GOOD, "/x?repo=ok&repo=bad", &[], "policy_forbids"),
        ("GET", GOOD, "/x?r%65po=bad", &[], "policy_forbids"),
        (
            "GET",
            GOOD,
            "/x",
            &[("x-role", "user,admin")],
            "policy_forbids",
        ),
        ("TRACE", GOOD, "/x", &[], "method_prohibited"),
        ("GET", GOOD, "/..%2fsecret", &[], "path"),
        ("GET", GOOD, "/x%00", &[], "path"),
        ("GET", GOOD, "/x?_method=DELETE", &[], "method_override"),
        (
            "GET",
            GOOD,
            "/x",
            &[("authorization", "Bearer attacker-of-the-host")],
            "foreign_credential",
        ),
        (
            "GET",
            GOOD,
            "/x",
            &[("x-api-key", "attacker-of-the-host")],
            "foreign_credential",
        ),
        (
            "GET",
            GOOD,
            "/x",
            &[("x-other", "{PH:bearer}")],
            "phantom_position",
        ),
        ("GET", GOOD, "/x?q={PH:bearer}", &[], "phantom_position"),
        ("GET", GOOD, "/{PH:bearer}", &[], "phantom_position"),
        (
            "GET",
            OTHER,
            "/x",
            &[("authorization", "Bearer {PH:bearer}")],
            "phantom_out_of_scope",
        ),
        (
            "GET",
            SECOND,
            "/x",
            &[("authorization", "Bearer {PH:bearer}")],
            "phantom_out_of_scope",
        ),
        (
            "GET",
            OTHER,
            "/x?q={PH:bearer}",
            &[],
            "phantom_out_of_scope",
        ),
        ("GET", GOOD, "/x", &[("x-api_key", "mine")], "field_alias"),
        ("GET", OTHER, "/x", &[("x_evil", "1")], "field_name"),
        ("GET", OTHER, "/x", &[("x.evil", "1")], "field_name"),
        ("GET", OTHER, "/x", &[("x_role", "admin")], "field_name"),
        (
            "GET",
            OTHER,
            "/x",
            &[("x_forwarded_for", "1")],
            "field_alias",
        ),
        (
            "GET",
            OTHER,
            "/x",
            &[("x-a", "1"), ("x_a", "2")],
            "field_alias",
        ),
        ("GET", OTHER, "/x/..%253Bx/secret", &[], "path"),
        ("GET", OTHER, "/x/%252e%252e%252fsecret", &[], "path"),
        ("POST", OTHER, "/v1.0/$batch", &[], "policy_unjudged"),
        (
            "GET",
            SLACK,
            "/api/x?token=attackers",
            &[],
            "foreign_credential",
        ),
        (
            "POST",
            DISCORD,
            "/api/webhooks/1/attackers",
            &[],
            "foreign_credential",
        ),
    ];
    for (method, host, path, fields, reason) in cases {
        for way in Way::ALL {
            // Over HTTP in clear text, credentials have their own row (C13): nothing is managed
            // there.
            let plain = [
                "x-role",
                "x_evil",
                "x.evil",
                "x_role",
                "x_forwarded_for",
                "x-a",
                "x_a",
            ];
            let credential = fields.iter().any(|(name, _)| !plain.contains(name))
                || path.contains("{PH")
                || path.contains("attackers");
            if !way.is_secure() && credential {
                continue;
            }
            let lines: String = fields
                .iter()
                .map(|(name, value)| format!("{name}: {value}\r\n"))
                .collect();
            let template = format!("{method} {{T}}{path} HTTP/1.1\r\nHost: {{H}}\r\n{lines}\r\n");
            let answer = rig.ask(way, host, &template);
            let record = rig.record(way);
            assert_eq!(
                (record["reason"].as_str(), answer.reason().as_str()),
                (Some(reason), reason),
                "{way:?} h1 {method} {path} {fields:?}"
            );
            if !way.is_secure() {
                continue;
            }
            let status = record["status"].clone();
            let fill = |text: &str| String::from_utf8(rig.fill(way, host, text)).unwrap();
            let (path, fields): (_, Vec<_>) = (
                fill(path),
                fields
                    .iter()
                    .map(|(name, value)| (*name, fill(value)))
                    .collect(),
            );
            let mut all = vec![
                (":method", method),
                (":scheme", "https"),
                (":authority", host),
                (":path", &path),
            ];
            all.extend(fields.iter().map(|(name, value)| (*name, value.as_str())));
            let mut frames = rig.frames(way, host);
            frames.headers(1, &all, true);
            let fate = frames.fate(1);
            let record = rig.record(way);
            assert_eq!(
                (record["reason"].as_str(), &record["status"]),
                (Some(reason), &status),
                "{way:?} h2 {method} {path}"
            );
            assert!(fate.answered, "{way:?} h2 {fate:?}");
        }
        assert!(rig.seen().is_empty(), "{method} {path} {fields:?}");
    }
}

/// A19.
fn a_ticket_is_good_for_its_own_name_alone(rig: &Rig) {
    let mut roots = rustls::RootCertStore::empty();
    let pem = std::fs::read(rig.dir.path().join("ca-b.pem")).unwrap();
    let ca =
        <rustls::pki_types::CertificateDer as rustls::pki_types::pem::PemObject>::from_pem_slice(
            &pem,
        )
        .unwrap();
    roots.add(ca).unwrap();
    let mut config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = std::sync::Arc::new(config);
    let ask = |name: &str| {
        let wire = rig
            .dial(rig.ports.tls_b)
            .secure_with(config.clone(), Some(name))
            .unwrap();
        let mut wire = wire;
        let answer = wire.ask(format!("GET /x HTTP/1.1\r\nHost: {name}\r\n\r\n").as_bytes());
        assert_eq!(answer.status, 200);
        rig.record(Way::Tls);
        wire.handshake().0.unwrap()
    };
    assert_eq!(ask(OTHER), rustls::HandshakeKind::Full);
    assert_eq!(ask(OTHER), rustls::HandshakeKind::Resumed);
    assert_eq!(ask(GOOD), rustls::HandshakeKind::Full);
    for way in Way::SECURE {
        for alpn in [&["h3"][..], &["http/1.0", "spdy/3"], &["\u{1}"]] {
            let wire = rig.tunnel(way, OTHER, 443).unwrap();
            assert!(wire.secure(Some(OTHER), alpn).is_err(), "{way:?} {alpn:?}");
            assert_eq!(rig.record(way)["reason"], "alpn", "{way:?} {alpn:?}");
        }
        let wire = rig.tunnel(way, OTHER, 443).unwrap();
        let mut wire = wire.secure(Some(OTHER), &[]).unwrap();
        assert_eq!(
            wire.ask(format!("GET /x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n").as_bytes())
                .status,
            200
        );
        rig.record(way);
    }
}

/// B01, B02, B03: other spellings of an allowed host are that host, and the origin receives the
/// canonical one.
fn hosts_have_one_canonical_form(rig: &Rig) {
    for spelling in [
        "OTHER.rig.test",
        "other.RIG.Test",
        "other.rig.test.",
        "other.rig.test:443",
        "OTHER.RIG.TEST.:443",
    ] {
        for way in Way::SECURE {
            allowed(
                rig,
                way,
                OTHER,
                &format!("GET /x HTTP/1.1\r\nHost: {spelling}\r\n\r\n"),
            );
            assert_eq!(rig.seen().remove(0).host, OTHER, "{way:?} {spelling}");
        }
    }
    for name in ["OTHER.RIG.TEST", "other.rig.test."] {
        for way in [Way::Connect, Way::Socks] {
            let wire = rig.tunnel(way, name, 443).unwrap();
            let mut wire = wire.secure(Some(OTHER), &["http/1.1"]).unwrap();
            assert_eq!(
                wire.ask(format!("GET /x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n").as_bytes())
                    .status,
                200,
                "{way:?} {name}"
            );
            assert_eq!(rig.record(way)["host"], OTHER);
        }
    }
    rig.seen();
    // A soft hyphen maps to nothing (UTS 46), so this is the same host, and is judged as such.
    for way in Way::SECURE {
        allowed(
            rig,
            way,
            OTHER,
            "GET /x HTTP/1.1\r\nHost: other\u{ad}.rig.test\r\n\r\n",
        );
        assert_eq!(rig.seen().remove(0).host, OTHER, "{way:?}");
    }
    for spelling in ["EVIL.rig.test", "evil.rig.test.", "Evil.RIG.test.:80"] {
        let template = format!("GET http://{spelling}/x HTTP/1.1\r\nHost: {spelling}\r\n\r\n");
        refused(
            rig,
            Way::Forward,
            OTHER,
            &template,
            403,
            "policy_default_deny",
        );
    }
    rig.seen();
}

/// B01, B03, B04, B08, B09, B10.
fn what_is_no_host_is_refused_everywhere(rig: &Rig) {
    for host in [
        "other.rig.test..",
        ".other.rig.test",
        "other..rig.test",
        "xn--good-.rig.test",
        "xn--a.rig.test",
        "[fe80::1%25eth0]",
        "[::1%25.good.rig.test]",
        "[fe80::1%eth0]",
        "[other.rig.test]",
        "[[::1]]",
        "other.rig.test]",
        "other@evil.rig.test",
        "evil.rig.test@other.rig.test",
        "a@b@other.rig.test",
        "other.rig.test%00",
        "other%2erig.test",
        "other.rig.test\\",
        "other,rig.test",
        "other.rig.test evil",
        "*.rig.test",
        "other_.rig.te/st",
        "\u{ff45}vil.rig.test",
        "evil\u{3002}rig.test",
    ] {
        for way in Way::SECURE {
            let answer = rig.ask(
                way,
                OTHER,
                &format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            );
            let record = rig.record(way);
            assert!(
                [400, 421].contains(&answer.status),
                "{way:?} {host} {answer:?} {record}"
            );
        }
        if host.is_ascii() && !host.contains(' ') {
            let answer = rig.ask(
                Way::Forward,
                OTHER,
                &format!("GET http://{host}/x HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            );
            let record = rig.record(Way::Forward);
            assert!(
                [400, 403].contains(&answer.status),
                "{host} {answer:?} {record}"
            );
            let mut wire = rig.dial(rig.ports.proxy);
            let answer = wire
                .ask(format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n").as_bytes());
            assert!([400, 403].contains(&answer.status), "{host} {answer:?}");
            rig.record(Way::Connect);
        }
    }
    assert!(rig.seen().is_empty());
}

/// B05, B06, B07, B08, C04, C05: even though policy permits the canonical addresses.
fn special_addresses_in_any_spelling_are_not_dialled(rig: &Rig) {
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "0x7f000001",
        "127.0.0.1.",
        "10.0.0.1",
        "0.0.0.0",
        "0",
        "169.254.169.254",
        "0xa9fea9fe",
        "100.100.100.200",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[fd00:ec2::254]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[::]",
        "[fe80::1]",
        "[ff02::1]",
        "224.0.0.1",
        "255.255.255.255",
        "192.0.0.192",
        "169.254.170.2",
    ] {
        let answer = rig.ask(
            Way::Forward,
            OTHER,
            &format!("GET http://{host}/x HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        );
        let record = rig.record(Way::Forward);
        let reason = record["reason"].as_str().unwrap_or_default();
        let fits = [
            "metadata",
            "self",
            "ssrf_resolved_ip",
            "policy_default_deny",
            "host_syntax",
        ]
        .contains(&reason);
        assert!(
            fits && [400, 403].contains(&answer.status),
            "{host} {answer:?} {record}"
        );
        for way in [Way::Connect, Way::Socks] {
            if way == Way::Socks && host.starts_with('[') {
                continue;
            }
            if let Ok(mut wire) = rig.tunnel(way, host, 80) {
                let answer =
                    wire.ask(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
                assert!(
                    [400, 403].contains(&answer.status),
                    "{way:?} {host} {answer:?}"
                );
            }
            rig.record(way);
        }
    }
    for (host, reason) in [
        ("127.0.0.1", "ssrf_resolved_ip"),
        ("169.254.169.254", "metadata"),
        ("[::1]", "ssrf_resolved_ip"),
        ("0x7f.1", "ssrf_resolved_ip"),
        ("[::ffff:7f00:1]", "ssrf_resolved_ip"),
    ] {
        let answer = rig.ask(
            Way::Forward,
            OTHER,
            &format!("GET http://{host}/x HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        );
        let record = rig.record(Way::Forward);
        assert!(
            [reason, "host_syntax"].contains(&answer.reason().as_str()),
            "{host} {answer:?} {record}"
        );
    }
    // C06: the gateway's own listeners are not a destination.
    for port in [rig.ports.proxy.port(), rig.ports.tls.port()] {
        let host = format!("127.0.0.1:{port}");
        let answer = rig.ask(
            Way::Forward,
            OTHER,
            &format!("GET http://{host}/x HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        );
        assert_eq!(answer.reason(), "ssrf_resolved_ip", "{answer:?}");
        rig.record(Way::Forward);
    }
}

/// B12.
fn look_alikes_of_a_host_are_other_hosts(rig: &Rig) {
    for host in [
        "evilother.rig.test",
        "other.rig.test.evil.rig.test",
        "a.other.rig.test",
        "otherrig.test",
        "rig.test",
        "other-rig.test",
        "xother.rig.test",
    ] {
        let template = format!("GET http://{host}/x HTTP/1.1\r\nHost: {host}\r\n\r\n");
        refused_everywhere(
            rig,
            &[Way::Forward],
            OTHER,
            &template,
            403,
            "policy_default_deny",
        );
        refused_inside(rig, host);
    }
}
