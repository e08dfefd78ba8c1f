//! `who = ["tailnet"]`: nodes in a network of the test's own, and a stand-in for tailscaled that
//! answers as its published source does (ipn/localapi, client/tailscale/apitype), and nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use super::program::{Program, gateway};
use super::{ASKED, PHANTOMS};

/// The gateway's addresses in the tailnet.
const OWN: &str = "100.64.0.1";
const OWN_6: &str = "fd7a:115c:a1e0::1";
const ALICE: &str = "alice@example.com";
/// What is cut is cut within this, as the documentation says.
const CUT: Duration = Duration::from_secs(10);

/// What the stand-in says, and what it was asked.
#[derive(Default)]
struct Netmap {
    nodes: Mutex<BTreeMap<IpAddr, Value>>,
    asked: Mutex<Vec<SocketAddr>>,
    wrong: Mutex<Vec<String>>,
    hangs: AtomicBool,
    is_down: AtomicBool,
    is_dead: AtomicBool,
}

impl Netmap {
    fn set(&self, address: &str, answer: Value) {
        let address = address.parse().unwrap();
        self.nodes.lock().unwrap().insert(address, answer);
    }

    fn remove(&self, address: &str) {
        let address: IpAddr = address.parse().unwrap();
        self.nodes.lock().unwrap().remove(&address).unwrap();
    }

    fn serve(self: &Arc<Self>, socket: PathBuf) {
        let listener = UnixListener::bind(&socket).unwrap();
        let netmap = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if netmap.is_dead.load(Ordering::Acquire) {
                    return;
                }
                let netmap = netmap.clone();
                // Who asks may give up.
                std::thread::spawn(move || netmap.answer(stream).ok());
            }
        });
    }

    /// Ends it as a crash does: its socket stays, and nobody listens there.
    fn die(&self, socket: &Path) {
        self.is_dead.store(true, Ordering::Release);
        drop(UnixStream::connect(socket).unwrap());
        while UnixStream::connect(socket).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn answer(&self, stream: UnixStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if reader.read_until(b'\n', &mut head)? == 0 {
                return Ok(());
            }
        }
        while self.hangs.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let head = String::from_utf8(head).unwrap();
        let (status, kind, content) = self.said(&head).unwrap_or_else(|why| {
            self.wrong.lock().unwrap().push(format!("{why}: {head}"));
            (
                "403 Forbidden",
                "text/plain",
                "invalid localapi request\n".to_owned(),
            )
        });
        let mut stream = stream;
        write!(
            stream,
            "HTTP/1.1 {status}\r\nTailscale-Version: 1.90.0\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{content}",
            content.len()
        )
    }

    fn said(&self, head: &str) -> Result<(&'static str, &'static str, String), &'static str> {
        let mut lines = head.lines();
        let mut words = lines.next().unwrap().split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let fields: Vec<String> = lines.map(str::to_ascii_lowercase).collect();
        let is_field = |line: &str| fields.iter().any(|field| field == line);
        if method != "GET" || words.next() != Some("HTTP/1.1") {
            return Err("the method or version");
        }
        let is_of_browser = fields
            .iter()
            .any(|field| field.starts_with("origin:") || field.starts_with("referer:"));
        if !is_field("host: local-tailscaled.sock") || is_of_browser {
            return Err("the host or where it is from");
        }
        let (path, query) = target.split_once('?').ok_or("no query")?;
        if (path, query) == ("/localapi/v0/status", "peers=false") {
            let own = ["100.64.0.1", "fd7a:115c:a1e0::1"];
            let state = match self.is_down.load(Ordering::Acquire) {
                false => "Running",
                true => "Stopped",
            };
            let status = json!({"Version": "1.90.0", "TUN": true, "BackendState": state, "TailscaleIPs": own});
            return Ok(("200 OK", "application/json", status.to_string()));
        }
        if path != "/localapi/v0/whois" {
            return Err("the path");
        }
        let address = query.strip_prefix("proto=tcp&addr=").ok_or("the query")?;
        let address = percent_encoding::percent_decode_str(address);
        let address = address.decode_utf8().map_err(|_| "the address")?;
        let address: SocketAddr = address.parse().map_err(|_| "the address and port")?;
        self.asked.lock().unwrap().push(address);
        let nodes = self.nodes.lock().unwrap();
        Ok(match nodes.get(&address.ip()) {
            Some(answer) => ("200 OK", "application/json", format!("{answer:#}")),
            None => (
                "404 Not Found",
                "text/plain; charset=utf-8",
                "no match for IP:port\n".into(),
            ),
        })
    }
}

/// What tailscaled says of a node with this address.
fn node(address: &str, login: &str) -> Value {
    let id = address.rsplit(['.', ':']).next().unwrap();
    let own = format!("{address}/{}", if address.contains(':') { 128 } else { 32 });
    json!({
        "Node": {
            "ID": 7, "StableID": format!("n{id}CNTRL"), "Name": format!("n{id}.tail.ts.net."),
            "User": 9, "Key": "nodekey:00",
            "Machine": "mkey:00", "DiscoKey": "discokey:00", "Addresses": [own],
            "AllowedIPs": [own, "10.0.0.0/8"], "Hostinfo": {"OS": "linux", "Hostname": "n"},
            "Created": "2026-01-01T00:00:00Z", "MachineAuthorized": true,
        },
        "UserProfile": {"ID": 9, "LoginName": login, "DisplayName": "N", "Roles": []},
        "CapMap": null,
    })
}

/// The same with a value in the place of another.
fn with(mut answer: Value, at: &str, value: Value) -> Value {
    match answer.pointer_mut(at) {
        Some(place) => *place = value,
        None => {
            let (table, key) = at.rsplit_once('/').unwrap();
            answer.pointer_mut(table).unwrap()[key] = value;
        }
    }
    answer
}

fn tagged(address: &str, tags: &[&str]) -> Value {
    with(node(address, "tagged-devices"), "/Node/Tags", json!(tags))
}

/// The network of the nodes, which ends with its holder.
struct Nodes(Child);

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(line: &str) {
    let output = Command::new("sh").args(["-ec", line]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}

impl Nodes {
    /// Links a network of nodes, `.7` to `.29` of both versions, with this one.
    fn new() -> Self {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "--", "sleep", "600"]);
        let nodes = Self(holder.spawn().unwrap());
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        while fs::read_link(nodes.path()).is_ok_and(|link| link == own) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let pid = nodes.0.id();
        run(&format!(
            "ip link set lo up; ip link add g0 type veth peer name eth0 netns {pid}
             ip addr add {OWN}/24 dev g0; ip -6 addr add {OWN_6}/64 dev g0 nodad; ip link set g0 up
             exec nsenter --net --target {pid} sh -ec '
               for n in $(seq 7 29); do
                 echo addr add 100.64.0.$n/24 dev eth0
                 echo addr add fd7a:115c:a1e0::$n/64 dev eth0 nodad
               done | ip -batch -
               ip link set eth0 up'"
        ));
        nodes
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    /// A connection of a node.
    fn connect(&self, from: &str, to: &str) -> TcpStream {
        let from: IpAddr = from.parse().unwrap();
        let to: SocketAddr = to.parse().unwrap();
        let path = self.path();
        let connecting = std::thread::spawn(move || {
            let network = fs::File::open(path).unwrap();
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), kind).unwrap();
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
            socket.connect(&to.into()).unwrap();
            TcpStream::from(socket)
        });
        let stream = connecting.join().unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(15)))
            .unwrap();
        stream
    }

    /// What a node is answered.
    fn ask(&self, from: &str, port: u16, request: &[u8]) -> String {
        let own = if from.contains(':') {
            format!("[{OWN_6}]")
        } else {
            OWN.to_owned()
        };
        answer(self.connect(from, &format!("{own}:{port}")), request)
    }

    /// A stream of a node, under way.
    fn stream(&self, from: &str) -> TcpStream {
        let mut stream = self.connect(from, &format!("{OWN}:8080"));
        let asked = b"GET http://stream.test/endless HTTP/1.1\r\nHost: stream.test\r\n\r\n";
        stream.write_all(asked).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200", "{from}");
        stream
    }
}

/// A stream that goes on, by how much of it has come.
struct Kept(Arc<AtomicUsize>);

impl Kept {
    fn read(mut stream: TcpStream) -> Self {
        let come = Arc::<AtomicUsize>::default();
        let count = come.clone();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut part) {
                count.fetch_add(read, Ordering::Relaxed);
            }
        });
        Self(come)
    }

    fn goes_on(&self) {
        let (before, began) = (self.0.load(Ordering::Relaxed), Instant::now());
        while self.0.load(Ordering::Relaxed) < before + 64 {
            assert!(began.elapsed() < Duration::from_secs(5), "it has ended");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn answer(mut stream: TcpStream, request: &[u8]) -> String {
    // A caller that is refused may be cut before it has sent all.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A request that claims to be of somebody, as `tailscale serve` passes requests on.
fn claims(url: &str) -> Vec<u8> {
    let host = url.split('/').nth(2).unwrap();
    format!(
        "GET {url} HTTP/1.1\r\nHost: {host}\r\nTailscale-User-Login: {ALICE}\r\nX-Forwarded-For: 100.64.0.7\r\nConnection: close\r\n\r\n"
    )
    .into_bytes()
}

/// Follows streams that end. Returns when the last one did.
fn break_off(streams: Vec<(&'static str, TcpStream)>, began: Instant) -> Vec<JoinHandle<()>> {
    let follow = |(why, mut stream): (&'static str, TcpStream)| {
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while matches!(stream.read(&mut part), Ok(read) if read > 0) {
                assert!(began.elapsed() < CUT, "{why}: it goes on");
            }
            println!("{why}: cut after {:?}", began.elapsed());
            assert!(began.elapsed() < CUT, "{why}");
        })
    };
    streams.into_iter().map(follow).collect()
}

fn listener(address: &str, kind: &str, session: &str, who: &str) -> String {
    format!(
        "[[listener]]\nkind = \"{kind}\"\naddress = \"{address}\"\nsession = \"{session}\"\nwho = [{who}]\ntailnet_socket = \"tailscaled.sock\"\ncapability = \"example.com/cap/gateway\"\n"
    )
}

const APART: &str = "GATEWAY_TEST_APART";

#[test]
fn a_node_is_its_user_or_its_tags_and_what_it_carries_ends_with_that() {
    if std::env::var_os(APART).is_some() {
        return apart();
    }
    assert!(
        rustix::process::geteuid().is_root(),
        "this test has networks of its own"
    );
    let name = "tailnet::a_node_is_its_user_or_its_tags_and_what_it_carries_ends_with_that";
    let status = Command::new("unshare")
        .args(["--net", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(APART, "1")
        .status();
    assert!(status.unwrap().success());
}

fn apart() {
    let nodes = Nodes::new();
    let netmap = Arc::new(Netmap::default());
    for (address, login) in [("100.64.0.7", ALICE), ("100.64.0.8", "bob@example.com")] {
        netmap.set(address, node(address, login));
    }
    let mut program = Program::start(&listener(
        "100.64.0.1:8080",
        "proxy",
        "agent-1",
        "\"tailnet\"",
    ));
    let socket = program.path("tailscaled.sock");
    without_its_daemon(&program, &nodes);
    netmap.serve(socket.clone());
    assert_eq!(program.call("GET", "/ready", "").0, 200);
    program.edit(|text| {
        let more = [
            listener(
                "[fd7a:115c:a1e0::1]:8080",
                "proxy",
                "agent-1",
                "\"tailnet\"",
            ),
            listener("100.64.0.1:8081", "proxy", "{caller}", "\"tailnet\""),
            listener("0.0.0.0:8082", "proxy", "agent-1", "\"tailnet\""),
            listener("100.64.0.1:8443", "tls", "agent-1", "\"tailnet\""),
            listener(
                "100.64.0.1:8083",
                "proxy",
                "agent-1",
                "\"token\", \"tailnet\"",
            ),
        ];
        text.replace("phantoms.env", "phantoms-{session}.env") + &more.concat()
    });
    program.reload();
    let (ending, kept) = with_streams(&nodes, &netmap);
    each_door(&program, &nodes, &netmap);
    who_is_refused(&program, &nodes, &netmap);
    policy_and_sessions(&program, &nodes, &netmap);
    ending.into_iter().for_each(|one| one.join().unwrap());
    // They are written once the connections have ended.
    let until = Instant::now() + Duration::from_secs(5);
    let is_cut = |record: &Value| record["reason"] == "caller_refused";
    let cut = || program.records("end").into_iter().filter(is_cut).count();
    while cut() < 4 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(cut(), 4);
    and_its_daemon_hangs_or_dies(&program, &nodes, (&netmap, &socket), kept);
    assert_eq!(*netmap.wrong.lock().unwrap(), [""; 0]);
    // It would wait for the stream.
    program.child.kill().unwrap();
}

/// A listener says at the start, and to who asks whether it is ready, that it takes nobody.
fn without_its_daemon(program: &Program, nodes: &Nodes) {
    let what =
        "the tailnet shows nobody at 100.64.0.1:8080: tailscaled gives no answer: No such file";
    let log = || fs::read_to_string(program.path("log")).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while !log().contains(what) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let log = log();
    assert!(
        log.contains(what) && log.contains("write `tailnet_socket`"),
        "{log}"
    );
    assert!(
        log.contains(program.path("tailscaled.sock").to_str().unwrap()),
        "{log}"
    );
    let (status, said) = program.call("GET", "/ready", "");
    assert!(status == 503 && said.contains(what), "{status} {said}");
    assert!(
        nodes
            .ask("100.64.0.7", 8080, ASKED)
            .contains("caller_refused")
    );
}

/// Streams whose evidence changes, each in its own way, and one whose evidence stays.
fn with_streams(nodes: &Nodes, netmap: &Netmap) -> (Vec<JoinHandle<()>>, Kept) {
    let (user, gone, tags, key) = ("100.64.0.10", "100.64.0.11", "100.64.0.12", "100.64.0.13");
    let (rests, kept) = ("100.64.0.14", "100.64.0.15");
    for address in [user, gone, key, rests, kept] {
        netmap.set(address, node(address, ALICE));
    }
    netmap.set(tags, tagged(tags, &["tag:ci"]));
    let mut resting = nodes.connect(rests, &format!("{OWN}:8080"));
    resting
        .write_all(b"GET http://stream.test/ HTTP/1.1\r\nHost: stream.test\r\n\r\n")
        .unwrap();
    resting.read_exact(&mut [0; 12]).unwrap();
    let streams = vec![
        ("another user", nodes.stream(user)),
        ("no node any more", nodes.stream(gone)),
        ("other tags", nodes.stream(tags)),
        ("an expired key", nodes.stream(key)),
        ("a connection at rest", resting),
    ];
    // The connections of a node share what is asked again.
    let kept = [nodes.stream(kept), nodes.stream(kept)];
    netmap.set(user, node(user, "mallory@example.com"));
    netmap.remove(gone);
    netmap.set(tags, tagged(tags, &["tag:ci", "tag:other"]));
    netmap.set(key, with(node(key, ALICE), "/Node/Expired", json!(true)));
    netmap.remove(rests);
    let [one, _] = kept;
    (break_off(streams, Instant::now()), Kept::read(one))
}

/// Each door takes a node of the tailnet, and asks with its port; nobody else.
fn each_door(program: &Program, nodes: &Nodes, netmap: &Netmap) {
    let six = "fd7a:115c:a1e0::7";
    netmap.set(six, node(six, ALICE));
    for (from, port) in [
        ("100.64.0.7", 8080),
        (six, 8080),
        ("100.64.0.7", 8082),
        ("100.64.0.7", 8083),
    ] {
        let before = program.records("exchange").len();
        let said = nodes.ask(from, port, ASKED);
        assert!(said.ends_with("\r\n\r\nok"), "{from} {port}: {said}");
        let records = program.records("exchange").split_off(before);
        assert_eq!(
            (&records[0]["user"], &records[0]["session"]),
            (&json!(ALICE), &json!("agent-1"))
        );
    }
    let stream = nodes.connect(six, &format!("[{OWN_6}]:8080"));
    let from = stream.local_addr().unwrap();
    assert!(answer(stream, ASKED).ends_with("ok"));
    assert!(netmap.asked.lock().unwrap().contains(&from));
    // A `tls` listener reads what a caller sends, and cuts whoever is none.
    let clear = b"GET / HTTP/1.1\r\nHost: stream.test\r\nConnection: close\r\n\r\n";
    assert!(
        nodes
            .ask("100.64.0.7", 8443, clear)
            .starts_with("HTTP/1.1 ")
    );
    assert_eq!(nodes.ask("100.64.0.29", 8443, clear), "");
    let stream = nodes.connect("100.64.0.29", &format!("{OWN}:8083"));
    let mut other = stream.try_clone().unwrap();
    other.write_all(ASKED).unwrap();
    other.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(answer(stream, b"").contains("proxy_authentication"));
}

/// What a field claims counts for nobody.
fn who_is_refused(program: &Program, nodes: &Nodes, netmap: &Netmap) {
    let asked = claims("http://stream.test/");
    let of = |address: &str| node(address, ALICE);
    for (address, answer, user, cause) in [
        (
            "100.64.0.20",
            None,
            None,
            "no node of the tailnet has its address",
        ),
        (
            "100.64.0.21",
            Some(with(of("100.64.0.21"), "/Node/Sharer", json!(12))),
            None,
            "the node n21CNTRL of the tailnet is shared in from another one",
        ),
        (
            "100.64.0.22",
            Some(with(
                of("100.64.0.22"),
                "/Node/Hostinfo/ShareeNode",
                json!(true),
            )),
            None,
            "the node n22CNTRL of the tailnet is shared in from another one",
        ),
        (
            "100.64.0.23",
            Some(with(
                of("100.64.0.23"),
                "/Node/KeyExpiry",
                json!("2026-01-02T03:04:05Z"),
            )),
            None,
            "the node n23CNTRL of the tailnet has a key that has expired",
        ),
        // The router of a subnet, or its NAT: the answer is the router's node.
        (
            "100.64.0.24",
            Some(of("100.64.0.9")),
            None,
            "the node n9CNTRL of the tailnet has not the client's address: it routes for others",
        ),
        (
            "100.64.0.25",
            Some(node("100.64.0.25", "tagged-devices")),
            None,
            "the node n25CNTRL of the tailnet has neither tags nor a user whose login name can be one",
        ),
        (
            "100.64.0.26",
            Some(json!({"Node": null})),
            None,
            "the answer of tailscaled cannot be read",
        ),
        (
            "100.64.0.27",
            Some(json!("x".repeat(257 << 10))),
            None,
            "tailscaled gives no answer: length limit exceeded",
        ),
    ] {
        if let Some(answer) = answer {
            netmap.set(address, answer);
        }
        let said = nodes.ask(address, 8080, &asked);
        assert!(
            said.contains("caller_refused") && !said.contains(cause),
            "{cause}: {said}"
        );
        is_recorded(program, user, cause);
    }
    // Whoever is on this machine is not the machine, and tailscaled is not asked.
    let before = netmap.asked.lock().unwrap().len();
    for (to, cause) in [
        ("127.0.0.1:8082", "with userspace networking"),
        ("100.64.0.1:8080", "it connects from this machine"),
    ] {
        let said = answer(TcpStream::connect(to).unwrap(), &asked);
        assert!(said.contains("caller_refused"), "{to}: {said}");
        is_recorded(program, None, cause);
    }
    let asked = netmap.asked.lock().unwrap()[before..].to_vec();
    assert!(
        asked
            .iter()
            .all(|from| from.ip() != OWN.parse::<IpAddr>().unwrap() && !from.ip().is_loopback())
    );
}

fn is_recorded(program: &Program, user: Option<&str>, cause: &str) {
    let records = program.records("exchange");
    let record = records.iter().find(|one| {
        one["cause"]
            .as_str()
            .is_some_and(|found| found.starts_with(cause))
    });
    let record = record.unwrap_or_else(|| panic!("{cause}: {records:#?}"));
    assert_eq!(record["user"].as_str(), user, "{record}");
    assert_eq!(record["reason"], "caller_refused", "{record}");
}

fn policy_and_sessions(program: &Program, nodes: &Nodes, netmap: &Netmap) {
    let (alice, tag, granted) = ("100.64.0.7", "100.64.0.17", "100.64.0.18");
    netmap.set(tag, tagged(tag, &["tag:ci"]));
    let ops =
        json!({"example.com/cap/gateway": [{"groups": ["ops"]}], "other": [{"groups": ["ci"]}]});
    netmap.set(
        granted,
        with(node(granted, "carol@example.com"), "/CapMap", ops),
    );
    for (who, allowed) in [
        (
            "principal in Gateway::User::\"alice@example.com\"",
            &[alice][..],
        ),
        ("principal in Gateway::User::\"tagged-devices\"", &[]),
        ("principal in Gateway::Group::\"tag:ci\"", &[tag]),
        ("principal in Gateway::Group::\"node:n17CNTRL\"", &[tag]),
        ("principal in Gateway::Group::\"ops\"", &[granted]),
        ("principal in Gateway::Group::\"ci\"", &[]),
        ("principal", &[alice, tag, granted]),
    ] {
        // What streams goes on.
        let streams = (10..=15).map(|n| format!("principal in Gateway::Group::\"node:n{n}CNTRL\""));
        let streams = streams.collect::<Vec<_>>().join(" || ");
        let rule = format!(
            "permit({who}, action, resource == Gateway::Host::\"stream.test\");\n\
             permit(principal, action, resource) when {{ {streams} }};\n"
        );
        fs::write(program.path("rules.cedar"), &rule).unwrap();
        program.reload();
        for from in [alice, tag, granted] {
            let said = nodes.ask(from, 8080, &claims("http://stream.test/"));
            assert_eq!(
                said.ends_with("ok"),
                allowed.contains(&from),
                "{who} {from}: {said}"
            );
        }
    }
    // Each user has a session of its own, from any node; a tagged node has none.
    netmap.set("100.64.0.19", node("100.64.0.19", ALICE));
    let [one, again, other] = ["100.64.0.7", "100.64.0.19", "100.64.0.8"]
        .map(|from| nodes.ask(from, 8081, &claims(PHANTOMS)))
        .map(|said| said.split_once("\r\n\r\n").unwrap().1.to_owned());
    assert!(
        one.contains("\"key\":") && other.contains("\"key\":"),
        "{one} {other}"
    );
    assert!(one == again && one != other);
    assert!(
        nodes
            .ask(tag, 8081, &claims(PHANTOMS))
            .contains("caller_refused")
    );
    is_recorded(program, None, "it is of no user");
}

fn and_its_daemon_hangs_or_dies(
    program: &Program,
    nodes: &Nodes,
    (netmap, socket): (&Netmap, &Path),
    kept: Kept,
) {
    kept.goes_on();
    netmap.hangs.store(true, Ordering::Release);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let ready = scope.spawn(|| program.call("GET", "/ready", "").0);
        assert!(
            nodes
                .ask("100.64.0.7", 8080, ASKED)
                .contains("caller_refused")
        );
        assert_eq!(ready.join().unwrap(), 503);
    });
    assert!(
        (1500..6000).contains(&began.elapsed().as_millis()),
        "{:?}",
        began.elapsed()
    );
    is_recorded(
        program,
        None,
        "tailscaled gives no answer: it takes too long",
    );
    netmap.hangs.store(false, Ordering::Release);
    // Down, its routes are gone, and whoever is on the network could have such an address.
    netmap.is_down.store(true, Ordering::Release);
    let said = nodes.ask("100.64.0.7", 8080, ASKED);
    assert!(said.contains("caller_refused"), "{said}");
    is_recorded(
        program,
        None,
        "tailscaled is not connected: its state is Stopped",
    );
    netmap.is_down.store(false, Ordering::Release);
    assert!(nodes.ask("100.64.0.7", 8080, ASKED).ends_with("ok"));
    netmap.die(socket);
    let began = Instant::now();
    assert!(
        nodes
            .ask("100.64.0.7", 8080, ASKED)
            .contains("caller_refused")
    );
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(program.call("GET", "/ready", "").0, 503);
    // What it said counts for 30 s (unit test), also over the next question.
    kept.goes_on();
}

#[test]
fn a_tailnet_that_no_node_could_come_from_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    for (lines, line, what) in [
        (
            "address = \"unix:/run/x.sock\"\nwho = [\"tailnet\"]",
            4,
            "no node of a tailnet connects to unix:",
        ),
        (
            "address = \"127.0.0.1:1\"\nwho = [\"tailnet\"]",
            4,
            "no node of a tailnet connects to 127.0.0.1:1",
        ),
        (
            "address = \"[::1]:1\"\nwho = [\"token\", \"tailnet\"]",
            4,
            "no node of a tailnet connects",
        ),
        (
            "address = \"100.64.0.1:1\"\nwho = [\"token\"]\ncapability = \"a\"",
            5,
            "no tailnet is asked",
        ),
        (
            "address = \"100.64.0.1:1\"\nwho = [\"token\"]\ntailnet_socket = \"a\"",
            5,
            "no tailnet is asked",
        ),
        (
            "address = \"100.64.0.1:1\"\nwho = [\"tailnet\"]\ncapability = \"a b\"",
            5,
            "no name of a capability",
        ),
        (
            "address = \"100.64.0.1:1\"\nwho = [\"tailnet\"]\nkind = \"transparent\"",
            3,
            "clients of its own sandbox",
        ),
    ] {
        let kind = if lines.contains("kind") {
            ""
        } else {
            "kind = \"proxy\"\n"
        };
        fs::write(
            folder.path().join("gateway.toml"),
            format!("[[listener]]\n{kind}{lines}\n"),
        )
        .unwrap();
        let (code, said) = gateway(
            folder.path(),
            &["policy", "check", "--config", "gateway.toml"],
        );
        let is_there = said.contains(&format!("gateway.toml:{line}")) && said.contains(what);
        assert!(code != 0 && is_there, "{lines}: {said}");
    }
}
