//! Raw bytes against the strict reading, alone and in front of hyper; rows of the threat catalogue,
//! group E.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;

/// A connection on which the client's bytes come in these pieces and then end.
struct Script {
    pieces: VecDeque<Vec<u8>>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Script {
    fn new(bytes: &[u8], cuts: &[usize]) -> Script {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([bytes.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let pieces = starts
            .zip(ends)
            .map(|(start, end)| bytes[start..end].to_vec())
            .filter(|p| !p.is_empty())
            .collect();
        Script {
            pieces,
            written: Arc::default(),
        }
    }

    fn one_by_one(bytes: &[u8]) -> Script {
        Script::new(bytes, &(0..bytes.len()).collect::<Vec<_>>())
    }
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.pieces.front_mut() {
            Some(piece) => {
                let length = piece.len().min(buf.remaining());
                buf.put_slice(&piece[..length]);
                piece.drain(..length);
                if piece.is_empty() {
                    self.pieces.pop_front();
                }
                Poll::Ready(Ok(()))
            }
            None => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Script {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written.lock().unwrap().extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Eof,
    Pending,
    Failed,
}

/// What a reader behind `strict` gets now, through a buffer of this size.
fn passed(strict: &mut Strict<Script>, room: usize) -> (Vec<u8>, End) {
    let mut all = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        let mut space = vec![0; room];
        let mut buf = ReadBuf::new(&mut space);
        match Pin::new(&mut *strict).poll_read(&mut cx, &mut buf) {
            Poll::Ready(Ok(())) if buf.filled().is_empty() => return (all, End::Eof),
            Poll::Ready(Ok(())) => all.extend_from_slice(buf.filled()),
            Poll::Ready(Err(_)) => return (all, End::Failed),
            Poll::Pending => return (all, End::Pending),
        }
    }
}

/// What a reader gets of a whole connection, and which request was malformed how.
fn whole(bytes: &[u8]) -> (Vec<u8>, End, Option<(u64, Malformed)>) {
    let mut strict = Strict::new(Script::new(bytes, &[]));
    let (all, end) = passed(&mut strict, 4096);
    (
        all,
        end,
        strict
            .shared
            .violation
            .get()
            .map(|v| (v.request, v.malformed)),
    )
}

fn violation(bytes: &[u8]) -> Option<Malformed> {
    whole(bytes).2.map(|(_, malformed)| malformed)
}

fn with_fields(fields: &str) -> String {
    format!("POST /x HTTP/1.1\r\nHost: good\r\n{fields}\r\n\r\n")
}

/// Asserts that a request is refused at its head: behind a good request, only the stand-in takes
/// its place.
#[track_caller]
fn refused(bytes: &[u8], malformed: Malformed) {
    const GOOD: &[u8] = b"GET /good HTTP/1.1\r\nHost: good\r\n\r\n";
    assert_eq!(
        whole(bytes),
        (STAND_IN.to_vec(), End::Pending, Some((0, malformed))),
        "{}",
        bytes.escape_ascii()
    );
    let second = whole(&[GOOD, bytes, GOOD].concat());
    assert_eq!(
        second,
        (
            [GOOD, STAND_IN].concat(),
            End::Pending,
            Some((1, malformed))
        ),
        "{}",
        bytes.escape_ascii()
    );
    let strict = Strict::new(Script::one_by_one(&[GOOD, bytes].concat()));
    let violations = strict.violations();
    let mut strict = strict;
    passed(&mut strict, 64);
    assert_eq!(violations.begin(), Ok(()));
    assert_eq!(violations.begin(), Err(malformed));
}

#[track_caller]
fn accepted(bytes: &[u8]) {
    assert_eq!(
        whole(bytes),
        (bytes.to_vec(), End::Eof, None),
        "{}",
        bytes.escape_ascii()
    );
}

#[test]
fn well_formed_requests_pass_unchanged() {
    for head in [
        "GET / HTTP/1.1\r\nHost: good\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: good\r\n\r\n",
        "get-it'_|~ /a%2f?b=c;d HTTP/1.1\r\nhost:good\r\nX:\r\nY: \t a b\t \r\nZ: \x7f\r\n\r\n"
            .replace('\x7f', "~")
            .as_str(),
        "GET http://good/a HTTP/1.1\r\nHost: good\r\n\r\n",
        "GET https://good HTTP/1.1\r\nHost: good\r\n\r\n",
        "GET //evil/x HTTP/1.1\r\nHost: good\r\n\r\n",
        "GET /{a}|[b]^\\ HTTP/1.1\r\nHost: good\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: good\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: good\r\nContent-Length: 0\r\n\r\n",
        "DELETE / HTTP/1.1\r\nHost: good\r\nContent-Length: 3\r\n\r\nabc",
        "PUT / HTTP/1.1\r\nHost: good\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nHost: good\r\n\r\n3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: good\r\nTransfer-Encoding:chunked\r\n\r\n0\r\nX-Amz-Checksum-Crc32: AAAA\r\nX-Any: 1\r\n\r\n",
    ] {
        accepted(head.as_bytes());
        accepted([head, head, head].concat().as_bytes());
    }
    accepted(b"GET / HTTP/1.1\r\nHost: good\r\nX: caf\xe9\r\n\r\n");
    accepted(b"");
}

#[test]
fn a_head_tells_what_it_says() {
    let bytes = b"POST /a?b HTTP/1.1\r\nHost:  good \r\nX-A:\r\nEXPECT: 100-continue\r\ncontent-length: 12\r\n\r\nrest";
    let Ok(Status::Complete(head)) = parse_head(bytes) else {
        panic!("a good head")
    };
    assert_eq!(
        (head.method, head.target, head.version),
        (&b"POST"[..], &b"/a?b"[..], Version::HTTP_11)
    );
    assert_eq!(
        (head.framing, head.expects_continue, head.switches),
        (Framing::Length(12), true, false)
    );
    assert_eq!(&bytes[head.length..], b"rest");
    let fields: Vec<_> = head
        .fields()
        .map(|(n, v)| (str::from_utf8(n).unwrap(), str::from_utf8(v).unwrap()))
        .collect();
    assert_eq!(
        fields,
        [
            ("Host", "good"),
            ("X-A", ""),
            ("EXPECT", "100-continue"),
            ("content-length", "12")
        ]
    );
    assert!((0..head.length).all(|cut| matches!(parse_head(&bytes[..cut]), Ok(Status::Partial))));
}

#[test]
fn length_and_chunks_exclude_each_other() {
    for fields in [
        "Content-Length: 6\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 6",
        "content-length: 0\r\ntransfer-encoding: chunked",
    ] {
        refused(with_fields(fields).as_bytes(), Malformed::Framing);
    }
    refused(
        b"POST / HTTP/1.0\r\nHost: good\r\nTransfer-Encoding: chunked\r\n\r\n",
        Malformed::Framing,
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
            Malformed::Framing,
        );
    }
    for twice in [
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5\r\ncontent-length: 6",
    ] {
        refused(with_fields(twice).as_bytes(), Malformed::Framing);
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
            Malformed::Framing,
        );
    }
    refused(
        with_fields("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked").as_bytes(),
        Malformed::Framing,
    );
    refused(
        with_fields("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked").as_bytes(),
        Malformed::Framing,
    );
    refused(
        with_fields("Transfer-Encoding: \u{b}chunked").as_bytes(),
        Malformed::Field,
    );
    refused(
        with_fields("Transfer-Encoding : chunked").as_bytes(),
        Malformed::Field,
    );
    refused(
        with_fields("Transfer-Encoding:\r\n chunked").as_bytes(),
        Malformed::Framing,
    );
    refused(
        with_fields("X: y\r\n Transfer-Encoding: chunked").as_bytes(),
        Malformed::Field,
    );
}

#[test]
fn chunks_are_size_data_and_nothing_else() {
    for (content, good) in [
        ("0x5\r\nabcde\r\n0\r\n\r\n", "0"),
        ("+5\r\nabcde\r\n", ""),
        ("-1\r\n", ""),
        (" 5\r\nabcde\r\n", ""),
        ("5 \r\nabcde\r\n", "5"),
        ("5_0\r\n", "5"),
        ("\r\n\r\n", ""),
        ("\n", ""),
        (";x\r\n", ""),
        ("5;x=y\r\nabcde\r\n", "5"),
        ("5;\"\r\n\"\r\nabcde\r\n", "5"),
        ("5\nabcde\r\n", "5"),
        ("5\rabcde\r\n", "5\r"),
        ("5\r\r\nabcde", "5\r"),
        ("8000000000000000\r\n", "800000000000000"),
        ("ffffffffffffffff\r\n", "fffffffffffffff"),
        ("10000000000000000\r\n", "1000000000000000"),
        ("00000000000000005\r\nabcde\r\n", "0000000000000000"),
        ("5\r\nabcdef\r\n0\r\n\r\n", "5\r\nabcde"),
        ("5\r\nabcde0\r\n\r\n", "5\r\nabcde"),
        ("5\r\nabcde\n0\r\n\r\n", "5\r\nabcde"),
        ("5\r\nabcde\r0\r\n\r\n", "5\r\nabcde\r"),
        ("5\r\nabcde\r\n\r\n", "5\r\nabcde\r\n"),
        ("0\n\r\n", "0"),
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
            (End::Failed, Some((0, Malformed::Chunk))),
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
                Some((0, Malformed::Trailer))
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
    assert_eq!(violation(many(33).as_bytes()), Some(Malformed::Trailer));
    let long = |size: usize| {
        format!(
            "{}0\r\nX: {}\r\n\r\n",
            with_fields("Transfer-Encoding: chunked"),
            "y".repeat(size)
        )
    };
    accepted(long(8000).as_bytes());
    assert_eq!(violation(long(8192).as_bytes()), Some(Malformed::Trailer));
    assert_eq!(
        violation(&long(20_000).as_bytes()[..15_000]),
        Some(Malformed::Trailer)
    );
}

#[test]
fn only_crlf_ends_a_line() {
    for bytes in [
        "GET / HTTP/1.1\nHost: good\n\n",
        "GET / HTTP/1.1\r\nHost: good\n\r\n",
        "GET / HTTP/1.1\r\nHost: good\r\n\n",
        "GET / HTTP/1.1\r\nHost: good\r\nX: a\rb\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: good\r\nX: a\r\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: good\r\nX: a\r\rTransfer-Encoding: chunked\r\n\r\n",
    ] {
        refused(bytes.as_bytes(), Malformed::LineEnd);
    }
}

#[test]
fn a_field_is_a_token_a_colon_and_a_clean_value() {
    for field in [
        " X: y",
        "\tX: y",
        "X : y",
        "X\t: y",
        ": y",
        "X",
        "X y",
        "X(a): y",
        "X\"a: y",
        "é: y",
        "X: a\0b",
        "X: a\x7fb",
        "X: a\x08",
        "X: y\r\n folded",
        "X: y\r\n\tfolded",
        "\0: y",
        "X,Y: z",
    ] {
        refused(with_fields(field).as_bytes(), Malformed::Field);
    }
}

#[test]
fn there_is_exactly_one_host() {
    refused(b"GET / HTTP/1.1\r\n\r\n", Malformed::HostCount);
    refused(b"GET / HTTP/1.0\r\n\r\n", Malformed::HostCount);
    refused(b"CONNECT good:443 HTTP/1.1\r\n\r\n", Malformed::HostCount);
    assert!(matches!(
        parse_head(b"CONNECT good:443 HTTP/1.0\r\n\r\n"),
        Ok(Status::Complete(_))
    ));
    refused(
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        Malformed::HostCount,
    );
    refused(
        b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nhOST: b\r\n\r\n",
        Malformed::HostCount,
    );
    refused(b"GET / HTTP/1.1\r\nHost:\r\n\r\n", Malformed::HostCount);
    refused(b"GET / HTTP/1.1\r\nHost: \t\r\n\r\n", Malformed::HostCount);
}

#[test]
fn a_request_line_is_method_target_version() {
    for (line, malformed) in [
        ("GET /", Malformed::Version),
        ("GET", Malformed::Version),
        ("GET / HTTP/1.2", Malformed::Version),
        ("GET / HTTP/2.0", Malformed::Version),
        ("GET / HTTP/0.9", Malformed::Version),
        ("PRI * HTTP/2.0", Malformed::Version),
        ("GET / HTTP/1.1 ", Malformed::RequestLine),
        ("GET / http/1.1", Malformed::RequestLine),
        ("GET / HTTP/1.10", Malformed::RequestLine),
        ("GET / HTTP/01.1", Malformed::RequestLine),
        ("GET / HTTP/1,1", Malformed::RequestLine),
        ("GET / HTTPS/1.1", Malformed::RequestLine),
        ("GET  / HTTP/1.1", Malformed::RequestLine),
        ("GET /  HTTP/1.1", Malformed::RequestLine),
        ("GET / a HTTP/1.1", Malformed::RequestLine),
        ("GET /\tHTTP/1.1", Malformed::Version),
        ("GET\t/ HTTP/1.1", Malformed::Method),
        (" GET / HTTP/1.1", Malformed::Method),
        ("G=\":< / HTTP/1.1", Malformed::Method),
        ("GÉT / HTTP/1.1", Malformed::Method),
        ("\0GET / HTTP/1.1", Malformed::Method),
        ("", Malformed::RequestLine),
        ("\r\nGET / HTTP/1.1", Malformed::RequestLine),
        ("GET /a\0 HTTP/1.1", Malformed::Target),
        ("GET /\u{e9} HTTP/1.1", Malformed::Target),
        ("GET /a#b HTTP/1.1", Malformed::Target),
        ("GET /a\x0bb HTTP/1.1", Malformed::Target),
        ("GET /<a> HTTP/1.1", Malformed::Target),
        ("GET evil:443 HTTP/1.1", Malformed::TargetForm),
        ("GET evil HTTP/1.1", Malformed::TargetForm),
        ("GET * HTTP/1.1", Malformed::TargetForm),
        ("GET ftp://good/x HTTP/1.1", Malformed::Scheme),
        ("GET unix://good/x HTTP/1.1", Malformed::Scheme),
        ("GET http:/good HTTP/1.1", Malformed::Target),
    ] {
        refused(
            format!("{line}\r\nHost: good\r\n\r\n").as_bytes(),
            malformed,
        );
    }
    assert_eq!(Malformed::Version.reason().status(), 505);
}

#[test]
fn a_fault_is_seen_before_the_head_is_whole() {
    assert_eq!(parse_head(b"GET /\r\n").err(), Some(Malformed::Version));
    assert_eq!(
        parse_head(b"GET / HTTP/1.1\n").err(),
        Some(Malformed::LineEnd)
    );
    assert_eq!(
        parse_head(b"GET / HTTP/1.1\r\nX y\r\n").err(),
        Some(Malformed::Field)
    );
    assert_eq!(
        parse_head(&b"\r\n".repeat(1000)).err(),
        Some(Malformed::RequestLine)
    );
}

#[test]
fn heads_are_bounded() {
    let target = |length: usize| {
        format!(
            "GET /{} HTTP/1.1\r\nHost: good\r\n\r\n",
            "a".repeat(length - 1)
        )
    };
    accepted(target(8192).as_bytes());
    refused(target(8193).as_bytes(), Malformed::TargetTooLong);
    assert_eq!(violation(&[b'A'; 10_000]), Some(Malformed::TargetTooLong));
    assert_eq!(
        violation(&target(20_000).as_bytes()[..10_000]),
        Some(Malformed::TargetTooLong)
    );
    let fields = |count: usize| {
        format!(
            "GET / HTTP/1.1\r\nHost: good\r\n{}\r\n",
            "X: y\r\n".repeat(count - 1)
        )
    };
    accepted(fields(100).as_bytes());
    refused(fields(101).as_bytes(), Malformed::FieldsTooLarge);
    let size = |bytes: usize| {
        format!(
            "GET / HTTP/1.1\r\nHost: good\r\nX: {}\r\n\r\n",
            "y".repeat(bytes - 12 - 5)
        )
    };
    accepted(size(32 * 1024).as_bytes());
    refused(size(32 * 1024 + 1).as_bytes(), Malformed::FieldsTooLarge);
    assert_eq!(
        violation(&size(1_000_000).as_bytes()[..50_000]),
        Some(Malformed::FieldsTooLarge)
    );
    refused(
        format!("{} / HTTP/1.1\r\nHost: good\r\n\r\n", "A".repeat(33)).as_bytes(),
        Malformed::Method,
    );
    assert_eq!(Malformed::TargetTooLong.reason().status(), 414);
    assert_eq!(Malformed::FieldsTooLarge.reason().status(), 431);
}

#[test]
fn an_expectation_is_one_100_continue() {
    for fields in [
        "Expect: y 100-continue",
        "Expect: 100-continue, 100-continue",
        "Expect:",
        "Expect: 200-ok",
        "Expect: 100-continue\r\nExpect: 100-continue",
    ] {
        refused(with_fields(fields).as_bytes(), Malformed::Expectation);
    }
    assert_eq!(Malformed::Expectation.reason().status(), 417);
}

#[test]
fn connect_names_a_host_and_a_port_and_has_no_content() {
    let connect = |target: &str| format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    assert_eq!(violation(connect("good:443").as_bytes()), None);
    for (target, reason) in [
        ("good", "port"),
        ("good:0443", "port"),
        ("a@good:443", "host_charset"),
        ("/", "port"),
        ("[good]:443", "host_syntax"),
        ("*", "port"),
    ] {
        let malformed = violation(connect(target).as_bytes()).unwrap();
        assert!(
            matches!(malformed, Malformed::Authority(_)) && malformed.reason().as_str() == reason,
            "{target}: {malformed:?}"
        );
    }
    for framing in [
        "Content-Length: 0",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
    ] {
        refused(
            format!("CONNECT good:443 HTTP/1.1\r\nHost: good:443\r\n{framing}\r\n\r\n").as_bytes(),
            Malformed::Framing,
        );
    }
}

const UPGRADE: &[u8] =
    b"GET /ws HTTP/1.1\r\nHost: good\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn bytes_behind_an_upgrade_wait_for_the_answer() {
    for head in [
        UPGRADE,
        b"CONNECT good:443 HTTP/1.1\r\nHost: good:443\r\n\r\n",
    ] {
        let mut strict = Strict::new(Script::new(&[head, b"\x81\x05 not \nHTTP"].concat(), &[]));
        let violations = strict.violations();
        assert_eq!(passed(&mut strict, 64), (head.to_vec(), End::Pending));
        violations.begin().unwrap();
        violations.upgraded();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(
            Pin::new(&mut strict)
                .poll_write(&mut cx, b"HTTP/1.1 101 \r\n\r\n")
                .is_ready()
        );
        assert_eq!(
            passed(&mut strict, 7),
            (b"\x81\x05 not \nHTTP".to_vec(), End::Eof)
        );
    }
}

#[test]
fn bytes_behind_a_refused_upgrade_are_requests() {
    let next = b"GET /next HTTP/1.1\r\nHost: good\r\n\r\n";
    let mut strict = Strict::new(Script::new(
        &[UPGRADE, next, b"bad\r\n"].concat(),
        &[UPGRADE.len() + 5],
    ));
    let violations = strict.violations();
    assert_eq!(passed(&mut strict, 4096), (UPGRADE.to_vec(), End::Pending));
    let mut cx = Context::from_waker(Waker::noop());
    // An answer to an earlier request decides nothing.
    assert!(
        Pin::new(&mut strict)
            .poll_write(&mut cx, b"HTTP/1.1 200 OK\r\n\r\n")
            .is_ready()
    );
    assert_eq!(passed(&mut strict, 4096), (vec![], End::Pending));
    violations.begin().unwrap();
    assert!(
        Pin::new(&mut strict)
            .poll_write(&mut cx, b"HTTP/1.1 200 OK\r\n\r\n")
            .is_ready()
    );
    assert_eq!(
        passed(&mut strict, 4096),
        ([next, STAND_IN].concat(), End::Pending)
    );
    violations.begin().unwrap();
    assert_eq!(violations.begin(), Err(Malformed::Version));
}

#[test]
fn an_upgrade_to_h2c_or_with_content_is_no_switch() {
    let h2c = b"GET / HTTP/1.1\r\nHost: good\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n";
    accepted(&[&h2c[..], &h2c[..]].concat());
    assert_eq!(
        whole(&[&h2c[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"].concat()).2,
        Some((1, Malformed::Version))
    );
    let content = with_fields("Upgrade: foo\r\nContent-Length: 2") + "ab";
    accepted(content.repeat(2).as_bytes());
}

#[test]
fn a_violation_after_an_upgrade_was_taken_never_becomes_the_other_protocol() {
    let mut strict = Strict::new(Script::new(b"bad\r\n", &[]));
    let violations = strict.violations();
    let mut space = [0; 4];
    let mut buf = ReadBuf::new(&mut space);
    assert!(
        Pin::new(&mut strict)
            .poll_read(&mut Context::from_waker(Waker::noop()), &mut buf)
            .is_ready()
    );
    violations.upgraded();
    assert_eq!(passed(&mut strict, 64), (vec![], End::Failed));
}

#[test]
fn hyper_answers_a_malformed_request_through_the_service_and_closes() {
    let bytes = b"GET /1 HTTP/1.1\r\nHost: good\r\n\r\nGET /2 HTTP/1.1\nHost: good\n\nGET /3 HTTP/1.1\r\nHost: good\r\n\r\n";
    let (requests, answers) = served(Script::new(bytes, &[]));
    assert_eq!(
        requests.iter().map(|r| r.uri.path()).collect::<Vec<_>>(),
        ["/1"]
    );
    assert_eq!(answers.matches("x-served: yes").count(), 1);
    assert_eq!(answers.matches("HTTP/1.1 400").count(), 1);
    assert_eq!(answers.matches("HTTP/1.1").count(), 2);
}

#[test]
fn hyper_never_ends_malformed_content_cleanly() {
    let good = with_fields("Transfer-Encoding: chunked");
    let (requests, _) = served(Script::new(
        format!("{good}5\r\nabcde\r\n0;x\r\n\r\n").as_bytes(),
        &[],
    ));
    assert!(requests.is_empty());
    let (requests, _) = served(Script::new(
        format!("{good}5\r\nabcde\r\n0\r\n\r\n").as_bytes(),
        &[],
    ));
    assert_eq!(requests[0].content, b"abcde");
}

#[derive(Debug, PartialEq)]
struct Got {
    method: Method,
    uri: Uri,
    fields: HeaderMap,
    content: Vec<u8>,
}

/// What a service behind hyper gets of a connection, and what the client is answered.
fn served(script: Script) -> (Vec<Got>, String) {
    let written = Arc::clone(&script.written);
    let got = Arc::new(Mutex::new(Vec::new()));
    let strict = Strict::new(script);
    let violations = strict.violations();
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let (violations, got) = (violations.clone(), Arc::clone(&got));
        async move {
            let answer = Response::builder();
            if let Err(malformed) = violations.begin() {
                return Ok::<_, Infallible>(
                    answer
                        .header("x-served", "no")
                        .status(malformed.reason().status())
                        .body(Full::new(Bytes::new()))
                        .unwrap(),
                );
            }
            let (head, content) = request.into_parts();
            if let Ok(content) = content.collect().await {
                let content = content.to_bytes().to_vec();
                got.lock().unwrap().push(Got {
                    method: head.method,
                    uri: head.uri,
                    fields: head.headers,
                    content,
                });
            }
            Ok(answer
                .header("x-served", "yes")
                .body(Full::new(Bytes::new()))
                .unwrap())
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let _ = runtime.block_on(
        hyper::server::conn::http1::Builder::new()
            .half_close(true)
            .serve_connection(TokioIo::new(strict), service),
    );
    let requests = std::mem::take(&mut *got.lock().unwrap());
    let answers = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    (requests, answers)
}

/// The complete requests of a connection up to the first fault, by a second, simpler reading of the
/// content.
fn expected(mut bytes: &[u8]) -> Vec<Got> {
    let mut all = Vec::new();
    while let Ok(Status::Complete(head)) = parse_head(bytes) {
        let rest = &bytes[head.length..];
        let Some((content, after)) = (match head.framing {
            Framing::None => Some((vec![], rest)),
            Framing::Length(length) => rest
                .split_at_checked(length as usize)
                .map(|(c, r)| (c.to_vec(), r)),
            Framing::Chunked => unchunked(rest),
        }) else {
            break;
        };
        all.push(Got {
            method: Method::from_bytes(head.method).unwrap(),
            uri: Uri::try_from(head.target).unwrap(),
            fields: head
                .fields()
                .map(|(n, v)| {
                    (
                        HeaderName::from_bytes(n).unwrap(),
                        HeaderValue::from_bytes(v).unwrap(),
                    )
                })
                .collect(),
            content,
        });
        bytes = after;
    }
    all
}

fn unchunked(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut content = Vec::new();
    loop {
        let end = bytes.windows(2).position(|w| w == b"\r\n")?;
        let digits = str::from_utf8(&bytes[..end]).ok()?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let size = usize::from_str_radix(digits, 16).ok()?;
        bytes = &bytes[end + 2..];
        if size == 0 {
            let end = if bytes.starts_with(b"\r\n") {
                0
            } else {
                bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 2
            };
            // Trailers are read like fields.
            let section = [b"GET / HTTP/1.1\r\nHost: good\r\n", &bytes[..end + 2]].concat();
            return parse_head(&section)
                .is_ok()
                .then(|| (content, &bytes[end + 2..]));
        }
        content.extend_from_slice(bytes.get(..size)?);
        bytes = bytes.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

/// Requests of which most are well-formed and many nearly so.
fn connection() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST /a?b=c HTTP/1.1\r\n",
        "PUT http://good/x HTTP/1.1\r\n",
        "DELETE /{x}|y HTTP/1.1\r\n",
        "HEAD //x HTTP/1.1\r\n",
        "X'^` /a HTTP/1.1\r\n",
        "GET /\\ HTTP/1.1\r\n",
        "GET /`\" HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "GET http://u:p@good:1?q HTTP/1.1\r\n",
        "GET / HTTP/1.1\n",
        "\r\nGET / HTTP/1.1\r\n",
    ]);
    let field = prop::sample::select(vec![
        "X-A: b\r\n",
        "X-A:\r\n",
        "X-A: \t c d \r\n",
        "x_b: \u{fc}\r\n",
        "!#$%&'*+-.^_`|~: \"\r\n",
        "Expect: 100-continue\r\n",
        "Accept: a, b\r\nAccept: c\r\n",
        "X-A: b\n",
        "X-A : b\r\n",
        " X-A: b\r\n",
        "Host: good\r\n",
        "Content-Length: 0\r\n",
        "Upgrade: h2c\r\n",
    ]);
    let content = prop::sample::select(vec![
        "\r\n",
        "Content-Length: 5\r\n\r\nabcde",
        "Content-Length: 0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: a\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
    ]);
    let request =
        (line, prop::collection::vec(field, 0..3), content).prop_map(|(line, fields, content)| {
            format!("{line}Host: good\r\n{}{content}", fields.concat())
        });
    let strange = prop::sample::select(b"\r\n\0 \t:;,#%0\x7f\x80aZ\x0b".to_vec());
    let change = prop::option::weighted(0.5, (any::<prop::sample::Index>(), 0..3, strange));
    (prop::collection::vec(request, 1..4), change).prop_map(|(requests, change)| {
        let mut bytes = requests.concat().into_bytes();
        if let Some((index, kind, byte)) = change {
            let at = index.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cuts_do_not_matter(bytes in connection(), cuts in prop::collection::vec(any::<usize>(), 0..6), room in 1_usize..100) {
        let uncut = whole(&bytes);
        let mut strict = Strict::new(Script::new(&bytes, &cuts));
        let (all, end) = passed(&mut strict, room);
        let violation = strict.shared.violation.get().map(|v| (v.request, v.malformed));
        prop_assert_eq!(&(all, end, violation), &uncut);
        let mut strict = Strict::new(Script::one_by_one(&bytes));
        let (all, end) = passed(&mut strict, room);
        let violation = strict.shared.violation.get().map(|v| (v.request, v.malformed));
        prop_assert_eq!((all, end, violation), uncut);
    }

    #[test]
    fn hyper_reads_what_we_read(bytes in connection(), cuts in prop::collection::vec(any::<usize>(), 0..4)) {
        let expected = expected(&bytes);
        let (requests, answers) = served(Script::new(&bytes, &cuts));
        prop_assert_eq!(&requests, &expected);
        let served = answers.matches("x-served: ").count();
        let continued = answers.matches("HTTP/1.1 100").count();
        // Hyper answers nothing on its own: each answer is the service's, and so goes into the
        // record.
        prop_assert_eq!(answers.matches("HTTP/1.").count() - continued, served, "{}", answers);
        prop_assert!(served >= requests.len());
    }
}
