//! What one session can hold and use up: memory for decoding, room in the audit log. Another is
//! served all the while.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::addresses::free;
use crate::rig::gate::Gate;
use crate::rig::origin::{Step, ok};
use crate::rig::way::{Way, Wire};
use crate::rig::{Doors, EVIL, FACTS, GOOD, MODEL, OTHER, Rig};
use crate::rows;

rows![
    answers_that_nobody_reads_take_no_more_memory_than_their_share,
    answers_that_nobody_reads_over_http2_take_no_more_either,
    an_answer_that_may_hold_a_secret_is_asked_for_without_a_coding,
    a_session_that_fills_the_audit_log_is_slowed_down_and_another_goes_on,
    a_run_that_fills_the_audit_log_is_slowed_down,
    sessions_share_no_connection_and_no_answer,
    content_that_is_held_takes_no_more_memory_than_its_share,
];

/// 24 MiB of one letter: brotli with a window of 16 MiB.
const BROTLI: &[u8] = &[
    0xcf, 0xff, 0xff, 0x7f, 0x00, 0x24, 0xc2, 0xe2, 0xb1, 0x40, 0x72, 0xef, 0xff, 0x3f, 0xff, 0xff,
    0x0f, 0x80, 0x04, 0x40, 0x1c, 0x16, 0x80, 0xee, 0xfd, 0x1f,
];

/// 24 MiB of one letter: zstd with a window of 8 MiB, a block for each 128 KiB.
fn zstd() -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68];
    for block in 1..=192_u32 {
        let head = u32::from(block == 192) | 1 << 1 | (128 << 10) << 3;
        frame.extend_from_slice(&head.to_le_bytes()[..3]);
        frame.push(b'a');
    }
    frame
}

/// 24 MiB of one letter: gzip, in members of 1 MiB each.
fn gzip() -> Vec<u8> {
    use compression_codecs::core::{
        Level,
        util::{PartialBuffer, WriteBuffer},
    };
    use compression_codecs::flate::params::FlateEncoderParams;
    use compression_codecs::{EncodeV2, GzipEncoder};
    let plain = vec![b'a'; 1 << 20];
    let mut encoder = GzipEncoder::new(FlateEncoderParams::from(Level::Fastest));
    let mut scratch = vec![0; 1 << 20];
    let mut output = WriteBuffer::new_initialized(&mut scratch);
    encoder
        .encode(&mut PartialBuffer::new(&plain[..]), &mut output)
        .unwrap();
    encoder.finish(&mut output).unwrap();
    output.written().repeat(24)
}

/// P05: the origin sends what it likes, whatever it was asked for.
fn answers_that_nobody_reads_take_no_more_memory_than_their_share(rig: &Rig) {
    for (path, coding, content) in [
        ("/coded/gzip", "gzip", gzip()),
        ("/coded/zstd", "zstd", zstd()),
        ("/coded/br", "br", BROTLI.to_vec()),
    ] {
        rig.origins.on(path, move |_| {
            ok(&format!("Content-Encoding: {coding}\r\n"), &content)
        });
    }
    for (way, path, count) in [
        (Way::Connect, "/coded/gzip", 100),
        (Way::Connect, "/coded/zstd", 200),
        (Way::Connect, "/coded/br", 200),
        (Way::Tls, "/coded/br", 60),
        (Way::Socks, "/coded/br", 60),
        (Way::Transparent, "/coded/gzip", 100),
        (Way::Transparent, "/coded/br", 60),
    ] {
        let before = rig.gate(way).burden().1;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {{H}}\r\nAuthorization: Bearer {{PH:bearer}}\r\nAccept-Encoding: gzip, br, zstd\r\n\r\n"
        );
        let mut held: Vec<Wire> = Vec::new();
        let mut statuses = Vec::new();
        for _ in 0..count {
            let mut wire = rig.open(way, GOOD);
            wire.send(&rig.fill(way, GOOD, &request));
            let head = wire.line(b"\r\n\r\n").unwrap_or_default();
            statuses.push(String::from_utf8_lossy(&head[9..12]).into_owned());
            held.push(wire);
        }
        let grown = rig.gate(way).burden().1.saturating_sub(before);
        let answered = statuses.iter().filter(|status| *status == "200").count();
        let refused = statuses.iter().filter(|status| *status == "503").count();
        println!("{way:?} {path}: {answered} answered, {refused} refused, {grown} KiB");
        assert!(answered > 0 && answered + refused == count, "{statuses:?}");
        assert!(
            grown < 160 << 10,
            "{way:?} {path}: {grown} KiB for {answered} answers"
        );
        // Session B has a share of its own.
        let mut wire = rig
            .dial(rig.ports.tls_b)
            .secure(Some(GOOD), &["http/1.1"])
            .unwrap();
        let phantom = &rig.phantoms_b["bearer"];
        wire.send(
            format!("GET {path} HTTP/1.1\r\nHost: {GOOD}\r\nAuthorization: Bearer {phantom}\r\nAccept-Encoding: br\r\n\r\n")
                .as_bytes(),
        );
        let head = wire.line(b"\r\n\r\n").unwrap_or_default();
        assert!(
            head.starts_with(b"HTTP/1.1 200 "),
            "{}",
            String::from_utf8_lossy(&head)
        );
        drop(held);
        std::thread::sleep(Duration::from_millis(300));
        rig.forget_records();
        rig.ends_now();
        rig.seen();
    }
}

/// P05: the same as streams, whose windows are never opened again.
fn answers_that_nobody_reads_over_http2_take_no_more_either(rig: &Rig) {
    const STREAMS: u32 = 50;
    rig.origins
        .on("/coded/br", |_| ok("Content-Encoding: br\r\n", BROTLI));
    for way in Way::SECURE {
        let before = rig.gate(way).burden().1;
        let bearer = format!("Bearer {}", rig.phantom(way, "bearer"));
        let mut held = Vec::new();
        let (mut answered, mut refused) = (0, 0);
        for _ in 0..2 {
            let mut frames = rig.frames(way, GOOD);
            for at in 0..STREAMS {
                let fields = [
                    ("authorization", &*bearer),
                    ("accept-encoding", "gzip, br, zstd"),
                ];
                assert!(frames.get(2 * at + 1, GOOD, "/coded/br", &fields));
            }
            for status in frames.statuses(STREAMS as usize) {
                match status {
                    Some(200) => answered += 1,
                    _ => refused += 1,
                }
            }
            held.push(frames);
        }
        let grown = rig.gate(way).burden().1.saturating_sub(before);
        println!("{way:?}: {answered} answered, {refused} refused, {grown} KiB");
        assert!(answered > 0 && answered + refused == 2 * STREAMS as usize);
        assert!(
            grown < 160 << 10,
            "{way:?}: {grown} KiB for {answered} answers"
        );
        drop(held);
        std::thread::sleep(Duration::from_millis(300));
        rig.forget_records();
        rig.ends_now();
        rig.seen();
    }
}

/// A client that asks for codings is answered all the same: an origin that does as it is asked is
/// never refused.
fn an_answer_that_may_hold_a_secret_is_asked_for_without_a_coding(rig: &Rig) {
    rig.origins.on("/honest", |seen| {
        assert_eq!(seen.all("accept-encoding"), ["identity"]);
        let mut steps = ok("Connection: close\r\n", b"plain");
        steps.push(Step::Close);
        steps
    });
    let way = Way::Connect;
    let mut held = Vec::new();
    let mut codings = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..60 {
        let mut wire = rig.open(way, GOOD);
        wire.send(&rig.fill(
            way,
            GOOD,
            "GET /honest HTTP/1.1\r\nHost: {H}\r\nAuthorization: Bearer {PH:bearer}\r\nAccept-Encoding: gzip, zstd\r\n\r\n",
        ));
        let head = wire.line(b"\r\n\r\n").unwrap_or_default();
        assert!(
            head.starts_with(b"HTTP/1.1 200 "),
            "{}",
            String::from_utf8_lossy(&head)
        );
        held.push(wire);
    }
    for seen in rig.seen() {
        *codings
            .entry(seen.all("accept-encoding").join(", "))
            .or_default() += 1;
    }
    println!("asked for {codings:?}");
    assert_eq!(codings.get("identity"), Some(&60), "{codings:?}");
    drop(held);
    std::thread::sleep(Duration::from_millis(300));
    rig.forget_records();
    rig.ends_now();
}

/// P06, Q: one connection hammers; the log grows by the session's share, and says what it left out.
fn a_session_that_fills_the_audit_log_is_slowed_down_and_another_goes_on(rig: &Rig) {
    const WAYS: [Way; 4] = [Way::Forward, Way::Connect, Way::Socks, Way::Tls];
    let at = rig.dir.path();
    let (modest, addresses) = (free(), WAYS.map(|_| free()));
    let mut config = share(rig, "share");
    let mut listener = |kind: &str, address: SocketAddr, session: &str| {
        config.push_str(&format!(
            "[[listener]]\nkind = \"{kind}\"\naddress = \"{address}\"\nsession = \"{session}\"\n"
        ));
    };
    for (at, address) in addresses.into_iter().enumerate() {
        let kind = if WAYS[at] == Way::Tls { "tls" } else { "proxy" };
        listener(kind, address, &format!("greedy-{at}"));
    }
    listener("proxy", modest, "modest");
    std::fs::write(at.join("share.toml"), config).unwrap();
    let child = crate::rig::serve(at, "share.toml", "unused");
    let gate = Gate::new(child, at.join("audit/share.jsonl"), at.join("share.log"));
    gate.wait_for_log(&modest.to_string());
    let mut beside = rig.dial(modest);
    let slowed: Vec<u64> = WAYS
        .into_iter()
        .zip(addresses)
        .map(|(way, address)| {
            let doors = Doors {
                proxy: address,
                tls: address,
                relay: &rig.relay,
            };
            hammer(rig, &doors, way, &gate, || {
                let request = format!("GET http://{OTHER}/x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n");
                assert_eq!(
                    beside.ask(request.as_bytes()).status,
                    200,
                    "another session is served"
                );
                rig.uncounted(1);
            })
        })
        .collect();
    drop(beside);
    ends_verified(gate, &slowed);
    rig.seen();
}

/// The same by capture. A run of `exec` is one session.
fn a_run_that_fills_the_audit_log_is_slowed_down(rig: &Rig) {
    let at = rig.dir.path();
    std::fs::write(at.join("run.toml"), share(rig, "run")).unwrap();
    let (child, relay) = crate::rig::exec(at, "run.toml", "unused");
    let gate = Gate::new(child, at.join("audit/run.jsonl"), at.join("run.log"));
    let doors = Doors {
        proxy: rig.ports.proxy,
        tls: rig.ports.tls,
        relay: &relay,
    };
    let slowed = hammer(rig, &doors, Way::Transparent, &gate, || ());
    ends_verified(gate, &[slowed]);
    rig.seen();
}

/// A configuration with a log of its own, of which a session has a small share.
fn share(rig: &Rig, name: &str) -> String {
    let (tls, clear) = (rig.origins.tls, rig.origins.clear);
    format!(
        "[audit]\npath = \"audit/{name}.jsonl\"\nsession_burst = \"64KiB\"\nsession_rate = \"4KiB\"\n[policy]\nfiles = [\"rig.cedar\"]\n\
         [[origin]]\nmatch = \"http://*.rig.test\"\nconnect = \"{clear}\"\ncleartext = true\n\
         [[origin]]\nmatch = \"https://*.rig.test\"\nconnect = \"{tls}\"\nroots = [\"origins.pem\"]\n{FACTS}"
    )
}

/// One connection of a session asks without a pause, then many ask for a host that is not allowed;
/// gives how often the first was refused.
fn hammer(rig: &Rig, doors: &Doors<'_>, way: Way, gate: &Gate, mut beside: impl FnMut()) -> u64 {
    let length = || std::fs::metadata(&gate.audit).unwrap().len();
    let open = |host: &str| {
        let wire = rig.tunnel_by(doors, way, host, way.port()).ok()?;
        match way.is_secure() {
            true => wire.secure(Some(host), &["http/1.1"]).ok(),
            false => Some(wire),
        }
    };
    let request = rig.fill(way, OTHER, "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n");
    let mut wire = open(OTHER).unwrap();
    let (began, before) = (Instant::now(), length());
    let (mut served, mut slowed) = (0, 0_u64);
    for count in 0..600 {
        let answer = wire.ask(&request);
        match answer.status {
            200 => served += 1,
            429 => {
                assert_eq!(answer.reason(), "audit_budget", "{answer:?}");
                slowed += 1;
            }
            _ => panic!("{way:?}: {answer:?}"),
        }
        if count % 100 == 99 {
            beside();
        }
    }
    // What never becomes an exchange is held to the same share.
    for _ in 0..REFUSED {
        let refused = match open(EVIL) {
            None => true,
            Some(mut wire) => {
                wire.ask(&rig.fill(way, EVIL, "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n"))
                    .status
                    != 200
            }
        };
        assert!(refused, "{way:?}");
    }
    let grown = length() - before;
    let seconds = began.elapsed().as_secs() + 1;
    // Those of the session beside are among them.
    let most = (64 << 10) + (4 << 10) * seconds + 6 * 1024;
    println!("{way:?}: {served} served, {slowed} slowed; the log grew by {grown} bytes of {most}");
    assert!(slowed > 300 && served > 50, "{way:?}: {served} {slowed}");
    assert!(grown <= most, "{way:?}: {grown} bytes, at most {most}");
    // When it has been quiet for a while, it is served again.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(open(OTHER).unwrap().ask(&request).status, 200);
    rig.uncounted(served + 1);
    slowed
}

/// How many connections ask for what is not allowed.
const REFUSED: u64 = 200;

/// Ends a gateway; its log holds, and tells of each session, by order of their names, how much it
/// left out.
fn ends_verified(gate: Gate, slowed: &[u64]) {
    let path = gate.audit.clone();
    drop(gate);
    let mut counted = std::collections::BTreeMap::<String, u64>::new();
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        if record["name"] == "suppressed" {
            *counted.entry(record["session"].to_string()).or_default() +=
                record["count"].as_u64().unwrap();
        }
    }
    println!("{slowed:?} refused, {counted:?} left out");
    assert_eq!(counted.len(), slowed.len(), "{counted:?}");
    for (least, counted) in slowed.iter().zip(counted.into_values()) {
        assert!(
            (*least..=least + REFUSED).contains(&counted),
            "{least} refused, {counted} counted"
        );
    }
    let verified = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(["log", "verify"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        verified.status.success(),
        "{}",
        String::from_utf8_lossy(&verified.stdout)
    );
}

/// P01, P02: two sessions send requests with the same credential at the same time. Each gets the
/// answer to its own, and no connection to the origin serves both.
fn sessions_share_no_connection_and_no_answer(rig: &Rig) {
    const REQUESTS: usize = 60;
    rig.origins.on("/mark", |seen| {
        ok("", seen.all("x-mark").concat().as_bytes())
    });
    let of_a = || rig.open(Way::Tls, GOOD);
    let of_b = || {
        rig.dial(rig.ports.tls_b)
            .secure(Some(GOOD), &["http/1.1"])
            .unwrap()
    };
    let ask = |phantom: &str, mark: &str| {
        format!(
            "GET /mark HTTP/1.1\r\nHost: {GOOD}\r\nAuthorization: Bearer {phantom}\r\nX-Mark: {mark}\r\n\r\n"
        )
    };
    let (phantom_a, phantom_b) = (rig.phantom(Way::Tls, "bearer"), &rig.phantoms_b["bearer"]);
    std::thread::scope(|scope| {
        for n in 0..8 {
            for (session, mut wire, phantom) in
                [("a", of_a(), phantom_a), ("b", of_b(), phantom_b.as_str())]
            {
                scope.spawn(move || {
                    for request in 0..REQUESTS {
                        let mark = format!("{session} {n} {request}");
                        let answer = wire.ask(ask(phantom, &mark).as_bytes());
                        assert_eq!((answer.status, answer.text()), (200, mark));
                    }
                });
            }
        }
    });
    let seen = rig.seen();
    assert_eq!(seen.len(), 16 * REQUESTS);
    let connections = |session: &str| -> BTreeSet<u64> {
        let of_it = seen
            .iter()
            .filter(|seen| seen.all("x-mark").concat().starts_with(session));
        of_it.map(|seen| seen.connection).collect()
    };
    let (a, b) = (connections("a"), connections("b"));
    assert!(!a.is_empty() && a.is_disjoint(&b), "{a:?} {b:?}");
    rig.forget_records();
}

/// P06: content that a policy reads is held until it is whole.
fn content_that_is_held_takes_no_more_memory_than_its_share(rig: &Rig) {
    const LENGTH: usize = 4 << 20;
    let ask = |length: usize| {
        let pad = "a".repeat(length - HEAD_OF_CONTENT.len() - 2);
        format!(
            "POST /v1/messages HTTP/1.1\r\nHost: {MODEL}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{HEAD_OF_CONTENT}{pad}\"}}"
        )
    };
    let (last, most) = (b"}", ask(LENGTH));
    let most = most.strip_suffix('}').unwrap();
    for way in [Way::Connect, Way::Tls, Way::Transparent] {
        let before = rig.gate(way).burden().1;
        let open = |_| {
            let mut wire = rig.open(way, MODEL);
            wire.send(most.as_bytes());
            wire
        };
        let mut held: Vec<Wire> = (0..24).map(open).collect();
        std::thread::sleep(Duration::from_millis(500));
        let grown = rig.gate(way).burden().1.saturating_sub(before);
        assert!(grown < 64 << 10, "{way:?}: {grown} KiB");
        // Session B has a share of its own.
        let wire = rig.dial(rig.ports.tls_b);
        let mut wire = wire.secure(Some(MODEL), &["http/1.1"]).unwrap();
        let answer = wire.ask(ask(LENGTH).as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
        let statuses: Vec<u16> = held.iter_mut().map(|wire| wire.ask(last).status).collect();
        let answered = statuses.iter().filter(|status| **status == 200).count();
        println!("{way:?}: {answered} of 24 answered, {grown} KiB");
        // One that was refused may be reset before it is read.
        let is_told = |status: &u16| matches!(status, 200 | 503 | 0);
        assert!(statuses.iter().all(is_told), "{statuses:?}");
        assert!((1..=8).contains(&answered), "{statuses:?}");
        let records = rig.every_record(way);
        let refused = records
            .iter()
            .filter(|record| record["reason"] == "content_budget");
        assert_eq!(refused.count(), 24 - answered, "{records:?}");
        rig.forget_records();
        rig.ends_now();
        rig.seen();
    }
}

const HEAD_OF_CONTENT: &str = r#"{"model":"gpt-4o-mini","max_tokens":1,"pad":""#;
