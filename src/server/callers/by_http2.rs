//! A proxy in TLS whose client speaks HTTP/2. Each CONNECT opens a stream that is treated as a
//! connection of its own, with the caller that its own fields show (RFC 9113 §8.5).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gateway_intercept::explicit::{self, Opening};
use gateway_intercept::prefixed::Prefixed;
use gateway_intercept::{
    CallerRefused, ClientStream, Entry, Presented, PresentedDenied, TokenPeer,
};
use gateway_message::{Authority, Origin};
use gateway_names::{ExchangeId, ReasonCode};
use gateway_session::SessionConnection;
use h2::Reason;
use http::{HeaderMap, Method, Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::by_presented::{Access, judge};
use crate::answer_body::AnswerBody;
use crate::conversation::{http2, serve_http2};
use crate::error_format::ErrorFormat;
use crate::guard::{Busy, Closing, ConnectionGuard};
use crate::listener::{Inbound, PeerCaller, SelectedSession, SessionListener};
use crate::proxy::absolute_form;
use crate::refusal::Refusal;
use crate::serve::{ConnectionSlot, SessionSlot};
use crate::worker::Worker;

/// What the streams of a connection share. No stream sees another stream's caller.
struct StreamContext {
    worker: Arc<Worker>,
    listener: Arc<SessionListener>,
    guard: Arc<ConnectionGuard>,
    peer: TokenPeer,
    beside: PeerCaller,
    client: Option<std::net::SocketAddr>,
    reached: Option<Origin>,
    /// Receives the connection's own place in the session of its first caller.
    first: Mutex<Option<oneshot::Sender<SessionConnection>>>,
    /// How many presented credentials were refused.
    denied: AtomicU32,
    tunnels: Mutex<JoinSet<()>>,
}

impl Worker {
    /// Serves an HTTP/2 connection to a proxy, until it has been without streams for too long.
    pub(crate) async fn by_http2(
        self: Arc<Self>,
        stream: ClientStream,
        listener: Arc<SessionListener>,
        deadline: Instant,
    ) {
        let guard = self.watchdog.connection(&listener.state.leaves);
        let beside = listener.caller(&stream).await;
        guard.is_of(beside.as_ref().ok().and_then(Option::as_ref));
        let (tells, mut first) = oneshot::channel();
        let door = Arc::new(StreamContext {
            worker: self.clone(),
            guard: guard.clone(),
            peer: TokenPeer::of(&stream),
            beside,
            client: listener.client(&stream),
            reached: stream.reached(),
            listener: listener.clone(),
            first: Mutex::new(Some(tells)),
            denied: AtomicU32::new(0),
            tunnels: Mutex::default(),
        });
        let (from, mut known) = (listener.arrival(door.client), None);
        let http2 = http2(self.shared.look().limits.streams_per_connection);
        let service = service_fn(move |request| door.clone().answer(request));
        let mut serving = std::pin::pin!(serve_http2(stream, &http2, service, &guard));
        let flooded = loop {
            tokio::select! {
                flooded = &mut serving => break flooded.is_so(),
                Ok(place) = &mut first, if known.is_none() => {
                    known = Some((place, SessionSlot::count(&listener.state.without_session)));
                }
                () = sleep_until(deadline), if known.is_none() => break false,
            }
        };
        if flooded {
            let reason = ReasonCode::Http2Flood;
            let refused = CallerRefused::of(None, "");
            self.record_caller(from, CallerRefused { reason, ..refused }, None);
        }
    }
}

impl StreamContext {
    async fn answer(
        self: Arc<Self>,
        mut request: Request<Incoming>,
    ) -> Result<Response<AnswerBody>, h2::Error> {
        if self.denied.load(Ordering::Relaxed) >= DENIED_MAX {
            return Err(Reason::REFUSED_STREAM.into());
        }
        let limits = self.worker.shared.look().limits.clone();
        let deadline = Instant::now() + limits.handshake_timeout;
        let without = &self.listener.state.without_session;
        let open = ConnectionSlot::count(&self.worker.shared.open, limits.connections);
        let waiting = ConnectionSlot::count(without, limits.connections_per_session);
        let Some((open, waiting)) = open.zip(waiting) else {
            return self.over_limit();
        };
        let asked = explicit::asked_of(request.uri());
        let selecting = timeout_at(deadline, self.select(request.headers(), asked.as_ref()));
        let selected = match Box::pin(selecting).await {
            Ok(Ok(selected)) => selected,
            Ok(Err(refused)) => return Ok(answer_of(refused)),
            Err(_) => return Err(Reason::CANCEL.into()),
        };
        drop(waiting);
        let place = self.place(&selected, limits.connections_per_session);
        let Some(place) = place else {
            return self.over_limit();
        };
        let inbound = Inbound {
            from: self.listener.arrival(self.client),
            selected: &selected,
            reached: self.reached.as_ref(),
        };
        if request.method() != Method::CONNECT {
            let context = absolute_form(inbound);
            let (worker, guard) = (self.worker.clone(), self.guard.clone());
            let conversation = worker.conversation_on(guard, inbound, context);
            return conversation
                .answer(request)
                .await
                .map_err(|never| match never {});
        }
        match explicit::target_of(&request) {
            Ok(to) => {
                let asked = Opening::Connect {
                    to,
                    is_answered: true,
                };
                let patience = (deadline, limits.progress_timeout);
                self.open(&mut request, (selected, asked), (open, place), patience);
                Ok(Response::new(AnswerBody::switched()))
            }
            Err(why) => {
                let reason = why.reason();
                let id = self
                    .worker
                    .record_opening(inbound, Entry::Connect, None, reason);
                Ok(answer_of((id, Refusal::Opening(why))))
            }
        }
    }

    fn over_limit<T>(&self) -> Result<T, h2::Error> {
        self.worker.over_limit();
        // RFC 9113 §8.7: the request was not processed, and may be sent again.
        Err(Reason::REFUSED_STREAM.into())
    }

    /// Takes a stream's place in its session; the first stream also takes its connection's place.
    fn place(&self, selected: &SelectedSession, limit: usize) -> Option<SessionConnection> {
        let connect = || selected.session.connect(limit);
        let place = connect()?;
        let mut first = self.first.lock();
        if first.is_some() {
            let own = connect()?;
            // A connection that has ended needs no place.
            let _ = first.take().map(|tells| tells.send(own));
        }
        Some(place)
    }

    /// Finds the session of a stream, by what its head presents and the evidence of its connection.
    async fn select(
        &self,
        fields: &HeaderMap,
        asked: Option<&Authority>,
    ) -> Result<SelectedSession, (ExchangeId, Refusal)> {
        let from = self.listener.arrival(self.client);
        let judged = match (&self.listener.state.verifier, &self.beside) {
            // Refused whatever the stream presents: a connection of its own would end, too.
            (_, Ok(Some(caller))) if caller.is_over() => {
                let cause = "the evidence that its connection came with has ended";
                Access::Refused(CallerRefused::of(caller.user.clone(), cause))
            }
            (Some(_), beside) => {
                let presented = Presented::of(fields);
                let by = self
                    .listener
                    .by_presented(presented, (&self.peer, beside))
                    .await;
                judge(by, beside, false)
            }
            (None, Ok(caller)) => Access::Caller(caller.clone()),
            (None, Err(refused)) => Access::Refused(refused.clone()),
        };
        let refused = match judged {
            Access::Selected(selected) => return Ok(selected),
            Access::Caller(caller) => match self.listener.select(caller).await {
                Ok(selected) => return Ok(selected),
                Err(refused) => refused,
            },
            Access::Refused(refused) => refused,
            Access::Denied(denied) => {
                self.denied(denied);
                return Err(self.worker.deny(from, denied, asked));
            }
        };
        let reason = refused.reason;
        let id = self.worker.record_caller(from, refused, asked);
        Err((id, Refusal::Caller(reason)))
    }

    /// Counts a refused credential, so that one connection cannot try many.
    fn denied(&self, denied: PresentedDenied) {
        let is_tried = denied != PresentedDenied::Missing;
        if is_tried && self.denied.fetch_add(1, Ordering::Relaxed) + 1 == DENIED_MAX {
            self.guard.close(Closing::Draining);
        }
    }

    /// Serves a tunnel until it or the connection ends. It keeps its place for as long as it holds
    /// memory.
    fn open(
        &self,
        request: &mut Request<Incoming>,
        (selected, asked): (SelectedSession, Opening),
        place: impl Send + 'static,
        (deadline, progress): (Instant, Duration),
    ) {
        let opening = hyper::upgrade::on(request);
        let (worker, listener, client) = (self.worker.clone(), self.listener.clone(), self.client);
        let reached = self.reached.clone();
        let (guard, busy) = (self.guard.clone(), Busy::on(&self.guard));
        let mut tunnels = self.tunnels.lock();
        while tunnels.try_join_next().is_some() {}
        tunnels.spawn(async move {
            let _place = place;
            let Ok(stream) = opening.await else { return };
            let (stream, mut left) = ClientStream::http2(stream);
            let inbound = Inbound {
                from: listener.arrival(client),
                selected: &selected,
                reached: reached.as_ref(),
            };
            let serving = worker.proxied(Prefixed::new(stream), inbound, Some(Ok(asked)), deadline);
            Box::pin(serving).await;
            // A WebSocket inside may still use the stream.
            left.ended().await;
            drop(busy);
            if timeout(progress, left.taken()).await.is_err() {
                guard.close(Closing::AtOnce);
            }
        });
    }
}

fn answer_of((id, refusal): (ExchangeId, Refusal)) -> Response<AnswerBody> {
    let (status, fields, content) = refusal.answer(id, Version::HTTP_2, ErrorFormat::Gateway, "");
    let mut response = Response::new(AnswerBody::own(content));
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    response
}

/// How many credentials of one connection may be refused before it is drained.
const DENIED_MAX: u32 = 3;
