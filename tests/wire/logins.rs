//! Logins inside: tokens that authorization servers issue to a session, and its requests to renew
//! them (threats I07). `Rig::settle` checks that no token is seen by the sandbox or a log.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::echoes::coded_pieces;
use crate::policy::reload;
use crate::rig::origin::{Step, ok};
use crate::rig::way::{Response, Way};
use crate::rig::{ANTHROPIC, AUTH, CLAUDE, EVIL, GOOD, MCP, OTHER, PASSED, Rig, policies};
use crate::rows;

rows![
    a_login_inside_gives_phantoms_that_hold_where_it_is_for,
    logins_at_once_are_each_their_own,
    a_login_that_a_preset_knows_is_for_its_service,
    a_known_issuers_tokens_are_for_no_other_service,
    a_request_to_renew_is_answered_by_the_gateway,
    a_token_that_its_service_refused_is_renewed_when_its_client_asks,
    a_phantom_is_presented_to_its_own_issuer_alone,
    a_revoked_login_is_over_until_the_next,
    answers_whose_tokens_cannot_be_mapped_are_withheld,
    answers_without_tokens_pass,
    a_login_is_for_no_host_that_is_not_the_sessions,
    an_operator_lets_tokens_pass,
    a_form_that_cannot_be_read_gets_no_token,
    what_a_common_reader_takes_for_a_request_for_tokens_is_one,
    tokens_of_any_status_and_in_any_spelling_are_mapped,
    a_token_answer_is_known_by_itself,
    a_token_answer_in_another_encoding_or_in_part_is_withheld,
    a_token_that_nobody_asked_for_holds_where_its_answer_says,
    what_is_no_token_answer_passes_and_waits_for_nothing,
    a_login_that_is_too_long_to_search_for_is_withheld,
    a_login_changes_no_other_sessions_requests,
    a_busy_issuer_is_named_to_who_asks,
    a_token_that_is_for_no_host_is_for_the_first_that_gets_it,
    a_hostile_login_keeps_no_change_from_coming_into_force,
    why_a_login_is_of_no_use_is_said_once_for_each_login_and_cause,
];

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

/// Sends content to a token endpoint.
fn post(rig: &Rig, way: Way, (host, path): (&str, &str), kind: &str, content: &str) -> Response {
    let length = content.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{content}"
    );
    rig.ask(way, host, &request)
}

fn issued(rig: &Rig) -> Value {
    let of = |name: &str| rig.secret(name).to_owned();
    json!({
        "access_token": of("access"), "refresh_token": of("refresh"), "id_token": of("id"),
        "token_type": "Bearer", "expires_in": 3600, "scope": "a b",
    })
}

/// Logs in by a code. Returns the tokens that the client gets.
fn log_in(rig: &Rig, way: Way, host: &str, more: &str) -> Value {
    let content = issued(rig).to_string();
    let fields = format!("Content-Type: {JSON}\r\n");
    rig.origins
        .on("/token", move |_| ok(&fields, content.as_bytes()));
    let code = format!("grant_type=authorization_code&code=c&{more}");
    let answer = post(rig, way, (host, "/token"), FORM, &code);
    let record = rig.record(way);
    assert_eq!(answer.status, 200, "{way:?} {answer:?} {record}");
    assert_eq!(
        answer.field("cache-control"),
        Some("no-store"),
        "{answer:?}"
    );
    assert!(rig.seen()[0].all("accept-encoding").contains(&"identity"));
    let shown: Value = serde_json::from_slice(&answer.body).unwrap();
    for name in ["access", "refresh", "id"] {
        let (text, secret) = (&shown[format!("{name}_token")], rig.secret(name));
        assert!(text != secret, "{way:?} {shown}");
        assert_eq!(text.as_str().map(str::len), Some(secret.len()), "{shown}");
    }
    assert_eq!(
        (&shown["expires_in"], &shown["scope"]),
        (&json!(3600), &json!("a b"))
    );
    shown
}

/// Uses an access token, and returns the status and the reason of a refusal.
fn present(rig: &Rig, way: Way, host: &str, token: &Value) -> (u16, String) {
    let token = token.as_str().unwrap();
    let ask = format!("GET /x HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
    let answer = rig.ask(way, host, &ask);
    let record = rig.record(way);
    let reason = record["reason"].as_str().unwrap_or_default().to_owned();
    (answer.status, reason)
}

fn refused(rig: &Rig, way: Way, answer: &Response, status: u16, reason: &str) {
    let record = rig.record(way);
    assert_eq!(
        (answer.status, &record["reason"]),
        (status, &json!(reason)),
        "{way:?} {record}"
    );
}

/// What reached E since the last call.
fn reached(rig: &Rig) -> usize {
    rig.seen().len()
}

fn a_login_inside_gives_phantoms_that_hold_where_it_is_for(rig: &Rig) {
    rig.origins.on("/x", |_| ok("", b"fine"));
    for way in Way::SECURE {
        for (resource, host) in [("https%3A%2F%2Fmcp.rig.test%2Fmcp", MCP), ("", AUTH)] {
            let more = format!("client_id=one&resource={resource}");
            let shown = log_in(rig, way, AUTH, &more);
            assert_eq!(present(rig, way, host, &shown["access_token"]).0, 200);
            let seen = rig.seen();
            let real = format!("Bearer {}", rig.secret("access"));
            assert_eq!(seen.last().unwrap().all("authorization"), [real], "{way:?}");
            for (kind, other) in [("access_token", OTHER), ("refresh_token", host)] {
                let (status, reason) = present(rig, way, other, &shown[kind]);
                assert_eq!((status, &*reason), (403, "phantom_out_of_scope"), "{kind}");
            }
            // The host takes other credentials as before.
            let own = Value::from("a-token-of-its-own");
            assert_eq!(present(rig, way, host, &own).0, 200);
            // The next login of the same client has the same phantoms.
            assert_eq!(log_in(rig, way, AUTH, &more), shown, "{way:?}");
        }
    }
}

fn logins_at_once_are_each_their_own(rig: &Rig) {
    rig.origins.on("/x", |_| ok("", b"fine"));
    let content = issued(rig).to_string();
    rig.origins
        .on("/token", move |_| ok("", content.as_bytes()));
    let way = Way::Connect;
    let log_in = |n| {
        let code =
            format!("grant_type=authorization_code&client_id=many&resource=https://{MCP}/{n}");
        let answer = post(rig, way, (AUTH, "/token"), FORM, &code);
        assert_eq!(answer.status, 200, "{answer:?}");
        let shown: Value = serde_json::from_slice(&answer.body).unwrap();
        shown["access_token"].clone()
    };
    let mut shown: Vec<Value> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|n| scope.spawn(move || log_in(n))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    rig.records(way, shown.len());
    for token in &shown {
        assert_eq!(present(rig, way, MCP, token).0, 200);
    }
    rig.seen();
    shown.sort_by_key(Value::to_string);
    shown.dedup();
    assert_eq!(shown.len(), 6);
}

fn a_login_that_a_preset_knows_is_for_its_service(rig: &Rig) {
    rig.origins.on("/x", |_| ok("", b"fine"));
    let content = issued(rig).to_string();
    rig.origins
        .on("/v1/oauth/token", move |_| ok("", content.as_bytes()));
    let code = json!({
        "grant_type": "authorization_code", "code": "c",
        "client_id": "9d1c250a-e61b-44d9-88ed-5944d1962f5e",
    });
    for way in [Way::Connect, Way::Transparent] {
        // A server may read other spellings of the path.
        for path in [
            "/v1/oauth/token",
            "/v1/oauth/token/",
            "//v1//oauth/token",
            "/v1/oauth/token;a=b",
        ] {
            let answer = post(
                rig,
                way,
                (CLAUDE, "/v1/oauth/token"),
                JSON,
                &code.to_string(),
            );
            let record = rig.record(way);
            assert_eq!(answer.status, 200, "{path} {answer:?} {record}");
            let shown: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(present(rig, way, ANTHROPIC, &shown["access_token"]).0, 200);
            let renewed =
                json!({"grant_type": "refresh_token", "refresh_token": shown["refresh_token"]});
            let answer = post(rig, way, (CLAUDE, path), JSON, &renewed.to_string());
            assert_eq!(answer.status, 200, "{answer:?}");
            rig.record(way);
            assert_eq!(reached(rig), 2);
        }
    }
}

fn a_known_issuers_tokens_are_for_no_other_service(rig: &Rig) {
    rig.origins.on("/x", |_| ok("", b"fine"));
    let content = issued(rig).to_string();
    rig.origins
        .on("/v1/oauth/token", move |_| ok("", content.as_bytes()));
    let way = Way::Connect;
    let code = format!("grant_type=authorization_code&client_id=other&resource=https://{MCP}");
    let answer = post(rig, way, (CLAUDE, "/v1/oauth/token"), FORM, &code);
    let record = rig.record(way);
    assert_eq!(answer.status, 200, "{answer:?} {record}");
    let shown: Value = serde_json::from_slice(&answer.body).unwrap();
    let token = &shown["access_token"];
    let elsewhere = present(rig, way, MCP, token);
    assert_eq!(elsewhere, (403, "phantom_out_of_scope".to_owned()));
    assert_eq!(present(rig, way, CLAUDE, token).0, 200);
    rig.seen();
}

fn a_request_to_renew_is_answered_by_the_gateway(rig: &Rig) {
    for way in Way::SECURE {
        let shown = log_in(rig, way, AUTH, "client_id=two");
        reached(rig);
        let token = shown["refresh_token"].as_str().unwrap();
        let form = format!("grant_type=refresh_token&client_id=two&refresh_token={token}");
        let camel = json!({"grantType": "refresh_token", "refreshToken": token}).to_string();
        for (kind, content, name) in [(FORM, form, "access_token"), (JSON, camel, "accessToken")] {
            let answer = post(rig, way, (AUTH, "/token"), kind, &content);
            let record = rig.record(way);
            assert_eq!(answer.status, 200, "{answer:?} {record}");
            assert_eq!(record["decision"], "allow", "{record}");
            let renewed: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(renewed[name], shown["access_token"], "{renewed}");
            assert_eq!(answer.field("cache-control"), Some("no-store"));
        }
        assert_eq!(reached(rig), 0, "nothing went out");
    }
}

/// A logout elsewhere, a changed password: the service knows before the clock does.
fn a_token_that_its_service_refused_is_renewed_when_its_client_asks(rig: &Rig) {
    let way = Way::Connect;
    let refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
    let shown = log_in(rig, way, AUTH, "client_id=refused");
    reached(rig);
    let token = shown["refresh_token"].as_str().unwrap();
    let form = format!("grant_type=refresh_token&client_id=refused&refresh_token={token}");
    let renew = || {
        let answer = post(rig, way, (AUTH, "/token"), FORM, &form);
        rig.record(way);
        answer
    };
    // Not without a refusal, nor for one of a request that has another credential.
    rig.origins
        .on("/x", move |_| vec![Step::Bytes(refusal.to_vec())]);
    let other = Value::from("a-token-of-its-own");
    assert_eq!(present(rig, way, AUTH, &other).0, 401);
    reached(rig);
    assert_eq!(renew().status, 200);
    assert_eq!(reached(rig), 0, "the issuer is not asked");
    let mut issued = issued(rig);
    issued["refresh_token"] = Value::from(rig.secret("refresh"));
    // No other row's: the same secret of two credentials comes back as either's phantom.
    issued["access_token"] = Value::from(rig.secret("next"));
    let content = issued.to_string();
    rig.origins
        .on("/token", move |_| ok("", content.as_bytes()));
    assert_eq!(present(rig, way, AUTH, &shown["access_token"]).0, 401);
    reached(rig);
    for asked in [1, 0] {
        let renewed: Value = serde_json::from_slice(&renew().body).unwrap();
        assert_eq!(renewed["access_token"], shown["access_token"], "{renewed}");
        assert_eq!(reached(rig), asked, "once per refused token");
    }
    rig.origins.on("/x", |_| ok("", b"fine"));
    assert_eq!(present(rig, way, AUTH, &shown["access_token"]).0, 200);
    let real = format!("Bearer {}", rig.secret("next"));
    assert_eq!(rig.seen().last().unwrap().all("authorization"), [real]);
    rig.sent_by_the_gateway();
}

fn a_phantom_is_presented_to_its_own_issuer_alone(rig: &Rig) {
    let way = Way::Connect;
    let shown = log_in(rig, way, AUTH, "client_id=three");
    reached(rig);
    let of = |name: &str| shown[name].as_str().unwrap().to_owned();
    let with =
        |token: &str, more: &str| format!("grant_type=refresh_token&refresh_token={token}{more}");
    let (refresh, access) = (of("refresh_token"), of("access_token"));
    let bearer = rig.phantom(way, "bearer");
    for (at, content) in [
        ((AUTH, "/token"), with(&refresh, "&client_id=another")),
        ((AUTH, "/other"), with(&refresh, "")),
        ((OTHER, "/token"), with(&refresh, "")),
        ((AUTH, "/token"), with(&access, "")),
        ((AUTH, "/token"), with(bearer, "")),
    ] {
        let answer = post(rig, way, at, FORM, &content);
        refused(rig, way, &answer, 403, "phantom_out_of_scope");
    }
    let twice = with(&refresh, &format!("&refresh_token={refresh}"));
    let answer = post(rig, way, (AUTH, "/token"), FORM, &twice);
    refused(rig, way, &answer, 403, "content_unreadable");
    // Another session's.
    let content = with(&rig.phantoms_b["bearer"], "");
    let answer = post(rig, way, (AUTH, "/token"), FORM, &content);
    refused(rig, way, &answer, 403, "phantom_foreign_session");
    assert_eq!(reached(rig), 0, "nothing went out");
}

fn a_revoked_login_is_over_until_the_next(rig: &Rig) {
    rig.origins.on("/x", |_| ok("", b"fine"));
    let content = issued(rig).to_string();
    rig.origins
        .on("/v1/oauth/token", move |_| ok("", content.as_bytes()));
    let way = Way::Connect;
    let log_in = || {
        let code = json!({"grant_type": "authorization_code", "code": "c"}).to_string();
        let answer = post(rig, way, (CLAUDE, "/v1/oauth/token"), JSON, &code);
        rig.record(way);
        serde_json::from_slice::<Value>(&answer.body).unwrap()
    };
    let shown = log_in();
    reached(rig);
    let revoke = json!({"token": shown["refresh_token"]}).to_string();
    let answer = post(rig, way, (CLAUDE, "/v1/oauth/token/revoke"), JSON, &revoke);
    rig.record(way);
    assert_eq!(answer.status, 200, "{answer:?}");
    // The gateway tells the issuer itself, by no way of the session.
    assert_eq!(reached(rig), 1);
    rig.sent_by_the_gateway();
    let used = present(rig, way, ANTHROPIC, &shown["access_token"]);
    assert_eq!(used, (403, "credential_removed".to_owned()));
    let renew = json!({"grant_type": "refresh_token", "refresh_token": shown["refresh_token"]});
    let answer = post(
        rig,
        way,
        (CLAUDE, "/v1/oauth/token"),
        JSON,
        &renew.to_string(),
    );
    refused(rig, way, &answer, 403, "credential_removed");
    assert_eq!(reached(rig), 0, "nothing went out");
    assert_eq!(log_in()["access_token"], shown["access_token"]);
    assert_eq!(present(rig, way, ANTHROPIC, &shown["access_token"]).0, 200);
}

fn answers_whose_tokens_cannot_be_mapped_are_withheld(rig: &Rig) {
    let (access, refresh) = (
        rig.secret("access").to_owned(),
        rig.secret("refresh").to_owned(),
    );
    let one = issued(rig).to_string();
    let json = format!("Content-Type: {JSON}\r\n");
    let long = one.replace("a b", &"a".repeat(65 << 10));
    let gzip = coded_pieces("gzip", &[one.as_bytes()]).concat();
    let cut = format!("HTTP/1.1 200 OK\r\n{json}Content-Length: 9999\r\n\r\n{one}");
    let answers: Vec<(&str, Vec<Step>)> = vec![
        ("longer than 64 KiB", ok(&json, long.as_bytes())),
        (
            "coded",
            ok(&format!("{json}Content-Encoding: compress\r\n"), &gzip),
        ),
        ("cut off", vec![Step::Bytes(cut.into_bytes()), Step::Close]),
        (
            "doubled",
            ok(
                &json,
                format!("{{\"access_token\":\"{access}\",\"access_token\":\"{refresh}\"}}")
                    .as_bytes(),
            ),
        ),
        (
            "elsewhere, too",
            ok(
                &json,
                json!({"access_token": access, "note": access})
                    .to_string()
                    .as_bytes(),
            ),
        ),
        (
            "unknown",
            ok(
                &json,
                json!({"access_token": access, "device_secret": refresh})
                    .to_string()
                    .as_bytes(),
            ),
        ),
        (
            "bound to a key",
            ok(
                &json,
                json!({"access_token": access, "token_type": "DPoP"})
                    .to_string()
                    .as_bytes(),
            ),
        ),
        (
            "a page",
            ok(
                "Content-Type: text/html\r\n",
                format!("<input name=access_token value={access}>").as_bytes(),
            ),
        ),
        ("too short", ok(&json, br#"{"access_token":"abc"}"#)),
    ];
    for way in [Way::Connect, Way::Transparent] {
        for (what, steps) in answers.clone() {
            rig.origins.on("/token", move |_| steps.clone());
            let answer = post(
                rig,
                way,
                (AUTH, "/token"),
                FORM,
                "grant_type=authorization_code&client_id=odd",
            );
            println!("{what}");
            refused(rig, way, &answer, 502, "unmapped_token");
            assert!(
                answer.text().contains("token_answers"),
                "{what}: {answer:?}"
            );
        }
    }
    rig.seen();
}

fn answers_without_tokens_pass(rig: &Rig) {
    let (way, json) = (Way::Connect, format!("Content-Type: {JSON}\r\n"));
    let pending = br#"{"error":"authorization_pending"}"#;
    let failed = [
        b"HTTP/1.1 400 Bad\r\nContent-Length: 33\r\n\r\n",
        &pending[..],
    ]
    .concat();
    let grant = "grant_type=device_code".to_owned();
    let mut paths = ["/token", "/token", "/upload", "/form"].into_iter();
    for (content, steps, expected) in [
        (grant.clone(), ok(&json, pending), 200),
        (grant, vec![Step::Bytes(failed)], 400),
        (
            format!("a={}&grant_type=x", "b".repeat(70 << 10)),
            ok(&json, pending),
            200,
        ),
        ("token=a&token=b".to_owned(), ok(&json, pending), 200),
    ] {
        let path = paths.next().unwrap();
        rig.origins.on(path, move |_| steps.clone());
        let answer = post(rig, way, (AUTH, path), FORM, &content);
        let record = rig.record(way);
        assert_eq!(
            (answer.status, &answer.body[..]),
            (expected, &pending[..]),
            "{record}"
        );
        assert_eq!(rig.seen()[0].body, content.as_bytes());
    }
    // Tokens in chunks, in a form, and behind them another answer that nobody asked for.
    let (access, body) = (
        rig.secret("access").to_owned(),
        format!("access_token={}&scope=", rig.secret("access")),
    );
    let (one, two) = body.split_at(20);
    let chunks = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {FORM}\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n",
        two.len()
    );
    let twice = [ok("", body.as_bytes()), ok("", body.as_bytes())].concat();
    for steps in [vec![Step::Bytes(chunks.into_bytes())], twice] {
        rig.origins.on("/token", move |_| steps.clone());
        let answer = post(
            rig,
            way,
            (AUTH, "/token"),
            FORM,
            "grant_type=authorization_code&client_id=form",
        );
        rig.record(way);
        let text = answer.text();
        assert!(
            answer.status == 200 && text.ends_with("&scope=") && !text.contains(&access),
            "{text}"
        );
        assert_eq!(text.len(), body.len());
    }
    rig.seen();
}

/// A login at a host that has another credential, or none that is allowed.
fn a_login_is_for_no_host_that_is_not_the_sessions(rig: &Rig) {
    let content = issued(rig).to_string();
    rig.origins
        .on("/token", move |_| ok("", content.as_bytes()));
    for host in [GOOD, EVIL] {
        let content =
            format!("grant_type=authorization_code&client_id=bad&resource=https://{host}");
        let answer = post(rig, Way::Connect, (AUTH, "/token"), FORM, &content);
        refused(rig, Way::Connect, &answer, 502, "unmapped_token");
    }
    rig.seen();
}

fn an_operator_lets_tokens_pass(rig: &Rig) {
    rig.origins.on("/token", |_| {
        ok(
            "",
            br#"{"access_token":"not-a-canary","device_secret":"b"}"#,
        )
    });
    let answer = post(
        rig,
        Way::Connect,
        (PASSED, "/token"),
        FORM,
        "grant_type=authorization_code",
    );
    rig.record(Way::Connect);
    assert!(
        answer.status == 200 && answer.text().contains("not-a-canary"),
        "{answer:?}"
    );
    rig.seen();
}

fn a_form_that_cannot_be_read_gets_no_token(rig: &Rig) {
    let content = issued(rig).to_string();
    rig.origins
        .on("/token", move |_| ok("", content.as_bytes()));
    let kind = format!("{FORM}; charset=utf-16");
    let asked = "grant_type=authorization_code";
    let answer = post(rig, Way::Connect, (AUTH, "/token"), &kind, asked);
    rig.record(Way::Connect);
    assert!(
        !answer.text().contains(rig.secret("access"))
            && !answer.text().contains(rig.secret("refresh")),
        "{answer:?}"
    );
    rig.seen();
}

fn what_a_common_reader_takes_for_a_request_for_tokens_is_one(rig: &Rig) {
    let content = issued(rig).to_string();
    let json = json!({"grant_type": "authorization_code", "client_id": "ways"}).to_string();
    let camel = json!({"grantType": "authorization_code", "clientId": "ways"}).to_string();
    let form = "client_id=ways&grant_type=authorization_code";
    let parts = [
        "client_id\"\r\n\r\nways",
        "grant_type\"\r\n\r\nauthorization_code",
    ]
    .map(|part| format!("--b\r\nContent-Disposition: form-data; name=\"{part}\r\n"));
    let parts = parts.concat() + "--b--\r\n";
    let query = format!("/token?{form}");
    let ways: [(&str, &str, &str, &str); 26] = [
        ("POST", "/token", FORM, form),
        (
            "POST",
            "/token",
            "Application/X-WWW-Form-URLEncoded ;x=y",
            form,
        ),
        ("POST", "/token", JSON, &json),
        ("POST", "/token", JSON, &camel),
        (
            "POST",
            "/token",
            "application/vnd.api+json; charset=utf-8",
            &json,
        ),
        ("POST", "/token", JSON, &format!("[{json}]")),
        ("POST", "/token", "multipart/form-data; boundary=b", &parts),
        ("POST", &query, FORM, "a=b"),
        ("POST", &query, "", ""),
        ("POST", &query, "application/octet-stream", "a"),
        ("GET", &query, "", ""),
        ("GET", "/token?client_id=ways&%67rantType=x", "", ""),
        ("GET", "/token??grant_type=x", "", ""),
        ("PUT", "/token", FORM, form),
        ("PUT", "/token", JSON, &json),
        ("PATCH", "/token", JSON, &json),
        ("POST", "/token", "", form),
        ("POST", "/token", "text/plain", form),
        ("POST", "/token", "text/plain;charset=UTF-8", &json),
        ("POST", "/token", FORM, &json),
        ("POST", "/token", FORM, "client_id=ways&grant.type=x"),
        ("POST", "/token", FORM, "client_id=ways&grant[type=x"),
        ("POST", "/token", FORM, "?grant_type=x&client_id=ways"),
        ("POST", "/token", FORM, "client_id=ways&grant_type[]=x"),
        ("POST", "/token", FORM, "client_id=ways;Grant%5FType=x"),
        ("POST", "/token", FORM, "client_id=ways&+grant-type=x"),
    ];
    let way = Way::Connect;
    for (method, target, kind, asked) in ways {
        let content = content.clone();
        let issue = move |_: &_| ok("", content.as_bytes());
        rig.origins.on(target, issue.clone());
        rig.origins.on("/token", issue);
        let kind = match kind {
            "" => String::new(),
            kind => format!("Content-Type: {kind}\r\n"),
        };
        let length = asked.len();
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {AUTH}\r\n{kind}Content-Length: {length}\r\n\r\n{asked}"
        );
        let answer = rig.ask(way, AUTH, &request);
        let (record, what) = (rig.record(way), format!("{method} {target} {kind}{asked}"));
        assert_eq!(answer.status, 200, "{what} {record}");
        is_mapped(rig, &answer, &what);
    }
    rig.seen();
}

fn is_mapped(rig: &Rig, answer: &Response, what: &str) {
    let shown: Value = serde_json::from_slice(&answer.body).unwrap();
    for name in ["access", "refresh"] {
        let (text, secret) = (&shown[format!("{name}_token")], rig.secret(name));
        let length = text.as_str().map(str::len);
        assert!(
            text != secret && length == Some(secret.len()),
            "{what} {shown}"
        );
    }
}

fn tokens_of_any_status_and_in_any_spelling_are_mapped(rig: &Rig) {
    let (way, content) = (Way::Connect, issued(rig).to_string());
    // As PHP writes a slash, any letter may be written as an escape.
    let escaped = |name: &str| {
        let secret = rig.secret(name);
        content.replace(
            secret,
            &format!("\\u{:04x}{}", secret.as_bytes()[0], &secret[1..]),
        )
    };
    for (status, content) in [
        (400, content.clone()),
        (401, content.clone()),
        (500, content.clone()),
        (302, content.clone()),
        (200, escaped("access")),
        (200, escaped("refresh")),
    ] {
        let length = content.len();
        let answer = format!(
            "HTTP/1.1 {status} x\r\nContent-Type: {JSON}\r\nContent-Length: {length}\r\n\r\n{content}"
        );
        let steps = vec![Step::Bytes(answer.into_bytes())];
        rig.origins.on("/token", move |_| steps.clone());
        let asked = "grant_type=authorization_code&client_id=status";
        let answer = post(rig, way, (AUTH, "/token"), FORM, asked);
        let record = rig.record(way);
        assert_eq!(answer.status, status, "{record}");
        is_mapped(rig, &answer, &format!("{status} {content}"));
    }
    rig.seen();
}

/// Logs in with tokens of which one is due at once, and whose issuer then answers so.
fn log_in_hostile(rig: &Rig, client: &str, then: Vec<Step>) -> Value {
    let of = |name: &str| rig.secret(name).to_owned();
    let content = json!({
        "access_token": of("access"), "refresh_token": of("refresh"),
        "token_type": "Bearer", "expires_in": 3,
    });
    let content = content.to_string();
    let fields = format!("Content-Type: {JSON}\r\n");
    rig.origins
        .on("/token", move |_| ok(&fields, content.as_bytes()));
    let code = format!(
        "grant_type=authorization_code&code=c&client_id={client}&resource=https://{MCP}/{client}"
    );
    let answer = post(rig, Way::Connect, (AUTH, "/token"), FORM, &code);
    let record = rig.record(Way::Connect);
    assert_eq!(answer.status, 200, "{client} {answer:?} {record}");
    rig.origins.on("/token", move |_| then.clone());
    std::thread::sleep(Duration::from_millis(3200));
    // Beside the login, what the gateway asked the issuer by itself.
    for _ in 1..reached(rig) {
        rig.sent_by_the_gateway();
    }
    serde_json::from_slice(&answer.body).unwrap()
}

/// What a session holds or does never decides whether, nor when, an operator's change comes into
/// force, and one login of it never decides about another.
fn a_hostile_login_keeps_no_change_from_coming_into_force(rig: &Rig) {
    rig.origins.on("/x", |_| ok("", b"fine"));
    let fails = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
    let garbage = ok("", &[b'x'; 45 << 10]);
    for (client, then) in [
        ("failing", vec![Step::Bytes(fails.to_vec())]),
        ("garbled", garbage),
        ("silent", vec![Step::Pause(8000), Step::Close]),
    ] {
        log_in_hostile(rig, client, then);
        let forbid = format!(
            "@id(\"{client}\")\nforbid(principal, action, resource == Gateway::Host::\"{OTHER}\");\n"
        );
        let began = Instant::now();
        assert!(reload(rig, &format!("{}{forbid}", policies())), "{client}");
        let took = began.elapsed();
        println!("beside a login that is {client}, a reload took {took:?}");
        // Far less than an issuer is waited for; a machine under load takes a second or two.
        assert!(took < Duration::from_secs(5), "{client}: {took:?}");
        let ask = format!("GET /x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n");
        let answer = rig.ask(Way::Connect, OTHER, &ask);
        refused(rig, Way::Connect, &answer, 403, "policy_forbids");
        assert!(reload(rig, &policies()), "{client}");
        // Nobody asked its issuer for that.
        assert_eq!(reached(rig), 0, "{client}");
    }
    // Another login of the same session is its own. Those for its host would be renewed with it.
    let shown = log_in(rig, Way::Connect, AUTH, "client_id=whole&resource=");
    assert_eq!(
        present(rig, Way::Connect, AUTH, &shown["access_token"]).0,
        200
    );
    rig.seen();
}

/// The forms in which services give tokens, whatever was asked: `A` and `R` are an access and a
/// refresh token. Then whether the session gets phantoms, or none of it.
const ANSWERS: [(&str, &str, bool); 20] = [
    (
        JSON,
        r#"{"accessToken":"A","expiresIn":28800,"refreshToken":"R","tokenType":"Bearer"}"#,
        true,
    ),
    (
        JSON,
        r#"{"ok":true,"access_token":"A","token_type":"bot","scope":"x","authed_user":{"id":"U1"}}"#,
        true,
    ),
    (
        JSON,
        r#"{"ok":true,"authed_user":{"id":"U1","scope":"x","access_token":"A","token_type":"user"}}"#,
        true,
    ),
    (
        JSON,
        r#"{"ok":true,"access_token":"A","token_type":"bot","authed_user":{"access_token":"R","token_type":"user"}}"#,
        false,
    ),
    (
        JSON,
        r#"{"access_token":"A","scope":"write_orders,read_customers"}"#,
        true,
    ),
    (
        JSON,
        r#"{"token":"A","access_token":"A","expires_in":300,"issued_at":"2026-01-01T00:00:00Z"}"#,
        true,
    ),
    (
        JSON,
        r#"{"token":"A","expires_at":"2099-01-01T00:00:00Z","permissions":{"issues":"write"}}"#,
        true,
    ),
    (
        "application/x-amz-json-1.1",
        r#"{"AuthenticationResult":{"AccessToken":"A","ExpiresIn":3600,"RefreshToken":"R","TokenType":"Bearer"},"ChallengeParameters":{}}"#,
        true,
    ),
    (
        "text/html; charset=UTF-8",
        r#" {"access_token":"A","token_type":"bearer"}"#,
        true,
    ),
    ("", r#"{"access_token":"A","refresh_token":"R"}"#, true),
    (JSON, r#"[{"access_token":"A","expires_in":60}]"#, true),
    (
        JSON,
        r#"{"data":{"login":{"accessToken":"A","refreshToken":"R"}}}"#,
        true,
    ),
    (FORM, "access_token=A&scope=repo&token_type=bearer", true),
    ("text/plain", "access_token=A&expires=5183999", true),
    (
        JSON,
        r#"{"access_token":"A","expires_in":60,"client_secret":"R"}"#,
        false,
    ),
    (
        JSON,
        r#"{"idToken":"A","refreshToken":"R","expiresIn":"3600","localId":"u"}"#,
        false,
    ),
    (
        JSON,
        r#"[{"data":{"a":1}},{"data":{"access_token":"A","expires_in":60}}]"#,
        true,
    ),
    (
        "text/javascript",
        r#"/**/cb({"access_token":"A","expires_in":60});"#,
        false,
    ),
    (
        JSON,
        ")]}'\n{\"access_token\":\"A\",\"expires_in\":60}",
        false,
    ),
    (
        JSON,
        r#"{"token":"A","issued_at":"2026","name":"\ud800"}"#,
        false,
    ),
];

fn a_token_answer_in_another_encoding_or_in_part_is_withheld(rig: &Rig) {
    let (way, token) = (Way::Connect, rig.secret("access"));
    let content = format!(r#"{{"access_token":"{token}","expires_in":60}}"#);
    let wide: Vec<u8> = content.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let kind = format!("Content-Type: {JSON}; charset=utf-16le\r\n");
    rig.origins.on("/wide", move |_| ok(&kind, &wide));
    let all = content.len();
    let part = format!(
        "HTTP/1.1 206 P\r\nContent-Type: {JSON}\r\nContent-Range: bytes 1-{}/{all}\r\nContent-Length: {}\r\n\r\n{}",
        all - 1,
        all - 1,
        &content[1..]
    );
    rig.origins.on("/part", move |_| {
        vec![Step::Bytes(part.clone().into_bytes())]
    });
    for path in ["/wide", "/part"] {
        let ask = format!("GET {path} HTTP/1.1\r\nHost: {OTHER}\r\nRange: bytes=1-\r\n\r\n");
        let answer = rig.ask(way, OTHER, &ask);
        assert_ne!(answer.status, 206, "{answer:?}");
        assert_eq!(answer.status, 502, "{path} {answer:?}");
        rig.record(way);
    }
    rig.seen();
}

fn a_token_answer_is_known_by_itself(rig: &Rig) {
    let (way, of) = (Way::Connect, |name: &str| rig.secret(name).to_owned());
    for (nth, (kind, shape, is_mapped)) in ANSWERS.into_iter().enumerate() {
        let content = shape.replace("\"A\"", &format!("\"{}\"", of("access")));
        let content = content.replace("=A&", &format!("={}&", of("access")));
        let content = content.replace("\"R\"", &format!("\"{}\"", of("refresh")));
        let kind = match kind {
            "" => String::new(),
            kind => format!("Content-Type: {kind}\r\n"),
        };
        let gzip = coded_pieces("gzip", &[content.as_bytes()]).concat();
        let coded = format!("{kind}Content-Encoding: gzip\r\n");
        let chunks = format!(
            "HTTP/1.1 500 No\r\n{kind}Transfer-Encoding: chunked\r\n\r\n4\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
            &content[..4],
            content.len() - 4,
            &content[4..],
        );
        for (status, steps) in [
            (200, ok(&kind, content.as_bytes())),
            (200, ok(&coded, &gzip)),
            (500, vec![Step::Bytes(chunks.into_bytes())]),
        ] {
            let path = format!("/me/{nth}");
            rig.origins.on(&path, move |_| steps.clone());
            let ask =
                format!("GET {path} HTTP/1.1\r\nHost: {AUTH}\r\nAccept-Encoding: gzip\r\n\r\n");
            let answer = rig.ask(way, AUTH, &ask);
            println!("{shape} {status} {answer:?}");
            match is_mapped {
                true => {
                    rig.record(way);
                    assert_eq!(answer.status, status, "{shape}");
                    assert_eq!(answer.body.len(), content.len(), "{shape}");
                    for name in ["access", "refresh"] {
                        assert!(!answer.text().contains(rig.secret(name)), "{shape}");
                    }
                }
                false => refused(rig, way, &answer, 502, "unmapped_token"),
            }
        }
    }
    rig.seen();
}

/// Git LFS names the address and the scheme, a registry's client the registry.
fn a_token_that_nobody_asked_for_holds_where_its_answer_says(rig: &Rig) {
    rig.origins.on("/x", |_| ok("", b"fine"));
    // None that the session is lent already.
    let letter = |nth: usize, at: usize| char::from(b'a' + ((7 * at + 1) * nth % 26) as u8);
    let own = |nth: usize| (0..26).map(|at| letter(nth, at)).collect::<String>();
    let (way, access) = (Way::Connect, own(1));
    let fields = format!("Content-Type: {JSON}\r\n");
    let action = |path: &str| {
        json!({"href": format!("https://{MCP}/{path}"), "expires_in": 3600,
            "header": {"Authorization": format!("RemoteAuth {access}")}})
    };
    let batch = json!({"objects": [
        {"oid": "1", "actions": {"download": action("1")}},
        {"oid": "2", "actions": {"upload": action("2"), "verify": action("3")}},
    ]});
    let steps = ok(&fields, batch.to_string().as_bytes());
    rig.origins
        .on("/info/lfs/objects/batch", move |_| steps.clone());
    let kind = "application/vnd.git-lfs+json";
    let answer = post(rig, way, (AUTH, "/info/lfs/objects/batch"), kind, "{}");
    rig.record(way);
    let shown: Value = serde_json::from_slice(&answer.body).unwrap();
    let header = &shown["objects"][1]["actions"]["verify"]["header"]["Authorization"];
    let phantom = header.as_str().unwrap();
    assert!(!phantom.contains(&access), "{shown}");
    rig.seen();
    let ask = format!("GET /x HTTP/1.1\r\nHost: {MCP}\r\nAuthorization: {phantom}\r\n\r\n");
    assert_eq!(rig.ask(way, MCP, &ask).status, 200);
    rig.record(way);
    let real = format!("RemoteAuth {access}");
    assert_eq!(rig.seen()[0].all("authorization"), [real]);

    // An anonymous token of a registry, one for each repository, and over in a moment.
    let mut phantoms = Vec::new();
    for repository in [2, 3] {
        let target = format!("/registry?service={OTHER}&scope=repository:r{repository}:pull");
        let content = json!({"token": own(repository), "expires_in": 5}).to_string();
        let steps = ok(&fields, content.as_bytes());
        rig.origins.on("/registry", move |_| steps.clone());
        let answer = rig.ask(
            way,
            AUTH,
            &format!("GET {target} HTTP/1.1\r\nHost: {AUTH}\r\n\r\n"),
        );
        let record = rig.record(way);
        assert_eq!(answer.status, 200, "{answer:?} {record}");
        let shown: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(present(rig, way, OTHER, &shown["token"]).0, 200, "{shown}");
        let elsewhere = present(rig, way, MCP, &shown["token"]);
        assert_eq!(elsewhere, (403, "phantom_out_of_scope".to_owned()));
        phantoms.push(shown["token"].clone());
    }
    assert_ne!(phantoms[0], phantoms[1]);
    std::thread::sleep(Duration::from_millis(5100));
    // A token that is over keeps nobody from asking for another.
    let ask = format!("GET /x HTTP/1.1\r\nHost: {OTHER}\r\n\r\n");
    assert_eq!(rig.ask(way, OTHER, &ask).status, 200);
    rig.record(way);
    // Its tokens are no canaries of the rig.
    rig.unlent(3);
    rig.seen();
}

fn what_is_no_token_answer_passes_and_waits_for_nothing(rig: &Rig) {
    let way = Way::Connect;
    let token = "0123456789abcdefghij";
    for (nth, content) in [
        format!(r#"{{"next_page_token":"{token}","expires_in":60}}"#),
        format!(r#"{{"token":"{token}","type":"identifier"}}"#),
        format!(r#"{{"access_token":"{token}"}}"#),
        r#"{"access_token":null,"refresh_token":null,"expires_in":0}"#.to_owned(),
        r#"{"usage":{"input_tokens":5,"total_tokens":9}}"#.to_owned(),
        r#"{"a":1,"a":2}"#.to_owned(),
        format!("a={token}&b=2"),
    ]
    .into_iter()
    .enumerate()
    {
        let (path, body) = (format!("/plain/{nth}"), content.clone());
        rig.origins.on(&path, move |_| {
            ok(
                "Content-Type: application/json\r\nETag: \"1\"\r\n",
                body.as_bytes(),
            )
        });
        let answer = rig.ask(
            way,
            AUTH,
            &format!("GET {path} HTTP/1.1\r\nHost: {AUTH}\r\n\r\n"),
        );
        rig.record(way);
        assert_eq!((answer.status, answer.text()), (200, content), "{answer:?}");
        assert_eq!(answer.field("etag"), Some("\"1\""));
    }
    for (path, kind, piece) in [
        ("/stream/events", "text/event-stream", "data: 1\n\n"),
        (
            "/stream/lines",
            "application/json",
            "{\"type\":\"ADDED\"}\n",
        ),
        ("/stream/list", "application/json", "[{\"text\":\"a\"}\n"),
        ("/stream/log", "text/plain", "a line of a log\n"),
    ] {
        rig.origins.on(path, move |_| {
            let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}");
            vec![Step::Bytes(head.into_bytes()), Step::Pause(4000), Step::Bytes(b"0\r\n\r\n".to_vec())]
        });
        let mut wire = rig.open(way, AUTH);
        let began = Instant::now();
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: {AUTH}\r\n\r\n").as_bytes());
        assert!(wire.line(piece.as_bytes()).is_some(), "{path}");
        assert!(began.elapsed() < Duration::from_secs(4), "{path}");
        rig.record(way);
    }
    rig.seen();
}

/// Each token is searched for in all that the session sees: a long one takes that much memory.
fn a_login_that_is_too_long_to_search_for_is_withheld(rig: &Rig) {
    // A session that no other row logs in with: what it holds stays.
    let log_in = |client: &str, length: usize| {
        let token: String = ('a'..='z').cycle().take(length).collect();
        let content = json!({"access_token": token, "token_type": "Bearer"}).to_string();
        rig.origins
            .on("/token", move |_| ok("", content.as_bytes()));
        let resource = format!("https://{MCP}/{client}");
        let code = format!("grant_type=authorization_code&resource={resource}");
        let head = format!("POST /token HTTP/1.1\r\nHost: {AUTH}\r\nContent-Type: {FORM}");
        let mut wire = rig
            .dial(rig.ports.tls_b)
            .secure(Some(AUTH), &["http/1.1"])
            .unwrap();
        wire.ask(format!("{head}\r\nContent-Length: {}\r\n\r\n{code}", code.len()).as_bytes())
    };
    let answer = log_in("long", (8 << 10) + 1);
    assert_eq!((answer.status, &*answer.reason()), (502, "unmapped_token"));
    let mut kept = 0;
    for n in 0..6 {
        let answer = log_in(&format!("many-{n}"), (8 << 10) - n);
        if answer.status == 200 {
            kept += 1;
        } else {
            assert_eq!((answer.status, &*answer.reason()), (502, "unmapped_token"));
        }
    }
    assert!((1..=4).contains(&kept), "{kept}");
    rig.seen();
    rig.forget_records();
}

fn a_login_changes_no_other_sessions_requests(rig: &Rig) {
    rig.origins.on("/x", |_| ok("", b"fine"));
    let ask = format!("GET /x HTTP/1.1\r\nHost: {AUTH}\r\nAccept-Encoding: gzip\r\n\r\n");
    let coding = |door| {
        let mut wire = rig.dial(door).secure(Some(AUTH), &["http/1.1"]).unwrap();
        assert_eq!(wire.ask(ask.as_bytes()).status, 200);
        rig.seen()[0].all("accept-encoding").concat()
    };
    // Other rows may have lent that session something there.
    let before = coding(rig.ports.tls_b);
    log_in(rig, Way::Connect, AUTH, "client_id=alone");
    rig.seen();
    assert_eq!(coding(rig.ports.tls), "identity");
    assert_eq!(coding(rig.ports.tls_b), before);
    rig.forget_records();
}

fn a_busy_issuer_is_named_to_who_asks(rig: &Rig) {
    let busy = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n";
    rig.origins.on("/x", |_| ok("", b"fine"));
    let shown = log_in_hostile(rig, "busy", vec![Step::Bytes(busy.to_vec())]);
    let token = shown["access_token"].as_str().unwrap();
    let ask = format!("GET /x HTTP/1.1\r\nHost: {MCP}\r\nAuthorization: Bearer {token}\r\n\r\n");
    let mut asked = 0;
    for _ in 0..3 {
        let answer = rig.ask(Way::Connect, MCP, &ask);
        asked += reached(rig);
        let text = answer.text();
        let names = text.contains(&format!("its issuer `{AUTH}` is busy until 2"));
        assert!(answer.status >= 500 && names, "{answer:?}");
        rig.record(Way::Connect);
    }
    assert_eq!(asked, 1, "it is not asked again before it says");
    rig.sent_by_the_gateway();
}

/// As Claude Code logs in to an MCP server: its token request names no `resource`, or one that is
/// no address.
fn a_token_that_is_for_no_host_is_for_the_first_that_gets_it(rig: &Rig) {
    rig.origins.on("/x", |_| ok("", b"fine"));
    let way = Way::Connect;
    let settled = || -> Vec<Value> {
        let log = std::fs::read_to_string(&rig.served.audit).unwrap();
        let events = log.lines().filter(|line| line.contains("login_settled"));
        events
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    for (client, resource) in [("bare", ""), ("odd", "&resource=urn%3Amcp")] {
        let before = settled().len();
        let more = format!("client_id={client}{resource}");
        let shown = log_in(rig, way, AUTH, &more);
        let token = &shown["access_token"];
        // Neither a host that policy does not allow, nor one that has a credential, gets it.
        for host in [EVIL, GOOD] {
            assert_eq!(present(rig, way, host, token).0, 403, "{host}");
        }
        // A request that policy refuses decides nothing.
        let forbid = format!(
            "@id(\"never\")\nforbid(principal, action, resource == Gateway::Host::\"{OTHER}\") when {{ context.path == \"/x\" }};\n"
        );
        assert!(reload(rig, &format!("{}{forbid}", policies())));
        assert_eq!(present(rig, way, OTHER, token).0, 403);
        assert!(reload(rig, &policies()));
        rig.seen();
        assert_eq!(settled().len(), before, "nothing was decided");
        let present = |host: &str| {
            let token = token.as_str().unwrap();
            let ask =
                format!("GET /x HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
            rig.ask(way, host, &ask).status
        };
        let together: Vec<u16> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(|| present(MCP))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(together, [200; 4]);
        let records = rig.records(way, 4);
        // One record says which host it is for now, and those of its requests that it was lent.
        let events = settled().split_off(before);
        let [event] = &events[..] else {
            panic!("{events:?}")
        };
        let login = event["subject"].as_str().unwrap();
        assert_eq!(event["kind"], "event", "{event}");
        for record in &records {
            assert_eq!(record["session"], event["session"], "{record}");
            let lent = record["lent"].to_string();
            assert!(lent.contains(login), "{event} {record}");
        }
        let real = format!("Bearer {}", rig.secret("access"));
        assert!(
            rig.seen()
                .iter()
                .all(|seen| seen.all("authorization") == [&*real])
        );
        for host in [OTHER, AUTH] {
            let elsewhere = self::present(rig, way, host, token);
            assert_eq!(
                elsewhere,
                (403, "phantom_out_of_scope".to_owned()),
                "{host}"
            );
        }
        // The next login of the same client is for it, too.
        let again = log_in(rig, way, AUTH, &more);
        assert_eq!(again["access_token"], *token);
        assert_eq!(self::present(rig, way, MCP, token).0, 200);
    }
    rig.seen();
}

/// Whoever asks and however often, an operator reads it once.
fn why_a_login_is_of_no_use_is_said_once_for_each_login_and_cause(rig: &Rig) {
    let fails = |status: u16| {
        let answer = format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n");
        vec![Step::Bytes(answer.into_bytes())]
    };
    let way = Way::Connect;
    let logins = ["once", "twice"].map(|client| {
        let shown = log_in_hostile(rig, client, fails(500));
        shown["access_token"].as_str().unwrap().to_owned()
    });
    let said = |status: u16| {
        let log = std::fs::read_to_string(&rig.served.log).unwrap();
        let cause = format!("answered {status}");
        let is_it = |line: &&str| line.contains("a login was not renewed") && line.contains(&cause);
        let lines: Vec<String> = log.lines().filter(is_it).map(str::to_owned).collect();
        lines
    };
    // A cause that comes back was said.
    for status in [500, 502, 500, 502] {
        rig.origins.on("/token", move |_| fails(status));
        // A failure holds for a second: then the issuer is asked again.
        std::thread::sleep(Duration::from_millis(1100));
        for token in &logins {
            for _ in 0..3 {
                let ask = format!(
                    "GET /x HTTP/1.1\r\nHost: {MCP}\r\nAuthorization: Bearer {token}\r\n\r\n"
                );
                let answer = rig.ask(way, MCP, &ask);
                assert!(answer.status >= 500, "{answer:?}");
                rig.record(way);
            }
        }
        for _ in 0..reached(rig) {
            rig.sent_by_the_gateway();
        }
        assert!(reload(rig, &policies()));
    }
    for status in [500, 502] {
        let lines = said(status);
        println!("{lines:#?}");
        assert_eq!(lines.len(), logins.len(), "once for each: {lines:#?}");
        // It names the login, and is no credential of a configuration.
        assert!(
            lines
                .iter()
                .all(|line| line.contains("login=") && !line.contains("`from`"))
        );
    }
    rig.seen();
}
