//! aws-chunked content: the published examples, every cut of them, and refusals.

use bytes::Bytes;
use proptest::prelude::*;

use super::super::key::sha256;
use super::super::payload::EMPTY;
use super::super::{AmzDate, ChunkResigner};
use super::published::{chunked_content, chunked_head};
use super::*;

const LONGEST: usize = 64 * 1024;

/// Verifies and signs again with other keys; returns the new head and the transformation for its
/// content.
fn opened(
    mut head: RequestHead,
    secret: &[u8],
    with: &SigningParams<'_>,
) -> Result<(RequestHead, ChunkResigner), Fault> {
    let (_, signed) = again(&mut head, secret, None, with)?;
    let rechain = signed.rechain(&head, LONGEST)?.expect("a stream");
    Ok((head, rechain))
}

/// The output for content that is cut at these places, and how it ended.
fn through(
    rechain: &mut ChunkResigner,
    content: &[u8],
    cuts: &[usize],
) -> (Vec<u8>, Result<(), Fault>) {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (content.len() + 1)).collect();
    cuts.extend([0, content.len()]);
    cuts.sort_unstable();
    let content = Bytes::copy_from_slice(content);
    let mut out = Vec::new();
    let mut end = Ok(());
    for pair in cuts.windows(2) {
        end = rechain.push(content.slice(pair[0]..pair[1]), &mut out);
        if end.is_err() {
            break;
        }
    }
    let end = end.and_then(|()| rechain.finish());
    (out.concat(), end)
}

fn same() -> SigningParams<'static> {
    SigningParams {
        access_key: "AKIAIOSFODNN7EXAMPLE",
        secret: S3_SECRET,
        session_token: None,
        now: AmzDate::parse("20130524T000000Z").unwrap().time(),
        longest_life: Duration::from_secs(60),
        content: None,
    }
}

/// Signed with the same key at the same time, the published example comes out unchanged: all four
/// signatures are also ours.
#[test]
fn the_chunked_examples_come_out_as_published() {
    for trailer in [false, true] {
        let content = chunked_content(trailer);
        let (head, mut rechain) = opened(chunked_head(trailer), S3_SECRET, &same()).unwrap();
        assert_eq!(signature_of(&head), signature_of(&chunked_head(trailer)));
        let (out, end) = through(&mut rechain, &content, &[]);
        assert_eq!(end, Ok(()));
        assert!(out == content, "trailer {trailer}");
    }
}

#[test]
fn signed_with_another_key_it_has_the_same_length_and_verifies() {
    for trailer in [false, true] {
        let content = chunked_content(trailer);
        let with = real(SystemTime::now());
        let (head, mut rechain) = opened(chunked_head(trailer), S3_SECRET, &with).unwrap();
        let (out, end) = through(&mut rechain, &content, &[]);
        assert_eq!(end, Ok(()));
        assert!(out.len() == content.len() && out != content);
        let (_, mut judge) = opened(head.clone(), with.secret, &same()).unwrap();
        assert_eq!(through(&mut judge, &out, &[]).1, Ok(()));
        // The client's own signatures no longer verify.
        let (_, mut judge) = opened(head, with.secret, &same()).unwrap();
        assert_eq!(
            through(&mut judge, &content, &[]).1,
            Err(Fault::PartMismatch)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cut_gives_the_same_bytes(cuts in proptest::collection::vec(any::<usize>(), 0..40), trailer: bool) {
        let content = chunked_content(trailer);
        let (_, mut rechain) = opened(chunked_head(trailer), S3_SECRET, &same()).unwrap();
        let (out, end) = through(&mut rechain, &content, &cuts);
        prop_assert_eq!(end, Ok(()));
        prop_assert!(out == content);
    }

    /// Any changed byte is found, and the end of the content is not passed on.
    #[test]
    fn no_changed_byte_passes(at: usize, bit in 0..8_u8, trailer: bool) {
        let mut content = chunked_content(trailer);
        let at = at % content.len();
        content[at] ^= 1 << bit;
        let (_, mut rechain) = opened(chunked_head(trailer), S3_SECRET, &same()).unwrap();
        let (out, end) = through(&mut rechain, &content, &[]);
        // The names in a trailer are case-insensitive.
        let original = chunked_content(trailer);
        let is_name = ["x-amz-checksum-crc32c", "x-amz-trailer-signature"].iter().any(|name| {
            memchr::memmem::find(&original, name.as_bytes()).is_some_and(|start| (start..start + name.len()).contains(&at))
        });
        if is_name && content[at].eq_ignore_ascii_case(&original[at]) {
            return Ok(());
        }
        prop_assert!(end.is_err(), "byte {at}");
        prop_assert!(!out.ends_with(b"\r\n\r\n"));
        // A chunk passes whole and verified, or not at all.
        prop_assert!(content.starts_with(&out[..out.len().min(at)]));
    }

    #[test]
    fn garbage_is_refused_and_never_panics(content in proptest::collection::vec(any::<u8>(), 0..300), cut: usize) {
        for trailer in [false, true] {
            let (_, mut rechain) = opened(chunked_head(trailer), S3_SECRET, &same()).unwrap();
            let (out, end) = through(&mut rechain, &content, &[cut]);
            prop_assert!(end.is_err() && out.is_empty());
        }
    }
}

/// A stream that a test client composes: the chunks, and the trailer as written.
struct Composed {
    head: RequestHead,
    content: Vec<u8>,
}

/// Signs with AWS's own functions for keys and signatures.
fn composed(kind: &str, announced: &str, chunks: &[&[u8]], trailer: &str) -> Composed {
    let ecdsa = kind.contains("ECDSA");
    let length: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    let (name, region) = if ecdsa {
        ("AWS4-ECDSA-P256-SHA256", "")
    } else {
        ("AWS4-HMAC-SHA256", "us-east-1/")
    };
    let scope = format!("20130524/{region}s3/aws4_request");
    let length = length.to_string();
    let mut fields = vec![
        ("x-amz-content-sha256", kind),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-decoded-content-length", &*length),
    ];
    if ecdsa {
        fields.push(("x-amz-region-set", "*"));
    }
    if !announced.is_empty() {
        fields.push(("x-amz-trailer", announced));
    }
    let names: Vec<&str> = std::iter::once("host")
        .chain(fields.iter().map(|(name, _)| *name))
        .collect();
    let mut canonical = String::from("PUT\n/bucket/key\n\nhost:s3.amazonaws.com\n");
    for (name, value) in &fields {
        canonical.push_str(&format!("{name}:{value}\n"));
    }
    canonical.push_str(&format!("\n{}\n{kind}", names.join(";")));
    let top = |kind: &str| format!("{name}{kind}\n20130524T000000Z\n{scope}");
    let mut last = signature(
        ecdsa,
        &format!("{}\n{}", top(""), sha256(canonical.as_bytes())),
    );
    let value = format!(
        "{name} Credential=AKIAIOSFODNN7EXAMPLE/{scope}, SignedHeaders={}, Signature={last}",
        names.join(";")
    );
    fields.push(("authorization", &value));
    let head = head("PUT", "s3.amazonaws.com", "/bucket/key", &fields);
    let padded = |signature: &str| {
        if ecdsa {
            format!("{signature:*<144}")
        } else {
            signature.to_owned()
        }
    };
    let is_signed = !kind.contains("UNSIGNED");
    let mut content = Vec::new();
    for chunk in chunks.iter().copied().chain([&b""[..]]) {
        last = signature(
            ecdsa,
            &format!("{}\n{last}\n{EMPTY}\n{}", top("-PAYLOAD"), sha256(chunk)),
        );
        let extension = if is_signed {
            format!(";chunk-signature={}", padded(&last))
        } else {
            String::new()
        };
        content.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
        content.extend_from_slice(chunk);
        if !chunk.is_empty() {
            content.extend_from_slice(b"\r\n");
        }
    }
    if kind.ends_with("-TRAILER") {
        content.extend_from_slice(trailer.as_bytes());
        if is_signed {
            let canonical: String = trailer
                .lines()
                .filter(|l| !l.is_empty())
                .map(|l| format!("{l}\n"))
                .collect();
            last = signature(
                ecdsa,
                &format!(
                    "{}\n{last}\n{}",
                    top("-TRAILER"),
                    sha256(canonical.as_bytes())
                ),
            );
            content.extend_from_slice(
                format!("x-amz-trailer-signature:{}\r\n", padded(&last)).as_bytes(),
            );
        }
    }
    content.extend_from_slice(b"\r\n");
    Composed { head, content }
}

fn signature(ecdsa: bool, text: &str) -> String {
    let secret = std::str::from_utf8(S3_SECRET).unwrap();
    if ecdsa {
        let key = aws_sigv4::sign::v4a::generate_signing_key("AKIAIOSFODNN7EXAMPLE", secret);
        aws_sigv4::sign::v4a::calculate_signature(key, text.as_bytes())
    } else {
        let day = AmzDate::parse("20130524T000000Z").unwrap().time();
        let key = aws_sigv4::sign::v4::generate_signing_key(secret, day, "us-east-1", "s3");
        aws_sigv4::sign::v4::calculate_signature(key, text.as_bytes())
    }
}

const KINDS: [&str; 5] = [
    "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD",
    "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER",
];
const CRC: &str = "x-amz-checksum-crc32c";

#[test]
fn each_kind_verifies_and_keeps_its_length_and_data() {
    for kind in KINDS {
        for chunks in [
            &[][..],
            &[&b"a"[..]],
            &[&[7; 9000][..], b"\r\n0\r\n\r\n", b"end"],
        ] {
            let Composed { head, content } =
                composed(kind, CRC, chunks, "x-amz-checksum-crc32c:sOO8/Q==\r\n");
            let with = real(SystemTime::now());
            let (new, mut rechain) =
                opened(head, S3_SECRET, &with).unwrap_or_else(|fault| panic!("{kind}: {fault}"));
            let (out, end) = through(&mut rechain, &content, &[1, 2, 3, 50, 99, 100, 8000]);
            assert_eq!(end, Ok(()), "{kind}");
            assert_eq!(out.len(), content.len(), "{kind}");
            assert_eq!(out == content, kind.contains("UNSIGNED"), "{kind}");
            let (_, mut judge) = opened(new, with.secret, &same()).unwrap();
            assert_eq!(through(&mut judge, &out, &[]).1, Ok(()), "{kind}");
        }
    }
}

/// minio-go: a bare line feed ends the fields, and an empty line precedes the signature.
#[test]
fn the_trailer_of_minio_go_is_taken_as_it_is() {
    let kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
    let Composed { head, content } =
        composed(kind, CRC, &[b"abc"], "x-amz-checksum-crc32c:sOO8/Q==\n\r\n");
    let (_, mut rechain) = opened(head, S3_SECRET, &same()).unwrap();
    let (out, end) = through(&mut rechain, &content, &[]);
    assert_eq!(end, Ok(()));
    assert_eq!(out, content);
}

#[test]
fn a_trailer_holds_what_is_announced_and_no_more() {
    for kind in KINDS.into_iter().filter(|kind| kind.ends_with("-TRAILER")) {
        for (announced, trailer) in [
            ("", "x-amz-checksum-crc32c:a\r\n"),
            (CRC, "x-amz-checksum-crc32:a\r\n"),
            (
                CRC,
                "x-amz-checksum-crc32c:a\r\nx-amz-checksum-crc32c:b\r\n",
            ),
            (CRC, "no field\r\n"),
            (CRC, ":a\r\n"),
            (CRC, " x-amz-checksum-crc32c:a\r\n"),
        ] {
            let Composed { head, content } = composed(kind, announced, &[b"abc"], trailer);
            let (_, mut rechain) = opened(head, S3_SECRET, &same()).unwrap();
            let (out, end) = through(&mut rechain, &content, &[]);
            assert!(
                matches!(end, Err(Fault::Framing(_))),
                "{kind} {trailer:?} {end:?}"
            );
            assert!(!out.ends_with(b"\r\n\r\n"));
        }
        for announced in [
            "x-amz-acl",
            "authorization",
            "x-amz-trailer-signature",
            "x-amz-checksum-crc32c,x-amz-meta-a",
            ",",
        ] {
            let Composed { head, .. } = composed(kind, announced, &[b"abc"], "");
            let end = opened(head, S3_SECRET, &same()).err();
            assert_eq!(end, Some(Fault::Malformed("x-amz-trailer")), "{announced}");
        }
        let long = format!("x-amz-checksum-crc32c:{}\r\n", "a".repeat(9000));
        let Composed { head, content } = composed(kind, CRC, &[b"abc"], &long);
        let (_, mut rechain) = opened(head, S3_SECRET, &same()).unwrap();
        assert!(matches!(
            through(&mut rechain, &content, &[]).1,
            Err(Fault::Framing(_))
        ));
    }
}

#[test]
fn the_framing_is_read_strictly() {
    for kind in [KINDS[0], KINDS[1]] {
        let Composed { head, content } = composed(kind, "", &[b"abc", b"def"], "");
        let text = String::from_utf8(content).unwrap();
        let changes: &[(&str, &str)] = &[
            ("3", "+3"),
            ("3", "0x3"),
            ("3", " 3"),
            ("3", ""),
            ("3", "00000000000000003"),
            ("3", "4"),
            ("\r\n", "\n"),
            ("abc\r\n", "abc\n\n"),
            ("abc\r\n", "abc"),
            ("abc\r\n", "abcX\r\n"),
        ];
        for (old, new) in changes {
            let (_, mut rechain) = opened(head.clone(), S3_SECRET, &same()).unwrap();
            let end = through(&mut rechain, text.replacen(old, new, 1).as_bytes(), &[]).1;
            assert!(end.is_err(), "{kind} {old:?} {new:?}");
        }
        for more in ["0", "\r\n", "3\r\nabc\r\n"] {
            let (_, mut rechain) = opened(head.clone(), S3_SECRET, &same()).unwrap();
            let end = through(&mut rechain, format!("{text}{more}").as_bytes(), &[]).1;
            assert_eq!(
                end,
                Err(Fault::Framing("bytes follow its end")),
                "{kind} {more:?}"
            );
        }
        for short in 0..text.len() {
            let (_, mut rechain) = opened(head.clone(), S3_SECRET, &same()).unwrap();
            let end = through(&mut rechain, &text.as_bytes()[..short], &[]).1;
            assert_eq!(
                end,
                Err(Fault::Framing("it ends before its last chunk")),
                "{kind} {short}"
            );
        }
    }
}

#[test]
fn chunks_lines_and_lengths_have_bounds() {
    let kind = KINDS[1];
    let long = vec![b'a'; LONGEST + 1];
    let Composed { head, content } = composed(kind, "", &[&long], "");
    let (_, mut rechain) = opened(head, S3_SECRET, &same()).unwrap();
    assert_eq!(
        through(&mut rechain, &content, &[]),
        (Vec::new(), Err(Fault::PartTooLong(LONGEST)))
    );
    // An unsigned chunk is not buffered, so it may have any length.
    let Composed { head, content } = composed(KINDS[0], "", &[&long], "");
    let (_, mut rechain) = opened(head, S3_SECRET, &same()).unwrap();
    assert_eq!(through(&mut rechain, &content, &[]).1, Ok(()));
    let (_, mut rechain) = opened(chunked_head(false), S3_SECRET, &same()).unwrap();
    let mut out = Vec::new();
    let end = (0..1000).try_for_each(|_| rechain.push(Bytes::from_static(b"0"), &mut out));
    assert!(matches!(end, Err(Fault::Framing(_))) && out.is_empty());
    // After a fault nothing more is accepted, not even valid content.
    assert!(
        rechain
            .push(Bytes::from(chunked_content(false)), &mut out)
            .is_err()
            && out.is_empty()
    );
    for length in ["-1", "+1", "", "1e3", " 1", "99999999999999999999"] {
        let Composed { mut head, .. } = composed(kind, "", &[b"abc"], "");
        let (claim, verified) = proven(&head, S3_SECRET, None).unwrap();
        head.fields.insert(
            "x-amz-decoded-content-length",
            HeaderValue::from_str(length).unwrap(),
        );
        let signed = sign(&mut head, &claim, verified, &same()).unwrap();
        assert!(signed.rechain(&head, LONGEST).is_err(), "{length}");
    }
}
