//! However an origin spells and cuts a secret, no six characters in a row get through, and no
//! eleven digits.

use proptest::prelude::*;

use super::*;
use crate::guesses::Guesses;
use crate::part::LEAST_DIGITS;
use bytes::Bytes;
use compression_codecs::brotli::params::EncoderParams;
use compression_codecs::core::Level;
use compression_codecs::core::util::{PartialBuffer, WriteBuffer};
use compression_codecs::flate::params::FlateEncoderParams;
use compression_codecs::{BrotliEncoder, EncodeV2, GzipEncoder, ZlibEncoder, ZstdEncoder};
use gateway_body::{Coding, DecodeBody, Decoder, MockBody};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;

/// A run of this many characters of a secret must not be seen.
const SIX: usize = 6;

/// Secrets as services draw them; they share parts only by chance.
pub(super) fn secret() -> impl Strategy<Value = String> {
    (
        "(ghp_|sk-|glpat-|xoxb-[0-9]{13}-[0-9]{13}-|[0-9]{10}:|)",
        "[a-zA-Z0-9]{12,30}([0-9]{5,13}|)[a-zA-Z0-9]{12,30}",
    )
        .prop_filter("reads as words, by chance", |(_, text)| {
            DrawnPart::of(text.as_bytes(), phantom_of(text).as_bytes())
                .is_some_and(|part| part.least == SIX)
        })
        .prop_map(|(prefix, text)| prefix + &text)
}

/// The encoding that an origin applies to a secret before it returns it.
pub(super) fn spell(secret: &str, how: usize) -> Vec<u8> {
    let hex = |between: &str| {
        let pairs: Vec<String> = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        pairs.join(between)
    };
    let around = |before: &str, after: &str| -> String {
        secret
            .bytes()
            .map(|byte| format!("{before}{byte:02x}{after}"))
            .collect()
    };
    let text = match how % SPELLINGS {
        0 => secret.to_owned(),
        1 => STANDARD.encode(secret),
        2 => STANDARD.encode(format!("x{secret}y")),
        3 => STANDARD.encode(format!("xy{secret}")),
        4 => hex(""),
        5 => hex("").to_uppercase(),
        6 => hex(" "),
        7 => hex(":").to_uppercase(),
        8 => hex("-"),
        9 => hex(", 0x"),
        10 => hex(",0x"),
        11 => around("%", ""),
        12 => around("\\x", ""),
        13 => around("&#x", ";"),
        14 => around("\\u00", ""),
        15 => secret.replace('-', "%2D").replace('_', "%5f"),
        _ => secret.chars().flat_map(|letter| [letter, '\0']).collect(),
    };
    text.into_bytes()
}

pub(super) const SPELLINGS: usize = 17;

/// One item of an origin's content.
#[derive(Debug, Clone)]
pub(super) enum Written {
    Filler(String),
    /// A secret in some spelling, with parts cut off at both ends.
    Echo {
        which: usize,
        how: usize,
        before: usize,
        behind: usize,
    },
}

pub(super) fn written() -> impl Strategy<Value = Written> {
    let cut = prop_oneof![3 => Just(0_usize), 2 => 1_usize..30, 1 => 30_usize..300];
    let echo = (any::<usize>(), 0..SPELLINGS, cut.clone(), cut);
    prop_oneof![
        2 => "[ -~]{0,40}".prop_map(Written::Filler),
        1 => "[\\{\\}\"': ,\n]{1,3}".prop_map(Written::Filler),
        3 => echo.prop_map(|(which, how, before, behind)| Written::Echo { which, how, before, behind }),
    ]
}

pub(super) fn render(written: &[Written], secrets: &[String]) -> Vec<u8> {
    let mut content = Vec::new();
    for one in written {
        match one {
            Written::Filler(text) => content.extend_from_slice(text.as_bytes()),
            Written::Echo {
                which,
                how,
                before,
                behind,
            } => {
                let text = spell(&secrets[which % secrets.len()], *how);
                let kept = text.len().saturating_sub(before + behind);
                content.extend(text.iter().skip(*before).take(kept));
            }
        }
    }
    content
}

/// Returns the first six characters in a row of a secret, or eleven digits, that are visible in any
/// spelling. Numbers before the random part are not secret.
pub(super) fn seen(out: &[u8], secrets: &[String], phantoms: &[String]) -> Option<String> {
    let separators: [&[u8]; 8] = [b"", b" ", b":", b"-", b", 0x", b",0x", b" 0x", b"\0"];
    let holds = |needle: &[u8]| out.windows(needle.len()).any(|text| text == needle);
    for (secret, phantom) in secrets.iter().zip(phantoms) {
        let drawn = secret.rfind(['_', '-', ':']).map_or(0, |at| at + 1);
        for at in drawn..=secret.len() - SIX {
            let length = if secret.as_bytes()[at..at + SIX]
                .iter()
                .all(u8::is_ascii_digit)
            {
                LEAST_DIGITS
            } else {
                SIX
            };
            let Some(letters) = secret.as_bytes().get(at..at + length) else {
                continue;
            };
            let theirs = &phantom.as_bytes()[at..at + length];
            // Characters that the phantom has too are not secret.
            if letters.iter().zip(theirs).filter(|(s, p)| s != p).count() < length {
                continue;
            }
            let hex: Vec<String> = letters.iter().map(|byte| format!("{byte:02x}")).collect();
            let spelled = |before: &str, after: &str| -> String {
                hex.iter()
                    .map(|pair| format!("{before}{pair}{after}"))
                    .collect()
            };
            let mut needles: Vec<Vec<u8>> = vec![letters.to_vec()];
            needles.push(
                letters
                    .iter()
                    .flat_map(|letter| [*letter, 0])
                    .take(2 * length - 1)
                    .collect(),
            );
            needles.extend(separators[..7].iter().flat_map(|between| {
                let text = hex.join(std::str::from_utf8(between).unwrap());
                [text.to_uppercase().replace("0X", "0x"), text].map(String::into_bytes)
            }));
            needles.extend(
                [("%", ""), ("\\x", ""), ("&#x", ";"), ("\\u00", "")]
                    .map(|(a, b)| spelled(a, b).into_bytes()),
            );
            // The base64 characters made only of these letters.
            for shift in 0..3 {
                let coded = STANDARD.encode([&vec![0; shift], letters].concat());
                let (first, end) = ((8 * shift).div_ceil(6), 8 * (shift + length) / 6);
                needles.push(coded.as_bytes()[first..end].to_vec());
            }
            if let Some(needle) = needles.iter().find(|needle| holds(needle)) {
                return Some(String::from_utf8_lossy(needle).into_owned());
            }
        }
    }
    None
}

/// Content in a coding, in pieces that can be decoded as they arrive.
pub(super) fn coded(coding: &str, pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut encoder: Box<dyn EncodeV2> = match coding {
        "gzip" => Box::new(GzipEncoder::new(FlateEncoderParams::from(Level::Fastest))),
        "deflate" => Box::new(ZlibEncoder::new(FlateEncoderParams::from(Level::Fastest))),
        "br" => Box::new(BrotliEncoder::new(
            EncoderParams::default().quality(Level::Fastest),
        )),
        "zstd" => Box::new(ZstdEncoder::new(1)),
        _ => return pieces.iter().map(|piece| piece.to_vec()).collect(),
    };
    let mut scratch = vec![0; 4096];
    let mut all = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let mut out = Vec::new();
        let mut input = PartialBuffer::new(*piece);
        let mut done = false;
        while !done {
            let mut output = WriteBuffer::new_initialized(&mut scratch);
            if !input.unwritten().is_empty() {
                encoder.encode(&mut input, &mut output).unwrap();
            } else if at + 1 < pieces.len() {
                done = encoder.flush(&mut output).unwrap();
            } else {
                done = encoder.finish(&mut output).unwrap();
            }
            out.extend_from_slice(output.written());
        }
        all.push(out);
    }
    all
}

/// Cuts content into pieces of these lengths, repeatedly.
pub(super) fn cut<'c>(content: &'c [u8], lengths: &[usize]) -> Vec<&'c [u8]> {
    let (mut pieces, mut rest) = (Vec::new(), content);
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*length).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

pub(super) type Frames = Vec<Result<Frame<Bytes>, &'static str>>;

/// Returns the bytes that get through, and whether the session was shown all of them.
fn through(
    echoes: &Arc<EchoSearch>,
    kind: &str,
    coding: &str,
    pieces: &[&[u8]],
    breaks: bool,
) -> (Vec<u8>, bool) {
    let mut fields = HeaderMap::new();
    fields.insert("content-type", HeaderValue::from_str(kind).unwrap());
    fields.insert("content-encoding", HeaderValue::from_str(coding).unwrap());
    let mut frames: Frames = coded(coding, pieces)
        .into_iter()
        .map(|piece| Ok(Frame::data(Bytes::from(piece))))
        .collect();
    if breaks {
        frames.push(Err("reset"));
    }
    let (script, scrubber) = (MockBody(frames.into()), Scrubber::new(echoes.clone()));
    let codings = Coding::parse_list(&fields).unwrap();
    if codings.is_empty() {
        return read(&mut ScrubBody::new(script, &fields, scrubber));
    }
    let body = DecodeBody::new(script, Decoder::new(&codings).unwrap());
    read(&mut ScrubBody::new(body, &fields, scrubber))
}

pub(super) fn read<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> (Vec<u8>, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut out = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => out.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(_) => return (out, false),
            }
        }
        (out, true)
    })
}

/// Length-prefixed messages.
fn messages(kind: &str, contents: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for content in contents {
        let length = content.len() as u32;
        match kind {
            "application/grpc" | "application/connect+json" => {
                out.push(0);
                out.extend(length.to_be_bytes());
            }
            "application/vnd.amazon.eventstream" => out.extend((length + 4).to_be_bytes()),
            _ => out.extend(length.to_be_bytes()),
        }
        out.extend(content);
    }
    out
}

fn events(contents: &[Vec<u8>]) -> Vec<u8> {
    let lines = contents.iter().map(|content| {
        let content: Vec<u8> = content
            .iter()
            .copied()
            .filter(|byte| *byte != b'\n')
            .collect();
        [b"data: ", &content[..], b"\n\n"].concat()
    });
    lines.collect::<Vec<_>>().concat()
}

fn frames(contents: &[Vec<u8>]) -> Vec<u8> {
    let frames = contents.iter().map(|content| {
        let length = content.len() as u16;
        let head = match content.len() {
            short @ ..126 => vec![0x82, short as u8],
            _ => [&[0x82, 126][..], &length.to_be_bytes()].concat(),
        };
        [&head[..], content].concat()
    });
    frames.collect::<Vec<_>>().concat()
}

fn search(secrets: &[String], phantoms: &[String]) -> Arc<EchoSearch> {
    let pairs: Vec<_> = secrets
        .iter()
        .zip(phantoms)
        .map(|(secret, phantom)| (secret.as_str(), phantom.as_str()))
        .collect();
    echoes(&pairs)
}

fn phantoms_of(secrets: &[String]) -> Vec<String> {
    phantoms_by(secrets, 2)
}

fn phantoms_by(secrets: &[String], part: u8) -> Vec<String> {
    let phantom = |secret: &String| {
        let from = secret.find(['_', '-']).map_or(0, |at| at + 1);
        format!("{}{}", &secret[..from], turned(&secret[from..], part))
    };
    secrets.iter().map(phantom).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Required of random secrets, responses, codings, message borders and ends.
    #[test]
    fn no_six_letters_of_a_secret_reach_the_client(
        secrets in proptest::collection::vec(secret(), 1..4),
        contents in proptest::collection::vec(proptest::collection::vec(written(), 0..6), 1..4),
        cuts in proptest::collection::vec(1_usize..90, 1..20),
        coding in prop_oneof![Just("identity"), Just("gzip"), Just("deflate"), Just("br"), Just("zstd")],
        kind in prop_oneof![
            Just("text/plain"),
            Just("text/event-stream"),
            Just("application/grpc"),
            Just("application/connect+json"),
            Just("application/vnd.amazon.eventstream"),
            Just("application/vnd.kubernetes.protobuf;stream=watch"),
        ],
        breaks in any::<bool>(),
    ) {
        let contents: Vec<Vec<u8>> = contents.iter().map(|content| render(content, &secrets)).collect();
        let content = match kind {
            "text/plain" => contents.concat(),
            "text/event-stream" => events(&contents),
            kind => messages(kind, &contents),
        };
        let pieces = cut(&content, &cuts);
        // A leak by chance, a piece of a phantom after one of the secret, does not occur with other
        // phantoms.
        let mut leaks = Vec::new();
        for phantoms in [2, 3].map(|part| phantoms_by(&secrets, part)) {
            let (out, _) = through(&search(&secrets, &phantoms), kind, coding, &pieces, breaks);
            prop_assert!(out.len() <= content.len());
            let leak = seen(&out, &secrets, &phantoms);

            let mut socket = ScrubFrames::new(search(&secrets, &phantoms));
            let mut framed = Vec::new();
            for piece in cut(&frames(&contents), &cuts) {
                match socket.push(Bytes::copy_from_slice(piece)) {
                    Ok(settled) => framed.extend_from_slice(&settled),
                    Err(fault) => { prop_assert_eq!(fault, FrameFault::Guessed(Guessed)); break }
                }
            }
            match leak.or_else(|| seen(&framed, &secrets, &phantoms)) {
                Some(leak) => leaks.push((leak, String::from_utf8_lossy(&[out, framed].concat()).into_owned())),
                None => return Ok(()),
            }
        }
        prop_assert_eq!(leaks, []);
    }

    #[test]
    fn whole_echoes_become_phantoms_and_all_else_stays_however_it_is_cut(
        secret in secret(),
        texts in proptest::collection::vec(("[ -~]{0,60}", 0..SPELLINGS), 1..6),
        cuts in proptest::collection::vec(1_usize..90, 1..20),
    ) {
        let secrets = [secret];
        let phantoms = phantoms_of(&secrets);
        let of = |token: &str| {
            // Where secret and phantom agree, spelling and filler cannot be told apart.
            let parts = texts.iter().map(|(filler, how)| [filler.as_bytes(), b"\n<", &spell(token, *how), b">\n"].concat());
            parts.collect::<Vec<_>>().concat()
        };
        let (content, expected) = (of(&secrets[0]), of(&phantoms[0]));
        let echoes = search(&secrets, &phantoms);
        for pieces in [vec![&content[..]], content.chunks(1).collect(), cut(&content, &cuts)] {
            let (out, whole) = through(&echoes, "text/plain", "identity", &pieces, false);
            prop_assert!(whole);
            // The base64 character before a secret contains bits of its first byte, whose class is
            // known.
            // Digits without a letter do not show which case the origin writes.
            let no_case = texts.iter().any(|(_, how)| has_no_case(&spell(&secrets[0], *how)));
            let is_alike = |a: &u8, b: &u8| a == b || no_case && a.eq_ignore_ascii_case(b);
            let alike = out.iter().zip(&expected).filter(|(a, b)| is_alike(a, b)).count();
            prop_assert!(out.len() == expected.len() && alike + 2 * texts.len() >= out.len(), "{}", String::from_utf8_lossy(&out));
        }
    }

    #[test]
    fn content_without_an_echo_stays_as_it_is(
        secret in secret(),
        content in "[ -~\n]{0,400}",
        cuts in proptest::collection::vec(1_usize..90, 1..20),
    ) {
        let secrets = [secret];
        let echoes = search(&secrets, &phantoms_of(&secrets));
        let (out, whole) = through(&echoes, "text/plain", "identity", &cut(content.as_bytes(), &cuts), false);
        prop_assert!(whole && out == content.as_bytes());
    }
}

#[test]
fn an_echo_cut_anywhere_shows_less_than_six_letters_of_it() {
    let secrets = [SECRET.to_owned()];
    let phantoms = [PHANTOM.to_owned()];
    let echoes = search(&secrets, &phantoms);
    let mut tried = 0;
    for how in 0..SPELLINGS {
        let text = spell(SECRET, how);
        for end in 0..=text.len() {
            for start in [0, end / 3, end.saturating_sub(40)] {
                for (before, behind) in [("", ""), ("\"", "\""), ("Z", "9"), ("data: ", "\n\n")] {
                    let content =
                        [before.as_bytes(), &text[start..end], behind.as_bytes()].concat();
                    let (out, _) = scrub(&echoes, [&content[..]]);
                    assert_eq!(
                        seen(&out, &secrets, &phantoms),
                        None,
                        "{}",
                        String::from_utf8_lossy(&out)
                    );
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 20_000, "{tried}");
}

#[test]
fn the_third_different_piece_ends_what_the_session_is_shown() {
    let guesses = Arc::new(Guesses::new(None));
    let (secret, phantom) = (SECRET.as_bytes(), PHANTOM.as_bytes());
    let forms = SecretForms::of(secret, phantom, phantom).unwrap();
    let echoes = Arc::new(EchoSearch::of(vec![Arc::new(forms)], guesses.clone()));
    let show = |text: &str| through(&echoes, "text/plain", "identity", &[text.as_bytes()], false);
    for _ in 0..20 {
        assert_eq!(
            show(&format!("<{}>", &SECRET[4..10])).0,
            format!("<{}>", &PHANTOM[4..10]).as_bytes()
        );
        assert_eq!(
            show(&format!("<{}>", &SECRET[20..30])).0,
            format!("<{}>", &PHANTOM[20..30]).as_bytes()
        );
        // Long pieces and whole secrets cannot be guesses.
        assert!(show(&SECRET[..30]).1 && show(SECRET).1);
    }
    let mut under_way = ScrubBody::new(
        MockBody([Ok(Frame::data("tail\n".into()))].into()),
        &HeaderMap::new(),
        Scrubber::new(echoes.clone()),
    );
    assert_eq!(show(&format!("<{}>", &SECRET[4..11])), (Vec::new(), false));
    assert!(guesses.are_spent());
    assert_eq!(read(&mut under_way), (Vec::new(), false));
    let mut socket = ScrubFrames::new(echoes.clone());
    let pushed = socket.push(Bytes::from_static(b"\x81\x01a"));
    assert_eq!(pushed.err(), Some(FrameFault::Guessed(Guessed)));
    assert_eq!(echoes.scrub_fields(&mut HeaderMap::new()), Err(Guessed));
}

#[test]
fn behind_the_first_bytes_pieces_are_found_at_ends_alone_and_whole_echoes_everywhere() {
    let filler = ". ".repeat(FINE);
    let content = format!("{filler}{SECRET} {}", &SECRET[..24]);
    let (out, _) = scrub(&github(), content.as_bytes().chunks(16 << 10));
    assert_eq!(text(out), format!("{filler}{PHANTOM} {}", &PHANTOM[..24]));
}

#[test]
fn a_name_of_a_field_is_searched_in_lower_case() {
    let mut fields = HeaderMap::new();
    fields.insert(
        http::HeaderName::try_from(format!("x-{}-y", SECRET.to_lowercase())).unwrap(),
        HeaderValue::from_static("1"),
    );
    assert_eq!(github().scrub_fields(&mut fields), Ok(1));
    assert!(fields.is_empty());
}

#[test]
fn a_name_of_a_field_that_is_a_piece_in_lower_case_is_taken_away() {
    let lower = SECRET[4..].to_lowercase();
    let mut fields = HeaderMap::new();
    for at in [0, 9] {
        let name = http::HeaderName::try_from(format!("x-{}", &lower[at..at + 9])).unwrap();
        fields.insert(name, HeaderValue::from_static("1"));
    }
    fields.insert("x-request-id", HeaderValue::from_static("1"));
    assert_eq!(github().scrub_fields(&mut fields), Ok(2));
    assert!(fields.len() == 1 && fields.contains_key("x-request-id"));
}

#[test]
fn a_secret_of_hex_is_found_in_the_other_case_and_as_references_of_html() {
    let (secret, phantom) = (
        "3fa94c07be51d2886a3fa94c07be51d2",
        "c1d07e3b9a4428f5cc1d07e3b9a4428f",
    );
    let found = echoes(&[(secret, phantom)]);
    let upper = secret.to_uppercase();
    assert_eq!(
        found.scrub(upper.as_bytes()),
        Some(phantom.to_uppercase().into_bytes())
    );
    assert!(found.scrub(&upper.as_bytes()[3..20]).is_some());
    let references =
        |text: &str| -> String { text.bytes().map(|byte| format!("&#x{byte:04x};")).collect() };
    let scrubbed = found.scrub(references(secret).as_bytes());
    assert_eq!(scrubbed, Some(references(phantom).into_bytes()));
}

#[test]
fn a_name_of_a_field_that_is_a_piece_is_taken_away_however_short() {
    let (secret, phantom) = (
        "ghp_a1b2c3d4e5f6g7h8i9j0k1l2",
        "ghp_z9y8x7w6v5u4t3s2r1q0p9o8",
    );
    let mut fields = HeaderMap::new();
    for name in ["server", "b2c3d4e"] {
        fields.insert(name, HeaderValue::from_static("1"));
    }
    assert_eq!(
        echoes(&[(secret, phantom)]).scrub_fields(&mut fields),
        Ok(1)
    );
    assert!(fields.len() == 1 && fields.contains_key("server"));
}

/// Consecutive numbers, like the times of messages.
fn page_of_numbers(length: usize) -> String {
    let mut state = 7_u64;
    let mut number = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut page = String::new();
    while page.len() < length {
        let (second, micro) = (1_690_000_000 + number(100_000_000), number(1_000_000));
        page += &format!(
            "{{\"ts\":\"{second}.{micro:06}\",\"id\":{}}}\n",
            number(10_000_000_000)
        );
    }
    page
}

#[test]
fn pages_of_numbers_stay_as_they_are_though_a_token_holds_numbers() {
    let page = page_of_numbers(128 << 10);
    for secret in [
        "xoxb-1690481729063-1719384472105-A1b2C3d4E5f6G7h8I9j0K1l2",
        "xoxp-1690481729063-1719384472105-0f9e8d7c6b5a49382716051423324150",
        "7123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsawA",
        "A1b2C3d4E5f6G7h8169048172K1l2M3n4",
    ] {
        let echoes = echoes(&[(secret, &phantom_of(secret))]);
        let numbers: Vec<&str> = secret
            .split(|letter: char| !letter.is_ascii_digit())
            .filter(|row| (9..14).contains(&row.len()))
            .collect();
        let mut shown = String::new();
        for piece in page.as_bytes().chunks(4 << 10) {
            shown += &text(scrub(&echoes, [piece]).0);
        }
        for number in numbers {
            for length in 6..=number.len() {
                shown += &text(scrub(&echoes, [format!("[{}]", &number[..length]).as_bytes()]).0);
            }
        }
        assert!(shown.starts_with(&page), "{secret}");
        assert!(!echoes.guesses().are_spent(), "{secret}");
        // The whole is found, and so are all parts except numbers.
        assert_eq!(scrub(&echoes, [secret.as_bytes()]).1, 1, "{secret}");
        let end = &secret[secret.len() - 12..];
        assert_eq!(scrub(&echoes, [end.as_bytes()]).1, 1, "{secret}");
    }
}

#[test]
fn eleven_digits_in_a_row_are_a_piece_and_ten_are_none() {
    let secret = "A1b2C3d4E5f6123456789012K1l2M3n4";
    let echoes = echoes(&[(secret, &phantom_of(secret))]);
    for how in 0..SPELLINGS {
        for (length, found) in [(10, 0), (11, 1)] {
            let row = spell(&secret[12..12 + length], how);
            // Base64 of the run alone may end in bits of another letter.
            let row = row.split(|byte| *byte == b'=').next().unwrap();
            let (_, count) = scrub(&echoes, [b"<", row, b">"]);
            assert_eq!(
                count,
                found,
                "{} digits, {}",
                length,
                String::from_utf8_lossy(row)
            );
        }
    }
}

#[test]
fn hexadecimal_digits_of_a_secret_without_a_letter_have_no_case_to_keep() {
    let secrets = ["Ppp0A0Pppaa0000000pW0A0A0AaAP".to_owned()];
    let phantoms = phantoms_of(&secrets);
    let echoes = search(&secrets, &phantoms);
    let (content, expected) = (
        spell(&secrets[0], UPPER_HEX),
        spell(&phantoms[0], UPPER_HEX),
    );
    assert!(has_no_case(&content) && !has_no_case(&expected));
    for size in [1, 7, 1000] {
        let pieces: Vec<&[u8]> = content.chunks(size).collect();
        let (out, whole) = through(&echoes, "text/plain", "identity", &pieces, false);
        assert!(whole && out.eq_ignore_ascii_case(&expected));
    }
}

fn has_no_case(text: &[u8]) -> bool {
    !text.iter().any(u8::is_ascii_alphabetic)
}

const UPPER_HEX: usize = 5;
