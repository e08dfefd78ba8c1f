//! The content of a request on its way from the client to the origin: streamed, metered, never collected.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// What moved in one exchange, in bytes of content; shared between the two directions and the watch over them.
#[derive(Debug, Default)]
pub struct Meter {
    up: AtomicU64,
    down: AtomicU64,
    up_ended: AtomicBool,
    moved: AtomicBool,
}

impl Meter {
    /// Content bytes sent towards the origin.
    #[must_use]
    pub fn up(&self) -> u64 {
        self.up.load(Ordering::Relaxed)
    }

    /// Content bytes released towards the client.
    #[must_use]
    pub fn down(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }

    /// Whether the request's content came to its proper end.
    #[must_use]
    pub fn up_ended(&self) -> bool {
        self.up_ended.load(Ordering::Relaxed)
    }

    /// Counts bytes released towards the client.
    pub fn add_down(&self, bytes: usize) {
        self.down.fetch_add(bytes as u64, Ordering::Relaxed);
        self.moved.store(true, Ordering::Relaxed);
    }

    /// Counts bytes sent towards the origin.
    pub fn add_up(&self, bytes: usize) {
        self.up.fetch_add(bytes as u64, Ordering::Relaxed);
        self.moved.store(true, Ordering::Relaxed);
    }

    /// Whether anything moved since this was last asked.
    pub fn take_moved(&self) -> bool {
        self.moved.swap(false, Ordering::Relaxed)
    }
}

/// Holds a request's content back until the origin asks for it (`Expect: 100-continue`, RFC 9110 §10.1.1).
#[derive(Default)]
pub struct Gate {
    open: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Gate {
    /// Lets the content flow.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
        if let Some(waker) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }

    fn poll_open(&self, cx: &Context<'_>) -> Poll<()> {
        if self.open.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        // The origin may have answered between the look and the registration.
        if self.open.load(Ordering::Acquire) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// Decides which trailer fields of a request go on to the origin.
pub type TrailerFilter = fn(&mut HeaderMap);

/// The content of one request.
pub struct Content {
    inner: Incoming,
    meter: Arc<Meter>,
    gate: Option<Arc<Gate>>,
    trailers: TrailerFilter,
}

impl Content {
    /// Content as it comes from the client, counted by `meter`, its trailers cleaned by `trailers`.
    #[must_use]
    pub fn new(inner: Incoming, meter: Arc<Meter>, trailers: TrailerFilter) -> Self {
        Self {
            inner,
            meter,
            gate: None,
            trailers,
        }
    }

    /// Puts a gate before the content, which stays shut until it is opened.
    pub fn gated(&mut self) -> Arc<Gate> {
        self.gate.get_or_insert_default().clone()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_end_stream()
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(gate) = &self.gate {
            std::task::ready!(gate.poll_open(cx));
            self.gate = None;
        }
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(cx));
        match frame {
            None => {
                self.meter.up_ended.store(true, Ordering::Relaxed);
                Poll::Ready(None)
            }
            Some(Ok(mut frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.meter.add_up(data.len());
                } else if let Some(trailers) = frame.trailers_mut() {
                    (self.trailers)(trailers);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
