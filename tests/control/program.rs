//! A running `gateway serve` with a proxy, an origin that streams, and calls of its control socket.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub use crate::addresses::free;

/// The secret of the credential `key`.
pub const CANARY: &str = "canary-6f1d2c93a7b84e05";

/// A running gateway in a folder of its own.
pub struct Program {
    pub folder: tempfile::TempDir,
    pub child: Child,
    pub proxy: SocketAddr,
    pub socket: PathBuf,
}

impl Program {
    /// Starts `gateway serve` with one session `agent-1`, and further lines of configuration.
    pub fn start(further: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        fs::create_dir(&run).unwrap();
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
        let origin = origin();
        let proxy = free();
        let config = format!(
            r#"
[audit]
path = "audit/log.jsonl"
[policy]
files = ["rules.cedar"]
[phantoms]
env_file = "phantoms.env"
[[listener]]
kind = "proxy"
address = "{proxy}"
session = "agent-1"
[[origin]]
match = "http://stream.test"
connect = "{origin}"
cleartext = true
[[origin]]
match = "http://later.test"
connect = "{origin}"
cleartext = true
[[credential]]
name = "key"
from = "env:KEY"
origins = ["https://api.test"]
{further}"#
        );
        fs::write(folder.path().join("gateway.toml"), config).unwrap();
        fs::write(folder.path().join("rules.cedar"), RULES).unwrap();
        let child = spawn(folder.path());
        let mut program = Self {
            socket: run.join(format!("gateway/serve-{}.sock", child.id())),
            folder,
            child,
            proxy,
        };
        program.wait();
        program
    }

    /// Waits until it serves.
    pub fn wait(&mut self) {
        let until = Instant::now() + Duration::from_secs(20);
        while !(self.socket.exists() && TcpStream::connect(self.proxy).is_ok()) {
            let ended = self.child.try_wait().unwrap();
            let log = fs::read_to_string(self.path("log")).unwrap();
            assert!(ended.is_none() && Instant::now() < until, "{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it as a crash would, and starts it again.
    pub fn restart_after_a_crash(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.follow(spawn(self.folder.path()));
    }

    /// Takes a process for the program, in place of the one before, and waits until it serves.
    pub fn follow(&mut self, child: Child) {
        self.child = child;
        let name = format!("serve-{}.sock", self.child.id());
        self.socket = self.socket.with_file_name(name);
        self.wait();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Changes the configuration, and returns what it was.
    pub fn edit(&self, change: impl FnOnce(&str) -> String) -> String {
        let before = fs::read_to_string(self.path("gateway.toml")).unwrap();
        fs::write(self.path("gateway.toml"), change(&before)).unwrap();
        before
    }

    /// Ends it, and starts it with a configuration whose control socket is `serve-1.sock`.
    pub fn configure(&mut self, config: &str) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap();
        fs::write(self.path("gateway.toml"), config).unwrap();
        self.child = spawn(self.folder.path());
        self.socket = self.path("run/gateway/serve-1.sock");
        self.wait();
    }

    /// Reloads, which must be applied.
    pub fn reload(&self) {
        let (code, said) = self.gateway(&["reload"]);
        assert_eq!(code, 0, "{said}");
    }

    /// Reloads, which must be refused. Returns why.
    pub fn refuse(&self) -> String {
        let (code, said) = self.gateway(&["reload"]);
        assert_ne!(code, 0, "{said}");
        said
    }

    /// Runs a command of the program; returns its exit code and all of its output.
    pub fn gateway(&self, arguments: &[&str]) -> (i32, String) {
        gateway(self.folder.path(), arguments)
    }

    /// Runs a command that must succeed, and returns its JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(arguments);
        let (code, said) = self.gateway(&all);
        assert_eq!(code, 0, "{arguments:?}: {said}");
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    /// Sends raw bytes to the control socket, and returns everything that comes back.
    pub fn raw(&self, bytes: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let within = Some(Duration::from_secs(20));
        stream.set_read_timeout(within).unwrap();
        // A call without a place is closed before it is written.
        let _ = stream.write_all(bytes.as_bytes());
        let mut answer = Vec::new();
        // The end of a refused call may be a reset.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Makes a call, and returns its status and its content.
    pub fn call(&self, method: &str, path: &str, content: &str) -> (u16, String) {
        let answer = self.raw(&format!(
            "{method} {path} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{content}",
            content.len()
        ));
        let (head, content) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.get(9..12).and_then(|status| status.parse().ok());
        (status.unwrap_or(0), content.to_owned())
    }

    /// Sends a request through the proxy, and returns the connection behind its head.
    pub fn begin(&self, url: &str) -> (u16, BufReader<TcpStream>) {
        let mut stream = TcpStream::connect(self.proxy).unwrap();
        let within = Some(Duration::from_secs(10));
        stream.set_read_timeout(within).unwrap();
        let host = url.split('/').nth(2).unwrap();
        let request = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        // A connection beyond a limit is cut, which may be a reset.
        reader.read_line(&mut line).unwrap_or(0);
        let status = line.get(9..12).unwrap_or("0").parse().unwrap();
        while line != "\r\n" && !line.is_empty() {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        (status, reader)
    }

    /// The status of a request through the proxy, and the text of a refusal.
    pub fn ask(&self, url: &str) -> (u16, String) {
        let (status, mut reader) = self.begin(url);
        let mut text = vec![0; 4096];
        let read = if status == 200 {
            0
        } else {
            reader.read(&mut text).unwrap_or(0)
        };
        (status, String::from_utf8_lossy(&text[..read]).into_owned())
    }

    /// Sends a request through a SOCKS5 tunnel to port 80 of an address, and returns the answer.
    pub fn through_socks(&self, address: [u8; 4], request: &str) -> String {
        let mut stream = TcpStream::connect(self.proxy).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream.write_all(&[5, 1, 0]).unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        let opening = [&[5, 1, 0, 1][..], &address, &[0, 80]].concat();
        stream.write_all(&opening).unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The records of the audit log of a kind.
    pub fn records(&self, kind: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path("audit/log.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|record| record["kind"] == kind)
            .collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

pub const RULES: &str = r#"
@id("streams")
permit(principal, action, resource == Gateway::Host::"stream.test");
@id("never")
forbid(principal, action, resource == Gateway::Host::"forbidden.test");
"#;

/// Starts the program in a folder.
pub fn spawn(folder: &Path) -> Child {
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    command(folder)
        .args(["serve", "--config", "gateway.toml"])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// The program, in a folder that is its home, with its own runtime directory.
pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    command
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder)
        .env("XDG_RUNTIME_DIR", folder.join("run"))
        .env("KEY", CANARY)
        .stdin(Stdio::null());
    command
}

/// Runs a command of the program; returns its exit code and all of its output.
pub fn gateway(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let output = command(folder).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    (output.status.code().unwrap(), said)
}

/// An origin that answers `/` at once, and everything else with a byte every five milliseconds.
pub fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // The gateway may cut it at any time.
                let _ = answer(stream);
            });
        }
    });
    address
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        if head.starts_with("GET / ") {
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
