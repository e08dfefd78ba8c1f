//! CONNECT over HTTP/2 at a proxy with TLS: each stream is of the caller whom it shows itself.

use std::io::{Read as _, Write as _};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, StatusCode};
use rustls::pki_types::ServerName;
use sha1::{Digest as _, Sha1};
use tokio_rustls::TlsConnector;

use super::elsewhere::{origin_of_large, reach};
use super::tls::{Rig, TRUST, client};
use super::{ASKED, CLOSE, CONNECTED, TUNNELLED, mint, text};

const ITSELF: &str = "gateway.internal:3128";

/// A connection of HTTP/2 to the proxy of a rig.
struct Connection {
    requests: SendRequest<Bytes>,
    serving: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

/// A stream of it, or why there is none.
type Opened = Result<(SendStream<Bytes>, RecvStream), (StatusCode, String)>;

impl Connection {
    async fn open(rig: &Rig, certificate: &str) -> Self {
        // So that what a test leaves unread is not in the way of others.
        Self::with_window(rig, certificate, 64 << 10).await
    }

    async fn with_window(rig: &Rig, certificate: &str, window: u32) -> Self {
        let config = Arc::new(rig.config(certificate, &["h2"]));
        let stream = tokio::net::TcpStream::connect(rig.address).await.unwrap();
        let name = ServerName::from(rig.address.ip());
        let tls = TlsConnector::from(config).connect(name, stream).await;
        let mut http2 = h2::client::Builder::new();
        http2.initial_window_size(window);
        http2.initial_connection_window_size(16 << 20);
        let (requests, serving) = http2.handshake(tls.unwrap()).await.unwrap();
        let serving = tokio::spawn(serving);
        Self { requests, serving }
    }

    /// Sends a request without content, and returns its stream.
    async fn send(
        &mut self,
        (method, to): (Method, &str),
        token: &str,
    ) -> Result<(StatusCode, SendStream<Bytes>, RecvStream), h2::Error> {
        let is_over = method != Method::CONNECT;
        let mut request = Request::builder().method(method).uri(to);
        if !token.is_empty() {
            request = request.header("proxy-authorization", format!("Bearer {token}"));
        }
        let mut requests = self.requests.clone().ready().await?;
        let request = request.body(()).unwrap();
        let (answer, send) = requests.send_request(request, is_over)?;
        let answer = answer.await?;
        Ok((answer.status(), send, answer.into_body()))
    }

    async fn connect(&mut self, to: &str, token: &str) -> Opened {
        let sent = self.send((Method::CONNECT, to), token).await;
        let (status, send, mut content) = sent.unwrap();
        match status {
            StatusCode::OK => Ok((send, content)),
            status => Err((status, read(&mut content).await)),
        }
    }

    /// Opens a stream, sends bytes into it, and returns all that comes back.
    async fn ask(&mut self, (to, token): (&str, &str), bytes: &[u8]) -> String {
        match self.connect(to, token).await {
            Ok((mut send, mut content)) => {
                send.send_data(Bytes::copy_from_slice(bytes), false)
                    .unwrap();
                read(&mut content).await
            }
            Err((status, said)) => format!("{status} {said}"),
        }
    }
}

/// Reads until the end, which may be a reset.
async fn read(content: &mut RecvStream) -> String {
    let mut all = Vec::new();
    let reading = async {
        while let Some(Ok(part)) = content.data().await {
            let _ = content.flow_control().release_capacity(part.len());
            all.extend_from_slice(&part);
        }
    };
    let within = Duration::from_secs(20);
    tokio::time::timeout(within, reading).await.unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(test);
}

fn get(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: stream.test\r\n{fields}{CLOSE}\r\n").into_bytes()
}

#[test]
fn streams_of_one_connection_are_each_of_their_own_caller() {
    let rig = Rig::start("", "session = \"{caller}\"\nwho = [\"token\"]");
    let first = text(&mint(&rig.program, &[]));
    let made = [
        "session", "create", "ci-1", "--user", "alice", "--ends", "1h",
    ];
    let second = text(&rig.program.json(&made));
    let rules = "permit(principal == Gateway::Session::\"agent-1\", action, resource);";
    rig.write("rules.cedar", rules);
    rig.program.reload();
    run(async {
        let mut connection = Connection::open(&rig, "").await;
        // Without a token there is no stream, and others go on.
        let (status, said) = connection.connect("stream.test:80", "").await.unwrap_err();
        assert_eq!(status, 407, "{said}");
        assert!(said.contains("proxy_authentication"), "{said}");
        for _ in 0..2 {
            let to = ("stream.test:80", &first[..]);
            let answer = connection.ask(to, &get("/", "")).await;
            assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
            let to = ("stream.test:80", &second[..]);
            let answer = connection.ask(to, &get("/", "")).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        }
        // Neither do they share phantoms.
        let mut phantoms = Vec::new();
        for token in [&first, &second] {
            let asked =
                b"GET /phantoms HTTP/1.1\r\nHost: gateway.internal\r\nConnection: close\r\n\r\n";
            let answer = connection.ask(("gateway.internal:80", token), asked).await;
            let (_, json) = answer.split_once("\r\n\r\n").unwrap();
            let all: serde_json::Value = serde_json::from_str(json).unwrap();
            phantoms.push(
                all["key"]
                    .as_str()
                    .or(all["KEY"].as_str())
                    .unwrap()
                    .to_owned(),
            );
        }
        assert_ne!(phantoms[0], phantoms[1]);
        let others = format!("Authorization: Bearer {}\r\n", phantoms[1]);
        let answer = connection
            .ask(("stream.test:80", &first), &get("/", &others))
            .await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        // A token of one in the streams of two: its end is that of its own alone.
        let minted = mint(&rig.program, &[]);
        let revoked = text(&minted);
        let mut endless = Vec::new();
        for token in [&revoked, &first] {
            let opened = connection.connect("stream.test:80", token).await;
            let (mut send, mut content) = opened.unwrap();
            send.send_data(get("/endless", "").into(), false).unwrap();
            assert!(
                content
                    .data()
                    .await
                    .unwrap()
                    .unwrap()
                    .starts_with(b"HTTP/1.1 200")
            );
            endless.push((send, content));
        }
        let id = minted["id"].as_str().unwrap();
        assert_eq!(rig.program.gateway(&["token", "revoke", id]).0, 0);
        let began = Instant::now();
        read(&mut endless[0].1).await;
        assert!(
            began.elapsed() < Duration::from_secs(3),
            "{:?}",
            began.elapsed()
        );
        let _ = endless[1].1.flow_control().release_capacity(1000);
        for _ in 0..10 {
            assert!(endless[1].1.data().await.unwrap().is_ok());
        }
        let (status, _) = connection
            .connect("stream.test:80", &revoked)
            .await
            .unwrap_err();
        assert_eq!(status, 407);
        // Nobody tries many tokens: the third that is not taken ends what is new.
        for _ in 0..2 {
            let sent = connection.send((Method::CONNECT, "stream.test:80"), "gwt1_AgI");
            assert_eq!(sent.await.unwrap().0, 407);
        }
        let sent = connection.send((Method::CONNECT, "stream.test:80"), &first);
        assert!(sent.await.is_err());
        assert!(endless[1].1.data().await.unwrap().is_ok());
    });
    let entries = rig.program.records("exchange");
    let of = |session: &str| {
        let own = entries.iter().filter(|one| one["session"] == session);
        own.map(|one| one["entry"].as_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert!(
        of("agent-1").iter().all(|entry| *entry == "connect"),
        "{entries:#?}"
    );
    assert_eq!(of("ci-1").len(), 3, "{entries:#?}");
}

#[test]
fn a_stream_carries_what_a_connection_does_and_leads_to_the_proxy_itself_once() {
    let rig = Rig::start("", "session = \"agent-1\"");
    run(async {
        let mut connection = Connection::open(&rig, "").await;
        for asked in [ASKED, TUNNELLED, CONNECTED] {
            let answer = connection.ask((ITSELF, ""), asked).await;
            assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        }
        let circle = format!("CONNECT {ITSELF} HTTP/1.1\r\nHost: {ITSELF}\r\n\r\n");
        let circle = [circle.as_bytes(), ASKED].concat();
        let answer = connection.ask((ITSELF, ""), &circle).await;
        assert!(!answer.contains("\r\n\r\nok"), "{answer}");
        let (status, said) = connection.connect("stream.test:0", "").await.unwrap_err();
        assert_eq!(status, 400, "{said}");
        // Requests in clear text come without CONNECT, as in absolute form.
        for (to, status) in [
            ("http://stream.test/", 200),
            ("http://forbidden.test/", 403),
            ("https://stream.test/", 400),
        ] {
            let sent = connection.send((Method::GET, to), "").await.unwrap();
            assert_eq!(sent.0, status, "{to}");
        }
        // What is said inside is said of no other stream.
        let mut silent = Vec::new();
        for _ in 0..20 {
            silent.push(connection.connect("stream.test:443", "").await.unwrap());
        }
        let answer = connection.ask(("stream.test:80", ""), &get("/", "")).await;
        assert!(answer.ends_with("ok"), "{answer}");
        for (_, content) in &mut silent {
            assert_eq!(read(content).await, "");
        }
    });
    let records = rig.program.records("exchange");
    let forward = records.iter().filter(|one| one["entry"] == "forward");
    assert_eq!(forward.count(), 4, "{records:#?}");
}

#[test]
fn a_connection_of_http2_is_bounded_and_ends_in_order() {
    let further = "session = \"agent-1\"\nwho = [\"token\"]\n[limits]\nhandshake_timeout = \"2s\"\n\
        idle_timeout = \"2s\"\nstreams_per_connection = 8\nconnections_per_session = 12\ndrain_timeout = \"5s\"";
    let rig = Rig::start("", further);
    let token = text(&mint(&rig.program, &[]));
    run(async {
        // One that opens nothing ends, also if it asks without evidence.
        let mut nobody = Connection::open(&rig, "").await;
        let began = Instant::now();
        assert!(nobody.connect("stream.test:80", "").await.is_err());
        let ended = tokio::time::timeout(Duration::from_secs(5), nobody.serving).await;
        assert!(ended.is_ok(), "{:?}", began.elapsed());
        // One without streams is idle, and one with streams is not.
        let mut idle = Connection::open(&rig, "").await;
        let mut busy = Connection::open(&rig, "").await;
        let answer = idle.ask(("stream.test:80", &token), &get("/", "")).await;
        assert!(answer.ends_with("ok"), "{answer}");
        let mut streams = Vec::new();
        for _ in 0..8 {
            let opened = busy.connect("stream.test:80", &token).await;
            let (mut send, content) = opened.unwrap();
            send.send_data(get("/endless", "").into(), false).unwrap();
            streams.push((send, content));
        }
        let ended = tokio::time::timeout(Duration::from_secs(6), idle.serving).await;
        assert!(ended.is_ok());
        assert!(!busy.serving.is_finished());
        // Each stream counts as a connection of its session, and the connections themselves do.
        let mut more = Connection::open(&rig, "").await;
        let mut opened = 0;
        let refused = loop {
            match more.send((Method::CONNECT, "stream.test:80"), &token).await {
                Ok((status, send, content)) => {
                    assert_eq!(status, 200);
                    streams.push((send, content));
                    opened += 1;
                }
                Err(error) => break error,
            }
        };
        assert_eq!(
            (opened, refused.reason()),
            (2, Some(Reason::REFUSED_STREAM))
        );
        streams.truncate(1);
        // A listener that goes says GOAWAY, and waits for what is under way.
        rig.program.edit(|text| {
            text.replace(
                "session = \"agent-1\"\nwho = [\"token\"]\n",
                "session = \"agent-2\"\n",
            )
        });
        rig.program.reload();
        let began = Instant::now();
        while busy
            .send((Method::CONNECT, "stream.test:80"), &token)
            .await
            .is_ok()
        {
            assert!(began.elapsed() < Duration::from_secs(3));
        }
        assert!(streams[0].1.data().await.unwrap().is_ok());
        read(&mut streams[0].1).await;
        assert!(
            began.elapsed() > Duration::from_secs(3),
            "{:?}",
            began.elapsed()
        );
    });
}

#[test]
fn streams_that_are_reset_at_once_end_their_connection() {
    let rig = Rig::start("", "session = \"agent-1\"");
    run(async {
        let connection = Connection::open(&rig, "").await;
        let mut requests = connection.requests.clone();
        for _ in 0..20_000 {
            let Ok(ready) = requests.clone().ready().await else {
                break;
            };
            requests = ready;
            let request = Request::connect("stream.test:80").body(()).unwrap();
            let Ok((answer, mut send)) = requests.send_request(request, false) else {
                break;
            };
            send.send_reset(Reason::CANCEL);
            drop(answer);
        }
        let ended = tokio::time::timeout(Duration::from_secs(10), connection.serving).await;
        assert!(ended.is_ok(), "it goes on");
        let mut other = Connection::open(&rig, "").await;
        let answer = other.ask(("stream.test:80", ""), &get("/", "")).await;
        assert!(answer.ends_with("ok"), "{answer}");
    });
}

#[test]
fn a_certificate_is_of_all_streams_until_it_is_listed() {
    for who in ["\"certificate\"", "\"token\", \"certificate\""] {
        let rig = Rig::start(TRUST, &format!("session = \"agent-1\"\nwho = [{who}]"));
        let folder = rig.program.folder.path();
        rig.clients
            .issue(folder, "good", client("", &["spiffe://example.org/a"]));
        let has_token = who.contains("token");
        let token = has_token.then(|| text(&mint(&rig.program, &[])));
        let token = token.unwrap_or_default();
        run(async {
            let mut connection = Connection::open(&rig, "good").await;
            let opened = connection.connect("stream.test:80", &token).await;
            let (mut send, mut content) = opened.unwrap();
            send.send_data(get("/endless", "").into(), false).unwrap();
            assert!(content.data().await.unwrap().is_ok());
            rig.list(&[7]);
            rig.program.reload();
            // Neither does a token keep it.
            let until = Instant::now() + Duration::from_secs(3);
            let mut kept = Vec::new();
            while Instant::now() < until {
                let to = (Method::CONNECT, "stream.test:80");
                match connection.send(to, &token).await {
                    Ok(sent) => kept.push(sent),
                    Err(_) => break,
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            assert!(kept.iter().all(|sent| sent.0 == 403), "{who}");
            read(&mut content).await;
        });
        let records = rig.program.records("exchange");
        let user = records[0]["user"].as_str();
        assert_eq!(user, Some("spiffe://example.org/a"), "{records:#?}");
    }
}

#[test]
fn a_websocket_inside_a_stream_is_neither_idle_nor_cut_while_its_connection_drains() {
    let limits = "[limits]\nidle_timeout = \"1s\"\ndrain_timeout = \"7s\"";
    let rig = Rig::start("", &format!("session = \"agent-1\"\n{limits}"));
    reach(&rig, "socket.test", sockets());
    run(async {
        let mut connection = Connection::open(&rig, "").await;
        let opened = connection.connect("socket.test:80", "").await;
        let (mut send, mut content) = opened.unwrap();
        let asked = "GET / HTTP/1.1\r\nHost: socket.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
        send.send_data(asked.into(), false).unwrap();
        let head = content.data().await.unwrap().unwrap();
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{head:?}");
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(4)).await;
            let frame = b"\x81\x82\0\0\0\0hi";
            send.send_data(Bytes::from_static(frame), false).unwrap();
            let answer = content.data().await.unwrap().unwrap();
            assert_eq!(&answer[..], b"\x81\x02ok");
            rig.program
                .edit(|text| text.replace("\"agent-1\"\n[limits]", "\"agent-2\"\n[limits]"));
            rig.program.reload();
        }
        read(&mut content).await;
    });
}

/// An origin of WebSockets that answers each message.
fn sockets() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut part = [0; 4096];
            let read = stream.read(&mut part).unwrap();
            let head = String::from_utf8_lossy(&part[..read]).to_ascii_lowercase();
            let at = head.find("sec-websocket-key: ").unwrap() + 19;
            let key = [&part[at..at + 24], b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
            let accept = STANDARD.encode(Sha1::digest(key));
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: {accept}\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).unwrap();
            while stream.read(&mut part).is_ok_and(|read| read > 0) {
                let _ = stream.write_all(b"\x81\x02ok");
            }
        }
    });
    address
}

#[test]
fn a_stream_has_its_place_until_its_client_has_taken_all() {
    let limits = "[limits]\nhandshake_timeout = \"30s\"\nidle_timeout = \"1s\"\n\
        progress_timeout = \"5s\"\nconnections_per_session = 4";
    let rig = Rig::start("", &format!("session = \"agent-1\"\n{limits}"));
    run(async {
        let mut connection = Connection::with_window(&rig, "", 0).await;
        // The first keeps the connection busy.
        let mut streams = Vec::new();
        for asked in [Vec::new(), get("/", ""), get("/", "")] {
            let (mut send, content) = connection.connect("stream.test:80", "").await.unwrap();
            send.send_data(asked.into(), false).unwrap();
            streams.push((send, content));
        }
        // By then the others are idle and were cut.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let to = (Method::CONNECT, "stream.test:80");
        let more = connection.send(to, "").await;
        let reason = more.err().and_then(|error| error.reason());
        assert_eq!(reason, Some(Reason::REFUSED_STREAM));
        // Nobody has it for ever.
        let ended = tokio::time::timeout(Duration::from_secs(15), connection.serving).await;
        assert!(ended.is_ok());
    });
}

#[test]
fn the_first_stream_of_a_connection_needs_a_place_for_that_too() {
    let limits = "[limits]\nhandshake_timeout = \"5s\"\nconnections_per_session = 3";
    let rig = Rig::start("", &format!("session = \"agent-1\"\n{limits}"));
    run(async {
        let mut other = Connection::open(&rig, "").await;
        let held = other.connect("stream.test:80", "").await.unwrap();
        let mut connection = Connection::open(&rig, "").await;
        let to = (Method::CONNECT, "stream.test:80");
        let refused = connection.send(to.clone(), "").await.unwrap_err();
        assert_eq!(refused.reason(), Some(Reason::REFUSED_STREAM));
        other.serving.abort();
        drop((held, other));
        let (mut send, mut content) = loop {
            if let Ok((_, send, content)) = connection.send(to.clone(), "").await {
                break (send, content);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        send.send_data(get("/endless", "").into(), false).unwrap();
        let until = Instant::now() + Duration::from_secs(6);
        while Instant::now() < until {
            let part = content.data().await.unwrap().unwrap();
            let _ = content.flow_control().release_capacity(part.len());
        }
    });
}

#[test]
fn streams_that_are_not_read_are_bounded_and_are_in_no_others_way() {
    let rig = Rig::start("", "session = \"agent-1\"");
    origin_of_large(&rig);
    run(async {
        let mut connection = Connection::open(&rig, "").await;
        let before = resident(rig.program.child.id());
        let mut unread = Vec::new();
        let get = |parts: usize| -> Bytes {
            format!("GET /{parts} HTTP/1.1\r\nHost: large.test\r\n{CLOSE}\r\n").into()
        };
        for _ in 0..32 {
            let opened = connection.connect("large.test:80", "").await;
            let (mut send, content) = opened.unwrap();
            send.send_data(get(64), false).unwrap();
            unread.push((send, content));
        }
        let (mut send, mut content) = connection.connect("large.test:80", "").await.unwrap();
        send.send_data(get(16), false).unwrap();
        assert!(read(&mut content).await.len() > 16 << 20);
        let grown = resident(rig.program.child.id()).saturating_sub(before);
        println!("32 streams of 64 MiB that nobody reads: {grown} KiB");
        assert!(grown < 32 << 10, "{grown}");
    });
}

/// What a process has in memory, in KiB.
fn resident(id: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn clients_in_other_languages_open_streams() {
    let rig = Rig::start("", "session = \"agent-1\"\nwho = [\"token\"]");
    let token = text(&mint(&rig.program, &[]));
    let node = "const proxy = require('node:http2').connect(process.argv[1],
            { ca: require('node:fs').readFileSync('server-root.pem') });
        const stream = proxy.request({ ':method': 'CONNECT', ':authority': 'stream.test:80',
            'proxy-authorization': 'Bearer ' + process.env.TOKEN });
        stream.on('response', head => stream.write(head[':status'] === 200 ?
            'GET / HTTP/1.1\\r\\nHost: stream.test\\r\\nConnection: close\\r\\n\\r\\n' : ''));
        stream.on('data', part => process.stdout.write(part));
        stream.on('end', () => proxy.close());";
    let proxy = format!("https://{}", rig.address);
    let mut program = Command::new("node");
    program.args(["-e", node, &proxy]).env("TOKEN", &token);
    says_ok(program.current_dir(rig.program.folder.path()));
    let known = Command::new("curl").args(["--help", "all"]).output();
    // Of 8.1.
    if String::from_utf8_lossy(&known.unwrap().stdout).contains("--proxy-http2") {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--proxy-http2", "--proxytunnel", "--proxy", &proxy]);
        curl.args(["--proxy-cacert", "server-root.pem", "--proxy-user"]);
        curl.args([&format!("gateway:{token}"), "http://stream.test/"]);
        says_ok(curl.current_dir(rig.program.folder.path()));
    }
}

fn says_ok(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.ends_with("ok"), "{output:?}");
}
