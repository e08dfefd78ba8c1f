//! The strict parser in front of hyper: what hyper reads, however the bytes are split.

use std::convert::Infallible;

use bytes::Bytes;
use gateway_wire::{Framing, HeadReader};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;

use super::*;

#[test]
fn hyper_answers_a_malformed_request_through_the_service_and_closes() {
    let bytes = b"GET /1 HTTP/1.1\r\nHost: good\r\n\r\nGET /2 HTTP/1.1\nHost: good\n\nGET /3 HTTP/1.1\r\nHost: good\r\n\r\n";
    let (requests, answers) = served(Pieces::new(bytes, &[]));
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
    let (requests, _) = served(Pieces::new(
        format!("{good}5\r\nabcde\r\n0;x\r\n\r\n").as_bytes(),
        &[],
    ));
    assert!(requests.is_empty());
    let (requests, _) = served(Pieces::new(
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

/// Returns what a service behind hyper receives on a connection, and the responses that the client
/// receives.
fn served(script: Pieces) -> (Vec<Got>, String) {
    let written = Arc::clone(&script.written);
    let got = Arc::new(Mutex::new(Vec::new()));
    let strict = StrictStream::new(script);
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

/// Returns the complete requests of a connection up to the first fault, by a second, simpler parser
/// of the content.
fn expected(mut bytes: &[u8]) -> Vec<Got> {
    let mut all = Vec::new();
    while let Ok(Some(head)) = parse_head(bytes) {
        let rest = &bytes[head.length..];
        let mut reader = HeadReader::default();
        reader.read(bytes).unwrap();
        let Some((content, after)) = (match reader.framing() {
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
            // Trailers are parsed like fields.
            let section = [b"GET / HTTP/1.1\r\nHost: good\r\n", &bytes[..end + 2]].concat();
            return parse_head(&section)
                .is_ok()
                .then(|| (content, &bytes[end + 2..]));
        }
        content.extend_from_slice(bytes.get(..size)?);
        bytes = bytes.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

/// Generates requests, most of them well-formed and many nearly so.
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
        let mut strict = StrictStream::new(Pieces::new(&bytes, &cuts));
        let (all, end) = passed(&mut strict, room);
        let violation = strict.shared.violation.get().map(|v| (v.request, v.malformed));
        prop_assert_eq!(&(all, end, violation), &uncut);
        let mut strict = StrictStream::new(Pieces::one_by_one(&bytes));
        let (all, end) = passed(&mut strict, room);
        let violation = strict.shared.violation.get().map(|v| (v.request, v.malformed));
        prop_assert_eq!((all, end, violation), uncut);
    }

    #[test]
    fn hyper_reads_what_we_read(bytes in connection(), cuts in prop::collection::vec(any::<usize>(), 0..4)) {
        let expected = expected(&bytes);
        let (requests, answers) = served(Pieces::new(&bytes, &cuts));
        prop_assert_eq!(&requests, &expected);
        let served = answers.matches("x-served: ").count();
        let continued = answers.matches("HTTP/1.1 100").count();
        // hyper answers nothing on its own: every response comes from the service, and so has a
        // record.
        prop_assert_eq!(answers.matches("HTTP/1.").count() - continued, served, "{}", answers);
        prop_assert!(served >= requests.len());
    }
}
