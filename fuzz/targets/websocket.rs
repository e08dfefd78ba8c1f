//! Frames of WebSocket: where pieces are cut makes no difference, and what is read is written back
//! as it stood.
#![no_main]

use gateway_fuzz::ends;
use gateway_wire::Cursor;
use gateway_wire::websocket::{
    FrameHeader, FrameMalformed, FramePart, Frames, TEXT, masked, whole_frame,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((side, bytes)) = input.split_first() else {
        return;
    };
    let is_client = side % 2 == 1;
    let whole = read(is_client, bytes, [bytes.len()]);
    assert_eq!(read(is_client, bytes, ends(bytes)), whole);
    let mut written = Vec::new();
    for (frame, payload) in &whole.0 {
        assert!(!frame.is_control() || (frame.last && frame.length <= 125));
        let bytes = [&frame.bytes()[..], payload].concat();
        if (frame.opcode, frame.last, frame.length) == (TEXT, true, payload.len() as u64) {
            let text: Vec<u8> = masked(payload, frame.mask.unwrap_or_default()).collect();
            assert_eq!(whole_frame(TEXT, &text, frame.mask), bytes);
        }
        written.extend(bytes);
    }
    assert!(bytes.starts_with(&written));
    assert!(whole.1 != Ok(true) || bytes == written);
});

/// The frames until the bytes end or are malformed, and which of these it was: whether the bytes
/// end with a frame.
fn read(
    is_client: bool,
    bytes: &[u8],
    ends: impl IntoIterator<Item = usize>,
) -> (Vec<(FrameHeader, Vec<u8>)>, Result<bool, FrameMalformed>) {
    let (mut frames, mut found) = (Frames::new(is_client), Vec::new());
    let mut start = 0;
    for end in ends {
        let mut cursor = Cursor::new(&bytes[start..end]);
        start = end;
        loop {
            match frames.next(&mut cursor) {
                Ok(Some(FramePart::Header(header))) => found.push((header, Vec::new())),
                Ok(Some(FramePart::Payload(part, _))) => {
                    let (_, payload) = found.last_mut().expect("a header comes first");
                    payload.extend_from_slice(part);
                }
                Ok(None) => break,
                Err(why) => return (found, Err(why)),
            }
        }
    }
    (found, Ok(frames.is_between()))
}
