//! Lengths, chunks and trailers.

use super::*;

#[test]
fn length_and_chunks_exclude_each_other() {
    for fields in [
        "Content-Length: 6\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 6",
        "content-length: 0\r\ntransfer-encoding: chunked",
    ] {
        refused(with_fields(fields).as_bytes(), WireMalformed::Framing);
    }
    refused(
        b"POST / HTTP/1.0\r\nHost: good\r\nTransfer-Encoding: chunked\r\n\r\n",
        WireMalformed::Framing,
    );
}

#[test]
fn a_content_length_is_one_plain_number() {
    for value in [
        "+5",
        "0x5",
        "5_0",
        "-1",
        "",
        "18446744073709551616",
        "18446744073709551615",
        "9223372036854775808",
        "5, 5",
        "5,5",
        "5 5",
        "05",
        "00",
        "5.",
        "\t5",
        "5\t",
        "\u{665}",
        "5;",
        "1e3",
        "99999999999999999999999",
    ] {
        refused(
            with_fields(&format!("Content-Length: {value}")).as_bytes(),
            WireMalformed::Framing,
        );
    }
    for twice in [
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5\r\ncontent-length: 6",
    ] {
        refused(with_fields(twice).as_bytes(), WireMalformed::Framing);
    }
    let largest = with_fields("Content-Length: 9223372036854775807");
    assert_eq!(whole(largest.as_bytes()).2, None);
}

#[test]
fn a_transfer_encoding_is_chunked_alone() {
    for value in [
        "gzip, chunked",
        ",chunked",
        "chunked,",
        "xchunked",
        "\u{a0}chunked",
        "\tchunked",
        "chunked\t",
        "chunked;q=1",
        "\"chunked\"",
        "chunked, chunked",
        "chunked chunked",
        "identity",
        "",
        "gzip",
    ] {
        refused(
            with_fields(&format!("Transfer-Encoding: {value}")).as_bytes(),
            WireMalformed::Framing,
        );
    }
    refused(
        with_fields("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked").as_bytes(),
        WireMalformed::Framing,
    );
    refused(
        with_fields("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked").as_bytes(),
        WireMalformed::Framing,
    );
    refused(
        with_fields("Transfer-Encoding: \u{b}chunked").as_bytes(),
        WireMalformed::Field,
    );
    refused(
        with_fields("Transfer-Encoding : chunked").as_bytes(),
        WireMalformed::Field,
    );
    refused(
        with_fields("Transfer-Encoding:\r\n chunked").as_bytes(),
        WireMalformed::Framing,
    );
    refused(
        with_fields("X: y\r\n Transfer-Encoding: chunked").as_bytes(),
        WireMalformed::Field,
    );
}

#[test]
fn chunks_are_size_data_and_nothing_else() {
    for (content, good) in [
        ("0x5\r\nabcde\r\n0\r\n\r\n", ""),
        ("+5\r\nabcde\r\n", ""),
        ("-1\r\n", ""),
        (" 5\r\nabcde\r\n", ""),
        ("5 \r\nabcde\r\n", ""),
        ("5_0\r\n", ""),
        ("\r\n\r\n", ""),
        ("\n", ""),
        (";x\r\n", ""),
        ("5;x=y\r\nabcde\r\n", ""),
        ("5;\"\r\n\"\r\nabcde\r\n", ""),
        ("5\nabcde\r\n", ""),
        ("5\rabcde\r\n", ""),
        ("5\r\r\nabcde", ""),
        ("8000000000000000\r\n", ""),
        ("ffffffffffffffff\r\n", ""),
        ("10000000000000000\r\n", ""),
        ("00000000000000005\r\nabcde\r\n", ""),
        ("5\r\nabcdef\r\n0\r\n\r\n", "5\r\nabcde"),
        ("5\r\nabcde0\r\n\r\n", "5\r\nabcde"),
        ("5\r\nabcde\n0\r\n\r\n", "5\r\nabcde"),
        ("5\r\nabcde\r0\r\n\r\n", "5\r\nabcde"),
        ("5\r\nabcde\r\n\r\n", "5\r\nabcde\r\n"),
        ("0\n\r\n", ""),
        ("G\r\n", ""),
    ] {
        let head = with_fields("Transfer-Encoding: chunked");
        let (all, end, violation) = whole(format!("{head}{content}").as_bytes());
        assert_eq!(
            String::from_utf8(all).unwrap(),
            format!("{head}{good}"),
            "{content:?}"
        );
        assert_eq!(
            (end, violation),
            (End::Failed, Some((0, WireMalformed::Chunk))),
            "{content:?}"
        );
    }
}

#[test]
fn trailers_are_whole_well_formed_and_harmless() {
    for trailers in [
        "Authorization: PH\r\n\r\n",
        "Host: evil\r\n\r\n",
        "Content-Length: 1\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n",
        "X-HTTP-Method-Override: DELETE\r\n\r\n",
        "X-Api-Key: a\r\n\r\n",
        "Cookie: a\r\n\r\n",
        "X\n\r\n",
        "X: y\n\r\n",
        "X : y\r\n\r\n",
        ": y\r\n\r\n",
        "X: y\r\n z\r\n\r\n",
        "X: \0\r\n\r\n",
        "\n",
        "\r\r\n",
    ] {
        let good = format!("{}0\r\n", with_fields("Transfer-Encoding: chunked"));
        let outcome = whole(format!("{good}{trailers}").as_bytes());
        assert_eq!(
            outcome,
            (
                good.into_bytes(),
                End::Failed,
                Some((0, WireMalformed::Trailer))
            ),
            "{trailers:?}"
        );
    }
    let many = |count: usize| {
        format!(
            "{}0\r\n{}\r\n",
            with_fields("Transfer-Encoding: chunked"),
            "X-A: b\r\n".repeat(count)
        )
    };
    accepted(many(32).as_bytes());
    assert_eq!(violation(many(33).as_bytes()), Some(WireMalformed::Trailer));
    let long = |size: usize| {
        format!(
            "{}0\r\nX: {}\r\n\r\n",
            with_fields("Transfer-Encoding: chunked"),
            "y".repeat(size)
        )
    };
    accepted(long(8000).as_bytes());
    assert_eq!(
        violation(long(8192).as_bytes()),
        Some(WireMalformed::Trailer)
    );
    assert_eq!(
        violation(&long(20_000).as_bytes()[..15_000]),
        Some(WireMalformed::Trailer)
    );
}
