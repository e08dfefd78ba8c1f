//! Group J: requests that a credential signs. E verifies with the real key what a client signed with its phantom.

use crate::rig::origin::Seen;
use crate::rig::sigv4::{Ask, Judged, Key, chunks, hash, judge, stamp};
use crate::rig::way::{Response, Way};
use crate::rig::{DB, OTHER, Rig, S3};
use crate::rows;

rows![a_signed_request_is_signed_again_with_the_real_key,];

/// Sends bytes, and gives the answer.
fn send(rig: &Rig, way: Way, host: &str, bytes: &[u8]) -> Response {
    rig.open(way, host).ask(bytes)
}

fn before(way: Way, host: &str) -> String {
    if way == Way::Forward {
        format!("http://{host}")
    } else {
        String::new()
    }
}

/// Signs, sends, and expects that E finds the real key's signature.
fn through(rig: &Rig, way: Way, host: &str, name: &str, ask: &Ask) -> (Seen, Judged) {
    let bytes = ask.write(host, &rig.key(way, name), &before(way, host));
    let answer = send(rig, way, host, &bytes);
    let record = rig.record(way);
    assert_eq!(answer.status, 200, "{way:?} {answer:?} {record}");
    assert_eq!(record["lent"][0]["place"], "sign:sigv4", "{record}");
    judged(rig, name)
}

fn judged(rig: &Rig, name: &str) -> (Seen, Judged) {
    let seen = rig.seen().remove(0);
    match judge(&seen, &rig.real_key(name)) {
        Ok(judged) => (seen, judged),
        Err(why) => panic!("{why}\n{}", String::from_utf8_lossy(&seen.raw)),
    }
}

/// Sends, and expects a refusal in the service's shape, and that E gets nothing.
fn refused(rig: &Rig, way: Way, host: &str, bytes: &[u8], status: u16, reason: &str) -> Response {
    let answer = send(rig, way, host, bytes);
    let record = rig.record(way);
    assert_eq!(
        (answer.status, record["reason"].as_str()),
        (status, Some(reason)),
        "{way:?}: {answer:?} {record}\n{}",
        String::from_utf8_lossy(bytes)
    );
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(text.contains(reason) && text.contains("gateway why"), "{text}");
    assert!(rig.seen().is_empty(), "E got something");
    answer
}

fn put(body: &[u8]) -> Ask {
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
