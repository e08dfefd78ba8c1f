//! Event streams: what AWS signs comes out as it went in where the key and the time are the same,
//! nothing passes that is not verified, and cuts make no difference.
#![no_main]

use std::time::Duration;

use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use bytes::Bytes;
use gateway_fuzz::{SECRET, at, hex, streaming_head};
use gateway_sigv4::{ClientSignature, EventResigner, Fault, SigningParams, sign};
use libfuzzer_sys::fuzz_target;

const DATE: &[u8] = b"\x05:date\x08";
const SIGNATURE: &[u8] = b"\x10:chunk-signature\x06\x00\x20";

fuzz_target!(
    |input: (Vec<Vec<u8>>, Vec<u8>, bool, Option<(u32, u8)>, u8)| {
        let (payloads, raw, is_turned, change, step) = input;
        let (mut content, last) = signed(&payloads, is_turned);
        content.extend_from_slice(&last);
        let original = content.clone();
        if let Some((place, bits)) = change {
            let place = place as usize % content.len();
            content[place] ^= bits;
        }
        content.extend_from_slice(&raw);
        let (out, end) = through(&content, content.len());
        assert_eq!(
            through(&content, 1 + usize::from(step)),
            (out.clone(), end.clone())
        );
        assert!(original.starts_with(&out));
        assert_eq!(end.is_ok(), content == original);
        assert!(end.is_err() || out == content);
        let (out, end) = through(&framed(&raw), raw.len() + 1);
        assert!(out.is_empty() && end.is_err());
    }
);

/// Messages with these payloads, and the one that ends the stream.
fn signed(payloads: &[Vec<u8>], is_turned: bool) -> (Vec<u8>, Vec<u8>) {
    let key = generate_signing_key(SECRET, at(), "us-east-1", "transcribe");
    let mut last = opened().1;
    let mut message = |payload: &[u8]| {
        let date = [DATE, &1_369_353_600_000_u64.to_be_bytes()].concat();
        let text = format!(
            "AWS4-HMAC-SHA256-PAYLOAD\n20130524T000000Z\n\
             20130524/us-east-1/transcribe/aws4_request\n{last}\n{}\n{}",
            hex(&date),
            hex(payload)
        );
        last = calculate_signature(&key, text.as_bytes());
        let digits = last.as_bytes().chunks(2);
        let bytes = digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16));
        let bytes: Vec<u8> = bytes.map(Result::unwrap).collect();
        let signature = [SIGNATURE, &bytes].concat();
        let headers = if is_turned {
            [signature, date].concat()
        } else {
            [date, signature].concat()
        };
        with_lengths(&headers, payload)
    };
    let all = payloads.iter().filter(|payload| !payload.is_empty());
    let all: Vec<_> = all.map(|payload| message(payload)).collect();
    (all.concat(), message(b""))
}

/// A message that is not signed, whose lengths and checksums are right.
fn framed(raw: &[u8]) -> Vec<u8> {
    let (headers, payload) = raw.split_at(raw.len().min(59));
    with_lengths(headers, payload)
}

fn with_lengths(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let total = 16 + headers.len() + payload.len();
    let mut message = [total as u32, headers.len() as u32]
        .map(u32::to_be_bytes)
        .concat();
    message.extend(crc32fast::hash(&message).to_be_bytes());
    message.extend([headers, payload].concat());
    message.extend(crc32fast::hash(&message).to_be_bytes());
    message
}

/// The transformation after a head that is signed, and the head's signature.
fn opened() -> (EventResigner, String) {
    let fields = [
        ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-EVENTS"),
        ("x-amz-date", "20130524T000000Z"),
    ];
    let host = "transcribestreaming.us-east-1.amazonaws.com";
    let (mut head, seed) = streaming_head(host, "transcribe", &fields).unwrap();
    let claim = ClientSignature::read(&head).unwrap().unwrap();
    let verified = claim.verify(&head, SECRET.as_bytes(), None).unwrap();
    let with = SigningParams {
        access_key: "AKIA",
        secret: SECRET.as_bytes(),
        session_token: None,
        now: at(),
        longest_life: Duration::from_secs(60),
        content: None,
    };
    let signed = sign(&mut head, &claim, verified, &with).unwrap();
    (signed.events(1 << 20).unwrap(), seed)
}

fn through(content: &[u8], step: usize) -> (Vec<u8>, Result<(), Fault>) {
    let (mut events, _) = opened();
    let mut out: Vec<Bytes> = Vec::new();
    let mut pieces = content.chunks(step);
    let end = pieces.try_for_each(|piece| events.push(piece, at(), &mut out));
    (out.concat(), end.and_then(|()| events.finish()))
}
