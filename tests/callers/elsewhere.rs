//! `gateway sidecar --to https://…`: what a sandbox far from its gateway sees.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::program::{command, free};
use super::tls::{Authority, Rig, TRUST, client};
use super::{ASKED, CLOSE, CONNECTED, TUNNELLED, mint, text};

/// A sidecar, where it listens, and what it says.
struct Sidecar {
    child: Child,
    at: SocketAddr,
    says: Receiver<String>,
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that leads to the gateway of the rig.
fn leads(rig: &Rig, more: &[&str]) -> Command {
    let mut leads = command(rig.program.folder.path());
    let to = format!("https://{}", rig.address);
    leads.args(["sidecar", "--to", &to, "--ca", "server-root.pem"]);
    leads.args(["--listen", "127.0.0.1:0"]).args(more);
    leads
}

impl Sidecar {
    fn start(rig: &Rig, more: &[&str]) -> Self {
        let mut child = leads(rig, more).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (tells, says) = channel();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| tells.send(line))
        });
        // It tells who else is here first.
        let at = (0..2).find_map(|_| {
            let line = says.recv_timeout(Duration::from_secs(10)).unwrap();
            line.split(['/', ' ']).find_map(|word| word.parse().ok())
        });
        let at = at.expect("it tells where it listens");
        Self { child, at, says }
    }

    fn send(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        // It may be refused already.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Waits until it has said this.
    fn says(&self, words: &str) {
        let until = Instant::now() + Duration::from_secs(10);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match self.says.recv_timeout(left) {
                Ok(line) if line.contains(words) => return,
                Ok(line) => assert!(!line.contains("gwt1_"), "{line}"),
                Err(error) => panic!("{words}: {error}"),
            }
        }
    }

    /// A new connection ends at once, without a byte, in the best of three tries.
    fn refuses(&self) {
        let tries = (0..3).map(|_| {
            let began = Instant::now();
            let mut stream = TcpStream::connect(self.at).unwrap();
            // The reset is told once: to the write, if it came before it.
            let written = stream.write_all(ASKED);
            let error = written.and_then(|()| stream.read(&mut [0])).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
            began.elapsed()
        });
        let took = tries.min().unwrap();
        println!("refused after {took:?}");
        assert!(took < Duration::from_millis(50), "{took:?}");
    }

    /// What it said before is of no matter; new connections come to be served.
    fn serves(&self) {
        let until = Instant::now() + Duration::from_secs(10);
        while !self.send(ASKED).ends_with("\r\n\r\nok") {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn stream(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).unwrap();
        let asked = b"GET http://stream.test/endless HTTP/1.1\r\nHost: stream.test\r\n\r\n";
        stream.write_all(asked).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        stream
    }
}

/// Follows a stream until it breaks off; returns after how long.
fn breaks_off(mut stream: TcpStream) -> Duration {
    let (began, mut part) = (Instant::now(), [0; 4096]);
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    while stream.read(&mut part).is_ok_and(|read| read > 0) {
        assert!(began.elapsed() < Duration::from_secs(20), "it goes on");
    }
    began.elapsed()
}

fn keep(rig: &Rig, name: &str, token: &str) {
    let (beside, path) = (rig.program.path("beside"), rig.program.path(name));
    fs::write(&beside, token).unwrap();
    fs::set_permissions(&beside, Permissions::from_mode(0o600)).unwrap();
    fs::rename(beside, path).unwrap();
}

const PRESENTS: [&str; 2] = ["--token-from", "file:token"];

#[test]
fn a_sidecar_leads_to_a_gateway_elsewhere_for_as_long_as_its_token_holds() {
    let mut rig = Rig::start("", "session = \"agent-1\"\nwho = [\"token\"]");
    let minted = mint(&rig.program, &[]);
    keep(&rig, "token", &text(&minted));
    let sidecar = Sidecar::start(&rig, &PRESENTS);
    for asked in [ASKED, CONNECTED, TUNNELLED] {
        let answer = sidecar.send(asked);
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    }
    let refused =
        format!("GET http://forbidden.test/ HTTP/1.1\r\nHost: forbidden.test\r\n{CLOSE}\r\n");
    assert!(sidecar.send(refused.as_bytes()).starts_with("HTTP/1.1 403"));
    // What a client presents beside is taken for nobody's.
    let presents = String::from_utf8_lossy(ASKED).replace(
        "\r\n\r\n",
        "\r\nProxy-Authorization: Bearer gwt1_AgI\r\n\r\n",
    );
    assert!(
        sidecar
            .send(presents.as_bytes())
            .starts_with("HTTP/1.1 407")
    );
    // The proxy leads to itself once, not in a circle.
    let itself = "CONNECT gateway.internal:3128 HTTP/1.1\r\nHost: gateway.internal:3128\r\n\r\n";
    let circle = [itself.as_bytes(), itself.as_bytes(), ASKED].concat();
    assert!(!sidecar.send(&circle).contains("\r\n\r\nok"));
    for record in rig.program.records("exchange") {
        let is_known = record["session"] == "agent-1" || record["decision"] != "allow";
        assert!(is_known, "{record}");
    }
    // The token is revoked while a stream runs.
    let stream = sidecar.stream();
    let (code, said) = rig
        .program
        .gateway(&["token", "revoke", minted["id"].as_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    let took = breaks_off(stream);
    assert!(took < Duration::from_secs(2), "{took:?}");
    sidecar.refuses();
    sidecar.says("does not take the token (407)");
    sidecar.refuses();
    // Another one is there within seconds.
    keep(&rig, "token", &text(&mint(&rig.program, &[])));
    sidecar.serves();
    // The gateway dies while a stream runs, and comes again.
    let stream = sidecar.stream();
    rig.program.child.kill().unwrap();
    rig.program.child.wait().unwrap();
    assert!(breaks_off(stream) < Duration::from_secs(1));
    sidecar.refuses();
    sidecar.says("is `gateway serve` running there?");
    sidecar.refuses();
    rig.program.restart_after_a_crash();
    sidecar.serves();
    assert!(sidecar.stream().shutdown(Shutdown::Both).is_ok());
}

#[test]
fn a_sidecar_that_has_no_way_says_so_at_its_start() {
    let rig = Rig::start(
        TRUST,
        "session = \"agent-1\"\nwho = [\"token\", \"certificate\"]",
    );
    let token = text(&mint(&rig.program, &[]));
    keep(&rig, "token", &token);
    let last = if token.ends_with('A') { "Q" } else { "A" };
    keep(
        &rig,
        "forged",
        &format!("{}{last}", &token[..token.len() - 1]),
    );
    fs::write(rig.program.path("open"), &token).unwrap();
    rig.clients.issue(
        rig.program.folder.path(),
        "spiffe",
        client("", &["spiffe://example.org/a"]),
    );
    rig.write("other-root.pem", &Authority::new().1);
    let nowhere = format!("https://{}", free());
    let certificate = ["--certificate", "spiffe.pem", "--key", "spiffe.key"];
    let rows: [(&[&str], i32, &str); 12] = [
        (&PRESENTS, 0, ""),
        (&certificate, 0, ""),
        (&[], 1, "it asks who this is (407)"),
        (
            &["--token-from", "file:forged"],
            1,
            "does not take the token (407)",
        ),
        (
            &["--token-from", "file:absent"],
            2,
            "`--token-from` cannot be used",
        ),
        (
            &["--token-from", "file:open"],
            2,
            "`--token-from` cannot be used",
        ),
        (&["--token-from", &token], 2, "never secrets"),
        (
            &["--token-from", "env:ABSENT"],
            1,
            "the token cannot be read",
        ),
        (&["--ca", "other-root.pem"], 1, "`--ca FILE` names the CA"),
        (&["--ca", "spiffe.key"], 2, "`--ca` cannot be used"),
        (&["--to", &nowhere], 1, "is `gateway serve` running there?"),
        (
            &["--to", "http://127.0.0.1:1"],
            2,
            "such as `https://gateway.example.com:8443`",
        ),
    ];
    for (more, code, words) in rows {
        let mut leads = command(rig.program.folder.path());
        leads.arg("sidecar");
        let of = |name: &str| more.contains(&name);
        let to = format!("https://{}", rig.address);
        let usual = [
            ("--to", &to[..]),
            ("--ca", "server-root.pem"),
            ("--listen", "127.0.0.1:0"),
        ];
        for (name, value) in usual.into_iter().filter(|(name, _)| !of(name)) {
            leads.args([name, value]);
        }
        let output = leads.args(more).args(["--", "true"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{more:?}: {said}");
        assert!(
            said.contains(words) && !said.contains(&token[8..]) && !said.contains("origin"),
            "{more:?}: {said}"
        );
    }
}

#[test]
fn a_sidecar_whose_token_or_session_is_over_says_so_at_its_start() {
    let rig = Rig::start("", "session = \"{caller}\"\nwho = [\"token\"]");
    let start = |words: &str, code: i32| {
        let more = ["--token-from", "file:token", "--", "true"];
        let output = leads(&rig, &more).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words) && !said.contains("gwt1_"), "{said}");
    };
    let made = ["session", "create", "ci-1", "--ends", "1h"];
    keep(&rig, "token", &text(&rig.program.json(&made)));
    start("", 0);
    for (act, code, words) in [
        ("pause", 0, "the session is paused"),
        ("resume", 0, ""),
        ("end", 1, "session_ended"),
    ] {
        assert_eq!(rig.program.gateway(&["session", act, "ci-1"]).0, 0);
        start(words, code);
    }
    let minted = mint(&rig.program, &[]);
    keep(&rig, "token", &text(&minted));
    start("", 0);
    let id = minted["id"].as_str().unwrap();
    assert_eq!(rig.program.gateway(&["token", "revoke", id]).0, 0);
    start("does not take the token (407)", 1);
    keep(&rig, "token", &text(&mint(&rig.program, &["--for", "1s"])));
    std::thread::sleep(Duration::from_millis(2100));
    start("does not take the token (407)", 1);
    // One for all: what is ended is there for a while, to say so.
    rig.program
        .edit(|text| text.replace("session = \"{caller}\"", "session = \"agent-1\""));
    rig.program.reload();
    keep(&rig, "token", &text(&mint(&rig.program, &[])));
    start("", 0);
    assert_eq!(rig.program.gateway(&["session", "end", "agent-1"]).0, 0);
    start("session_ended", 1);
}

/// How many connections lead to an address.
fn connections_to(address: SocketAddr) -> usize {
    let port = format!(":{:04X} 01 ", address.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().filter(|line| line.contains(&port)).count()
}

#[test]
fn the_connections_of_a_sidecar_share_a_few_and_are_in_nobodys_way() {
    let further = "session = \"agent-1\"\nwho = [\"token\"]\n[limits]\nstreams_per_connection = 8";
    let rig = Rig::start("", further);
    origin_of_large(&rig);
    keep(&rig, "token", &text(&mint(&rig.program, &[])));
    let sidecar = Sidecar::start(&rig, &PRESENTS);
    let unread: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(sidecar.at).unwrap();
            let asked = b"GET http://large.test/64 HTTP/1.1\r\nHost: large.test\r\n\r\n";
            stream.write_all(asked).unwrap();
            stream.read_exact(&mut [0; 12]).unwrap();
            stream
        })
        .collect();
    ask(sidecar.at, (2, 1, 16));
    let few = connections_to(rig.address);
    assert!((3..=4).contains(&few), "{few}");
    let status = fs::read_to_string(format!("/proc/{}/status", sidecar.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    println!("a sidecar of 20 unread streams of 64 MiB: {line:?}");
    // The listener changes: what is under way goes on, and what comes takes another connection.
    rig.program
        .edit(|text| text.replace("session = \"agent-1\"\nwho", "session = \"{caller}\"\nwho"));
    rig.program.reload();
    ask(sidecar.at, (2, 1, 1));
    for mut stream in unread {
        assert!(stream.read_exact(&mut [0; 1 << 20]).is_ok());
    }
}

/// The resident memory of a process, in KiB.
fn resident(id: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    let word = line.and_then(|line| line.split_whitespace().nth(1));
    word.unwrap().parse().unwrap()
}

/// Asks for something, and keeps the connection.
fn ask_again(mut stream: &TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET http://stream.test/ HTTP/1.1\r\nHost: stream.test\r\n\r\n")?;
    let (mut answer, mut part) = (Vec::new(), [0; 1024]);
    while !answer.ends_with(b"\r\n\r\nok") {
        match stream.read(&mut part)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => answer.extend_from_slice(&part[..count]),
        }
    }
    Ok(())
}

#[test]
fn a_sidecar_holds_a_thousand_connections_at_once() {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit {
        current: files.maximum,
        maximum: files.maximum,
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
    let rig = Rig::start("", "session = \"agent-1\"\nwho = [\"token\"]");
    keep(&rig, "token", &text(&mint(&rig.program, &[])));
    let sidecar = Sidecar::start(&rig, &PRESENTS);
    ask_again(&TcpStream::connect(sidecar.at).unwrap()).unwrap();
    let ids = [rig.program.child.id(), sidecar.child.id()];
    let before = ids.map(resident);
    let connect = |_| TcpStream::connect(sidecar.at).unwrap();
    let held: Vec<_> = (0..1000).map(connect).collect();
    for turn in 0..2 {
        for (at, stream) in held.iter().enumerate() {
            let asked = ask_again(stream);
            assert!(asked.is_ok(), "{turn} {at}: {asked:?}");
        }
    }
    let after = ids.map(resident);
    let [gateway, own] = [0, 1].map(|at| after[at].saturating_sub(before[at]) as f64 / 1000.);
    println!("KiB of an idle connection: gateway {gateway:.1}, sidecar {own:.1}");
    let few = connections_to(rig.address);
    assert!((8..=9).contains(&few), "{few}");
    assert!(own < 34. && gateway < 64., "{own} {gateway}");
}

#[test]
fn more_connections_than_a_sidecar_or_its_gateway_may_have_are_refused_at_once() {
    let further = "session = \"agent-1\"\nwho = [\"token\"]\n[limits]\nconnections_per_session = 6";
    let rig = Rig::start("", further);
    keep(&rig, "token", &text(&mint(&rig.program, &[])));
    // Its own connection has a place there too.
    for (own, words, most) in [
        (&["--connections", "3"][..], "more than 3 connections", 3),
        (&[], "it holds as many connections as it may", 5),
    ] {
        let sidecar = Sidecar::start(&rig, &[&PRESENTS, own].concat());
        let mut held: Vec<_> = (0..most).map(|_| sidecar.stream()).collect();
        sidecar.refuses();
        sidecar.says(words);
        sidecar.refuses();
        assert_eq!(connections_to(rig.address), 1);
        // What was there goes on, and a place that is free is taken.
        for stream in &mut held {
            stream.read_exact(&mut [0; 64]).unwrap();
        }
        held.pop();
        sidecar.serves();
    }
}

#[test]
fn the_command_of_a_sidecar_has_its_way_and_not_its_token() {
    let rig = Rig::start("", "session = \"agent-1\"\nwho = [\"token\"]");
    // Root reads everything; without its capabilities it is any user.
    let asks = "curl -sS http://stream.test/; echo \" ${TOKEN-none}\"; sidecar=$PPID
        setpriv --bounding-set=-all sh -c \"cat /proc/$sidecar/environ\" 2>/dev/null; exit 7";
    let words = ["--token-from", "env:TOKEN", "--", "sh", "-c", asks];
    let output = leads(&rig, &words)
        .env("TOKEN", text(&mint(&rig.program, &[])))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        (output.status.code(), &*said),
        (Some(7), "ok none\n"),
        "{output:?}"
    );
}

/// What processes have used of the processor.
fn used(ids: &[u32]) -> Duration {
    let threads = |id: &u32| fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let threads = ids.iter().flat_map(threads);
    // In nanoseconds, where `stat` has hundredths of a second.
    let nanoseconds = threads.map(|thread| {
        let stat = thread.unwrap().path().join("schedstat");
        let text = fs::read_to_string(stat).unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// An origin of as much as its path says, in MiB.
fn large() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || gives(stream));
        }
    });
    address
}

/// Lets all reach such an origin.
pub fn origin_of_large(rig: &Rig) {
    reach(rig, "large.test", large());
}

/// Lets all reach an origin.
pub fn reach(rig: &Rig, name: &str, at: SocketAddr) {
    rig.program.edit(|text| {
        format!(
            "{text}[[origin]]\nmatch = \"http://{name}\"\nconnect = \"{at}\"\ncleartext = true\n"
        )
    });
    let rules = format!("permit(principal, action, resource == Gateway::Host::\"{name}\");");
    rig.write("rules.cedar", &rules);
    rig.program.reload();
}

fn gives(mut stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let part = vec![b'x'; 1 << 20];
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            (reader.read_line(&mut head).ok()? > 0).then_some(())?;
        }
        let parts: usize = head[5..].split(' ').next()?.parse().ok()?;
        let length = parts << 20;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).ok()?;
        (0..parts).try_for_each(|_| stream.write_all(&part).ok())?;
    }
}

/// Asks so many times for so many MiB, by so many connections to a proxy.
fn ask(proxy: SocketAddr, (connections, times, parts): (u32, u32, usize)) {
    for _ in 0..connections {
        let mut stream = TcpStream::connect(proxy).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::with_capacity(1 << 20, stream.try_clone().unwrap());
        for _ in 0..times {
            write!(
                stream,
                "GET http://large.test/{parts} HTTP/1.1\r\nHost: large.test\r\n\r\n"
            )
            .unwrap();
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
            }
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            let mut content = (&mut reader).take((parts as u64) << 20);
            let read = std::io::copy(&mut content, &mut std::io::sink()).unwrap();
            assert_eq!(read, (parts as u64) << 20);
        }
    }
}

/// The processor time of gateway and sidecar, against that of the gateway whose proxy is asked in
/// clear text, and of the parts.
#[test]
fn what_a_sidecar_costs_beside_the_gateway() {
    let rig = Rig::start("", "session = \"agent-1\"\nwho = [\"token\"]");
    origin_of_large(&rig);
    keep(&rig, "token", &text(&mint(&rig.program, &[])));
    let sidecar = Sidecar::start(&rig, &PRESENTS);
    let ids = [rig.program.child.id(), sidecar.child.id()];
    for (what, asked, count) in [
        ("request", (1, 2_000, 0), 2_000),
        ("MiB", (1, 4, 16), 64),
        ("connection", (100, 1, 0), 100),
    ] {
        let mut pairs: Vec<_> = (0..5)
            .map(|_| {
                let before = ids.map(|id| used(&[id]));
                ask(rig.program.proxy, asked);
                let between = ids.map(|id| used(&[id]));
                ask(sidecar.at, asked);
                let after = ids.map(|id| used(&[id]));
                let direct = between[0] - before[0];
                let (gateway, own) = (after[0] - between[0], after[1] - between[1]);
                let of = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(count);
                (
                    of(gateway + own) / of(direct).max(1.0),
                    of(direct),
                    of(gateway),
                    of(own),
                )
            })
            .collect();
        pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (ratio, direct, gateway, own) = pairs[2];
        println!(
            "a {what}, in microseconds of processor: direct {direct:.0}; by a sidecar {gateway:.0} and its own \
             {own:.0}: {ratio:.2} of direct (median of 5 pairs)"
        );
    }
}
