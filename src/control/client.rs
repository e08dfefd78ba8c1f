//! Calls a running gateway: at its control socket, or at the control port of one elsewhere.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use gateway_message::Origin;
use gateway_origin::{ClientIdentity, OriginSettings, StoreClient, StoreClientUnusable, StoreWay};
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

/// Why a gateway did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlFailure {
    /// No process serves the socket, or it may not be used.
    #[error("nobody answers at `{}`", path.display())]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The process at the socket is neither this user's nor root's.
    #[error("the process at `{}` belongs to user {uid}", path.display())]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// The user of the process.
        uid: u32,
    },
    /// No gateway with a certificate that is trusted is reached at the address.
    #[error("nobody answers at `{address}`")]
    NotConnected {
        /// The address.
        address: String,
        /// Why no connection was made.
        source: gateway_origin::Error,
    },
    /// The certificate or its key cannot be shown.
    #[error("a gateway elsewhere cannot be called")]
    Unusable(#[from] StoreClientUnusable),
    /// The gateway closed the connection: it serves too many callers, or it ended.
    #[error("the gateway closed the connection without an answer")]
    Closed(#[source] hyper::Error),
    /// The answer is not what a gateway sends.
    #[error("the answer cannot be read")]
    Unreadable,
    /// There was no answer in time.
    #[error("there was no answer within {} seconds", .0.as_secs())]
    Late(Duration),
}

/// A gateway that another process is.
#[derive(Clone, Debug)]
pub struct Client {
    place: Place,
    within: Duration,
    /// The idempotency key, by which a repeated call is recognised.
    key: Option<HeaderValue>,
}

/// Where a gateway is called.
#[derive(Clone, Debug)]
enum Place {
    Socket {
        path: PathBuf,
        /// Whether root named the socket, and may call a gateway of any user.
        any_owner: bool,
    },
    Port {
        address: Origin,
        /// The roots of its certificate; if there is none, those of the system.
        roots: Vec<CertificateDer<'static>>,
        identity: ClientIdentity,
    },
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Socket { path, .. } => path.display().fmt(f),
            Place::Port { address, .. } => write!(f, "https://{}", address.authority),
        }
    }
}

impl Client {
    /// Will call the gateway at this path, if it belongs to this user or root.
    pub fn new(path: &Path) -> Self {
        Self::of(Place::Socket {
            path: path.to_owned(),
            any_owner: false,
        })
    }

    /// Will call the gateway at the control port of this address, and show it this certificate.
    pub fn elsewhere(
        address: Origin,
        roots: Vec<CertificateDer<'static>>,
        identity: ClientIdentity,
    ) -> Self {
        Self::of(Place::Port {
            address,
            roots,
            identity,
        })
    }

    fn of(place: Place) -> Self {
        let within = WITHIN;
        let key = None;
        Self { place, within, key }
    }

    /// Waits no longer than this for an answer.
    #[must_use]
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// Makes calls with this idempotency key. A key that is not visible ASCII is not sent.
    #[must_use]
    pub fn known_by(self, key: &str) -> Self {
        let key = HeaderValue::from_str(&format!("\"{key}\"")).ok();
        Self { key, ..self }
    }

    /// Will call the gateway at a path that the user named. Root may call any user's gateway.
    pub fn named(path: &Path) -> Self {
        Self::of(Place::Socket {
            path: path.to_owned(),
            any_owner: rustix::process::geteuid().is_root(),
        })
    }

    /// Returns the path of the socket; `None` if the gateway is elsewhere.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Socket { path, .. } => Some(path),
            Place::Port { .. } => None,
        }
    }

    /// Makes a call with JSON content, and returns the status and the JSON of the response.
    ///
    /// # Errors
    /// [`ControlFailure`] by cause.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        content: Option<&Value>,
    ) -> Result<(StatusCode, Value), ControlFailure> {
        let answering = async {
            let answer = self.send(method, path, content).await?;
            read(answer).await
        };
        let answered = tokio::time::timeout(self.within, answering).await;
        answered.map_err(|_| ControlFailure::Late(self.within))?
    }

    /// Follows the records of the audit log: returns the stream, or the response of a gateway that
    /// refuses.
    ///
    /// # Errors
    /// [`ControlFailure`] by cause.
    pub async fn follow(&self) -> Result<Result<Incoming, (StatusCode, Value)>, ControlFailure> {
        let answer = self.send(Method::GET, "/v1/events", None).await?;
        if answer.status() == StatusCode::OK {
            return Ok(Ok(answer.into_body()));
        }
        read(answer).await.map(Err)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content: Option<&Value>,
    ) -> Result<Response<Incoming>, ControlFailure> {
        let text = content.map(Value::to_string).unwrap_or_default();
        let mut request = Request::new(Full::new(Bytes::from(text)));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| ControlFailure::Unreadable)?;
        let fields = request.headers_mut();
        fields.insert(HOST, HeaderValue::from_static("gateway"));
        if let Some(key) = &self.key {
            fields.insert("idempotency-key", key.clone());
        }
        if content.is_some() {
            fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        match &self.place {
            Place::Socket { path, any_owner } => {
                exchange(socket(path, *any_owner).await?, request).await
            }
            Place::Port {
                address,
                roots,
                identity,
            } => {
                let servers = vec![address.clone()];
                let way = StoreWay::of(&OriginSettings::default(), &servers);
                let identity = Some(identity.clone());
                let client = StoreClient::new(servers, roots.clone(), identity, way)?;
                let connected = client.connect().await;
                let stream = connected.map_err(|source| ControlFailure::NotConnected {
                    address: self.to_string(),
                    source,
                })?;
                exchange(stream, request).await
            }
        }
    }
}

/// Connects to a socket, if its process may be trusted.
async fn socket(path: &Path, any_owner: bool) -> Result<UnixStream, ControlFailure> {
    let path = || path.to_owned();
    let unreachable = |source| ControlFailure::Unreachable {
        path: path(),
        source,
    };
    let stream = UnixStream::connect(path()).await.map_err(unreachable)?;
    let uid = stream.peer_cred().map_err(unreachable)?.uid();
    if any_owner || gateway_files::trusted(uid) {
        Ok(stream)
    } else {
        Err(ControlFailure::Stranger { path: path(), uid })
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, ControlFailure> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(ControlFailure::Closed)?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    answer.map_err(ControlFailure::Closed)
}

/// Reads a response of JSON.
async fn read(answer: Response<Incoming>) -> Result<(StatusCode, Value), ControlFailure> {
    let status = answer.status();
    let content = Limited::new(answer.into_body(), MOST_CONTENT)
        .collect()
        .await;
    let text = content.map_err(|_| ControlFailure::Unreadable)?.to_bytes();
    let value = serde_json::from_slice(&text).map_err(|_| ControlFailure::Unreadable)?;
    Ok((status, value))
}

const MOST_CONTENT: usize = 16 << 20;
const WITHIN: Duration = Duration::from_secs(35);
