//! Tests of the decoder: every coding, every cut, every false label, and bombs.

use compression_codecs::{
    BrotliEncoder, DeflateEncoder, EncodeV2, GzipEncoder, ZlibEncoder, ZstdEncoder,
    brotli::params::EncoderParams,
    core::{
        Level,
        util::{PartialBuffer, WriteBuffer},
    },
    flate::params::FlateEncoderParams,
    zstd::params::CParameter,
};
use proptest::prelude::*;

use super::*;

const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];

fn encode_with(encoder: &mut dyn EncodeV2, plain: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    let mut scratch = vec![0; 4096];
    let mut input = PartialBuffer::new(plain);
    while !input.unwritten().is_empty() {
        let mut output = WriteBuffer::new_initialized(&mut scratch);
        encoder.encode(&mut input, &mut output).expect("encodes");
        coded.extend_from_slice(output.written());
    }
    loop {
        let mut output = WriteBuffer::new_initialized(&mut scratch);
        let done = encoder.finish(&mut output).expect("finishes");
        coded.extend_from_slice(output.written());
        if done {
            return coded;
        }
    }
}

fn encode(coding: Coding, plain: &[u8]) -> Vec<u8> {
    let mut encoder: Box<dyn EncodeV2> = match coding {
        Coding::Gzip => Box::new(GzipEncoder::new(FlateEncoderParams::from(Level::Fastest))),
        Coding::Deflate => Box::new(ZlibEncoder::new(FlateEncoderParams::from(Level::Fastest))),
        Coding::Brotli => Box::new(BrotliEncoder::new(
            EncoderParams::default().quality(Level::Fastest),
        )),
        Coding::Zstd => Box::new(ZstdEncoder::new(1)),
    };
    encode_with(&mut *encoder, plain)
}

fn bare_deflate(plain: &[u8]) -> Vec<u8> {
    encode_with(
        &mut DeflateEncoder::new(FlateEncoderParams::from(Level::Fastest)),
        plain,
    )
}

/// Decodes chunks to the end, and checks that no piece is too long.
fn decode<'a>(
    codings: &[Coding],
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<u8>, Error> {
    let mut decoder = Decoder::new(codings)?;
    let mut plain = Vec::new();
    let mut chunks = chunks.into_iter();
    loop {
        match decoder.step()? {
            Step::Piece(piece) => {
                assert!(!piece.is_empty() && piece.len() <= Decoder::PIECE);
                plain.extend_from_slice(&piece);
            }
            Step::Busy => {}
            Step::Starved => match chunks.next() {
                Some(chunk) => decoder.feed(Bytes::copy_from_slice(chunk)),
                None => decoder.end(),
            },
            Step::End => return Ok(plain),
        }
    }
}

/// Text that compresses, followed by noise that does not.
fn sample(length: usize) -> Vec<u8> {
    let mut state = 7_u64;
    (0..length)
        .map(|i| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            if i < length / 2 {
                b"all the world's a page "[i % 23]
            } else {
                (state >> 33) as u8
            }
        })
        .collect()
}

#[test]
fn every_coding_is_undone_wherever_it_is_cut_in_two() {
    let plain = sample(300);
    for coding in ALL {
        let coded = encode(coding, &plain);
        for cut in 0..=coded.len() {
            let (head, tail) = coded.split_at(cut);
            assert_eq!(
                decode(&[coding], [head, tail]).as_deref(),
                Ok(&plain[..]),
                "{coding} cut at {cut}"
            );
        }
        assert_eq!(
            decode(&[coding], coded.chunks(1)).as_deref(),
            Ok(&plain[..]),
            "{coding} byte by byte"
        );
    }
}

#[test]
fn content_longer_than_a_piece_comes_whole() {
    // At lengths near a whole piece, a codec ends with its output exactly full.
    let piece = Decoder::PIECE;
    for length in [0, 1, piece - 1, piece, piece + 1, 2 * piece, 5 * piece + 17] {
        let plain = sample(length);
        for coding in ALL {
            let coded = encode(coding, &plain);
            for chunk in [1, 7, 4096, usize::MAX] {
                let plain_again = decode(&[coding], coded.chunks(chunk.min(coded.len().max(1))));
                assert_eq!(
                    plain_again.as_ref(),
                    Ok(&plain),
                    "{coding}, {length} bytes by {chunk}"
                );
            }
        }
        let coded = bare_deflate(&plain);
        for chunk in [1, 4096] {
            assert_eq!(
                decode(&[Coding::Deflate], coded.chunks(chunk)).as_ref(),
                Ok(&plain),
                "bare, {length}"
            );
        }
    }
}

#[test]
fn stacked_codings_are_undone_last_first() {
    let plain = sample(5000);
    for inner in ALL {
        for outer in ALL {
            let coded = encode(outer, &encode(inner, &plain));
            assert_eq!(
                decode(&[inner, outer], coded.chunks(11)).as_ref(),
                Ok(&plain),
                "{inner}, {outer}"
            );
        }
    }
    assert_eq!(
        Decoder::new(&[Coding::Gzip; 3]).err(),
        Some(Error::TooManyCodings)
    );
}

#[test]
fn truncated_content_is_an_error_wherever_it_stops() {
    let plain = sample(300);
    for (coding, coded) in ALL
        .map(|c| (c, encode(c, &plain)))
        .into_iter()
        .chain([(Coding::Deflate, bare_deflate(&plain))])
    {
        for stop in 1..coded.len() {
            let cut = decode(&[coding], [&coded[..stop]]);
            assert_eq!(
                cut,
                Err(Error::Truncated(coding)),
                "{coding} stopped at {stop} of {}",
                coded.len()
            );
        }
    }
}

#[test]
fn a_truncated_inner_coding_is_an_error() {
    let inner = encode(Coding::Gzip, &sample(300));
    let coded = encode(Coding::Brotli, &inner[..inner.len() - 3]);
    assert_eq!(
        decode(&[Coding::Gzip, Coding::Brotli], [&coded[..]]),
        Err(Error::Truncated(Coding::Gzip))
    );
}

#[test]
fn several_gzip_members_and_zstd_frames_are_one_content() {
    for coding in [Coding::Gzip, Coding::Zstd] {
        let coded = [
            encode(coding, b"first "),
            encode(coding, b""),
            encode(coding, b"second"),
        ]
        .concat();
        for chunk in 1..=coded.len() {
            assert_eq!(
                decode(&[coding], coded.chunks(chunk)).as_deref(),
                Ok(&b"first second"[..]),
                "{coding}"
            );
        }
        let cut = &coded[..coded.len() - 1];
        assert_eq!(decode(&[coding], [cut]), Err(Error::Truncated(coding)));
    }
}

#[test]
fn bytes_after_the_end_are_an_error() {
    for coding in ALL {
        let whole = [&encode(coding, b"content")[..], b"garbage after it"].concat();
        for chunk in [1, 3, whole.len()] {
            let refused = decode(&[coding], whole.chunks(chunk));
            assert!(
                matches!(refused, Err(Error::Trailing(c) | Error::Corrupt(c)) if c == coding),
                "{coding}: {refused:?}"
            );
        }
    }
}

#[test]
fn a_wrong_label_is_an_error() {
    let plain = sample(400);
    for label in ALL {
        for coded in ALL
            .iter()
            .filter(|c| **c != label)
            .map(|c| encode(*c, &plain))
            .chain([plain.clone()])
        {
            assert!(decode(&[label], [&coded[..]]).is_err(), "{label}");
        }
    }
}

#[test]
fn empty_content_is_complete_under_every_label() {
    for coding in ALL {
        assert_eq!(decode(&[coding], []).as_deref(), Ok(&b""[..]));
    }
    assert_eq!(
        decode(&[], [&b"as "[..], b"it is"]).as_deref(),
        Ok(&b"as it is"[..])
    );
}

#[test]
fn a_window_above_the_codings_bound_is_refused() {
    // RFC 8878 §3.1.1.1.2: a window descriptor with exponent 14 means 16 MiB. Exponent 13 means
    // 8 MiB, the limit of RFC 9659.
    let frame = |exponent: u8| {
        [
            0x28,
            0xb5,
            0x2f,
            0xfd,
            0x00,
            exponent << 3,
            0x01,
            0x00,
            0x00,
        ]
    };
    assert_eq!(
        decode(&[Coding::Zstd], [&frame(13)[..]]).as_deref(),
        Ok(&b""[..])
    );
    assert_eq!(
        decode(&[Coding::Zstd], [&frame(14)[..]]),
        Err(Error::Corrupt(Coding::Zstd))
    );
    assert_eq!(
        decode(&[Coding::Brotli], [&[0x11, 30, 0, 0, 0, 0][..]]),
        Err(Error::Corrupt(Coding::Brotli))
    );
    let large = encode_with(
        &mut ZstdEncoder::new_with_params(1, &[CParameter::window_log(24)]),
        &sample(9 << 20),
    );
    assert_eq!(
        decode(&[Coding::Zstd], [&large[..]]),
        Err(Error::Corrupt(Coding::Zstd))
    );
}

#[test]
fn a_bomb_comes_in_pieces_and_stops_at_the_limit() {
    let limit = Limit::mib(1);
    for coding in ALL {
        let bomb = encode(coding, &vec![0; 16 << 20]);
        assert!(bomb.len() < 128 << 10, "{coding} makes no bomb");
        let mut decoder = Decoder::new(&[coding]).expect("one coding").limited(limit);
        decoder.feed(bomb.into());
        let mut produced = 0;
        let error = loop {
            match decoder.step() {
                Ok(Step::Piece(piece)) => {
                    assert!(piece.len() <= Decoder::PIECE);
                    produced += piece.len() as u64;
                }
                Ok(other) => panic!("{coding}: {other:?} before the limit"),
                Err(error) => break error,
            }
        };
        assert_eq!(error, Error::TooLong(limit));
        assert!(
            produced <= limit.as_bytes() && produced + Decoder::PIECE as u64 > limit.as_bytes()
        );
    }
}

#[test]
fn a_nested_bomb_that_gives_nothing_lets_others_run() {
    // 200,000 empty gzip members (4 MB), gzipped: much work without output.
    let members = encode(Coding::Gzip, b"").repeat(200_000);
    let coded = encode(Coding::Gzip, &members);
    let mut decoder = Decoder::new(&[Coding::Gzip, Coding::Gzip]).expect("two codings");
    decoder.feed(coded.into());
    decoder.end();
    let mut busy = 0;
    loop {
        match decoder.step() {
            Ok(Step::Busy) => busy += 1,
            Ok(Step::End) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(
        busy >= members.len() / Decoder::PIECE / (REFILLS as usize + 1) - 1,
        "{busy}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn decoding_undoes_encoding_however_it_is_cut(
        plain in proptest::collection::vec(any::<u8>(), 0..2000),
        codings in proptest::collection::vec(proptest::sample::select(&ALL[..]), 0..=2),
        chunk in 1_usize..200,
    ) {
        let coded = codings.iter().fold(plain.clone(), |content, &coding| encode(coding, &content));
        prop_assert_eq!(decode(&codings, coded.chunks(chunk)), Ok(plain));
    }

    #[test]
    fn no_input_makes_the_decoder_panic_or_stand_still(
        mut noise in proptest::collection::vec(any::<u8>(), 0..400),
        codings in proptest::collection::vec(proptest::sample::select(&ALL[..]), 1..=2),
        flip in any::<(proptest::sample::Index, u8)>(),
        chunk in 1_usize..50,
    ) {
        let _ = decode(&codings, noise.chunks(chunk));
        noise = codings.iter().fold(noise, |content, &coding| encode(coding, &content));
        let at = flip.0.index(noise.len());
        noise[at] ^= flip.1;
        let _ = decode(&codings, noise.chunks(chunk));
    }
}

#[test]
fn members_without_content_are_taken_a_few_at_a_time() {
    // Skippable frames of Zstandard (RFC 8878 §3.1.2) in one layer, eight bytes each.
    let frames = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0].repeat(4_096);
    let members = encode(Coding::Gzip, b"").repeat(1_000);
    for (coding, coded, count) in [
        (Coding::Zstd, frames, 4_096),
        (Coding::Gzip, members, 1_000),
    ] {
        let mut decoder = Decoder::new(&[coding]).expect("one coding");
        decoder.feed(coded.into());
        let mut busy = 0;
        while let Step::Busy = decoder.step().expect("valid") {
            busy += 1;
        }
        assert!(busy >= count / MEMBERS - 1, "{coding}: {busy}");
    }
}
