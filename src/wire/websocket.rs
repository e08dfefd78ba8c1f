//! The headers of WebSocket frames, by their strictest reading, without extensions (RFC 6455 §5).

use bytes::{Buf, Bytes};

/// Reads the headers of the frames that one side sends.
pub struct FrameHeaders {
    /// Whether that side is the client, which masks its frames.
    masked: bool,
    header: Vec<u8>,
    /// Whether a fragmented message is open.
    fragmented: bool,
}

/// A parsed header of a frame.
#[derive(Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// [`CONTINUATION`], [`TEXT`], [`BINARY`], or a control frame's.
    pub opcode: u8,
    /// Whether the frame is its message's last.
    pub last: bool,
    /// The length of the payload.
    pub length: u64,
    /// The header's bytes, unchanged.
    pub raw: Bytes,
}

/// How a side violated RFC 6455. The caller must close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameMalformed {
    /// §5.1: a client must mask each frame, and a server none.
    #[error("a WebSocket frame of a server is masked, or one of a client is not")]
    Masked,
    /// §5.2: a reserved bit or opcode, with no extension that defines it.
    #[error("a WebSocket frame has a reserved bit or opcode")]
    Reserved,
    /// §5.5: a control frame must be unfragmented and have at most 125 bytes.
    #[error("a WebSocket control frame is fragmented or too long")]
    Control,
    /// §5.4: a continuation without a message, or a new message inside another.
    #[error("WebSocket fragments are out of order")]
    Sequence,
    /// §5.2: a length not in its shortest form, or with its highest bit set.
    #[error("a WebSocket frame has a malformed length")]
    Length,
}

impl FrameHeaders {
    /// Starts right after the head of the 101 answer.
    #[must_use]
    pub fn new(masked: bool) -> Self {
        Self {
            masked,
            header: Vec::with_capacity(LONGEST_HEADER),
            fragmented: false,
        }
    }

    /// Whether no byte of the next header was read yet.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.header.is_empty()
    }

    /// Takes the next bytes of a header; `None` until it is whole.
    ///
    /// # Errors
    /// [`FrameMalformed`].
    pub fn read(&mut self, rest: &mut Bytes) -> Result<Option<FrameHeader>, FrameMalformed> {
        while self.header.len() < self.length() {
            if !rest.has_remaining() {
                return Ok(None);
            }
            self.header.push(rest.get_u8());
            // Refused at once: the bytes where a mask would be may never come.
            if self.header.len() == 2 && (self.header[1] & 0x80 != 0) != self.masked {
                return Err(FrameMalformed::Masked);
            }
        }
        let (opcode, last, length) = self.check()?;
        if opcode < CLOSE {
            self.fragmented = !last;
        }
        let raw = Bytes::copy_from_slice(&self.header);
        self.header.clear();
        Ok(Some(FrameHeader {
            opcode,
            last,
            length,
            raw,
        }))
    }

    /// The length of the header, as far as its first bytes are known.
    fn length(&self) -> usize {
        let mask = if self.masked { MASK } else { 0 };
        mask + match self.header.get(1).map(|second| second & 0x7f) {
            Some(126) => 4,
            Some(127) => 10,
            _ => 2,
        }
    }

    /// Returns the opcode, whether this is the last fragment, and the payload length.
    fn check(&self) -> Result<(u8, bool, u64), FrameMalformed> {
        let (first, second) = (self.header[0], self.header[1]);
        let (opcode, last) = (first & 0x0f, first & 0x80 != 0);
        let mask = if self.masked { MASK } else { 0 };
        let extended = self.header[2..self.header.len() - mask]
            .iter()
            .fold(0, |length, &byte| length << 8 | u64::from(byte));
        let (length, least) = match second & 0x7f {
            126 => (extended, 126),
            127 => (extended, 1 << 16),
            short => (u64::from(short), 0),
        };
        if first & 0x70 != 0 || !matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE..=PONG) {
            return Err(FrameMalformed::Reserved);
        }
        if opcode >= CLOSE && (!last || length > 125) {
            return Err(FrameMalformed::Control);
        }
        if opcode < CLOSE && self.fragmented != (opcode == CONTINUATION) {
            return Err(FrameMalformed::Sequence);
        }
        if length < least || length >> 63 != 0 {
            return Err(FrameMalformed::Length);
        }
        Ok((opcode, last, length))
    }
}

impl FrameHeader {
    /// Whether it is a control frame, which may stand between the fragments of a message.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.opcode >= CLOSE
    }

    /// The mask, which a client's header ends with.
    #[must_use]
    pub fn mask(&self) -> [u8; MASK] {
        self.raw.last_chunk().copied().unwrap_or_default()
    }
}

/// A frame that is a whole text message, as a client sends it.
#[must_use]
pub fn text_frame(text: &[u8], mask: [u8; MASK]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(text.len() + LONGEST_HEADER);
    frame.push(0x80 | TEXT);
    match text.len() {
        short @ ..126 => frame.push(0x80 | short as u8),
        middle @ ..0x1_0000 => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(masked(text, mask));
    frame
}

/// Masks a payload from its start, or unmasks it (RFC 6455 §5.3).
pub fn masked(bytes: &[u8], mask: [u8; MASK]) -> impl Iterator<Item = u8> {
    let all = bytes.iter().enumerate();
    all.map(move |(nth, byte)| byte ^ mask[nth % MASK])
}

/// More of the message that the frame before began.
pub const CONTINUATION: u8 = 0;
/// A message of text, or its beginning.
pub const TEXT: u8 = 1;
/// A binary message, or its beginning.
pub const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PONG: u8 = 10;

/// The bytes of a mask.
pub const MASK: usize = 4;
/// The longest header, with its mask.
const LONGEST_HEADER: usize = 14;
