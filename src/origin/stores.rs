//! The client for the servers of secret stores: the gateway's own requests.
//!
//! The operator's configuration names the servers, and no session can send a request anywhere else.
//! Their addresses may be private ones, but never those of cloud metadata. Redirects are not
//! followed.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, LOCATION};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::resolve::{Resolve, ResolverSettings, ResolverUnusable, StubResolver};
use super::rule::{
    ClientIdentity, KeyUnreadable, OriginDefaults, OriginProtocol, OriginRule, OriginSettings,
    UpstreamProxy,
};
use super::tls::{self, Offer};
use super::{Error, dial, reach, upstream};
use crate::credential::{HttpAnswer, HttpClient, StoreError, StoreFuture};
use crate::message::{HostPattern, Origin, OriginPattern, Scheme};

/// A client for the servers of one store. It keeps no connection, because it is used only every few
/// minutes.
pub struct StoreClient {
    servers: Vec<(Origin, Option<Arc<UpstreamProxy>>)>,
    settings: OriginSettings,
    config: Arc<ClientConfig>,
    resolver: Box<dyn Resolve>,
}

/// How the gateway's own requests reach servers, as the settings for origins say.
#[derive(Clone, PartialEq)]
pub struct StoreWay {
    resolver: ResolverSettings,
    roots: Vec<CertificateDer<'static>>,
    /// By server.
    via: Vec<Option<Arc<UpstreamProxy>>>,
}

impl StoreWay {
    /// The way to these servers.
    #[must_use]
    pub fn of(settings: &OriginSettings, servers: &[Origin]) -> Self {
        let via = |server| settings.via(server, settings.rule(server)).cloned();
        Self {
            resolver: settings.resolver.clone(),
            roots: settings.defaults.roots.clone(),
            via: servers.iter().map(via).collect(),
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

/// The index of the only rule, which applies to all servers.
const RULE: usize = 0;

impl StoreClient {
    /// A client for these servers only, which are those of the way. If there are `roots`, no others
    /// are trusted.
    ///
    /// # Errors
    /// `StoreClientUnusable` by cause.
    pub fn new(
        servers: Vec<Origin>,
        roots: Vec<CertificateDer<'static>>,
        identity: Option<ClientIdentity>,
        way: StoreWay,
    ) -> Result<Self, StoreClientUnusable> {
        let first = servers.first().ok_or(Error::Protocol)?;
        let rule = OriginRule {
            replace_system_roots: !roots.is_empty(),
            roots,
            identity,
            addresses: reach::anywhere().into(),
            protocol: OriginProtocol::Http1,
            ..OriginRule::of(OriginPattern {
                scheme: first.scheme,
                hosts: HostPattern::Exact(first.authority.host.clone()),
                port: first.authority.port,
            })
        };
        let mut settings = OriginSettings::default().with_rules(vec![rule])?;
        settings.resolver = way.resolver;
        settings.defaults = OriginDefaults {
            roots: way.roots,
            via: None,
        };
        settings.connect_timeout = CONNECT;
        settings.handshake_timeout = HANDSHAKE;
        Ok(Self {
            resolver: Box::new(StubResolver::new(&settings.resolver)?),
            config: tls::configure(&settings, Some(RULE), Offer::Http1).map(Arc::new)?,
            servers: servers.into_iter().zip(way.via).collect(),
            settings,
        })
    }

    async fn ask(
        &self,
        server: &Origin,
        request: Request<Zeroizing<Vec<u8>>>,
    ) -> Result<HttpAnswer, StoreError> {
        let Some((_, via)) = self.servers.iter().find(|(known, _)| known == server) else {
            return Err(not_connected(&"it is no server of the configuration"));
        };
        let (rule, resolver) = (Some(self.settings.at(RULE).0), self.resolver.as_ref());
        let to = &server.authority;
        let stream = match via {
            Some(proxy) => upstream::connect(proxy, to, resolver, CONNECT).await,
            None => dial::connect(server, rule, resolver, &self.settings).await,
        };
        let stream = stream.map_err(|error| refused(&error))?;
        if server.scheme == Scheme::Http {
            return exchange(stream, server, request).await;
        }
        let host = &server.authority.host;
        let stream = dial::handshake(stream, host, self.config.clone(), &self.settings).await;
        exchange(stream.map_err(|error| refused(&error))?, server, request).await
    }
}

impl HttpClient for StoreClient {
    fn send<'a>(
        &'a self,
        server: &'a Origin,
        request: Request<Zeroizing<Vec<u8>>>,
    ) -> StoreFuture<'a, HttpAnswer> {
        Box::pin(async move {
            let answer = timeout(DEADLINE, self.ask(server, request)).await;
            answer.unwrap_or(Err(StoreError::TimedOut(DEADLINE)))
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
    // Its owner wipes the content when the last reader is gone.
    let content = Full::new(Bytes::from_owner(content));
    let answer = async move {
        let request = Request::from_parts(parts, content);
        let response = sender.send_request(request).await.map_err(broken_off)?;
        read(response).await
    };
    let mut answer = std::pin::pin!(answer);
    // The connection runs beside the request. If the connection ends first, the answer is complete
    // or carries the error.
    tokio::select! {
        answer = &mut answer => answer,
        _ = connection => answer.await,
    }
}

async fn read(response: Response<Incoming>) -> Result<HttpAnswer, StoreError> {
    let location = response.headers().get(LOCATION);
    let location = location.and_then(|value| Some(value.to_str().ok()?.to_owned()));
    let status = response.status();
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
        content,
    })
}

/// Reports that nothing was sent. The error describes only the connection.
fn refused(error: &Error) -> StoreError {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    StoreError::NotConnected(text.into())
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
/// For one request, from name resolution to the end of the answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes.
const LONGEST: usize = 1 << 20;
const USUAL: usize = 64 << 10;
