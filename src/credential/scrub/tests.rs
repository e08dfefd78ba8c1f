//! Tests of the scrubber against a search that tries every form at every place.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;

use super::*;
use crate::credential::echo::{Form, forms};

const SECRET: &str = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";
const PHANTOM: &str = "ghp_Z9y8X7w6V5u4T3s2R1q0P9o8N7m6L5k4J3i2";

/// A phantom that differs from its secret in every letter and digit, of the same classes.
fn phantom_of(secret: &str) -> String {
    let turn = |c: char, first: u8, count: u8| char::from(first + (c as u8 - first + count / 2) % count);
    let one = |c: char| match c {
        'a'..='z' => turn(c, b'a', 26),
        'A'..='Z' => turn(c, b'A', 26),
        '0'..='9' => turn(c, b'0', 10),
        other => other,
    };
    secret.chars().map(one).collect()
}

fn echoes(lent: &[(&str, &str)]) -> Arc<Echoes> {
    Arc::new(
        Echoes::new(lent.iter().map(|(s, p)| (s.as_bytes(), p.as_bytes()))).expect("they can be scrubbed"),
    )
}

fn github() -> Arc<Echoes> {
    echoes(&[(SECRET, PHANTOM)])
}

fn scrub<'a>(echoes: &Arc<Echoes>, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, u64) {
    let mut scrubber = Scrubber::new(echoes.clone());
    let mut out = Vec::new();
    for chunk in chunks {
        out.extend_from_slice(&scrubber.push(Bytes::copy_from_slice(chunk)));
    }
    out.extend_from_slice(&scrubber.finish());
    assert_eq!(scrubber.held(), 0);
    (out, scrubber.replaced())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the test is about text")
}

fn form_pairs() -> Vec<Form> {
    forms(SECRET.as_bytes(), PHANTOM.as_bytes()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_form_is_replaced_wherever_the_stream_is_cut_in_two() {
    for form in form_pairs() {
        let (echo, expected) = (
            [b"<", &form.secret[..], b">"].concat(),
            [b"<", &form.phantom[..], b">"].concat(),
        );
        for cut in 0..=echo.len() {
            let (head, tail) = echo.split_at(cut);
            assert_eq!(
                scrub(&github(), [head, tail]),
                (expected.clone(), 1),
                "cut at {cut}"
            );
        }
        assert_eq!(scrub(&github(), echo.chunks(1)), (expected, 1));
    }
}

#[test]
fn every_offset_in_a_large_buffer_is_searched() {
    let echoes = github();
    for offset in 0..300 {
        for rest in [0, 1, 7, 8, 40, 200] {
            let mut content = vec![b'.'; offset];
            content.extend_from_slice(SECRET.as_bytes());
            content.resize(content.len() + rest, b'.');
            let (out, count) = scrub(&echoes, [&content[..]]);
            assert_eq!(
                (&out[offset..offset + 40], count),
                (PHANTOM.as_bytes(), 1),
                "{offset}, {rest}"
            );
        }
    }
}

#[test]
fn untouched_content_passes_as_the_same_bytes() {
    let mut scrubber = Scrubber::new(github());
    for content in [
        &b"{\"id\": 1, \"token\": \"ghp_\"}\n"[..],
        &[0xff; 16 << 10],
        b"",
        b"\n",
    ] {
        let chunk = Bytes::copy_from_slice(content);
        let passed = scrubber.push(chunk.clone());
        assert_eq!((passed.as_ptr(), passed.len()), (chunk.as_ptr(), chunk.len()));
    }
    assert_eq!((scrubber.held(), scrubber.replaced()), (0, 0));
}

#[test]
fn only_what_could_be_an_echo_by_its_characters_is_held_back() {
    let mut scrubber = Scrubber::new(github());
    assert_eq!(scrubber.push("data: ghp_A1b2".into()), "data: ");
    assert_eq!(scrubber.push("C3".into()), "");
    assert_eq!(scrubber.held(), 10);
    assert_eq!(scrubber.push("!\n".into()), "ghp_A1b2C3!\n");
    assert_eq!(scrubber.push("ghp".into()), "");
    assert_eq!(scrubber.finish(), "ghp");
    assert_eq!(scrubber.replaced(), 0);
}

#[test]
fn nothing_tells_a_right_guess_from_a_wrong_one() {
    let look = |guess: &[u8]| {
        let mut scrubber = Scrubber::new(github());
        let given = scrubber.push(Bytes::from([b"<", guess].concat()));
        let (given, held) = (given.len(), scrubber.held());
        let paused = scrubber.release();
        let whole = scrub(&github(), [&[b"<", guess].concat()[..]]);
        (given, held, paused == guess, whole == ([b"<", guess].concat(), 0))
    };
    for form in form_pairs() {
        // Base64's last character holds foreign bits, and what is one short of the whole is known then.
        for end in 1..form.secret.len() {
            let right = &form.secret[..end];
            let mut wrong = right.to_vec();
            wrong[end - 1] = if right[end - 1] == b'A' { b'B' } else { b'A' };
            assert_eq!(look(right), look(&wrong), "{end} of {}", form.secret.len());
            assert_eq!(look(right), (1, end, true, true));
        }
    }
}

#[test]
fn the_end_of_a_message_shows_what_is_held_once() {
    let mut scrubber = Scrubber::new(github());
    assert_eq!(scrubber.push("echo g".into()), "echo ");
    assert_eq!((scrubber.release(), scrubber.held()), ("g".into(), 0));
    assert_eq!(scrubber.release(), "");
    assert_eq!(scrubber.push("h".into()), "");
    assert_eq!(scrubber.push("o".into()), "");
    assert_eq!(scrubber.release(), "ho");
    assert_eq!(scrubber.push("!".into()), "!");
    assert_eq!(scrubber.replaced(), 0);
}

#[test]
fn brackets_and_quotes_are_held_back_only_where_a_secret_has_them() {
    let secret = "p{a}ss/\"w}ord]77x";
    let phantom = phantom_of(secret);
    let echoes = echoes(&[(secret, &phantom)]);
    for (text, held) in [
        ("{\"a\":1}", 0),
        ("[{\"a\":\"ab\"}]", 0),
        ("\"\"", 0),
        ("100%", 2),
        ("x = q{b}", 4),
        ("x = q{b}rr", 6),
        // All that a letter ends, because it may be base64.
        ("}]}ab", 5),
    ] {
        let mut scrubber = Scrubber::new(echoes.clone());
        scrubber.push(text.into());
        assert_eq!(scrubber.held(), held, "{text}");
    }
}

#[test]
fn what_could_begin_an_echo_is_found_in_bounded_steps() {
    let secret = format!("@{}", "a!".repeat(700));
    let phantom = phantom_of(&secret);
    let echoes = echoes(&[(&secret, &phantom)]);
    // The beginning but for its first byte, at each of 400 places: nothing would have to be held back.
    let text = "a!".repeat(400);
    let mut scrubber = Scrubber::new(echoes);
    scrubber.push(text.clone().into());
    assert_eq!(scrubber.held(), text.len());
}

#[test]
fn an_echo_that_reaches_into_what_a_message_end_shows_is_replaced_there() {
    // The outer secret ends as the inner one begins.
    let echoes = echoes(&[(SECRET, PHANTOM), ("r8-a-second-secret", "k3-z-mnopqr-tuvwxy")]);
    let mut scrubber = Scrubber::new(echoes);
    let mut out = scrubber.push(SECRET.into()).to_vec();
    out.extend_from_slice(&scrubber.release());
    assert_eq!(text(out), PHANTOM);
}

#[test]
fn a_basic_header_comes_back_as_that_of_the_phantom() {
    for user in ["", "u", "us", "user", "a:b"] {
        for after in ["", ";", ";;", ";;;"] {
            let coded = |secret: &str| STANDARD.encode(format!("{user}:{secret}{after}"));
            let content = format!("authorization: Basic {}\r\n", coded(SECRET));
            for chunk in [1, 13, 1000] {
                let (out, count) = scrub(&github(), content.as_bytes().chunks(chunk));
                // The secret begins as its phantom does, so nothing at all remains of it.
                assert_eq!(
                    text(out),
                    format!("authorization: Basic {}\r\n", coded(PHANTOM)),
                    "{user}, {after}"
                );
                assert_eq!(count, 1);
            }
        }
    }
}

#[test]
fn of_base64_no_more_than_high_bits_of_the_first_byte_remain() {
    let secret = "Kx93mPq7RtV2bN5c";
    let phantom = phantom_of(secret);
    let echoes = echoes(&[(secret, &phantom)]);
    for before in ["", "x", "xx"] {
        for after in ["", "y", "yy", "yyy"] {
            let coded = STANDARD.encode(format!("{before}{secret}{after}"));
            let decoded = STANDARD
                .decode(scrub(&echoes, coded.as_bytes().chunks(5)).0)
                .expect("still base64");
            let expected = format!("{before}{phantom}{after}").into_bytes();
            let at = before.len();
            assert_eq!(
                (&decoded[..at], &decoded[at + 1..]),
                (&expected[..at], &expected[at + 1..])
            );
            let low_bits = [0xff, 0x0f, 0x3f][at % 3];
            assert_eq!(decoded[at] & low_bits, expected[at] & low_bits);
        }
    }
}

#[test]
fn of_overlapping_echoes_every_byte_is_replaced() {
    let (first, second) = ("alphaBravo0123SHARED99", "SHARED99charlieDelta45");
    let lent = [first, second].map(|secret| (secret, phantom_of(secret)));
    let echoes = echoes(&[(lent[0].0, &lent[0].1), (lent[1].0, &lent[1].1)]);
    let content = "alphaBravo0123SHARED99charlieDelta45";
    let (whole, count) = scrub(&echoes, [content.as_bytes()]);
    assert_eq!(
        (text(whole.clone()), count),
        (format!("{}{}", &lent[0].1[..14], lent[1].1), 2)
    );
    assert_eq!(scrub(&echoes, content.as_bytes().chunks(1)), (whole, count));
}

#[test]
fn a_secret_inside_another_comes_back_as_the_outer_phantom() {
    let (outer, inner) = ("user-Kx93mPq7RtV2-prod", "Kx93mPq7RtV2");
    let (outer_phantom, inner_phantom) = (phantom_of(outer), "Aa11bBb2CcC3");
    let echoes = echoes(&[(outer, &outer_phantom), (inner, inner_phantom)]);
    let content = format!("{outer} {inner}");
    for chunk in [1, 3, 100] {
        let (out, _) = scrub(&echoes, content.as_bytes().chunks(chunk));
        assert_eq!(text(out), format!("{outer_phantom} {inner_phantom}"));
    }
}

#[test]
fn fields_are_scrubbed_in_values_and_names() {
    let secret = "kx93mpq7rtv2bn5c";
    let phantom = phantom_of(secret);
    let echoes = echoes(&[(secret, &phantom)]);
    let mut fields = HeaderMap::new();
    let value = |text: String| HeaderValue::try_from(text).expect("a value");
    fields.insert("location", value(format!("https://example.test/?t={secret}")));
    fields.append("set-cookie", value("a=b".into()));
    fields.append("set-cookie", value(format!("t={secret}; Path=/")));
    fields.insert(
        http::HeaderName::try_from(format!("x-{secret}")).expect("a name"),
        value("1".into()),
    );
    assert_eq!(echoes.scrub_fields(&mut fields), 3);
    assert_eq!(fields["location"], format!("https://example.test/?t={phantom}"));
    let cookies: Vec<_> = fields.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=b", &format!("t={phantom}; Path=/")]);
    assert_eq!(fields.len(), 3);
    assert_eq!(echoes.scrub_fields(&mut fields), 0);
    assert_eq!(echoes.scrub(b"Forbidden"), None);
    assert_eq!(
        echoes.scrub(format!("No {secret}").as_bytes()),
        Some(format!("No {phantom}").into_bytes())
    );
}

#[test]
fn a_sensitive_value_stays_sensitive() {
    let mut value = HeaderValue::from_static(SECRET);
    value.set_sensitive(true);
    let scrubbed = github().scrub_field(&value).expect("it is an echo");
    assert!(scrubbed.is_sensitive() && scrubbed == PHANTOM);
}

#[test]
fn each_of_many_secrets_is_found() {
    let secrets: Vec<_> = (0..200_u64)
        .map(|i| {
            format!(
                "tok_{:016x}Zz{:08x}",
                i.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                i * 7919
            )
        })
        .collect();
    let phantoms: Vec<_> = secrets
        .iter()
        .map(|secret| format!("tok_{}", phantom_of(&secret[4..])))
        .collect();
    let lent: Vec<_> = secrets
        .iter()
        .zip(&phantoms)
        .map(|(s, p)| (s.as_str(), p.as_str()))
        .collect();
    let (out, count) = scrub(&echoes(&lent), secrets.join(", ").as_bytes().chunks(1000));
    assert_eq!((text(out), count), (phantoms.join(", "), 200));
}

#[test]
fn without_secrets_all_passes() {
    let nothing = echoes(&[]);
    assert!(nothing.is_empty());
    assert_eq!(scrub(&nothing, [SECRET.as_bytes()]), (SECRET.into(), 0));
}

/// A body from a script; `Err` ends it.
struct Script(VecDeque<Result<Frame<Bytes>, &'static str>>);

impl Body for Script {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(self.0.pop_front())
    }
}

fn data(text: &'static str) -> Result<Frame<Bytes>, &'static str> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

#[tokio::test]
async fn a_body_is_scrubbed_in_data_and_trailers_and_counted() {
    let fields = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static(SECRET))]);
    let frames = [
        data("a ghp_"),
        data(&SECRET[4..]),
        data(" b ghp_"),
        Ok(Frame::trailers(fields)),
    ];
    let scrubber = Scrubber::new(github());
    let mut body = ScrubBody::new(Script(frames.into()), &HeaderMap::new(), scrubber);
    let read = (&mut body).collect().await.expect("it ends well");
    assert_eq!(
        read.trailers().map(|fields| &fields[http::header::ETAG]),
        Some(&HeaderValue::from_static(PHANTOM))
    );
    assert_eq!(read.to_bytes(), format!("a {PHANTOM} b ghp_"));
    assert_eq!(body.replaced(), 2);
}

/// What a body gives until it waits.
fn given<B: Body<Data = Bytes, Error: std::fmt::Debug> + Unpin>(body: &mut B) -> String {
    let mut given = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(frame)) = Pin::new(&mut *body).poll_frame(&mut context) {
        given.extend_from_slice(&frame.expect("no error").into_data().expect("data"));
    }
    text(given)
}

#[tokio::test]
async fn no_pause_shows_a_part_of_an_echo() {
    for cut in [1, 4, 20, SECRET.len() - 1] {
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        let mut body = ScrubBody::new(Pausing(told), &HeaderMap::new(), Scrubber::new(github()));
        tell.send(SECRET[..cut].to_owned()).expect("the body is there");
        let silence = tokio::time::timeout(Duration::from_millis(100), body.frame()).await;
        assert!(silence.is_err(), "{cut}");
        tell.send(format!("{}\n", &SECRET[cut..]))
            .expect("the body is there");
        assert_eq!(given(&mut body), format!("{PHANTOM}\n"));
    }
}

#[test]
fn text_that_ends_as_events_and_json_do_waits_for_nothing() {
    for part in [
        "data: {\"a\":\"ghp_A1\"}\n\n",
        "{\"a\":17}",
        "ghp_A1\n",
        "[1]",
        "Password: ",
    ] {
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        let mut body = ScrubBody::new(Pausing(told), &HeaderMap::new(), Scrubber::new(github()));
        tell.send(part.to_owned()).expect("the body is there");
        assert_eq!(given(&mut body), part);
    }
}

#[test]
fn a_message_with_its_length_is_given_whole_at_its_end() {
    let fields = HeaderMap::from_iter([(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    )]);
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    let mut body = ScrubBody::new(Pausing(told), &fields, Scrubber::new(github()));
    tell.send("\0\0\0\0\x06ab".to_owned()).expect("the body is there");
    assert_eq!(given(&mut body), "\0\0\0\0\x06");
    tell.send("ghp_\0\0\0\0\x28ghp_".to_owned())
        .expect("the body is there");
    assert_eq!(given(&mut body), "abghp_\0\0\0\0(");
    tell.send(SECRET[4..].to_owned()).expect("the body is there");
    assert_eq!(given(&mut body), PHANTOM);
    // What is no message any more is held back as other text is.
    tell.send(SECRET[..20].to_owned()).expect("the body is there");
    assert_eq!(given(&mut body), "");
    tell.send(SECRET[20..].to_owned() + "\n")
        .expect("the body is there");
    assert_eq!(given(&mut body), format!("{PHANTOM}\n"));
}

/// A body without an end until its sender goes.
struct Pausing(tokio::sync::mpsc::UnboundedReceiver<String>);

impl Body for Pausing {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(cx)
            .map(|text| text.map(|text| Ok(Frame::data(text.into()))))
    }
}

#[tokio::test]
async fn a_body_of_known_length_keeps_it_and_ends_after_what_was_held() {
    let mut body = ScrubBody::new(
        Full::new(Bytes::from("abc ghp_A1b2")),
        &HeaderMap::new(),
        Scrubber::new(github()),
    );
    assert_eq!(body.size_hint().exact(), Some(12));
    let frame = body.frame().await.expect("a frame").expect("no error");
    assert_eq!(frame.into_data().expect("data"), "abc ");
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(8), false));
    let frame = body.frame().await.expect("a frame").expect("no error");
    assert_eq!(frame.into_data().expect("data"), "ghp_A1b2");
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_failing_body_fails_scrubbed_and_what_was_held_stays_back() {
    let frames = [data("abc ghp_A1b2C3d4"), Err("cut")];
    let mut body = ScrubBody::new(Script(frames.into()), &HeaderMap::new(), Scrubber::new(github()));
    assert_eq!(
        body.frame()
            .await
            .expect("a frame")
            .expect("data")
            .into_data()
            .expect("data"),
        "abc "
    );
    assert_eq!(body.frame().await.expect("a frame").err(), Some("cut"));
    assert!(body.frame().await.is_none());
}

#[test]
fn the_wrapper_of_a_body_stays_small() {
    assert!(
        size_of::<ScrubBody<()>>() <= 120,
        "{}",
        size_of::<ScrubBody<()>>()
    );
}

/// A frame from the origin.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = match payload.len() {
        short @ ..126 => vec![short as u8],
        medium @ ..0x1_0000 => [&[126][..], &(medium as u16).to_be_bytes()].concat(),
        long => [&[127][..], &(long as u64).to_be_bytes()].concat(),
    };
    [&[first][..], &length, payload].concat()
}

fn scrub_frames(content: &[u8], chunk: usize) -> Result<Vec<u8>, FrameFault> {
    let mut frames = ScrubFrames::new(github());
    let mut out = Vec::new();
    for chunk in content.chunks(chunk) {
        out.extend_from_slice(&frames.push(Bytes::copy_from_slice(chunk))?);
    }
    Ok(out)
}

#[test]
fn messages_are_scrubbed_across_fragments_with_control_frames_between() {
    let conversation = |token: &str| {
        [
            frame(0x81, b"hello"),
            frame(0x81, format!("whole {token} {}", ".".repeat(200)).as_bytes()),
            frame(0x01, format!("cut {}", &token[..10]).as_bytes()),
            frame(0x89, b"ping"),
            frame(0x00, b""),
            frame(0x00, &token.as_bytes()[10..11]),
            frame(0x80, &[&token.as_bytes()[11..], &[b' '; 70_000][..]].concat()),
            frame(0x82, b""),
            frame(0x82, b"ends as it may begin: ghp_"),
            frame(0x88, &[&[0x03, 0xe8], token.as_bytes()].concat()),
        ]
        .concat()
    };
    let (sent, expected) = (conversation(SECRET), conversation(PHANTOM));
    for chunk in [1, 2, 3, 7, 61, 1000, sent.len()] {
        assert_eq!(scrub_frames(&sent, chunk).as_ref(), Ok(&expected), "by {chunk}");
    }
}

#[test]
fn a_message_that_breaks_off_shows_nothing_that_could_begin_an_echo() {
    let sent = frame(0x81, format!("its {SECRET}").as_bytes());
    assert_eq!(scrub_frames(&sent[..20], 7).as_deref(), Ok(&sent[..6]));
}

#[test]
fn an_echo_over_two_messages_is_two_texts() {
    let sent = [
        frame(0x81, &SECRET.as_bytes()[..4]),
        frame(0x81, &SECRET.as_bytes()[4..]),
    ]
    .concat();
    assert_eq!(scrub_frames(&sent, sent.len()), Ok(sent));
}

#[test]
fn frames_without_an_echo_pass_as_the_same_bytes() {
    let mut frames = ScrubFrames::new(github());
    let chunk = Bytes::from([frame(0x81, b"one"), frame(0x89, b""), frame(0x82, &[7; 5000])].concat());
    let passed = frames.push(chunk.clone()).expect("they are frames");
    assert_eq!((passed.as_ptr(), passed.len()), (chunk.as_ptr(), chunk.len()));
}

#[test]
fn what_is_not_a_frame_of_a_server_is_a_fault() {
    let faults: [(&[u8], FrameFault); 13] = [
        (&[0x81, 0x81, 0, 0, 0, 0, b'x'], FrameFault::Masked),
        (&[0xc1, 0x01, b'x'], FrameFault::Reserved),
        (&[0xa1, 0x01, b'x'], FrameFault::Reserved),
        (&[0x91, 0x01, b'x'], FrameFault::Reserved),
        (&[0x83, 0x00], FrameFault::Reserved),
        (&[0x8b, 0x00], FrameFault::Reserved),
        (&[0x09, 0x00], FrameFault::Control),
        (&[0x89, 126, 0, 126], FrameFault::Control),
        (&[0x80, 0x00], FrameFault::Sequence),
        (&[0x01, 0x00, 0x81, 0x00], FrameFault::Sequence),
        (&[0x81, 126, 0, 125], FrameFault::Length),
        (&[0x81, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff], FrameFault::Length),
        (&[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0], FrameFault::Length),
    ];
    for (bytes, fault) in faults {
        for chunk in [1, bytes.len()] {
            assert_eq!(scrub_frames(bytes, chunk), Err(fault), "{bytes:02x?}");
        }
    }
}

#[test]
fn empty_frames_cannot_pile_up_behind_a_possible_echo() {
    let sent = [
        frame(0x01, &SECRET.as_bytes()[..10]),
        frame(0x00, b"").repeat(20_000),
    ]
    .concat();
    assert_eq!(scrub_frames(&sent, 4096), Err(FrameFault::Flood));
    let sent = [frame(0x01, b"no start."), frame(0x00, b"").repeat(20_000)].concat();
    assert_eq!(scrub_frames(&sent, 4096), Ok(sent));
}

/// A part of a secret is not searched for, and a phantom may by chance go on as the secret does: that what is left and what
/// was written then read as the secret is no echo that was overlooked.
#[test]
fn a_part_beside_an_echo_may_read_as_the_secret_by_chance() {
    let (secret, phantom) = ("x1y2z3w4a5", "b6c7d8e9fx");
    let (out, count) = scrub(&echoes(&[(secret, phantom)]), [b"x1y2z3w4a5", &b"1y2z3w4a5"[..]]);
    assert_eq!((text(out), count), (format!("{phantom}1y2z3w4a5"), 1));
}

/// What the scrubber must give, by trying every form at every place of the whole.
fn reference(forms: &[Form], content: &[u8]) -> (Vec<u8>, u64) {
    let mut found = Vec::new();
    for (index, form) in forms.iter().enumerate() {
        for start in 0..content.len() {
            let rest = &content[start..];
            let length = form.secret.len();
            if rest.starts_with(&form.secret) {
                let tail = form
                    .tail
                    .zip(rest.get(length))
                    .and_then(|(tail, &character)| tail.replace(character));
                let written = form.phantom.iter().copied().chain(tail).collect::<Vec<_>>();
                found.push((written.len(), start, index, written));
            }
        }
    }
    found.sort();
    let mut out = content.to_vec();
    for (length, start, _, written) in &found {
        out[*start..start + length].copy_from_slice(written);
    }
    (out, found.len() as u64)
}

/// Pieces of which a stream is made.
#[derive(Debug, Clone)]
enum Piece {
    Filler(String),
    /// A form of one of the secrets, from the first byte that is not cut off, to the last.
    Echo {
        secret: usize,
        form: usize,
        cut: usize,
        keep: usize,
    },
    Coded {
        secret: usize,
        before: String,
        after: String,
    },
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        "[ -~]{0,60}".prop_map(Piece::Filler),
        (any::<usize>(), any::<usize>(), Just(0), Just(usize::MAX)).prop_map(|(secret, form, cut, keep)| {
            Piece::Echo {
                secret,
                form,
                cut,
                keep,
            }
        }),
        (any::<usize>(), any::<usize>(), 0_usize..12, 0_usize..60).prop_map(|(secret, form, cut, keep)| {
            Piece::Echo {
                secret,
                form,
                cut,
                keep,
            }
        }),
        (any::<usize>(), "[a-z:]{0,8}", "[a-z]{0,4}").prop_map(|(secret, before, after)| Piece::Coded {
            secret,
            before,
            after
        }),
    ]
}

fn render(pieces: &[Piece], secrets: &[String], by_secret: &[Vec<Form>]) -> Vec<u8> {
    let mut content = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Filler(text) => content.extend_from_slice(text.as_bytes()),
            Piece::Echo {
                secret,
                form,
                cut,
                keep,
            } => {
                let forms = &by_secret[secret % by_secret.len()];
                let form = &forms[form % forms.len()].secret;
                content.extend(form.iter().skip(*cut).take(*keep));
            }
            Piece::Coded {
                secret,
                before,
                after,
            } => {
                let text = format!("{before}{}{after}", secrets[secret % secrets.len()]);
                content.extend_from_slice(STANDARD.encode(text).as_bytes());
            }
        }
    }
    content
}

/// Secrets that chance does not make and that do not repeat themselves.
fn secret() -> impl Strategy<Value = String> {
    ("[a-zA-Z0-9][!-~]{6,40}[a-zA-Z0-9]{4}", any::<u32>())
        .prop_map(|(text, salt)| format!("{text}{salt:08x}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_form_of_a_secret_remains_however_the_stream_is_cut(
        secrets in proptest::collection::vec(secret(), 1..4),
        pieces in proptest::collection::vec(piece(), 0..8),
        cuts in proptest::collection::vec(1_usize..90, 1..20),
    ) {
        let lent: Vec<_> = secrets.iter().map(|secret| (secret.clone(), phantom_of(secret))).collect();
        let by_secret: Vec<_> = lent
            .iter()
            .map(|(secret, phantom)| forms(secret.as_bytes(), phantom.as_bytes()).unwrap_or_else(|e| panic!("{e}")))
            .collect();
        let content = render(&pieces, &secrets, &by_secret);
        let all: Vec<Form> = by_secret.into_iter().flatten().collect();
        let echoes = Arc::new(
            Echoes::new(lent.iter().map(|(s, p)| (s.as_bytes(), p.as_bytes()))).expect("they can be scrubbed"),
        );

        let expected = reference(&all, &content);
        prop_assert_eq!(&scrub(&echoes, [&content[..]]), &expected);
        prop_assert_eq!(&scrub(&echoes, content.chunks(1)), &expected);
        let mut chunks = Vec::new();
        let mut rest = &content[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break }
            let (chunk, after) = rest.split_at((*cut).min(rest.len()));
            chunks.push(chunk);
            rest = after;
        }
        prop_assert_eq!(&scrub(&echoes, chunks), &expected);

        let out = &expected.0;
        prop_assert_eq!(out.len(), content.len());
        for form in &all {
            let here = |at: &usize| content[*at..].starts_with(&form.secret) && out[*at..].starts_with(&form.secret);
            prop_assert_eq!((0..content.len()).find(here), None);
        }
    }

    #[test]
    fn noise_after_an_upgrade_makes_nothing_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..200),
        chunk in 1_usize..30,
    ) {
        let _ = scrub_frames(&noise, chunk);
    }

    #[test]
    fn a_message_is_scrubbed_as_its_payload_is_however_it_is_fragmented(
        before in "[ -~]{0,30}",
        after in "[ -~]{0,30}",
        borders in proptest::collection::vec(0_usize..12, 1..40),
        chunk in 1_usize..30,
    ) {
        let payload = format!("{before}{SECRET}{after}").into_bytes();
        let (expected, _) = scrub(&github(), [&payload[..]]);
        let fragment = |payload: &[u8]| {
            let (mut sent, mut rest, mut opcode) = (Vec::new(), payload, 1);
            for border in &borders {
                let (part, after) = rest.split_at((*border).min(rest.len()));
                sent.extend(frame(opcode, part));
                (rest, opcode) = (after, 0);
            }
            sent.extend(frame(opcode | 0x80, rest));
            sent
        };
        prop_assert_eq!(scrub_frames(&fragment(&payload), chunk), Ok(fragment(&expected)));
    }
}
