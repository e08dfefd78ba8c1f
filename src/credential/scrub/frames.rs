//! Echoes in a WebSocket: frames from the origin, read as RFC 6455 orders, with payloads scrubbed
//! in place.

use std::{collections::VecDeque, sync::Arc};

use bytes::{Buf, Bytes};

use super::{EchoSearch, Guessed, Scrubber};

/// Scrubs the bytes that an origin sends after an upgrade to WebSocket, without extensions.
///
/// A message's payload is one stream over its fragments; frames keep their borders and lengths.
/// What follows a possible beginning of an echo is held back with it, control frames too, so order
/// is kept; the hold has a bound. It ends with the message: a connection that ends inside one
/// leaves nothing to be given out.
pub struct ScrubFrames {
    scrubber: Scrubber,
    reading: FrameState,
    header: Vec<u8>,
    control: Vec<u8>,
    /// A fragmented message is open.
    fragmented: bool,
    queue: VecDeque<Queued>,
}

/// What the origin did against RFC 6455; the caller cuts the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    /// §5.1: a server masks no frame.
    #[error("origin masked a WebSocket frame")]
    Masked,
    /// §5.2: a reserved bit or opcode without an extension that defines it.
    #[error("origin used a reserved bit or opcode of WebSocket")]
    Reserved,
    /// §5.5: a control frame is whole and has at most 125 bytes.
    #[error("origin sent a fragmented or too long WebSocket control frame")]
    Control,
    /// §5.4: a continuation of nothing, or a new message inside another.
    #[error("origin sent WebSocket fragments out of order")]
    Sequence,
    /// §5.2: a length not in its shortest form, or with its highest bit set.
    #[error("origin sent a WebSocket frame with a malformed length")]
    Length,
    /// More frames without payload than may wait for the rest of a possible echo.
    #[error("origin sent too many empty WebSocket frames")]
    Flood,
    /// The session may be shown nothing more; the origin is not to blame.
    #[error(transparent)]
    Guessed(#[from] Guessed),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FrameState {
    Header,
    Data { left: u64, last: bool },
    Control { left: u64 },
}

/// What is to be given out in order.
enum Queued {
    /// A header or control frame.
    Literal(Bytes),
    /// So many bytes of what the scrubber gives.
    Payload(u64),
}

impl ScrubFrames {
    /// Begins right after the head of the 101 answer.
    pub fn new(search: Arc<EchoSearch>) -> Self {
        Self::by(Scrubber::new(search))
    }

    pub(in crate::credential) fn by(scrubber: Scrubber) -> Self {
        Self {
            scrubber,
            reading: FrameState::Header,
            header: Vec::with_capacity(LONGEST_HEADER),
            control: Vec::new(),
            fragmented: false,
            queue: VecDeque::new(),
        }
    }

    /// How many echoes were replaced so far.
    pub fn replaced(&self) -> u64 {
        self.scrubber.replaced()
    }

    /// Takes the next bytes and gives those that are settled: the same `Bytes` where nothing was to
    /// be done.
    ///
    /// # Errors
    /// [`FrameFault`]; what was settled before it is not given out.
    pub fn push(&mut self, chunk: Bytes) -> Result<Bytes, FrameFault> {
        let (replaced, began_clear) = (self.replaced(), self.is_clear());
        let mut out = Vec::new();
        let mut rest = chunk.clone();
        while !rest.is_empty() {
            match self.reading {
                FrameState::Header => self.read_header(&mut rest, &mut out)?,
                FrameState::Data { left, last } => self.read_data(left, last, &mut rest, &mut out),
                FrameState::Control { left } => self.read_control(left, &mut rest, &mut out),
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

    /// Nothing is held back in any form.
    fn is_clear(&self) -> bool {
        self.queue.is_empty()
            && self.header.is_empty()
            && self.control.is_empty()
            && self.scrubber.held() == 0
    }

    fn read_header(&mut self, rest: &mut Bytes, out: &mut Vec<Bytes>) -> Result<(), FrameFault> {
        while self.header.len() < header_length(&self.header) {
            if !rest.has_remaining() {
                return Ok(());
            }
            self.header.push(rest.get_u8());
        }
        let (opcode, last, length) = self.check_header()?;
        self.queue
            .push_back(Queued::Literal(Bytes::copy_from_slice(&self.header)));
        self.header.clear();
        self.flush(out);
        self.reading = if opcode >= CLOSE {
            FrameState::Control { left: length }
        } else {
            self.fragmented = !last;
            FrameState::Data { left: length, last }
        };
        // An empty frame has no byte that would end it.
        match self.reading {
            FrameState::Data { left: 0, last } => self.read_data(0, last, &mut Bytes::new(), out),
            FrameState::Control { left: 0 } => self.read_control(0, &mut Bytes::new(), out),
            _ => {}
        }
        Ok(())
    }

    /// Opcode, whether it is the last fragment, and length of payload.
    fn check_header(&self) -> Result<(u8, bool, u64), FrameFault> {
        let (first, second) = (self.header[0], self.header[1]);
        let (opcode, last) = (first & 0x0f, first & 0x80 != 0);
        let extended = self.header[2..]
            .iter()
            .fold(0, |length, &byte| length << 8 | u64::from(byte));
        let (length, least) = match second & 0x7f {
            126 => (extended, 126),
            127 => (extended, 1 << 16),
            short => (u64::from(short), 0),
        };
        if second & 0x80 != 0 {
            return Err(FrameFault::Masked);
        }
        if first & 0x70 != 0 || !matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE..=PONG) {
            return Err(FrameFault::Reserved);
        }
        if opcode >= CLOSE && (!last || length > 125) {
            return Err(FrameFault::Control);
        }
        if opcode < CLOSE && self.fragmented != (opcode == CONTINUATION) {
            return Err(FrameFault::Sequence);
        }
        if length < least || length >> 63 != 0 {
            return Err(FrameFault::Length);
        }
        Ok((opcode, last, length))
    }

    fn read_data(&mut self, left: u64, last: bool, rest: &mut Bytes, out: &mut Vec<Bytes>) {
        let payload =
            rest.split_to(usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len())));
        let left = left - payload.len() as u64;
        match self.queue.back_mut() {
            _ if payload.is_empty() => {}
            Some(Queued::Payload(count)) => *count += payload.len() as u64,
            _ => self.queue.push_back(Queued::Payload(payload.len() as u64)),
        }
        let settled = self.scrubber.push(payload);
        self.supply(settled, out);
        self.reading = FrameState::Data { left, last };
        if left == 0 {
            self.reading = FrameState::Header;
            if last {
                let settled = self.scrubber.finish();
                self.supply(settled, out);
            }
        }
    }

    /// Control payloads are short and scrubbed whole: a close reason can hold an echo as well as a
    /// message.
    fn read_control(&mut self, left: u64, rest: &mut Bytes, out: &mut Vec<Bytes>) {
        let part =
            rest.split_to(usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len())));
        self.control.extend_from_slice(&part);
        let left = left - part.len() as u64;
        self.reading = FrameState::Control { left };
        if left == 0 {
            self.reading = FrameState::Header;
            let payload = std::mem::take(&mut self.control);
            self.scrubber.renew();
            let scrubbed = self.scrubber.search.scrub_in_place(&payload);
            self.scrubber.replaced += u64::from(scrubbed.is_some());
            self.queue
                .push_back(Queued::Literal(scrubbed.unwrap_or(payload).into()));
            self.flush(out);
        }
    }

    /// Fills settled payload into its places.
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

    /// Gives out what waits for no payload.
    fn flush(&mut self, out: &mut Vec<Bytes>) {
        while let Some(Queued::Literal(bytes)) = self.queue.front_mut() {
            out.push(std::mem::take(bytes));
            self.queue.pop_front();
        }
    }
}

/// The length of a header of which these bytes are known (RFC 6455 §5.2, without a mask).
fn header_length(known: &[u8]) -> usize {
    match known.get(1).map(|second| second & 0x7f) {
        Some(126) => 4,
        Some(127) => LONGEST_HEADER,
        _ => 2,
    }
}

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PONG: u8 = 10;

const LONGEST_HEADER: usize = 10;

/// How many headers and payloads may wait for the rest of a possible echo; at most 136 bytes each
/// beside the held payload.
const MOST_PARTS: usize = 2 << 10;
