//! The content of a request on its way from the client to the origin: streamed and counted, or
//! buffered and transformed if a signature needs it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::arriving::{ArrivalCheck, Arriving};
use super::read::Prefix;
use super::{BodyTransform, ContentFault, HeldBody, HoldBudget, HoldFault, Limit, TransformFault};

/// Counts the bytes of content moved in one exchange. Shared between the two directions and the
/// watchdog.
#[derive(Debug, Default)]
pub struct Meter {
    up: AtomicU64,
    down: AtomicU64,
    up_ended: AtomicBool,
    moved: AtomicBool,
    unclosed: AtomicBool,
    /// Why the content was cut off on its way to the origin.
    fault: OnceLock<TransformFault>,
}

impl Meter {
    /// Content bytes sent towards the origin.
    pub fn up(&self) -> u64 {
        self.up.load(Ordering::Relaxed)
    }

    /// Content bytes released towards the client.
    pub fn down(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }

    /// Whether all of the request's content was given to the connection.
    pub fn up_ended(&self) -> bool {
        self.up_ended.load(Ordering::Relaxed)
    }

    /// Notes that a response's content ended with a connection whose TLS was not closed.
    pub fn end_unclosed(&self) {
        self.unclosed.store(true, Ordering::Relaxed);
    }

    /// Whether a response's content ended so.
    pub fn is_unclosed(&self) -> bool {
        self.unclosed.load(Ordering::Relaxed)
    }

    /// Why the request's content was cut off, if it failed a check.
    pub fn fault(&self) -> Option<&TransformFault> {
        self.fault.get()
    }

    /// Counts bytes released towards the client.
    pub fn add_down(&self, bytes: usize) {
        self.down.fetch_add(bytes as u64, Ordering::Relaxed);
        self.moved.store(true, Ordering::Relaxed);
    }

    /// Subtracts bytes that are sent again.
    fn take_up(&self, bytes: usize) {
        self.up.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.up_ended.store(false, Ordering::Relaxed);
    }

    /// Counts bytes sent towards the origin.
    pub fn add_up(&self, bytes: usize) {
        self.up.fetch_add(bytes as u64, Ordering::Relaxed);
        self.moved.store(true, Ordering::Relaxed);
    }

    /// Whether anything moved since the last call.
    pub fn take_moved(&self) -> bool {
        self.moved.swap(false, Ordering::Relaxed)
    }
}

/// Withholds a request's content until the origin asks for it (`Expect: 100-continue`, RFC 9110
/// §10.1.1).
#[derive(Default)]
pub struct ContinueGate {
    open: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl ContinueGate {
    /// Lets the content flow.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
        if let Some(waker) = self
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            waker.wake();
        }
    }

    fn poll_open(&self, cx: &Context<'_>) -> Poll<()> {
        if self.open.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        // The origin may have answered between the check and the registration.
        if self.open.load(Ordering::Acquire) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// Decides which trailer fields of a request reach the origin.
pub type TrailerFilter = fn(&mut HeaderMap);

/// Sees each piece of content just before it is sent.
pub type PieceObserver = Box<dyn FnMut(&[u8]) + Send + Sync>;

/// The content of one request.
pub struct Content {
    source: Source,
    meter: Arc<Meter>,
    gate: Option<Arc<ContinueGate>>,
    trailers: TrailerFilter,
    transforming: Option<Box<Transforming>>,
    watch: Option<PieceObserver>,
    /// The sent content; `None` if it was more than `keeps`.
    kept: Option<BytesMut>,
    keeps: usize,
    /// Content that was taken back, and is sent before all else.
    again: Bytes,
    /// The exact length that the connection was given, if any; known once it polled first.
    promised: Option<Option<u64>>,
    ended: bool,
}

/// The most bytes of content that are kept until there is an answer.
const MOST_KEPT: usize = 64 << 10;

enum Source {
    /// As it arrives, after the part that was buffered.
    Client(Option<Box<HeldBody>>, Arriving),
    /// Complete, in memory.
    Held(Box<HeldBody>),
}

/// The transformation or check that the content passes through, and its output so far.
struct Transforming {
    transform: Box<dyn BodyTransform>,
    /// How many bytes pass before the first that it sees.
    known: usize,
    ready: Vec<Bytes>,
    given: usize,
    trailers: Option<HeaderMap>,
    begun: bool,
    over: bool,
}

impl Content {
    /// Content as it arrives from the client, counted by `meter`, with trailers filtered by
    /// `trailers`.
    pub fn new(inner: Incoming, meter: Arc<Meter>, trailers: TrailerFilter) -> Self {
        Self {
            source: Source::Client(None, Arriving::new(inner)),
            meter,
            gate: None,
            trailers,
            transforming: None,
            watch: None,
            kept: Some(BytesMut::new()),
            keeps: 0,
            again: Bytes::new(),
            promised: None,
            ended: false,
        }
    }

    /// Keeps the sent content, up to 64 KiB, so that it can be sent again. Otherwise, it can be
    /// sent again only before its first byte is sent.
    pub fn keep(&mut self) {
        self.keeps = MOST_KEPT;
    }

    /// Has every piece that arrives from now on checked, before anything reads it.
    pub fn check(&mut self, check: Box<dyn ArrivalCheck>) {
        if let Source::Client(_, arriving) = &mut self.source {
            arriving.check(check);
        }
    }

    /// Passes every sent piece to `watch`.
    pub fn watch(&mut self, watch: PieceObserver) {
        self.watch = Some(watch);
    }

    pub(super) fn keep_nothing(&mut self) {
        self.kept = None;
    }

    /// The same content from its first byte, if all sent content was kept.
    pub(super) fn whole_again(mut self) -> Option<Self> {
        let kept = self.kept.replace(BytesMut::new())?;
        self.meter.take_up(kept.len());
        self.again = [&kept[..], &self.again].concat().into();
        Some(self)
    }

    fn sent(&mut self, frame: &Frame<Bytes>) {
        let data = frame.data_ref();
        let length = data.map_or(0, Bytes::len);
        if let (Some(watch), Some(data)) = (&mut self.watch, data) {
            watch(data);
        }
        self.meter.add_up(length);
        match (&mut self.kept, data) {
            (Some(kept), Some(data)) if kept.len() + length <= self.keeps => {
                kept.extend_from_slice(data);
            }
            // Trailers are not sent twice.
            _ => self.kept = None,
        }
        // A connection polls no more once it has the last byte, or the trailers.
        let is_whole = self.promised == Some(Some(self.meter.up()));
        if is_whole || frame.is_trailers() || self.is_end_stream() {
            self.meter.up_ended.store(true, Ordering::Relaxed);
        }
    }

    /// Puts a closed gate in front of the content.
    pub fn gated(&mut self) -> Arc<ContinueGate> {
        self.gate.get_or_insert_default().clone()
    }

    /// Whether there is no content.
    pub fn is_empty(&self) -> bool {
        match &self.source {
            Source::Client(ahead, inner) => {
                self.again.is_empty() && ahead.is_none() && inner.is_end_stream()
            }
            Source::Held(held) => held.is_empty() && held.trailers.is_none(),
        }
    }

    /// Buffers the content: all of it, or the beginning that `prefix` needs. The first read sends
    /// 100 (Continue) to a client that waits for it.
    ///
    /// # Errors
    /// [`HoldFault`] by cause, among them more than `limit`. What was buffered is then dropped.
    pub async fn hold(
        mut self,
        limit: Limit,
        budget: &Arc<HoldBudget>,
        prefix: Option<Prefix>,
    ) -> Result<Self, HoldFault> {
        let is_announced_longer = limit.is_passed_by(self.size_hint().lower());
        let is_refused = prefix.is_none() && self.held().is_none() && is_announced_longer;
        if !is_refused && self.read_ahead(limit, budget, prefix).await? {
            Ok(self)
        } else {
            Err(HoldFault::TooLong(limit))
        }
    }

    /// Buffers the whole content, if it is within `limit`. Longer content goes on streaming, from
    /// its first byte.
    ///
    /// # Errors
    /// [`HoldFault`] if the budget does not allow it, or the client's side failed.
    pub async fn hold_if_short(
        mut self,
        limit: Limit,
        budget: &Arc<HoldBudget>,
    ) -> Result<Self, HoldFault> {
        if !limit.is_passed_by(self.size_hint().lower()) {
            self.read_ahead(limit, budget, None).await?;
        }
        Ok(self)
    }

    /// Buffers content up to its end, or until the prefix is whole. Returns whether that is within
    /// the limit.
    async fn read_ahead(
        &mut self,
        limit: Limit,
        budget: &Arc<HoldBudget>,
        mut prefix: Option<Prefix>,
    ) -> Result<bool, HoldFault> {
        let Source::Client(ahead, inner) = &mut self.source else {
            return Ok(true);
        };
        let begun = ahead.take();
        let mut held = begun.unwrap_or_else(|| Box::new(HeldBody::new(budget.clone())));
        while let Some(frame) = std::future::poll_fn(|cx| inner.poll_frame(cx)).await {
            match frame?.into_data() {
                Ok(data) => {
                    self.meter.moved.store(true, Ordering::Relaxed);
                    let is_enough = prefix.as_mut().is_some_and(|prefix| prefix.take(&data));
                    held.take(data)?;
                    let is_longer = limit.is_passed_by(held.len() as u64);
                    if is_longer || is_enough && !inner.is_end_stream() {
                        *ahead = Some(held);
                        return Ok(!is_longer);
                    }
                }
                Err(frame) => {
                    held.trailers = frame.into_trailers().ok().map(|mut trailers| {
                        (self.trailers)(&mut trailers);
                        trailers
                    });
                }
            }
        }
        self.source = Source::Held(held);
        Ok(true)
    }

    /// Reads the rest, and drops it.
    pub async fn discard(&mut self) {
        while let Some(Ok(_)) = std::future::poll_fn(|cx| self.poll_source(cx)).await {
            self.meter.moved.store(true, Ordering::Relaxed);
        }
    }

    /// The content, if it is buffered.
    pub fn held(&self) -> Option<&HeldBody> {
        match &self.source {
            Source::Held(held) => Some(held),
            Source::Client(..) => None,
        }
    }

    /// The buffered part of the content: all of it, or its beginning.
    pub fn ahead(&self) -> Option<&HeldBody> {
        match &self.source {
            Source::Held(held) => Some(held),
            Source::Client(ahead, _) => ahead.as_deref(),
        }
    }

    /// Replaces the buffered part of the content. Only values that were read may differ.
    pub fn replace(&mut self, content: Bytes) {
        let held = match &mut self.source {
            Source::Held(held) => Some(held),
            Source::Client(ahead, _) => ahead.as_mut(),
        };
        if let Some(held) = held {
            if let Some(transforming) = &mut self.transforming {
                transforming.known =
                    (transforming.known + content.len()).saturating_sub(held.len());
            }
            held.replace(content);
        }
    }

    /// Passes every piece through `transform`, which must not change the length.
    pub fn transform(&mut self, transform: Box<dyn BodyTransform>) {
        self.pass_through(transform, 0);
    }

    /// Passes every piece after the buffered part through `check`.
    pub fn follow(&mut self, check: Box<dyn BodyTransform>) {
        self.pass_through(check, self.ahead().map_or(0, HeldBody::len));
    }

    /// Drops all trailers.
    pub fn drop_trailers(&mut self) {
        self.trailers = HeaderMap::clear;
    }

    fn pass_through(&mut self, transform: Box<dyn BodyTransform>, known: usize) {
        self.transforming = Some(Box::new(Transforming {
            transform,
            known,
            ready: Vec::new(),
            given: 0,
            trailers: None,
            begun: false,
            over: false,
        }));
    }

    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ContentFault>>> {
        match &mut self.source {
            Source::Client(ahead, inner) => {
                let piece = ahead.as_mut().and_then(|held| held.pieces.pop_front());
                if ahead.as_ref().is_some_and(|held| held.pieces.is_empty()) {
                    *ahead = None;
                }
                if let Some(piece) = piece {
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                let mut frame = std::task::ready!(inner.poll_frame(cx));
                if let Some(trailers) = frame
                    .as_mut()
                    .and_then(|frame| frame.as_mut().ok()?.trailers_mut())
                {
                    (self.trailers)(trailers);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(ContentFault::from)))
            }
            Source::Held(held) => Poll::Ready(match held.pieces.pop_front() {
                Some(piece) => Some(Ok(Frame::data(piece))),
                None => held
                    .trailers
                    .take()
                    .map(|trailers| Ok(Frame::trailers(trailers))),
            }),
        }
    }

    fn poll_transformed(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ContentFault>>> {
        loop {
            let Some(transforming) = &mut self.transforming else {
                return self.poll_source(cx);
            };
            if let Some(piece) = transforming.take() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if transforming.over {
                let trailers = transforming.trailers.take();
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            }
            let frame = std::task::ready!(self.poll_source(cx)).transpose()?;
            let Some(transforming) = &mut self.transforming else {
                return Poll::Ready(None);
            };
            transforming.step(frame)?;
        }
    }
}

impl Transforming {
    fn take(&mut self) -> Option<Bytes> {
        let piece = self.ready.get_mut(self.given).map(std::mem::take);
        match piece {
            Some(piece) => {
                self.given += 1;
                Some(piece)
            }
            None => {
                self.ready.clear();
                self.given = 0;
                None
            }
        }
    }

    fn step(&mut self, frame: Option<Frame<Bytes>>) -> Result<(), TransformFault> {
        self.begun = true;
        match frame.map(Frame::into_data) {
            Some(Ok(mut data)) => {
                let known = data.split_to(self.known.min(data.len()));
                self.known -= known.len();
                self.ready.push(known);
                if !data.is_empty() {
                    self.transform.piece(data, &mut self.ready)?;
                }
            }
            Some(Err(frame)) => self.trailers = frame.into_trailers().ok(),
            None => {
                self.transform.end(&mut self.ready)?;
                self.over = true;
            }
        }
        // An empty frame carries nothing, and some peers count them.
        self.ready.retain(|piece| !piece.is_empty());
        Ok(())
    }
}

// `Debug` shows no member: content must not reach logs.
gateway_names::concealed!(Content);

impl Body for Content {
    type Data = Bytes;
    type Error = ContentFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ContentFault>>> {
        if let Some(gate) = &self.gate {
            std::task::ready!(gate.poll_open(cx));
            self.gate = None;
        }
        if self.promised.is_none() {
            self.promised = Some(self.size_hint().exact());
        }
        if !self.again.is_empty() {
            let frame = Frame::data(std::mem::take(&mut self.again));
            self.sent(&frame);
            return Poll::Ready(Some(Ok(frame)));
        }
        if self.ended {
            self.meter.up_ended.store(true, Ordering::Relaxed);
            return Poll::Ready(None);
        }
        let frame = match &self.transforming {
            None => std::task::ready!(self.poll_source(cx)),
            Some(_) => std::task::ready!(self.poll_transformed(cx)),
        };
        match frame {
            None => {
                self.ended = true;
                self.meter.up_ended.store(true, Ordering::Relaxed);
                Poll::Ready(None)
            }
            Some(Ok(frame)) => {
                self.sent(&frame);
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.kept = None;
                // Over HTTP/2 the connection does not report the fault.
                if let ContentFault::Transform(fault) = &error {
                    let _ = self.meter.fault.set(fault.clone());
                }
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match (&self.transforming, &self.source) {
            _ if !self.again.is_empty() => false,
            _ if self.ended => true,
            // The content is over only once the transformation has accepted the end.
            (Some(transforming), _) => {
                transforming.over
                    && transforming.given == transforming.ready.len()
                    && transforming.trailers.is_none()
            }
            (None, Source::Client(ahead, inner)) => ahead.is_none() && inner.is_end_stream(),
            (None, Source::Held(held)) => held.pieces.is_empty() && held.trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let again = self.again.len() as u64;
        match &self.source {
            // Bytes that a transformation withholds were already subtracted by the layer below.
            Source::Client(..)
                if self
                    .transforming
                    .as_ref()
                    .is_some_and(|transforming| transforming.begun) =>
            {
                SizeHint::new()
            }
            Source::Client(ahead, inner) => {
                let ahead = again + ahead.as_ref().map_or(0, |held| held.left() as u64);
                let exact = inner.size_hint().exact();
                exact.map_or_else(SizeHint::new, |left| SizeHint::with_exact(left + ahead))
            }
            Source::Held(held) => SizeHint::with_exact(held.left() as u64 + again),
        }
    }
}
