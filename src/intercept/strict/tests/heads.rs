//! Request lines and fields.

use super::*;

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
    let Ok(Some(head)) = parse_head(bytes) else {
        panic!("a good head")
    };
    assert_eq!((head.method, head.target), (&b"POST"[..], &b"/a?b"[..]));
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
    assert!((0..head.length).all(|cut| matches!(parse_head(&bytes[..cut]), Ok(None))));
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
        refused(bytes.as_bytes(), WireMalformed::LineEnd);
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
        refused(with_fields(field).as_bytes(), WireMalformed::Field);
    }
}

#[test]
fn there_is_exactly_one_host() {
    refused(b"GET / HTTP/1.1\r\n\r\n", WireMalformed::HostCount);
    refused(b"GET / HTTP/1.0\r\n\r\n", WireMalformed::HostCount);
    refused(
        b"CONNECT good:443 HTTP/1.1\r\n\r\n",
        WireMalformed::HostCount,
    );
    assert!(matches!(
        parse_head(b"CONNECT good:443 HTTP/1.0\r\n\r\n"),
        Ok(Some(_))
    ));
    refused(
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        WireMalformed::HostCount,
    );
    refused(
        b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nhOST: b\r\n\r\n",
        WireMalformed::HostCount,
    );
    refused(b"GET / HTTP/1.1\r\nHost:\r\n\r\n", WireMalformed::HostCount);
    refused(
        b"GET / HTTP/1.1\r\nHost: \t\r\n\r\n",
        WireMalformed::HostCount,
    );
}

#[test]
fn a_request_line_is_method_target_version() {
    for (line, malformed) in [
        ("GET /", WireMalformed::Version),
        ("GET", WireMalformed::Version),
        ("GET / HTTP/1.2", WireMalformed::Version),
        ("GET / HTTP/2.0", WireMalformed::Version),
        ("GET / HTTP/0.9", WireMalformed::Version),
        ("PRI * HTTP/2.0", WireMalformed::Version),
        ("GET / HTTP/1.1 ", WireMalformed::RequestLine),
        ("GET / http/1.1", WireMalformed::RequestLine),
        ("GET / HTTP/1.10", WireMalformed::RequestLine),
        ("GET / HTTP/01.1", WireMalformed::RequestLine),
        ("GET / HTTP/1,1", WireMalformed::RequestLine),
        ("GET / HTTPS/1.1", WireMalformed::RequestLine),
        ("GET  / HTTP/1.1", WireMalformed::RequestLine),
        ("GET /  HTTP/1.1", WireMalformed::RequestLine),
        ("GET / a HTTP/1.1", WireMalformed::RequestLine),
        ("GET /\tHTTP/1.1", WireMalformed::Version),
        ("GET\t/ HTTP/1.1", WireMalformed::Method),
        (" GET / HTTP/1.1", WireMalformed::Method),
        ("G=\":< / HTTP/1.1", WireMalformed::Method),
        ("GÉT / HTTP/1.1", WireMalformed::Method),
        ("\0GET / HTTP/1.1", WireMalformed::Method),
        ("", WireMalformed::RequestLine),
        ("\r\nGET / HTTP/1.1", WireMalformed::RequestLine),
        ("GET /a\0 HTTP/1.1", WireMalformed::Target),
        ("GET /< HTTP/1.1", WireMalformed::Target),
        ("GET /a#b HTTP/1.1", WireMalformed::Target),
        ("GET /a\x0bb HTTP/1.1", WireMalformed::Target),
        ("GET /<a> HTTP/1.1", WireMalformed::Target),
        ("GET evil:443 HTTP/1.1", WireMalformed::TargetForm),
        ("GET evil HTTP/1.1", WireMalformed::TargetForm),
        ("GET * HTTP/1.1", WireMalformed::TargetForm),
        ("GET ftp://good/x HTTP/1.1", WireMalformed::Scheme),
        ("GET unix://good/x HTTP/1.1", WireMalformed::Scheme),
        ("GET http:/good HTTP/1.1", WireMalformed::Target),
    ] {
        refused(
            format!("{line}\r\nHost: good\r\n\r\n").as_bytes(),
            malformed,
        );
    }
    assert_eq!(WireMalformed::Version.reason().status(), 505);
}

#[test]
fn a_fault_is_seen_before_the_head_is_whole() {
    assert_eq!(parse_head(b"GET /\r\n").err(), Some(WireMalformed::Version));
    assert_eq!(
        parse_head(b"GET / HTTP/1.1\n").err(),
        Some(WireMalformed::LineEnd)
    );
    assert_eq!(
        parse_head(b"GET / HTTP/1.1\r\nX y\r\n").err(),
        Some(WireMalformed::Field)
    );
    assert_eq!(
        parse_head(&b"\r\n".repeat(1000)).err(),
        Some(WireMalformed::RequestLine)
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
    refused(target(8193).as_bytes(), WireMalformed::TargetTooLong);
    assert_eq!(
        violation(&[b'A'; 10_000]),
        Some(WireMalformed::TargetTooLong)
    );
    assert_eq!(
        violation(&target(20_000).as_bytes()[..10_000]),
        Some(WireMalformed::TargetTooLong)
    );
    let fields = |count: usize| {
        format!(
            "GET / HTTP/1.1\r\nHost: good\r\n{}\r\n",
            "X: y\r\n".repeat(count - 1)
        )
    };
    accepted(fields(100).as_bytes());
    refused(fields(101).as_bytes(), WireMalformed::FieldsTooLarge);
    let size = |bytes: usize| {
        format!(
            "GET / HTTP/1.1\r\nHost: good\r\nX: {}\r\n\r\n",
            "y".repeat(bytes - 12 - 5)
        )
    };
    accepted(size(32 * 1024).as_bytes());
    refused(
        size(32 * 1024 + 1).as_bytes(),
        WireMalformed::FieldsTooLarge,
    );
    assert_eq!(
        violation(&size(1_000_000).as_bytes()[..50_000]),
        Some(WireMalformed::FieldsTooLarge)
    );
    refused(
        format!("{} / HTTP/1.1\r\nHost: good\r\n\r\n", "A".repeat(33)).as_bytes(),
        WireMalformed::Method,
    );
    assert_eq!(WireMalformed::TargetTooLong.reason().status(), 414);
    assert_eq!(WireMalformed::FieldsTooLarge.reason().status(), 431);
}

#[test]
fn what_begins_no_method_is_refused_before_its_line_ends() {
    for bytes in [&b"\x10"[..], b"AMQP\0", b"\xff", b"GET\t", b"G\xc3"] {
        assert_eq!(violation(bytes), Some(WireMalformed::Method), "{bytes:?}");
    }
    for bytes in [&b"G"[..], b"GET", b"GET ", b"*", b"G\r"] {
        assert_eq!(violation(bytes), None, "{bytes:?}");
    }
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
        refused(with_fields(fields).as_bytes(), WireMalformed::Expectation);
    }
    assert_eq!(WireMalformed::Expectation.reason().status(), 417);
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
            matches!(malformed, WireMalformed::Authority(_))
                && malformed.reason().as_str() == reason,
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
            WireMalformed::Framing,
        );
    }
}
