//! Opens a channel to the origin of an authorized exchange, and forwards the request on it.

use std::net::SocketAddr;
use std::sync::Arc;

use gateway_body::{Meter, Outgoing};
use gateway_credential::{AnswerPlan, Credentialed, Settled};
use gateway_message::{Authority, Origin, RequestHead, Scheme};
use gateway_names::Tie;
use gateway_session::{Revocation, Revoked};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::Error;
use super::dialer::Dialer;
use super::no_answer::SendFailure;
use super::origin_body::{ContentEnd, OriginBody, PoolReturn};
use super::pool::{Pool, PoolKey};
use super::request::written;
use super::resolve::{Resolve, ResolverUnusable, StubResolver};
use super::rule::OriginSettings;
use super::sender::{Sender, StreamSlot};
use super::tls::{Configurations, UsableVersions};
use super::vet::vet;

/// The origin side of one runtime thread, with the settings of one generation.
pub struct Origins(Arc<Dialer>);

/// A connection to exactly the authorized origin, for exactly one identity.
pub struct Channel {
    key: Arc<PoolKey>,
    carried: UsableVersions,
    sender: Sender,
    dialer: Arc<Dialer>,
    remote: SocketAddr,
    reused: bool,
}

/// The origin's response.
pub struct Forwarded {
    response: Response<OriginBody>,
    upgrade: Option<OnUpgrade>,
    plan: AnswerPlan,
    remote: SocketAddr,
}

impl Forwarded {
    /// Returns the address that the response came from.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Returns the response, the upgraded connection (after a 101), and how to handle the response.
    #[must_use]
    pub fn into_parts(self) -> (Response<OriginBody>, Option<OnUpgrade>, AnswerPlan) {
        (self.response, self.upgrade, self.plan)
    }
}

impl Origins {
    /// Returns the origin side with these settings and the stub resolver.
    ///
    /// # Errors
    /// [`ResolverUnusable`] if the system's resolver configuration cannot be read.
    pub fn new(settings: Arc<OriginSettings>) -> Result<Self, ResolverUnusable> {
        let resolver = Arc::new(StubResolver::new(&settings.resolver)?);
        Ok(Self::with_resolver(settings, resolver))
    }

    /// Returns the origin side with other settings. The resolver keeps its cache, unless its own
    /// settings differ.
    ///
    /// # Errors
    /// As [`Origins::new`].
    pub fn with_settings(&self, settings: Arc<OriginSettings>) -> Result<Self, ResolverUnusable> {
        if settings.resolver != self.0.settings.resolver {
            return Self::new(settings);
        }
        Ok(Self::with_resolver(settings, self.0.resolver.clone()))
    }

    /// Whether the settings in use are these.
    #[must_use]
    pub fn has(&self, settings: &Arc<OriginSettings>) -> bool {
        Arc::ptr_eq(&self.0.settings, settings)
    }

    fn with_resolver(settings: Arc<OriginSettings>, resolver: Arc<dyn Resolve>) -> Self {
        let pool = Pool::new(settings.idle_connections, settings.idle_timeout);
        Self(Arc::new(Dialer {
            settings,
            resolver,
            configurations: Configurations::new(),
            pool,
        }))
    }

    /// Drops connections that were idle for too long, and those of earlier generations.
    pub fn sweep(&self, generation: u64) {
        self.0.pool.sweep(generation);
    }

    /// Opens a channel for an authorized, verified and settled exchange: a pooled one, or a new one
    /// to a vetted address.
    ///
    /// An http origin needs a rule of the operator that allows cleartext. Before this call, no name
    /// is resolved and no packet is sent. Cancelling the future closes what it opened.
    ///
    /// # Errors
    /// [`Error`] by cause. No part of the request was sent then.
    pub async fn open(&self, settled: &Settled) -> Result<Channel, Error> {
        let head = settled.head();
        if is_of_connection(&head.fields, &AUTHORIZATION) {
            settled.tie().tie();
        }
        let key = Arc::new(PoolKey {
            tied: settled.tie().tied(),
            identity: settled.identity().clone(),
            origin: head.origin.clone(),
            generation: settled.generation(),
        });
        let carried = match settled.is_upgrade() {
            _ if head.needs_http2() => UsableVersions::ByHttp2,
            true => UsableVersions::ByHttp1,
            false => UsableVersions::ByAny,
        };
        if key.origin.scheme == Scheme::Http {
            self.may_be_clear(&key.origin)?;
        }
        self.channel(key, carried, settled.revocations()).await
    }

    /// Refuses an http origin unless the operator's rule allows cleartext. A prohibited address is
    /// the reason given first.
    fn may_be_clear(&self, origin: &Origin) -> Result<(), Error> {
        let rule = self.0.settings.rule(origin);
        if rule.is_some_and(|rule| rule.cleartext) {
            return Ok(());
        }
        let exceptions = rule.map_or(&[][..], |rule| &rule.addresses);
        let Authority { host, port } = &origin.authority;
        if let Some(address) = host.ip() {
            let vetted = vet(address, *port, exceptions);
            vetted.map_err(|why| Error::Prohibited(why, address))?;
        }
        Err(Error::ClearText)
    }

    async fn channel(
        &self,
        key: Arc<PoolKey>,
        carried: UsableVersions,
        revocations: &[Arc<Revocation>],
    ) -> Result<Channel, Error> {
        if let Some(open) = self.pooled(&key, carried).await {
            return Ok(open);
        }
        let carried = match carried {
            UsableVersions::ByAny if self.0.pool.asks_http1(&key) => UsableVersions::ByHttp1,
            carried => carried,
        };
        if self.0.is_shared(&key, carried) {
            // Rare, and a large future.
            Box::pin(self.dial_in_turn(key, carried, revocations)).await
        } else {
            Channel::dial(self.0.clone(), key, carried, revocations, true).await
        }
    }

    /// Dials a connection for all waiting exchanges; of several at once, the first dials.
    async fn dial_in_turn(
        &self,
        key: Arc<PoolKey>,
        carried: UsableVersions,
        revocations: &[Arc<Revocation>],
    ) -> Result<Channel, Error> {
        let turn = self.0.pool.turn(&key);
        let mut has_failed = turn.lock().await;
        if let Some(open) = self.pooled(&key, carried).await {
            return Ok(open);
        }
        let dial = Channel::dial(self.0.clone(), key, carried, revocations, true);
        if !*has_failed {
            let dialled = dial.await;
            *has_failed = dialled.is_err();
            return dialled;
        }
        // No exchange waits for others to fail again.
        drop(has_failed);
        let dialled = dial.await;
        *turn.lock().await = dialled.is_err();
        dialled
    }

    /// Returns an open connection from the pool.
    async fn pooled(&self, key: &Arc<PoolKey>, carried: UsableVersions) -> Option<Channel> {
        let pool = &self.0.pool;
        let channel = |sender, remote| Channel {
            key: key.clone(),
            carried,
            sender,
            dialer: self.0.clone(),
            remote,
            reused: true,
        };
        if carried != UsableVersions::ByHttp1
            && let Some((sender, stream, remote)) = pool.share(key)
        {
            return Some(channel(Sender::Http2(sender, stream), remote));
        }
        while carried != UsableVersions::ByHttp2
            && let Some(mut idle) = pool.take(key)
        {
            if idle.requests.ready().await.is_ok() {
                let remote = idle.remote;
                return Some(channel(Sender::Http1(idle), remote));
            }
        }
        None
    }
}

impl Channel {
    /// Returns the address that was dialled.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Returns the HTTP version of the channel.
    pub fn version(&self) -> Version {
        self.sender.version()
    }

    /// Opens a new connection. A revocation of any of the credentials ends it.
    async fn dial(
        dialer: Arc<Dialer>,
        key: Arc<PoolKey>,
        carried: UsableVersions,
        revocations: &[Arc<Revocation>],
        shared: bool,
    ) -> Result<Self, Error> {
        // Rare and large: boxed, so that the usual exchange does not reserve memory for a
        // handshake.
        let (sender, remote) = Box::pin(dialer.dial(&key, carried, revocations, shared)).await?;
        Ok(Self {
            key,
            carried,
            sender,
            dialer,
            remote,
            reused: false,
        })
    }

    /// Sends the credentialed request, and returns the origin's response once its head has arrived.
    ///
    /// Without a response, the request is sent once more on a new connection if
    /// `NoAnswer::is_repeated` allows it and the content is still complete. Dropping the future
    /// resets the exchange on the origin's side.
    ///
    /// # Errors
    /// [`Error::WrongChannel`] if the channel was opened for another exchange; otherwise by cause.
    pub async fn forward(self, credentialed: Credentialed) -> Result<Forwarded, Error> {
        if *credentialed.origin() != self.key.origin
            || *credentialed.identity() != self.key.identity
        {
            return Err(Error::WrongChannel);
        }
        let (request, plan, judged) = credentialed.into_parts();
        let (head, mut content, meter) = (request.head, request.content, request.meter);
        let upgrade = plan.upgrade.is_some();
        let is_http2 = self.version() == Version::HTTP_2;
        if is_http2 || self.reused && head.method.is_idempotent() {
            content.keep();
        }
        let again = || (self.dialer.clone(), self.key.clone(), head.clone());
        let spare = (is_http2 || self.reused).then(again);
        let mut carried = self.carried;
        let content = Outgoing::new(content);
        let sent = self.send(head, content.clone(), upgrade, &meter).await;
        let answered = match (sent, spare) {
            (Err(Error::NoAnswer(why)), Some((dialer, key, head)))
                if why.is_repeated(judged.is_for_once()) =>
            {
                let Some(whole) = content.take_back() else {
                    return Err(Error::NoAnswer(why));
                };
                if why.asks_http1() {
                    dialer.pool.ask_http1(&key);
                    carried = UsableVersions::ByHttp1;
                }
                // Not shared, so that no other stream comes before this one.
                let another = Self::dial(dialer, key, carried, judged.revocations(), false).await?;
                let whole = Outgoing::new(whole);
                another.send(head, whole, upgrade, &meter).await?
            }
            // The connection was ended for it.
            (Err(Error::NoAnswer(_) | Error::Http(_) | Error::Line(..)), _)
                if is_revoked(judged.revocations()) =>
            {
                return Err(Revoked.into());
            }
            (sent, _) => sent?,
        };
        answered.into_forwarded(plan, &request.connection.tie)
    }

    async fn send(
        self,
        head: RequestHead,
        content: Outgoing,
        upgrade: bool,
        meter: &Arc<Meter>,
    ) -> Result<OriginAnswer, Error> {
        let mut sender = self.sender;
        let method = head.method.clone();
        let had_content = !content.is_empty();
        let heard = sender.heard();
        let request = written(head, content.clone(), upgrade, sender.host(), &heard)?;
        let sent = tokio::select! {
            biased;
            () = heard.flooded() => return Err(Error::Informational),
            sent = sender.send(request) => sent,
        };
        let response = match sent {
            Ok(response) if has_two_lengths(response.headers()) => return Err(Error::TwoLengths),
            Ok(response) => response,
            Err(failed) => {
                let is_unwritten = failed.message().is_some();
                let source = failed.into_error();
                let failure = SendFailure {
                    is_unwritten,
                    is_reused: self.reused,
                    is_http2: sender.version() == Version::HTTP_2,
                    source,
                };
                return Err(match sender.has_heard() {
                    false => Error::NoAnswer(failure.without_answer(&method)),
                    true if failure.source.is_parse_too_large() => {
                        Error::HeadTooLong(failure.source)
                    }
                    true => match heard.faulty_line().filter(|_| failure.source.is_parse()) {
                        Some(line) => Error::Line(line, failure.source),
                        None => Error::Http(failure.source),
                    },
                });
            }
        };
        heard.answered();
        content.keep_no_more();
        let (back, stream) = match sender {
            Sender::Http1(http1) => {
                let back = PoolReturn {
                    http1,
                    key: self.key,
                    dialer: self.dialer,
                    meter: meter.clone(),
                    had_content,
                };
                (Some(back), None)
            }
            Sender::Http2(_, stream) => (None, Some(stream)),
        };
        Ok(OriginAnswer {
            response,
            back,
            stream,
            remote: self.remote,
        })
    }
}

fn is_revoked(revocations: &[Arc<Revocation>]) -> bool {
    revocations.iter().any(|one| one.is_revoked())
}

/// Whether a content length comes with a transfer coding other than chunked, which hides its end.
fn has_two_lengths(fields: &HeaderMap) -> bool {
    let is_chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    fields.contains_key(CONTENT_LENGTH) && !fields.get_all(TRANSFER_ENCODING).iter().all(is_chunked)
}

/// Whether a field names a connection-bound scheme of authentication (MS-NTHT, RFC 4559 §6).
fn is_of_connection(fields: &HeaderMap, name: &HeaderName) -> bool {
    let values = fields.get_all(name).iter().map(HeaderValue::as_bytes);
    let mut challenges = values.flat_map(|value| value.split(|byte| *byte == b','));
    challenges.any(|one| {
        let scheme = one.trim_ascii().split(|byte| *byte == b' ').next();
        let scheme = scheme.unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
    })
}

/// Replaces a repeated `Content-Length` by one value (RFC 9112 §6.3): hyper has checked that all
/// values are the same.
fn one_length(fields: &mut HeaderMap) {
    let mut all = fields.get_all(CONTENT_LENGTH).iter();
    let Some(first) = all.next() else { return };
    let one = first.as_bytes().split(|byte| *byte == b',').next();
    let one = one.map(<[u8]>::trim_ascii).unwrap_or_default();
    if all.next().is_some() || one.len() != first.len() {
        let one = HeaderValue::from_bytes(one).expect("a part of a value is valid");
        fields.insert(CONTENT_LENGTH, one);
    }
}

/// How the end of a response's content is delimited.
fn content_end(response: &Response<Incoming>) -> ContentEnd {
    let framed = [CONTENT_LENGTH, TRANSFER_ENCODING];
    let is_framed = framed
        .iter()
        .any(|name| response.headers().contains_key(name));
    if response.version() != Version::HTTP_2 && !is_framed {
        ContentEnd::Connection
    } else {
        ContentEnd::Framed
    }
}

/// A response, and the values that are kept until the content has ended.
struct OriginAnswer {
    response: Response<Incoming>,
    back: Option<PoolReturn>,
    stream: Option<StreamSlot>,
    remote: SocketAddr,
}

impl OriginAnswer {
    fn into_forwarded(mut self, plan: AnswerPlan, tie: &Tie) -> Result<Forwarded, Error> {
        if let Some(back) = &mut self.back
            && is_of_connection(self.response.headers(), &WWW_AUTHENTICATE)
        {
            Arc::make_mut(&mut back.key).tied = Some(tie.tie());
        }
        let switched = self.response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if switched && plan.upgrade.is_none() {
            return Err(Error::BadUpgrade);
        }
        if self.response.version() != Version::HTTP_2 {
            one_length(self.response.headers_mut());
        }
        let on_upgrade = switched.then(|| hyper::upgrade::on(&mut self.response));
        // An upgraded connection never returns to the pool.
        let back = if switched { None } else { self.back };
        let (stream, end) = (self.stream, content_end(&self.response));
        Ok(Forwarded {
            response: self
                .response
                .map(|inner| OriginBody::new(inner, end, back, stream)),
            upgrade: on_upgrade,
            plan,
            remote: self.remote,
        })
    }
}
