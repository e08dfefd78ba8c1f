//! Somebody else's credential at a managed host, in every place where its service accepts one; and
//! requests that contain many.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::addresses::free;
use crate::rig::gate::Gate;
use crate::rig::way::{Response, Way};
use crate::rig::{
    DATADOG, DISCORD, GEMINI, GITLAB, GOOD, HUGGINGFACE, LOOSE, OTHER, Rig, SENTRY, SLACK, serve,
};
use crate::rows;
use crate::verdicts::{allowed, refused, refused_everywhere};

rows![
    a_foreign_credential_is_known_wherever_its_service_takes_one,
    a_foreign_credential_in_content_is_known_in_every_format,
    a_foreign_credential_over_http2_is_known_alike,
    what_a_service_needs_passes,
    content_that_is_looked_at_arrives_as_it_was_sent,
    content_that_cannot_be_looked_at_is_refused,
    a_cookie_of_an_account_does_not_reach_a_managed_host,
    a_field_with_underscores_is_judged_as_cgi_origins_read_it,
    a_path_that_changes_when_it_is_decoded_again_is_refused,
    many_requests_in_one_are_refused_where_policy_allows_some,
    every_preset_is_closed_in_the_program,
];

fn get(target: &str, fields: &str) -> String {
    let fields = if fields.is_empty() {
        String::new()
    } else {
        format!("{fields}\r\n")
    };
    format!("GET {{T}}{target} HTTP/1.1\r\nHost: {{H}}\r\n{fields}\r\n")
}

fn post(target: &str, fields: &str, content: &str) -> String {
    let fields = if fields.is_empty() {
        String::new()
    } else {
        format!("{fields}\r\n")
    };
    format!(
        "POST {{T}}{target} HTTP/1.1\r\nHost: {{H}}\r\n{fields}Content-Length: {}\r\n\r\n{content}",
        content.len()
    )
}

/// H13, R10: the places outside of content.
fn a_foreign_credential_is_known_wherever_its_service_takes_one(rig: &Rig) {
    let key = "attackers-own-key-000000000000";
    let cases: Vec<(&str, String, String)> = [
        (SLACK, "/api/chat.postMessage?token=ATTACKERS", ""),
        (SLACK, "/api/chat.postMessage?Token[]=ATTACKERS", ""),
        (SLACK, "/api/chat.postMessage??token=ATTACKERS", ""),
        (GITLAB, "/api/v4/projects?privateToken=ATTACKERS", ""),
        (SLACK, "/api/chat.postMessage", "Cookie: d=ATTACKERS"),
        (SLACK, "/services/T1/B1/ATTACKERS", ""),
        (DISCORD, "/api/webhooks/1/ATTACKERS", ""),
        (DISCORD, "/api/v10/webhooks/1/ATTACKERS/messages/2", ""),
        (DISCORD, "//api//webhooks/1/ATTACKERS", ""),
        (DISCORD, "/API/Webhooks/1;a/ATTACKERS", ""),
        (DISCORD, "/api/v10/interactions/1/ATTACKERS/callback", ""),
        (
            SENTRY,
            "/api/0/projects",
            "X-Sentry-Auth: Sentry sentry_key=ATTACKERS",
        ),
        (SENTRY, "/api/0/projects?sentry_key=ATTACKERS", ""),
        (SENTRY, "/api/7/envelope/", ""),
        (SENTRY, "/api/7/store/", ""),
        (SENTRY, "/api/7/unreal/ATTACKERS/", ""),
        (GITLAB, "/api/v4/projects", "Deploy-Token: ATTACKERS"),
        (GITLAB, "/api/v4/projects", "PRIVATE-TOKEN: ATTACKERS"),
        (GITLAB, "/api/v4/projects", "JOB-TOKEN: ATTACKERS"),
        (GITLAB, "/api/v4/projects?private_token=ATTACKERS", ""),
        (GITLAB, "/api/v4/projects?private.token=ATTACKERS", ""),
        (GITLAB, "/api/v4/projects?[private_token]=ATTACKERS", ""),
        (GITLAB, "/api/v4/projects?]private_token=ATTACKERS", ""),
        (GITLAB, "/api/v4/projects?private[token=ATTACKERS", ""),
        (GITLAB, "/api/v4/projects?access_token=ATTACKERS", ""),
        (GITLAB, "/api/v4/projects?job_token=ATTACKERS", ""),
        (
            GITLAB,
            "/api/v4/projects/1/ref/main/trigger/pipeline?token=ATTACKERS",
            "",
        ),
        (GITLAB, "/x.atom?feed_token=ATTACKERS", ""),
        (HUGGINGFACE, "/api/repos/create", "Cookie: token=ATTACKERS"),
        (HUGGINGFACE, "/api/repos/create?token=ATTACKERS", ""),
        (GEMINI, "/v1beta/models?key=ATTACKERS", ""),
        (GEMINI, "/v1beta/models?$key=ATTACKERS", ""),
        (GEMINI, "/v1beta/models?%24.key=ATTACKERS", ""),
        (GEMINI, "/v1beta/models?access_token=ATTACKERS", ""),
        (GEMINI, "/v1beta/models?oauth_token=ATTACKERS", ""),
        (
            GEMINI,
            "/upload/v1beta/files?upload_id=ATTACKERS&upload_protocol=resumable",
            "",
        ),
        (GEMINI, "/v1beta/models", "X-Goog-Api-Key: ATTACKERS"),
        (DATADOG, "/api/v1/series?api_key=ATTACKERS", ""),
        (DATADOG, "/api/v1/dashboard?application_key=ATTACKERS", ""),
        (
            DATADOG,
            "/api/v1/dashboard",
            "DD-APPLICATION-KEY: ATTACKERS",
        ),
        (DATADOG, "/v1/input/ATTACKERS", ""),
        (GOOD, "/x?token=ATTACKERS", ""),
        (GOOD, "/x?sig=ATTACKERS", ""),
        (GOOD, "/x", "X-Service-Token: ATTACKERS"),
        (
            GOOD,
            "/x",
            "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.ATTACKERS",
        ),
    ]
    .into_iter()
    .map(|(host, target, fields)| {
        (
            host,
            target.replace("ATTACKERS", key),
            fields.replace("ATTACKERS", key),
        )
    })
    .collect();
    for (host, target, fields) in &cases {
        refused_everywhere(
            rig,
            &Way::SECURE,
            host,
            &get(target, fields),
            403,
            "foreign_credential",
        );
    }
    // Also beside the session's own.
    for (host, target, fields) in cases.iter().filter(|case| case.0 == SLACK) {
        let fields = format!("Authorization: Bearer {{PH:slack}}\r\n{fields}");
        let fields = fields.trim_end();
        refused_everywhere(
            rig,
            &Way::SECURE,
            host,
            &get(target, fields),
            403,
            "foreign_credential",
        );
    }
}

/// H13, R10: forms.
fn a_foreign_credential_in_content_is_known_in_every_format(rig: &Rig) {
    let form = "Content-Type: application/x-www-form-urlencoded";
    let json = "Content-Type: application/json; charset=utf-8";
    let plain = "Content-Type: text/plain";
    let parts = "Content-Type: multipart/form-data; boundary=b";
    let part = |name: &str| {
        format!("--b\r\nContent-Disposition: form-data; {name}\r\n\r\nattackers\r\n--b--\r\n")
    };
    for (host, target, bearer) in [
        (
            SLACK,
            "/api/chat.postMessage",
            "Authorization: Bearer {PH:slack}\r\n",
        ),
        (
            GITLAB,
            "/api/v4/projects/1/trigger/pipeline",
            "PRIVATE-TOKEN: {PH:gitlab}\r\n",
        ),
    ] {
        for (fields, content) in [
            (form, "channel=C&token=attackers".to_owned()),
            (form, "channel=C&t%6fken=attackers".to_owned()),
            (form, "TOKEN[]=attackers".to_owned()),
            ("", "token=attackers".to_owned()),
            ("Accept: */*", "a=b&token=attackers".to_owned()),
            ("", "{\"token\":\"attackers\"}".to_owned()),
            (plain, "token=attackers".to_owned()),
            (plain, "{\"token\":\"attackers\"}".to_owned()),
            (plain, "\r\n [{\"token\":\"attackers\"}]".to_owned()),
            ("Content-Type: x/unknown", "a=b&token=attackers".to_owned()),
            (
                "Content-Type: application/octet-stream, text/plain",
                "token=attackers".to_owned(),
            ),
            (
                json,
                "{\"channel\":\"C\",\"token\":\"attackers\"}".to_owned(),
            ),
            (json, "{\"\\u0074oken\":\"attackers\"}".to_owned()),
            // Go reads the Kelvin sign as a `k`.
            (json, "{\"to\u{212a}en\":\"attackers\"}".to_owned()),
            (form, "?token=attackers".to_owned()),
            (form, "t%u006fken=attackers".to_owned()),
            (form, "\u{feff}token=attackers".to_owned()),
            (parts, part("name=\"token\"")),
            (parts, part("filename=x; name=token")),
        ] {
            for bearer in ["", bearer] {
                let fields = format!("{bearer}{fields}");
                let template = post(target, fields.trim_end(), &content);
                refused_everywhere(
                    rig,
                    &Way::SECURE,
                    host,
                    &template,
                    403,
                    "foreign_credential",
                );
            }
        }
        // Some readers may split it otherwise, or find another name.
        let mixed = "Content-Type: multipart/mixed; boundary=b";
        for (fields, content) in [
            (parts, part("name*=UTF-8''tok%65n")),
            (parts, part("name=a; name=token")),
            (parts, part("name=a").replace("--b--", "--c--")),
            (mixed, part("name=token")),
            (mixed, part("name=a")),
        ] {
            let template = post(target, fields, &content);
            refused_everywhere(
                rig,
                &Way::SECURE,
                host,
                &template,
                403,
                "content_unreadable",
            );
        }
        let chunked = format!(
            "POST {target} HTTP/1.1\r\nHost: {{H}}\r\n{form}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na=b&t\r\n9\r\noken=atta\r\n0\r\n\r\n"
        );
        refused_everywhere(rig, &Way::SECURE, host, &chunked, 403, "foreign_credential");
        let put = post(target, "", "{\"token\":\"attackers\"}").replacen("POST", "PUT", 1);
        refused_everywhere(rig, &Way::SECURE, host, &put, 403, "foreign_credential");
    }
}

/// H15.
fn a_foreign_credential_over_http2_is_known_alike(rig: &Rig) {
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str, &'a str);
    let form = ("content-type", "application/x-www-form-urlencoded");
    let json = ("content-type", "application/json");
    let plain = ("content-type", "text/plain;charset=UTF-8");
    let cases: [Case<'_>; 11] = [
        (
            SLACK,
            "/api/x",
            &[form],
            "a=b&token=attackers",
            "foreign_credential",
        ),
        (
            SLACK,
            "/api/x",
            &[json],
            "[{\"token\":1}]",
            "foreign_credential",
        ),
        (
            SLACK,
            "/api/x",
            &[plain],
            "token=attackers",
            "foreign_credential",
        ),
        (
            SLACK,
            "/api/x",
            &[plain],
            "{\"token\":\"x\"}",
            "foreign_credential",
        ),
        (SLACK, "/api/x", &[plain], "{token:1}", "content_unreadable"),
        (
            SLACK,
            "/api/x",
            &[],
            "{\"token\":\"x\"}",
            "foreign_credential",
        ),
        (SLACK, "/api/x", &[json], "{", "content_unreadable"),
        (
            SLACK,
            "/api/x",
            &[("cookie", "b=1"), ("cookie", "d=attackers")],
            "",
            "foreign_credential",
        ),
        (
            DISCORD,
            "/api/v10/webhooks/1/attackers",
            &[json],
            "{}",
            "foreign_credential",
        ),
        (LOOSE, "/x", &[("x_role", "admin")], "", "policy_forbids"),
        (
            LOOSE,
            "/x",
            &[("x-a", "1"), ("x.a", "2")],
            "",
            "field_alias",
        ),
    ];
    for way in Way::SECURE {
        for (host, path, fields, content, reason) in cases {
            let mut all = vec![
                (":method", "POST"),
                (":scheme", "https"),
                (":authority", host),
                (":path", path),
            ];
            all.extend(fields);
            let mut frames = rig.frames(way, host);
            frames.headers(1, &all, false);
            frames.frame(0, 1, 1, content.as_bytes());
            let fate = frames.fate(1);
            let record = rig.record(way);
            assert_eq!(
                record["reason"], reason,
                "{way:?} {host}{path} {fields:?} {content}"
            );
            assert!(fate.answered && rig.seen().is_empty(), "{way:?} {fate:?}");
        }
    }
}

/// The allowed cases for the refused ones.
fn what_a_service_needs_passes(rig: &Rig) {
    for way in Way::SECURE {
        for (host, target, fields) in [
            (
                SLACK,
                "/api/conversations.list?limit=9",
                "Authorization: Bearer {PH:slack}",
            ),
            (
                DISCORD,
                "/api/v10/channels/1/messages",
                "Authorization: Bot {PH:discord}",
            ),
            (
                DISCORD,
                "/api/v10/webhooks/1",
                "Authorization: Bot {PH:discord}",
            ),
            (
                SENTRY,
                "/api/0/projects/",
                "Authorization: Bearer {PH:sentry}",
            ),
            (GITLAB, "/api/v4/projects", "PRIVATE-TOKEN: {PH:gitlab}"),
            (GITLAB, "/api/v4/projects?private_token={PH:gitlab}", ""),
            (
                HUGGINGFACE,
                "/api/whoami-v2",
                "Authorization: Bearer {PH:huggingface}",
            ),
            (GEMINI, "/v1beta/models?key={PH:gemini}&alt=sse", ""),
            (GEMINI, "/v1beta/models", "X-Goog-Api-Key: {PH:gemini}"),
            (
                DATADOG,
                "/api/v1/validate",
                "DD-API-KEY: {PH:datadog-api}\r\nDD-APPLICATION-KEY: {PH:datadog-application}",
            ),
        ] {
            allowed(rig, way, host, &get(target, fields));
        }
        rig.seen();
    }
}

fn content_that_is_looked_at_arrives_as_it_was_sent(rig: &Rig) {
    let bearer = "Authorization: Bearer {PH:slack}";
    for way in Way::SECURE {
        for (kind, content) in [
            (
                "application/x-www-form-urlencoded",
                "channel=C&text=token%3Dx&page_token=y",
            ),
            (
                "application/json",
                "{\"channel\":\"C\",\"blocks\":[{\"token\":\"x\"}]}",
            ),
            (
                "multipart/form-data; boundary=b",
                "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nname=\"token\"\r\n--b--\r\n",
            ),
            ("application/octet-stream", "token=x"),
            ("text/plain", "a letter; of a token, and = {\r\n[brackets]"),
            ("text/plain", "{\"channel\":\"C\"}"),
        ] {
            let fields = format!("{bearer}\r\nContent-Type: {kind}");
            allowed(
                rig,
                way,
                SLACK,
                &post("/api/chat.postMessage", &fields, content),
            );
            let seen = rig.seen().remove(0);
            assert_eq!(seen.body, content.as_bytes(), "{way:?} {kind}");
            assert_eq!(seen.all("content-length"), [content.len().to_string()]);
        }
        let chunked = format!(
            "POST /api/chat.postMessage HTTP/1.1\r\nHost: {{H}}\r\n{bearer}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{{\"a\r\n5\r\n\":1}}\n\r\n0\r\n\r\n"
        );
        allowed(rig, way, SLACK, &chunked);
        assert_eq!(rig.seen().remove(0).body, b"{\"a\":1}\n", "{way:?}");
        // Files are allowed where no form is read, and are not buffered.
        allowed(rig, way, SLACK, &post("/upload/v1/x", "", "token=x"));
        rig.seen();
    }
}

fn content_that_cannot_be_looked_at_is_refused(rig: &Rig) {
    for fields in [
        "Content-Type: application/json\r\nContent-Encoding: gzip",
        "Content-Type: application/x-www-form-urlencoded; charset=utf-16",
        "Content-Type: application/json",
    ] {
        let template = post("/api/chat.postMessage", fields, "{not json");
        refused_everywhere(
            rig,
            &Way::SECURE,
            SLACK,
            &template,
            403,
            "content_unreadable",
        );
    }
    let long = format!(
        "POST /api/x HTTP/1.1\r\nHost: {{H}}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{{",
        17 << 20
    );
    for way in Way::SECURE {
        refused(rig, way, SLACK, &long, 413, "content_too_long");
    }
}

/// R10: an attacker's account by its cookie, under any name.
fn a_cookie_of_an_account_does_not_reach_a_managed_host(rig: &Rig) {
    for way in Way::SECURE {
        for (host, sent, kept) in [
            (GITLAB, "_gitlab_session=attackers; lang=de", vec![]),
            (
                GITLAB,
                "__cf_bm=x; remember_user_token=attackers",
                vec!["__cf_bm=x"],
            ),
            (GOOD, "a=b; account=attackers; c=d", vec!["a=b; c=d"]),
            (GOOD, "__cf_bm=x, account=attackers", vec![]),
        ] {
            allowed(rig, way, host, &get("/x", &format!("Cookie: {sent}")));
            assert_eq!(rig.seen().remove(0).all("cookie"), kept, "{way:?} {sent}");
        }
        // At a host that is not managed, the client decides.
        allowed(rig, way, OTHER, &get("/x", "Cookie: account=mine; x=y"));
        assert_eq!(rig.seen().remove(0).all("cookie"), ["account=mine; x=y"]);
    }
}

/// E20, E21: at an origin for which the operator allows such names, policy and places see what CGI
/// and WSGI origins see.
fn a_field_with_underscores_is_judged_as_cgi_origins_read_it(rig: &Rig) {
    for name in ["x_role", "X_Role", "x.role"] {
        let template = get("/x", &format!("{name}: admin"));
        refused_everywhere(rig, &Way::SECURE, LOOSE, &template, 403, "policy_forbids");
        refused_everywhere(rig, &Way::ALL, OTHER, &template, 400, "field_name");
    }
    for fields in [
        "x_api_token: attackers",
        "x.service.token: attackers",
        "deploy_token: attackers",
    ] {
        let template = get("/x", fields);
        refused_everywhere(
            rig,
            &Way::SECURE,
            LOOSE,
            &template,
            403,
            "foreign_credential",
        );
    }
    for fields in [
        "X_Api_Key: attackers",
        "X-Api_Key: attackers",
        "content_length: 5",
        "transfer_encoding: chunked",
        "x_forwarded_for: 10.0.0.1",
        "x-a: 1\r\nx_a: 2",
        "x.a: 1\r\nx_a: 2",
        "_host: evil\r\n-host: evil",
    ] {
        refused_everywhere(
            rig,
            &Way::SECURE,
            LOOSE,
            &get("/x", fields),
            400,
            "field_alias",
        );
    }
    for fields in ["x!role: admin", "x+role: admin", "x~y: z"] {
        refused_everywhere(
            rig,
            &Way::SECURE,
            LOOSE,
            &get("/x", fields),
            400,
            "field_name",
        );
    }
    for way in Way::SECURE {
        allowed(
            rig,
            way,
            LOOSE,
            &get("/x", "x_request.id: 1\r\nProxy: http://evil.rig.test:1"),
        );
        let seen = rig.seen().remove(0);
        assert_eq!(seen.all("x_request.id"), ["1"], "{way:?}");
        assert!(seen.all("proxy").is_empty(), "{way:?}");
        allowed(
            rig,
            way,
            OTHER,
            &get("/x", "x-amz-meta-file_name: 1\r\nX-Ms-Meta-a.b: 2"),
        );
        rig.seen();
    }
}

/// F04: if `%2F` is kept, an origin that decodes again sees no other path.
fn a_path_that_changes_when_it_is_decoded_again_is_refused(rig: &Rig) {
    for path in [
        "/api/v4/projects/1/%252e%252e/2",
        "/api/v4/projects/1/%252e%252e%252f2",
        "/api/v4/projects/1/%252e%252e%2f2",
        "/api/v4/projects/1/.%252e/2",
        "/api/v4/projects/1/%2e%252e/2",
        "/api/v4/projects/1/..%2F2",
        "/api/v4/projects/1/..%253Bx/2",
        "/api/v4/projects/1/..%2520/2",
        "/api/v4/projects/1/%EF%BC%8E%EF%BC%8E/2",
        "/api/v4/projects/1/%25c0%25ae%25c0%25ae/2",
        "/api/v4/projects/1%252F2",
        "/api/v4/projects/1%255C2",
        "/api/v4/projects/1%252500",
    ] {
        refused_everywhere(rig, &Way::SECURE, LOOSE, &get(path, ""), 400, "path");
        refused_everywhere(rig, &Way::ALL, OTHER, &get(path, ""), 400, "path");
    }
    for way in Way::SECURE {
        for path in [
            "/api/v4/projects/a%2Fb/files/c%2Fd.txt",
            "/@scope%2Fname",
            "/a%2520b",
        ] {
            allowed(rig, way, LOOSE, &get(path, ""));
            assert_eq!(rig.seen().remove(0).target, path, "{way:?}");
        }
    }
}

/// F14: the rig's policy forbids some paths and methods everywhere, and sees nothing in a batch.
fn many_requests_in_one_are_refused_where_policy_allows_some(rig: &Rig) {
    for target in [
        "/v1.0/$batch",
        "/v1.0/%24BATCH",
        "/_bulk",
        "/logs/_msearch?x=y",
        "/logs//_mget",
        "/?comp=batch",
    ] {
        let template = post(target, "", "");
        refused_everywhere(rig, &Way::ALL, OTHER, &template, 403, "policy_unjudged");
        let template = post(target, "Authorization: Bearer {PH:bearer}", "");
        refused_everywhere(rig, &Way::SECURE, GOOD, &template, 403, "policy_unjudged");
    }
    for way in Way::ALL {
        allowed(rig, way, OTHER, &post("/batch", "", ""));
        allowed(rig, way, OTHER, &post("/v1/batches", "", ""));
    }
    rig.seen();
}

/// H13: each place of each preset, in a program of its own whose origins cannot be reached: 403 is
/// a refusal, 502 is not.
fn every_preset_is_closed_in_the_program(rig: &Rig) {
    let services = Services::start(rig);
    let mut tried = 0;
    for (preset, credential) in &services.credentials {
        let host = format!("{preset}.rig.test");
        for taken in credential.list("takes") {
            let (template, what) = foreign(&taken);
            let answer = services.ask(rig, &host, &template);
            assert_eq!(
                (answer.status, answer.reason().as_str()),
                (
                    403,
                    if answer.text().contains("policy `mints/") {
                        "policy_forbids"
                    } else {
                        "foreign_credential"
                    }
                ),
                "{preset} {taken} {what} {answer:?}"
            );
            tried += 1;
        }
        for place in credential.list("places") {
            let phantom = &services.phantoms[&credential.list("variables")[0]];
            let answer = services.ask(rig, &host, &own(&place, phantom));
            assert_eq!(answer.status, 502, "{preset} {place} {answer:?}");
        }
    }
    assert!(tried > 150, "{tried}");
}

/// A request with a foreign credential in such a place.
fn foreign(taken: &str) -> (String, &'static str) {
    let (kind, rest) = taken.split_once(':').unwrap();
    let (name, path) = match (kind, rest.split_once("@/")) {
        ("path", _) => ("", rest.to_owned()),
        (_, Some((name, path))) => (name, format!("/{path}")),
        (_, None) => (rest, "/x".to_owned()),
    };
    let path = path.replace('*', "9");
    match kind {
        "header" => (get(&path, &format!("{name}: attackers")), "field"),
        "cookie" => (get(&path, &format!("Cookie: {name}=attackers")), "cookie"),
        "query" => (get(&format!("{path}?{name}=attackers"), ""), "query"),
        "form" => (
            post(
                &path,
                "Content-Type: application/x-www-form-urlencoded",
                &format!("{name}=attackers"),
            ),
            "form",
        ),
        _ => (get(&path, ""), "path"),
    }
}

/// A request with the phantom in a place of its own.
fn own(place: &str, phantom: &str) -> String {
    let basic = |text: String| {
        get(
            "/x",
            &format!("Authorization: Basic {}", STANDARD.encode(text)),
        )
    };
    match place.split(':').collect::<Vec<_>>()[..] {
        ["header", name] => get("/x", &format!("{name}: {phantom}")),
        ["header", name, scheme] => get("/x", &format!("{name}: {scheme} {phantom}")),
        ["basic", "user"] => basic(format!("{phantom}:")),
        ["basic", "password"] => basic(format!("user:{phantom}")),
        ["query", name] => get(&format!("/x?{name}={phantom}"), ""),
        ["path", path] => {
            let path = path.replace('*', "9").replace("{}", phantom);
            let rest = if path.ends_with('/') { "x" } else { "" };
            get(&(path + rest), "")
        }
        // Its phantom comes later.
        ["websocket", _] => get(
            "/x",
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        ),
        ["form", name] => post(
            "/x",
            "Content-Type: application/x-www-form-urlencoded",
            &format!("{name}={}", phantom.replace('%', "%25").replace('+', "%2B")),
        ),
        ["multipart", name] => post(
            "/x",
            "Content-Type: multipart/form-data; boundary=b",
            &format!(
                "--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{phantom}\r\n--b--\r\n"
            ),
        ),
        _ => panic!("{place}"),
    }
}

/// The table of a preset.
struct Table(toml::Table);

impl Table {
    fn list(&self, key: &str) -> Vec<String> {
        let list = self.0.get(key).and_then(toml::Value::as_array);
        let texts = list.into_iter().flatten().filter_map(toml::Value::as_str);
        texts.map(str::to_owned).collect()
    }
}

/// A gateway with every credential of every preset, at `PRESET.rig.test`.
struct Services {
    gate: Gate,
    proxy: SocketAddr,
    credentials: Vec<(String, Table)>,
    phantoms: HashMap<String, String>,
    _dir: tempfile::TempDir,
}

impl Services {
    fn start(rig: &Rig) -> Self {
        let dir = tempfile::tempdir_in(rig.dir.path()).unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let (proxy, nobody) = (free(), free());
        let mut text = format!(
            "[audit]\npath = \"audit.jsonl\"\n[phantoms]\nenv_file = \"phantoms.env\"\n[policy]\nfiles = [\"all.cedar\"]\n\
             [[listener]]\nkind = \"proxy\"\naddress = \"{proxy}\"\ngroups = [\"makes-gitlab-credentials\"]\n\
             [[origin]]\nmatch = \"https://*.rig.test\"\nconnect = \"{nobody}\"\n"
        );
        let mut credentials = Vec::new();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/services");
        for file in std::fs::read_dir(folder).unwrap() {
            let table: toml::Table = std::fs::read_to_string(file.unwrap().path())
                .unwrap()
                .parse()
                .unwrap();
            let preset = table["name"].as_str().unwrap();
            for credential in table
                .get("credential")
                .and_then(toml::Value::as_array)
                .into_iter()
                .flatten()
            {
                let credential = Table(credential.as_table().unwrap().clone());
                let (name, variable) = (
                    credential.0["name"].as_str().unwrap(),
                    &credential.list("variables")[0],
                );
                text.push_str(&format!(
                    "[[credential]]\nname = \"{name}\"\nfrom = \"file:secret-{name}\"\npreset = \"{preset}\"\norigins = [\"https://{preset}.rig.test\"]\nenv = [\"{variable}\"]\n"
                ));
                owned(
                    &dir.path().join(format!("secret-{name}")),
                    &format!("{name:0<40}"),
                );
                credentials.push((preset.to_owned(), credential));
            }
        }
        owned(
            &dir.path().join("all.cedar"),
            "permit(principal, action, resource);",
        );
        owned(&dir.path().join("services.toml"), &text);
        let child = serve(dir.path(), "services.toml", "");
        let gate = Gate::new(
            child,
            dir.path().join("audit.jsonl"),
            dir.path().join("services.log"),
        );
        gate.wait_for_log(&proxy.to_string());
        let phantoms = std::fs::read_to_string(dir.path().join("phantoms.env")).unwrap();
        let phantoms = phantoms.lines().filter_map(|line| line.split_once('='));
        Self {
            phantoms: phantoms
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            gate,
            proxy,
            credentials,
            _dir: dir,
        }
    }

    fn ask(&self, rig: &Rig, host: &str, template: &str) -> Response {
        assert!(self.gate.is_alive());
        let mut wire = rig.dial(self.proxy);
        wire.send(format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n").as_bytes());
        let head = wire.line(b"\r\n\r\n").unwrap_or_default();
        assert!(
            head.starts_with(b"HTTP/1.1 200 "),
            "{}",
            String::from_utf8_lossy(&head)
        );
        let mut wire = wire.secure(Some(host), &["http/1.1"]).unwrap();
        wire.ask(template.replace("{T}", "").replace("{H}", host).as_bytes())
    }
}

/// A file that only its owner can read.
fn owned(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
