//! Group M: policies and configuration fail closed, at start, at a reload, and while requests are
//! in progress.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::addresses::free;
use crate::rig::canary::Canary;
use crate::rig::frames::{DATA, END_STREAM};
use crate::rig::origin::Step;
use crate::rig::way::Way;
use crate::rig::{GOOD, MODEL, OTHER, Rig, policies};
use crate::rows;
use crate::verdicts::{allowed, refused};

rows![
    a_policy_that_errs_denies,
    a_refused_reload_keeps_what_holds,
    a_refused_call_of_grpc_is_recorded_with_the_status_of_its_reason,
    every_request_is_judged_under_one_generation,
    what_is_under_way_is_cut_when_policy_changes,
    the_sandbox_cannot_reload,
    a_doubtful_configuration_does_not_start,
    the_environment_does_not_reroute,
];

/// Its client gets 200, as gRPC demands, and whoever counts refusals must not.
fn a_refused_call_of_grpc_is_recorded_with_the_status_of_its_reason(rig: &Rig) {
    for way in Way::SECURE {
        let template = "POST /p.S/M HTTP/1.1\r\nHost: {H}\r\nContent-Type: application/grpc\r\n\
                        Content-Length: 0\r\n\r\n";
        let answer = rig.ask(way, MODEL, template);
        let record = rig.record(way);
        let told = (answer.status, answer.field("grpc-status"));
        assert_eq!(told, (200, Some("7")), "{way:?} {answer:?}");
        assert_eq!(record["status"], 403, "{way:?} {record}");
        assert_eq!(record["blame"], "policy", "{way:?} {record}");
    }
}

/// Writes the policies, asks for a reload, and says whether it was taken.
pub fn reload(rig: &Rig, text: &str) -> bool {
    fs::write(rig.dir.path().join("rig.cedar"), text).unwrap();
    hang_up(rig)
}

/// Asks for a reload, and says whether it was taken.
pub fn hang_up(rig: &Rig) -> bool {
    let before = fs::metadata(&rig.served.log).unwrap().len() as usize;
    rig.served.signal(Signal::HUP);
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let log = fs::read(&rig.served.log).unwrap();
        let new = String::from_utf8_lossy(&log[before..]).into_owned();
        if new.contains("configuration reloaded") {
            return true;
        }
        if new.contains("the new policies are refused")
            || new.contains("the policies cannot be read")
            || new.contains("the configuration has")
            || new.contains("the new configuration is refused")
            || new.contains("cannot have its phantoms")
        {
            return false;
        }
        assert!(Instant::now() < until, "no word of the reload: {new}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn permit(id: &str, host: &str, condition: &str) -> String {
    format!(
        "@id(\"{id}\")\npermit(principal, action in Gateway::Action::\"any\", resource == Gateway::Host::\"{host}\") when {{ {condition} }};\n"
    )
}

/// M01, M02.
fn a_policy_that_errs_denies(rig: &Rig) {
    let errs = "@id(\"errs\")\nforbid(principal, action, resource) when { context.contentLength * 9223372036854775807 == 0 };\n";
    assert!(reload(rig, &format!("{}{errs}", policies())));
    for way in [Way::Connect, Way::Socks, Way::Tls, Way::Forward] {
        let template = "POST {T}/x HTTP/1.1\r\nHost: {H}\r\nContent-Length: 2\r\n\r\nhi";
        let answer = rig.ask(way, OTHER, template);
        let record = rig.record(way);
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (403, "policy_error"),
            "{way:?} {record}"
        );
        // Without content it does not err, and does not forbid: contentLength is 0, and 0 is 0.
        assert_eq!(
            rig.ask(way, OTHER, "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n")
                .status,
            403
        );
        rig.record(way);
    }
    assert!(reload(rig, &policies()));
    assert!(rig.seen().is_empty());
}

/// M03, M07, M09.
fn a_refused_reload_keeps_what_holds(rig: &Rig) {
    let good = policies();
    for (what, text) in [
        (
            "does not parse",
            format!("{good}permit(principal, action, resource"),
        ),
        ("is no Cedar", "\0\u{fffd}".to_owned()),
        (
            "reads what is not there",
            format!("{good}forbid(principal, action, resource) when {{ context.nothing == 1 }};"),
        ),
        (
            "is of the wrong type",
            format!("{good}forbid(principal, action, resource) when {{ context.path == 1 }};"),
        ),
        (
            "has one id twice",
            format!("{good}{}", permit("rig/no-secret", OTHER, "true")),
        ),
        (
            "is a template",
            format!("{good}permit(principal == ?principal, action, resource);"),
        ),
        (
            "covers domains that anyone can register",
            format!("{good}permit(principal, action, resource in Gateway::Domain::\"test\");"),
        ),
        (
            "forbids what never is",
            format!(
                "{good}forbid(principal, action, resource) when {{ context.prefixes.contains(\"/admin/\") }};"
            ),
        ),
        (
            "has an address as text",
            format!(
                "{good}forbid(principal, action, resource) when {{ ip(context.host).isLoopback() }};"
            ),
        ),
    ] {
        assert!(!reload(rig, &text), "a policy that {what} was taken");
        rig.seen();
        allowed(
            rig,
            Way::Connect,
            OTHER,
            "GET {T}/x HTTP/1.1\r\nHost: {H}\r\n\r\n",
        );
        rig.seen();
        refused(
            rig,
            Way::Connect,
            OTHER,
            "GET {T}/secret HTTP/1.1\r\nHost: {H}\r\n\r\n",
            403,
            "policy_forbids",
        );
    }
    let path = rig.dir.path().join("rig.cedar");
    fs::remove_file(&path).unwrap();
    assert!(!hang_up(rig), "a missing file");
    // One file of the two is not enough: the other's permits would apply without these forbids.
    fs::write(&path, &good).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!hang_up(rig), "a file that anybody may write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    refused(
        rig,
        Way::Connect,
        OTHER,
        "GET {T}/secret HTTP/1.1\r\nHost: {H}\r\n\r\n",
        403,
        "policy_forbids",
    );
    assert!(hang_up(rig), "and the good ones again");
    // No policy at all allows nothing.
    assert!(reload(rig, "") || reload(rig, "// nothing\n"));
    let template = format!("GET http://{OTHER}/x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n");
    refused(
        rig,
        Way::Forward,
        OTHER,
        &template,
        403,
        "policy_default_deny",
    );
    assert!(reload(rig, &good));
    rig.seen();
}

/// M04: two sets of policies alternate while requests run; each record agrees with the generation
/// that it names.
fn every_request_is_judged_under_one_generation(rig: &Rig) {
    let one = format!(
        "{}{}",
        policies(),
        permit("turn/one", "mixed.rig.test", "context.path == \"/one\"")
    );
    let two = format!(
        "{}{}",
        policies(),
        permit("turn/two", "mixed.rig.test", "context.path == \"/two\"")
    );
    assert!(reload(rig, &one));
    let wire = rig
        .tunnel(Way::Connect, OTHER, 443)
        .unwrap()
        .secure(Some(OTHER), &["http/1.1"])
        .unwrap();
    drop(wire);
    let proxy = rig.ports.proxy;
    // However busy the machine is, there is a record of the first generation.
    let first = "GET http://mixed.rig.test/one HTTP/1.1\r\nHost: mixed.rig.test\r\n\r\n";
    assert_eq!(rig.dial(proxy).ask(first.as_bytes()).status, 200);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for path in ["one", "two"] {
            let stop = &stop;
            scope.spawn(move || {
                let request = format!(
                    "GET http://mixed.rig.test/{path} HTTP/1.1\r\nHost: mixed.rig.test\r\n\r\n"
                );
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let mut wire = rig.dial(proxy);
                    for _ in 0..5 {
                        if wire.ask(request.as_bytes()).status == 0 {
                            break;
                        }
                    }
                }
            });
        }
        for turn in 0..40 {
            let text = if turn % 2 == 0 { &two } else { &one };
            assert!(reload(rig, text));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    std::thread::sleep(Duration::from_millis(50));
    let records = rig.every_record(Way::Connect);
    let judged: Vec<_> = records
        .iter()
        .filter(|record| record["generation"].is_u64())
        .collect();
    assert!(judged.len() > 50, "{} records", judged.len());
    // The first of these generations is `one`, and they alternate.
    let first = judged
        .iter()
        .map(|record| record["generation"].as_u64().unwrap())
        .min()
        .unwrap();
    let first_is_one = judged
        .iter()
        .filter(|record| {
            record["generation"].as_u64() == Some(first) && record["decision"] == "allow"
        })
        .all(|record| record["path"] == "/one");
    assert!(first_is_one);
    let mut generations = std::collections::BTreeSet::new();
    for record in judged {
        let generation = record["generation"].as_u64().unwrap();
        generations.insert(generation);
        let is_one = (generation - first) % 2 == 0;
        let expected = if (record["path"] == "/one") == is_one {
            "allow"
        } else {
            "deny"
        };
        assert_eq!(record["decision"], expected, "{record}");
    }
    assert!(generations.len() > 10, "{generations:?}");
    assert!(reload(rig, &policies()));
    rig.seen();
    rig.ends_now();
}

/// L09: a stream of events, an upload, a WebSocket and an HTTP/2 stream, each with an injected
/// secret.
fn what_is_under_way_is_cut_when_policy_changes(rig: &Rig) {
    rig.origins.on("/events", |_| {
        let mut steps = vec![Step::Bytes(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_vec(),
        )];
        for _ in 0..300 {
            steps.push(Step::Bytes(b"9\r\ndata: x\n\n\r\n".to_vec()));
            steps.push(Step::Pause(20));
        }
        steps
    });
    rig.origins.on("/ws", |seen| {
        use base64::Engine as _;
        let key = format!("{}258EAFA5-E914-47DA-95CA-C5AB0DC85B11", seen.all("sec-websocket-key")[0]);
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes());
        let accept = base64::engine::general_purpose::STANDARD.encode(digest);
        let head = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n");
        let mut steps = vec![Step::Bytes(head.into_bytes())];
        for _ in 0..300 {
            steps.push(Step::Bytes(b"\x81\x01x".to_vec()));
            steps.push(Step::Pause(20));
        }
        steps
    });
    let bearer = format!("Bearer {}", rig.phantom(Way::Tls, "bearer"));
    let open = |request: &str| {
        let mut wire = rig.open(Way::Connect, GOOD);
        wire.send(
            format!("{request} HTTP/1.1\r\nHost: {GOOD}\r\nAuthorization: {bearer}\r\n").as_bytes(),
        );
        wire
    };
    let mut events = open("GET /events");
    events.send(b"\r\n");
    let mut socket = open("GET /ws");
    socket.send(b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n");
    let mut upload = open("POST /x");
    upload.send(b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    for wire in [&mut events, &mut socket] {
        assert!(wire.line(b"\r\n\r\n").is_some());
    }
    let mut frames = rig.frames(Way::Tls, GOOD);
    frames.headers(
        1,
        &[
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", GOOD),
            (":path", "/x"),
            ("authorization", &bearer),
        ],
        false,
    );
    frames.frame(DATA, 0, 1, b"hello");
    std::thread::sleep(Duration::from_millis(150));
    let started = Instant::now();
    assert!(reload(
        rig,
        &format!(
            "{}@id(\"revoked\")\nforbid(principal, action, resource == Gateway::Host::\"{GOOD}\");\n",
            policies()
        )
    ));
    for wire in [&mut events, &mut socket] {
        let (_, over) = wire.rest();
        assert!(over);
    }
    let answer = upload.response();
    assert!(
        answer.status == 0 || answer.reason() == "revoked",
        "{answer:?}"
    );
    let fate = frames.fate(1);
    assert!(
        fate.reset.is_some() || String::from_utf8_lossy(&fate.body).contains("revoked"),
        "{fate:?}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    // Nothing more arrives on those connections, and a new one is judged by the new policies.
    upload.send(b"5\r\nagain\r\n0\r\n\r\n");
    frames.frame(DATA, END_STREAM, 1, b"again");
    let answer = rig.ask(Way::Connect, GOOD, "GET /x HTTP/1.1\r\nHost: {H}\r\n\r\n");
    assert_eq!(answer.status, 403, "{answer:?}");
    let records = rig.records(Way::Connect, 5);
    let revoked = records
        .iter()
        .filter(|record| record["reason"] == "revoked")
        .count();
    let ends = rig.ends();
    let cut = ends.iter().filter(|end| end["reason"] == "revoked").count();
    assert_eq!(revoked + cut, 4, "{records:?} {ends:?}");
    assert!(
        rig.seen().iter().all(|seen| seen.body.is_empty()),
        "no upload was completed"
    );
    assert!(reload(rig, &policies()));
}

/// M09, O01: what looks like a command to the gateway is a request like any other.
fn the_sandbox_cannot_reload(rig: &Rig) {
    for way in Way::SECURE {
        for path in [
            "/-/reload",
            "/admin/reload",
            "/gateway/policy",
            "/metrics",
            "/debug/pprof",
        ] {
            let template =
                format!("POST {path} HTTP/1.1\r\nHost: {{H}}\r\nContent-Length: 0\r\n\r\n");
            let answer = rig.ask(way, OTHER, &template);
            let expected = if path.starts_with("/admin") { 403 } else { 200 };
            assert_eq!(answer.status, expected, "{way:?} {path}");
            rig.record(way);
        }
    }
    for path in ["/", "/metrics", "/reload", "/status"] {
        let mut wire = rig.dial(rig.ports.proxy);
        let answer = wire
            .ask(format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", rig.ports.proxy).as_bytes());
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (400, "target_form")
        );
        rig.record(Way::Forward);
    }
    rig.seen();
}

/// Starts `gateway serve` with a configuration; returns its exit code if it ends on its own, and
/// its output.
fn start(rig: &Rig, config: &str, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let at = rig.dir.path().join("start");
    fs::create_dir_all(&at).unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(at.join("gateway.toml"), config).unwrap();
    fs::set_permissions(at.join("gateway.toml"), fs::Permissions::from_mode(0o600)).unwrap();
    let log = at.join("log");
    let mut child = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(["serve", "--config", "gateway.toml"])
        .current_dir(&at)
        .envs(variables.iter().copied())
        .env("RUST_LOG", "trace")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let said = fs::read_to_string(&log).unwrap_or_default();
        if let Some(status) = child.try_wait().unwrap() {
            return (status.code(), fs::read_to_string(&log).unwrap());
        }
        if said.contains("gateway: session `") || Instant::now() > until {
            child.kill().unwrap();
            child.wait().unwrap();
            return (None, said);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// M08, H09, B12, B13, D08: each of these would be open, or enforce less than intended.
fn a_doubtful_configuration_does_not_start(rig: &Rig) {
    let secret = |name: &str, content: &[u8], mode: u32| {
        let path = rig.dir.path().join("start").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    secret("good", b"a-good-secret-of-some-length", 0o600);
    secret("crlf", b"a-secret\r\nHost: evil-and-more", 0o600);
    secret("nul", b"a-secret\0with-a-nul-inside-it", 0o600);
    secret("empty", b"", 0o600);
    secret("short", b"abc", 0o600);
    secret("open", b"a-good-secret-of-some-length", 0o644);
    secret(
        "policy.cedar",
        b"permit(principal, action, resource == Gateway::Host::\"other.rig.test\");",
        0o644,
    );
    secret(
        "anybody.cedar",
        b"permit(principal, action, resource == Gateway::Host::\"other.rig.test\");",
        0o666,
    );
    let listener = "[audit]\npath = \"audit.jsonl\"\n[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:0\"\nsession = \"s\"\n";
    let port = free().port();
    let listener = listener.replace(":0\"", &format!(":{port}\""));
    let credential = |from: &str, more: &str| {
        format!(
            "{listener}[[credential]]\nname = \"c\"\nfrom = {from}\norigins = [\"https://good.rig.test\"]\n{more}"
        )
    };
    let (code, said) = start(rig, &credential("\"file:good\"", ""), &[]);
    assert_eq!(code, None, "the good one starts: {said}");
    assert!(!said.contains("a-good-secret"), "{said}");
    let taken = format!("127.0.0.1:{}", rig.ports.proxy.port());
    for (what, config) in [
        ("an unknown key", format!("{listener}groop = [\"x\"]\n")),
        (
            "an unknown section",
            format!("{listener}[policies]\nfiles = []\n"),
        ),
        (
            "a literal secret",
            credential("\"sk-live-literal-secret-in-the-file\"", ""),
        ),
        (
            "an unset variable",
            credential("\"env:NOT_SET_ANYWHERE\"", ""),
        ),
        ("a missing secret file", credential("\"file:missing\"", "")),
        (
            "a secret that anybody may read",
            credential("\"file:open\"", ""),
        ),
        ("a secret with a line end", credential("\"file:crlf\"", "")),
        ("a secret with a NUL", credential("\"file:nul\"", "")),
        ("an empty secret", credential("\"file:empty\"", "")),
        ("a short secret", credential("\"file:short\"", "")),
        (
            "a credential for a top-level domain",
            credential("\"file:good\"", "").replace("good.rig.test", "*.test"),
        ),
        (
            "a credential without TLS",
            credential("\"file:good\"", "").replace("https://", "http://"),
        ),
        (
            "a missing policy",
            format!("{listener}[policy]\nfiles = [\"missing.cedar\"]\n"),
        ),
        (
            "a policy that anybody may write",
            format!("{listener}[policy]\nfiles = [\"policy.cedar\", \"anybody.cedar\"]\n"),
        ),
        (
            "no listener",
            "[audit]\npath = \"audit.jsonl\"\n".to_owned(),
        ),
        (
            "a proxy for everybody",
            listener.replace("127.0.0.1", "0.0.0.0"),
        ),
        (
            "a tls listener for everybody",
            listener
                .replace("127.0.0.1", "0.0.0.0")
                .replace("proxy", "tls"),
        ),
        (
            "a port that is taken",
            listener.replace(&format!("127.0.0.1:{port}"), &taken),
        ),
        (
            "an exception for everything",
            format!(
                "{listener}[[origin]]\nmatch = \"https://good.rig.test\"\naddresses = [\"0.0.0.0/0\"]\n"
            ),
        ),
        (
            "an exception for metadata",
            format!(
                "{listener}[[origin]]\nmatch = \"https://good.rig.test\"\naddresses = [\"169.254.169.254/32\"]\n"
            ),
        ),
        (
            "connect to metadata",
            format!(
                "{listener}[[origin]]\nmatch = \"https://good.rig.test\"\nconnect = \"169.254.169.254:443\"\n"
            ),
        ),
        (
            "clear text for a whole domain beyond loopback",
            format!("{listener}[[origin]]\nmatch = \"http://*.rig.test\"\ncleartext = true\n"),
        ),
        (
            "roots that are none",
            format!(
                "{listener}[[origin]]\nmatch = \"https://good.rig.test\"\nroots = [\"good\"]\n"
            ),
        ),
        (
            "an audit log nowhere",
            listener.replace("audit.jsonl", "/proc/nowhere/audit.jsonl"),
        ),
        (
            "a timeout of nothing",
            format!("{listener}[limits]\nhead_timeout = \"0s\"\n"),
        ),
        ("no TOML", "[[listener\n".to_owned()),
    ] {
        let (code, said) = start(rig, &config, &[]);
        assert!(
            code.is_some_and(|code| code != 0),
            "{what} was taken: {said}"
        );
        assert!(!said.contains("panicked"), "{what}: {said}");
        let literal = Canary::new("literal", "sk-live-literal-secret-in-the-file");
        let leaks = crate::rig::canary::seen(&[literal], said.as_bytes());
        assert!(
            leaks.is_empty() && !said.contains("a-good-secret") && !said.contains("evil-and-more"),
            "{what}: {said}"
        );
    }
}

/// C10, K08: proxies and key logs in the environment are not for the gateway. The rig's own
/// gateways run without them, so that this one shows the difference by X, which is both proxies at
/// once.
fn the_environment_does_not_reroute(rig: &Rig) {
    let x = format!("http://{}", rig.origins.x);
    let keys = rig.dir.path().join("start/keys.log");
    let at = rig.dir.path();
    let config = at.join("rerouted.toml");
    let address = free();
    fs::write(at.join("any.cedar"), permit("any", OTHER, "true")).unwrap();
    fs::write(
        &config,
        format!(
            "[audit]\npath = \"audit/rerouted.jsonl\"\n[policy]\nfiles = [\"any.cedar\"]\n[[listener]]\nkind = \"tls\"\naddress = \"{address}\"\nsession = \"r\"\n[[origin]]\nmatch = \"https://{OTHER}\"\nconnect = \"{}\"\nroots = [\"origins.pem\"]\n",
            rig.origins.tls
        ),
    )
    .unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(["serve", "-q", "--config", "rerouted.toml"])
        .current_dir(at)
        .envs([
            ("HTTP_PROXY", &x),
            ("HTTPS_PROXY", &x),
            ("ALL_PROXY", &x),
            ("http_proxy", &x),
            ("https_proxy", &x),
        ])
        .env("SSLKEYLOGFILE", &keys)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while std::net::TcpStream::connect(address).is_err() {
        assert!(Instant::now() < until, "it did not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut wire = rig
        .dial(address)
        .secure(Some(OTHER), &["http/1.1"])
        .unwrap();
    let answer = wire.ask(format!("GET /x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n").as_bytes());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(!Path::new(&keys).exists(), "TLS keys were written");
    assert_eq!(rig.seen().len(), 1);
    rig.uncounted(1);
}
