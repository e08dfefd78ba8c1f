//! The stream of audit records: one per line, as they are written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use gateway_audit::Follower;
use http_body::{Body, Frame};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The content of `GET /v1/events`. A slow reader gets records later and costs no memory: they are
/// read from the log's file when the reader takes them.
pub(super) struct Events {
    follower: Follower,
    tick: Interval,
    /// Its permit among the streams.
    _place: OwnedSemaphorePermit,
}

impl Events {
    pub(super) fn new(follower: Follower, place: OwnedSemaphorePermit) -> Self {
        let mut tick = interval(LOOKS_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            follower,
            tick,
            _place: place,
        }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            match self.follower.next_lines() {
                Ok(lines) if lines.is_empty() => {}
                Ok(lines) => return Poll::Ready(Some(Ok(Frame::data(lines.into())))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            ready!(self.tick.poll_tick(cx));
        }
    }
}

const LOOKS_EVERY: Duration = Duration::from_millis(100);
