//! The client for the servers of secret stores: the gateway's own requests.
//!
//! The operator's configuration names the servers, and no session can send a request anywhere else.
//! A server may have a private address, but never one of a cloud metadata service. Redirects are
//! not followed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gateway_credential::{HttpAnswer, HttpClient, StoreError, StoreFuture};
use gateway_message::{HostPattern, Origin, OriginPattern, Scheme};
use http::header::{HOST, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

use super::resolve::{Resolve, ResolverSettings, ResolverUnusable, StubResolver};
use super::rule::{
    ClientIdentity, KeyUnreadable, OriginDefaults, OriginProtocol, OriginRule, OriginSettings,
    UpstreamProxy,
};
use super::tls::{self, AlpnOffer};
use super::{Error, chain, dial, reach, upstream};

/// A client for the servers of one store. It keeps no connection, because it is used only every few
/// minutes.
pub struct StoreClient {
    servers: Vec<StoreServer>,
    /// The rules of the servers, in the same order.
    settings: OriginSettings,
    resolver: Box<dyn Resolve>,
    deadline: Duration,
}

/// A server, and the proxy and TLS settings for it.
struct StoreServer {
    origin: Origin,
    via: Option<Arc<UpstreamProxy>>,
    config: Arc<ClientConfig>,
}

/// How the gateway's own requests reach their servers, according to the settings for origins.
#[derive(Clone, PartialEq)]
pub struct StoreWay {
    resolver: ResolverSettings,
    roots: Vec<CertificateDer<'static>>,
    /// The rule and the proxy of each server.
    servers: Vec<(Option<OriginRule>, Option<Arc<UpstreamProxy>>)>,
}

impl StoreWay {
    /// Returns the way to these servers.
    pub fn of(settings: &OriginSettings, servers: &[Origin]) -> Self {
        let way = |server| {
            let rule = settings.rule(server);
            (rule.cloned(), settings.via(server, rule).cloned())
        };
        Self {
            resolver: settings.resolver.clone(),
            roots: settings.defaults.roots.clone(),
            servers: servers.iter().map(way).collect(),
        }
    }
}

/// Why a client for a store cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum StoreClientUnusable {
    /// Names cannot be resolved.
    #[error(transparent)]
    Resolver(#[from] ResolverUnusable),
    /// The roots or the client certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] Error),
    /// The key of the client certificate cannot be read.
    #[error(transparent)]
    Key(#[from] KeyUnreadable),
}

impl StoreClient {
    /// Returns a client for exactly these servers, for which `way` was made. If there are `roots`,
    /// no others are trusted. Of the rules for origins, roots, fixed address and proxy apply.
    ///
    /// # Errors
    /// `StoreClientUnusable` by cause.
    pub fn new(
        servers: Vec<Origin>,
        roots: Vec<CertificateDer<'static>>,
        identity: Option<ClientIdentity>,
        way: StoreWay,
    ) -> Result<Self, StoreClientUnusable> {
        Self::offering(AlpnOffer::Http1, servers, roots, (identity, way))
    }

    /// Returns the same for servers that speak this protocol.
    pub(super) fn offering(
        offer: AlpnOffer,
        servers: Vec<Origin>,
        roots: Vec<CertificateDer<'static>>,
        (identity, way): (Option<ClientIdentity>, StoreWay),
    ) -> Result<Self, StoreClientUnusable> {
        let rule = |(server, (own, _)): (&Origin, &(Option<OriginRule>, _))| {
            let matches = OriginPattern {
                scheme: server.scheme,
                hosts: HostPattern::Exact(server.authority.host.clone()),
                port: server.authority.port,
            };
            let own = own
                .clone()
                .unwrap_or_else(|| OriginRule::of(matches.clone()));
            let (replaces, roots) = if roots.is_empty() {
                (own.replace_system_roots, own.roots)
            } else {
                (true, roots.clone())
            };
            OriginRule {
                roots,
                replace_system_roots: replaces,
                identity: identity.clone(),
                connect: own.connect,
                addresses: reach::anywhere().into(),
                protocol: OriginProtocol::Http1,
                ..OriginRule::of(matches)
            }
        };
        // All are for exact hosts, and stay in this order.
        let rules = servers.iter().zip(&way.servers).map(rule).collect();
        let mut settings = OriginSettings::default().with_rules(rules)?;
        settings.resolver = way.resolver;
        settings.defaults = OriginDefaults {
            roots: way.roots,
            via: None,
        };
        settings.connect_timeout = CONNECT;
        settings.handshake_timeout = HANDSHAKE;
        let server = |(at, (origin, (_, via)))| {
            let config = tls::configure(&settings, Some(at), offer).map(Arc::new)?;
            Ok(StoreServer {
                origin,
                via,
                config,
            })
        };
        let servers = servers.into_iter().zip(way.servers).enumerate();
        let servers = servers.map(server).collect::<Result<_, Error>>()?;
        Ok(Self {
            resolver: Box::new(StubResolver::new(&settings.resolver)?),
            servers,
            settings,
            deadline: DEADLINE,
        })
    }

    /// Waits this long for each answer, instead of ten seconds.
    #[must_use]
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    async fn ask(
        &self,
        server: &Origin,
        request: Request<Zeroizing<Vec<u8>>>,
    ) -> Result<HttpAnswer, StoreError> {
        let mut known = self.servers.iter().enumerate();
        let Some((at, known)) = known.find(|(_, known)| known.origin == *server) else {
            return Err(not_connected(&"it is no server of the configuration"));
        };
        let stream = self.dial(at, known).await;
        let stream = stream.map_err(|error| refused(&error))?;
        if server.scheme == Scheme::Http {
            return exchange(stream, server, request).await;
        }
        let stream = self.shake_hands(stream, known).await;
        exchange(stream.map_err(|error| refused(&error))?, server, request).await
    }

    /// Opens a TLS connection to the first of the servers.
    ///
    /// # Errors
    /// [`Error`] by cause.
    pub async fn connect(&self) -> Result<TlsStream<TcpStream>, Error> {
        let first = self.servers.first().ok_or(Error::WrongChannel)?;
        let stream = self.dial(0, first).await?;
        self.shake_hands(stream, first).await
    }

    async fn dial(&self, at: usize, server: &StoreServer) -> Result<TcpStream, Error> {
        let (rule, resolver) = (Some(self.settings.at(at).0), self.resolver.as_ref());
        let origin = &server.origin;
        match &server.via {
            Some(proxy) => upstream::connect(proxy, &origin.authority, resolver, CONNECT).await,
            None => dial::connect(origin, rule, resolver, &self.settings).await,
        }
    }

    async fn shake_hands(
        &self,
        stream: TcpStream,
        server: &StoreServer,
    ) -> Result<TlsStream<TcpStream>, Error> {
        let host = &server.origin.authority.host;
        dial::handshake(stream, host, server.config.clone(), &self.settings).await
    }
}

impl HttpClient for StoreClient {
    fn send<'a>(
        &'a self,
        server: &'a Origin,
        request: Request<Zeroizing<Vec<u8>>>,
    ) -> StoreFuture<'a, HttpAnswer> {
        Box::pin(async move {
            let answer = timeout(self.deadline, self.ask(server, request)).await;
            answer.unwrap_or(Err(StoreError::TimedOut(self.deadline)))
        })
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    server: &Origin,
    request: Request<Zeroizing<Vec<u8>>>,
) -> Result<HttpAnswer, StoreError> {
    let host = super::sender::host_field(server).map_err(|error| refused(&error))?;
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| not_connected(&error))?;
    let (mut parts, content) = request.into_parts();
    parts.headers.insert(HOST, host);
    // `Bytes` owns the content, and wipes it when the last reader is dropped.
    let content = Full::new(Bytes::from_owner(content));
    let answer = async move {
        let request = Request::from_parts(parts, content);
        let response = sender.send_request(request).await.map_err(broken_off)?;
        read(response).await
    };
    let mut answer = std::pin::pin!(answer);
    // The connection runs concurrently with the request. If the connection ends first, the answer
    // is complete or carries the error.
    tokio::select! {
        answer = &mut answer => answer,
        _ = connection => answer.await,
    }
}

async fn read(response: Response<Incoming>) -> Result<HttpAnswer, StoreError> {
    let location = response.headers().get(LOCATION);
    let location = location.and_then(|value| Some(value.to_str().ok()?.to_owned()));
    let (status, retry_after) = (response.status(), retry_after(response.headers()));
    let mut body = Limited::new(response.into_body(), LONGEST);
    // Allocates room for the usual answer at once: a growing vector leaves copies of secrets
    // behind.
    let mut content = Zeroizing::new(Vec::with_capacity(USUAL));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| StoreError::BrokenOff(error.to_string().into()))?;
        if let Some(data) = frame.data_ref() {
            content.extend_from_slice(data);
        }
    }
    Ok(HttpAnswer {
        status,
        location,
        retry_after,
        content,
    })
}

/// When a server may be asked again, as a number of seconds or a date; at most in an hour.
fn retry_after(fields: &HeaderMap) -> Option<SystemTime> {
    let text = fields.get(RETRY_AFTER)?.to_str().ok()?;
    let now = SystemTime::now();
    let until = match text.parse() {
        Ok(seconds) => now.checked_add(Duration::from_secs(seconds))?,
        Err(_) => {
            let text = format!("{}+0000", text.strip_suffix("GMT")?);
            SystemTime::from(OffsetDateTime::parse(&text, &Rfc2822).ok()?)
        }
    };
    Some(until.min(now + Duration::from_secs(3600)))
}

/// Reports that nothing was sent. The error describes only the connection.
fn refused(error: &Error) -> StoreError {
    StoreError::NotConnected(chain(error).into())
}

fn not_connected(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::NotConnected(error.to_string().into())
}

fn broken_off(error: hyper::Error) -> StoreError {
    StoreError::BrokenOff(error.to_string().into())
}

/// Short, so that another server can be tried within the store's own deadline.
const CONNECT: Duration = Duration::from_secs(3);
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The usual limit for one request, from name resolution to the end of the response.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest response that is read, in bytes.
const LONGEST: usize = 1 << 20;
const USUAL: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn each_server_is_dialled_where_the_rule_for_its_origin_says() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let servers = ["http://other.test", "http://issuer.test"];
        let servers = servers.map(|one| one.parse::<OriginPattern>().unwrap());
        let rule = OriginRule {
            connect: listener.local_addr().ok(),
            ..OriginRule::of(servers[1].clone())
        };
        let servers = servers.map(|one| one.exact().unwrap());
        let settings = OriginSettings::default().with_rules(vec![rule]).unwrap();
        let way = StoreWay::of(&settings, &servers);
        let client = StoreClient::new(servers.to_vec(), Vec::new(), None, way).unwrap();
        let asked = tokio::spawn(async move {
            let request = Request::new(Zeroizing::new(Vec::new()));
            client
                .send(&servers[1], request)
                .await
                .map(|answer| answer.status)
        });
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 512];
        let read = stream.read(&mut head).await.unwrap();
        assert!(String::from_utf8_lossy(&head[..read]).contains("host: issuer.test"));
        let answer = b"HTTP/1.1 204 x\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        assert_eq!(asked.await.unwrap(), Ok(http::StatusCode::NO_CONTENT));
    }
}
