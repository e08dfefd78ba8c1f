//! Groups K and L: TLS towards the client, HTTP/2 frames, and what policy changes do to streams.

use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::rig::frames::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, HEADERS, PING, PRIORITY, RST_STREAM,
    SETTINGS, WINDOW_UPDATE,
};
use crate::rig::origin::Step;
use crate::rig::way::Way;
use crate::rig::{GOOD, OTHER, Rig};
use crate::rows;

rows![
    a_leaf_is_for_exactly_one_name,
    the_key_of_the_ca_is_nowhere,
    sessions_do_not_share_a_ca,
    rapid_resets_end_the_connection,
    floods_of_small_frames_end_or_stall_the_connection,
    floods_of_small_frames_by_every_way_leave_another_client_its_turn,
    a_field_section_has_a_bound,
    fields_that_would_change_http1_are_refused,
    pseudo_fields_are_exactly_those_of_a_request,
    content_has_the_length_that_was_told,
    frames_that_break_the_protocol_end_it,
    streams_are_judged_by_themselves,
    cookies_are_joined_before_they_are_judged,
    trailers_over_http2_carry_no_fields_that_matter,
    a_websocket_may_come_over_http2,
    an_answer_to_head_has_no_content,
];

fn pseudo(path: &str) -> [(&str, &str); 4] {
    [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", OTHER),
        (":path", path),
    ]
}

/// K01.
fn a_leaf_is_for_exactly_one_name(rig: &Rig) {
    for way in Way::SECURE {
        let wire = rig
            .tunnel(way, OTHER, 443)
            .unwrap()
            .secure(Some(OTHER), &["http/1.1"])
            .unwrap();
        let der = wire.certificate();
        let name = |needle: &[u8]| memchr::memmem::find_iter(&der, needle).count();
        assert_eq!(
            (name(OTHER.as_bytes()), name(b"rig.test")),
            (1, 1),
            "{way:?}: one name, no wildcard"
        );
        assert_eq!(name(b"*.rig"), 0);
    }
}

/// K04: only the certificate is in files.
fn the_key_of_the_ca_is_nowhere(rig: &Rig) {
    let mut looked = 0;
    let mut folders = vec![rig.dir.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let content = std::fs::read(&path).unwrap();
            assert!(
                memchr::memmem::find(&content, b"PRIVATE KEY").is_none(),
                "{}",
                path.display()
            );
            looked += 1;
        }
    }
    assert!(looked > 8);
    let environment = &rig.relay.environment;
    assert!(environment["SSL_CERT_FILE"].starts_with("/run/gateway/"));
    assert!(
        !environment
            .values()
            .any(|value| value.contains("PRIVATE KEY"))
    );
}

/// K05: a client that trusts B's CA does not trust A's leaves.
fn sessions_do_not_share_a_ca(rig: &Rig) {
    use rustls::pki_types::pem::PemObject as _;
    let pem = std::fs::read(rig.dir.path().join("ca-b.pem")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(rustls::pki_types::CertificateDer::from_pem_slice(&pem).unwrap())
        .unwrap();
    let mut config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = std::sync::Arc::new(config);
    // The last session's CA is in the file.
    assert!(
        rig.dial(rig.ports.tls_b)
            .secure_with(config.clone(), Some(OTHER))
            .is_ok()
    );
    for way in Way::SECURE {
        let wire = rig.tunnel(way, OTHER, 443).unwrap();
        assert!(
            wire.secure_with(config.clone(), Some(OTHER)).is_err(),
            "{way:?}"
        );
    }
    std::thread::sleep(Duration::from_millis(30));
    rig.forget_records();
}

/// Another session's request during a flood. This is a debug build at `RUST_LOG=trace`, which
/// writes lines for each frame of the flood, on a machine that others use, too: the bound is on
/// starvation, not on speed.
const AMID_A_FLOOD: Duration = Duration::from_secs(3);

/// How long a benign request takes now.
fn benign(rig: &Rig) -> Duration {
    let started = Instant::now();
    let mut wire = rig
        .dial(rig.ports.tls_b)
        .secure(Some(OTHER), &["http/1.1"])
        .unwrap();
    assert_eq!(
        wire.ask(format!("GET /alive HTTP/1.1\r\nHost: {OTHER}\r\n\r\n").as_bytes())
            .status,
        200
    );
    started.elapsed()
}

/// Floods until the connection ends or this many rounds are over, with a benign request of another
/// session meanwhile.
fn flood(
    rig: &Rig,
    way: Way,
    rounds: usize,
    mut round: impl FnMut(&mut Frames, usize) -> bool,
) -> (bool, Option<u32>) {
    let mut frames = rig.frames(way, OTHER);
    frames.io.patience(Duration::from_secs(2));
    let mut ended = false;
    for at in 0..rounds {
        if !round(&mut frames, at) {
            ended = true;
            break;
        }
        if at == rounds / 2 {
            assert!(benign(rig) < AMID_A_FLOOD);
        }
    }
    let fate = frames.fate(0xff_ffff);
    (ended || fate.closed && fate.goaway.is_some(), fate.goaway)
}

/// L01: resets by the client, and resets that the client provokes (MadeYouReset).
fn rapid_resets_end_the_connection(rig: &Rig) {
    for way in [Way::Connect, Way::Tls, Way::Transparent] {
        let (ended, code) = flood(rig, way, 4000, |frames, at| {
            let stream = 2 * at as u32 + 1;
            frames.get(stream, OTHER, "/secret", &[])
                && frames.frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
        });
        assert!(ended, "{way:?} {code:?}");
        let (ended, code) = flood(rig, way, 4000, |frames, at| {
            let stream = 2 * at as u32 + 1;
            // A window update of zero is a stream error.
            frames.get(stream, OTHER, "/secret", &[])
                && frames.frame(WINDOW_UPDATE, 0, stream, &0_u32.to_be_bytes())
        });
        assert!(ended, "{way:?} {code:?}");
        assert!(benign(rig) < AMID_A_FLOOD);
        std::thread::sleep(Duration::from_millis(200));
        rig.forget_records();
    }
}

/// L02.
fn floods_of_small_frames_end_or_stall_the_connection(rig: &Rig) {
    let way = Way::Tls;
    // CONTINUATION without end.
    let (ended, _) = flood(rig, way, 20_000, |frames, at| {
        if at == 0 {
            return frames.frame(HEADERS, END_STREAM, 1, &frames::block(&pseudo("/x")));
        }
        frames.frame(
            CONTINUATION,
            0,
            1,
            &frames::block(&[(
                "x-filler",
                "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
            )]),
        )
    });
    assert!(ended, "CONTINUATION");
    let (ended, _) = flood(rig, way, 20_000, |frames, at| {
        if at == 0 {
            return frames.frame(HEADERS, END_STREAM, 1, &frames::block(&pseudo("/x")));
        }
        frames.frame(CONTINUATION, 0, 1, b"")
    });
    assert!(ended, "empty CONTINUATION");
    // These are answered or ignored at little cost; the other session is served throughout.
    let before = rig.served.burden().1;
    flood(rig, way, 20_000, |frames, _| {
        frames.frame(PING, 0, 0, b"floodfld")
    });
    flood(rig, way, 20_000, |frames, _| {
        frames.frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])
    });
    flood(rig, way, 20_000, |frames, at| {
        frames.frame(PRIORITY, 0, 2 * at as u32 + 1, &[0, 0, 0, 0, 1])
    });
    flood(rig, way, 20_000, |frames, at| {
        if at == 0 {
            return frames.headers(
                1,
                &[
                    (":method", "POST"),
                    (":scheme", "https"),
                    (":authority", OTHER),
                    (":path", "/x"),
                ],
                false,
            );
        }
        frames.frame(DATA, 0, 1, b"")
    });
    assert!(benign(rig) < AMID_A_FLOOD);
    let after = rig.served.burden().1;
    assert!(
        after < before + 64 * 1024,
        "{before} KiB became {after} KiB"
    );
    std::thread::sleep(Duration::from_millis(300));
    rig.forget_records();
}

/// L02: many connections at once, by each way; what another client's request costs the gateway
/// meanwhile is what it waits for on a machine without other work. `tests/endurance` floods from
/// more connections.
fn floods_of_small_frames_by_every_way_leave_another_client_its_turn(rig: &Rig) {
    const CONNECTIONS: usize = 20;
    let small: [&[u8]; 4] = [
        &[0, 0, 0, 0xfe, 0, 0, 0, 0, 0],
        &[0, 0, 5, PRIORITY, 0, 0, 0, 0, 3, 0, 0, 0, 1, 7],
        &[0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0, 0, 8, PING, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
    ];
    for way in Way::SECURE {
        let mut beside = rig.open(way, OTHER);
        let floods: Vec<_> = (0..CONNECTIONS)
            .map(|at| (rig.frames(way, OTHER), small[at % small.len()].repeat(1000)))
            .collect();
        let mut took = Vec::new();
        let ended: usize = std::thread::scope(|scope| {
            let floods: Vec<_> = floods
                .into_iter()
                .map(|(mut frames, many)| {
                    scope.spawn(move || {
                        // Far more than a connection may send.
                        let ended = (0..200).any(|_| {
                            let sent = frames.io.write_all(&many);
                            sent.and_then(|()| frames.io.flush()).is_err()
                        });
                        // What the system took of it, the gateway has yet to read, and writes
                        // lines of its log for each frame.
                        frames.io.patience(Duration::from_secs(60));
                        usize::from(ended || frames.io.rest().1)
                    })
                })
                .collect();
            for _ in 0..20 {
                let worked = rig.gate(way).worked();
                let answer =
                    beside.ask(format!("GET /alive HTTP/1.1\r\nHost: {OTHER}\r\n\r\n").as_bytes());
                assert_eq!(answer.status, 200, "{way:?}: {answer:?}");
                took.push(rig.gate(way).worked() - worked);
                std::thread::sleep(Duration::from_millis(20));
            }
            floods.into_iter().map(|flood| flood.join().unwrap()).sum()
        });
        took.sort();
        println!(
            "{way:?}: {ended} of {CONNECTIONS} connections ended, the gateway's work for a request {took:?}"
        );
        assert_eq!(ended, CONNECTIONS, "{way:?}");
        assert!(took[took.len() - 1] < AMID_A_FLOOD, "{way:?}: {took:?}");
        std::thread::sleep(Duration::from_millis(200));
        let told = rig.every_record(way).into_iter();
        let told = told
            .filter(|record| record["reason"] == "http2_flood")
            .count();
        assert!(told >= CONNECTIONS, "{way:?}: {told} records tell of it");
    }
}

/// L03.
fn a_field_section_has_a_bound(rig: &Rig) {
    for way in Way::SECURE {
        let mut frames = rig.frames(way, OTHER);
        let mut block = frames::block(&pseudo("/x"));
        // One field of 4,000 bytes into the table, then hundreds of references to it.
        let value = "a".repeat(4000);
        let mut entry = Vec::new();
        frames::raw_field(&mut entry, b"x", value.as_bytes());
        entry[0] = 0x40;
        block.extend(entry);
        block.extend(vec![0xbe; 600]);
        frames.frame(HEADERS, END_HEADERS | END_STREAM, 1, &block);
        let fate = frames.fate(1);
        assert!(
            fate.is_refused_as_malformed() || fate.answered,
            "{way:?} {fate:?}"
        );
        rig.abandon_records(way);
        assert!(rig.seen().is_empty(), "{way:?}");
        let mut frames = rig.frames(way, OTHER);
        let many: Vec<(&str, &str)> = pseudo("/x")
            .into_iter()
            .chain(std::iter::repeat_n(("x-y", "z"), 101))
            .collect();
        frames.headers(1, &many, true);
        frames.fate(1);
        let record = rig.record(way);
        assert_eq!(
            (record["status"].as_u64(), record["reason"].as_str()),
            (Some(431), Some("fields_too_large")),
            "{way:?}"
        );
    }
}

/// L04.
fn fields_that_would_change_http1_are_refused(rig: &Rig) {
    let bad: [(&[u8], &[u8]); 19] = [
        (b"x", b"a\r\nHost: evil"),
        (b"x", b"a\nb"),
        (b"x", b"a\rb"),
        (b"x", b"a\0b"),
        (b"x", b"a\x01b"),
        (b"x", b"a\x7fb"),
        (b"X-Upper", b"a"),
        (b"x y", b"a"),
        (b"", b"a"),
        (b"x:y", b"a"),
        (b"x\r\nhost", b"evil"),
        (b"transfer-encoding", b"chunked"),
        (b"connection", b"close"),
        (b"keep-alive", b"5"),
        (b"proxy-connection", b"close"),
        (b"upgrade", b"websocket"),
        (b"te", b"gzip"),
        (b"host", b""),
        (b":late", b"a"),
    ];
    for (name, value) in bad {
        for way in Way::SECURE {
            let mut frames = rig.frames(way, OTHER);
            let mut block = frames::block(&pseudo("/x"));
            frames::raw_field(&mut block, name, value);
            frames.frame(HEADERS, END_HEADERS | END_STREAM, 1, &block);
            let fate = frames.fate(1);
            assert!(
                fate.is_refused_as_malformed()
                    || String::from_utf8_lossy(&fate.body).contains("refused_by_gateway"),
                "{way:?} {:?} {:?} {fate:?}",
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(value)
            );
            rig.abandon_records(way);
        }
    }
    assert!(rig.seen().is_empty());
}

/// L05.
fn pseudo_fields_are_exactly_those_of_a_request(rig: &Rig) {
    // What follows `#` is gone before anything is judged, so E receives what was judged.
    for way in Way::SECURE {
        let mut frames = rig.frames(way, OTHER);
        frames.get(1, OTHER, "/x#/secret", &[]);
        assert!(frames.fate(1).answered);
        assert_eq!(
            (
                rig.record(way)["path"].as_str(),
                rig.seen()[0].target.as_str()
            ),
            (Some("/x"), "/x"),
            "{way:?}"
        );
    }
    let good = pseudo("/x");
    let with = |at: usize, value: &'static str| {
        let mut all = good.to_vec();
        all[at].1 = value;
        all
    };
    let mut twice = good.to_vec();
    twice.push((":path", "/secret"));
    let mut late = good.to_vec();
    late.insert(3, ("x", "y"));
    let mut status = good.to_vec();
    status.push((":status", "200"));
    for fields in [
        twice,
        late,
        status,
        with(3, ""),
        with(3, "x"),
        with(3, "*"),
        with(3, "https://evil.rig.test/x"),
        with(3, "http://other.rig.test/x"),
        with(3, "/x y"),
        with(3, "/x\r\n"),
        with(3, "/x\\y"),
        with(1, "http"),
        with(1, "ftp"),
        with(1, "HTTPS "),
        with(1, ""),
        with(0, "GE T"),
        with(0, ""),
        with(0, "GET\r\nX: y"),
        with(2, ""),
        with(2, "user@other.rig.test"),
        with(2, "other.rig.test\\evil"),
        good[..3].to_vec(),
        good[1..].to_vec(),
        [&good[..2], &good[3..]].concat(),
    ] {
        for way in Way::SECURE {
            let mut frames = rig.frames(way, OTHER);
            frames.headers(1, &fields, true);
            let fate = frames.fate(1);
            assert!(
                fate.is_refused_as_malformed()
                    || String::from_utf8_lossy(&fate.body).contains("refused_by_gateway"),
                "{way:?} {fields:?} {fate:?}"
            );
            rig.abandon_records(way);
            assert!(rig.seen().is_empty(), "{way:?} {fields:?}");
        }
    }
}

/// L04: the sum of DATA against `content-length`.
fn content_has_the_length_that_was_told(rig: &Rig) {
    for way in Way::SECURE {
        for (told, data) in [
            ("5", &b"hello world"[..]),
            ("50", b"hello"),
            ("0", b"x"),
            ("5, 5", b"hello"),
            ("+5", b"hello"),
        ] {
            let mut frames = rig.frames(way, OTHER);
            frames.headers(
                1,
                &[
                    &[(":method", "POST")],
                    &pseudo("/x")[1..],
                    &[("content-length", told)],
                ]
                .concat(),
                false,
            );
            frames.frame(DATA, END_STREAM, 1, data);
            let fate = frames.fate(1);
            assert!(
                fate.reset.is_some()
                    || fate.goaway.is_some()
                    || String::from_utf8_lossy(&fate.body).contains("refused_by_gateway"),
                "{way:?} {told} {fate:?}"
            );
            rig.abandon_records(way);
            assert!(rig.seen().is_empty(), "{way:?} {told}");
        }
    }
}

/// Frames where none are allowed.
fn frames_that_break_the_protocol_end_it(rig: &Rig) {
    type Wrong = fn(&mut Frames) -> bool;
    let wrongs: [(&str, Wrong); 9] = [
        ("DATA on an idle stream", |frames| {
            frames.frame(DATA, 0, 1, b"x")
        }),
        ("an even stream", |frames| {
            frames.headers(2, &pseudo("/x"), true)
        }),
        ("stream zero", |frames| {
            frames.headers(0, &pseudo("/x"), true)
        }),
        ("CONTINUATION alone", |frames| {
            frames.frame(CONTINUATION, END_HEADERS, 1, b"")
        }),
        ("a short RST_STREAM", |frames| {
            frames.frame(RST_STREAM, 0, 1, b"x")
        }),
        ("a PUSH_PROMISE", |frames| {
            frames.frame(5, END_HEADERS, 1, &[0, 0, 0, 2])
        }),
        ("a broken field section", |frames| {
            frames.frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff; 30])
        }),
        ("a frame that is too long", |frames| {
            frames.frame(DATA, 0, 1, &[0; 20_000])
        }),
        ("HTTP/1 after the preface", |frames| {
            frames
                .io
                .write_all(b"GET /x HTTP/1.1\r\nHost: other.rig.test\r\n\r\n")
                .is_ok()
        }),
    ];
    for (what, wrong) in wrongs {
        for way in Way::SECURE {
            let mut frames = rig.frames(way, OTHER);
            frames.io.patience(Duration::from_secs(3));
            wrong(&mut frames);
            let fate = frames.fate(1);
            assert!(
                fate.goaway.is_some_and(|code| code != 0) || fate.reset.is_some() || fate.closed,
                "{way:?} {what} {fate:?}"
            );
            assert!(!fate.answered, "{way:?} {what}");
        }
    }
    rig.abandon_records(Way::Tls);
    rig.abandon_records(Way::Transparent);
    assert!(rig.seen().is_empty());
}

/// L06: a hundred streams, allowed and denied, with and without a credential, their content
/// interleaved.
fn streams_are_judged_by_themselves(rig: &Rig) {
    for way in Way::SECURE {
        let mut frames = rig.frames(way, GOOD);
        let bearer = format!("Bearer {}", rig.phantom(way, "bearer"));
        let streams: Vec<u32> = (0..100).map(|at| 2 * at + 1).collect();
        for (at, stream) in streams.iter().enumerate() {
            let path = format!("/{}/{at}", ["open", "secret", "lent", "open"][at % 4]);
            let mut fields = vec![
                (":method", "POST"),
                (":scheme", "https"),
                (":authority", GOOD),
                (":path", &path),
            ];
            if at % 4 == 2 {
                fields.push(("authorization", &bearer));
            }
            frames.headers(*stream, &fields, false);
        }
        for part in 0..2 {
            for (at, stream) in streams.iter().enumerate() {
                let flags = if part == 1 { END_STREAM } else { 0 };
                frames.frame(DATA, flags, *stream, format!("{at}:{part};").as_bytes());
            }
        }
        let fates = frames.fates(&streams);
        let unanswered: Vec<_> = fates
            .iter()
            .filter(|fate| !fate.answered && fate.reset.is_none())
            .collect();
        assert!(
            unanswered.is_empty(),
            "{way:?}: {} {unanswered:?}",
            unanswered.len()
        );
        let records = rig.records(way, 100);
        let count = |decision: &str| {
            records
                .iter()
                .filter(|record| record["decision"] == decision)
                .count()
        };
        assert_eq!((count("allow"), count("deny")), (75, 25), "{way:?}");
        let seen = rig.seen();
        assert_eq!(seen.len(), 75, "{way:?}");
        for one in seen {
            let (kind, number) = one.target[1..].split_once('/').unwrap();
            let expected = if kind == "lent" {
                vec![format!("Bearer {}", rig.secret("bearer"))]
            } else {
                Vec::new()
            };
            assert_eq!(one.all("authorization"), expected, "{way:?} {}", one.target);
            assert_eq!(
                one.body,
                format!("{number}:0;{number}:1;").as_bytes(),
                "{way:?} {}",
                one.target
            );
        }
    }
}

/// L07.
fn cookies_are_joined_before_they_are_judged(rig: &Rig) {
    for way in Way::SECURE {
        let phantom = rig.phantom(way, "cookie");
        let (one, two) = phantom.split_at(10);
        let mut frames = rig.frames(way, GOOD);
        let sid = format!("sid={phantom}");
        frames.get(
            1,
            GOOD,
            "/x",
            &[("cookie", "a=b"), ("cookie", &sid), ("cookie", "c=d")],
        );
        assert!(frames.fate(1).answered);
        rig.record(way);
        assert_eq!(
            rig.seen()[0].all("cookie"),
            [format!("a=b; sid={}; c=d", rig.secret("cookie"))],
            "{way:?}"
        );
        // In two pieces it is not one.
        let first = format!("sid={one}");
        let mut frames = rig.frames(way, GOOD);
        frames.get(1, GOOD, "/x", &[("cookie", &first), ("cookie", two)]);
        frames.fate(1);
        assert_eq!(rig.record(way)["status"], 403, "{way:?}");
    }
}

/// E19 over HTTP/2.
fn trailers_over_http2_carry_no_fields_that_matter(rig: &Rig) {
    for way in Way::SECURE {
        let mut frames = rig.frames(way, GOOD);
        let bearer = format!("Bearer {}", rig.phantom(way, "bearer"));
        frames.headers(
            1,
            &[
                (":method", "POST"),
                (":scheme", "https"),
                (":authority", GOOD),
                (":path", "/x"),
            ],
            false,
        );
        frames.frame(DATA, 0, 1, b"hi");
        frames.headers(
            1,
            &[
                ("authorization", &bearer),
                ("x-role", "admin"),
                ("host", "evil"),
            ],
            true,
        );
        frames.fate(1);
        rig.abandon_records(way);
        for seen in rig.seen() {
            let raw = String::from_utf8_lossy(&seen.raw).to_lowercase();
            assert!(
                !raw.contains("authorization") && !raw.contains("x-role") && !raw.contains("evil"),
                "{way:?} {raw}"
            );
        }
    }
}

/// L08, RFC 8441: a reflected secret is found there, too.
fn a_websocket_may_come_over_http2(rig: &Rig) {
    rig.origins.on("/ws2", |seen| {
        use base64::Engine as _;
        let key = format!("{}258EAFA5-E914-47DA-95CA-C5AB0DC85B11", seen.all("sec-websocket-key")[0]);
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes());
        let accept = base64::engine::general_purpose::STANDARD.encode(digest);
        let secret = seen.all("authorization")[0].to_owned();
        let head = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n");
        let frame = [&[0x81, secret.len() as u8][..], secret.as_bytes()].concat();
        vec![Step::Bytes(head.into_bytes()), Step::Bytes(frame), Step::Close]
    });
    for way in Way::SECURE {
        let mut frames = rig.frames(way, GOOD);
        let bearer = format!("Bearer {}", rig.phantom(way, "bearer"));
        frames.headers(
            1,
            &[
                (":method", "CONNECT"),
                (":protocol", "websocket"),
                (":scheme", "https"),
                (":authority", GOOD),
                (":path", "/ws2"),
                ("sec-websocket-version", "13"),
                ("authorization", &bearer),
            ],
            false,
        );
        let fate = frames.fate(1);
        rig.record(way);
        let body = String::from_utf8_lossy(&fate.body).into_owned();
        assert!(
            body.contains(rig.phantom(way, "bearer")),
            "{way:?} {fate:?} {body}"
        );
    }
}

/// RFC 9110 §9.3.2. Clients take content for an error of the protocol, and show nothing else.
fn an_answer_to_head_has_no_content(rig: &Rig) {
    for way in Way::SECURE {
        let mut frames = rig.frames(way, OTHER);
        let mut fields = pseudo("/a%2fb");
        fields[0].1 = "HEAD";
        frames.headers(1, &fields, true);
        let fate = frames.fate(1);
        assert!(fate.answered && fate.body.is_empty(), "{way:?} {fate:?}");
        assert_eq!(fate.reset, None, "{way:?}");
        let record = rig.record(way);
        assert_eq!(
            (record["status"].as_u64(), record["reason"].as_str()),
            (Some(400), Some("path")),
            "{way:?}"
        );
    }
}
