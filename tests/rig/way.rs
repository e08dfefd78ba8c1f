//! The entry points of the gateway, and a client's end of each.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

/// Which listener, and whether TLS is inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Connect,
    Socks,
    Tls,
    Transparent,
    Forward,
    ConnectClear,
    SocksClear,
    TransparentClear,
}

impl Way {
    /// Those with TLS inside.
    pub const SECURE: [Self; 4] = [Self::Connect, Self::Socks, Self::Tls, Self::Transparent];
    /// Those in clear text.
    pub const CLEAR: [Self; 4] = [
        Self::Forward,
        Self::ConnectClear,
        Self::SocksClear,
        Self::TransparentClear,
    ];
    /// All.
    pub const ALL: [Self; 8] = [
        Self::Connect,
        Self::Socks,
        Self::Tls,
        Self::Transparent,
        Self::Forward,
        Self::ConnectClear,
        Self::SocksClear,
        Self::TransparentClear,
    ];

    /// Whether it leads through the sandbox.
    pub fn is_transparent(self) -> bool {
        matches!(self, Self::Transparent | Self::TransparentClear)
    }

    /// Whether TLS is inside.
    pub fn is_secure(self) -> bool {
        Self::SECURE.contains(&self)
    }

    /// The default port.
    pub fn port(self) -> u16 {
        if self.is_secure() { 443 } else { 80 }
    }
}

/// A byte stream: a connection, or one that the relay carries.
pub enum Raw {
    Tcp(TcpStream),
    Relay(UnixStream),
}

impl Raw {
    fn prepare(&self) {
        let limit = Some(Duration::from_secs(8));
        match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(limit).unwrap();
            }
            Self::Relay(stream) => stream.set_read_timeout(limit).unwrap(),
        }
    }

    /// A second handle of the same stream.
    pub fn twin(&self) -> Self {
        match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone().unwrap()),
            Self::Relay(stream) => Self::Relay(stream.try_clone().unwrap()),
        }
    }

    /// Ends the direction away from here.
    pub fn finish(&self) {
        self.end(Shutdown::Write);
    }

    /// Ends both directions.
    pub fn close(&self) {
        self.end(Shutdown::Both);
    }

    fn end(&self, which: Shutdown) {
        // It may have ended already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(which),
            Self::Relay(stream) => stream.shutdown(which),
        };
    }
}

impl Read for Raw {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Relay(stream) => stream.read(buffer),
        }
    }
}

impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Relay(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Inner {
    Clear(Raw),
    Tls(Box<StreamOwned<ClientConnection, Raw>>),
}

/// A client's connection. Whatever it reads counts as visible to the sandbox.
pub struct Wire {
    inner: Inner,
    visible: Arc<Mutex<Vec<u8>>>,
    ahead: Vec<u8>,
}

/// An answer of HTTP/1.1.
#[derive(Clone, Default)]
pub struct Response {
    /// The status; 0 if the connection ended without a response.
    pub status: u16,
    /// The head as it arrived.
    pub head: String,
    /// The content without its framing.
    pub body: Vec<u8>,
    /// Trailers as they arrived.
    pub trailers: String,
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.status, self.text())
    }
}

impl Response {
    /// The first value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.split("\r\n").skip(1).find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// The reason of a refusal, or an empty text.
    pub fn reason(&self) -> String {
        // Whatever form the content has for the service's clients.
        let status = self.field("proxy-status").unwrap_or_default();
        let details = status.split("details=\"").nth(1).unwrap_or_default();
        details.split('"').next().unwrap_or_default().to_owned()
    }

    /// Content as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Wire {
    /// A stream without TLS.
    pub fn clear(raw: Raw, visible: &Arc<Mutex<Vec<u8>>>) -> Self {
        raw.prepare();
        // What two connections saw is kept apart: joined it could look like something that neither
        // saw.
        visible.lock().unwrap().push(b'\n');
        Self {
            inner: Inner::Clear(raw),
            visible: visible.clone(),
            ahead: Vec::new(),
        }
    }

    /// Performs the TLS handshake inside; without a name no SNI is sent.
    pub fn secure(self, sni: Option<&str>, alpn: &[&str]) -> io::Result<Self> {
        let mut config = ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anything))
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        self.secure_with(Arc::new(config), sni)
    }

    /// Performs the TLS handshake inside with a configuration.
    pub fn secure_with(self, config: Arc<ClientConfig>, sni: Option<&str>) -> io::Result<Self> {
        let Inner::Clear(mut raw) = self.inner else {
            panic!("TLS inside TLS is not what a test means");
        };
        let name = match sni {
            Some(name) => ServerName::try_from(name.to_owned()).unwrap(),
            None => ServerName::try_from("192.0.2.1").unwrap(),
        };
        let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut raw)?;
        }
        Ok(Self {
            inner: Inner::Tls(Box::new(StreamOwned::new(connection, raw))),
            visible: self.visible,
            ahead: Vec::new(),
        })
    }

    /// The certificate that the gateway presents.
    pub fn certificate(&self) -> CertificateDer<'static> {
        match &self.inner {
            Inner::Tls(stream) => stream.conn.peer_certificates().unwrap()[0]
                .clone()
                .into_owned(),
            Inner::Clear(_) => panic!("there is no certificate without TLS"),
        }
    }

    /// How the handshake went, and the negotiated protocol.
    pub fn handshake(&self) -> (Option<rustls::HandshakeKind>, Option<Vec<u8>>) {
        match &self.inner {
            Inner::Tls(stream) => (
                stream.conn.handshake_kind(),
                stream.conn.alpn_protocol().map(<[u8]>::to_vec),
            ),
            Inner::Clear(_) => (None, None),
        }
    }

    /// The client's own address; `None` in the sandbox.
    pub fn address(&self) -> Option<SocketAddr> {
        let raw = match &self.inner {
            Inner::Clear(raw) => raw,
            Inner::Tls(stream) => &stream.sock,
        };
        match raw {
            Raw::Tcp(stream) => Some(stream.local_addr().unwrap()),
            Raw::Relay(_) => None,
        }
    }

    /// Sets how long a read waits.
    pub fn patience(&self, limit: Duration) {
        let raw = match &self.inner {
            Inner::Clear(raw) => raw,
            Inner::Tls(stream) => &stream.sock,
        };
        match raw {
            Raw::Tcp(stream) => stream.set_read_timeout(Some(limit)).unwrap(),
            Raw::Relay(stream) => stream.set_read_timeout(Some(limit)).unwrap(),
        }
    }

    /// Writes, whether or not the gateway still reads.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.write_all(bytes).and_then(|()| self.flush());
    }

    /// Closes the direction to the gateway.
    pub fn finish(&mut self) {
        if let Inner::Tls(stream) = &mut self.inner {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        match &self.inner {
            Inner::Clear(raw) => raw.finish(),
            Inner::Tls(stream) => stream.sock.finish(),
        }
    }

    fn more(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 16384];
        let mut ahead = std::mem::take(&mut self.ahead);
        let count = self.read_below(&mut bytes);
        if let Ok(count) = count {
            ahead.extend_from_slice(&bytes[..count]);
        }
        self.ahead = ahead;
        count
    }

    fn read_below(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.inner {
            Inner::Clear(raw) => raw.read(buffer),
            Inner::Tls(stream) => stream.read(buffer),
        };
        let count = match read {
            // The end, however it was signalled.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof
                        | io::ErrorKind::ConnectionReset
                        | io::ErrorKind::BrokenPipe
                ) =>
            {
                0
            }
            other => other?,
        };
        self.visible
            .lock()
            .unwrap()
            .extend_from_slice(&buffer[..count]);
        Ok(count)
    }

    fn until(&mut self, enough: impl Fn(&[u8]) -> Option<usize>) -> Option<Vec<u8>> {
        loop {
            if let Some(length) = enough(&self.ahead) {
                return Some(self.ahead.drain(..length).collect());
            }
            if self.more().ok()? == 0 {
                return None;
            }
        }
    }

    /// Reads bytes up to and including a mark.
    pub fn line(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        self.until(|bytes| memchr::memmem::find(bytes, mark).map(|at| at + mark.len()))
    }

    /// Reads exactly this many bytes.
    pub fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        self.until(|bytes| (bytes.len() >= count).then_some(count))
    }

    /// Reads one response to a request that was not HEAD.
    pub fn response(&mut self) -> Response {
        let mut response = Response::default();
        loop {
            let Some(head) = self.line(b"\r\n\r\n") else {
                return Response::default();
            };
            response.head = String::from_utf8_lossy(&head).into_owned();
            let status = response
                .head
                .split(' ')
                .nth(1)
                .and_then(|word| word.parse().ok());
            response.status = status.expect("an answer begins with a status line");
            if response.status >= 200 || response.status == 101 {
                break;
            }
        }
        if response.field("transfer-encoding").is_some() {
            loop {
                let Some(line) = self.line(b"\r\n") else {
                    response.body.extend_from_slice(b"[cut]");
                    break;
                };
                let size =
                    usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
                if size == 0 {
                    while let Some(trailer) = self.line(b"\r\n").filter(|line| line.len() > 2) {
                        response
                            .trailers
                            .push_str(&String::from_utf8_lossy(&trailer));
                    }
                    break;
                }
                let Some(data) = self.exactly(size + 2) else {
                    response.body.extend_from_slice(b"[cut]");
                    break;
                };
                response.body.extend_from_slice(&data[..size]);
            }
        } else if let Some(length) = response
            .field("content-length")
            .and_then(|length| length.parse().ok())
        {
            match self.exactly(length) {
                Some(body) => response.body = body,
                None => response.body = [&self.ahead[..], b"[cut]"].concat(),
            }
        } else if response.status >= 200 && response.status != 204 && response.status != 304 {
            response.body = self.rest().0;
        }
        response
    }

    /// Sends a request, and reads its response.
    pub fn ask(&mut self, request: &[u8]) -> Response {
        self.send(request);
        self.response()
    }

    /// Reads to the end: the bytes, and whether the gateway ended it.
    pub fn rest(&mut self) -> (Vec<u8>, bool) {
        let ended = loop {
            match self.more() {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => {
                    // An alert ends a connection too.
                    break !matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    );
                }
            }
        };
        (std::mem::take(&mut self.ahead), ended)
    }

    /// Whether the gateway has ended the connection, with nothing more on it.
    pub fn is_over(&mut self) -> bool {
        self.patience(Duration::from_secs(3));
        self.rest() == (Vec::new(), true)
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buffer.len());
            buffer[..count].copy_from_slice(&self.ahead[..count]);
            self.ahead.drain(..count);
            return Ok(count);
        }
        self.read_below(buffer)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.inner {
            Inner::Clear(raw) => raw.write(bytes),
            Inner::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.inner {
            Inner::Clear(raw) => raw.flush(),
            Inner::Tls(stream) => stream.flush(),
        }
    }
}

/// Accepts any certificate: the attacker does not care.
#[derive(Debug)]
struct Anything;

impl ServerCertVerifier for Anything {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
