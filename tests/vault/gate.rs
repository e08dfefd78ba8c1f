//! `gateway serve` with credentials of a vault, an origin that notes what it is sent, and a client.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use crate::addresses::free;
use tempfile::TempDir;

pub const GATEWAY: &str = env!("CARGO_BIN_EXE_gateway");

/// An origin in clear text on loopback.
pub struct Origin {
    pub port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = noted.clone();
                spawn(move || answer(stream, &noted));
            }
        });
        Self { port, seen }
    }

    /// The values of a field that were sent since it was asked last.
    pub fn take(&self, field: &str) -> Vec<String> {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        let value = |head: &String| {
            let line = head.lines().find(|line| {
                line.split(':')
                    .next()
                    .is_some_and(|name| name.eq_ignore_ascii_case(field))
            })?;
            Some(line.split_once(": ")?.1.to_owned())
        };
        seen.iter().filter_map(value).collect()
    }

    /// The last request that it was sent, and the value of a field in it.
    pub fn last(&self, field: &str) -> Option<String> {
        let last = self.seen.lock().unwrap().last().cloned()?;
        let mut lines = last.lines().map(|line| line.split_once(": "));
        lines
            .find_map(|pair| pair.filter(|(name, _)| name.eq_ignore_ascii_case(field)))
            .map(|(_, value)| value.to_owned())
    }
}

fn answer(stream: TcpStream, noted: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            head.push_str(&line);
        }
        noted.lock().unwrap().push(head);
        if stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .is_err()
        {
            return;
        }
    }
}

/// A running `gateway serve`.
pub struct Gate {
    pub folder: TempDir,
    proxy: u16,
    child: Child,
}

impl Gate {
    /// Starts it with these sections beside those that it always has.
    pub fn start(sections: &str) -> Self {
        Self::try_start(sections).unwrap_or_else(|said| panic!("{said}"))
    }

    /// The same; gives what it said where it ended at once.
    pub fn try_start(sections: &str) -> Result<Self, String> {
        Self::try_start_by(Command::new(GATEWAY), sections, &[])
    }

    /// The same, by a command that runs it, and with these variables.
    pub fn try_start_by(
        mut command: Command,
        sections: &str,
        variables: &[(&str, &str)],
    ) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let proxy = free().port();
        configure(folder.path(), proxy, sections);
        let log = fs::File::create(folder.path().join("said")).unwrap();
        let child = command
            .args(["serve", "--config", "gateway.toml"])
            .current_dir(folder.path())
            .env_clear()
            .envs(variables.iter().copied())
            .env("HOME", folder.path())
            .env("RUST_LOG", "gateway=trace")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut gate = Self {
            folder,
            proxy,
            child,
        };
        let begin = Instant::now();
        while !gate.said().contains("gateway: session `") {
            if gate.child.try_wait().unwrap().is_some() {
                return Err(gate.said());
            }
            assert!(begin.elapsed() < Duration::from_secs(40), "{}", gate.said());
            sleep(Duration::from_millis(50));
        }
        Ok(gate)
    }

    /// The phantom that stands in a variable.
    pub fn phantom(&self, variable: &str) -> String {
        let text = fs::read_to_string(self.folder.path().join("phantoms-default.env")).unwrap();
        let line = text.lines().find_map(|line| {
            let line = line.trim_start_matches("export ");
            line.strip_prefix(variable)?.strip_prefix('=')
        });
        line.unwrap_or_else(|| panic!("{text}"))
            .trim_matches(['\'', '"'])
            .to_owned()
    }

    /// Sends a request with fields through the proxy; gives the answer's status and all of it.
    pub fn ask(&self, origin: &Origin, fields: &[(&str, &str)]) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.proxy)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(40)))
            .unwrap();
        let mut request = format!(
            "GET http://127.0.0.1:{0}/ HTTP/1.1\r\nhost: 127.0.0.1:{0}\r\nconnection: close\r\n",
            origin.port
        );
        for (name, value) in fields {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.unwrap_or_else(|| panic!("{answer:?}")), answer)
    }

    /// The same with the phantom of `API_TOKEN` as a bearer token.
    pub fn bearer(&self, origin: &Origin) -> u16 {
        let value = format!("Bearer {}", self.phantom("API_TOKEN"));
        self.ask(origin, &[("authorization", &value)]).0
    }

    /// What it said, to the end.
    pub fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).unwrap()
    }

    /// Ends it as an operator does; gives all that it wrote, its audit log included.
    pub fn end(mut self) -> String {
        self.terminate();
        let audit = fs::read_to_string(self.folder.path().join("log/audit.jsonl"));
        format!("{}{}", self.said(), audit.unwrap_or_default())
    }

    fn terminate(&mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let begin = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if begin.elapsed() > Duration::from_secs(15) {
                let _ = self.child.kill();
            }
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.terminate();
    }
}

/// Writes a configuration with a proxy.
pub fn configure(folder: &Path, proxy: u16, sections: &str) {
    let text = format!(
        "[policy]\nfiles = [\"policy.cedar\"]\n[audit]\npath = \"log/audit.jsonl\"\n[phantoms]\nenv_file = \"phantoms-{{session}}.env\"\n[[listener]]\nkind = \"proxy\"\n\
         address = \"127.0.0.1:{proxy}\"\n{sections}"
    );
    fs::write(folder.join("gateway.toml"), text).unwrap();
    let all = "permit(principal, action, resource);";
    fs::write(folder.join("policy.cedar"), all).unwrap();
}

/// A credential and the origin that it is for.
pub fn credential(origin: &Origin, name: &str, from: &str, place: &str) -> String {
    format!(
        "[[credential]]\nname = \"{name}\"\nfrom = \"{from}\"\norigins = [\"http://127.0.0.1:{port}\"]\nplaces = [\"{place}\"]\n\
         env = [\"{name}\"]\n",
        port = origin.port
    )
}

/// The origin, spoken to in clear text.
pub fn cleartext(origin: &Origin) -> String {
    format!(
        "[[origin]]\nmatch = \"http://127.0.0.1:{0}\"\ncleartext = true\naddresses = [\"127.0.0.1/32\"]\n",
        origin.port
    )
}

/// The usual: `API_TOKEN` as a bearer token.
pub fn api_token(origin: &Origin, from: &str) -> String {
    credential(origin, "API_TOKEN", from, "header:authorization:Bearer") + &cleartext(origin)
}

/// A file that its owner alone can read.
pub fn private(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
