//! From an authorized exchange to the origin's response: opens a channel, and forwards on it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HOST, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::patient::Patient;
use super::pool::{Idle, Key, Place, Pool};
use super::resolve::{Resolve, ResolverUnusable, StubResolver};
use super::rule::OriginSettings;
use super::tls::{Configurations, Offer};
use super::{Error, dial};
use crate::body::{Content, Meter};
use crate::credential::{AnswerPlan, Credentialed, Verified};
use crate::message::{Origin, RequestHead, Scheme};

/// How much of one response an HTTP/2 origin may send ahead of its client, in bytes.
const STREAM_WINDOW: u32 = 512 << 10;
/// The same for all responses on a connection: enough for 256 whole streams, so that responses that
/// nobody reads never stall the others.
const CONNECTION_WINDOW: u32 = 256 * STREAM_WINDOW;
/// How much is read from an HTTP/1.1 origin at once, in bytes; a few times this is buffered per
/// response.
const READ_BUFFER: usize = 64 << 10;
/// The longest response head, in bytes (threats P05).
const ANSWER_HEAD: usize = 64 << 10;
/// How long a request's content waits for the origin's 100 (RFC 9110 §10.1.1: a client may not wait
/// for ever).
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// The origin side of one runtime thread.
pub struct Origins(Arc<Inner>);

pub(super) struct Inner {
    pub(super) settings: Arc<OriginSettings>,
    pub(super) resolver: Box<dyn Resolve>,
    pub(super) configurations: Configurations,
    pool: Pool,
}

/// A connection to exactly the authorized origin, for exactly one identity.
pub struct Channel {
    key: Key,
    sender: Sender,
    origins: Arc<Inner>,
    remote: SocketAddr,
    reused: bool,
}

enum Sender {
    /// With the `Host` of its origin, made once per connection.
    Http1(http1::SendRequest<Content>, HeaderValue),
    Http2(http2::SendRequest<Content>, Place),
}

/// The origin's response.
pub struct Forwarded {
    response: Response<OriginBody>,
    upgrade: Option<OnUpgrade>,
    plan: AnswerPlan,
}

impl Forwarded {
    /// The response's status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The answer, after a 101 the connection behind it, and what it is handled with.
    #[must_use]
    pub fn into_parts(self) -> (Response<OriginBody>, Option<OnUpgrade>, AnswerPlan) {
        (self.response, self.upgrade, self.plan)
    }
}

impl Origins {
    /// The origin side with these settings and the stub resolver.
    ///
    /// # Errors
    /// [`ResolverUnusable`] if the system's resolver configuration cannot be read.
    pub fn new(settings: Arc<OriginSettings>) -> Result<Self, ResolverUnusable> {
        let resolver = Box::new(StubResolver::new(&settings.resolver)?);
        Ok(Self::with_resolver(settings, resolver))
    }

    /// The origin side with another resolver.
    #[must_use]
    pub fn with_resolver(settings: Arc<OriginSettings>, resolver: Box<dyn Resolve>) -> Self {
        let pool = Pool::new(settings.idle_connections, settings.idle_timeout);
        Self(Arc::new(Inner {
            settings,
            resolver,
            configurations: Configurations::new(),
            pool,
        }))
    }

    /// Drops idle connections whose time is over.
    pub fn sweep(&self) {
        self.0.pool.sweep();
    }

    /// Opens a channel for an authorized and verified exchange: a pooled one, or a new one to a
    /// vetted address.
    ///
    /// No name is resolved and no packet is sent before this. Cancelling it closes what it opened.
    ///
    /// # Errors
    /// [`Error`] by cause; nothing of the exchange has been sent then.
    pub async fn open(&self, verified: &Verified) -> Result<Channel, Error> {
        let key = Key {
            identity: verified.identity().clone(),
            origin: verified.head().origin.clone(),
            generation: verified.generation(),
            needs_http2: verified.head().needs_http2(),
        };
        self.0.clone().channel(key).await
    }
}

impl Inner {
    async fn channel(self: Arc<Self>, key: Key) -> Result<Channel, Error> {
        while let Some(mut idle) = self.pool.take(&key) {
            if idle.sender.ready().await.is_ok() {
                return Ok(Channel {
                    key,
                    sender: Sender::Http1(idle.sender, idle.host),
                    origins: self,
                    remote: idle.remote,
                    reused: true,
                });
            }
        }
        if let Some((sender, place, remote)) = self.pool.share(&key) {
            return Ok(Channel {
                key,
                sender: Sender::Http2(sender, place),
                origins: self,
                remote,
                reused: true,
            });
        }
        // Rare and large: boxed, so that the usual exchange does not reserve memory for a
        // handshake.
        let (sender, remote) = Box::pin(self.dial(&key)).await?;
        Ok(Channel {
            key,
            sender,
            origins: self,
            remote,
            reused: false,
        })
    }

    async fn dial(&self, key: &Key) -> Result<(Sender, SocketAddr), Error> {
        let index = self.settings.index(&key.origin);
        let rule = index.map(|index| self.settings.at(index).0);
        let addresses = dial::addresses(&key.origin, rule, self.resolver.as_ref()).await?;
        let stream = dial::connect(addresses, &self.settings).await?;
        let remote = stream
            .peer_addr()
            .map_err(|error| Error::Unreachable(Some(error)))?;
        let sender = match key.origin.scheme {
            Scheme::Http => http1_over(Patient::new(stream), &key.origin).await?,
            Scheme::Https => self.secure(stream, remote, key, index).await?,
        };
        Ok((sender, remote))
    }

    async fn secure(
        &self,
        stream: tokio::net::TcpStream,
        remote: SocketAddr,
        key: &Key,
        rule: Option<usize>,
    ) -> Result<Sender, Error> {
        let protocol = rule.map(|index| self.settings.at(index).0.protocol);
        let offer = Offer::choose(protocol.unwrap_or_default(), key.needs_http2);
        let config = self
            .configurations
            .of(&self.settings, &key.identity, rule, offer)?;
        let stream = Patient::new(stream);
        let stream =
            dial::handshake(stream, &key.origin.authority.host, config, &self.settings).await?;
        match (stream.get_ref().1.alpn_protocol(), offer) {
            (Some(b"h2"), Offer::Http2 | Offer::Both) => {
                let sender = http2_over(stream).await?;
                let place = self.pool.add(key.clone(), sender.clone(), remote);
                Ok(Sender::Http2(sender, place))
            }
            (Some(b"http/1.1") | None, Offer::Http1 | Offer::Both) => {
                http1_over(stream, &key.origin).await
            }
            _ => Err(Error::Protocol),
        }
    }
}

async fn http1_over<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: T,
    origin: &Origin,
) -> Result<Sender, Error> {
    let host = host_field(origin)?;
    let (sender, connection) = http1::Builder::new()
        .max_header_size(ANSWER_HEAD)
        .max_buf_size(READ_BUFFER)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(Error::Http)?;
    // Owned by the sender: the task ends when the last sender is dropped or the origin closes.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to an origin ended");
        }
    });
    Ok(Sender::Http1(sender, host))
}

async fn http2_over<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: T,
) -> Result<http2::SendRequest<Content>, Error> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(ANSWER_HEAD as u32)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(Error::Http)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to an origin ended");
        }
    });
    Ok(sender)
}

impl Channel {
    /// The address that was dialled.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The HTTP version spoken on the channel.
    #[must_use]
    pub fn version(&self) -> Version {
        match self.sender {
            Sender::Http1(..) => Version::HTTP_11,
            Sender::Http2(..) => Version::HTTP_2,
        }
    }

    /// Sends the credentialed request, and returns the origin's response once its head has arrived.
    ///
    /// A pooled connection that the origin had already closed is replaced once, if no byte of the
    /// request had been written to it. Dropping the future resets the exchange on the origin's
    /// side.
    ///
    /// # Errors
    /// [`Error::WrongChannel`] if the channel was opened for another exchange; otherwise by cause.
    pub async fn forward(self, credentialed: Credentialed) -> Result<Forwarded, Error> {
        if *credentialed.origin() != self.key.origin
            || *credentialed.identity() != self.key.identity
        {
            return Err(Error::WrongChannel);
        }
        let Self {
            key,
            mut sender,
            origins,
            mut remote,
            mut reused,
        } = self;
        let (request, plan) = credentialed.into_parts();
        let (content, meter) = (request.content, request.meter);
        let had_content = !content.is_empty();
        let upgrade = plan.upgrade.is_some();
        let mut request = written(request.head, content, upgrade, sender.host())?;
        loop {
            let sent = match &mut sender {
                Sender::Http1(sender, _) => sender.try_send_request(request).await,
                Sender::Http2(sender, _) => sender.try_send_request(request).await,
            };
            match sent {
                Ok(response) => {
                    let (back, place) = match sender {
                        Sender::Http1(sender, host) => {
                            let back = Return {
                                sender,
                                host,
                                remote,
                                key,
                                origins,
                                meter,
                                had_content,
                            };
                            (Some(back), None)
                        }
                        Sender::Http2(_, place) => (None, Some(place)),
                    };
                    return answered(response, back, place, plan);
                }
                Err(mut failed) => {
                    let unsent = failed.take_message();
                    match unsent {
                        Some(unsent) if reused => {
                            (sender, remote) = Box::pin(origins.dial(&key)).await?;
                            if request_version(&unsent) != sender_version(&sender) {
                                return Err(Error::Protocol);
                            }
                            request = unsent;
                            reused = false;
                        }
                        _ => return Err(Error::Http(failed.into_error())),
                    }
                }
            }
        }
    }
}

impl Sender {
    /// The `Host` that an HTTP/1.1 request needs.
    fn host(&self) -> Option<&HeaderValue> {
        match self {
            Self::Http1(_, host) => Some(host),
            Self::Http2(..) => None,
        }
    }
}

fn sender_version(sender: &Sender) -> Version {
    match sender {
        Sender::Http1(..) => Version::HTTP_11,
        Sender::Http2(..) => Version::HTTP_2,
    }
}

fn request_version(request: &Request<Content>) -> Version {
    request.version()
}

/// The request as it is written: framing and routing fields are created anew from what was judged.
fn written(
    mut head: RequestHead,
    mut content: Content,
    upgrade: bool,
    host: Option<&HeaderValue>,
) -> Result<Request<Content>, Error> {
    let http1 = host.is_some();
    if !http1 {
        announce_trailers(&mut head);
    }
    let RequestHead {
        method,
        origin,
        target,
        mut fields,
        ..
    } = head;
    let uri = if let Some(host) = host {
        fields.insert(HOST, host.clone());
        if upgrade {
            fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
        }
        if needs_chunked(&method, &content) {
            fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        Uri::from(target.into_path_and_query())
    } else {
        Uri::builder()
            .scheme(origin.scheme.as_str())
            .authority(host_field(&origin)?.as_bytes())
            .path_and_query(target.into_path_and_query())
            .build()
            .map_err(|_| Error::Protocol)?
    };
    let gate = (fields.contains_key(EXPECT) && !content.is_empty()).then(|| content.gated());
    let mut request = Request::new(content);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = if http1 {
        Version::HTTP_11
    } else {
        Version::HTTP_2
    };
    *request.headers_mut() = fields;
    if let Some(gate) = gate {
        let opens = gate.clone();
        hyper::ext::on_informational(&mut request, move |answer| {
            if answer.status() == StatusCode::CONTINUE {
                opens.open();
            }
        });
        tokio::spawn(async move {
            tokio::time::sleep(CONTINUE_WAIT).await;
            gate.open();
        });
    }
    Ok(request)
}

/// Announces anew, for this hop, that it accepts trailers (RFC 9110 §10.1.4). Without that, gRPC
/// origins reset the stream.
fn announce_trailers(head: &mut RequestHead) {
    if head.is_grpc() {
        head.fields.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// hyper drops content of unknown length from methods that seldom have any, unless told otherwise
/// (threats F11).
fn needs_chunked(method: &Method, content: &Content) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
        && !content.is_empty()
        && content.size_hint().exact().is_none()
}

pub(super) fn host_field(origin: &Origin) -> Result<HeaderValue, Error> {
    let authority = &origin.authority;
    let text = if authority.port == origin.scheme.default_port() {
        authority.host.to_uri()
    } else {
        authority.to_string()
    };
    HeaderValue::try_from(text).map_err(|_| Error::Protocol)
}

fn answered(
    mut response: Response<Incoming>,
    back: Option<Return>,
    place: Option<Place>,
    plan: AnswerPlan,
) -> Result<Forwarded, Error> {
    let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if switched && plan.upgrade.is_none() {
        return Err(Error::BadUpgrade);
    }
    let on_upgrade = switched.then(|| hyper::upgrade::on(&mut response));
    // An upgraded connection never returns to the pool.
    let back = if switched { None } else { back };
    Ok(Forwarded {
        response: response.map(|inner| OriginBody {
            inner,
            ended: false,
            back: back.map(Box::new),
            _place: place,
        }),
        upgrade: on_upgrade,
        plan,
    })
}

struct Return {
    sender: http1::SendRequest<Content>,
    host: HeaderValue,
    remote: SocketAddr,
    key: Key,
    origins: Arc<Inner>,
    meter: Arc<Meter>,
    had_content: bool,
}

/// The content of a response. Its connection returns to the pool when both directions have ended
/// properly.
pub struct OriginBody {
    inner: Incoming,
    ended: bool,
    back: Option<Box<Return>>,
    /// Kept for as long as the stream is in use.
    _place: Option<Place>,
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) {
            self.ended = true;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for OriginBody {
    fn drop(&mut self) {
        let ended = self.ended || self.inner.is_end_stream();
        if let Some(back) = self.back.take()
            && ended
            && (!back.had_content || back.meter.up_ended())
        {
            let idle = Idle::new(back.sender, back.host, back.remote);
            back.origins.pool.give(back.key, idle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Authority, EncodedSlash, RequestTarget};
    use http::header::CONTENT_TYPE;

    fn head(kind: &'static str) -> RequestHead {
        let fields = [(CONTENT_TYPE, HeaderValue::from_static(kind))];
        RequestHead {
            method: Method::POST,
            origin: Origin {
                scheme: Scheme::Https,
                authority: Authority::parse(b"grpc.test", Some(443)).unwrap(),
            },
            target: RequestTarget::parse(b"/lab.Echo/Unary", EncodedSlash::Refuse).unwrap(),
            fields: fields.into_iter().collect(),
            version: Version::HTTP_2,
        }
    }

    #[test]
    fn a_grpc_call_tells_its_origin_that_trailers_are_taken_and_no_other_request_does() {
        for (kind, announced) in [
            ("application/grpc+proto", true),
            ("application/json", false),
        ] {
            let mut head = head(kind);
            announce_trailers(&mut head);
            assert_eq!(
                head.fields.get(TE).map(HeaderValue::as_bytes),
                announced.then_some(&b"trailers"[..]),
                "{kind}"
            );
        }
    }
}
