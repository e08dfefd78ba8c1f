//! Many sessions of ten credentials: what each costs in memory, what opening one costs, and what a
//! request costs beside one session alone.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::addresses::free;
use crate::{ALONE, is_full, raise_open_files};

/// The goal is 10,000 sessions in 512 MiB.
const MOST_KIB_EACH: f64 = 512.0 * 1024.0 / 10_000.0;
/// The goal for opening one, of processor time, in a release build.
const MOST_OPENING: Duration = Duration::from_micros(400);
/// The goal for a request, in a release build.
const MOST_RATIO: f64 = 1.1;
/// Without optimisation, in the smaller run on a loaded machine.
const MOST_RATIO_UNOPTIMISED: f64 = 1.6;
/// The sessions share what their answers are searched for.
const MOST_KIB_AWAKE: f64 = 64.0;
const CREDENTIALS: usize = 10;
/// The least processor time of so many rounds counts.
const ROUNDS: usize = 3;
/// How many requests a client sends on one connection.
const BURST: usize = 10;

/// `GATEWAY_PROGRAM` names another build of the program, such as a release.
#[test]
fn many_sessions_of_ten_credentials_cost_little_and_a_request_hardly_more_than_with_one() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    raise_open_files();
    let count = if is_full() { 10_000 } else { 300 };
    let origin = origin();
    let one = Gateway::start(1, origin);
    let (resident, opened) = (one.resident_kib(), one.worked());
    let alone = one.cost_of_requests(count);
    drop(one);
    let many = Gateway::start(count, origin);
    let added = (count - 1) as f64;
    let kib = (many.resident_kib() - resident) as f64 / added;
    let opening = (many.worked() - opened).div_f64(added);
    let among = many.cost_of_requests(count);
    let awake = (many.resident_kib() - resident) as f64 / added;
    let ratio = among.as_secs_f64() / alone.as_secs_f64();
    println!(
        "{count} sessions of {CREDENTIALS} credentials: {kib:.1} KiB each asleep, {awake:.1} KiB awake, opened in \
         {opening:?} of processor time each; a request costs {among:?}, with one session {alone:?}: {ratio:.3} times"
    );
    assert!(kib <= MOST_KIB_EACH, "{kib} KiB each");
    assert!(awake <= MOST_KIB_AWAKE, "{awake} KiB each");
    // Without optimisation, all that is cryptography takes ten times as long.
    let (most_ratio, most) = match std::env::var_os("GATEWAY_PROGRAM") {
        Some(_) => (MOST_RATIO, MOST_OPENING),
        None => (MOST_RATIO_UNOPTIMISED, 10 * MOST_OPENING),
    };
    assert!(ratio <= most_ratio, "{ratio}");
    assert!(opening <= most, "{opening:?}");
}

struct Gateway {
    process: Child,
    folder: tempfile::TempDir,
    addresses: Vec<SocketAddr>,
    origin: SocketAddr,
}

impl Gateway {
    fn start(sessions: usize, origin: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free().port();
        let address =
            |n: usize| SocketAddr::from(([127, 1, (n / 250) as u8, (n % 250) as u8 + 1], port));
        let addresses: Vec<_> = (0..sessions).map(address).collect();
        fs::create_dir(folder.path().join("phantoms")).unwrap();
        fs::write(
            folder.path().join("gateway.toml"),
            config(&addresses, origin),
        )
        .unwrap();
        fs::write(folder.path().join("rules.cedar"), rules(origin.port())).unwrap();
        let stderr = fs::File::create(folder.path().join("stderr")).unwrap();
        let program = std::env::var("GATEWAY_PROGRAM");
        let mut command = Command::new(program.as_deref().unwrap_or(env!("CARGO_BIN_EXE_gateway")));
        let secrets = (0..CREDENTIALS).map(|n| (format!("C{n}"), secret(n)));
        command.env_clear().envs(secrets).env("HOME", folder.path());
        command.args(["serve", "--config", "gateway.toml"]);
        command
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stderr(stderr);
        let mut process = command.spawn().unwrap();
        let began = Instant::now();
        while said(folder.path()).matches("gateway: session `").count() < sessions {
            let ended = process.try_wait().unwrap();
            let late = began.elapsed() > Duration::from_secs(600);
            assert!(ended.is_none() && !late, "{}", said(folder.path()));
            std::thread::sleep(Duration::from_millis(50));
        }
        Self {
            process,
            folder,
            addresses,
            origin,
        }
    }

    /// The processor time of one request, of so many connections over all sessions. Each session
    /// was used before.
    fn cost_of_requests(&self, connections: usize) -> Duration {
        self.ask(0..connections);
        let each = connections / ROUNDS;
        let rounds = (0..ROUNDS).map(|round| {
            let before = self.worked();
            self.ask(round * each..(round + 1) * each);
            (self.worked() - before).div_f64((each * BURST) as f64)
        });
        rounds.min().unwrap()
    }

    fn ask(&self, connections: Range<usize>) {
        for nth in connections {
            // Not in the order in which they were opened.
            let session = nth * 7919 % self.addresses.len();
            let phantoms =
                fs::read_to_string(self.folder.path().join(format!("phantoms/s{session}")));
            let phantoms = phantoms.unwrap();
            let stream = TcpStream::connect(self.addresses[session]).unwrap();
            stream.set_nodelay(true).unwrap();
            let mut answers = BufReader::new(stream.try_clone().unwrap());
            // Each session uses one of its credentials.
            let used = session % CREDENTIALS;
            let phantom = phantoms.lines().nth(used).unwrap();
            let phantom = phantom.split_once('=').unwrap().1;
            let authority = authority(self.origin);
            for at in 1..=BURST {
                let last = if at == BURST { "/last" } else { "/" };
                let head = format!(
                    "GET http://{authority}{last} HTTP/1.1\r\nhost: {authority}\r\nx-key-{used}: {phantom}\r\n\r\n"
                );
                (&stream).write_all(head.as_bytes()).unwrap();
                assert_eq!(answer(&mut answers), secret(used), "session s{session}");
            }
        }
    }

    fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    }

    /// The processor time that all of its threads have used (proc_pid_schedstat).
    fn worked(&self) -> Duration {
        let threads = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let of_thread = |thread: fs::DirEntry| {
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap();
            text.split(' ').next().unwrap().parse::<u64>().unwrap()
        };
        Duration::from_nanos(threads.map(|one| of_thread(one.unwrap())).sum())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = said(self.folder.path());
            eprintln!("gateway: {}", &said[said.len().saturating_sub(2_000)..]);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn said(folder: &Path) -> String {
    fs::read_to_string(folder.join("stderr")).unwrap()
}

/// The origin of all credentials, so that each answer is searched for all of them.
fn authority(origin: SocketAddr) -> String {
    format!("127.0.0.1:{}", origin.port())
}

/// Of three kinds: one with a declared shape, and hex and base 62, of which a drawn phantom often
/// begins or ends with the same letter.
fn secret(n: usize) -> String {
    let letters: &[u8] = match n % 3 {
        0 => return format!("secret-{n}-7fQ2mX9cLr4Zk8WvB1nH6sYd3PjT5gAe"),
        1 => b"0123456789abcdef",
        _ => b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    };
    let mut state = n as u64;
    let mut draw = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(letters[(state >> 33) as usize % letters.len()])
    };
    (0..40).map(|_| draw()).collect()
}

/// Each session is in one group, as a fleet's are, and no rule names a session.
fn rules(port: u16) -> String {
    format!(
        "@id(\"ask\") permit(principal in Gateway::Group::\"team\", action in Gateway::Action::\"any\", resource)
         when {{ context.port == {port} && context.prefixes.contains(\"/\") }};
         @id(\"lend\") permit(principal in Gateway::Group::\"team\", action == Gateway::Action::\"lend\", resource)
         when {{ context.port == {port} && context.scheme == \"http\" }};"
    )
}

fn config(addresses: &[SocketAddr], origin: SocketAddr) -> String {
    let mut text = String::from(
        "[audit]\npath = \"log/audit.jsonl\"\n[policy]\nfiles = [\"rules.cedar\"]\n[runtime]\nthreads = 1\n\
         [state]\npath = \"state/sessions.db\"\n[phantoms]\nenv_file = \"phantoms/{session}\"\n",
    );
    let origin = authority(origin);
    let _ = write!(
        text,
        "[[origin]]\nmatch = \"http://{origin}\"\nconnect = \"{origin}\"\ncleartext = true\n"
    );
    for n in 0..CREDENTIALS {
        let _ = write!(
            text,
            "[[credential]]\nname = \"C{n}\"\nfrom = \"env:C{n}\"\norigins = [\"http://{origin}\"]\n\
             places = [\"header:x-key-{n}\"]\n"
        );
        if n % 3 == 0 {
            text.push_str("shape = \"ghp_[30 alnum][6 crc32]\"\n");
        }
    }
    for (n, address) in addresses.iter().enumerate() {
        let _ = write!(
            text,
            "[[listener]]\nkind = \"proxy\"\naddress = \"{address}\"\nsession = \"s{n}\"\ngroups = [\"team\"]\n"
        );
    }
    text
}

/// An origin that answers with the key that it was shown; the secret comes back as the phantom, so
/// it is told reversed. It closes after `/last`, so that idle connections need no descriptors.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

fn serve(stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut heads = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut key, mut is_last) = (String::new(), false);
        loop {
            let mut line = String::new();
            if heads.read_line(&mut line).unwrap_or_default() == 0 {
                return;
            }
            is_last |= line.starts_with("GET /last");
            if let Some(value) = line.strip_prefix("x-key-") {
                key = value
                    .split_once(": ")
                    .unwrap()
                    .1
                    .trim()
                    .chars()
                    .rev()
                    .collect();
            }
            if line == "\r\n" {
                break;
            }
        }
        let close = if is_last { "connection: close\r\n" } else { "" };
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{close}\r\n{key}",
            key.len()
        );
        if (&stream).write_all(answer.as_bytes()).is_err() || is_last {
            return;
        }
    }
}

/// Reads an answer, and returns the key that the origin was shown.
fn answer(stream: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(known, value)| known.eq_ignore_ascii_case(name).then_some(value))
    };
    let mut content = Vec::new();
    if let Some(length) = field("content-length") {
        content.resize(length.parse().unwrap(), 0);
        stream.read_exact(&mut content).unwrap();
    } else {
        assert_eq!(field("transfer-encoding"), Some("chunked"));
        loop {
            let mut size = String::new();
            stream.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).unwrap();
            content.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    }
    String::from_utf8(content).unwrap().chars().rev().collect()
}
