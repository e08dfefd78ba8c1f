//! Content on a connection that may fail: its sender can take it back, and send it again.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::content::ContinueGate;
use super::{Content, ContentFault};

/// Content for a connection to send. A clone is the sender's handle to the same content.
#[derive(Clone)]
pub struct Outgoing(Arc<Mutex<Option<Content>>>);

impl Outgoing {
    /// Content to be sent.
    pub fn new(content: Content) -> Self {
        Self(Arc::new(Mutex::new(Some(content))))
    }

    fn content(&self) -> MutexGuard<'_, Option<Content>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is no content.
    pub fn is_empty(&self) -> bool {
        self.content().as_ref().is_none_or(Content::is_empty)
    }

    /// Puts a closed gate in front of the content, if there is any.
    pub fn gated(&self) -> Option<Arc<ContinueGate>> {
        let mut content = self.content();
        let content = content.as_mut().filter(|content| !content.is_empty())?;
        Some(content.gated())
    }

    /// Takes the content back, to be sent again from its first byte. The connection gets no more of
    /// it. Returns `None` if it is not whole any more.
    #[must_use]
    pub fn take_back(&self) -> Option<Content> {
        self.content().take()?.whole_again()
    }

    /// Drops the kept content, because there is an answer.
    pub fn keep_no_more(&self) {
        if let Some(content) = &mut *self.content() {
            content.keep_nothing();
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = ContentFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ContentFault>>> {
        match &mut *self.content() {
            Some(content) => Pin::new(content).poll_frame(cx),
            None => Poll::Ready(Some(Err(ContentFault::TakenBack))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.content().as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let content = self.content();
        content.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}
