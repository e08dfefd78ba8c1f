//! aws-chunked content: the decoder never panics, keeps the length of what it passes, passes
//! nothing that is not verified, and does not care for cuts.
#![no_main]

use std::time::Duration;

use bytes::Bytes;
use gateway_fuzz::{SECRET, at, hex, streaming_head};
use gateway_sigv4::{ChunkResigner, ClientSignature, Fault, SigningParams, sign};
use libfuzzer_sys::fuzz_target;

// Fuzzed content is an unsigned stream as it is, or the parts of a signed one, signed and then
// changed in one byte or none.
fuzz_target!(|input: (bool, Vec<u8>, Vec<u16>, Option<(u32, u8)>, u16)| {
    let (signed, content, sizes, change, decoded) = input;
    if signed {
        composed(&content, &sizes, change);
    } else {
        raw(&content, &sizes, decoded);
    }
});

fn raw(content: &[u8], cuts: &[u16], decoded: u16) {
    let Some(mut whole) = opened(
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        &decoded.to_string(),
        "",
    ) else {
        return;
    };
    let (out, end) = through(&mut whole, content, &[]);
    assert!(out.len() <= content.len());
    // Nothing of unsigned content is changed, and what ended well passed whole.
    assert!(content.starts_with(&out));
    if end.is_ok() {
        assert_eq!(out, content);
    }
    let mut cut = opened(
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        &decoded.to_string(),
        "",
    )
    .unwrap();
    let (again, cut_end) = through(&mut cut, content, cuts);
    assert_eq!(end.is_ok(), cut_end.is_ok());
    if end.is_ok() {
        assert_eq!(out, again);
    }
}

fn composed(data: &[u8], sizes: &[u16], change: Option<(u32, u8)>) {
    let kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
    let Some((mut rechain, seed)) = opened_with_seed(kind, &data.len().to_string(), "") else {
        return;
    };
    let key = aws_sigv4::sign::v4::generate_signing_key(SECRET, at(), "us-east-1", "s3");
    let mut chunks = Vec::new();
    let mut rest = data;
    for size in sizes {
        let (chunk, left) = rest.split_at(usize::from(*size).min(rest.len()));
        if !chunk.is_empty() {
            chunks.push(chunk);
        }
        rest = left;
    }
    if !rest.is_empty() {
        chunks.push(rest);
    }
    chunks.push(b"");
    let mut last = seed;
    let mut content = Vec::new();
    for chunk in &chunks {
        let text = format!(
            "AWS4-HMAC-SHA256-PAYLOAD\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n{last}\n{}\n{}",
            hex(b""),
            hex(chunk)
        );
        last = aws_sigv4::sign::v4::calculate_signature(&key, text.as_bytes());
        content
            .extend_from_slice(format!("{:x};chunk-signature={last}\r\n", chunk.len()).as_bytes());
        content.extend_from_slice(chunk);
        content.extend_from_slice(b"\r\n");
    }
    let original = content.clone();
    if let Some((place, bits)) = change {
        let place = place as usize % content.len();
        content[place] ^= bits;
    }
    let (out, end) = through(&mut rechain, &content, sizes);
    if content == original {
        assert_eq!(end, Ok(()));
        assert_eq!(out.len(), content.len());
    } else if end.is_ok() {
        // Nothing but the case of a size's digits may be changed and still verify.
        assert!(content.eq_ignore_ascii_case(&original));
    } else {
        assert!(out.len() < content.len());
    }
}

fn opened(kind: &str, length: &str, trailer: &str) -> Option<ChunkResigner> {
    opened_with_seed(kind, length, trailer).map(|(rechain, _)| rechain)
}

/// A head that is signed for this kind of content.
fn opened_with_seed(kind: &str, length: &str, trailer: &str) -> Option<(ChunkResigner, String)> {
    let mut fields = vec![
        ("x-amz-content-sha256", kind),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-decoded-content-length", length),
    ];
    if !trailer.is_empty() {
        fields.push(("x-amz-trailer", trailer));
    }
    let (mut head, seed) = streaming_head("s3.amazonaws.com", "s3", &fields)?;
    let claim = ClientSignature::read(&head).unwrap().unwrap();
    let verified = claim.verify(&head, SECRET.as_bytes(), None).unwrap();
    let with = SigningParams {
        access_key: "AKIAREAL",
        secret: b"realrealreal",
        session_token: None,
        now: at(),
        longest_life: Duration::from_secs(60),
        content: None,
    };
    let signed = sign(&mut head, &claim, verified, &with).unwrap();
    Some((signed.rechain(&head, 1 << 20).unwrap()?, seed))
}

fn through(
    rechain: &mut ChunkResigner,
    content: &[u8],
    cuts: &[u16],
) -> (Vec<u8>, Result<(), Fault>) {
    let mut out = Vec::new();
    let mut end = Ok(());
    let mut rest = content;
    let mut cuts = cuts.iter();
    while !rest.is_empty() && end.is_ok() {
        let length = cuts
            .next()
            .map_or(rest.len(), |cut| usize::from(*cut).clamp(1, rest.len()));
        let (piece, left) = rest.split_at(length);
        end = rechain.push(Bytes::copy_from_slice(piece), &mut out);
        rest = left;
    }
    let end = end.and_then(|()| rechain.finish());
    (out.concat(), end)
}
