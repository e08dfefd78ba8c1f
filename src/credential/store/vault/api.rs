//! Sends a request to a Vault, through whichever of its servers responds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gateway_message::Origin;
use http::{HeaderValue, Method, Request, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::super::StoreError;
use super::super::http::{HttpAnswer, HttpClient};

/// Vault's HTTP interface.
pub(super) struct Api {
    client: Arc<dyn HttpClient>,
    servers: Vec<Origin>,
    namespace: Option<String>,
    /// The server to try first: the one that responded last.
    first: AtomicUsize,
}

/// One request.
pub(super) struct VaultRequest<'q> {
    method: Method,
    path: String,
    token: Option<&'q str>,
    content: Zeroizing<Vec<u8>>,
}

impl<'q> VaultRequest<'q> {
    /// Returns a request to read a path.
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            token: None,
            content: Zeroizing::default(),
        }
    }

    /// Returns a request to write to a path.
    pub(super) fn post(path: impl Into<String>, content: &impl Serialize) -> Self {
        // Allocate the full size at once: a growing vector would leave copies behind.
        let mut text = Zeroizing::new(Vec::with_capacity(CONTENT_ROOM));
        // The content has only texts and numbers, so writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut *text, content);
        Self {
            method: Method::POST,
            content: text,
            ..Self::get(path)
        }
    }

    /// Authenticates the request with a token.
    pub(super) fn with_token(mut self, token: &'q str) -> Self {
        self.token = Some(token);
        self
    }

    fn request(&self, namespace: Option<&str>) -> Result<Request<Zeroizing<Vec<u8>>>, StoreError> {
        let unusable = |_| StoreError::Unreachable("the token or the namespace is no field value");
        let value = |text: &str| HeaderValue::from_str(text).map_err(unusable);
        let mut request = Request::new(self.content.clone());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = format!("/v1/{}", self.path)
            .parse()
            .map_err(|_| StoreError::Unreachable("the path is none"))?;
        let fields = request.headers_mut();
        // Servers can be configured to require it, as a guard against requests that a browser or a
        // careless client is tricked into sending.
        fields.insert("x-vault-request", HeaderValue::from_static("true"));
        if let Some(namespace) = namespace {
            fields.insert("x-vault-namespace", value(namespace)?);
        }
        if let Some(token) = self.token {
            let mut token = value(token)?;
            token.set_sensitive(true);
            fields.insert("x-vault-token", token);
        }
        if !self.content.is_empty() {
            let json = HeaderValue::from_static("application/json");
            fields.insert(http::header::CONTENT_TYPE, json);
        }
        Ok(request)
    }
}

impl Api {
    pub(super) fn new(
        client: Arc<dyn HttpClient>,
        servers: Vec<Origin>,
        namespace: Option<String>,
    ) -> Self {
        Self {
            client,
            servers,
            namespace,
            first: AtomicUsize::new(0),
        }
    }

    /// Tries the server that responded last, then others if it is unreachable or sealed.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        question: &VaultRequest<'_>,
    ) -> Result<T, StoreError> {
        let content = self.ask_any(question).await?;
        serde_json::from_slice(&content).map_err(|_| StoreError::Illegible)
    }

    /// Sends a request, and ignores the content of the response.
    pub(super) async fn tell(&self, question: &VaultRequest<'_>) -> Result<(), StoreError> {
        self.ask_any(question).await.map(drop)
    }

    async fn ask_any(&self, question: &VaultRequest<'_>) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let first = self.first.load(Ordering::Relaxed);
        let mut last = StoreError::Unreachable("it has no server");
        for at in (first..self.servers.len()).chain(0..first) {
            match self.ask_one(&self.servers[at], question).await {
                Err(cause @ (StoreError::NotConnected(_) | StoreError::Sealed)) => last = cause,
                answer => {
                    // If a server hangs, the request is not repeated elsewhere, because it may have
                    // been carried out. The next request goes to another server.
                    let hangs = matches!(
                        answer,
                        Err(StoreError::TimedOut(_) | StoreError::BrokenOff(_))
                    );
                    let next = (at + usize::from(hangs)) % self.servers.len();
                    self.first.store(next, Ordering::Relaxed);
                    return answer;
                }
            }
        }
        Err(last)
    }

    async fn ask_one(
        &self,
        server: &Origin,
        question: &VaultRequest<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let mut server = server;
        for _ in 0..=MOST_REDIRECTS {
            let request = question.request(self.namespace.as_deref())?;
            let answer = self.client.send(server, request).await?;
            match answer.status {
                status if status.is_success() => return Ok(answer.content),
                // A standby redirects to the active server.
                StatusCode::TEMPORARY_REDIRECT => server = self.redirected(&answer)?,
                _ => return Err(refused(&answer)),
            }
        }
        Err(StoreError::Unreachable("its servers send us to each other"))
    }

    /// Returns the redirect's server if it is configured. A token is sent to no other.
    fn redirected(&self, answer: &HttpAnswer) -> Result<&Origin, StoreError> {
        let elsewhere = StoreError::Unreachable(
            "a standby server sends us to one that the configuration does not name",
        );
        let location = answer.location.as_deref().unwrap_or_default();
        let ours = |server: &&Origin| {
            let rest = location.strip_prefix(&server.to_string());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.servers.iter().find(ours).ok_or(elsewhere)
    }
}

#[derive(Deserialize)]
struct Errors {
    errors: Vec<String>,
}

fn refused(answer: &HttpAnswer) -> StoreError {
    match answer.status.as_u16() {
        503 => StoreError::Sealed,
        status => StoreError::Refused {
            status,
            words: known(&answer.content),
        },
    }
}

/// Returns the known part of a server's message. The message may hold a secret unknown to us, so
/// only the phrases listed here are shown.
fn known(content: &[u8]) -> &'static str {
    let errors = serde_json::from_slice::<Errors>(content);
    let words = errors.map(|found| found.errors.join("\n").to_ascii_lowercase());
    let said = |phrase: &&&str| words.as_ref().is_ok_and(|words| words.contains(**phrase));
    KNOWN.iter().find(said).copied().unwrap_or_default()
}

/// The messages of Vault and OpenBao, in lower case; the more specific before the less.
const KNOWN: [&str; 14] = [
    "invalid role or secret id",
    "service account name not authorized",
    "namespace not authorized",
    "invalid role name",
    "invalid audience",
    "lease is not renewable",
    "lease not found",
    "no handler for route",
    "unsupported operation",
    "unsupported path",
    "missing client token",
    "invalid token",
    "quota exceeded",
    "permission denied",
];
const MOST_REDIRECTS: usize = 2;
/// Enough for a login: a token from Kubernetes or a key ring has at most 16 KiB.
const CONTENT_ROOM: usize = 40 * 1024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gateway_session::stage::head;
    use serde::de::IgnoredAny;

    use super::super::super::StoreFuture;
    use super::*;

    /// One of the servers accepts every question and never answers.
    struct Hanging(Origin);

    impl HttpClient for Hanging {
        fn send<'a>(
            &'a self,
            server: &'a Origin,
            _: Request<Zeroizing<Vec<u8>>>,
        ) -> StoreFuture<'a, HttpAnswer> {
            let answer = if *server == self.0 {
                Err(StoreError::TimedOut(Duration::ZERO))
            } else {
                Ok(HttpAnswer {
                    status: StatusCode::OK,
                    location: None,
                    retry_after: None,
                    content: Zeroizing::new(b"{}".to_vec()),
                })
            };
            Box::pin(std::future::ready(answer))
        }
    }

    #[tokio::test]
    async fn a_server_that_hangs_is_not_asked_the_next_time() {
        let server = |text| head(text, "/", &[]).origin;
        let servers = ["https://one.example", "https://two.example"].map(server);
        for hanging in &servers {
            let client = Arc::new(Hanging(hanging.clone()));
            let api = Api::new(client, servers.to_vec(), None);
            let mut failed = 0;
            for _ in 0..3 {
                let answer = api.ask::<IgnoredAny>(&VaultRequest::get("x")).await;
                failed += usize::from(answer.is_err());
            }
            assert!(failed <= 1, "{failed}");
        }
    }

    #[test]
    fn of_a_servers_words_those_that_are_known_are_shown_and_no_others() {
        let said = |words: &str| {
            let content = serde_json::json!({ "errors": [words] }).to_string();
            let content = Zeroizing::new(content.into_bytes());
            let (status, location) = (StatusCode::FORBIDDEN, None);
            let answer = HttpAnswer {
                status,
                location,
                retry_after: None,
                content,
            };
            refused(&answer).to_string()
        };
        assert_eq!(
            said("1 error occurred:\n\t* Permission denied\n for s.CANARY \u{1b}[31m"),
            "the store answered 403: permission denied"
        );
        assert_eq!(said("s.CANARY is bad"), "the store answered 403");
    }
}
