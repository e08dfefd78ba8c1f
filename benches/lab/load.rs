//! The client: it opens connections, and sends so many requests over them.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::origin::{self, EVENT};
use crate::phases::{Phase, World};
use crate::proxies::{Failure, PASSWORD};

static CALL: AtomicU64 = AtomicU64::new(0);

/// How a client gets to the origin.
pub struct Door {
    /// Whom it dials.
    pub address: SocketAddr,
    /// Whether it asks there for a tunnel, or speaks TLS at once.
    pub connect: bool,
    /// Name, and port unless that is 443, of whom it believes to talk to.
    pub host: String,
    /// The credential that it sends, which proxies replace.
    pub token: &'static str,
}

/// What an exchange took.
struct Took {
    first: Duration,
    whole: Duration,
}

/// What a load took.
#[derive(Default)]
pub struct Tally {
    /// Microseconds until the first piece of each answer's content, sorted.
    pub first: Vec<f64>,
    /// Microseconds until the last, sorted.
    pub whole: Vec<f64>,
}

/// Takes any certificate: the origin tells whether the way was right, and a thousand sessions have
/// as many CAs.
#[derive(Debug)]
struct Any(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

fn tls(http2: bool) -> tokio_rustls::TlsConnector {
    let known = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    let config = ClientConfig::builder().dangerous();
    let config = config.with_custom_certificate_verifier(Arc::new(Any(known)));
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![if http2 { "h2" } else { "http/1.1" }.into()];
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config).into()
}

#[derive(Clone)]
enum Sender {
    One(Rc<tokio::sync::Mutex<http1::SendRequest<Full<Bytes>>>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

async fn open(door: &Door, two: bool, user: Option<usize>) -> Result<Sender, Failure> {
    let mut stream = TcpStream::connect(door.address).await?;
    stream.set_nodelay(true)?;
    let name = door.host.split(':').next().unwrap_or_default().to_owned();
    if door.connect {
        let port = if door.host.contains(':') { "" } else { ":443" };
        let target = format!("{}{port}", door.host);
        let mut ask = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        if let Some(user) = user {
            let shown = format!("user{user}:{PASSWORD}");
            let shown = base64::engine::general_purpose::STANDARD.encode(shown);
            ask.push_str(&format!("Proxy-Authorization: Basic {shown}\r\n"));
        }
        stream.write_all((ask + "\r\n").as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut head).await? == 0 {
                return Err(format!("no tunnel: {}", String::from_utf8_lossy(&head)).into());
            }
        }
        if !head.starts_with(b"HTTP/1.1 200") {
            return Err(format!("no tunnel: {}", String::from_utf8_lossy(&head)).into());
        }
    }
    let stream = tls(two)
        .connect(ServerName::try_from(name)?, stream)
        .await?;
    Ok(if two {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(8 << 20)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        Sender::Two(sender)
    } else {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Sender::One(Rc::new(sender.into()))
    })
}

/// Sends a phase's request, and reads all of the answer, which must be 200.
async fn exchange(
    sender: &Sender,
    phase: &Phase,
    content: &Bytes,
    door: &Door,
) -> Result<(Took, Vec<u8>), Failure> {
    let (began, host) = (Instant::now(), &door.host);
    let mut request = Request::builder()
        .method(&*phase.method)
        .header("user-agent", "laboratory")
        .header("accept", "*/*");
    let call = CALL.fetch_add(1, Ordering::Relaxed).to_string();
    let path = phase.path.replace("{call}", &call);
    request = match sender {
        Sender::One(_) => request.uri(path).header("host", host),
        Sender::Two(_) => request.uri(format!("https://{host}{path}")),
    };
    if phase.is_lent() {
        request = request.header("authorization", format!("Bearer {}", door.token));
    }
    if !content.is_empty() {
        request = request.header("content-type", &phase.kind);
    }
    let is_stream = phase.path.starts_with("/chat/");
    let steps = is_stream.then(|| origin::steps(&call));
    if steps.is_some() {
        request = request.header("x-lab-call", &call);
    }
    let request = request.body(Full::new(content.clone()))?;
    let mut answer = match sender.clone() {
        Sender::One(sender) => {
            let mut sender = sender.lock().await;
            sender.ready().await?;
            sender.send_request(request).await?
        }
        Sender::Two(mut sender) => sender.send_request(request).await?,
    };
    let (mut first, mut bytes, mut text, mut read) = (None, 0, Vec::new(), 0);
    while let Some(frame) = answer.frame().await {
        let data = frame?.into_data().unwrap_or_default();
        first.get_or_insert_with(|| began.elapsed());
        bytes += data.len();
        if text.len() < 4096 {
            text.extend_from_slice(&data[..data.len().min(4096)]);
        }
        if let Some(steps) = &steps {
            steps.add_permits(bytes / EVENT - read);
            read = bytes / EVENT;
        }
    }
    if answer.status() != 200 {
        let text = String::from_utf8_lossy(&text);
        return Err(format!("{} {text}", answer.status()).into());
    }
    let whole = began.elapsed();
    let first = first.unwrap_or(whole);
    Ok((Took { first, whole }, text))
}

/// Connections that are kept, each with its own session where the phase says so.
pub struct Clients {
    door: Rc<Door>,
    phase: &'static Phase,
    streams: usize,
    senders: Vec<Sender>,
    content: Bytes,
}

impl Clients {
    /// Opens them, and sends one request over each. A login is made first where one is renewed.
    pub async fn open(
        door: Door,
        phase: &'static Phase,
        (connections, streams): (usize, usize),
        phantom: &str,
    ) -> Result<Self, Failure> {
        let mut senders = Vec::new();
        for user in 0..connections {
            let user = (phase.world == World::Sessions).then_some(user);
            senders.push(open(&door, phase.two, user).await?);
        }
        let mut token = phantom.to_owned();
        if phase.path == "/token" {
            let code = Bytes::from("grant_type=authorization_code&code=c&client_id=lab");
            let (_, answer) = exchange(&senders[0], phase, &code, &door).await?;
            let answer: serde_json::Value = serde_json::from_slice(&answer)?;
            token = answer["refresh_token"].as_str().unwrap_or_default().into();
        }
        let content = phase.content(&token).into();
        for sender in &senders {
            exchange(sender, phase, &content, &door).await?;
        }
        Ok(Self {
            door: Rc::new(door),
            phase,
            streams,
            senders,
            content,
        })
    }

    /// Sends so many requests, but for at most so many seconds.
    pub async fn run(&self, requests: usize, seconds: f64) -> Result<Tally, Failure> {
        let (began, left) = (Instant::now(), Rc::new(Cell::new(requests)));
        let (mut tasks, streams) = (JoinSet::new(), self.streams);
        let together = (self.senders.len() * streams) as f64;
        let senders = self.senders.iter().flat_map(|one| vec![one; streams]);
        for (at, sender) in senders.enumerate() {
            let (mut sender, door, left) = (sender.clone(), self.door.clone(), left.clone());
            let (phase, content) = (self.phase, self.content.clone());
            tasks.spawn_local(async move {
                let mut took = Vec::new();
                while left.get() > 0 && began.elapsed().as_secs_f64() < seconds {
                    left.set(left.get() - 1);
                    let mut late = Duration::ZERO;
                    if phase.rate > 0.0 {
                        let due = (took.len() as f64 * together + at as f64) / phase.rate;
                        let due = began + Duration::from_secs_f64(due);
                        tokio::time::sleep_until(due.into()).await;
                        late = due.elapsed();
                    }
                    if phase.fresh {
                        sender = open(&door, phase.two, None).await?;
                    }
                    let (mut one, _) = exchange(&sender, phase, &content, &door).await?;
                    (one.first, one.whole) = (one.first + late, one.whole + late);
                    took.push(one);
                }
                Ok::<_, Failure>(took)
            });
        }
        let mut tally = Tally::default();
        // A proxy that hangs is an error, not a hang.
        let limit = Duration::from_secs_f64(seconds + 60.0);
        while let Some(one) = tokio::time::timeout(limit, tasks.join_next()).await? {
            for took in one?? {
                tally.first.push(took.first.as_secs_f64() * 1e6);
                tally.whole.push(took.whole.as_secs_f64() * 1e6);
            }
        }
        tally.first.sort_by(f64::total_cmp);
        tally.whole.sort_by(f64::total_cmp);
        Ok(tally)
    }
}
