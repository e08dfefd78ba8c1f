//! Ports between a sandbox and the host, by the shipped program: a real browser outside, a real
//! PostgreSQL, `psql` and `redis-cli` inside, and a real browser inside.

#[path = "rig/addresses.rs"]
mod addresses;
#[expect(dead_code, reason = "the tests of Vault use the rest of it")]
#[path = "vault/server.rs"]
mod server;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use addresses::free;
use serde_json::Value;
use server::{Postgres, SUPERUSER};

/// A project and a home, and beside them what the tests leave.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["project", "home", "run"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let own = fs::Permissions::from_mode(0o700);
        fs::set_permissions(folder.path().join("run"), own).unwrap();
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(folder.path().join("project"), all).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `gateway exec FLAGS -- sh -c SCRIPT`.
    fn exec(&self, flags: &[&str], script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
        command
            .args(["exec", "--audit"])
            .arg(self.path("audit/log.jsonl"))
            .args(flags)
            .args(["--", "sh", "-c", script])
            .current_dir(self.path("project"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .stdin(Stdio::null());
        command
    }

    /// `gateway session WORD exec`, which is the session's name.
    fn operate(&self, word: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
        command.args(["session", word, "exec"]);
        command.env("HOME", self.path("home"));
        command.env("XDG_RUNTIME_DIR", self.path("run"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }

    /// The records of connections through ports: `exchange` and `end`, in that order.
    fn records(&self, entry: &str) -> Vec<(Value, Value)> {
        let text = fs::read_to_string(self.path("audit/log.jsonl")).unwrap();
        let all: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let opened = all.iter().filter(|one| one["entry"] == entry);
        let with_end = |one: &Value| {
            let end = |other: &&Value| other["kind"] == "end" && other["id"] == one["id"];
            let end = all.iter().find(end).cloned();
            (one.clone(), end.unwrap_or_default())
        };
        opened.map(with_end).collect()
    }
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat()
}

/// Waits until something is so.
#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The whole answer of a server, if it answers.
fn get(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn chromium(home: &Path, url: &str) -> String {
    let output = Command::new("chromium")
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
            url,
        ])
        .env("HOME", home)
        .stdin(Stdio::null())
        .output()
        .expect("`chromium` is there: .ci/packages");
    said(&output)
}

/// A server inside, which ends when the standard input of the command does.
fn serving(host: &Host, publish: &str, bind: &str) -> Child {
    fs::write(host.path("project/index.html"), "<p>made inside</p>").unwrap();
    let script =
        format!("python3 -m http.server 3000 --bind {bind} >/dev/null 2>&1 & read -r end; kill $!");
    host.exec(&["-q", "--publish", publish], &script)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_browser_outside_sees_a_server_inside_as_long_as_the_sandbox_lives() {
    for bind in ["127.0.0.1", "::1"] {
        let (host, port) = (Host::new(), free().port());
        let mut sandbox = serving(&host, &format!("{port}:3000"), bind);
        eventually("the server inside answers", || {
            get(port).is_some_and(|answer| answer.contains("made inside"))
        });
        let seen = chromium(&host.path("home"), &format!("http://127.0.0.1:{port}/"));
        assert!(seen.contains("<p>made inside</p>"), "{seen}");
        drop(sandbox.stdin.take());
        assert!(sandbox.wait().unwrap().code().is_some());
        eventually("the port closes", || {
            TcpStream::connect(("127.0.0.1", port)).is_err()
        });
        let records = host.records("publish");
        let carried = |end: &Value| end["response_bytes"].as_u64() > Some(100);
        assert!(
            records
                .iter()
                .any(|(one, end)| one["port"] == 3000 && carried(end))
        );
        for (one, _) in &records {
            assert_eq!(one["session"], "exec");
            let client = one["client"].as_str().unwrap_or_default();
            assert!(client.starts_with("127.0.0.1:"), "{one}");
        }
    }
}

#[test]
fn more_connections_than_there_are_places_wait_and_none_is_lost() {
    let (host, port) = (Host::new(), free().port());
    let mut sandbox = serving(&host, &format!("{port}:3000"), "127.0.0.1");
    eventually("the server inside answers", || {
        get(port).is_some_and(|answer| !answer.is_empty())
    });
    // They hold every place and say nothing.
    let idle: Vec<TcpStream> = (0..63)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    let asked: Vec<_> = (0..100)
        .map(|_| std::thread::spawn(move || get(port)))
        .collect();
    let answered = asked.into_iter().map(|one| one.join().unwrap());
    let whole = answered.filter(|one| one.as_ref().is_some_and(|one| one.contains("made inside")));
    assert_eq!(whole.count(), 100);
    drop((idle, sandbox.stdin.take()));
    sandbox.wait().unwrap();
}

#[test]
fn the_log_ends_with_stop_behind_the_ends_of_what_was_open() {
    let (host, port) = (Host::new(), free().port());
    let mut sandbox = serving(&host, &format!("{port}:3000"), "127.0.0.1");
    eventually("the server inside answers", || {
        get(port).is_some_and(|answer| !answer.is_empty())
    });
    let open: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    eventually("they are connected", || {
        let records = host.records("publish").into_iter();
        let answered = records.filter(|(begun, _)| begun["outcome"] == "answered");
        answered.count() > 20
    });
    drop(sandbox.stdin.take());
    sandbox.wait().unwrap();
    drop(open);
    let text = fs::read_to_string(host.path("audit/log.jsonl")).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["kind"], "stop", "{text}");
    let mut records = host.records("publish");
    records.retain(|(begun, _)| begun["outcome"] == "answered");
    assert!(records.len() > 20, "{records:?}");
    assert!(
        records.iter().all(|(_, end)| end["kind"] == "end"),
        "{records:?}"
    );
}

/// Whether its peer has neither said anything nor closed.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = (&mut &*stream).read(&mut [0]);
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn a_silent_connection_is_cut_where_another_waits_for_its_place_and_not_before() {
    let (host, port) = (Host::new(), free().port());
    let mut sandbox = serving(&host, &format!("{port}:3000"), "127.0.0.1");
    eventually("the server inside answers", || {
        get(port).is_some_and(|answer| !answer.is_empty())
    });
    let connect = |_| TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut idle: Vec<TcpStream> = (0..63).map(connect).collect();
    std::thread::sleep(Duration::from_secs(70));
    idle.push(connect(63));
    std::thread::sleep(Duration::from_secs(10));
    assert!(
        idle.iter().all(is_open),
        "one was cut that was in nobody's way"
    );
    let answer = get(port).expect("the one that waits gets a place");
    assert!(answer.contains("made inside"), "{answer}");
    assert!(!idle.iter().all(is_open));
    drop((idle, sandbox.stdin.take()));
    sandbox.wait().unwrap();
}

/// Says nothing and reads slowly; writes how much it got.
const SLOW_READER: &str = r#"
import socket, time
listener = socket.create_server(("127.0.0.1", 3000))
print("ready", flush=True)
while True:
    stream, _ = listener.accept()
    stream.shutdown(socket.SHUT_WR)
    time.sleep(1)
    got = 0
    while True:
        try:
            part = stream.recv(65536)
        except ConnectionResetError:
            got = -got
            break
        if not part: break
        got += len(part)
    open("got", "w").write(str(got))
"#;

#[test]
fn what_was_sent_arrives_whole_where_the_server_closed_its_side_first() {
    let (host, port) = (Host::new(), free().port());
    fs::write(host.path("project/reader.py"), SLOW_READER).unwrap();
    let script = "python3 reader.py >ready & read -r end; kill $!";
    let mut sandbox = host
        .exec(&["-q", "--publish", &format!("{port}:3000")], script)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the server inside listens", || {
        fs::read_to_string(host.path("project/ready")).is_ok_and(|text| text.contains("ready"))
    });
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(&[7; 2_000_000]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert!(said.is_empty());
    eventually("the server inside read it", || {
        host.path("project/got").exists()
    });
    eventually("it got all", || {
        fs::read_to_string(host.path("project/got")).is_ok_and(|got| got == "2000000")
    });
    drop(sandbox.stdin.take());
    sandbox.wait().unwrap();
    let records = host.records("publish");
    assert!(
        records.iter().any(|(_, end)| end["outcome"] == "whole"),
        "{records:?}"
    );
}

#[test]
fn a_port_that_is_taken_is_said_before_the_command_starts() {
    let host = Host::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let publish = format!("{port}:3000");
    let output = host
        .exec(&["-q", "--publish", &publish], "touch started")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(said(&output).contains(&format!("127.0.0.1:{port} cannot be published")));
    assert!(said(&output).contains("--publish"), "{}", said(&output));
    assert!(!host.path("project/started").exists());
}

#[test]
fn a_port_that_is_the_gateways_own_is_refused() {
    let host = Host::new();
    for (flags, why) in [
        (&["--host-port", "53"][..], "answers DNS there"),
        (
            &["--host-port", "15001"],
            "takes the sandbox's connections there",
        ),
        (
            &["--host-port", "3000", "--publish", "3000:80"],
            "a published port",
        ),
        (
            &["--host-port", "80", "--publish", "3000:80"],
            "published and a host port",
        ),
        (&["--host-port", "0"], "no port from 1 to 65535"),
        (&["--publish", "example.com:80"], "[HOST:]PORT[:INSIDE]"),
    ] {
        let output = host.exec(flags, "touch started").output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(2),
            "{flags:?}: {}",
            said(&output)
        );
        assert!(said(&output).contains(why), "{flags:?}: {}", said(&output));
    }
    assert!(!host.path("project/started").exists());
}

#[test]
fn a_port_that_is_another_gateways_is_refused() {
    let host = Host::new();
    let (proxy, metrics) = (free().port(), free().port());
    let config = host.path("serve.toml");
    let text = format!(
        "[ca]\ncertificate = \"ca.pem\"\n[audit]\npath = \"run/serve.jsonl\"\n\
         [control]\nmetrics_address = \"127.0.0.1:{metrics}\"\n[policy]\nallow = [\"one.test\"]\n\
         [[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:{proxy}\"\nsession = \"one\"\n"
    );
    fs::write(&config, text).unwrap();
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(["serve", "--config"])
        .arg(&config)
        .env_clear()
        .env("HOME", host.path("home"))
        .env("XDG_RUNTIME_DIR", host.path("run"))
        .spawn()
        .unwrap();
    eventually("the gateway serves", || {
        TcpStream::connect(("127.0.0.1", metrics)).is_ok()
    });
    for port in [proxy, metrics] {
        let flags = ["--host-port", &port.to_string()];
        let output = host.exec(&flags, "touch started").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(
            said(&output).contains("gateway `serve"),
            "{}",
            said(&output)
        );
    }
    assert!(!host.path("project/started").exists());
    gateway.kill().unwrap();
    gateway.wait().unwrap();
}

#[test]
fn a_database_of_the_host_is_used_by_one_grant_and_nothing_else_of_the_host_is_reached() {
    let (host, postgres) = (Host::new(), Postgres::start());
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = postgres.port.to_string();
    let script = |more: &str| {
        format!(
            "PGPASSWORD={SUPERUSER} psql -h 127.0.0.1 -p {port} -U postgres -d postgres -Atc 'select 6*7'{more}"
        )
    };
    let beside = format!(
        "; for a in 127.0.0.1 127.0.0.2 100.64.0.2 ::1; do python3 -c 'import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).recv(1)' $a {} 2>&1 | tail -n 1; done",
        other.local_addr().unwrap().port()
    );
    let output = host
        .exec(&["--host-port", &port], &script(&beside))
        .output()
        .unwrap();
    assert!(said(&output).starts_with("42\n"), "{}", said(&output));
    assert!(
        said(&output).contains("no secret is injected"),
        "{}",
        said(&output)
    );
    other.set_nonblocking(true).unwrap();
    assert!(
        other.accept().is_err(),
        "a port that was not named was reached"
    );
    let records = host.records("host_port");
    assert_eq!(records.len(), 1, "{records:?}");
    let (opened, end) = &records[0];
    assert_eq!(opened["port"].to_string(), port);
    assert_eq!(
        (&opened["outcome"], &end["outcome"]),
        (&"answered".into(), &"whole".into())
    );
    assert!(end["request_bytes"].as_u64() > Some(50), "{end}");

    let begin = Instant::now();
    let refused = host.exec(&["-q"], &script("")).output().unwrap();
    assert!(
        said(&refused).contains("Connection refused"),
        "{}",
        said(&refused)
    );
    assert!(begin.elapsed() < Duration::from_secs(20));
    assert_eq!(host.records("host_port").len(), 1);
}

#[test]
fn a_service_that_is_not_there_is_told_with_its_port() {
    let (host, port) = (Host::new(), free().port().to_string());
    let script = format!("redis-cli -h 127.0.0.1 -p {port} ping");
    let output = host
        .exec(&["--host-port", &port], &script)
        .output()
        .unwrap();
    let told = said(&output);
    assert!(
        told.contains(&format!("127.0.0.1:{port}")) && told.contains("unreachable"),
        "{told}"
    );
    let records = host.records("host_port");
    assert!(
        records
            .iter()
            .all(|(one, _)| one["reason"] == "unreachable"),
        "{records:?}"
    );
}

#[test]
fn a_paused_session_opens_no_connection_and_the_end_of_one_cuts_those_that_are_open() {
    let host = Host::new();
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let script = format!(
        "python3 -c 'import socket, sys
dial = lambda: socket.create_connection((\"127.0.0.1\", {port}), 30)
say = lambda *words: print(*words, flush=True)
kept = dial(); kept.settimeout(60); say(\"greeted\", kept.recv(9)); sys.stdin.readline()
say(\"paused\", dial().recv(9))
try: say(\"ended\", kept.recv(9))
except ConnectionResetError: say(\"reset\")'"
    );
    let mut sandbox = host
        .exec(&["-q", "--host-port", &port], &script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(sandbox.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    let (mut near, _) = service.accept().unwrap();
    near.write_all(b"hello").unwrap();
    assert_eq!(next(), "greeted b'hello'");
    host.operate("pause");
    sandbox.stdin.take().unwrap().write_all(b"on\n").unwrap();
    assert_eq!(next(), "paused b''");
    host.operate("end");
    assert_eq!(next(), "reset");
    sandbox.wait().unwrap();
    let records = host.records("host_port");
    let told = records
        .iter()
        .map(|(one, end)| (&one["reason"], &end["reason"]));
    let told: Vec<_> = told.collect();
    assert_eq!(told[0].1, "session_ended", "{told:?}");
    assert_eq!(told[1].0, "session_paused", "{told:?}");
    service.set_nonblocking(true).unwrap();
    assert!(
        service.accept().is_err(),
        "a paused session reached the service"
    );
}

#[test]
fn redis_cli_at_a_name_is_refused_at_once_with_the_reason() {
    let quickest = (0..3).map(|_| {
        let host = Host::new();
        let script = "python3 -c 'import subprocess, time
began = time.time()
subprocess.run([\"redis-cli\", \"-h\", \"cache.example.test\", \"ping\"])
print(\"took\", int(1000 * (time.time() - began)))'";
        let output = host.exec(&[], script).output().unwrap();
        let told = said(&output);
        assert!(
            told.contains("cache.example.test:6379: protocol_redis"),
            "{told}"
        );
        let (_, took) = told.split_once("took ").unwrap();
        took.split_whitespace()
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    });
    assert!(quickest.min() < Some(1000));
}

#[test]
fn a_browser_inside_trusts_the_sessions_ca_and_no_other() {
    let host = Host::new();
    let site = Site::start(&host);
    let text = format!(
        "[[origin]]\nmatch = \"https://site.test\"\nconnect = \"127.0.0.1:{}\"\nroots = [\"ca.pem\"]\n",
        site.port
    );
    fs::write(host.path("gateway.toml"), text).unwrap();
    let config = host.path("gateway.toml");
    let flags = [
        "-q",
        "--config",
        config.to_str().unwrap(),
        "--allow",
        "site.test",
    ];
    let browse = "chromium --headless=new --no-sandbox --disable-gpu --dump-dom https://site.test/";
    let output = host.exec(&flags, browse).output().unwrap();
    assert!(
        said(&output).contains("<p>the site</p>"),
        "{}",
        said(&output)
    );
    // The same without the database.
    let without = format!("mv ~/.pki/nssdb/cert9.db /tmp; {browse}");
    let output = host.exec(&flags, &without).output().unwrap();
    assert!(
        !said(&output).contains("<p>the site</p>"),
        "{}",
        said(&output)
    );
    assert!(
        said(&output).contains("ERR_CERT_AUTHORITY_INVALID"),
        "{}",
        said(&output)
    );
}

#[test]
fn the_probes_find_no_way_out_through_an_opened_port_of_either_kind() {
    let host = Host::new();
    let output = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(["doctor", "--escape"])
        .current_dir(host.path("project"))
        .env("HOME", host.path("home"))
        .output()
        .unwrap();
    let told = said(&output);
    let held = |name: &str, what: &str| {
        let line = told.lines().find(|line| line.contains(name));
        line.is_some_and(|line| line.starts_with("held") && line.contains(what))
    };
    assert!(held(" host-port ", "only port"), "{told}");
    assert!(held(" publish ", "came back"), "{told}");
}

/// An https origin with a CA of its own.
struct Site {
    port: u16,
    process: Child,
}

impl Site {
    fn start(host: &Host) -> Self {
        let port = free().port();
        let made = Command::new("sh")
            .args(["-e", "-c", CERTIFICATES])
            .current_dir(host.0.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", said(&made));
        fs::write(host.path("index.html"), "<p>the site</p>").unwrap();
        let process = Command::new("python3")
            .args(["-c", SITE, &port.to_string()])
            .current_dir(host.0.path())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the site listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self { port, process }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const CERTIFICATES: &str = "
    key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
    openssl req -x509 $key -days 2 -subj /CN=ca -keyout ca.key -out ca.pem
    openssl req $key -subj /CN=site.test -keyout leaf.key -out leaf.csr
    echo subjectAltName=DNS:site.test > names
    openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -days 2 -extfile names -out leaf.pem";

const SITE: &str = "
import http.server, ssl, sys
server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('leaf.pem', 'leaf.key')
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()";
