//! Calls the control socket of a running gateway.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
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

/// A control socket of another process.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
    /// Whether root named the socket, and may call a gateway of any user.
    any_owner: bool,
    within: Duration,
    /// The idempotency key, by which a repeated call is recognised.
    key: Option<HeaderValue>,
}

impl Client {
    /// Will call the gateway at this path, if it belongs to this user or root.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            any_owner: false,
            within: WITHIN,
            key: None,
        }
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
        Self {
            any_owner: rustix::process::geteuid().is_root(),
            ..Self::new(path)
        }
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
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
        let unreachable = |source| ControlFailure::Unreachable {
            path: self.path.clone(),
            source,
        };
        let stream = UnixStream::connect(&self.path).await.map_err(unreachable)?;
        let uid = stream.peer_cred().map_err(unreachable)?.uid();
        if !self.any_owner && !gateway_files::trusted(uid) {
            return Err(ControlFailure::Stranger {
                path: self.path.clone(),
                uid,
            });
        }
        let io = TokioIo::new(stream);
        let handshake = hyper::client::conn::http1::handshake(io).await;
        let (mut sender, connection) = handshake.map_err(ControlFailure::Closed)?;
        tokio::spawn(connection);
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
        sender
            .send_request(request)
            .await
            .map_err(ControlFailure::Closed)
    }
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
