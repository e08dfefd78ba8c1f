//! Multipart forms: what is read is what a plain reader of RFC 7578 splits, and what streams passes
//! with the same outcome however it is cut.
#![no_main]

use bytes::Bytes;
use gateway_body::fact::{FormRemainder, PlainContent};
use gateway_body::{BodyTransform as _, Document, Member, Questions};
use gateway_fuzz::ends;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = streamed(bytes, [bytes.len()]);
    let cut = streamed(bytes, ends(bytes));
    assert_eq!(whole.is_some(), cut.is_some());
    let Some(members) = members(bytes, &|_: &str| true) else {
        return assert!(whole.is_none());
    };
    // Readers also find a name in that of a file, and decode names.
    let asked = self::members(bytes, &is_asked).expect("it is split alike");
    assert_eq!(whole.is_some(), asked.is_empty());
    assert!(whole.into_iter().chain(cut).all(|passed| passed == bytes));
    let parts = parts(bytes).expect("a plain reader splits it");
    assert_eq!(parts.len(), members.len());
    for (member, (head, value)) in members.iter().zip(parts) {
        let name = member.name.as_bytes();
        assert!(name.is_empty() || head.windows(name.len()).any(|text| text == name));
        let read = member.value.as_ref().map(String::as_bytes);
        assert!(read.is_none_or(|read| read == value));
    }
});

fn fields() -> HeaderMap {
    let kind = HeaderValue::from_static("multipart/form-data; boundary=b");
    HeaderMap::from_iter([(CONTENT_TYPE, kind)])
}

/// The members of these names; `None` if readers may split the content differently.
fn members(bytes: &[u8], is_asked: &dyn Fn(&str) -> bool) -> Option<Vec<Member>> {
    let content = PlainContent {
        bytes: bytes.to_vec().into(),
        ..PlainContent::default()
    };
    let mut questions = Questions::default();
    questions.members(is_asked);
    Document::read(&fields(), "", &content, &questions)
        .members()
        .ok()
}

/// A name that cuts the content off.
fn is_asked(name: &str) -> bool {
    name.contains("token")
}

/// What passes of content that streams from its first byte; `None` if it is cut off.
fn streamed(bytes: &[u8], ends: impl IntoIterator<Item = usize>) -> Option<Vec<u8>> {
    let mut behind = FormRemainder::new(&fields(), b"", Box::new(is_asked))?;
    let (mut out, mut start) = (Vec::new(), 0);
    for end in ends {
        let piece = Bytes::copy_from_slice(&bytes[start..end]);
        start = end;
        behind.piece(piece, &mut out).ok()?;
    }
    behind.end(&mut out).ok()?;
    Some(out.concat())
}

/// The head and the value of each part.
fn parts(bytes: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let find = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).position(|one| one == text);
    let mut rest = bytes.strip_prefix(b"--b")?;
    let mut parts = Vec::new();
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let end = find(part, b"\r\n--b")?;
        let head = find(&part[..end], b"\r\n\r\n")?;
        parts.push((&part[..head], &part[head + 4..end]));
        rest = &part[end + 5..];
    }
    matches!(rest, b"--" | b"--\r\n").then_some(parts)
}
