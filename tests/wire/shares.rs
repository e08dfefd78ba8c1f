//! What one session can hold and use up: memory for decoding, room in the audit log. Another is
//! served all the while.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::rig::gate::Gate;
use crate::rig::origin::{Step, ok};
use crate::rig::way::{Way, Wire};
use crate::rig::{GOOD, OTHER, Rig};
use crate::rows;

rows![
    answers_that_nobody_reads_take_no_more_memory_than_their_share,
    where_the_share_is_used_up_an_answer_is_asked_for_without_a_coding,
    a_session_that_fills_the_audit_log_is_slowed_down_and_another_goes_on,
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

/// P05: the origin sends what it likes, whatever it was asked for. The way by capture is not among
/// these: the relay inside the sandbox is one stream for all of its connections, on which an answer
/// that nobody reads stops the others.
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

/// A client that asks for codings is answered all the same: an origin that does as it is asked is
/// never refused.
fn where_the_share_is_used_up_an_answer_is_asked_for_without_a_coding(rig: &Rig) {
    rig.origins.on("/honest", |seen| {
        let asked = seen.all("accept-encoding").join(", ");
        let zstd = zstd();
        if asked.contains("zstd") {
            ok("Content-Encoding: zstd\r\n", &zstd)
        } else if asked.contains("gzip") {
            ok("Content-Encoding: gzip\r\n", &gzip())
        } else {
            assert_eq!(asked, "identity");
            let mut steps = ok("Connection: close\r\n", b"plain");
            steps.push(Step::Close);
            steps
        }
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
    assert_eq!(codings.get("gzip, zstd"), Some(&7), "{codings:?}");
    assert_eq!(codings.values().sum::<usize>(), 60);
    drop(held);
    std::thread::sleep(Duration::from_millis(300));
    rig.forget_records();
    rig.ends_now();
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

/// P06, Q: one connection hammers; the log grows by the session's share, and says what it left out.
fn a_session_that_fills_the_audit_log_is_slowed_down_and_another_goes_on(rig: &Rig) {
    let (greedy, modest) = (free(), free());
    let config = format!(
        "[audit]\npath = \"audit/share.jsonl\"\nsession_burst = \"64KiB\"\nsession_rate = \"4KiB\"\n[policy]\nfiles = [\"rig.cedar\"]\n\
         [[listener]]\nkind = \"proxy\"\naddress = \"{greedy}\"\nsession = \"greedy\"\n\
         [[listener]]\nkind = \"proxy\"\naddress = \"{modest}\"\nsession = \"modest\"\n\
         [[origin]]\nmatch = \"http://*.rig.test\"\nconnect = \"{}\"\ncleartext = true\n",
        rig.origins.clear
    );
    let at = rig.dir.path();
    std::fs::write(at.join("share.toml"), config).unwrap();
    let child = crate::rig::serve(at, "share.toml", "unused");
    let gate = Gate::new(child, at.join("audit/share.jsonl"), at.join("share.log"));
    gate.wait_for_log(&modest.to_string());
    let length = || std::fs::metadata(&gate.audit).unwrap().len();
    let ask = |stream: &mut TcpStream| {
        let request = format!("GET http://{OTHER}/x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut wire = Vec::new();
        let mut piece = [0; 4096];
        // Answers are short: the head and all of the content come before the next request is
        // written.
        loop {
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "the connection stays open");
            wire.extend_from_slice(&piece[..count]);
            let Some(end) = memchr::memmem::find(&wire, b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8_lossy(&wire[..end]).to_ascii_lowercase();
            let told = head.split("content-length: ").nth(1).unwrap();
            let told: usize = told.split("\r\n").next().unwrap().trim().parse().unwrap();
            if wire.len() >= end + 4 + told {
                return (
                    head[9..12].to_owned(),
                    String::from_utf8_lossy(&wire[end + 4..]).into_owned(),
                );
            }
        }
    };
    let mut stream = TcpStream::connect(greedy).unwrap();
    let mut beside = TcpStream::connect(modest).unwrap();
    let (began, before) = (Instant::now(), length());
    let (mut served, mut slowed, mut others) = (0, 0_u64, 0);
    for count in 0..1500 {
        let (status, content) = ask(&mut stream);
        match status.as_str() {
            "200" => served += 1,
            "429" => {
                assert!(content.contains("audit_budget"), "{content}");
                slowed += 1;
            }
            other => panic!("{other} {content}"),
        }
        if count % 100 == 99 {
            assert_eq!(ask(&mut beside).0, "200", "another session is served");
            others += 1;
        }
    }
    // What never becomes an exchange is held to the same share.
    for _ in 0..300 {
        let mut opening = TcpStream::connect(greedy).unwrap();
        opening
            .write_all(b"CONNECT evil.rig.test:443 HTTP/1.1\r\nHost: evil.rig.test:443\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        let _ = opening.read_to_end(&mut answer);
        assert!(
            answer.starts_with(b"HTTP/1.1 403 "),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    let grown = length() - before;
    let most = (64 << 10) + (4 << 10) * (began.elapsed().as_secs() + 1) + 15 * 1024;
    println!(
        "{served} served, {slowed} slowed, {others} of another; the log grew by {grown} bytes of {most}"
    );
    assert!(slowed > 1000 && served > 50, "{served} {slowed}");
    assert!(grown <= most, "{grown} bytes, at most {most}");
    // When it has been quiet for a while, it is served again.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(ask(&mut stream).0, "200");
    rig.uncounted(served + others + 1);
    drop((stream, beside));
    let counted: u64 = std::fs::read_to_string(&gate.audit)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|record| record["kind"] == "event")
        .map(|record| {
            assert_eq!(
                (&record["name"], &record["session"]),
                (&"suppressed".into(), &"greedy".into())
            );
            record["count"].as_u64().unwrap()
        })
        .sum();
    assert!(
        (slowed..=slowed + 300).contains(&counted),
        "{slowed} refused, {counted} counted"
    );
    let path = gate.audit.clone();
    drop(gate);
    let verified = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(["audit", "verify"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        verified.status.success(),
        "{}",
        String::from_utf8_lossy(&verified.stdout)
    );
    rig.seen();
}
