//! The frames of WebSocket, by their strictest reading, without extensions (RFC 6455 §5).

use super::cursor::{Cursor, Pending, ReadError};

/// Follows the frames that one side sends, however they are cut.
#[derive(Debug)]
pub struct Frames {
    /// Whether that side is the client, which masks its frames.
    is_client: bool,
    /// Whether a fragmented message is open.
    fragmented: bool,
    header: Pending<LONGEST_HEADER>,
    /// How many bytes of the payload are still to come; `None` in a header.
    left: Option<u64>,
}

/// What comes next in a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum FramePart<'b> {
    /// Its header.
    Header(FrameHeader),
    /// Some of its payload, and whether the frame ends with it.
    Payload(&'b [u8], bool),
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// [`CONTINUATION`], [`TEXT`], [`BINARY`], or a control frame's.
    pub opcode: u8,
    /// Whether the frame is its message's last.
    pub last: bool,
    /// The length of the payload.
    pub length: u64,
    /// The mask of a client's frame.
    pub mask: Option<[u8; MASK]>,
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

impl Frames {
    /// Starts right after the head of the 101 answer.
    pub fn new(is_client: bool) -> Self {
        Self {
            is_client,
            fragmented: false,
            header: Pending::default(),
            left: None,
        }
    }

    /// Whether a part of a header was read.
    pub fn is_in_header(&self) -> bool {
        !self.header.is_empty()
    }

    /// Whether a frame ended, and no byte of the next one was read.
    pub fn is_between(&self) -> bool {
        self.left.is_none() && self.header.is_empty()
    }

    /// Reads the next part; `None` if more must arrive. A frame without payload has an empty part.
    ///
    /// # Errors
    /// [`FrameMalformed`], after which this has no use.
    pub fn next<'b>(
        &mut self,
        cursor: &mut Cursor<'b>,
    ) -> Result<Option<FramePart<'b>>, FrameMalformed> {
        if let Some(left) = &mut self.left {
            if *left > 0 && cursor.rest().is_empty() {
                return Ok(None);
            }
            let payload = cursor.payload(left);
            let is_whole = *left == 0;
            self.left = self.left.filter(|_| !is_whole);
            return Ok(Some(FramePart::Payload(payload, is_whole)));
        }
        let is_client = self.is_client;
        let read = |cursor: &mut Cursor<'_>| FrameHeader::read(cursor, is_client);
        let Some(header) = self.header.read(cursor, read)? else {
            return Ok(None);
        };
        if !header.is_control() {
            if self.fragmented != (header.opcode == CONTINUATION) {
                return Err(FrameMalformed::Sequence);
            }
            self.fragmented = !header.last;
        }
        self.left = Some(header.length);
        Ok(Some(FramePart::Header(header)))
    }
}

impl FrameHeader {
    fn read(cursor: &mut Cursor<'_>, is_client: bool) -> Result<Self, ReadError<FrameMalformed>> {
        let [first, second] = cursor.array()?;
        // Checked at once: the bytes where a mask would be may never come.
        if (second & 0x80 != 0) != is_client {
            return Err(ReadError::Malformed(FrameMalformed::Masked));
        }
        let (opcode, last) = (first & 0x0f, first & 0x80 != 0);
        if first & 0x70 != 0 || !matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE..=PONG) {
            return Err(ReadError::Malformed(FrameMalformed::Reserved));
        }
        let (length, least) = match second & 0x7f {
            126 => (cursor.u16()?.into(), 126),
            127 => (cursor.u64()?, 1 << 16),
            short => (short.into(), 0),
        };
        if length < least || length >> 63 != 0 {
            return Err(ReadError::Malformed(FrameMalformed::Length));
        }
        if opcode >= CLOSE && (!last || length > 125) {
            return Err(ReadError::Malformed(FrameMalformed::Control));
        }
        Ok(Self {
            opcode,
            last,
            length,
            mask: is_client.then(|| cursor.array()).transpose()?,
        })
    }

    /// The bytes of the header, the only ones that are read as it.
    pub fn bytes(&self) -> Vec<u8> {
        let long = self.length.to_be_bytes();
        let (short, extended) = match self.length {
            short @ ..126 => (short as u8, &[][..]),
            ..0x1_0000 => (126, &long[6..]),
            _ => (127, &long[..]),
        };
        let first = u8::from(self.last) << 7 | self.opcode;
        let second = u8::from(self.mask.is_some()) << 7 | short;
        let mask = self.mask.as_ref().map_or(&[][..], |mask| mask);
        [&[first, second], extended, mask].concat()
    }

    /// Whether it is a control frame, which may stand between the fragments of a message.
    pub fn is_control(&self) -> bool {
        self.opcode >= CLOSE
    }
}

/// A frame that is a whole message, as a client sends it with a mask, and a server without.
pub fn whole_frame(opcode: u8, payload: &[u8], mask: Option<[u8; MASK]>) -> Vec<u8> {
    let header = FrameHeader {
        opcode,
        last: true,
        length: payload.len() as u64,
        mask,
    };
    let mut frame = header.bytes();
    frame.reserve_exact(payload.len());
    frame.extend(masked(payload, mask.unwrap_or_default()));
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
/// A control frame that ends the connection.
pub const CLOSE: u8 = 8;
const PONG: u8 = 10;

/// The bytes of a mask.
pub const MASK: usize = 4;
/// The longest header, with its mask.
const LONGEST_HEADER: usize = 14;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    proptest! {
        #[test]
        fn a_frame_that_is_written_is_read_however_it_is_cut(
            opcode in select(vec![TEXT, BINARY, CLOSE, PONG]), payload in vec(any::<u8>(), 0..300),
            mask: Option<[u8; MASK]>, step in 1..400_usize,
        ) {
            let payload = &payload[..payload.len().min(if opcode < CLOSE { 300 } else { 125 })];
            let frame = whole_frame(opcode, payload, mask);
            let (mut frames, mut read, mut header) = (Frames::new(mask.is_some()), Vec::new(), None);
            for piece in frame.chunks(step) {
                let mut cursor = Cursor::new(piece);
                while let Some(part) = frames.next(&mut cursor).unwrap() {
                    match part {
                        FramePart::Header(one) => header = Some(one),
                        FramePart::Payload(part, _) => read.extend_from_slice(part),
                    }
                }
            }
            prop_assert!(frames.is_between());
            let length = payload.len() as u64;
            prop_assert_eq!(header, Some(FrameHeader { opcode, last: true, length, mask }));
            prop_assert!(masked(&read, mask.unwrap_or_default()).eq(payload.iter().copied()));
        }

        #[test]
        fn the_header_of_a_frame_of_any_length_is_written_as_it_is_read(
            length in prop_oneof![0..300_u64, 65_000..66_000_u64, 0..1_u64 << 63],
            last: bool, mask: Option<[u8; MASK]>,
        ) {
            let header = FrameHeader { opcode: BINARY, last, length, mask };
            let bytes = header.bytes();
            let read = FrameHeader::read(&mut Cursor::new(&bytes), mask.is_some());
            prop_assert_eq!(read, Ok(header));
        }
    }
}
