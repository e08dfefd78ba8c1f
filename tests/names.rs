//! Names and addresses: the real program in a network of its own, with name servers, a hosts file
//! and a `resolv.conf` under the test's control, beside curl without a gateway.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{RData, Record, RecordType};
use socket2::{Domain, Socket, Type};

/// What a name server does with a question.
#[derive(Clone)]
enum Says {
    /// These addresses, for a number of seconds.
    Addresses(Vec<IpAddr>, u32),
    /// As many addresses as fit by TCP alone, the given one first.
    Long(IpAddr),
    /// Nothing at all.
    Silence,
    /// SERVFAIL.
    Failure,
    /// This address, after a while.
    Late(Duration, IpAddr),
}

/// A name server on port 53, by UDP and TCP. A name without any row does not exist.
#[derive(Clone, Default)]
struct NameServer {
    rows: Arc<Mutex<HashMap<(String, RecordType), Says>>>,
    dead: Arc<Mutex<bool>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl NameServer {
    fn start(address: &str) -> Self {
        let server = Self::default();
        let at = (address.parse::<IpAddr>().unwrap(), 53);
        let (udp, tcp) = (UdpSocket::bind(at).unwrap(), TcpListener::bind(at).unwrap());
        let by_udp = server.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok((length, peer)) = udp.recv_from(&mut buffer) {
                let (server, udp) = (by_udp.clone(), udp.try_clone().unwrap());
                let question = buffer[..length].to_vec();
                std::thread::spawn(move || {
                    if let Some(answer) = server.answer(&question, false) {
                        udp.send_to(&answer, peer).unwrap();
                    }
                });
            }
        });
        let by_tcp = server.clone();
        std::thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                let _ = by_tcp.converse(stream);
            }
        });
        server
    }

    fn converse(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut question = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut question)?;
        let answer = self.answer(&question, true).unwrap_or_default();
        let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
        stream.write_all(&[&length[..], &answer].concat())
    }

    /// Sets what it says to a question of one type.
    fn set(&self, name: &str, kind: RecordType, says: Says) {
        let key = (format!("{name}."), kind);
        self.rows.lock().unwrap().insert(key, says);
    }

    fn addresses(&self, name: &str, kind: RecordType, addresses: &[&str], ttl: u32) {
        let parsed = addresses.iter().map(|address| address.parse().unwrap());
        self.set(name, kind, Says::Addresses(parsed.collect(), ttl));
    }

    fn forget(&self, name: &str) {
        let name = format!("{name}.");
        self.rows
            .lock()
            .unwrap()
            .retain(|(known, _), _| *known != name);
    }

    fn die(&self, dead: bool) {
        *self.dead.lock().unwrap() = dead;
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn answer(&self, question: &[u8], by_tcp: bool) -> Option<Vec<u8>> {
        let question = Message::from_vec(question).unwrap();
        let query = question.queries[0].clone();
        let name = query.name().to_ascii().to_lowercase();
        let way = if by_tcp { "tcp" } else { "udp" };
        let note = format!("{way} {} {name}", query.query_type());
        self.asked.lock().unwrap().push(note);
        if *self.dead.lock().unwrap() {
            return None;
        }
        let rows = self.rows.lock().unwrap();
        let exists = rows.keys().any(|(known, _)| *known == name);
        let says = rows.get(&(name, query.query_type())).cloned();
        drop(rows);
        let mut answer = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
        answer.metadata.recursion_available = true;
        answer.add_query(query.clone());
        let (addresses, ttl) = match says {
            None if exists => (Vec::new(), 0),
            None => {
                answer.metadata.response_code = ResponseCode::NXDomain;
                (Vec::new(), 0)
            }
            Some(Says::Silence) => return None,
            Some(Says::Failure) => {
                answer.metadata.response_code = ResponseCode::ServFail;
                (Vec::new(), 0)
            }
            Some(Says::Long(_)) if !by_tcp => {
                answer.metadata.truncation = true;
                (Vec::new(), 0)
            }
            Some(Says::Long(first)) => {
                let rest = (0..200).map(|at| IpAddr::from([10, 9, 9, at]));
                (std::iter::once(first).chain(rest).collect(), 60)
            }
            Some(Says::Addresses(addresses, ttl)) => (addresses, ttl),
            Some(Says::Late(after, address)) => {
                std::thread::sleep(after);
                (vec![address], 0)
            }
        };
        for address in addresses {
            let data = match address {
                IpAddr::V4(v4) => RData::A(A(v4)),
                IpAddr::V6(v6) => RData::AAAA(AAAA(v6)),
            };
            answer.add_answer(Record::from_rdata(query.name().clone(), ttl, data));
        }
        Some(answer.to_vec().unwrap())
    }
}

const FIRST: &str = "127.0.53.1";
const SECOND: &str = "127.0.53.2";
/// The origin listens on both.
const V4: &str = "127.0.8.1";
const V6: &str = "fd00::8";
const ORIGIN_PORT: u16 = 8080;
const PROXY: &str = "127.0.0.1:3128";

/// A network and files of this test's own: two name servers, an origin, a gateway.
struct World {
    folder: tempfile::TempDir,
    first: NameServer,
    second: NameServer,
    gateway: Option<Child>,
}

impl World {
    fn new(hosts: &str) -> Self {
        run("ip", &["link", "set", "lo", "up"]);
        local(V6);
        let world = Self {
            folder: tempfile::tempdir().unwrap(),
            first: NameServer::start(FIRST),
            second: NameServer::start(SECOND),
            gateway: None,
        };
        fs::create_dir(world.at("log")).unwrap();
        fs::set_permissions(world.at("log"), fs::Permissions::from_mode(0o700)).unwrap();
        for (name, place, text) in [
            ("hosts", "/etc/hosts", hosts.to_owned()),
            ("resolv.conf", "/etc/resolv.conf", servers(&[FIRST, SECOND])),
        ] {
            fs::write(world.at(name), text).unwrap();
            run(
                "mount",
                &["--bind", world.at(name).to_str().unwrap(), place],
            );
        }
        for address in [V4, V6] {
            origin(SocketAddr::new(address.parse().unwrap(), ORIGIN_PORT));
        }
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the gateway, with more lines of configuration.
    fn serve(mut self, more: &str) -> Self {
        let policy = "permit(principal, action, resource in Gateway::Domain::\"names.test\");";
        fs::write(self.at("all.cedar"), policy).unwrap();
        let config = format!(
            "[audit]\npath = \"log/audit.jsonl\"\n[policy]\nfiles = [\"all.cedar\"]\n\
             [[listener]]\nkind = \"proxy\"\naddress = \"{PROXY}\"\n{more}"
        );
        fs::write(self.at("gateway.toml"), config).unwrap();
        let said = fs::File::create(self.at("said")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_gateway"))
            .args(["serve", "--config", "gateway.toml"])
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .unwrap();
        self.gateway = Some(child);
        let until = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(PROXY).is_err() {
            let said = self.said();
            assert!(Instant::now() < until, "the gateway does not start: {said}");
            std::thread::sleep(Duration::from_millis(20));
        }
        self
    }

    /// What the gateway wrote to standard error.
    fn said(&self) -> String {
        fs::read_to_string(self.at("said")).unwrap()
    }

    /// The usual gateway: the origin's addresses are excepted, for these names.
    fn serve_for(self, names: &[&str]) -> Self {
        let rules: String = names.iter().map(|name| rule(name)).collect();
        self.serve(&rules)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(gateway) = &mut self.gateway {
            let _ = gateway.kill();
            let _ = gateway.wait();
        }
    }
}

fn servers(addresses: &[&str]) -> String {
    let line = |address: &&str| format!("nameserver {address}\n");
    addresses.iter().map(line).collect()
}

fn rule(name: &str) -> String {
    format!(
        "[[origin]]\nmatch = \"http://{name}:{ORIGIN_PORT}\"\ncleartext = true\n\
         addresses = [\"127.0.8.0/24\", \"fd00::/64\"]\n"
    )
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
}

/// Answers every request with the address that it came to.
fn origin(address: SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0; 1];
                while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                    head.push(byte[0]);
                }
                let text = address.ip().to_string();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                    text.len()
                );
                let _ = stream.write_all(answer.as_bytes());
            });
        }
    });
}

/// Makes an address this machine's, to be used at once: without `nodad` it can be tentative for a
/// moment.
fn local(address: &str) {
    let add = "-6 addr add dev lo nodad".split(' ');
    run("ip", &add.chain([address]).collect::<Vec<_>>());
}

/// A listener whose queue is full, so that the kernel drops what else would connect.
fn full(address: &str) -> (Socket, Vec<TcpStream>) {
    let address = SocketAddr::new(address.parse().unwrap(), ORIGIN_PORT);
    let listener = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    listener.bind(&address.into()).unwrap();
    listener.listen(0).unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let queued = std::iter::from_fn(connect).take(16).collect::<Vec<_>>();
    assert!(queued.len() < 16, "the queue never fills");
    (listener, queued)
}

/// What curl got.
#[derive(Debug)]
struct Got {
    status: u16,
    content: String,
    /// Until the first byte.
    after: Duration,
}

impl Got {
    #[track_caller]
    fn is_from(&self, address: &str, within: Duration) {
        assert_eq!((self.status, self.content.as_str()), (200, address));
        assert!(self.after <= within, "{self:?} took longer than {within:?}");
    }

    #[track_caller]
    fn is_refused(&self, status: u16, reason: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.content.contains(reason), "{self:?}");
    }
}

fn curl(arguments: &[&str], name: &str) -> Got {
    let output = Command::new("curl")
        .args(["-sS", "-w", "\n%{http_code} %{time_starttransfer}"])
        .args(arguments)
        .arg(format!("http://{name}:{ORIGIN_PORT}/"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (content, measured) = text.rsplit_once('\n').unwrap();
    let (status, seconds) = measured.split_once(' ').unwrap();
    Got {
        status: status.parse().unwrap(),
        content: content.to_owned(),
        after: Duration::from_secs_f64(seconds.parse().unwrap()),
    }
}

fn ask(name: &str) -> Got {
    curl(&["-x", PROXY, "--max-time", "15"], name)
}

/// How long curl takes by itself, or three seconds if it takes longer.
fn bare(name: &str) -> Duration {
    let got = curl(&["--noproxy", "*", "--max-time", "3"], name);
    if got.status == 200 {
        got.after
    } else {
        Duration::from_secs(3)
    }
}

const SOON: Duration = Duration::from_millis(250);

/// The answer comes from this address, without a wait: once in three times at least, for a busy
/// machine holds up one answer or another.
#[track_caller]
fn soon(name: &str, address: &str) {
    let good = |got: &Got| (got.status, &*got.content) == (200, address) && got.after <= SOON;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let got = ask(name);
        if good(&got) {
            return;
        }
        seen.push(got);
    }
    panic!("{name} is not answered from {address} within {SOON:?}: {seen:?}");
}

mod facts {
    use super::*;

    /// Must show 9.
    pub fn names_are_found_as_fast_as_without_a_gateway() {
        let names = ["a", "v4", "both", "dead", "listed"].map(|name| format!("{name}.names.test"));
        let [plain, half, both, dead, listed] = names.each_ref().map(String::as_str);
        let world = World::new(&format!("127.0.0.1 localhost\n{V4} {listed}\n"))
            .serve_for(&[plain, half, both, dead, listed]);
        let first = &world.first;
        first.addresses(plain, RecordType::A, &[V4], 0);
        first.addresses(half, RecordType::A, &[V4], 0);
        first.set(half, RecordType::AAAA, Says::Silence);
        first.addresses(both, RecordType::A, &[V4], 0);
        first.addresses(both, RecordType::AAAA, &[V6], 0);
        world.second.addresses(dead, RecordType::A, &[V4], 0);
        let compare = |what: &str, name: &str| {
            let (without, with) = (bare(name), ask(name));
            println!(
                "{what}: {without:?} without the gateway, {:?} with it",
                with.after
            );
            assert_eq!(with.status, 200, "{what} {with:?}");
            let most = without + Duration::from_millis(100);
            assert!(with.after <= most, "{what}: {with:?}, {without:?} without");
        };
        for _ in 0..3 {
            compare("A alone", plain);
            compare("A and AAAA", both);
            compare("AAAA questions get no answer", half);
            compare("a line in the hosts file", listed);
        }
        first.die(true);
        for _ in 0..3 {
            compare("the first name server is dead", dead);
        }
        world.second.die(true);
        compare("a line in the hosts file, every name server dead", listed);
    }

    pub fn a_silent_family_costs_a_moment_once_in_a_while() {
        let name = "half.names.test";
        let world = World::new("").serve_for(&[name]);
        world.first.addresses(name, RecordType::A, &[V4], 0);
        world.first.set(name, RecordType::AAAA, Says::Silence);
        for _ in 0..5 {
            soon(name, V4);
        }
        let asked = world.first.asked();
        let aaaa = asked.iter().filter(|line| line.contains(" AAAA ")).count();
        assert_eq!(aaaa, 1, "{asked:?}");
    }

    pub fn a_family_that_fails_or_is_denied_does_not_end_the_other() {
        let names = ["fails.names.test", "six.names.test"];
        let world = World::new("").serve_for(&names);
        for server in [&world.first, &world.second] {
            server.set(names[0], RecordType::AAAA, Says::Failure);
            server.addresses(names[0], RecordType::A, &[V4], 0);
            server.set(names[1], RecordType::A, Says::Failure);
            server.addresses(names[1], RecordType::AAAA, &[V6], 0);
        }
        soon(names[0], V4);
        soon(names[1], V6);
    }

    pub fn the_first_address_that_connects_wins() {
        let names = ["closed", "void", "both"].map(|name| format!("{name}.names.test"));
        let [closed, void, both] = names.each_ref().map(String::as_str);
        let world = World::new("").serve_for(&[closed, void, both]);
        ["fd00::9", "fd00::10"].into_iter().for_each(local);
        let _full = full("fd00::10");
        for (name, address) in [(closed, "fd00::9"), (void, "fd00::10"), (both, V6)] {
            world.first.addresses(name, RecordType::AAAA, &[address], 0);
            world.first.addresses(name, RecordType::A, &[V4], 0);
        }
        soon(both, V6);
        soon(closed, V4);
        let got = ask(void);
        got.is_from(V4, Duration::from_millis(600));
        assert!(got.after >= Duration::from_millis(240), "{got:?}");
    }

    pub fn the_hosts_file_is_final_and_its_changes_are_seen() {
        let name = "listed.names.test";
        let world = World::new(&format!("{V4} {name}\n")).serve_for(&[name]);
        world.first.addresses(name, RecordType::AAAA, &[V6], 60);
        soon(name, V4);
        fs::write(world.at("hosts"), format!("{V6} {name} # moved\n")).unwrap();
        soon(name, V6);
        assert!(world.first.asked().is_empty(), "{:?}", world.first.asked());
        fs::write(world.at("hosts"), "").unwrap();
        world.first.forget(name);
        ask(name).is_refused(502, "unresolved");
    }

    pub fn a_hosts_file_line_is_vetted_too() {
        let name = "meta.names.test";
        let _world = World::new(&format!("169.254.169.254 {name}\n")).serve_for(&[name]);
        ask(name).is_refused(403, "metadata");
    }

    pub fn a_changed_resolv_conf_is_used_and_a_useless_one_is_not() {
        let name = "moved.names.test";
        let world = World::new("").serve_for(&[name]);
        world.first.addresses(name, RecordType::A, &[V4], 0);
        world.second.addresses(name, RecordType::AAAA, &[V6], 0);
        soon(name, V4);
        fs::write(world.at("resolv.conf"), servers(&[SECOND])).unwrap();
        soon(name, V6);
        fs::write(world.at("resolv.conf"), "search names.test\n").unwrap();
        soon(name, V6);
        assert!(
            world.said().contains("/etc/resolv.conf"),
            "{}",
            world.said()
        );
    }

    pub fn a_dead_name_server_costs_less_than_a_tenth_of_a_second_and_then_nothing() {
        let names: Vec<String> = (0..4).map(|at| format!("h{at}.names.test")).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let world = World::new("").serve_for(&all);
        for name in &names {
            world.first.addresses(name, RecordType::A, &[V4], 0);
            world.second.addresses(name, RecordType::A, &[V4], 0);
        }
        world.first.die(true);
        let got = ask(&names[0]);
        got.is_from(V4, Duration::from_millis(500));
        assert!(got.after >= Duration::from_millis(45), "{got:?}");
        soon(&names[1], V4);
        // Its silence is noticed, checked with a question of the gateway's own, and remembered.
        let until = Instant::now() + Duration::from_secs(10);
        let root = |line: &String| line == "udp NS .";
        while !world.first.asked().iter().any(root) {
            assert!(Instant::now() < until, "{:?}", world.first.asked());
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_millis(1_500));
        soon(&names[2], V4);
        let (before, passed_over) = (world.first.asked(), &names[2]);
        let about = |line: &&String| line.contains(passed_over.as_str());
        assert!(!before.iter().any(|line| about(&line)), "{before:?}");
    }

    pub fn a_name_whose_own_servers_are_silent_puts_no_name_server_last() {
        let (slow, other) = ("slow.names.test", "other.names.test");
        let world = World::new("").serve_for(&[slow, other]);
        world.first.set(slow, RecordType::A, Says::Silence);
        world.first.set(slow, RecordType::AAAA, Says::Silence);
        world.second.addresses(slow, RecordType::A, &[V4], 0);
        world.first.addresses(other, RecordType::A, &[V4], 0);
        for _ in 0..3 {
            ask(slow).is_from(V4, Duration::from_millis(600));
            std::thread::sleep(Duration::from_millis(1_200));
        }
        soon(other, V4);
        let asked = world.second.asked();
        assert!(!asked.iter().any(|line| line.contains(other)), "{asked:?}");
    }

    pub fn a_denial_of_the_second_server_waits_for_the_first() {
        let (internal, gone) = ("internal.names.test", "gone.names.test");
        let world = World::new("").serve_for(&[internal, gone]);
        let late = Says::Late(Duration::from_millis(400), V4.parse().unwrap());
        world.first.set(internal, RecordType::A, late);
        ask(internal).is_from(V4, Duration::from_millis(900));
        let asked = world.second.asked();
        assert!(
            asked.iter().any(|line| line.contains(internal)),
            "{asked:?}"
        );
        // A dead server does not hold up a denial beyond its second.
        world.first.die(true);
        let got = ask(gone);
        got.is_refused(502, "unresolved");
        assert!(got.after <= Duration::from_millis(2_500), "{got:?}");
    }

    pub fn an_origin_that_is_down_is_told_although_a_family_is_silent() {
        let name = "down.names.test";
        let world = World::new("").serve_for(&[name]);
        world
            .first
            .addresses(name, RecordType::A, &["127.0.8.77"], 60);
        for server in [&world.first, &world.second] {
            server.set(name, RecordType::AAAA, Says::Silence);
        }
        let got = ask(name);
        assert_eq!(got.status, 502, "{got:?}");
        assert!(got.after <= Duration::from_millis(2_500), "{got:?}");
        let again = ask(name);
        assert_eq!(again.status, 502, "{again:?}");
        assert!(again.after <= SOON, "{again:?}");
    }

    pub fn a_server_that_fails_makes_way_at_once() {
        let name = "fails.names.test";
        let world = World::new("").serve_for(&[name]);
        for kind in [RecordType::A, RecordType::AAAA] {
            world.first.set(name, kind, Says::Failure);
        }
        world.second.addresses(name, RecordType::A, &[V4], 0);
        soon(name, V4);
    }

    pub fn a_denial_of_the_first_server_is_an_answer() {
        let name = "internal.names.test";
        let world = World::new("").serve_for(&[name]);
        world.second.addresses(name, RecordType::A, &[V4], 0);
        ask(name).is_refused(502, "unresolved");
        assert!(world.second.asked().is_empty());
    }

    pub fn a_long_answer_comes_over_tcp() {
        let name = "long.names.test";
        let world = World::new("").serve_for(&[name]);
        let address = V4.parse().unwrap();
        world.first.set(name, RecordType::A, Says::Long(address));
        soon(name, V4);
        let asked = world.first.asked();
        assert!(asked.contains(&format!("tcp A {name}.")), "{asked:?}");
    }

    /// RFC 8767.
    pub fn an_old_answer_serves_while_no_server_answers_until_the_name_is_denied() {
        let (kept, denied) = ("kept.names.test", "denied.names.test");
        let world = World::new("").serve_for(&[kept, denied]);
        for name in [kept, denied] {
            world.first.addresses(name, RecordType::A, &[V4], 1);
        }
        soon(kept, V4);
        soon(denied, V4);
        world.first.forget(denied);
        std::thread::sleep(Duration::from_millis(1100));
        ask(denied).is_refused(502, "unresolved");
        for server in [&world.first, &world.second] {
            server.die(true);
        }
        ask(kept).is_from(V4, Duration::from_millis(2200));
        // The servers are left alone for a while, and the old answer is there at once.
        soon(kept, V4);
        ask(denied).is_refused(502, "unresolved");
    }

    pub fn old_answers_can_be_turned_off() {
        let name = "kept.names.test";
        let world = World::new("").serve(&format!("[resolver]\nstale = \"0s\"\n{}", rule(name)));
        world.first.addresses(name, RecordType::A, &[V4], 1);
        soon(name, V4);
        for server in [&world.first, &world.second] {
            server.die(true);
        }
        std::thread::sleep(Duration::from_millis(1100));
        ask(name).is_refused(502, "unresolved");
    }

    pub fn clear_text_reaches_a_sandbox_by_flag() {
        let name = "mirror.names.test";
        let world = World::new("");
        world.first.addresses(name, RecordType::A, &[V4], 0);
        let host = format!("{name}:{ORIGIN_PORT}");
        let allowed = sandboxed(&world, &["--allow", &format!("http://{host}")], name);
        assert_eq!(allowed, V4);
        let refused = sandboxed(&world, &["--allow", &host], name);
        assert!(refused.contains("\"reason\":\"clear_text\""), "{refused}");
        assert!(
            refused.contains(&format!("--allow http://{host}")),
            "{refused}"
        );
    }

    pub fn clear_text_reaches_the_host_and_port_that_the_operator_names() {
        let (named, other) = ("mirror.names.test", "other.names.test");
        let world = World::new("").serve_for(&[named]);
        for name in [named, other] {
            world.first.addresses(name, RecordType::A, &[V4], 0);
        }
        soon(named, V4);
        let tunnel = ["-x", PROXY, "--proxytunnel", "--max-time", "15"];
        curl(&tunnel, named).is_from(V4, SOON);
        let socks = ["--socks5-hostname", PROXY, "--max-time", "15"];
        curl(&socks, named).is_from(V4, SOON);
        for arguments in [&tunnel[..], &socks, &["-x", PROXY]] {
            curl(arguments, other).is_refused(403, "clear_text");
        }
        let asked = world.first.asked();
        assert!(!asked.iter().any(|line| line.contains(other)), "{asked:?}");
    }
}

/// Runs curl in a sandbox.
fn sandboxed(world: &World, flags: &[&str], name: &str) -> String {
    let work = world.at("work");
    let _ = fs::create_dir(&work);
    fs::set_permissions(world.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&work, fs::Permissions::from_mode(0o777)).unwrap();
    let place = format!(
        "[audit]\npath = \"log/exec.jsonl\"\n{}",
        rule(name).replace("cleartext = true\n", "")
    );
    fs::write(world.at("exec.toml"), place).unwrap();
    let url = format!("http://{name}:{ORIGIN_PORT}/");
    let output = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(["exec", "-q", "--config", "../exec.toml"])
        .args(flags)
        .args(["--", "curl", "-sS", "--max-time", "15", &url])
        .current_dir(&work)
        .output()
        .unwrap();
    let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    format!("{}{err}", String::from_utf8_lossy(&out))
}

/// Runs a fact in a network and mount namespace of its own.
fn apart(name: &str, fact: fn()) {
    if std::env::var_os(APART).is_some() {
        return fact();
    }
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let program: &Path = &std::env::current_exe().unwrap();
    let status = command
        .args(["--mount", "--net", "--"])
        .arg(program)
        .args(["--exact", name, "--nocapture"])
        .env(APART, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{name}");
}

const APART: &str = "GATEWAY_TEST_APART";

macro_rules! rows {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            apart(stringify!($name), facts::$name);
        })*
    };
}

rows![
    names_are_found_as_fast_as_without_a_gateway,
    a_silent_family_costs_a_moment_once_in_a_while,
    a_family_that_fails_or_is_denied_does_not_end_the_other,
    the_first_address_that_connects_wins,
    the_hosts_file_is_final_and_its_changes_are_seen,
    a_hosts_file_line_is_vetted_too,
    a_changed_resolv_conf_is_used_and_a_useless_one_is_not,
    a_dead_name_server_costs_less_than_a_tenth_of_a_second_and_then_nothing,
    a_name_whose_own_servers_are_silent_puts_no_name_server_last,
    a_denial_of_the_second_server_waits_for_the_first,
    an_origin_that_is_down_is_told_although_a_family_is_silent,
    a_server_that_fails_makes_way_at_once,
    a_denial_of_the_first_server_is_an_answer,
    a_long_answer_comes_over_tcp,
    an_old_answer_serves_while_no_server_answers_until_the_name_is_denied,
    old_answers_can_be_turned_off,
    clear_text_reaches_the_host_and_port_that_the_operator_names,
    clear_text_reaches_a_sandbox_by_flag,
];
