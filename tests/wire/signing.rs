//! Group J: requests that a credential signs. E verifies with the real key what a client signed
//! with its phantom.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::rig::canary::{hex, percent, random};
use crate::rig::origin::{Seen, ok};
use crate::rig::sigv4::{Ask, Judged, Key, chunks, hash, judge, mac};
use crate::rig::way::{Response, Way};
use crate::rig::{DB, EXCHANGE, EXPRESS, OTHER, PUBLIC, Rig, S3, STS};
use crate::rows;

rows![
    a_signed_request_is_signed_again_with_the_real_key,
    content_is_covered_in_every_way,
    content_that_is_not_what_was_signed_never_arrives_whole,
    keys_of_objects_arrive_as_they_were_signed,
    a_presigned_request_is_signed_anew_and_short_lived,
    a_signature_for_another_scope_is_refused,
    a_signature_that_covers_too_little_is_refused,
    a_signature_that_reads_in_two_ways_is_refused,
    a_signature_of_another_time_is_refused_and_of_nearly_now_is_not,
    a_signature_of_another_key_is_refused,
    what_returns_credentials_is_refused,
    temporary_credentials_stay_in_the_gateway,
    a_session_of_s3_express_stays_in_the_gateway,
    an_answer_with_credentials_that_cannot_be_read_is_not_given_on,
    an_action_that_is_said_twice_is_refused,
    the_phantoms_of_a_signing_credential_go_nowhere_else,
    a_request_without_a_signature_gets_none,
    a_request_is_signed_by_a_recipe,
    what_was_minted_is_refused_out_of_place_and_in_another_session,
];

/// Sends bytes, and gives the answer.
pub fn send(rig: &Rig, way: Way, host: &str, bytes: &[u8]) -> Response {
    rig.open(way, host).ask(bytes)
}

pub fn before(way: Way, host: &str) -> String {
    if way == Way::Forward {
        format!("http://{host}")
    } else {
        String::new()
    }
}

/// Signs, sends, and expects that E finds the real key's signature.
pub fn through(rig: &Rig, way: Way, host: &str, name: &str, ask: &Ask) -> (Seen, Judged) {
    let bytes = ask.write(host, &rig.key(way, name), &before(way, host));
    let answer = send(rig, way, host, &bytes);
    let record = rig.record(way);
    assert_eq!(answer.status, 200, "{way:?} {answer:?} {record}");
    assert_eq!(record["lent"][0]["place"], "sign:sigv4", "{record}");
    judged_of(rig, name)
}

pub fn judged_of(rig: &Rig, name: &str) -> (Seen, Judged) {
    let seen = rig.seen().remove(0);
    match judge(&seen, &rig.real_key(name)) {
        Ok(judged) => (seen, judged),
        Err(why) => panic!("{why}\n{}", String::from_utf8_lossy(&seen.raw)),
    }
}

/// Sends, and expects a refusal in the service's shape, and that E gets nothing.
pub fn refused(
    rig: &Rig,
    way: Way,
    host: &str,
    bytes: &[u8],
    status: u16,
    reason: &str,
) -> Response {
    let answer = send(rig, way, host, bytes);
    let record = rig.record(way);
    assert_eq!(
        (answer.status, record["reason"].as_str()),
        (status, Some(reason)),
        "{way:?}: {answer:?} {record}\n{}",
        String::from_utf8_lossy(bytes)
    );
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(
        text.contains(reason) && text.contains("gateway why"),
        "{text}"
    );
    assert!(rig.seen().is_empty(), "E got something");
    answer
}

pub fn put(body: &[u8]) -> Ask {
    Ask {
        method: "PUT",
        body: body.to_vec(),
        payload: Some(hash(body)),
        ..Ask::default()
    }
}

/// R15, on every secure way; keys with and without a session token.
fn a_signed_request_is_signed_again_with_the_real_key(rig: &Rig) {
    for way in Way::SECURE {
        for name in ["aws", "temp"] {
            through(rig, way, S3, name, &Ask::default());
            let (_, judged) = through(rig, way, S3, name, &put(b"content"));
            assert_eq!(judged.body, b"content");
        }
    }
    for way in [Way::Connect, Way::Transparent] {
        let ask = Ask {
            query: "list-type=2&prefix=a%2Fb%20c&delimiter=%2F&empty".into(),
            fields: vec![
                ("range".into(), "bytes=0-9".into()),
                ("accept-encoding".into(), "identity".into()),
                ("x-amz-meta-note".into(), "a   b".into()),
            ],
            ..Ask::default()
        };
        let (seen, judged) = through(rig, way, S3, "aws", &ask);
        assert_eq!(seen.all("range"), ["bytes=0-9"]);
        assert_eq!(seen.all("accept-encoding"), ["identity"]);
        assert!(judged.signed.iter().any(|name| name == "range"));
    }
}

pub fn post(body: &[u8], target: &str) -> Ask {
    Ask {
        method: "POST",
        path: "/".into(),
        service: "dynamodb",
        region: "eu-central-1",
        body: body.to_vec(),
        payload: None,
        fields: vec![
            ("content-type".into(), "application/x-amz-json-1.0".into()),
            ("x-amz-target".into(), target.into()),
        ],
        ..Ask::default()
    }
}

pub fn chunked(pieces: &[&[u8]]) -> Ask {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    let chunk = |piece: &[u8]| format!("{:x}", piece.len()).len() + 83 + piece.len() + 2;
    let whole: usize = pieces.iter().copied().chain([&b""[..]]).map(chunk).sum();
    Ask {
        method: "PUT",
        payload: Some("STREAMING-AWS4-HMAC-SHA256-PAYLOAD".into()),
        fields: vec![
            ("content-encoding".into(), "aws-chunked".into()),
            ("x-amz-decoded-content-length".into(), length.to_string()),
            ("content-length".into(), whole.to_string()),
        ],
        ..Ask::default()
    }
}

/// J07: no hash (held), a hash, none of it, in signed chunks.
fn content_is_covered_in_every_way(rig: &Rig) {
    for way in [Way::Connect, Way::Tls, Way::Transparent] {
        for name in ["aws", "temp"] {
            let (seen, judged) = through(
                rig,
                way,
                DB,
                name,
                &post(b"{\"TableName\":\"t\"}", "DynamoDB_20120810.Scan"),
            );
            assert_eq!(judged.body, b"{\"TableName\":\"t\"}");
            assert_eq!(seen.all("content-length"), ["17"]);
            let unsigned = Ask {
                payload: Some("UNSIGNED-PAYLOAD".into()),
                ..put(b"anything")
            };
            through(rig, way, S3, name, &unsigned);
            let pieces: [&[u8]; 2] = [&[b'a'; 70_000], b"the rest"];
            let key = rig.key(way, name);
            let (head, seed) = chunked(&pieces).write_with_seed(S3, &key, &before(way, S3));
            let answer = send(
                rig,
                way,
                S3,
                &[head, chunks(&pieces, &key.secret, seed)].concat(),
            );
            let record = rig.record(way);
            assert_eq!(answer.status, 200, "{answer:?} {record}");
            let (_, judged) = judged_of(rig, name);
            assert_eq!(judged.body, pieces.concat());
        }
    }
    // A client that waits for 100 gets it, whether its content is held or not.
    for (host, ask) in [
        (DB, post(b"{}", "DynamoDB_20120810.ListTables")),
        (S3, put(b"12")),
    ] {
        let way = Way::Connect;
        let ask = Ask {
            fields: [
                ask.fields.clone(),
                vec![("expect".into(), "100-continue".into())],
            ]
            .concat(),
            unsigned: vec!["expect"],
            ..ask
        };
        let bytes = ask.write(host, &rig.key(way, "aws"), "");
        let (head, body) = bytes.split_at(bytes.len() - 2);
        let mut wire = rig.open(way, host);
        wire.send(head);
        let interim = wire.line(b"\r\n\r\n").expect("an interim answer");
        assert!(interim.starts_with(b"HTTP/1.1 100"), "{interim:?}");
        let answer = wire.ask(body);
        assert_eq!(answer.status, 200, "{answer:?}");
        rig.record(way);
        judged_of(rig, "aws");
    }
}

/// J07: E never takes what was cut for the whole.
fn content_that_is_not_what_was_signed_never_arrives_whole(rig: &Rig) {
    let way = Way::Connect;
    let key = rig.key(way, "aws");
    let cut = |bytes: &[u8], reason: &str| {
        let answer = send(rig, way, S3, bytes);
        let record = rig.record(way);
        assert_eq!(
            (answer.status, record["reason"].as_str()),
            (403, Some(reason)),
            "{answer:?} {record}"
        );
        assert!(rig.seen().is_empty(), "E got a whole request");
    };
    let mut wrong = put(&[b'a'; 300_000]).write(S3, &key, "");
    *wrong.last_mut().unwrap() = b'b';
    cut(&wrong, "sigv4_content");
    let pieces: [&[u8]; 2] = [&[b'a'; 300_000], b"the rest"];
    let (head, seed) = chunked(&pieces).write_with_seed(S3, &key, "");
    let mut body = chunks(&pieces, &key.secret, seed);
    let at = memchr::memmem::find(&body, b"the rest").unwrap();
    body[at] = b'T';
    cut(&[head, body].concat(), "sigv4_streaming");
    // What is held is judged before anything is sent.
    let mut held = post(b"{}", "DynamoDB_20120810.ListTables").write(DB, &key, "");
    *held.last_mut().unwrap() = b' ';
    refused(rig, way, DB, &held, 403, "sigv4_mismatch");
    let long = post(&vec![b' '; (16 << 20) + 1], "DynamoDB_20120810.ListTables");
    let head = long.write(DB, &key, "");
    let head = &head[..head.len() - long.body.len()];
    refused(rig, way, DB, head, 413, "content_too_long");
}

/// J08: what a path means to S3 is what stands in it.
fn keys_of_objects_arrive_as_they_were_signed(rig: &Rig) {
    for (path, arrives) in [
        ("/bucket/a%20b%2Bc%25d", "/bucket/a%20b%2Bc%25d"),
        ("/bucket/%C3%A9/%E2%82%AC", "/bucket/%C3%A9/%E2%82%AC"),
        ("/bucket/a/../b/./c", "/bucket/a/../b/./c"),
        ("/bucket//a///b/", "/bucket//a///b/"),
        ("/bucket/a%2fb", "/bucket/a/b"),
        ("/bucket/%7Ea", "/bucket/~a"),
        ("/bucket/a(b)*!'", "/bucket/a(b)*!'"),
        ("/bucket/.hidden", "/bucket/.hidden"),
    ] {
        for way in [Way::Connect, Way::Transparent] {
            let ask = Ask {
                path: path.into(),
                ..Ask::default()
            };
            let (seen, _) = through(rig, way, S3, "aws", &ask);
            assert_eq!(seen.target, arrives);
        }
    }
    // The bucket in the host.
    let ask = Ask {
        path: "/a//b".into(),
        ..Ask::default()
    };
    let (seen, _) = through(rig, Way::Connect, "bucket.s3.rig.test", "temp", &ask);
    assert_eq!(seen.host, "bucket.s3.rig.test");
}

/// J04.
fn a_presigned_request_is_signed_anew_and_short_lived(rig: &Rig) {
    for way in [Way::Connect, Way::Tls, Way::Transparent] {
        for name in ["aws", "temp"] {
            for (method, body) in [("GET", &b""[..]), ("PUT", b"content")] {
                let ask = Ask {
                    method,
                    query: "versionId=1".into(),
                    ..Ask::default()
                };
                let target = ask.presign(S3, &rig.key(way, name), 604_800);
                let bytes = format!(
                    "{method} {target} HTTP/1.1\r\nHost: {S3}\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                let answer = send(rig, way, S3, &[bytes.as_bytes(), body].concat());
                let record = rig.record(way);
                assert_eq!(answer.status, 200, "{answer:?} {record}");
                let (seen, judged) = judged_of(rig, name);
                assert_eq!((judged.expires, seen.body.as_slice()), (Some(60), body));
            }
        }
    }
    let key = rig.key(Way::Connect, "aws");
    let line = |target: String| format!("GET {target} HTTP/1.1\r\nHost: {S3}\r\n\r\n");
    let old = Ask {
        skew: -120,
        ..Ask::default()
    };
    let bytes = line(old.presign(S3, &key, 60));
    refused(
        rig,
        Way::Connect,
        S3,
        bytes.as_bytes(),
        403,
        "signature_expired",
    );
    let bytes = line(Ask::default().presign(S3, &key, 604_801));
    refused(rig, Way::Connect, S3, bytes.as_bytes(), 400, "sigv4_expiry");
    let bytes = line(Ask::default().presign(S3, &key, 60)).replace("key?", "other?");
    refused(
        rig,
        Way::Connect,
        S3,
        bytes.as_bytes(),
        403,
        "sigv4_mismatch",
    );
}

/// J01, J12.
fn a_signature_for_another_scope_is_refused(rig: &Rig) {
    for way in Way::SECURE {
        for (service, region) in [
            ("sts", "us-east-1"),
            ("s3", "eu-central-1"),
            ("dynamodb", "eu-central-1"),
        ] {
            let ask = Ask {
                service,
                region,
                ..Ask::default()
            };
            let bytes = ask.write(S3, &rig.key(way, "aws"), &before(way, S3));
            let answer = refused(rig, way, S3, &bytes, 403, "sigv4_scope");
            assert!(
                answer.text().contains("<Code>AccessDenied</Code>"),
                "{answer:?}"
            );
        }
    }
    let hostile = Ask {
        region: "us-east-1#.evil",
        ..Ask::default()
    };
    let bytes = hostile.write(S3, &rig.key(Way::Connect, "aws"), "");
    refused(rig, Way::Connect, S3, &bytes, 403, "sigv4_scope");
}

/// J02.
fn a_signature_that_covers_too_little_is_refused(rig: &Rig) {
    let key = rig.key(Way::Connect, "aws");
    for name in ["host", "x-amz-acl", "x-amz-content-sha256"] {
        let ask = Ask {
            fields: vec![("x-amz-acl".into(), "public-read".into())],
            unsigned: vec![name],
            ..Ask::default()
        };
        refused(
            rig,
            Way::Connect,
            S3,
            &ask.write(S3, &key, ""),
            403,
            "sigv4_unsigned",
        );
    }
    // What comes on top of what was signed is not signed either.
    let bytes = Ask::default().write(S3, &key, "");
    let text = String::from_utf8(bytes).unwrap();
    let more = text.replacen("\r\n", "\r\nx-amz-acl: public-read\r\n", 1);
    refused(
        rig,
        Way::Connect,
        S3,
        more.as_bytes(),
        403,
        "sigv4_unsigned",
    );
}

/// J05.
fn a_signature_that_reads_in_two_ways_is_refused(rig: &Rig) {
    let key = rig.key(Way::Connect, "aws");
    let text = String::from_utf8(Ask::default().write(S3, &key, "")).unwrap();
    let authorization = text
        .lines()
        .find(|line| line.starts_with("authorization"))
        .unwrap();
    let presigned = Ask::default().presign(S3, &key, 60);
    let both = format!("GET {presigned} HTTP/1.1\r\nHost: {S3}\r\n{authorization}\r\n\r\n");
    refused(
        rig,
        Way::Connect,
        S3,
        both.as_bytes(),
        400,
        "sigv4_ambiguous",
    );
    let twice =
        format!("GET {presigned}&X-Amz-Date=20200101T000000Z HTTP/1.1\r\nHost: {S3}\r\n\r\n");
    refused(
        rig,
        Way::Connect,
        S3,
        twice.as_bytes(),
        400,
        "sigv4_ambiguous",
    );
    let old = format!(
        "GET /bucket/key HTTP/1.1\r\nHost: {S3}\r\nAuthorization: AWS {}:c2ln\r\n\r\n",
        key.id
    );
    refused(
        rig,
        Way::Connect,
        S3,
        old.as_bytes(),
        403,
        "sigv4_algorithm",
    );
    let form = format!(
        "POST /bucket HTTP/1.1\r\nHost: {S3}\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 0\r\n\r\n"
    );
    refused(
        rig,
        Way::Connect,
        S3,
        form.as_bytes(),
        403,
        "sigv4_post_form",
    );
    let nested = format!(
        "GET /bucket/key HTTP/1.1\r\nHost: {S3}\r\nAuthorization: Bearer k8s-aws-v1.aHR0cHM\r\n\r\n"
    );
    refused(
        rig,
        Way::Connect,
        S3,
        nested.as_bytes(),
        403,
        "sigv4_nested",
    );
}

/// J09: E sees the gateway's time.
fn a_signature_of_another_time_is_refused_and_of_nearly_now_is_not(rig: &Rig) {
    for skew in [-20 * 60, 20 * 60] {
        let ask = Ask {
            skew,
            ..Ask::default()
        };
        let bytes = ask.write(S3, &rig.key(Way::Connect, "aws"), "");
        let answer = refused(rig, Way::Connect, S3, &bytes, 403, "signature_skew");
        assert!(
            answer.text().contains("<Code>RequestTimeTooSkewed</Code>"),
            "{answer:?}"
        );
    }
    for skew in [-10 * 60, 10 * 60] {
        let ask = Ask {
            skew,
            ..Ask::default()
        };
        let (seen, _) = through(rig, Way::Connect, S3, "aws", &ask);
        let now = [
            crate::rig::sigv4::stamp(0),
            crate::rig::sigv4::stamp(-1),
            crate::rig::sigv4::stamp(-2),
        ];
        assert!(
            now.contains(&seen.all("x-amz-date")[0].to_owned()),
            "{seen:?}"
        );
    }
}

/// J11.
fn a_signature_of_another_key_is_refused(rig: &Rig) {
    for way in Way::SECURE {
        let ours = rig.key(way, "aws");
        let attackers = Key {
            id: "AKIAATTACKER00000000".into(),
            secret: "attacker".into(),
            token: None,
        };
        let sent = |key: &Key| Ask::default().write(S3, key, &before(way, S3));
        let answer = refused(rig, way, S3, &sent(&attackers), 403, "foreign_credential");
        assert!(
            answer.text().contains("<Code>InvalidAccessKeyId</Code>"),
            "{answer:?}"
        );
        let wrong = Key {
            secret: "attacker".into(),
            ..ours.clone()
        };
        refused(rig, way, S3, &sent(&wrong), 403, "sigv4_mismatch");
        let with_token = Key {
            token: Some("attackers-token".into()),
            ..ours.clone()
        };
        refused(rig, way, S3, &sent(&with_token), 403, "foreign_credential");
        let without = Key {
            token: None,
            ..rig.key(way, "temp")
        };
        refused(rig, way, S3, &sent(&without), 403, "foreign_credential");
    }
    let theirs = Key {
        id: rig.phantoms_b["aws"].clone(),
        secret: rig.phantoms_b["aws-secret"].clone(),
        token: None,
    };
    let bytes = Ask::default().write(S3, &theirs, "");
    refused(
        rig,
        Way::Connect,
        S3,
        &bytes,
        403,
        "phantom_foreign_session",
    );
}

/// J03.
fn assume(role: &str) -> Ask {
    Ask {
        method: "POST",
        path: "/".into(),
        body: format!("Action=AssumeRole&Version=2011-06-15&RoleSessionName=s&RoleArn={role}")
            .into_bytes(),
        fields: vec![(
            "content-type".into(),
            "application/x-www-form-urlencoded; charset=utf-8".into(),
        )],
        service: "sts",
        payload: None,
        ..Ask::default()
    }
}

/// `2030-01-01T00:00:00Z`, so far off.
pub fn until(seconds: i64) -> String {
    let at = time::OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
    at.format(&time::format_description::well_known::Rfc3339)
        .unwrap()
}

fn sts_answer(key: &Key, until: &str) -> String {
    format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><AssumedRoleUser>\
         <Arn>arn:aws:sts::123456789012:assumed-role/demo/s</Arn></AssumedRoleUser><Credentials>\
         <AccessKeyId>{}</AccessKeyId><SecretAccessKey>{}</SecretAccessKey><SessionToken>{}</SessionToken>\
         <Expiration>{until}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>",
        key.id,
        key.secret,
        key.token.as_deref().unwrap()
    )
}

pub fn element(text: &str, name: &str) -> String {
    let rest = text
        .split(&format!("<{name}>"))
        .nth(1)
        .unwrap_or_else(|| panic!("{text}"));
    rest.split('<').next().unwrap().to_owned()
}

/// What E mints: its session token holds a canary, so that the invariants look after it.
pub fn new_key(rig: &Rig) -> Key {
    Key {
        id: format!("ASIA{}", random(16).to_ascii_uppercase()),
        secret: random(40),
        token: Some(format!("{}{}", rig.secret("other"), random(200))),
    }
}

/// Has `temp` assume a role; gives what the client got.
pub fn assumed(rig: &Rig, way: Way, real: &Key, until: &str) -> (Key, Response) {
    let answer = sts_answer(real, until);
    rig.origins.on("/", move |_| {
        ok("Content-Type: text/xml\r\n", answer.as_bytes())
    });
    let bytes = assume("arn:aws:iam::123456789012:role/demo").write(STS, &rig.key(way, "temp"), "");
    let answer = send(rig, way, STS, &bytes);
    let record = rig.record(way);
    assert_eq!(answer.status, 200, "{answer:?} {record}");
    judged_of(rig, "temp");
    let text = answer.text();
    let ours = Key {
        id: element(&text, "AccessKeyId"),
        secret: element(&text, "SecretAccessKey"),
        token: Some(element(&text, "SessionToken")),
    };
    (ours, answer)
}

/// H06, H10, H13, J03: a phantom that came while the session lived is known as those are that were
/// there from its beginning.
fn what_was_minted_is_refused_out_of_place_and_in_another_session(rig: &Rig) {
    for way in [Way::Connect, Way::Tls, Way::Transparent] {
        let (ours, _) = assumed(rig, way, &new_key(rig), &until(3600));
        let token = ours.token.clone().unwrap();
        for part in [&ours.id, &ours.secret, &token] {
            let folded = percent(part.as_bytes(), |_| false);
            for (host, target, field, reason) in [
                (
                    OTHER,
                    "/".to_owned(),
                    format!("X-Key: {part}"),
                    "phantom_out_of_scope",
                ),
                (
                    OTHER,
                    "/".to_owned(),
                    format!("Authorization: Bearer {part}"),
                    "phantom_out_of_scope",
                ),
                (
                    OTHER,
                    format!("/?key={folded}"),
                    "X: y".to_owned(),
                    "phantom_out_of_scope",
                ),
                (
                    OTHER,
                    "/".to_owned(),
                    format!("X-Key: {}", STANDARD.encode(part)),
                    "phantom_disguised",
                ),
                (
                    S3,
                    "/bucket/key".to_owned(),
                    format!("X-Key: {part}"),
                    "phantom_position",
                ),
            ] {
                let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n\r\n");
                let answer = send(rig, way, host, request.as_bytes());
                let record = rig.record(way);
                let told = record["reason"].as_str().unwrap_or_default();
                assert!(
                    answer.status == 403 && told == reason,
                    "{way:?} {field} {record}"
                );
                assert!(!record.to_string().contains(&part[8..]), "{way:?} {record}");
                assert!(rig.seen().is_empty(), "{way:?} {field}");
            }
        }
        // In session B, signed and bare, at a host for which its own credential signs and at one
        // to which nothing is bound.
        let signed = put(b"x").write(S3, &ours, "");
        let bare = format!(
            "GET / HTTP/1.1\r\nHost: {OTHER}\r\nX-Api-Key: {}\r\n\r\n",
            ours.id
        );
        for (host, bytes) in [(S3, signed), (OTHER, bare.into_bytes())] {
            if way.is_transparent() {
                break;
            }
            let mut wire = rig
                .dial(rig.ports.tls_b)
                .secure(Some(host), &["http/1.1"])
                .unwrap();
            let answer = wire.ask(&bytes);
            let record = rig.record(way);
            assert_eq!(
                record["reason"], "phantom_foreign_session",
                "{record} {answer:?}"
            );
            assert!(answer.status == 403 && rig.seen().is_empty(), "{answer:?}");
        }
    }
}

/// J03, I07: the client signs with phantoms of what STS gave, and E sees it signed with what STS
/// gave.
fn temporary_credentials_stay_in_the_gateway(rig: &Rig) {
    for way in [Way::Connect, Way::Transparent] {
        let real = new_key(rig);
        let (ours, answer) = assumed(rig, way, &real, &until(3600));
        for (ours, real) in [
            (&ours.id, &real.id),
            (&ours.secret, &real.secret),
            (ours.token.as_ref().unwrap(), real.token.as_ref().unwrap()),
        ] {
            assert_eq!(ours.len(), real.len());
            assert_ne!(ours, real);
        }
        assert!(ours.id.starts_with("ASIA"));
        let plain = answer
            .text()
            .replace(&ours.id, &real.id)
            .replace(&ours.secret, &real.secret);
        let plain = plain.replace(ours.token.as_ref().unwrap(), real.token.as_ref().unwrap());
        assert_eq!(plain, sts_answer(&real, &element(&plain, "Expiration")));

        let ask = put(b"by a role");
        let answer = send(rig, way, S3, &ask.write(S3, &ours, ""));
        let record = rig.record(way);
        assert_eq!(answer.status, 200, "{answer:?} {record}");
        assert_eq!(record["lent"][0]["credential"], "temp", "{record}");
        let seen = rig.seen().remove(0);
        assert_eq!(judge(&seen, &real).unwrap().body, b"by a role");

        // Whatever differs from what was given signs nothing, and the pins are those of the
        // credential that it comes from.
        let key = |id: &Key, secret: &Key, token: &Option<String>| Key {
            id: id.id.clone(),
            secret: secret.secret.clone(),
            token: token.clone(),
        };
        let temp = rig.key(way, "temp");
        for (wrong, reason) in [
            (key(&ours, &real, &ours.token), "sigv4_mismatch"),
            (key(&ours, &temp, &ours.token), "sigv4_mismatch"),
            (key(&ours, &ours, &None), "foreign_credential"),
            (key(&real, &real, &ours.token), "foreign_credential"),
        ] {
            refused(rig, way, S3, &ask.write(S3, &wrong, ""), 403, reason);
        }
        let far = Ask {
            region: "eu-west-1",
            ..put(b"x")
        };
        refused(rig, way, S3, &far.write(S3, &ours, ""), 403, "sigv4_scope");
        let session = Ask {
            body: b"Action=GetSessionToken&Version=2011-06-15".to_vec(),
            ..assume("")
        };
        refused(
            rig,
            way,
            STS,
            &session.write(STS, &ours, ""),
            403,
            "sigv4_action",
        );
        // An echo of what was minted is one of a secret.
        let echo = format!("{} {}", real.secret, real.id);
        rig.origins
            .on("/bucket/key", move |_| ok("", echo.as_bytes()));
        let answer = send(rig, way, S3, &Ask::default().write(S3, &ours, ""));
        rig.record(way);
        rig.seen();
        assert_eq!(answer.text(), format!("{} {}", ours.secret, ours.id));
        rig.origins.on("/bucket/key", |_| ok("", b""));
    }
    // Another credential's session, or one whose time is over, has no use of them.
    let real = new_key(rig);
    let (ours, _) = assumed(rig, Way::Connect, &real, &until(3600));
    refused(
        rig,
        Way::Transparent,
        S3,
        &put(b"x").write(S3, &ours, ""),
        403,
        "foreign_credential",
    );
    let real = new_key(rig);
    let (over, _) = assumed(rig, Way::Connect, &real, &until(-1));
    refused(
        rig,
        Way::Connect,
        S3,
        &put(b"x").write(S3, &over, ""),
        403,
        "signature_expired",
    );
    // Who is not named for it may not ask.
    let bytes =
        assume("arn:aws:iam::123456789012:role/demo").write(STS, &rig.key(Way::Connect, "aws"), "");
    refused(rig, Way::Connect, STS, &bytes, 403, "sigv4_action");
    let unsigned = "POST / HTTP/1.1\r\nHost: {H}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 32\r\n\r\nAction=AssumeRoleWithWebIdentity";
    let answer = rig.ask(Way::Connect, STS, unsigned);
    let record = rig.record(Way::Connect);
    assert_eq!(
        (answer.status, record["reason"].as_str()),
        (403, Some("sigv4_action")),
        "{record}"
    );
}

/// The session of S3 Express, whose token has a field of its own.
fn a_session_of_s3_express_stays_in_the_gateway(rig: &Rig) {
    let real = new_key(rig);
    let token = real.token.clone().unwrap();
    let xml = format!(
        "<?xml version=\"1.0\"?><CreateSessionResult><Credentials><SessionToken>{token}</SessionToken><SecretAccessKey>{}\
         </SecretAccessKey><AccessKeyId>{}</AccessKeyId><Expiration>{}</Expiration></Credentials></CreateSessionResult>",
        real.secret,
        real.id,
        until(300)
    );
    rig.origins.on("/bucket", move |_| {
        ok("Content-Type: application/xml\r\n", xml.as_bytes())
    });
    let ask = Ask {
        path: "/bucket".into(),
        query: "session".into(),
        service: "s3express",
        ..Ask::default()
    };
    let answer = send(
        rig,
        Way::Connect,
        EXPRESS,
        &ask.write(EXPRESS, &rig.key(Way::Connect, "temp"), ""),
    );
    let record = rig.record(Way::Connect);
    assert_eq!(answer.status, 200, "{answer:?} {record}");
    judged_of(rig, "temp");
    let text = answer.text();
    let ours = Key {
        id: element(&text, "AccessKeyId"),
        secret: element(&text, "SecretAccessKey"),
        token: None,
    };
    let ask = |token: String| Ask {
        service: "s3express",
        fields: vec![("x-amz-s3session-token".into(), token)],
        ..put(b"fast")
    };
    let our_token = element(&text, "SessionToken");
    let bytes = ask(our_token.clone()).write(EXPRESS, &ours, "");
    let answer = send(rig, Way::Connect, EXPRESS, &bytes);
    let record = rig.record(Way::Connect);
    assert_eq!(answer.status, 200, "{answer:?} {record}");
    let seen = rig.seen().remove(0);
    assert_eq!(seen.all("x-amz-s3session-token"), [token.as_str()]);
    let unnamed = Key {
        token: None,
        ..real
    };
    assert_eq!(judge(&seen, &unnamed).unwrap().body, b"fast");
    let bytes = ask(our_token.to_lowercase()).write(EXPRESS, &ours, "");
    refused(
        rig,
        Way::Connect,
        EXPRESS,
        &bytes,
        403,
        "foreign_credential",
    );
    rig.origins.on("/bucket", |_| ok("", b""));
}

fn an_answer_with_credentials_that_cannot_be_read_is_not_given_on(rig: &Rig) {
    let real = new_key(rig);
    let usual = sts_answer(&real, &until(3600));
    let xml = "Content-Type: text/xml\r\n";
    for (fields, body) in [
        (xml, usual.replace("SessionToken", "Token")),
        (
            xml,
            usual.replace(
                "<Credentials>",
                "<Credentials><AccessKeyId>ASIAOTHEROTHEROTHER2</AccessKeyId>",
            ),
        ),
        (xml, format!("{usual}{}", " ".repeat(70_000))),
        ("Content-Type: text/plain\r\n", usual.clone()),
        (
            "Content-Type: text/xml\r\nContent-Encoding: gzip\r\n",
            usual.clone(),
        ),
    ] {
        rig.origins.on("/", move |_| ok(fields, body.as_bytes()));
        let bytes = assume("arn:aws:iam::123456789012:role/demo").write(
            STS,
            &rig.key(Way::Connect, "temp"),
            "",
        );
        let answer = send(rig, Way::Connect, STS, &bytes);
        let record = rig.record(Way::Connect);
        assert_eq!(
            (answer.status, record["reason"].as_str()),
            (502, Some("minted_unread")),
            "{answer:?} {record}"
        );
        let text = answer.text();
        assert!(
            !text.contains(&real.id) && !text.contains(&real.secret),
            "{text}"
        );
        rig.seen();
    }
    // An error of the service is the client's to see.
    rig.origins.on("/", |_| {
        let body = "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>";
        let head = format!(
            "HTTP/1.1 403 Forbidden\r\nContent-Type: text/xml\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        vec![crate::rig::origin::Step::Bytes(head.into_bytes())]
    });
    let bytes = assume("arn:aws:iam::123456789012:role/demo").write(
        STS,
        &rig.key(Way::Connect, "temp"),
        "",
    );
    let answer = send(rig, Way::Connect, STS, &bytes);
    rig.record(Way::Connect);
    rig.seen();
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("AccessDenied"));
    rig.origins.on("/", |_| ok("", b""));
}

fn what_returns_credentials_is_refused(rig: &Rig) {
    let ask = |query: &str| Ask {
        path: "/bucket".into(),
        query: query.into(),
        ..Ask::default()
    };
    let bytes = ask("session").write(S3, &rig.key(Way::Connect, "aws"), "");
    let answer = refused(rig, Way::Connect, S3, &bytes, 403, "sigv4_action");
    assert!(answer.text().contains("CreateSession"), "{answer:?}");
    // S3 passes over a parameter that it does not know, so one more makes the session no other
    // request. Where sessions are allowed, one that is not known for a session is not: its answer
    // would not stay here.
    for query in ["session&x=1", "x=1&session=", "sess%69on&x=1", "Session"] {
        for (host, service, credential) in [(S3, "s3", "aws"), (EXPRESS, "s3express", "temp")] {
            let ask = Ask {
                service,
                ..ask(query)
            };
            let bytes = ask.write(host, &rig.key(Way::Connect, credential), "");
            refused(rig, Way::Connect, host, &bytes, 403, "sigv4_action");
        }
    }
}

/// J10.
fn an_action_that_is_said_twice_is_refused(rig: &Rig) {
    let mut ask = post(b"{}", "DynamoDB_20120810.ListTables");
    ask.query = "Action=DeleteTable".into();
    let bytes = ask.write(DB, &rig.key(Way::Connect, "aws"), "");
    let answer = refused(rig, Way::Connect, DB, &bytes, 403, "sigv4_action");
    assert!(
        answer.text().contains("AccessDeniedException"),
        "{answer:?}"
    );
}

/// J11, H01 to H05 for what signs.
fn the_phantoms_of_a_signing_credential_go_nowhere_else(rig: &Rig) {
    let way = Way::Connect;
    let bytes = Ask::default().write(OTHER, &rig.key(way, "aws"), "");
    let answer = send(rig, way, OTHER, &bytes);
    let record = rig.record(way);
    assert_eq!(
        (answer.status, record["reason"].as_str()),
        (403, Some("phantom_out_of_scope")),
        "{record}"
    );
    for part in ["aws-secret", "temp-token", "aws"] {
        let stray = Ask {
            fields: vec![("x-note".into(), rig.phantom(way, part).to_owned())],
            ..Ask::default()
        };
        let bytes = stray.write(S3, &rig.key(way, "aws"), "");
        refused(rig, way, S3, &bytes, 403, "phantom_position");
    }
}

/// J05: an unsigned request, to an origin that `unsigned` names, is policy's to judge, and nothing
/// is lent to it.
fn a_request_without_a_signature_gets_none(rig: &Rig) {
    for way in [Way::Connect, Way::Transparent] {
        // The second has no signature either, only the letters of one.
        for query in ["", "?x=X-Amz-Algorithm=AWS4-HMAC-SHA256"] {
            let bytes =
                format!("GET {{T}}/bucket/../public{query} HTTP/1.1\r\nHost: {{H}}\r\n\r\n");
            let answer = rig.ask(way, PUBLIC, &bytes);
            let record = rig.record(way);
            assert_eq!(
                (answer.status, record["lent"].is_null()),
                (200, true),
                "{record}"
            );
            let seen = rig.seen().remove(0);
            assert!(seen.all("authorization").is_empty());
            assert_eq!(
                seen.target,
                format!("/public{query}"),
                "without a signature a path is read as everywhere"
            );
        }
    }
}

fn a_request_is_signed_by_a_recipe(rig: &Rig) {
    let millis = |off: i64| {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
        now + off
    };
    let ask = |key: &Key, at: i64, more: &str| {
        let query = format!("symbol=BTC&timestamp={at}");
        let signature = hex(&mac(key.secret.as_bytes(), &query));
        format!(
            "GET /api/v3/order?{query}&signature={signature}{more} HTTP/1.1\r\nHost: {EXCHANGE}\r\nX-MBX-APIKEY: {}\r\n\r\n",
            key.id
        )
    };
    for way in [Way::Connect, Way::Tls, Way::Transparent] {
        let key = rig.key(way, "exchange");
        let answer = send(
            rig,
            way,
            EXCHANGE,
            ask(&key, millis(-60_000), "").as_bytes(),
        );
        let record = rig.record(way);
        assert_eq!(
            (answer.status, &record["lent"][0]["place"]),
            (200, &"sign:binance-hmac".into()),
            "{answer:?} {record}"
        );
        let seen = rig.seen().remove(0);
        let real = rig.real_key("exchange");
        assert_eq!(seen.all("x-mbx-apikey"), [&real.id]);
        let query = seen.target.split_once('?').unwrap().1;
        let (signed, signature) = query.split_once("&signature=").unwrap();
        assert_eq!(
            signature,
            hex(&mac(real.secret.as_bytes(), signed)),
            "{}",
            seen.target
        );
        let at: i64 = signed.split("timestamp=").nth(1).unwrap().parse().unwrap();
        assert!((at - millis(0)).abs() < 10_000, "the gateway's time");
        let strange = Key {
            id: "attackersattackersattackersattackers".into(),
            ..key.clone()
        };
        let wrong = Key {
            secret: "attackers".into(),
            ..key.clone()
        };
        for (bytes, reason) in [
            (ask(&strange, millis(0), ""), "foreign_credential"),
            (ask(&wrong, millis(0), ""), "signature_mismatch"),
            (ask(&key, millis(-20 * 60_000), ""), "signature_skew"),
        ] {
            let answer = send(rig, way, EXCHANGE, bytes.as_bytes());
            let record = rig.record(way);
            assert_eq!(
                (answer.status, record["reason"].as_str()),
                (403, Some(reason)),
                "{answer:?} {record}"
            );
            assert!(rig.seen().is_empty());
        }
        let twice = ask(&key, millis(0), "&signature=00");
        let answer = send(rig, way, EXCHANGE, twice.as_bytes());
        let record = rig.record(way);
        assert_eq!(
            (answer.status, record["reason"].as_str()),
            (400, Some("signature_ambiguous")),
            "{record}"
        );
    }
}
