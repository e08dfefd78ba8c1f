//! The test's origins: E keeps every byte it receives and responds by script; X must never be
//! touched.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::LazyConfigAcceptor;

use super::certificates::{Authority, ByName};

/// One request as an origin received it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Which connection, counted from 1.
    pub connection: u64,
    /// The name in the gateway's ClientHello; empty without TLS.
    pub sni: String,
    /// The method.
    pub method: String,
    /// The target as written in the request line, or `:path`.
    pub target: String,
    /// Host, or `:authority`.
    pub host: String,
    /// The fields in order, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The content without its framing.
    pub body: Vec<u8>,
    /// Every byte of it, as far as HTTP/1.1 has them.
    pub raw: Vec<u8>,
    /// Whether it came over HTTP/2.
    pub http2: bool,
}

impl Seen {
    /// The values of a field.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.fields
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
            .collect()
    }
}

/// What E does with a request.
#[derive(Clone)]
pub enum Step {
    /// Writes bytes, and flushes them.
    Bytes(Vec<u8>),
    /// Waits.
    Pause(u64),
    /// Writes bytes like an origin this many milliseconds away: after each wait for the reader it
    /// sends nothing for that long.
    Far(Vec<u8>, u64),
    /// Returns every byte that arrives from now on.
    Echo,
    /// Reads the messages of a WebSocket, keeps them without their masks, and returns each frame,
    /// until one closes it.
    Messages,
    /// Closes the connection.
    Close,
    /// Ends the connection without closing its TLS.
    Drop,
}

/// E's response over HTTP/2.
#[derive(Clone, Default)]
pub struct Answer {
    /// The status; 200 unless given.
    pub status: u16,
    /// Fields.
    pub fields: Vec<(&'static str, String)>,
    /// Content, a frame each.
    pub data: Vec<Vec<u8>>,
    /// Milliseconds between two of them.
    pub pause: u64,
    /// Milliseconds until the origin learns that the window has opened.
    pub far: u64,
    /// Trailers.
    pub trailers: Vec<(&'static str, String)>,
    /// Whether the stream is refused instead (RFC 9113 §8.7).
    pub refused: bool,
}

type Script = Arc<dyn Fn(&Seen) -> Vec<Step> + Send + Sync>;
type Script2 = Arc<dyn Fn(&Seen) -> Answer + Send + Sync>;

/// E and X.
#[derive(Clone)]
pub struct Origins {
    /// Where E speaks TLS.
    pub tls: SocketAddr,
    /// Where E speaks without TLS.
    pub clear: SocketAddr,
    /// Where X is.
    pub x: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    scripts: Mutex<HashMap<String, Script>>,
    scripts2: Mutex<HashMap<String, Script2>>,
    seen: Mutex<Vec<Seen>>,
    raw: Mutex<Vec<u8>>,
    connections: AtomicU64,
    touched: AtomicU64,
}

impl Origins {
    /// Starts both.
    pub fn start(authority: &Arc<Authority>) -> Self {
        let bind = |address: &str| {
            let listener = std::net::TcpListener::bind(address).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        };
        let (tls, clear, x) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"), bind("0.0.0.0:0"));
        let origins = Self {
            tls: tls.local_addr().unwrap(),
            clear: clear.local_addr().unwrap(),
            x: SocketAddr::new(
                "127.0.0.66".parse().unwrap(),
                x.local_addr().unwrap().port(),
            ),
            state: Arc::default(),
        };
        let (state, names) = (origins.state.clone(), Arc::new(ByName(authority.clone())));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let untouchable = TcpListener::from_std(x).unwrap();
                let counted = state.clone();
                tokio::spawn(async move {
                    while let Ok(_touch) = untouchable.accept().await {
                        counted.touched.fetch_add(1, Ordering::SeqCst);
                    }
                });
                let plain = TcpListener::from_std(clear).unwrap();
                let shared = state.clone();
                tokio::spawn(async move {
                    while let Ok((stream, _)) = plain.accept().await {
                        let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
                        tokio::spawn(http1(stream, shared.clone(), number, String::new()));
                    }
                });
                let secure = TcpListener::from_std(tls).unwrap();
                while let Ok((stream, _)) = secure.accept().await {
                    tokio::spawn(handshake(stream, state.clone(), names.clone()));
                }
            });
        });
        origins
    }

    /// Sets how E responds to requests for a path over HTTP/1.1.
    pub fn on(&self, path: &str, script: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) {
        self.state
            .scripts
            .lock()
            .unwrap()
            .insert(path.to_owned(), Arc::new(script));
    }

    /// Sets how E responds to requests for a path over HTTP/2.
    pub fn on2(&self, path: &str, script: impl Fn(&Seen) -> Answer + Send + Sync + 'static) {
        self.state
            .scripts2
            .lock()
            .unwrap()
            .insert(path.to_owned(), Arc::new(script));
    }

    /// What E has received since the last call.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state.seen.lock().unwrap())
    }

    /// Every byte that E has received since the last call, after decryption.
    pub fn take_raw(&self) -> Vec<u8> {
        std::mem::take(&mut self.state.raw.lock().unwrap())
    }

    /// Gives back bytes that were looked at, to be counted.
    pub fn put_raw(&self, bytes: &[u8]) {
        self.state.raw.lock().unwrap().extend_from_slice(bytes);
    }

    /// Forgets that X was touched, for the test that touches it itself.
    pub fn forget_touches(&self) {
        self.state.touched.store(0, Ordering::SeqCst);
    }

    /// How often X was touched.
    pub fn touched(&self) -> u64 {
        self.state.touched.load(Ordering::SeqCst)
    }
}

/// An HTTP/1.1 response with a length.
pub fn ok(fields: &str, body: &[u8]) -> Vec<Step> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n",
        body.len()
    );
    vec![Step::Bytes([head.as_bytes(), body].concat())]
}

async fn handshake(stream: TcpStream, state: Arc<State>, names: Arc<ByName>) {
    let number = state.connections.fetch_add(1, Ordering::SeqCst) + 1;
    let Ok(start) = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await
    else {
        return;
    };
    let sni = start
        .client_hello()
        .server_name()
        .unwrap_or_default()
        .to_owned();
    let versions: &[&rustls::SupportedProtocolVersion] = if sni.starts_with("tls12") {
        &[&rustls::version::TLS12]
    } else {
        rustls::ALL_VERSIONS
    };
    let mut config = ServerConfig::builder_with_protocol_versions(versions)
        .with_no_client_auth()
        .with_cert_resolver(names);
    let http2 = sni.starts_with("h2");
    let is_either = sni.starts_with("h2-either");
    let spoken = [(http2, "h2"), (!http2 || is_either, "http/1.1")];
    let spoken = spoken.iter().filter(|(speaks, _)| *speaks);
    config.alpn_protocols = spoken.map(|(_, name)| name.as_bytes().to_vec()).collect();
    let Ok(stream) = start.into_stream(Arc::new(config)).await else {
        return;
    };
    let http2 = http2 && stream.get_ref().1.alpn_protocol() == Some(b"h2");
    if sni.starts_with("h2-frail") {
        frail(stream, state, number).await;
    } else if http2 {
        speak2(stream, state, number, sni).await;
    } else {
        http1(stream, state, number, sni).await;
    }
}

async fn http1(
    mut io: impl AsyncRead + AsyncWrite + Unpin,
    state: Arc<State>,
    connection: u64,
    sni: String,
) {
    let mut buffer = Vec::new();
    loop {
        let Some(mut seen) = request(&mut io, &mut buffer, &state).await else {
            return;
        };
        seen.connection = connection;
        seen.sni.clone_from(&sni);
        let path = seen.target.split('?').next().unwrap_or_default().to_owned();
        let script = state.scripts.lock().unwrap().get(&path).cloned();
        let steps = script.map_or_else(|| ok("", b"E answers\n"), |script| script(&seen));
        state.seen.lock().unwrap().push(seen);
        for step in steps {
            match step {
                Step::Bytes(bytes) => {
                    if io.write_all(&bytes).await.is_err() || io.flush().await.is_err() {
                        return;
                    }
                }
                Step::Pause(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                Step::Far(bytes, ms) => {
                    for piece in bytes.chunks(1009) {
                        let started = Instant::now();
                        if io.write_all(piece).await.is_err() || io.flush().await.is_err() {
                            return;
                        }
                        if started.elapsed() > Duration::from_millis(20) {
                            tokio::time::sleep(Duration::from_millis(ms)).await;
                        }
                    }
                }
                Step::Echo => {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = io.read(&mut bytes).await {
                        state.raw.lock().unwrap().extend_from_slice(&bytes[..count]);
                        if io.write_all(&bytes[..count]).await.is_err() || io.flush().await.is_err()
                        {
                            return;
                        }
                    }
                    return;
                }
                Step::Messages => return messages(&mut io, &state).await,
                Step::Drop => return,
                Step::Close => {
                    let _ = io.shutdown().await;
                    return;
                }
            }
        }
    }
}

async fn messages(io: &mut (impl AsyncRead + AsyncWrite + Unpin), state: &State) {
    let mut bytes = Vec::new();
    loop {
        while let Some((frame, length)) = unmasked(&bytes) {
            bytes.drain(..length);
            state.raw.lock().unwrap().extend_from_slice(&frame);
            if io.write_all(&frame).await.is_err() || io.flush().await.is_err() {
                return;
            }
            if frame[0] == 0x88 {
                let _ = io.shutdown().await;
                return;
            }
        }
        if !matches!(io.read_buf(&mut bytes).await, Ok(1..)) {
            return;
        }
    }
}

/// The first frame of a client as a server would write it, and its length as it came.
fn unmasked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (length, at) = match bytes.get(1)? & 0x7f {
        126 => (
            u64::from(u16::from_be_bytes(*bytes.get(2..4)?.first_chunk()?)),
            4,
        ),
        127 => (u64::from_be_bytes(*bytes.get(2..10)?.first_chunk()?), 10),
        short => (u64::from(short), 2),
    };
    let (mask, end) = (bytes.get(at..at + 4)?, at + 4 + length as usize);
    let payload = bytes.get(at + 4..end)?.iter().zip(mask.iter().cycle());
    let mut frame = bytes[..at].to_vec();
    frame[1] &= 0x7f;
    frame.extend(payload.map(|(byte, mask)| byte ^ mask));
    Some((frame, end))
}

/// Reads bytes until `enough` returns how many of them belong together.
async fn until(
    io: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    state: &State,
    enough: impl Fn(&[u8]) -> Option<usize>,
) -> Option<usize> {
    loop {
        if let Some(length) = enough(buffer) {
            return Some(length);
        }
        let mut bytes = [0; 16384];
        let count = io.read(&mut bytes).await.ok().filter(|count| *count > 0)?;
        state.raw.lock().unwrap().extend_from_slice(&bytes[..count]);
        buffer.extend_from_slice(&bytes[..count]);
    }
}

/// Reads one request as leniently as an origin may: the next one follows it.
async fn request(
    io: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    state: &State,
) -> Option<Seen> {
    let find = |bytes: &[u8], what: &[u8]| memchr::memmem::find(bytes, what);
    let head_length = until(io, buffer, state, |bytes| {
        find(bytes, b"\r\n\r\n").map(|at| at + 4)
    })
    .await?;
    let head = String::from_utf8_lossy(&buffer[..head_length]).into_owned();
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.splitn(3, ' ');
    let mut seen = Seen {
        method: words.next()?.to_owned(),
        target: words.next().unwrap_or_default().to_owned(),
        ..Seen::default()
    };
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        seen.fields
            .push((name.to_lowercase(), value.trim().to_owned()));
    }
    seen.host = seen.all("host").join("|");
    let mut end = head_length;
    if seen.all("transfer-encoding").contains(&"chunked") {
        loop {
            let line = until(io, buffer, state, |bytes| {
                find(&bytes[end..], b"\r\n").map(|at| end + at)
            })
            .await?;
            let size =
                usize::from_str_radix(std::str::from_utf8(&buffer[end..line]).ok()?.trim(), 16)
                    .ok()?;
            let data = line + 2;
            if size == 0 {
                let trailers = until(io, buffer, state, |bytes| {
                    if bytes.get(data..data + 2)? == b"\r\n" {
                        return Some(data + 2);
                    }
                    find(&bytes[data..], b"\r\n\r\n").map(|at| data + at + 4)
                })
                .await?;
                end = trailers;
                break;
            }
            until(io, buffer, state, |bytes| {
                (bytes.len() >= data + size + 2).then_some(0)
            })
            .await?;
            seen.body.extend_from_slice(&buffer[data..data + size]);
            end = data + size + 2;
        }
    } else if let Some(length) = seen
        .all("content-length")
        .first()
        .and_then(|length| length.parse::<usize>().ok())
        // Answered before its content has come.
        .filter(|_| !seen.target.starts_with("/early"))
    {
        until(io, buffer, state, |bytes| {
            (bytes.len() >= head_length + length).then_some(0)
        })
        .await?;
        end += length;
        seen.body = buffer[head_length..end].to_vec();
    }
    seen.raw = buffer.drain(..end).collect();
    Some(seen)
}

async fn speak2(
    io: impl AsyncRead + AsyncWrite + Unpin,
    state: Arc<State>,
    connection: u64,
    sni: String,
) {
    let Ok(mut serving) = h2::server::handshake(io).await else {
        return;
    };
    while let Some(Ok((request, respond))) = serving.accept().await {
        tokio::spawn(stream2(
            request,
            respond,
            state.clone(),
            connection,
            sni.clone(),
        ));
    }
}

/// Speaks HTTP/2 by hand: after some streams it says GOAWAY, ignores every later one, answers those
/// before it, and closes.
async fn frail(mut io: impl AsyncRead + AsyncWrite + Unpin, state: Arc<State>, connection: u64) {
    // A few of 61 places where it may happen, another for each connection.
    let most = 1 + connection * 37 % 61 % 19;
    let (mut taken, mut unanswered, mut ended) = (0, Vec::new(), Vec::new());
    let frame = |kind: u8, flags: u8, stream: u32, content: &[u8]| {
        let length = (content.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
    };
    let mut preface = [0; 24];
    if io.read_exact(&mut preface).await.is_err() {
        return;
    }
    let mut out = frame(4, 0, 0, b"");
    loop {
        if io.write_all(&out).await.is_err() || io.flush().await.is_err() {
            return;
        }
        out.clear();
        if taken == most && unanswered.is_empty() {
            break;
        }
        let mut head = [0; 9];
        if io.read_exact(&mut head).await.is_err() {
            return;
        }
        let mut content = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        if io.read_exact(&mut content).await.is_err() {
            return;
        }
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        match head[3] {
            4 if head[4] == 0 => out = frame(4, 1, 0, b""),
            6 if head[4] == 0 => out = frame(6, 1, 0, &content),
            1 if taken < most => {
                taken += 1;
                unanswered.push(stream);
                if taken == most {
                    let last = [&stream.to_be_bytes()[..], &[0; 4]].concat();
                    out = frame(7, 0, 0, &last);
                }
            }
            _ => {}
        }
        if matches!(head[3], 0 | 1) && head[4] & 1 == 1 {
            ended.push(stream);
        }
        for stream in unanswered.extract_if(.., |one| ended.contains(one)) {
            let seen = Seen {
                connection,
                http2: true,
                ..Seen::default()
            };
            state.seen.lock().unwrap().push(seen);
            out.extend(frame(1, 5, stream, &[0x88]));
        }
    }
    // What comes meanwhile is read, so that the system does not reset the connection.
    let _ = io.shutdown().await;
    let _ = io.read_to_end(&mut Vec::new()).await;
}

async fn stream2(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    state: Arc<State>,
    connection: u64,
    sni: String,
) {
    let (parts, mut content) = request.into_parts();
    let mut seen = Seen {
        connection,
        sni,
        method: parts.method.to_string(),
        target: parts
            .uri
            .path_and_query()
            .map(ToString::to_string)
            .unwrap_or_default(),
        host: parts
            .uri
            .authority()
            .map(ToString::to_string)
            .unwrap_or_default(),
        http2: true,
        ..Seen::default()
    };
    for (name, value) in &parts.headers {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        seen.fields.push((name.to_string(), value));
    }
    if seen.sni.starts_with("h2-either") {
        return respond.send_reset(h2::Reason::HTTP_1_1_REQUIRED);
    }
    while let Some(data) = content.data().await {
        // A request that was cut off was not seen.
        let Ok(data) = data else { return };
        let _ = content.flow_control().release_capacity(data.len());
        seen.body.extend_from_slice(&data);
    }
    let path = seen.target.split('?').next().unwrap_or_default().to_owned();
    let script = state.scripts2.lock().unwrap().get(&path).cloned();
    let answer = script.map_or_else(
        || Answer {
            data: vec![b"E answers over h2\n".to_vec()],
            ..Answer::default()
        },
        |script| script(&seen),
    );
    if answer.refused {
        return respond.send_reset(h2::Reason::REFUSED_STREAM);
    }
    let mut raw = format!("{} {} {}\n", seen.method, seen.target, seen.host).into_bytes();
    for (name, value) in &seen.fields {
        raw.extend_from_slice(format!("{name}: {value}\n").as_bytes());
    }
    raw.extend_from_slice(&seen.body);
    state.raw.lock().unwrap().extend_from_slice(&raw);
    state.seen.lock().unwrap().push(seen);
    let mut response = http::Response::new(());
    *response.status_mut() = StatusCode::from_u16(answer.status.max(200)).unwrap();
    for (name, value) in &answer.fields {
        response.headers_mut().append(*name, value.parse().unwrap());
    }
    let over = answer.data.is_empty() && answer.trailers.is_empty();
    let Ok(mut send) = respond.send_response(response, over) else {
        return;
    };
    let last = answer.data.len();
    for (at, data) in answer.data.into_iter().enumerate() {
        if at > 0 && answer.pause > 0 {
            tokio::time::sleep(Duration::from_millis(answer.pause)).await;
        }
        let mut data = Bytes::from(data);
        while answer.far > 0 && !data.is_empty() {
            send.reserve_capacity(data.len());
            let Some(Ok(room)) = std::future::poll_fn(|cx| send.poll_capacity(cx)).await else {
                return;
            };
            tokio::time::sleep(Duration::from_millis(answer.far)).await;
            let piece = data.split_to(room.min(data.len()));
            if send.send_data(piece, false).is_err() {
                return;
            }
        }
        let end = at + 1 == last && answer.trailers.is_empty();
        if send.send_data(data, end).is_err() {
            return;
        }
    }
    if !answer.trailers.is_empty() {
        let mut trailers = HeaderMap::new();
        for (name, value) in &answer.trailers {
            trailers.append(*name, value.parse().unwrap());
        }
        let _ = send.send_trailers(trailers);
    }
}
