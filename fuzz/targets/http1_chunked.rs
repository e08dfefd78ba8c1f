//! Chunked content: however it is cut, as much of it passes with the same outcome; and what is
//! complete, httparse reads to the same end.
#![no_main]

use gateway_fuzz::ends;
use gateway_wire::{Chunked, WireMalformed};
use httparse::{EMPTY_HEADER, Status, parse_chunk_size, parse_headers};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = followed(bytes, [bytes.len()]);
    assert_eq!(followed(bytes, ends(bytes)), whole);
    if let (length, Ok(true)) = whole {
        assert_eq!(by_httparse(bytes), Some(length));
    }
});

/// How many bytes pass, and whether that is all of the content.
fn followed(
    bytes: &[u8],
    ends: impl IntoIterator<Item = usize>,
) -> (usize, Result<bool, WireMalformed>) {
    let mut chunked = Chunked::default();
    let mut at = 0;
    for end in ends {
        let (length, outcome) = chunked.follow(&bytes[at..end]);
        at += length;
        if let Err(malformed) = outcome {
            return (at, Err(malformed));
        }
    }
    (at, Ok(chunked.is_complete()))
}

/// Where the content ends.
fn by_httparse(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let Ok(Status::Complete((line, size))) = parse_chunk_size(&bytes[at..]) else {
            return None;
        };
        at += line;
        if size == 0 {
            break;
        }
        at += usize::try_from(size).ok()?;
        at += bytes.get(at..)?.starts_with(b"\r\n").then_some(2)?;
    }
    match parse_headers(&bytes[at..], &mut [EMPTY_HEADER; 32]) {
        Ok(Status::Complete((length, _))) => Some(at + length),
        _ => None,
    }
}
