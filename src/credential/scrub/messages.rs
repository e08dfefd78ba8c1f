//! Finds message ends in content made of length-prefixed messages.

use gateway_wire::{Cursor, Pending, ReadError};
use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// Tracks message lengths.
///
/// The end of a message is an end of text: no secret contains the first byte of the next length, so
/// nothing must be held back there.
pub(super) struct MessageEnds {
    layout: &'static Layout,
    header: Pending<LONGEST_HEADER>,
    /// Bytes of the message still to come.
    left: u64,
    /// The content does not match its content type; no further ends are known.
    lost: bool,
}

/// A message that does not begin with its length.
struct NoLength;

/// How a message begins: some bytes, then its length (32 bits, big-endian).
struct Layout {
    /// In lower case, without parameters; a final `+` stands for a family of types.
    kind: &'static [u8],
    before: usize,
    /// Whether the length includes its own four bytes.
    counts_itself: bool,
}

/// gRPC over HTTP/2 ("Length-Prefixed-Message"), gRPC-Web (the same, binary only), the Connect
/// protocol ("Streaming RPCs"), Amazon's event streams ("Event stream encoding": the total length
/// comes first), Kubernetes watches in Protobuf (`LengthDelimitedFramer` of its apimachinery).
const LAYOUTS: [Layout; 7] = [
    Layout::new(b"application/grpc", 1, false),
    Layout::new(b"application/grpc+", 1, false),
    Layout::new(b"application/grpc-web", 1, false),
    Layout::new(b"application/grpc-web+", 1, false),
    Layout::new(b"application/connect+", 1, false),
    Layout::new(b"application/vnd.amazon.eventstream", 0, true),
    Layout::new(b"application/vnd.kubernetes.protobuf", 0, false),
];

impl Layout {
    const fn new(kind: &'static [u8], before: usize, counts_itself: bool) -> Self {
        Self {
            kind,
            before,
            counts_itself,
        }
    }

    fn is_of(&self, kind: &[u8]) -> bool {
        match self.kind {
            [.., b'+'] => {
                let start = kind.get(..self.kind.len());
                start.is_some_and(|start| start.eq_ignore_ascii_case(self.kind))
            }
            whole => kind.eq_ignore_ascii_case(whole),
        }
    }

    /// Reads the beginning of a message: how many bytes of it follow.
    fn read(&self, cursor: &mut Cursor<'_>) -> Result<u64, ReadError<NoLength>> {
        // A secret is visible ASCII. If such a byte is here, this may not be a message end, and a
        // secret may span it.
        let mut rest = cursor.rest().iter();
        if rest
            .next()
            .is_some_and(|first| (b'\t'..0x80).contains(first))
        {
            return Err(ReadError::Malformed(NoLength));
        }
        cursor.bytes(self.before)?;
        let length = u32::from_be_bytes(cursor.array()?);
        let counted = if self.counts_itself { 4 } else { 0 };
        let left = length.checked_sub(counted);
        left.map(u64::from).ok_or(ReadError::Malformed(NoLength))
    }
}

impl MessageEnds {
    /// Creates a tracker if messages of this content type have lengths.
    pub(super) fn told_by(fields: &HeaderMap) -> Option<Self> {
        let kind = fields.get(CONTENT_TYPE)?.as_bytes();
        let end = memchr::memchr(b';', kind).unwrap_or(kind.len());
        let (kind, parameters) = kind.split_at(end);
        let layout = LAYOUTS
            .iter()
            .find(|layout| layout.is_of(kind.trim_ascii()))?;
        let streams = parameters
            .windows(12)
            .any(|text| text.eq_ignore_ascii_case(b"stream=watch"));
        // Without that parameter it is a single object, without a length.
        if layout.kind.ends_with(b"kubernetes.protobuf") && !streams {
            return None;
        }
        Some(Self {
            layout,
            header: Pending::default(),
            left: 0,
            lost: false,
        })
    }

    /// Takes the next bytes, and returns whether a message ends with them.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> bool {
        let mut cursor = Cursor::new(bytes);
        while !cursor.rest().is_empty() && !self.lost {
            cursor.payload(&mut self.left);
            let read = |cursor: &mut Cursor<'_>| self.layout.read(cursor);
            match self.header.read(&mut cursor, read) {
                Ok(length) => self.left = length.unwrap_or(self.left),
                Err(NoLength) => self.lost = true,
            }
        }
        !self.lost && self.left == 0 && self.header.is_empty()
    }
}

const LONGEST_HEADER: usize = 5;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn messages(kind: &'static str) -> Option<MessageEnds> {
        MessageEnds::told_by(&HeaderMap::from_iter([(
            CONTENT_TYPE,
            HeaderValue::from_static(kind),
        )]))
    }

    #[test]
    fn only_content_with_lengths_has_messages() {
        for kind in [
            "application/grpc",
            "application/grpc+proto",
            "Application/gRPC-Web+proto; charset=x",
            "application/connect+json",
            "application/vnd.amazon.eventstream",
            "application/vnd.kubernetes.protobuf;stream=watch",
        ] {
            assert!(messages(kind).is_some(), "{kind}");
        }
        for kind in [
            "application/grpcx",
            "application/grpc-web-text",
            "application/grpc-web-text+proto",
            "application/connect",
            "application/json",
            "text/event-stream",
            "application/vnd.kubernetes.protobuf",
        ] {
            assert!(messages(kind).is_none(), "{kind}");
        }
        assert!(MessageEnds::told_by(&HeaderMap::new()).is_none());
    }

    #[test]
    fn a_message_ends_where_its_length_says_however_the_stream_is_cut() {
        let streams: [(&str, &[u8], &[usize]); 3] = [
            (
                "application/grpc",
                b"\0\0\0\0\x03abc\0\0\0\0\0\x01\0\0\0\x01z",
                &[8, 13, 19],
            ),
            (
                "application/vnd.amazon.eventstream",
                b"\0\0\0\x06ab\0\0\0\x07abc",
                &[6, 13],
            ),
            (
                "application/vnd.kubernetes.protobuf;stream=watch",
                b"\0\0\0\x02ab\0\0\0\x01z",
                &[6, 11],
            ),
        ];
        for (kind, stream, ends) in streams {
            for first in 0..stream.len() {
                for second in first..=stream.len() {
                    let mut messages = messages(kind).expect("it has messages");
                    messages.pass(&stream[..first]);
                    let ended = messages.pass(&stream[first..second]);
                    assert_eq!(
                        ended,
                        second == 0 || ends.contains(&second),
                        "{kind} {first} {second}"
                    );
                }
            }
        }
    }

    #[test]
    fn content_that_belies_its_type_has_no_end_from_there_on() {
        let mut json = messages("application/grpc").expect("it has messages");
        assert!(!json.pass(b"{\"a\":1}"));
        assert!(!json.pass(b"\0\0\0\0\0"));
        let mut turned = messages("application/grpc").expect("it has messages");
        assert!(turned.pass(b"\0\0\0\0\x02ab"));
        assert!(!turned.pass(b"cd"));
        assert!(!turned.pass(b"\0\0\0\0\0"));
        let mut short = messages("application/vnd.amazon.eventstream").expect("it has messages");
        assert!(!short.pass(b"\0\0\0\x02"));
    }
}
