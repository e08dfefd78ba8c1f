//! Heads of HTTP/1: however they are cut, they are read alike; and what is accepted, httparse (and
//! with it hyper) reads with the same method, target, fields and length.
#![no_main]

use gateway_fuzz::ends;
use gateway_wire::{HeadReader, parse_head};
use httparse::{EMPTY_HEADER, Request, Status};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = parse_head(bytes);
    let mut reader = HeadReader::default();
    let pieces = ends(bytes).map(|end| reader.read(&bytes[..end]));
    let cut = pieces.into_iter().find(|outcome| *outcome != Ok(None));
    let length = whole
        .as_ref()
        .map(|head| head.as_ref().map(|head| head.length));
    assert_eq!(
        length.map_err(|malformed| *malformed),
        cut.unwrap_or(Ok(None))
    );
    let Ok(Some(head)) = whole else { return };
    let mut fields = [EMPTY_HEADER; 100];
    let mut other = Request::new(&mut fields);
    assert_eq!(other.parse(bytes), Ok(Status::Complete(head.length)));
    assert_eq!(other.method.map(str::as_bytes), Some(head.method));
    assert_eq!(other.path.map(str::as_bytes), Some(head.target));
    let others = other
        .headers
        .iter()
        .map(|field| (field.name.as_bytes(), field.value));
    assert!(head.fields().eq(others));
});
