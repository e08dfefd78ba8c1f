//! Frames of WebSocket: where pieces are cut makes no difference, and what is read stands there.
#![no_main]

use bytes::Bytes;
use gateway_fuzz::ends;
use gateway_wire::websocket::{
    FrameHeader, FrameHeaders, FrameMalformed, MASK, TEXT, masked, text_frame,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((side, bytes)) = input.split_first() else {
        return;
    };
    let is_client = side % 2 == 1;
    let whole = read(is_client, bytes, [bytes.len()]);
    assert_eq!(read(is_client, bytes, ends(bytes)), whole);
    let mut rest = bytes;
    for frame in whole.0 {
        let (header, behind) = rest.split_at(frame.raw.len());
        assert_eq!((header[0] & 0x8f, header), (first(&frame), &*frame.raw));
        assert!(!frame.is_control() || (frame.last && frame.length <= 125));
        let length = usize::try_from(frame.length).unwrap_or(usize::MAX);
        let (payload, behind) = behind.split_at(length.min(behind.len()));
        if is_client && frame.opcode == TEXT && frame.last && payload.len() == length {
            let mask: [u8; MASK] = frame.mask();
            let text: Vec<u8> = masked(payload, mask).collect();
            assert_eq!(text_frame(&text, mask), [header, payload].concat());
        }
        rest = behind;
    }
});

fn first(frame: &FrameHeader) -> u8 {
    frame.opcode | if frame.last { 0x80 } else { 0 }
}

/// The headers until the bytes end or are malformed, and which of these it was.
fn read(
    is_client: bool,
    bytes: &[u8],
    ends: impl IntoIterator<Item = usize>,
) -> (Vec<FrameHeader>, Result<(), FrameMalformed>) {
    let (mut headers, mut found) = (FrameHeaders::new(is_client), Vec::new());
    let (mut start, mut left) = (0, 0);
    for end in ends {
        let mut rest = Bytes::copy_from_slice(&bytes[start..end]);
        start = end;
        while !rest.is_empty() {
            let here = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let _ = rest.split_to(here);
            left -= here as u64;
            match (left == 0).then(|| headers.read(&mut rest)).transpose() {
                Ok(Some(Some(frame))) => {
                    left = frame.length;
                    found.push(frame);
                }
                Ok(_) => {}
                Err(why) => return (found, Err(why)),
            }
        }
    }
    (found, Ok(()))
}
