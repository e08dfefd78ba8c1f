//! Credentials outside of fields, cookies and queries: in the path, and in content.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::content::Post;
use crate::echoes::coded_pieces;
use crate::rig::origin::{Seen, ok};
use crate::rig::way::Way;
use crate::rig::{MODEL, OTHER, PLACES, PLACES2, Rig, SLACK, TELEGRAM, canary};
use crate::rows;
use crate::verdicts::allowed;

rows![
    a_credential_in_the_path_is_put_in_there_alone,
    a_credential_in_the_path_goes_out_over_http2_alike,
    a_path_is_judged_and_recorded_without_the_phantom,
    what_stands_in_a_place_of_the_path_and_is_not_lent_is_refused,
    a_credential_in_content_is_put_in_there_alone,
    a_phantom_elsewhere_in_content_is_inert_and_noted,
    a_phantom_in_content_of_any_length_is_noted,
    a_credential_that_is_twice_or_disputed_in_content_is_refused,
    a_credential_of_others_in_a_place_of_content_is_refused,
    a_policy_judges_a_credential_in_content_by_its_place,
    content_with_a_coding_goes_out_without_it,
    digests_of_content_are_made_anew_or_the_request_is_refused,
    an_answer_that_repeats_the_content_shows_the_phantom,
    content_is_held_only_where_a_credential_may_be_in_it,
    slacks_methods_take_the_token_in_their_forms,
    content_of_unknown_length_is_filled_alike,
    a_file_streams_behind_a_credential_in_content,
    what_comes_behind_a_file_that_streams_is_not_lent_and_ends_it,
];

fn get(target: &str) -> String {
    format!("GET {{T}}{target} HTTP/1.1\r\nHost: {{H}}\r\n\r\n")
}

fn a_credential_in_the_path_is_put_in_there_alone(rig: &Rig) {
    let secret = rig.secret("telegram").to_owned();
    for way in Way::SECURE {
        for (target, sent) in [
            (
                "/bot{PH:telegram}/sendMessage?chat_id=1&text={}",
                "/bot{S}/sendMessage?chat_id=1&text=%7B%7D",
            ),
            ("/a/../bot{PH:telegram}/getMe", "/bot{S}/getMe"),
            (
                "/file/bot{PH:telegram}/photos/%7B%7D.jpg",
                "/file/bot{S}/photos/%7B%7D.jpg",
            ),
        ] {
            allowed(rig, way, TELEGRAM, &get(target));
            assert_eq!(
                rig.seen().remove(0).target,
                sent.replace("{S}", &secret),
                "{way:?}"
            );
        }
        // An answer that repeats the path shows the phantom.
        let echo = secret.clone();
        rig.origins.on(&format!("/bot{secret}/getMe"), move |_| {
            ok(
                &format!("Location: /bot{echo}/x\r\n"),
                format!("/bot{echo}/getMe").as_bytes(),
            )
        });
        let answer = allowed(rig, way, TELEGRAM, &get("/bot{PH:telegram}/getMe"));
        let phantom = rig.phantom(way, "telegram");
        assert!(
            answer.head.contains(&format!("/bot{phantom}/x")),
            "{answer:?}"
        );
        assert_eq!(answer.body, format!("/bot{phantom}/getMe").as_bytes());
        rig.seen();
    }
}

fn a_credential_in_the_path_goes_out_over_http2_alike(rig: &Rig) {
    for way in Way::SECURE {
        let path = format!("/bot{}/getUpdates", rig.phantom(way, "telegram"));
        let mut frames = rig.frames(way, TELEGRAM);
        let fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", TELEGRAM),
            (":path", &path),
        ];
        frames.headers(1, &fields, true);
        assert!(frames.fate(1).answered, "{way:?}");
        let record = rig.record(way);
        assert_eq!(record["path"], "/bot{}/getUpdates", "{record}");
        let seen = rig.seen().remove(0);
        assert_eq!(
            seen.target,
            format!("/bot{}/getUpdates", rig.secret("telegram"))
        );
    }
}

fn a_path_is_judged_and_recorded_without_the_phantom(rig: &Rig) {
    for way in Way::SECURE {
        allowed(rig, way, TELEGRAM, &get("/bot{PH:telegram}/getMe"));
        rig.seen();
        for (target, reason) in [
            ("/bot{PH:telegram}/getUpdates?repo=bad", "policy_forbids"),
            ("/bot{PH:telegram}/logOut", "policy_forbids"),
        ] {
            let answer = rig.ask(way, TELEGRAM, &get(target));
            let record = rig.record(way);
            assert_eq!(
                (answer.status, record["reason"].as_str()),
                (403, Some(reason)),
                "{record}"
            );
            let path = record["path"].as_str().unwrap();
            assert!(path.starts_with("/bot{}/"), "{record}");
        }
    }
}

fn what_stands_in_a_place_of_the_path_and_is_not_lent_is_refused(rig: &Rig) {
    let theirs = format!("/bot{}/getMe", rig.phantoms_b["telegram"]);
    for (target, reason) in [
        ("/bot7123456789:AAattackers/getMe", "foreign_credential"),
        ("//bot7123456789:AAattackers/getMe", "foreign_credential"),
        ("/BOT7123456789:AAattackers;x=1/getMe", "foreign_credential"),
        ("/file/bot7123456789:AAattackers/x", "foreign_credential"),
        ("/bot{}/getMe", "foreign_credential"),
        ("//bot{PH:telegram}/getMe", "phantom_position"),
        ("/bot{PH:telegram}x/getMe", "phantom_position"),
        ("/bot{PH:telegram}/{PH:telegram}", "phantom_position"),
        ("/x?token={PH:telegram}", "phantom_position"),
        ("/bot{PH:gitlab}/getMe", "phantom_out_of_scope"),
        (&theirs, "phantom_foreign_session"),
    ] {
        for way in Way::SECURE {
            if way.is_transparent() && target == theirs {
                continue;
            }
            let answer = rig.ask(way, TELEGRAM, &get(target));
            let record = rig.record(way);
            let refused = (answer.status, record["reason"].as_str());
            assert_eq!(refused, (403, Some(reason)), "{way:?} {target} {record}");
            assert!(rig.seen().is_empty());
            let path = record["path"].as_str().unwrap();
            assert!(
                !path.contains("attackers") && !path.contains(&theirs),
                "{record}"
            );
        }
    }
}

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
const PARTS: &str = "multipart/form-data; boundary=b";

/// Each place: its credential, its format, and content that has `{P}` there and `{X}` elsewhere.
const PLACES_OF: [(&str, &str, &str); 3] = [
    ("field", FORM, "a={X}&token={P}&token_type=%61{X}"),
    (
        "pointer",
        JSON,
        "{ \"token\": \"{X}\",\n\"auth\" : {\"a\":[1.0e3],\"token\":{P}}, \"x\":\"\\u00e9{X}\"}",
    ),
    (
        "part",
        PARTS,
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n\0{X}\r\n--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n{P}\r\n--b--\r\n",
    ),
];

/// A text as it is written in content of a format.
fn written(kind: &str, text: &str) -> String {
    match kind {
        FORM => canary::percent(text.as_bytes(), |byte| byte.is_ascii_alphanumeric()),
        JSON => Value::from(text).to_string(),
        _ => text.to_owned(),
    }
}

/// The content with a text in its place, and the phantom elsewhere.
fn filled(template: &str, kind: &str, text: &str, phantom: &str) -> String {
    let elsewhere = written(kind, phantom);
    let filled = template.replace("{P}", &written(kind, text));
    filled.replace("{X}", elsewhere.trim_matches('"'))
}

/// Sends it, and gives the record and what the origin got, if it did.
fn sent(rig: &Rig, way: Way, http2: bool, post: &Post<'_>) -> (String, Option<Seen>) {
    let record = post.record(rig, way, http2);
    let mut seen = rig.seen();
    assert!(seen.len() < 2, "{way:?}");
    (
        record["reason"].as_str().unwrap_or_default().to_owned(),
        seen.pop(),
    )
}

/// On every way, over both protocols, to origins of both.
fn on_every_way(mut each: impl FnMut(Way, bool, &'static str)) {
    for way in Way::SECURE {
        for http2 in [false, true] {
            for host in [PLACES, PLACES2] {
                each(way, http2, host);
            }
        }
    }
}

fn refused_as(rig: &Rig, kind: &str, content: &str, fields: &[(&str, &str)], reason: &str) {
    on_every_way(|way, http2, host| {
        let mut content = content.to_owned();
        for (name, phantom) in &rig.gate(way).phantoms {
            let is_form = !content.starts_with(['{', '-']);
            let phantom = written(if is_form { FORM } else { PARTS }, phantom);
            content = content.replace(&format!("{{PH:{name}}}"), &phantom);
        }
        let mut post = Post::new(host, "/x", kind, content.as_bytes());
        post.fields.extend(fields);
        let (got, seen) = sent(rig, way, http2, &post);
        assert_eq!(got, reason, "{way:?} {http2} {kind} {content:?}");
        assert!(seen.is_none());
    });
}

fn a_credential_in_content_is_put_in_there_alone(rig: &Rig) {
    on_every_way(|way, http2, host| {
        for (name, kind, template) in PLACES_OF {
            let phantom = rig.phantom(way, name);
            let content = filled(template, kind, phantom, phantom);
            let post = Post::new(host, "/x", kind, content.as_bytes());
            let record = post.record(rig, way, http2);
            let seen = rig.seen().remove(0);
            let expected = filled(template, kind, rig.secret(name), phantom);
            assert_eq!(
                String::from_utf8_lossy(&seen.body),
                expected,
                "{way:?} {record}"
            );
            assert_eq!(seen.all("content-length"), [expected.len().to_string()]);
            assert_eq!(seen.all("content-type"), [kind]);
            assert_eq!(record["lent"][0]["credential"], name, "{record}");
        }
    });
}

/// What the record of an exchange notes of its content.
fn noted(record: &Value) -> Vec<&str> {
    let list = record["noted"].as_array().map_or(&[][..], Vec::as_slice);
    assert!(list.iter().all(|one| one["place"] == "content"), "{record}");
    let names = list.iter().map(|one| one["credential"].as_str().unwrap());
    names.collect()
}

fn a_phantom_in_content_of_any_length_is_noted(rig: &Rig) {
    for way in Way::SECURE {
        let (one, other) = (rig.phantom(way, "bearer"), rig.phantom(way, "telegram"));
        // Without optimisation, that takes its time.
        let length = if way == Way::Connect {
            20 << 20
        } else {
            1 << 20
        };
        let mut content = vec![b'g'; length];
        for at in [16 << 10, length / 2 - 7, length - one.len()] {
            content[at..at + one.len()].copy_from_slice(one.as_bytes());
        }
        content[..other.len()].copy_from_slice(other.as_bytes());
        let post = Post::new(OTHER, "/x", "application/octet-stream", &content);
        let record = post.record(rig, way, false);
        let mut names = noted(&record);
        names.sort_unstable();
        assert_eq!(names, ["bearer", "telegram"], "{way:?} {record}");
        assert!(rig.seen().remove(0).body == content, "{way:?}");
        // Held, to be judged, and sent on with its coding.
        let text = format!(r#"{{"model":"gpt-4o-mini","max_tokens":9,"messages":["{one}"]}}"#);
        let coded = coded_pieces("gzip", &[text.as_bytes()]).concat();
        for (coding, content) in [("identity", text.as_bytes()), ("gzip", &*coded)] {
            let post = Post::new(MODEL, "/v1/chat/completions", JSON, content);
            let record = post.with("content-encoding", coding).record(rig, way, true);
            assert_eq!(noted(&record), ["bearer"], "{way:?} {record}");
            assert!(rig.seen().remove(0).body == content, "{way:?}");
        }
        let post = Post::new(OTHER, "/x", JSON, b"{}");
        let record = post.record(rig, way, false);
        assert!(record.get("noted").is_none(), "{way:?} {record}");
        rig.seen();
    }
}

fn a_phantom_elsewhere_in_content_is_inert_and_noted(rig: &Rig) {
    on_every_way(|way, http2, host| {
        let phantom = rig.phantom(way, "field").to_owned();
        for (path, kind, content) in [
            (
                "/x",
                FORM,
                format!("other={phantom}&text=token%3D{phantom}"),
            ),
            (
                "/x",
                JSON,
                format!("{{\"token\":\"{phantom}\",\"auth\":{{\"x\":\"{phantom}\"}}}}"),
            ),
            ("/x", "application/octet-stream", format!("token={phantom}")),
            ("/x", FORM, format!("pinned={phantom}")),
        ] {
            let post = Post::new(host, path, kind, content.as_bytes());
            let record = post.record(rig, way, http2);
            assert_eq!(noted(&record), ["field"], "{way:?} {record}");
            let seen = rig.seen().remove(0);
            assert_eq!(seen.body, content.into_bytes(), "{way:?} {record}");
        }
    });
}

fn a_credential_that_is_twice_or_disputed_in_content_is_refused(rig: &Rig) {
    let disputed = "content_unreadable";
    for (kind, content, reason) in [
        (FORM, "token={PH:field}&token={PH:field}", "phantom_count"),
        (FORM, "token={PH:field}&Token[]={PH:field}", "phantom_count"),
        (FORM, "Token={PH:field}", disputed),
        (FORM, "a=b;token={PH:field}", disputed),
        ("text/plain", "token={PH:field}", disputed),
        (FORM, "token={PH:field}&%zz=1", disputed),
        (
            JSON,
            r#"{"auth":{"token":"{PH:pointer}","token":"{PH:pointer}"}}"#,
            disputed,
        ),
        (
            JSON,
            r#"{"auth":{"token":"{PH:pointer}","TOKEN":""}}"#,
            disputed,
        ),
        (JSON, r#"{"auth":{"Token":"{PH:pointer}"}}"#, disputed),
        (JSON, r#"{"auth":{"token":"{PH:pointer}"}} {}"#, disputed),
        (JSON, r#"{"a":1,"a":2}"#, disputed),
        (
            "text/plain",
            r#"{"auth":{"token":"{PH:pointer}"}}"#,
            disputed,
        ),
        (
            PARTS,
            "--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n{PH:part}\r\n--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n{PH:part}\r\n--b--\r\n",
            "phantom_count",
        ),
        (
            PARTS,
            "--b\r\nContent-Disposition: form-data; name=\"token\"; filename=\"x\"\r\n\r\n{PH:part}\r\n--b--\r\n",
            "foreign_credential",
        ),
    ] {
        refused_as(rig, kind, content, &[], reason);
    }
    refused_as(
        rig,
        FORM,
        "token={PH:field}",
        &[("content-encoding", "gzip")],
        disputed,
    );
    refused_as(
        rig,
        FORM,
        "token={PH:field}",
        &[("x-y", "gwt1_"), ("x-api-key", "strange")],
        "foreign_credential",
    );
}

fn a_credential_of_others_in_a_place_of_content_is_refused(rig: &Rig) {
    for (name, kind, template) in PLACES_OF {
        let foreign = filled(template, kind, "attackers", "x");
        refused_as(rig, kind, &foreign, &[], "foreign_credential");
        let theirs = filled(template, kind, &rig.phantoms_b[name], "");
        for way in [Way::Connect, Way::Socks, Way::Tls] {
            let post = Post::new(PLACES, "/x", kind, theirs.as_bytes());
            assert_eq!(
                sent(rig, way, false, &post).0,
                "phantom_foreign_session",
                "{name}"
            );
        }
    }
    // The last one is where many origins read what `json:/auth/token` names.
    for content in [
        "TOKEN[]=attackers",
        "t%6Fken=attackers",
        "Auth[token]=attackers",
    ] {
        refused_as(rig, FORM, content, &[], "foreign_credential");
    }
    for content in [
        r#"{"auth":{"Token":"attackers"}}"#,
        r#"{"auth":{"token":7}}"#,
    ] {
        refused_as(rig, JSON, content, &[], "foreign_credential");
    }
}

fn a_policy_judges_a_credential_in_content_by_its_place(rig: &Rig) {
    on_every_way(|way, http2, host| {
        let content = format!("token={}", written(FORM, rig.phantom(way, "field")));
        let post = Post::new(host, "/nolend", FORM, content.as_bytes());
        let record = post.record(rig, way, http2);
        assert_eq!(record["reason"], "policy_forbids", "{record}");
        assert_eq!(record["unlent"]["place"], "form:token", "{record}");
        let other = Post::new(host, "/nolend", FORM, b"a=b");
        assert_eq!(sent(rig, way, http2, &other).0, "");
    });
}

fn content_with_a_coding_goes_out_without_it(rig: &Rig) {
    on_every_way(|way, http2, host| {
        let phantom = rig.phantom(way, "pointer");
        let (_, kind, template) = PLACES_OF[1];
        let content = filled(template, kind, phantom, phantom);
        let (first, last) = content.split_at(content.len() / 2);
        for coding in ["gzip", "br", "zstd"] {
            let coded = coded_pieces(coding, &[first.as_bytes(), last.as_bytes()]).concat();
            let post = Post::new(host, "/x", kind, &coded).with("content-encoding", coding);
            let (reason, seen) = sent(rig, way, http2, &post);
            let seen = seen.unwrap_or_else(|| panic!("{reason}"));
            let expected = filled(template, kind, rig.secret("pointer"), phantom);
            assert_eq!(
                String::from_utf8_lossy(&seen.body),
                expected,
                "{way:?} {coding}"
            );
            assert!(seen.all("content-encoding").is_empty());
            let foreign = coded_pieces(coding, &[b"token=attackers"]).concat();
            let post = Post::new(host, "/x", FORM, &foreign).with("content-encoding", coding);
            assert_eq!(sent(rig, way, http2, &post).0, "foreign_credential");
        }
    });
}

fn digests_of_content_are_made_anew_or_the_request_is_refused(rig: &Rig) {
    let digest = |text: &str| format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(text)));
    on_every_way(|way, http2, host| {
        let phantom = rig.phantom(way, "field");
        let (_, kind, template) = PLACES_OF[0];
        let content = filled(template, kind, phantom, phantom);
        let own = digest(&content);
        let post = Post::new(host, "/x", kind, content.as_bytes()).with("content-digest", &own);
        let (reason, seen) = sent(rig, way, http2, &post);
        let seen = seen.unwrap_or_else(|| panic!("{reason}"));
        let expected = filled(template, kind, rig.secret("field"), phantom);
        assert_eq!(seen.all("content-digest"), [digest(&expected)]);
        // What is not changed keeps its own.
        let post = Post::new(host, "/x", kind, b"a=b").with("content-md5", "x");
        assert_eq!(sent(rig, way, http2, &post).0, "");
    });
    for field in [
        ("digest", "SHA-256=x"),
        ("content-md5", "x"),
        ("content-digest", "md5=:x:"),
        ("signature-input", "sig1=()"),
    ] {
        refused_as(rig, FORM, "token={PH:field}", &[field], "content_digest");
    }
}

fn an_answer_that_repeats_the_content_shows_the_phantom(rig: &Rig) {
    for (name, kind, template) in PLACES_OF {
        rig.origins.on("/echo", |seen: &Seen| {
            ok("Content-Type: text/plain\r\n", &seen.body)
        });
        for way in Way::SECURE {
            let phantom = rig.phantom(way, name);
            let content = filled(template, kind, phantom, phantom);
            let mut wire = rig.open(way, PLACES);
            let head = format!(
                "POST /echo HTTP/1.1\r\nHost: {PLACES}\r\nContent-Type: {kind}\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
                content.len()
            );
            let answer = wire.ask(&[head.as_bytes(), content.as_bytes()].concat());
            rig.record(way);
            rig.seen();
            let shown = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(
                shown.contains(phantom) || shown.contains(&written(kind, phantom)),
                "{shown}"
            );
        }
    }
}

/// 17 MiB are more than may be held.
fn content_is_held_only_where_a_credential_may_be_in_it(rig: &Rig) {
    let long = vec![b'x'; 17 << 20];
    for (path, kind, reason) in [
        ("/x", FORM, "content_too_long"),
        ("/x", "text/plain", "content_too_long"),
        ("/secret", FORM, "policy_forbids"),
    ] {
        let mut wire = rig.open(Way::Connect, PLACES);
        let length = long.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {PLACES}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        );
        assert_eq!(wire.ask(head.as_bytes()).reason(), reason, "{path} {kind}");
        rig.record(Way::Connect);
    }
    let post = Post::new(PLACES, "/x", "application/octet-stream", &long);
    let (reason, seen) = sent(rig, Way::Connect, false, &post);
    assert_eq!((&*reason, seen.unwrap().body.len()), ("", long.len()));
    // Searching so much for every secret takes a minute.
    rig.origins.take_raw();
}

fn slacks_methods_take_the_token_in_their_forms(rig: &Rig) {
    for way in Way::SECURE {
        let phantom = rig.phantom(way, "slack");
        for (kind, template) in [(FORM, "token={P}&channel=C"), (PARTS, PLACES_OF[2].2)] {
            let content = filled(template, kind, phantom, "x");
            let post = Post::new(SLACK, "/api/chat.postMessage", kind, content.as_bytes());
            let (reason, seen) = sent(rig, way, false, &post);
            let seen = seen.unwrap_or_else(|| panic!("{reason}"));
            let expected = filled(template, kind, rig.secret("slack"), "x").replace("%2D", "-");
            assert_eq!(String::from_utf8_lossy(&seen.body), expected, "{way:?}");
            let bearer = format!("Bearer {phantom}");
            let twice = Post::new(SLACK, "/api/chat.postMessage", kind, content.as_bytes())
                .with("authorization", &bearer);
            assert_eq!(sent(rig, way, false, &twice).0, "phantom_count");
            // Its uploads are not searched, and the phantom is inert there.
            let upload = Post::new(SLACK, "/upload/v1/x", kind, content.as_bytes());
            assert_eq!(
                sent(rig, way, false, &upload).1.unwrap().body,
                content.as_bytes()
            );
        }
    }
}

/// In chunks, each of which ends within the phantom.
fn content_of_unknown_length_is_filled_alike(rig: &Rig) {
    for (way, host) in Way::SECURE
        .into_iter()
        .zip([PLACES, PLACES2, PLACES, PLACES2])
    {
        let (name, kind, template) = PLACES_OF[0];
        let phantom = rig.phantom(way, name);
        let content = filled(template, kind, phantom, phantom);
        let chunks = content.as_bytes().chunks(7);
        let chunks = chunks.map(|chunk| {
            format!(
                "{:x}\r\n{}\r\n",
                chunk.len(),
                String::from_utf8_lossy(chunk)
            )
        });
        let head = format!(
            "POST /x HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        let request = [head].into_iter().chain(chunks).collect::<String>() + "0\r\n\r\n";
        assert_eq!(
            rig.open(way, host).ask(request.as_bytes()).status,
            200,
            "{way:?}"
        );
        rig.record(way);
        let expected = filled(template, kind, rig.secret(name), phantom);
        assert_eq!(rig.seen().remove(0).body, expected.as_bytes(), "{way:?}");
    }
}

/// A form with a credential, a file of so many bytes with phantoms in it, and what comes then.
fn upload(token: &str, phantom: &str, length: usize, then: &str) -> Vec<u8> {
    let fields = format!(
        "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{phantom}\r\n--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n{token}\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\nContent-Type: image/png\r\n\r\n"
    );
    let mut content = fields.into_bytes();
    let line = format!("\0\r\n--\u{e9}: {phantom};");
    let lines = line.bytes().cycle().take(length);
    content.extend(lines);
    content.extend(then.bytes());
    content
}

/// Sends one request, of which E keeps the beginning alone: searching it all for every secret takes
/// a minute.
fn sent_long(rig: &Rig, way: Way, http2: bool, post: &Post<'_>) -> (Value, Option<Seen>) {
    let before = rig.origins.take_raw();
    let record = post.record(rig, way, http2);
    let seen = rig.seen().pop();
    let raw = rig.origins.take_raw();
    rig.origins.put_raw(&before);
    rig.origins.put_raw(&raw[..raw.len().min(64 << 10)]);
    (record, seen)
}

/// The ways and protocols, each once.
const SOME: [(Way, bool, &str); 4] = [
    (Way::Connect, false, PLACES),
    (Way::Socks, true, PLACES2),
    (Way::Tls, true, PLACES),
    (Way::Transparent, false, PLACES2),
];

/// A little more than is read before a file streams.
const FILE: usize = 1200 << 10;

fn a_file_streams_behind_a_credential_in_content(rig: &Rig) {
    let end = "\r\n--b\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\nx\r\n--b--\r\n";
    for (way, http2, host) in SOME {
        let phantom = rig.phantom(way, "part");
        // The first is more than is ever held.
        let length = if way == Way::Connect { 17 << 20 } else { FILE };
        let content = upload(phantom, phantom, length, end);
        let post = Post::new(host, "/x", PARTS, &content);
        let (record, seen) = sent_long(rig, way, http2, &post);
        let expected = upload(rig.secret("part"), phantom, length, end);
        let seen = seen.unwrap_or_else(|| panic!("{record}"));
        assert!(seen.body == expected, "{way:?} {http2} {host}");
        // Over HTTP/2 the client did not say it.
        let announced = seen.all("content-length");
        assert!(announced == [expected.len().to_string()] || http2 && announced.is_empty());
        assert_eq!(record["lent"][0]["place"], "multipart:token", "{record}");
        assert_eq!(noted(&record), ["part"], "{record}");
        let bearer = format!("Bearer {}", rig.phantom(way, "slack"));
        let content = upload("", "x", FILE, end);
        let post = Post::new(SLACK, "/api/files.upload", PARTS, &content);
        let post = post.with("authorization", &bearer);
        let (record, seen) = sent_long(rig, way, http2, &post);
        let seen = seen.unwrap_or_else(|| panic!("{record}"));
        assert!(seen.body == content);
    }
}

fn what_comes_behind_a_file_that_streams_is_not_lent_and_ends_it(rig: &Rig) {
    let part = |head: &str| {
        format!("\r\n--b\r\nContent-Disposition: form-data; {head}\r\n\r\nBEHIND\r\n--b--\r\n")
    };
    let cases = [
        part("name=\"token\""),
        part("name=token"),
        part("name=\"Token[]\""),
        part("name*=UTF-8''tok%65n"),
        part("name=\"x\"; filename=\"token\""),
        part("name=\"auth[token]\""),
        part("name=\"token\"").replace(": form", ":\r\n form"),
        // As some readers split it: at ends of lines without CR, at the boundary anywhere.
        part("name=\"token\"").replace("\r\n", "\n"),
        "--b\r\nX: y\r\n\r\nBEHIND\r\n--b--\r\n".into(),
        "\r\n--b \r\n\r\nBEHIND\r\n--b--\r\n".into(),
        "\r\n--b--\r\nBEHIND".into(),
        // Its end is missing.
        "\r\n".into(),
    ];
    let ways = SOME.into_iter().cycle();
    for (nth, (then, (way, http2, host))) in cases.iter().zip(ways).enumerate() {
        let phantom = rig.phantom(way, "part");
        // That what was lent is not sent on with a second one, where all of it has come.
        let token = if host == PLACES { phantom } else { "" };
        let behind = if nth % 3 == 0 { phantom } else { "attackers" };
        let then = then.replace("BEHIND", behind);
        let content = upload(token, "x", FILE, &then);
        let post = Post::new(host, "/x", PARTS, &content);
        let (record, seen) = sent_long(rig, way, http2, &post);
        let reason = &record["reason"];
        assert_eq!(reason, "content_unreadable", "{way:?} {http2} {then:?}");
        assert!(seen.is_none(), "{way:?} {http2} {then:?}");
    }
    for (way, http2, _) in SOME {
        let bearer = format!("Bearer {}", rig.phantom(way, "slack"));
        let content = upload("", "x", FILE, &part("name=\"token\""));
        let post = Post::new(SLACK, "/api/x", PARTS, &content).with("authorization", &bearer);
        let (record, _) = sent_long(rig, way, http2, &post);
        assert_eq!(record["reason"], "content_unreadable", "{way:?}");
    }
}
