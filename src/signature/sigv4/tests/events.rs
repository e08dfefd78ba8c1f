//! Event streams, with AWS's own Rust signer as the client.

use std::time::UNIX_EPOCH;

use aws_credential_types::Credentials;
use aws_sigv4::event_stream::{sign_empty_message, sign_message};
use aws_sigv4::sign::v4;
use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue as EventValue, Message};
use proptest::prelude::*;

use super::super::key::sha256;
use super::super::{AmzDate, EventResigner, Payload};
use super::*;

const KIND: &str = "STREAMING-AWS4-HMAC-SHA256-EVENTS";
const LONGEST: usize = 64 * 1024;

/// A head and its messages, each signed at its time by AWS's code.
fn composed(at: &str, messages: &[(SystemTime, &[u8])]) -> (RequestHead, Vec<u8>) {
    let secret = std::str::from_utf8(S3_SECRET).unwrap();
    let signed_at = AmzDate::parse(at).unwrap();
    let scope = format!("{}/us-east-1/transcribe/aws4_request", signed_at.day());
    let names = "host;x-amz-content-sha256;x-amz-date";
    let canonical = format!(
        "POST\n/stream-transcription\n\nhost:transcribestreaming.us-east-1.amazonaws.com\nx-amz-content-sha256:{KIND}\n\
         x-amz-date:{at}\n\n{names}\n{KIND}"
    );
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{at}\n{scope}\n{}",
        sha256(canonical.as_bytes())
    );
    let key = v4::generate_signing_key(secret, signed_at.time(), "us-east-1", "transcribe");
    let mut last = v4::calculate_signature(key, to_sign.as_bytes());
    let value = format!(
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/{scope}, SignedHeaders={names}, Signature={last}"
    );
    let fields = [
        ("authorization", &*value),
        ("x-amz-content-sha256", KIND),
        ("x-amz-date", at),
    ];
    let head = head(
        "POST",
        "transcribestreaming.us-east-1.amazonaws.com",
        "/stream-transcription",
        &fields,
    );
    let identity = Credentials::new("AKIAIOSFODNN7EXAMPLE", secret, None, None, "test").into();
    let mut content = Vec::new();
    for (time, payload) in messages {
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region("us-east-1")
            .name("transcribe");
        let params = params.time(*time).settings(()).build().unwrap();
        let inner = Message::new(payload.to_vec())
            .add_header(Header::new("kind", EventValue::String("audio".into())));
        let signed = if payload.is_empty() {
            sign_empty_message(&last, &params)
        } else {
            sign_message(&inner, &last, &params)
        };
        let (message, signature) = signed.unwrap().into_parts();
        write_message_to(&message, &mut content).unwrap();
        last = signature;
    }
    (head, content)
}

fn at(text: &str) -> SystemTime {
    AmzDate::parse(text).unwrap().time()
}

fn opened(
    mut head: RequestHead,
    secret: &[u8],
    with: &SigningParams<'_>,
) -> (RequestHead, EventResigner) {
    let (claim, signed) = again(&mut head, secret, None, with).unwrap();
    assert_eq!(claim.payload(), Payload::Events);
    let events = signed.events(LONGEST).unwrap();
    (head, events)
}

fn through(
    events: &mut EventResigner,
    content: &[u8],
    step: usize,
    now: SystemTime,
) -> (Vec<u8>, Result<(), Fault>) {
    let mut out = Vec::new();
    let end = content
        .chunks(step)
        .try_for_each(|piece| events.push(piece, now, &mut out));
    (out.concat(), end.and_then(|()| events.finish()))
}

fn same(now: &str) -> SigningParams<'static> {
    SigningParams {
        access_key: "AKIAIOSFODNN7EXAMPLE",
        secret: S3_SECRET,
        session_token: None,
        now: at(now),
        longest_life: Duration::from_secs(60),
        content: None,
    }
}

#[test]
fn messages_are_signed_again_in_any_cut_and_over_midnight() {
    let noon = "20260101T235959Z";
    let messages: &[(SystemTime, &[u8])] = &[
        (at(noon), b"one"),
        (at("20260102T000001Z"), &[7; 5000]),
        (at("20260102T000002Z") + Duration::from_millis(7), b""),
    ];
    let (head, content) = composed(noon, messages);
    for step in [1, 7, 100, content.len()] {
        let with = SigningParams {
            now: at(noon),
            ..real(at(noon))
        };
        let now = at("20260102T010000Z");
        let (new, mut events) = opened(head.clone(), S3_SECRET, &with);
        let (out, end) = through(&mut events, &content, step, now);
        assert_eq!(end, Ok(()), "{step}");
        assert_eq!(out.len(), content.len());
        assert!(out != content);
        let (_, mut judge) = opened(new, with.secret, &same(noon));
        assert_eq!(through(&mut judge, &out, step, now).1, Ok(()));
    }
}

/// With one message, all times are the same: the stream comes out as AWS's code made it.
#[test]
fn signed_with_the_same_key_and_time_it_comes_out_as_it_went_in() {
    let noon = "20260101T120000Z";
    let (head, content) = composed(
        noon,
        &[(at(noon), b"one"), (at(noon), b"two"), (at(noon), b"")],
    );
    let (_, mut events) = opened(head, S3_SECRET, &same(noon));
    assert_eq!(
        through(&mut events, &content, 10, at(noon)),
        (content, Ok(()))
    );
}

#[test]
fn a_stream_ends_with_its_last_message_and_within_two_days() {
    let noon = "20260101T120000Z";
    let (head, content) = composed(noon, &[(at(noon), b"one"), (at(noon), b"")]);
    for short in 0..content.len() {
        let (_, mut events) = opened(head.clone(), S3_SECRET, &same(noon));
        let end = through(&mut events, &content[..short], 1000, at(noon)).1;
        assert_eq!(
            end,
            Err(Fault::Framing("it ends before its last message")),
            "{short}"
        );
    }
    let (_, mut events) = opened(head.clone(), S3_SECRET, &same(noon));
    let more = [&content[..], b"\0"].concat();
    assert_eq!(
        through(&mut events, &more, 1000, at(noon)).1,
        Err(Fault::Framing("bytes follow its end"))
    );
    assert_eq!(
        events.push(b"", at(noon), &mut Vec::new()),
        Err(Fault::Framing("it was broken before"))
    );
    let (_, mut events) = opened(head, S3_SECRET, &same(noon));
    assert_eq!(
        through(&mut events, &content, 1000, at("20260103T000000Z")),
        (Vec::new(), Err(Fault::Date))
    );
    for odd in ["20260103T000000Z", "20251231T235959Z"] {
        let (head, content) = composed(noon, &[(at(odd), b"one"), (at(odd), b"")]);
        let (_, mut events) = opened(head, S3_SECRET, &same(noon));
        assert_eq!(
            through(&mut events, &content, 1000, at(noon)),
            (Vec::new(), Err(Fault::Date)),
            "{odd}"
        );
    }
}

#[test]
fn unsigned_and_over_long_messages_are_refused() {
    let noon = "20260101T120000Z";
    let (head, _) = composed(noon, &[]);
    let mut content = Vec::new();
    let plain = Message::new(&b"one"[..])
        .add_header(Header::new("kind", EventValue::String("audio".into())));
    write_message_to(&plain, &mut content).unwrap();
    let (_, mut events) = opened(head, S3_SECRET, &same(noon));
    assert!(matches!(
        through(&mut events, &content, 1000, at(noon)).1,
        Err(Fault::Framing(_))
    ));
    let long = vec![1; LONGEST];
    let (head, content) = composed(noon, &[(at(noon), &long)]);
    let (_, mut events) = opened(head, S3_SECRET, &same(noon));
    assert_eq!(
        through(&mut events, &content, 1000, at(noon)),
        (Vec::new(), Err(Fault::PartTooLong(LONGEST)))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_changed_byte_passes(place: usize, bit in 0..8_u8) {
        let noon = "20260101T120000Z";
        let (head, mut content) = composed(noon, &[(at(noon), b"one"), (at(noon), b"")]);
        let place = place % content.len();
        content[place] ^= 1 << bit;
        let (_, mut events) = opened(head, S3_SECRET, &same(noon));
        prop_assert!(through(&mut events, &content, 1000, at(noon)).1.is_err());
    }

    #[test]
    fn garbage_is_refused_and_never_panics(content in proptest::collection::vec(any::<u8>(), 1..300)) {
        let noon = "20260101T120000Z";
        let (head, _) = composed(noon, &[]);
        let (_, mut events) = opened(head, S3_SECRET, &same(noon));
        let (out, end) = through(&mut events, &content, 20, UNIX_EPOCH);
        prop_assert!(end.is_err() && out.is_empty());
    }
}
