//! A renewed secret may differ in length from the session's phantom.

use gateway_body::{DecodeBody, Decoder, MockBody};
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame};
use http_body_util::Full;
use proptest::prelude::*;

use super::pieces::{Frames, coded, cut, read, render, secret, seen, spell, written};
use super::*;
use crate::guesses::Guesses;
use crate::secret::mask;

const LONG: &str =
    "ghs_A1b2C3d4E5f6G7h8I9j0.K1l2M3n4O5p6Q7r8S9t0U1v2W3x4Y5z6a7B8c9D0e1F2g3_H4i5J6k7L8";
const SHORT: &str = "ghs_a9B8c7D6e5F4g3H2i1J0k9L8";

fn masked(secret: &str) -> String {
    text(mask(secret.as_bytes()).to_vec())
}

fn renewed(secrets: &[(&str, &str)]) -> Arc<EchoSearch> {
    renewed_as(secrets, masked)
}

fn renewed_as(secrets: &[(&str, &str)], stand_in: impl Fn(&str) -> String) -> Arc<EchoSearch> {
    let forms = |(secret, phantom): &(&str, &str)| {
        let stand_in = stand_in(secret);
        let forms = SecretForms::of(secret.as_bytes(), stand_in.as_bytes(), phantom.as_bytes());
        Arc::new(forms.unwrap())
    };
    let forms = secrets.iter().map(forms).collect();
    Arc::new(EchoSearch::of(forms, Arc::new(Guesses::new(None))))
}

fn resized<'a>(
    echoes: &Arc<EchoSearch>,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (String, u64) {
    let mut scrubber = Scrubber::new(echoes.clone()).resizing();
    let mut out = Vec::new();
    for chunk in chunks {
        out.extend_from_slice(&scrubber.push(Bytes::copy_from_slice(chunk)));
    }
    out.extend_from_slice(&scrubber.finish());
    (text(out), scrubber.replaced())
}

#[test]
fn a_whole_echo_becomes_the_phantom_wherever_the_stream_is_cut() {
    for secret in [LONG, SHORT] {
        let echoes = renewed(&[(secret, PHANTOM)]);
        for how in [0, 4, 5, 6, 7, 8, 9, 11, 12] {
            let spelled = |token: &str| text(spell(token, how));
            let content = format!("<{}>,{}\n", spelled(secret), spelled(secret));
            let expected = format!("<{}>,{}\n", spelled(PHANTOM), spelled(PHANTOM));
            for at in 0..content.len() {
                let (head, tail) = content.as_bytes().split_at(at);
                assert_eq!(
                    resized(&echoes, [head, tail]),
                    (expected.clone(), 2),
                    "spelling {how} cut at {at}"
                );
            }
            let bytes = content.as_bytes();
            assert_eq!(resized(&echoes, bytes.chunks(1)), (expected, 2), "{how}");
        }
    }
}

#[test]
fn old_and_new_are_told_apart_and_say_the_same_phantom() {
    let echoes = renewed(&[(LONG, PHANTOM), (SHORT, PHANTOM), (SECRET, PHANTOM)]);
    let content = format!("{SECRET} {LONG} {SHORT}{LONG}");
    let expected = format!("{PHANTOM} {PHANTOM} {PHANTOM}{PHANTOM}");
    for chunk in [1, 7, 1000] {
        let (out, count) = resized(&echoes, content.as_bytes().chunks(chunk));
        assert_eq!((out, count), (expected.clone(), 4), "by {chunk}");
    }
    assert_eq!(
        echoes.scrub(content.as_bytes()).map(text),
        Some(expected.clone())
    );
}

#[test]
fn what_overlaps_is_masked_and_nothing_of_it_is_shown() {
    // The outer secret ends with the beginning of the inner one.
    let outer = "Kx9mPqRtV2bN5cWz7yQ3Lp8sHARED99";
    let inner = "sHARED99charlieDelta45Kx93mPq7";
    let echoes = renewed(&[(outer, "short-phantom-1"), (inner, "short-phantom-2")]);
    let content = "Kx9mPqRtV2bN5cWz7yQ3Lp8sHARED99charlieDelta45Kx93mPq7.";
    for chunk in [1, 5, 13, 1000] {
        let (out, _) = resized(&echoes, content.as_bytes().chunks(chunk));
        for secret in [outer, inner] {
            let rows = secret.as_bytes().windows(6);
            let shown = rows.filter(|row| out.contains(std::str::from_utf8(row).unwrap()));
            assert_eq!(shown.count(), 0, "{out}");
        }
    }
}

#[test]
fn where_no_length_may_change_a_mask_is_written() {
    let echoes = renewed(&[(LONG, PHANTOM)]);
    let (out, count) = scrub(&echoes, [format!("<{LONG}>").as_bytes()]);
    let masked = text(mask(LONG.as_bytes()).to_vec());
    assert_eq!((text(out), count), (format!("<{masked}>"), 1));
    // A secret as long as its phantom is replaced by it there too, wherever its punctuation is.
    let dotted = "sk.A1b2C3d4E5f6G7h8I9j0-K1l2M3n4O5p6Q7r8";
    let phantom = "skxZ9y8X7w6V5u4T3s2R1q0xP9o8N7m6L5k4J3i2";
    let echoes = renewed(&[(dotted, phantom)]);
    assert!(!echoes.resizes());
    let (out, _) = scrub(&echoes, [format!("<{dotted}>").as_bytes()]);
    assert_eq!(text(out), format!("<{phantom}>"));
}

#[test]
fn short_content_loses_its_length_and_long_content_messages_and_parts_keep_it() {
    let echoes = renewed(&[(LONG, PHANTOM)]);
    let told = |length: usize, more: Option<(&'static str, &'static str)>| {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
        if let Some((name, value)) = more {
            fields.insert(name, HeaderValue::from_static(value));
        }
        let content = Full::new(Bytes::from(vec![b'.'; length]));
        let body = ScrubBody::resizing(content, &mut fields, Scrubber::new(echoes.clone()));
        let known = fields.contains_key(CONTENT_LENGTH);
        assert_eq!(known, body.size_hint().exact() == Some(length as u64));
        known
    };
    assert!(!told(100, None) && !told(64 << 10, None));
    assert!(told((64 << 10) + 1, None));
    assert!(told(0, None));
    assert!(told(100, Some(("content-type", "application/grpc"))));
    assert!(told(100, Some(("content-range", "bytes 0-99/200"))));
    let same = ScrubBody::resizing(
        Full::new(Bytes::from_static(b"x")),
        &mut HeaderMap::new(),
        Scrubber::new(github()),
    );
    assert_eq!(same.size_hint().exact(), Some(1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_six_letters_of_a_renewed_secret_reach_the_client(
        secrets in proptest::collection::vec(secret(), 1..4),
        other in secret(),
        content in proptest::collection::vec(written(), 0..8),
        cuts in proptest::collection::vec(1_usize..90, 1..20),
        coding in prop_oneof![Just("identity"), Just("gzip"), Just("br"), Just("zstd")],
    ) {
        let phantom = format!("ph_{}", phantom_of(&other));
        let pairs: Vec<_> = secrets.iter().map(|secret| (secret.as_str(), phantom.as_str())).collect();
        let content = render(&content, &secrets);
        let pieces = coded(coding, &cut(&content, &cuts));
        // A leak by chance, a piece of a stand-in after one of the secret, does not occur with
        // another stand-in.
        let mut leaks = Vec::new();
        for stand_in in [masked, |secret: &str| turned(&masked(secret), 2)] {
            let mut fields = HeaderMap::new();
            fields.insert("content-encoding", HeaderValue::from_str(coding).unwrap());
            let codings = gateway_body::Coding::parse_list(&fields).unwrap();
            let scrubber = Scrubber::new(renewed_as(&pairs, stand_in));
            let frames = pieces.iter().map(|piece| Ok(Frame::data(Bytes::from(piece.clone()))));
            let script = MockBody(frames.collect::<Frames>().into());
            let (out, _) = if codings.is_empty() { read(&mut ScrubBody::resizing(script, &mut fields, scrubber)) } else { let body = DecodeBody::new(script, Decoder::new(&codings).unwrap());
                    read(&mut ScrubBody::resizing(body, &mut fields, scrubber)) };
            let stand_ins: Vec<String> = secrets.iter().map(|secret| stand_in(secret)).collect();
            match seen(&out, &secrets, &stand_ins) {
                Some(leak) => leaks.push((leak, String::from_utf8_lossy(&out).into_owned())),
                None => return Ok(()),
            }
        }
        prop_assert_eq!(leaks, []);
    }

    /// Text around echoes is not changed, however much their length changes.
    #[test]
    fn all_but_the_echoes_stays_however_it_is_cut(
        secret in secret(),
        other in secret(),
        texts in proptest::collection::vec("[ -~]{0,60}", 1..6),
        cuts in proptest::collection::vec(1_usize..90, 1..20),
    ) {
        let phantom = format!("ph_{}", phantom_of(&other));
        let of = |token: &str| texts.iter().map(|filler| format!("{filler}\n<{token}>\n")).collect::<String>();
        let (content, expected) = (of(&secret), of(&phantom));
        let echoes = renewed(&[(&secret, &phantom)]);
        for pieces in [vec![content.as_bytes()], content.as_bytes().chunks(1).collect(), cut(content.as_bytes(), &cuts)] {
            prop_assert_eq!(&resized(&echoes, pieces).0, &expected);
        }
    }
}
