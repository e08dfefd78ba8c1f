//! A gateway whose refunds a policy asks about, its console, and clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::browser::Browser;
use crate::program::{Program, RULES, command};

const ASKS: &str = r#"
@id("shop")
permit(principal, action, resource == Gateway::Host::"pay.test");
@id("refunds") @ask("Refund the customer?")
forbid(principal, action == Gateway::Action::"POST", resource == Gateway::Host::"pay.test");
"#;

/// A gateway, with a shop behind it.
pub fn gateway(more: &str) -> Program {
    let shop = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = shop.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in shop.incoming().flatten() {
            std::thread::spawn(move || sell(stream));
        }
    });
    let program = Program::start(&format!(
        "[[origin]]\nmatch = \"http://pay.test\"\nconnect = \"{address}\"\ncleartext = true\n{more}"
    ));
    std::fs::write(program.path("rules.cedar"), format!("{RULES}{ASKS}")).unwrap();
    program.reload();
    program
}

fn sell(stream: TcpStream) {
    let (mut reader, mut writer) = (BufReader::new(stream.try_clone().unwrap()), stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
        let lower = line.to_ascii_lowercase();
        if let Some(bytes) = lower.strip_prefix("content-length: ") {
            length = bytes.trim().parse().unwrap();
        }
        if line == "\r\n" {
            let _ = reader.read_exact(&mut vec![0; length]);
            let _ = writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsent");
            length = 0;
        }
        line.clear();
    }
}

/// A running `gateway console`.
pub struct Console {
    child: Child,
    pub link: String,
    _output: BufReader<ChildStdout>,
}

impl Console {
    pub fn start(program: &Program) -> Self {
        let mut command = command(program.folder.path());
        let mut child = command
            .arg("console")
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(program.path("console.err")).unwrap())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut link = String::new();
        output.read_line(&mut link).unwrap();
        assert!(link.starts_with("http://gateway-"), "{link}");
        Self {
            child,
            link: link.trim_end().to_owned(),
            _output: output,
        }
    }

    /// Opens the page with its link.
    pub fn browse(&self, browser: &mut Browser) {
        browser.open(&self.link);
        browser.wait("!!document.querySelector('#waiting #nothing, #waiting article')");
    }

    pub fn host(&self) -> &str {
        self.link.split('/').nth(2).unwrap()
    }

    pub fn port(&self) -> u16 {
        self.host().rsplit_once(':').unwrap().1.parse().unwrap()
    }

    pub fn token(&self) -> &str {
        self.link.rsplit_once('#').unwrap().1
    }

    /// Sends a raw request, and returns all that comes back.
    pub fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port())).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Makes a request with further fields, and returns its status and all that comes back.
    pub fn ask(&self, line: &str, fields: &str, content: &str) -> (u16, String) {
        let answer = self.raw(&format!(
            "{line} HTTP/1.1\r\nHost: {}\r\n{fields}Content-Length: {}\r\n\r\n{content}",
            self.host(),
            content.len()
        ));
        (
            answer
                .get(9..12)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
            answer,
        )
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client's request whose answer is awaited.
pub struct Asked(Receiver<(u16, String)>);

impl Asked {
    /// Posts through the proxy, on a connection of its own.
    pub fn post(program: &Program, url: &str, content: &str) -> Self {
        let host = url.split('/').nth(2).unwrap();
        let request = format!(
            "POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{content}",
            content.len()
        );
        let (proxy, (tell, told)) = (program.proxy, channel());
        std::thread::spawn(move || {
            let mut stream = TcpStream::connect(proxy).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            let text = String::from_utf8_lossy(&answer).into_owned();
            let status = text
                .get(9..12)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
            let _ = tell.send((status, text));
        });
        Self(told)
    }

    pub fn refund(program: &Program, content: &str) -> Self {
        Self::post(program, "http://pay.test/v1/refunds", content)
    }

    pub fn answer(&self) -> (u16, String) {
        self.0
            .recv_timeout(Duration::from_secs(40))
            .expect("an answer")
    }

    pub fn waits(&self) -> bool {
        self.0.try_recv().is_err()
    }
}

pub fn wait_for(what: &str, is: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(30));
    }
}
