//! Connections to origins go back when both directions are over, however the end was told, and
//! never before.

use std::collections::HashSet;
use std::time::Duration;

use crate::rig::frames::{DATA, END_STREAM, Frames};
use crate::rig::origin::{Answer, Seen, Step, ok};
use crate::rig::sigv4::{Ask, chunks, hash};
use crate::rig::way::{Way, Wire};
use crate::rig::{GOOD, H2, MODEL, MONEY, OTHER, PLACES, Rig, S3, TELEGRAM};
use crate::rows;

rows![
    a_connection_goes_back_however_the_end_was_told,
    a_connection_of_which_something_is_left_does_not_go_back,
    each_request_gets_its_own_answer_on_a_connection_that_was_used_by_any_other,
    a_connection_on_which_a_client_logs_in_is_that_clients_alone,
    requests_that_begin_at_once_share_the_http2_connection_that_the_first_dials,
];

/// How many requests of each shape, and how many of random shapes: `KEPT_REQUESTS`.
fn requests() -> usize {
    let given = std::env::var("KEPT_REQUESTS").ok();
    given.map_or(12, |given| given.parse().unwrap())
}

/// A request as a client writes it: host, line and fields, content.
struct Shape(&'static str, &'static str, &'static [u8]);

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
const JSON: &str = "Content-Type: application/json\r\n";

/// `{N}` in a line is the number of the request; content has a length unless the fields say
/// otherwise.
const SHAPES: [Shape; 30] = [
    Shape(OTHER, "GET /kept?{N}", b""),
    Shape(OTHER, "OPTIONS /kept?{N}", b""),
    Shape(OTHER, "GET /kept?none,{N}", b""),
    Shape(OTHER, "GET /kept?same,{N}", b""),
    Shape(OTHER, "GET /kept?chunked,{N}", b""),
    Shape(OTHER, "POST /kept?{N}\r\nContent-Length: 0", b""),
    Shape(OTHER, "POST /kept?{N}", b"four"),
    Shape(OTHER, "POST /kept?{N}", &[b'l'; 100_000]),
    Shape(OTHER, "PUT /kept?{N}", b"four"),
    Shape(OTHER, "PATCH /kept?{N}", b"four"),
    Shape(OTHER, "GET /kept?{N}", b"a GET with content"),
    Shape(OTHER, "POST /kept?none,{N}", b"four"),
    Shape(OTHER, "POST /kept?chunked,{N}", b"four"),
    Shape(OTHER, "POST /kept?trailers,{N}", b"four"),
    Shape(OTHER, "POST /kept?refused,{N}", b"four"),
    Shape(OTHER, "POST /kept?{N}\r\nExpect: 100-continue", b"four"),
    Shape(
        OTHER,
        "POST /kept?{N}\r\nTransfer-Encoding: chunked",
        b"4\r\nfour\r\n0\r\n\r\n",
    ),
    Shape(
        OTHER,
        "POST /kept?{N}\r\nTransfer-Encoding: chunked",
        b"0\r\n\r\n",
    ),
    Shape(
        OTHER,
        "POST /kept?{N}\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum",
        b"4\r\nfour\r\n0\r\nx-sum: 1\r\n\r\n",
    ),
    Shape(
        OTHER,
        "GET /kept?{N}\r\nTransfer-Encoding: chunked",
        b"4\r\nfour\r\n0\r\n\r\n",
    ),
    Shape(
        OTHER,
        "POST /titles?{N}\r\nContent-Type: multipart/form-data; boundary=b",
        b"--b\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\none\r\n--b--\r\n",
    ),
    Shape(
        OTHER,
        "POST /graphql?{N}\r\nContent-Type: application/json",
        b"{\"query\":\"{viewer{login}}\"}",
    ),
    Shape(
        OTHER,
        "POST /mcp?{N}\r\nContent-Type: application/json",
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#,
    ),
    Shape(MONEY, "POST /v1/refunds?{N}\r\n{FORM}", b"amount=5"),
    Shape(
        MODEL,
        "POST /v1/messages?{N}\r\n{JSON}",
        br#"{"model":"claude-haiku-4-5","max_tokens":9}"#,
    ),
    Shape(
        GOOD,
        "GET /kept?{N}\r\nAuthorization: Bearer {PH:bearer}",
        b"",
    ),
    Shape(
        GOOD,
        "POST /kept?{N}\r\nAuthorization: Bearer {PH:bearer}",
        b"scrubbed",
    ),
    Shape(
        GOOD,
        "POST /kept?chunked,{N}\r\nX-Api-Key: {PH:xkey}\r\nTransfer-Encoding: chunked",
        b"4\r\nfour\r\n0\r\n\r\n",
    ),
    Shape(TELEGRAM, "POST /bot{PH:telegram}/kept?{N}", b"in the path"),
    Shape(PLACES, "POST /kept?{N}\r\n{FORM}", b"a=1&token={PH:field}"),
];

impl Shape {
    /// The request with this number.
    fn written(&self, rig: &Rig, way: Way, number: usize) -> Vec<u8> {
        let Self(host, line, content) = self;
        let (line, fields) = line.split_once("\r\n").unwrap_or((line, ""));
        let line = line.replace("{N}", &number.to_string());
        let mut head = format!("{line} HTTP/1.1\r\nHost: {{H}}\r\n");
        let fields = fields.replace("{FORM}", FORM).replace("{JSON}", JSON);
        let fields = fields.trim_end();
        if !fields.is_empty() {
            head.push_str(&format!("{fields}\r\n"));
        }
        let content = match content.first() {
            Some(b'a') => {
                let phantom = canary_percent(rig.phantom(way, "field"));
                String::from_utf8_lossy(content)
                    .replace("{PH:field}", &phantom)
                    .into_bytes()
            }
            _ => content.to_vec(),
        };
        let is_framed = fields.contains("Transfer-Encoding") || fields.contains("Content-Length");
        if !content.is_empty() && !is_framed {
            head.push_str(&format!("Content-Length: {}\r\n", content.len()));
        }
        let head = rig.fill(way, host, &format!("{head}\r\n"));
        [head, content].concat()
    }
}

fn canary_percent(text: &str) -> String {
    crate::rig::canary::percent(text.as_bytes(), |byte| byte.is_ascii_alphanumeric())
}

/// What the origin answers: what it got, with its end told as the query asks.
fn told(seen: &Seen) -> String {
    let query = seen.target.split_once('?').unwrap_or_default().1;
    format!("{} {query} {}", seen.method, seen.body.len())
}

fn echo(seen: &Seen) -> Vec<Step> {
    let text = told(seen);
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
    let chunk = format!("{:x}\r\n{text}\r\n0\r\n", text.len());
    let query = seen.target.split_once('?').unwrap_or_default().1;
    let bytes = match query.split(',').next().unwrap_or_default() {
        "none" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        "same" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n".to_owned(),
        "chunked" => format!("{head}\r\n{chunk}\r\n"),
        "trailers" => format!("{head}Trailer: x-sum\r\n\r\n{chunk}x-sum: 1\r\n\r\n"),
        "refused" => format!(
            "HTTP/1.1 500 Not Now\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        ),
        _ => return ok("", text.as_bytes()),
    };
    vec![Step::Bytes(bytes.into_bytes())]
}

fn echoes(rig: &Rig) {
    for path in [
        "/kept",
        "/titles",
        "/graphql",
        "/mcp",
        "/v1/refunds",
        "/v1/messages",
    ] {
        rig.origins.on(path, echo);
    }
    let path = format!("/bot{}/kept", rig.secret("telegram"));
    rig.origins.on(&path, echo);
    rig.origins.on2("/kept", |seen| Answer {
        data: vec![told(seen).into_bytes()],
        ..Answer::default()
    });
}

/// Asks, and checks that the answer is to this request.
fn ask(rig: &Rig, wire: &mut Wire, way: Way, shape: &Shape, number: usize) -> Seen {
    let answer = wire.ask(&shape.written(rig, way, number));
    let record = rig.record(way);
    let mut seen = rig.seen();
    assert_eq!(seen.len(), 1, "{} {answer:?} {record}", shape.1);
    let seen = seen.remove(0);
    let expected = match answer.status {
        204 | 304 => String::new(),
        200 | 500 => told(&seen),
        _ => panic!("{} {answer:?} {record}", shape.1),
    };
    let query = seen.target.split_once('?').unwrap_or_default().1;
    assert_eq!(answer.text(), expected, "{}", shape.1);
    assert!(query.ends_with(&number.to_string()), "{query} {number}");
    seen
}

/// The gateway's threads each keep their own connections.
const THREADS: usize = 2;

fn a_connection_goes_back_however_the_end_was_told(rig: &Rig) {
    echoes(rig);
    for way in [Way::Connect, Way::Transparent] {
        for shape in &SHAPES {
            let mut wire = rig.open(way, shape.0);
            let used: HashSet<u64> = (0..requests())
                .map(|number| ask(rig, &mut wire, way, shape, number).connection)
                .collect();
            let shown = shape.1.replace("\r\n", " ");
            println!("{:>3} connections  {way:?} {} {shown}", used.len(), shape.0);
            assert!(used.len() <= THREADS, "{way:?} {}: {used:?}", shape.1);
        }
        signed(rig, way);
        over_http2(rig, way);
    }
}

/// Signed for its hash, and in chunks that are signed again.
fn signed(rig: &Rig, way: Way) {
    let key = rig.key(way, "aws");
    let pieces: [&[u8]; 2] = [&[b'a'; 70_000], b"the rest"];
    let mut wire = rig.open(way, S3);
    for is_chunked in [false, true] {
        let mut used = HashSet::new();
        for _ in 0..requests() {
            let put = Ask {
                method: "PUT",
                body: b"signed".to_vec(),
                payload: Some(hash(b"signed")),
                ..Ask::default()
            };
            let request = match is_chunked {
                false => put.write(S3, &key, ""),
                true => {
                    let (head, seed) =
                        crate::signing::chunked(&pieces).write_with_seed(S3, &key, "");
                    [head, chunks(&pieces, &key.secret, seed)].concat()
                }
            };
            let answer = wire.ask(&request);
            assert_eq!(
                (answer.status, rig.record(way)["status"].as_u64()),
                (200, Some(200))
            );
            used.insert(rig.seen().remove(0).connection);
        }
        assert!(used.len() <= THREADS, "{way:?} {is_chunked}: {used:?}");
    }
}

/// The same over HTTP/2, from the client, to the origin, and both.
fn over_http2(rig: &Rig, way: Way) {
    for host in [OTHER, H2] {
        let mut frames = rig.frames(way, host);
        let mut used = HashSet::new();
        for number in 0..requests() {
            let stream = 1 + 2 * number as u32;
            let used_by = posted(rig, &mut frames, way, host, stream);
            used.insert(used_by);
        }
        assert!(used.len() <= THREADS, "{way:?} {host}: {used:?}");
    }
    let mut wire = rig.open(way, H2);
    let shape = Shape(H2, "POST /kept?{N}", b"four");
    let used: HashSet<u64> = (0..requests())
        .map(|number| ask(rig, &mut wire, way, &shape, number).connection)
        .collect();
    assert!(used.len() <= THREADS, "{way:?}: {used:?}");
}

/// Posts on a stream, and returns the origin's connection. The content's end is told in a frame of
/// its own for every other stream.
fn posted(rig: &Rig, frames: &mut Frames, way: Way, host: &str, stream: u32) -> u64 {
    let path = format!("/kept?{stream}");
    let fields = [
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", host),
        (":path", path.as_str()),
        ("content-length", "4"),
    ];
    let has_length = stream % 8 < 4;
    frames.headers(stream, &fields[..if has_length { 5 } else { 4 }], false);
    if stream % 4 == 1 {
        frames.frame(DATA, END_STREAM, stream, b"four");
    } else {
        frames.frame(DATA, 0, stream, b"four");
        frames.frame(DATA, END_STREAM, stream, b"");
    }
    let fate = frames.fate(stream);
    assert!(fate.answered, "{way:?} {host} {fate:?}");
    rig.record(way);
    rig.seen().remove(0).connection
}

fn a_connection_of_which_something_is_left_does_not_go_back(rig: &Rig) {
    echoes(rig);
    // Answers when it has the head, and more than it says. What follows is no part of either. A
    // short text would be read for a request for tokens before it goes on.
    rig.origins.on("/early", |_| ok("", b"early"));
    rig.origins.on("/more", |_| {
        let more = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
        vec![Step::Bytes(
            [
                &b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsaid"[..],
                more,
            ]
            .concat(),
        )]
    });
    for way in Way::SECURE {
        for (path, got, left) in [("/early", "early", &b"half"[..]), ("/more", "said", b"")] {
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {{H}}\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\nhalf",
                4 + left.len()
            );
            let mut wire = rig.open(way, OTHER);
            let answer = wire.ask(&rig.fill(way, OTHER, &head));
            assert_eq!(answer.text(), got, "{way:?} {answer:?}");
            rig.record(way);
            let first = rig.seen().remove(0).connection;
            wire.send(left);
            std::thread::sleep(Duration::from_millis(20));
            let mut wire = rig.open(way, OTHER);
            for number in 0..4 {
                let next = ask(rig, &mut wire, way, &SHAPES[6], number);
                assert_ne!(next.connection, first, "{way:?} {path}");
            }
        }
    }
    rig.ends_now();
}

fn each_request_gets_its_own_answer_on_a_connection_that_was_used_by_any_other(rig: &Rig) {
    echoes(rig);
    let same: Vec<&Shape> = SHAPES.iter().filter(|shape| shape.0 == OTHER).collect();
    let mut random = vec![0; requests() * 16];
    getrandom::fill(&mut random).unwrap();
    for way in [Way::Connect, Way::Transparent] {
        let mut wires = [(); 3].map(|()| rig.open(way, OTHER));
        let mut used = HashSet::new();
        for (number, pair) in random.chunks(2).enumerate() {
            let shape = same[usize::from(pair[0]) % same.len()];
            let wire = &mut wires[usize::from(pair[1]) % 3];
            used.insert(ask(rig, wire, way, shape, number).connection);
        }
        assert!(used.len() <= THREADS, "{way:?}: {used:?}");
    }
}

fn requests_that_begin_at_once_share_the_http2_connection_that_the_first_dials(rig: &Rig) {
    const AT_ONCE: u32 = 40;
    echoes(rig);
    for (way, session) in [(Way::Connect, "cookie"), (Way::Tls, "query")] {
        // Another identity than the other rows use, so nothing is open.
        let phantom = rig.phantom(way, session).to_owned();
        let (cookie, path) = match session {
            "cookie" => (format!("sid={phantom}"), "/kept".to_owned()),
            _ => (
                String::new(),
                format!("/kept?key={}", canary_percent(&phantom)),
            ),
        };
        let mut frames = rig.frames(way, H2);
        let streams: Vec<u32> = (0..AT_ONCE).map(|at| 2 * at + 1).collect();
        for stream in &streams {
            let cookie = [("cookie", cookie.as_str())];
            frames.get(
                *stream,
                H2,
                &path,
                if cookie[0].1.is_empty() { &[] } else { &cookie },
            );
        }
        let fates = frames.fates(&streams);
        assert!(fates.iter().all(|fate| fate.answered), "{way:?} {fates:?}");
        rig.records(way, AT_ONCE as usize);
        let used: HashSet<u64> = rig.seen().iter().map(|seen| seen.connection).collect();
        assert!(used.len() <= THREADS, "{way:?}: {used:?}");
    }
}

/// NTLM and its kin: who logged in is whoever uses the connection next.
fn a_connection_on_which_a_client_logs_in_is_that_clients_alone(rig: &Rig) {
    for scheme in ["NTLM", "Negotiate", "Basic realm=\"a\", negotiate"] {
        let challenge = format!("WWW-Authenticate: {scheme}");
        rig.origins.on("/mine", move |seen| {
            match seen.all("authorization").is_empty() {
                true => vec![Step::Bytes(
                    format!("HTTP/1.1 401 N\r\n{challenge}\r\nContent-Length: 0\r\n\r\n")
                        .into_bytes(),
                )],
                false => ok("", b"you are in"),
            }
        });
        for way in Way::SECURE {
            rig.origins.take_seen();
            let ask = |wire: &mut Wire, path: &str, fields: &str| {
                let line = format!("GET {{T}}{path} HTTP/1.1\r\nHost: {{H}}\r\n{fields}\r\n");
                let status = wire.ask(&rig.fill(way, OTHER, &line)).status;
                rig.record(way);
                (status, rig.seen().remove(0).connection)
            };
            let (mut one, mut other) = (rig.open(way, OTHER), rig.open(way, OTHER));
            let (status, mine) = ask(&mut one, "/mine", "");
            assert_eq!(status, 401, "{way:?} {scheme}");
            for _ in 0..3 {
                let (status, theirs) = ask(&mut other, "/kept", "");
                assert_eq!(status, 200);
                assert_ne!(theirs, mine, "{way:?} {scheme}");
                let again = ask(
                    &mut one,
                    "/mine",
                    "Authorization: Negotiate TlRMTVNTUAAB\r\n",
                );
                assert_eq!(again, (200, mine), "{way:?} {scheme}");
                assert_eq!(ask(&mut one, "/kept", ""), (200, mine), "{way:?} {scheme}");
            }
        }
    }
    rig.ends_now();
}
