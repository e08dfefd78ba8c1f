//! Tests the scrubber against a simple search that tries every form at every position.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue};

use super::form::{EchoPattern, SecretForm, forms};
use super::*;
use crate::part::DrawnPart;

mod body;
mod frames;
mod pieces;
mod renewed;
mod sharing;

const SECRET: &str = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";
const PHANTOM: &str = "ghp_Z9y8X7w6V5u4T3s2R1q0P9o8N7m6L5k4J3i2";

/// A phantom that differs from its secret in every letter and digit, but keeps their classes.
fn phantom_of(secret: &str) -> String {
    turned(secret, 2)
}

/// Replaces each letter and digit by another of its class, shifted by 1/`part` of the class.
fn turned(secret: &str, part: u8) -> String {
    let turn = |c: char, first: u8, count: u8| {
        char::from(first + (c as u8 - first + count / part) % count)
    };
    let one = |c: char| match c {
        'a'..='z' => turn(c, b'a', 26),
        'A'..='Z' => turn(c, b'A', 26),
        '0'..='9' => turn(c, b'0', 10),
        other => other,
    };
    secret.chars().map(one).collect()
}

fn echoes(lent: &[(&str, &str)]) -> Arc<EchoSearch> {
    Arc::new(
        EchoSearch::new(lent.iter().map(|(s, p)| (s.as_bytes(), p.as_bytes())))
            .expect("they can be scrubbed"),
    )
}

fn github() -> Arc<EchoSearch> {
    echoes(&[(SECRET, PHANTOM)])
}

fn scrub<'a>(
    echoes: &Arc<EchoSearch>,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, u64) {
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

fn form_pairs() -> Vec<SecretForm> {
    forms_of(SECRET, PHANTOM)
}

fn forms_of(secret: &str, phantom: &str) -> Vec<SecretForm> {
    let (secret, phantom) = (secret.as_bytes(), phantom.as_bytes());
    let part = DrawnPart::of(secret, phantom);
    let sought = EchoPattern {
        secret,
        stand_in: phantom,
        phantom,
    };
    forms(&sought, part.as_ref()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_form_is_replaced_wherever_the_stream_is_cut_in_two() {
    for form in form_pairs() {
        let (echo, expected) = (
            [b"<", &form.secret[..], b">"].concat(),
            [b"<", &form.stand_in[..], b">"].concat(),
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
        assert_eq!(
            (passed.as_ptr(), passed.len()),
            (chunk.as_ptr(), chunk.len())
        );
    }
    assert_eq!((scrubber.held(), scrubber.replaced()), (0, 0));
}

#[test]
fn only_what_could_be_an_echo_by_its_characters_is_held_back() {
    let mut scrubber = Scrubber::new(github());
    assert_eq!(scrubber.push("data: ghp_A1b2".into()), "data: ");
    assert_eq!(scrubber.push("C".into()), "");
    assert_eq!(scrubber.held(), 9);
    assert_eq!(scrubber.push("!\n".into()), "ghp_A1b2C!\n");
    assert_eq!(scrubber.push("ghp".into()), "");
    assert_eq!(scrubber.finish(), "ghp");
    assert_eq!(scrubber.replaced(), 0);
}

/// Holds for guesses shorter than a piece; longer ones are counted.
#[test]
fn nothing_tells_a_right_guess_from_a_wrong_one() {
    let look = |guess: &[u8]| {
        let mut scrubber = Scrubber::new(github());
        let given = scrubber.push(Bytes::from([b"<", guess].concat()));
        let (given, held) = (given.len(), scrubber.held());
        let paused = scrubber.release();
        let whole = scrub(&github(), [&[b"<", guess].concat()[..]]);
        (
            given,
            held,
            paused == guess,
            whole == ([b"<", guess].concat(), 0),
        )
    };
    for form in form_pairs() {
        // In another case, only the whole is searched for.
        let Some(piece) = form.piece.as_ref() else {
            continue;
        };
        for end in 1..piece.within.start + piece.least - 1 {
            let right = &form.secret[..end];
            let mut wrong = right.to_vec();
            wrong[end - 1] = if right[end - 1] == b'A' { b'B' } else { b'A' };
            // The separators between hex bytes reveal nothing to the phantom's holder.
            if form.between.is_some() || !right[end - 1].is_ascii_alphanumeric() {
                continue;
            }
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
        // Everything before a final letter, because it may be base64.
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
    // The beginning without its first byte, at each of 400 places: nothing needs to be held back.
    let text = "a!".repeat(400);
    let mut scrubber = Scrubber::new(echoes);
    scrubber.push(text.clone().into());
    assert_eq!(scrubber.held(), text.len());
}

#[test]
fn an_echo_that_reaches_into_what_a_message_end_shows_is_replaced_there() {
    // The outer secret ends with the beginning of the inner one.
    let echoes = echoes(&[
        (SECRET, PHANTOM),
        ("r8-a-second-secret", "k3-z-mnopqr-tuvwxy"),
    ]);
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
                // The secret begins like its phantom, so no trace of the secret remains.
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
    fields.insert(
        "location",
        value(format!("https://example.test/?t={secret}")),
    );
    fields.append("set-cookie", value("a=b".into()));
    fields.append("set-cookie", value(format!("t={secret}; Path=/")));
    fields.insert(
        http::HeaderName::try_from(format!("x-{secret}")).expect("a name"),
        value("1".into()),
    );
    assert_eq!(echoes.scrub_fields(&mut fields), Ok(3));
    assert_eq!(
        fields["location"],
        format!("https://example.test/?t={phantom}")
    );
    let cookies: Vec<_> = fields.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=b", &format!("t={phantom}; Path=/")]);
    assert_eq!(fields.len(), 3);
    assert_eq!(echoes.scrub_fields(&mut fields), Ok(0));
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
    assert_eq!(text(out), phantoms.join(", "));
    // Their ends are alike, so some contain pieces of others.
    assert!(count >= 200, "{count}");
}

#[test]
fn without_secrets_all_passes() {
    let nothing = echoes(&[]);
    assert!(nothing.is_empty());
    assert_eq!(scrub(&nothing, [SECRET.as_bytes()]), (SECRET.into(), 0));
}

/// Parts of a secret are not searched for, and a phantom may by chance continue like the secret. If
/// the remaining and the written text together read as the secret, that is not a missed echo.
#[test]
fn a_part_beside_an_echo_may_read_as_the_secret_by_chance() {
    let (secret, phantom) = ("x1y2z3w4a5", "b6c7d8e9fx");
    let (out, count) = scrub(
        &echoes(&[(secret, phantom)]),
        [b"x1y2z3w4a5", &b"1y2z3w4a5"[..]],
    );
    assert_eq!((text(out), count), (format!("{phantom}1y2z3w4a5"), 1));
}
