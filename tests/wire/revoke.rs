//! Revocation: from the answer on, no byte of the secret reaches the origin, whatever was under
//! way. The origin counts every byte that its kernel has, so that what was sent before the answer
//! and read after it is told apart.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection};
use serde_json::Value;

use crate::arrivals::Arrivals;
use crate::policy::reload;
use crate::reload::stream;
use crate::rig::Rig;
use crate::rig::certificates::{Authority, ByName};
use crate::rig::way::{Way, Wire};
use crate::rig::{OTHER, policies};
use crate::rows;

rows![
    a_revoked_credential_is_refused_and_what_it_was_lent_to_is_cut,
    from_the_answer_of_a_revocation_no_byte_of_the_secret_leaves,
];

const HOST: &str = "revoked.rig.test";

impl Arrivals {
    /// Serves HTTP/1.1 until the connection ends: an answer for each head, and 101 for an upgrade.
    fn serve(&self, config: Arc<ServerConfig>) {
        let mut tls = ServerConnection::new(config).unwrap();
        let mut buffer = [0; 16 << 10];
        let mut answered = 0;
        self.socket.set_nonblocking(true).unwrap();
        loop {
            let mut poll = [rustix::event::PollFd::new(
                &self.socket,
                rustix::event::PollFlags::IN,
            )];
            let second = rustix::event::Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            let _ = rustix::event::poll(&mut poll, Some(&second));
            let count = {
                let mut read = self.read.lock().unwrap();
                match (&self.socket).read(&mut buffer) {
                    Ok(0) => return,
                    Ok(count) => {
                        *read += count;
                        count
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                    Err(_) => return,
                }
            };
            let mut bytes = &buffer[..count];
            while !bytes.is_empty() {
                tls.read_tls(&mut bytes).unwrap();
                let Ok(state) = tls.process_new_packets() else {
                    return;
                };
                let mut plain = vec![0; state.plaintext_bytes_to_read()];
                tls.reader().read_exact(&mut plain).unwrap();
                self.plain.lock().unwrap().extend(plain);
            }
            let heads = {
                let plain = self.plain.lock().unwrap();
                memchr::memmem::find_iter(&plain, b"\r\n\r\n").count()
            };
            let switched = memchr::memmem::find(&self.plain.lock().unwrap(), b"pgrade: ").is_some();
            let uploads = memchr::memmem::find(&self.plain.lock().unwrap(), b"POST ").is_some();
            while answered < heads && !uploads && (answered == 0 || !switched) {
                answered += 1;
                let answer = match switched {
                    true => upgraded(&self.plain.lock().unwrap()),
                    false => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned(),
                };
                tls.writer().write_all(answer.as_bytes()).unwrap();
            }
            while tls.wants_write() {
                match tls.write_tls(&mut &self.socket) {
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Err(_) => return,
                    Ok(_) => {}
                }
            }
        }
    }
}

fn upgraded(plain: &[u8]) -> String {
    use base64::Engine as _;
    let text = String::from_utf8_lossy(plain).to_ascii_lowercase();
    let original = String::from_utf8_lossy(plain).into_owned();
    let at = text.find("sec-websocket-key: ").unwrap() + "sec-websocket-key: ".len();
    let key = original[at..].split("\r\n").next().unwrap();
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = aws_lc_rs::digest::digest(
        &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY,
        text.as_bytes(),
    );
    let accept = base64::engine::general_purpose::STANDARD.encode(digest);
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

/// An origin whose connections can be looked at.
struct Origin {
    port: u16,
    all: Arc<Mutex<Vec<Arc<Arrivals>>>>,
}

impl Origin {
    fn start(authority: &Arc<Authority>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ByName(authority.clone())));
        let (config, all) = (
            Arc::new(config),
            Arc::<Mutex<Vec<Arc<Arrivals>>>>::default(),
        );
        let known = all.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let conn = Arc::new(Arrivals::on(socket.unwrap()));
                known.lock().unwrap().push(conn.clone());
                let config = config.clone();
                std::thread::spawn(move || conn.serve(config));
            }
        });
        Self { port, all }
    }

    fn connections(&self) -> Vec<Arc<Arrivals>> {
        self.all.lock().unwrap().clone()
    }
}

/// The control socket of the rig's `serve`.
fn socket(rig: &Rig) -> String {
    let pid = rig.served.child.lock().unwrap().id().to_string();
    let told = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(["--json", "status", "--gateway", &pid])
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    let path = told["gateways"][0]["socket"].as_str();
    path.unwrap_or_else(|| panic!("{told}")).to_owned()
}

/// Revokes a credential, and returns how long the answer took and its status line.
fn revoke(socket: &str, credential: &str) -> (Duration, String) {
    post(socket, &format!("{credential}/revoke"))
}

fn post(socket: &str, to: &str) -> (Duration, String) {
    let mut control = UnixStream::connect(socket).unwrap();
    let call = format!(
        "POST /v1/credentials/{to} HTTP/1.1\r\nHost: gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let asked = Instant::now();
    control.write_all(call.as_bytes()).unwrap();
    let mut first = [0; 12];
    control.read_exact(&mut first).unwrap();
    let took = asked.elapsed();
    (took, String::from_utf8_lossy(&first).into_owned())
}

/// The credential that is revoked. Each turn its secret is stored elsewhere.
fn credential(turn: usize) -> String {
    format!(
        "[[credential]]\nname = \"{}\"\nfrom = \"file:secrets/doomed-{turn}\"\norigins = [\"https://{HOST}\", \"https://{OTHER}\"]\n\
         places = [\"header:x-doomed\"]\nenv = [\"DOOMED_TOKEN\"]\nshape = \"doomed-[40 alnum]\"\n",
        name(turn)
    )
}

/// Each row has one of its own: a revocation is for every gateway of the user.
fn name(turn: usize) -> &'static str {
    ["doomed", "taken"][usize::from(turn >= 100)]
}

fn lend(turn: usize) -> String {
    format!(
        "@id(\"doomed\")\npermit(principal, action == Gateway::Action::\"lend\", \
         resource == Gateway::Credential::\"{}\");\n",
        name(turn)
    )
}

fn secret(rig: &Rig, turn: usize) -> String {
    rig.secret(["bearer", "basic"][turn % 2]).to_owned()
}

/// Puts the credential of a turn in force, and returns its phantom.
fn put(rig: &Rig, good: &str, more: &str, turn: usize) -> String {
    let file = rig.dir.path().join(format!("secrets/doomed-{turn}"));
    fs::write(&file, secret(rig, turn)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let text = format!("{good}{}{more}", credential(turn));
    fs::write(rig.dir.path().join("serve.toml"), text).unwrap();
    let permit = crate::policy::permit("doomed/host", HOST, "true");
    assert!(reload(
        rig,
        &format!("{}{}{permit}", policies(), lend(turn))
    ));
    let all = fs::read_to_string(rig.dir.path().join("phantoms-a.env")).unwrap();
    let mut lines = all.lines();
    let found = lines.find_map(|line| line.strip_prefix("DOOMED_TOKEN="));
    found.unwrap().to_owned()
}

fn begin(rig: &Rig, host: &str, request: &str, phantom: &str, fields: &str) -> Wire {
    let mut wire = rig.open(Way::Connect, host);
    let text = format!("{request} HTTP/1.1\r\nHost: {host}\r\nX-Doomed: {phantom}\r\n{fields}\r\n");
    wire.send(text.as_bytes());
    wire
}

fn a_revoked_credential_is_refused_and_what_it_was_lent_to_is_cut(rig: &Rig) {
    stream(rig, 400);
    let control = socket(rig);
    // A row before may have revoked it.
    assert_eq!(post(&control, "doomed/restore").1, "HTTP/1.1 200");
    let good = fs::read_to_string(rig.dir.path().join("serve.toml")).unwrap();
    let phantom = put(rig, &good, "", 0);
    let mut lent = begin(rig, OTHER, "GET /events", &phantom, "");
    assert!(lent.line(b"\r\n\r\n").is_some());
    let mut bare = rig.open(Way::Connect, OTHER);
    bare.send(format!("GET /events HTTP/1.1\r\nHost: {OTHER}\r\n\r\n").as_bytes());
    assert!(bare.line(b"\r\n\r\n").is_some());
    assert_eq!(revoke(&control, "doomed").1, "HTTP/1.1 200");
    let revoked = Instant::now();
    assert!(lent.rest().1);
    assert!(revoked.elapsed() < Duration::from_millis(500));
    rig.records(Way::Connect, 2);
    rig.seen();
    let refused = || {
        let template =
            format!("GET {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\nX-Doomed: {phantom}\r\n\r\n");
        crate::verdicts::refused(
            rig,
            Way::Connect,
            OTHER,
            &template,
            403,
            "credential_revoked",
        );
    };
    refused();
    // A reload that has nothing to do with it does not lift it.
    assert!(crate::policy::hang_up(rig));
    refused();
    assert_eq!(revoke(&control, "doomed").1, "HTTP/1.1 200", "again");
    // Nor does it if the credential is removed, and added again.
    fs::write(rig.dir.path().join("serve.toml"), &good).unwrap();
    assert!(reload(rig, &policies()));
    put(rig, &good, "", 0);
    refused();
    // Nor does another place of its secret.
    put(rig, &good, "", 1);
    refused();
    assert_eq!(post(&control, "doomed/restore").1, "HTTP/1.1 200");
    let mut answer = begin(rig, OTHER, "GET /x", &phantom, "");
    assert_eq!(answer.response().status, 200);
    rig.record(Way::Connect);
    assert!(bare.line(b"0\r\n\r\n").is_some(), "it was lent nothing");
    fs::write(rig.dir.path().join("serve.toml"), &good).unwrap();
    assert!(reload(rig, &policies()));
    rig.seen();
    let cut: Vec<Value> = rig.every_end();
    let cut = cut.iter().filter(|end| end["outcome"] == "cut");
    let reasons: Vec<&Value> = cut.map(|end| &end["reason"]).collect();
    assert_eq!(reasons, ["credential_revoked"]);
}

/// Must show 4: requests, uploads and WebSockets with the credential, and a revocation among them.
fn from_the_answer_of_a_revocation_no_byte_of_the_secret_leaves(rig: &Rig) {
    let rounds: usize = std::env::var("GATEWAY_ROUNDS").map_or(12, |text| text.parse().unwrap());
    let good = fs::read_to_string(rig.dir.path().join("serve.toml")).unwrap();
    let authority = Arc::new(Authority::new());
    fs::write(rig.dir.path().join("doomed.pem"), &authority.pem).unwrap();
    let origin = Origin::start(&authority);
    let rule = format!(
        "[[origin]]\nmatch = \"https://{HOST}\"\nconnect = \"127.0.0.1:{}\"\nroots = [\"doomed.pem\"]\n",
        origin.port
    );
    let control = socket(rig);
    let (mut took, mut lent) = (Vec::new(), 0);
    for round in 0..rounds {
        let turn = 100 + round;
        let phantom = put(rig, &good, &rule, turn);
        let secret = secret(rig, turn);
        origin.all.lock().unwrap().clear();
        let stop = AtomicBool::new(false);
        let revoked = AtomicUsize::new(0);
        let goes_on = || !stop.load(Ordering::Relaxed);
        let requests = || {
            while goes_on() {
                let mut wire = rig.open(Way::Connect, HOST);
                for _ in 0..5 {
                    let text =
                        format!("GET /x HTTP/1.1\r\nHost: {HOST}\r\nX-Doomed: {phantom}\r\n\r\n");
                    let answer = wire.ask(text.as_bytes());
                    match (answer.status, answer.reason().as_str()) {
                        (200, _) => {}
                        // An answer whose content was cut.
                        (0, _) => break,
                        (403, "credential_revoked") => {
                            revoked.fetch_add(1, Ordering::Relaxed);
                        }
                        other => panic!("{other:?} {answer:?}"),
                    }
                }
            }
        };
        let uploads = || {
            while goes_on() {
                let fields = "Transfer-Encoding: chunked\r\n";
                let mut wire = begin(rig, HOST, "POST /x", &phantom, fields);
                wire.patience(Duration::from_millis(1));
                for _ in 0..2000 {
                    wire.send(b"5\r\nhello\r\n");
                    if !goes_on() || !wire.rest().0.is_empty() {
                        break;
                    }
                }
            }
        };
        let sockets = || {
            while goes_on() {
                let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
                let mut wire = begin(rig, HOST, "GET /ws", &phantom, fields);
                let head = wire.line(b"\r\n\r\n").unwrap_or_default();
                if !head.starts_with(b"HTTP/1.1 101") {
                    continue;
                }
                wire.patience(Duration::from_millis(1));
                while goes_on() && !wire.rest().1 {
                    wire.send(b"\x81\x85\x00\x00\x00\x00hello");
                }
            }
        };
        std::thread::scope(|scope| {
            let clients = [
                scope.spawn(requests),
                scope.spawn(requests),
                scope.spawn(uploads),
                scope.spawn(sockets),
            ];
            let began = Instant::now();
            let is_lent = || origin.connections().iter().any(|one| one.holds(&secret));
            while !is_lent() && began.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(7 * (round as u64 % 13)));
            let (after, status) = revoke(&control, "taken");
            assert_eq!(status, "HTTP/1.1 200");
            // What the kernel had on its way is there by now.
            std::thread::sleep(Duration::from_millis(2));
            let arrived: Vec<(Arc<Arrivals>, usize)> = origin
                .connections()
                .into_iter()
                .map(|conn| (conn.clone(), conn.arrived()))
                .collect();
            took.push(after);
            std::thread::sleep(Duration::from_millis(80));
            stop.store(true, Ordering::Relaxed);
            for client in clients {
                client.join().unwrap();
            }
            // Nothing of it stays in the state.
            assert_eq!(post(&control, "taken/restore").1, "HTTP/1.1 200");
            for conn in origin
                .connections()
                .iter()
                .filter(|conn| conn.holds(&secret))
            {
                lent += 1;
                let known = arrived.iter().find(|(known, _)| Arc::ptr_eq(known, conn));
                let (_, before) = known.expect("a connection of later has the secret");
                let now = *conn.read.lock().unwrap();
                assert!(
                    now <= *before,
                    "round {round}: {before} bytes at the answer, {now} now"
                );
            }
            assert!(revoked.load(Ordering::Relaxed) > 0, "nobody was refused");
        });
    }
    took.sort();
    let at = |part: usize| took[(took.len() - 1) * part / 100];
    println!(
        "{rounds} revocations, {lent} connections with the secret: p50 {:?}, p99 {:?}; 0 bytes after the answer",
        at(50),
        at(99)
    );
    assert!(lent >= rounds, "the secret was hardly lent: {lent}");
    fs::write(rig.dir.path().join("serve.toml"), &good).unwrap();
    assert!(reload(rig, &policies()));
    // The requests went to an origin of this test's own.
    rig.abandon();
}
