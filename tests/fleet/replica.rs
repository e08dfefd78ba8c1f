//! Replicas of the shipped program, an origin that notes what it got, and a way to the database
//! that can be cut.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gateway::state::SealingKey;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub use crate::addresses::free;
use crate::database::{Database, Databases};
use crate::server::SUPERUSER;

/// The secret of the credential `key`.
pub const CANARY: &str = "canary-6f1d2c93a7b84e05";

/// Replicas of one fleet, and their origin.
pub struct Fleet {
    pub database: Database,
    _server: Arc<Databases>,
    pub origin: Origin,
    key: String,
    /// Further lines of every configuration.
    pub further: String,
    pub rules: String,
}

/// One replica.
pub struct Replica {
    pub name: String,
    pub folder: tempfile::TempDir,
    pub child: Child,
    pub door: SocketAddr,
    origin: SocketAddr,
    /// Its own way to the database.
    pub way: Way,
}

impl Fleet {
    pub fn new() -> Self {
        let server = crate::databases();
        Self {
            database: server.fresh(),
            _server: server,
            origin: Origin::start(),
            key: SealingKey::draw().unwrap().to_string(),
            further: String::new(),
            rules: "permit(principal, action, resource);".to_owned(),
        }
    }

    /// Starts replicas of these names.
    pub fn start<const N: usize>(&self, names: [&str; N]) -> [Replica; N] {
        let mut started = names.map(|name| self.spawn(name));
        started.iter_mut().for_each(Replica::wait);
        started
    }

    /// Starts one without waiting for it.
    pub fn spawn(&self, name: &str) -> Replica {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        fs::create_dir(&run).unwrap();
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
        let (door, way) = (free(), Way::to(self.database.port));
        let url = self.database.url().replace(
            &format!("127.0.0.1:{}", self.database.port),
            &way.address.to_string(),
        );
        let (origin, further) = (self.origin.address, &self.further);
        let config = format!(
            r#"
[state]
url = "{url}"
password = "file:password"
key = "file:key"
replica = "{name}"
stale_after = "2s"
[audit]
path = "audit/log.jsonl"
[policy]
files = ["rules.cedar"]
[[listener]]
kind = "proxy"
address = "{door}"
session = "{{caller}}"
who = ["token"]
[[origin]]
match = "http://{origin}"
connect = "{origin}"
cleartext = true
[[credential]]
name = "key"
from = "env:KEY"
env = ["API_KEY"]
origins = ["http://{origin}"]
places = ["header:authorization:Bearer"]
inject = "always"
{further}"#
        );
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        };
        write("gateway.toml", &config);
        write("rules.cedar", &self.rules);
        write("password", SUPERUSER);
        write("key", &self.key);
        let mut replica = Replica {
            name: name.to_owned(),
            child: Command::new("true").spawn().unwrap(),
            folder,
            door,
            origin: self.origin.address,
            way,
        };
        replica.child.wait().unwrap();
        replica.again();
        replica
    }
}

impl Replica {
    /// Starts its process, which has ended.
    pub fn again(&mut self) {
        let mut log = fs::OpenOptions::new();
        let log = log
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        let mut command = self.command();
        command.args(["serve", "--config", "gateway.toml"]);
        self.child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
        command
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("KEY", CANARY)
            .stdin(Stdio::null());
        command
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.path(&format!("run/gateway/serve-{}.sock", self.child.id()))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits until it is ready.
    pub fn wait(&mut self) {
        let until = Instant::now() + Duration::from_secs(30);
        while !self.is_ready() {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < until,
                "{}: {}",
                self.name,
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn is_ready(&self) -> bool {
        let stream = std::os::unix::net::UnixStream::connect(self.socket());
        let Ok(mut stream) = stream else { return false };
        let asked =
            stream.write_all(b"GET /ready HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        asked.is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.1 200")
    }

    /// Runs a command of the program; returns its exit code and all of its output.
    pub fn gateway(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.command().args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        (output.status.code().unwrap_or(-1), said)
    }

    /// Runs a command that must succeed, and returns its JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(arguments);
        let (code, said) = self.gateway(&all);
        assert_eq!(code, 0, "{arguments:?}: {said}");
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    /// Reads a document of its control socket.
    pub fn get(&self, path: &str) -> Value {
        self.call("GET", path, "")
    }

    /// Makes a session without the command, and returns its token.
    pub fn session_soon(&self, name: &str) -> String {
        let asked =
            format!("{{\"name\":\"{name}\",\"groups\":[],\"seconds\":3600,\"caveats\":[]}}");
        let made = self.call("POST", "/v1/sessions", &asked);
        made["token"]
            .as_str()
            .unwrap_or_else(|| panic!("{made}"))
            .to_owned()
    }

    fn call(&self, method: &str, path: &str, content: &str) -> Value {
        let socket = self.socket();
        let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
        let length = content.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{content}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, content) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(content).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// Makes a session, and returns its token.
    pub fn session(&self, name: &str) -> String {
        let made = self.json(&["session", "create", name, "--ends", "8h"]);
        made["token"].as_str().unwrap().to_owned()
    }

    /// Sends a request with a session's token, and returns the status and the content.
    pub fn ask(&self, token: &str, path: &str) -> (u16, String) {
        let Ok(mut stream) = self.begin(token, path) else {
            return (0, String::new());
        };
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let status = answer.get(9..12).and_then(|status| status.parse().ok());
        let content = answer
            .split_once("\r\n\r\n")
            .map_or("", |(_, content)| content);
        (status.unwrap_or(0), content.to_owned())
    }

    /// Sends a request, and returns its connection.
    pub fn begin(&self, token: &str, path: &str) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.door)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let origin = self.origin;
        let head = format!(
            "GET http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\nProxy-Authorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        Ok(stream)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it as a crash would, and starts it again.
    pub fn crash(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.again();
    }

    /// Checks that its log is whole.
    pub fn verify(&self) {
        let (code, said) = self.gateway(&["log", "verify", "audit/log.jsonl"]);
        // 3: whole, and still written to.
        assert!(code == 0 || code == 3, "{}: {code} {said}", self.name);
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // One that was stopped does not end by SIGTERM.
        let _ = kill_process(Pid::from_child(&self.child), Signal::CONT);
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An origin that counts the requests with the secret.
pub struct Origin {
    pub address: SocketAddr,
    pub lent: Arc<AtomicU64>,
    /// When the last request with the secret came.
    pub last: Arc<Mutex<Option<Instant>>>,
    pub heads: Arc<Mutex<String>>,
}

impl Origin {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = Self {
            address: listener.local_addr().unwrap(),
            lent: Arc::default(),
            last: Arc::default(),
            heads: Arc::default(),
        };
        let (lent, last, heads) = (
            origin.lent.clone(),
            origin.last.clone(),
            origin.heads.clone(),
        );
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (lent, last, heads) = (lent.clone(), last.clone(), heads.clone());
                std::thread::spawn(move || {
                    // The gateway may cut it at any time.
                    let _ = answer(stream, (&lent, &last, &heads));
                });
            }
        });
        origin
    }

    pub fn count(&self) -> u64 {
        self.lent.load(Ordering::SeqCst)
    }
}

type Noted<'a> = (&'a AtomicU64, &'a Mutex<Option<Instant>>, &'a Mutex<String>);

fn answer(mut stream: TcpStream, (lent, last, heads): Noted<'_>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        if head.contains(CANARY) {
            *last.lock().unwrap() = Some(Instant::now());
            lent.fetch_add(1, Ordering::SeqCst);
        }
        heads.lock().unwrap().push_str(&head);
        if !head.starts_with("GET /stream") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
            continue;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        loop {
            stream.write_all(b"1\r\nx\r\n")?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A way to the database that can be cut.
pub struct Way {
    pub address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    /// How many further answers of the database come through; then one connection is cut.
    left: Arc<AtomicI64>,
    /// A text of statements, and how many connections that send it are cut.
    refused: Arc<Mutex<(Vec<u8>, usize)>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = Self {
            address: listener.local_addr().unwrap(),
            is_cut: Arc::default(),
            left: Arc::new(AtomicI64::new(i64::MAX)),
            refused: Arc::default(),
            open: Arc::default(),
        };
        let (is_cut, open, left) = (way.is_cut.clone(), way.open.clone(), way.left.clone());
        let refused = way.refused.clone();
        std::thread::spawn(move || {
            for one in listener.incoming().flatten() {
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(other) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                one.set_nodelay(true).unwrap();
                other.set_nodelay(true).unwrap();
                let both = [one.try_clone().unwrap(), other.try_clone().unwrap()];
                open.lock().unwrap().extend(both);
                for (mut from, mut to, is_answer) in [
                    (one.try_clone().unwrap(), other.try_clone().unwrap(), false),
                    (other, one, true),
                ] {
                    let (left, refused) = (left.clone(), refused.clone());
                    std::thread::spawn(move || {
                        let mut part = [0; 16_384];
                        while let Ok(read @ 1..) = from.read(&mut part) {
                            let is_last = is_answer && left.fetch_sub(1, Ordering::SeqCst) == 0;
                            let is_refused = !is_answer && is_refused(&refused, &part[..read]);
                            if is_last || is_refused || to.write_all(&part[..read]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Both);
                        let _ = from.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        way
    }

    /// Cuts it, with what is under way.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Cuts a connection instead of passing on the answer after so many others.
    pub fn cut_after(&self, answers: i64) {
        self.left.store(answers, Ordering::SeqCst);
    }

    /// Cuts so many connections that send this text.
    pub fn refuse(&self, text: &str, times: usize) {
        *self.refused.lock().unwrap() = (text.as_bytes().to_vec(), times);
    }

    pub fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

fn is_refused(refused: &Mutex<(Vec<u8>, usize)>, sent: &[u8]) -> bool {
    let mut refused = refused.lock().unwrap();
    let (text, times) = &mut *refused;
    let is_it = *times > 0 && sent.windows(text.len()).any(|part| part == text);
    *times -= usize::from(is_it);
    is_it
}
