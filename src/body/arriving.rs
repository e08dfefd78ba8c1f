//! Content as it arrives from the client, checked before anything reads or changes it.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::{ContentFault, HoldFault, TransformFault};

/// Checks content as it arrives, whoever reads it.
pub trait ArrivalCheck: Send + Sync {
    /// Takes the next piece, once the one before may go on.
    fn take(&mut self, piece: Bytes);

    /// Does a bounded amount of work, and returns whether the piece may go on.
    ///
    /// # Errors
    /// [`TransformFault`] if it may not. No more of the content is read then.
    fn step(&mut self) -> Result<bool, TransformFault>;

    /// Checks the trailers.
    ///
    /// # Errors
    /// As [`ArrivalCheck::step`].
    fn trailers(&mut self, fields: &HeaderMap) -> Result<(), TransformFault>;
}

/// Content on its way from the client.
pub(super) struct Arriving {
    inner: Incoming,
    check: Option<Box<dyn ArrivalCheck>>,
    /// The piece that is being checked.
    taken: Option<Bytes>,
    /// Why no more arrives.
    fault: Option<TransformFault>,
}

/// Why content does not arrive.
pub(super) enum ArrivalFault {
    Client(hyper::Error),
    Check(TransformFault),
}

impl Arriving {
    pub(super) fn new(inner: Incoming) -> Self {
        Self {
            inner,
            check: None,
            taken: None,
            fault: None,
        }
    }

    pub(super) fn check(&mut self, check: Box<dyn ArrivalCheck>) {
        self.check = Some(check);
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ArrivalFault>>> {
        if let Some(fault) = &self.fault {
            return Poll::Ready(Some(Err(ArrivalFault::Check(fault.clone()))));
        }
        let polled = self.poll_checked(cx);
        match &polled {
            Poll::Ready(Some(Err(ArrivalFault::Check(fault)))) => self.fault = Some(fault.clone()),
            // Frees what the check holds: the exchange may go on for long.
            Poll::Ready(_) if self.inner.is_end_stream() => self.check = None,
            _ => {}
        }
        polled
    }

    fn poll_checked(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ArrivalFault>>> {
        if self.taken.is_none() {
            let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
            let frame = frame.transpose().map_err(ArrivalFault::Client)?;
            match (frame.map(Frame::into_data), &mut self.check) {
                (Some(Ok(piece)), Some(check)) => {
                    check.take(piece.clone());
                    self.taken = Some(piece);
                }
                (Some(Ok(piece)), None) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                (Some(Err(frame)), check) => {
                    if let (Some(check), Some(fields)) = (check, frame.trailers_ref()) {
                        check.trailers(fields).map_err(ArrivalFault::Check)?;
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                (None, _) => return Poll::Ready(None),
            }
        }
        let checked = self.check.as_mut().map(|check| check.step());
        if checked.transpose().map_err(ArrivalFault::Check)? == Some(false) {
            // A decoder may make much of little. Other tasks run in between.
            let _ = pin!(tokio::task::yield_now()).poll(cx);
            return Poll::Pending;
        }
        Poll::Ready(self.taken.take().map(|piece| Ok(Frame::data(piece))))
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.taken.is_none() && self.inner.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let (mut hint, taken) = (self.inner.size_hint(), self.taken.as_ref());
        let taken = taken.map_or(0, |piece| piece.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + taken);
        }
        hint.set_lower(hint.lower() + taken);
        hint
    }
}

impl From<ArrivalFault> for ContentFault {
    fn from(fault: ArrivalFault) -> Self {
        match fault {
            ArrivalFault::Client(error) => Self::Client(error),
            ArrivalFault::Check(fault) => Self::Transform(fault),
        }
    }
}

impl From<ArrivalFault> for HoldFault {
    fn from(fault: ArrivalFault) -> Self {
        match fault {
            ArrivalFault::Client(error) => Self::Client(error),
            ArrivalFault::Check(fault) => Self::Cut(fault),
        }
    }
}
