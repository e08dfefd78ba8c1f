//! Replaces echoes in WebSocket frames from the origin. Reads frames by RFC 6455, and scrubs
//! payloads in place.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use gateway_names::ReasonCode;
use gateway_wire::Cursor;
use gateway_wire::websocket::{FrameMalformed, FramePart, Frames};

use super::{EchoSearch, Guessed, Scrubber};

/// Scrubs the frames of an origin after an upgrade to WebSocket, without extensions.
///
/// A message's payload is one stream across its fragments; frames keep their borders and lengths.
/// Everything after a possible beginning of an echo is held back with it, including control frames,
/// so that the order is kept. The held amount is bounded. Holding ends with the message: if a
/// connection ends within a message, the held rest is not passed on.
pub struct ScrubFrames {
    scrubber: Scrubber,
    frames: Frames,
    /// Whether the current frame is a control frame, and whether it is its message's last.
    is_control: bool,
    is_last: bool,
    control: Vec<u8>,
    queue: VecDeque<Queued>,
}

/// Why the origin's frames cannot be passed on. The caller must close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    /// They violate RFC 6455.
    #[error("the origin's frames: {0}")]
    Malformed(#[from] FrameMalformed),
    /// Too many frames without payload wait for the rest of a possible echo.
    #[error("origin sent too many empty WebSocket frames")]
    Flood,
    /// The session may see no more. This is not the origin's fault.
    #[error(transparent)]
    Guessed(#[from] Guessed),
}

impl FrameFault {
    /// Returns the reason code for the audit log.
    pub fn reason(self) -> ReasonCode {
        match self {
            Self::Guessed(guessed) => guessed.reason(),
            _ => ReasonCode::BadResponse,
        }
    }
}

/// Output that waits in the queue.
enum Queued {
    /// A header or control frame.
    Literal(Bytes),
    /// This many bytes of scrubber output.
    Payload(u64),
}

impl ScrubFrames {
    /// Starts right after the head of the 101 response.
    pub fn new(search: Arc<EchoSearch>) -> Self {
        Self::by(Scrubber::new(search))
    }

    pub(crate) fn by(scrubber: Scrubber) -> Self {
        Self {
            scrubber,
            frames: Frames::new(false),
            is_control: false,
            is_last: false,
            control: Vec::new(),
            queue: VecDeque::new(),
        }
    }

    /// Returns how many echoes have been replaced so far.
    pub fn replaced(&self) -> u64 {
        self.scrubber.replaced()
    }

    /// Takes the next bytes and returns the settled ones; the same `Bytes` if nothing was replaced.
    ///
    /// # Errors
    /// [`FrameFault`]. Bytes that were settled before the fault are not passed on.
    pub fn push(&mut self, chunk: Bytes) -> Result<Bytes, FrameFault> {
        let (replaced, began_clear) = (self.replaced(), self.is_clear());
        let (mut out, mut cursor) = (Vec::new(), Cursor::new(&chunk));
        while let Some(part) = self.frames.next(&mut cursor)? {
            match part {
                FramePart::Header(frame) => {
                    (self.is_control, self.is_last) = (frame.is_control(), frame.last);
                    let header = Queued::Literal(frame.bytes().into());
                    self.queue.push_back(header);
                    self.flush(&mut out);
                }
                FramePart::Payload(part, is_whole) if self.is_control => {
                    self.control(part, is_whole, &mut out);
                }
                FramePart::Payload(part, is_whole) => {
                    self.data(chunk.slice_ref(part), is_whole, &mut out);
                }
            }
            if self.queue.len() > MOST_PARTS {
                return Err(FrameFault::Flood);
            }
        }
        self.scrubber.check()?;
        let unchanged = began_clear && self.is_clear() && self.replaced() == replaced;
        Ok(if unchanged {
            chunk
        } else {
            out.concat().into()
        })
    }

    /// Whether nothing at all is held back.
    fn is_clear(&self) -> bool {
        self.queue.is_empty()
            && !self.frames.is_in_header()
            && self.control.is_empty()
            && self.scrubber.held() == 0
    }

    fn data(&mut self, payload: Bytes, is_whole: bool, out: &mut Vec<Bytes>) {
        match self.queue.back_mut() {
            _ if payload.is_empty() => {}
            Some(Queued::Payload(count)) => *count += payload.len() as u64,
            _ => self.queue.push_back(Queued::Payload(payload.len() as u64)),
        }
        let settled = self.scrubber.push(payload);
        self.supply(settled, out);
        if is_whole && self.is_last {
            let settled = self.scrubber.finish();
            self.supply(settled, out);
        }
    }

    /// Control payloads are short, so they are scrubbed whole: a close reason can contain an echo
    /// too.
    fn control(&mut self, part: &[u8], is_whole: bool, out: &mut Vec<Bytes>) {
        self.control.extend_from_slice(part);
        if is_whole {
            let payload = std::mem::take(&mut self.control);
            self.scrubber.renew();
            let scrubbed = self.scrubber.search.scrub_in_place(&payload);
            self.scrubber.replaced += u64::from(scrubbed.is_some());
            self.queue
                .push_back(Queued::Literal(scrubbed.unwrap_or(payload).into()));
            self.flush(out);
        }
    }

    /// Fills settled payload into the queued frames.
    fn supply(&mut self, mut settled: Bytes, out: &mut Vec<Bytes>) {
        self.flush(out);
        while !settled.is_empty()
            && let Some(Queued::Payload(count)) = self.queue.front_mut()
        {
            let taken =
                usize::try_from(*count).map_or(settled.len(), |count| count.min(settled.len()));
            out.push(settled.split_to(taken));
            *count -= taken as u64;
            if *count == 0 {
                self.queue.pop_front();
            }
            self.flush(out);
        }
    }

    /// Passes on everything at the front of the queue that is not payload.
    fn flush(&mut self, out: &mut Vec<Bytes>) {
        while let Some(Queued::Literal(bytes)) = self.queue.front_mut() {
            out.push(std::mem::take(bytes));
            self.queue.pop_front();
        }
    }
}

/// How many headers and payloads may wait for the rest of a possible echo; each takes at most 136
/// bytes, apart from the held payload.
const MOST_PARTS: usize = 2 << 10;
