//! Group H: a phantom is swapped where it is bound, and nowhere else.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};

use crate::rig::canary::{hex, percent};
use crate::rig::way::Way;
use crate::rig::{EVIL, GOOD, OTHER, Rig, SECOND};
use crate::rows;
use crate::verdicts::{allowed, refused};

rows![
    each_place_gets_its_secret,
    a_phantom_goes_only_to_the_hosts_of_its_credential,
    a_phantom_stands_only_in_its_place,
    a_disguised_phantom_is_never_swapped,
    basic_credentials_are_read_strictly,
    a_phantom_is_swapped_once,
    a_phantom_beside_other_text_is_not_swapped,
    a_phantom_in_a_name_is_refused,
    the_phantoms_of_another_session_are_refused,
    the_record_of_a_stolen_phantom_says_which_it_is_and_where_it_was,
    foreign_credentials_do_not_reach_a_managed_host,
    content_is_never_touched,
    a_managed_host_without_a_phantom_gets_no_credential,
    a_secret_that_cannot_be_had_stops_the_request,
];

fn get(fields: &str) -> String {
    format!("GET {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\n{fields}\r\n\r\n")
}

/// The allowed cases, for each of the refused ones below.
fn each_place_gets_its_secret(rig: &Rig) {
    for way in Way::SECURE {
        let basic = STANDARD.encode(format!("user:{}", rig.phantom(way, "basic")));
        let key = percent(rig.phantom(way, "query").as_bytes(), |byte| {
            byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
        });
        // RFC 9110 §11.4: one space or more.
        for spaces in [" ", "  ", "    "] {
            let field = format!("Authorization: Bearer{spaces}{{PH:bearer}}");
            allowed(rig, way, GOOD, &get(&field));
            assert_eq!(
                rig.seen()[0].all("authorization"),
                [format!("Bearer {}", rig.secret("bearer"))]
            );
        }
        allowed(rig, way, GOOD, &get("X-Api-Key: {PH:xkey}"));
        assert_eq!(rig.seen()[0].all("x-api-key"), [rig.secret("xkey")]);
        allowed(
            rig,
            way,
            GOOD,
            &get(&format!("Authorization: Basic {basic}")),
        );
        let expected = STANDARD.encode(format!("user:{}", rig.secret("basic")));
        assert_eq!(
            rig.seen()[0].all("authorization"),
            [format!("Basic {expected}")]
        );
        allowed(rig, way, GOOD, &get("Cookie: a=b; sid={PH:cookie}; c=d"));
        assert_eq!(
            rig.seen()[0].all("cookie"),
            [format!("a=b; sid={}; c=d", rig.secret("cookie"))]
        );
        allowed(
            rig,
            way,
            GOOD,
            &format!("GET /x?a=b&key={key}&c=d HTTP/1.1\r\nHost: {{H}}\r\n\r\n"),
        );
        let target = rig.seen()[0].target.clone();
        let value = target
            .split("key=")
            .nth(1)
            .unwrap()
            .split('&')
            .next()
            .unwrap();
        let decoded = percent_encoding::percent_decode_str(value)
            .decode_utf8()
            .unwrap()
            .into_owned();
        assert_eq!(decoded, rig.secret("query"), "{target}");
        // All at once, each in its own place.
        let all = format!(
            "GET /x?key={key} HTTP/1.1\r\nHost: {{H}}\r\nAuthorization: Bearer {{PH:bearer}}\r\nX-Api-Key: {{PH:xkey}}\r\nCookie: sid={{PH:cookie}}\r\n\r\n"
        );
        let answer = rig.ask(way, GOOD, &all);
        let record = rig.record(way);
        assert_eq!(
            (answer.status, record["lent"].as_array().map(Vec::len)),
            (200, Some(4)),
            "{way:?} {record}"
        );
        rig.seen();
    }
}

/// The operator must know which secret to renew, and what to look for.
fn the_record_of_a_stolen_phantom_says_which_it_is_and_where_it_was(rig: &Rig) {
    let cause = |host: &str, template: &str| {
        rig.ask(Way::Connect, host, template);
        let record = rig.record(Way::Connect);
        let cause = record["cause"].as_str();
        cause.unwrap_or_else(|| panic!("{record}")).to_owned()
    };
    for (host, template, parts) in [
        (
            OTHER,
            get("X-Custom: {PH:bearer}"),
            ["`bearer`", "the field `x-custom`"],
        ),
        (
            GOOD,
            get("X-Other: {PH:xkey}"),
            ["`xkey`", "the field `x-other`"],
        ),
        (
            GOOD,
            get("Authorization: Bearer attackers"),
            ["did not issue", "the field `authorization`"],
        ),
        (
            OTHER,
            "GET {T}/x?q={PH:cookie} HTTP/1.1\r\nHost: {H}\r\n\r\n".to_owned(),
            ["`cookie`", "the query"],
        ),
    ] {
        let cause = cause(host, &template);
        assert!(parts.iter().all(|part| cause.contains(part)), "{cause}");
        assert!(rig.seen().is_empty());
    }
}

/// H01, H02.
fn a_phantom_goes_only_to_the_hosts_of_its_credential(rig: &Rig) {
    for way in Way::SECURE {
        for host in [OTHER, SECOND] {
            for template in [
                get("Authorization: Bearer {PH:bearer}"),
                get("X-Api-Key: {PH:xkey}"),
                get("X-Custom: {PH:bearer}"),
                get("Cookie: sid={PH:cookie}"),
                get("Cookie: x={PH:bearer}"),
                "GET {T}/x?key={PH:cookie} HTTP/1.1\r\nHost: {H}\r\n\r\n".to_owned(),
                "GET {T}/x/{PH:bearer} HTTP/1.1\r\nHost: {H}\r\n\r\n".to_owned(),
                get("User-Agent: {PH:bearer}"),
                get("Referer: https://x/{PH:bearer}"),
            ] {
                refused(rig, way, host, &template, 403, "phantom_out_of_scope");
            }
        }
        // In free content a phantom is inert, and is forwarded as plain bytes (R9).
        let phantom = rig.phantom(way, "bearer").to_owned();
        let template = format!(
            "POST {{T}}/x HTTP/1.1\r\nHost: {{H}}\r\nContent-Length: {}\r\n\r\n{phantom}",
            phantom.len()
        );
        allowed(rig, way, OTHER, &template);
        assert_eq!(rig.seen()[0].body, phantom.as_bytes());
        refused(
            rig,
            way,
            GOOD,
            &get("Authorization: Bearer {PH:other}"),
            403,
            "phantom_out_of_scope",
        );
        let answer = rig.ask(way, SECOND, &get("Authorization: Bearer {PH:other}"));
        rig.record(way);
        assert_eq!(
            (answer.status, rig.seen()[0].all("authorization")),
            (
                200,
                vec![format!("Bearer {}", rig.secret("other")).as_str()]
            )
        );
    }
    // X never sees a phantom either: the host is denied first.
    for way in [Way::Connect, Way::Socks, Way::Tls] {
        let answer = rig.ask(way, EVIL, &get("Authorization: Bearer {PH:other}"));
        rig.record(way);
        assert_eq!(answer.status, 403, "{way:?} {answer:?}");
    }
}

/// H03.
fn a_phantom_stands_only_in_its_place(rig: &Rig) {
    for way in Way::SECURE {
        for template in [
            get("X-Custom: {PH:bearer}"),
            get("User-Agent: {PH:bearer}"),
            get("Referer: https://good.rig.test/{PH:bearer}"),
            get("Cookie: {PH:bearer}"),
            get("Cookie: other={PH:cookie}"),
            get("Cookie: sid={PH:bearer}"),
            get("X-Api-Key: {PH:bearer}"),
            get("Authorization: Bearer {PH:xkey}"),
            get("Authorization: token {PH:bearer}"),
            get("Authorization: {PH:bearer}"),
            get("Accept: {PH:bearer}"),
            get("If-None-Match: \"{PH:bearer}\""),
            get("Range: {PH:bearer}"),
            "GET {T}/x?q={PH:bearer} HTTP/1.1\r\nHost: {H}\r\n\r\n".to_owned(),
            "GET {T}/x?key={PH:bearer} HTTP/1.1\r\nHost: {H}\r\n\r\n".to_owned(),
            "GET {T}/x?{PH:bearer} HTTP/1.1\r\nHost: {H}\r\n\r\n".to_owned(),
            "GET {T}/x/{PH:bearer}/y HTTP/1.1\r\nHost: {H}\r\n\r\n".to_owned(),
        ] {
            let answer = rig.ask(way, GOOD, &template);
            let record = rig.record(way);
            assert_eq!(answer.status, 403, "{way:?} {template} {answer:?}");
            assert_eq!(record["reason"], "phantom_position", "{way:?} {template}");
            assert!(rig.seen().is_empty());
        }
    }
}

/// H04.
fn a_disguised_phantom_is_never_swapped(rig: &Rig) {
    for way in Way::SECURE {
        let plain = rig.phantom(way, "bearer").as_bytes().to_vec();
        let once = percent(&plain, |_| false);
        let disguises = [
            once.clone(),
            percent(once.as_bytes(), |_| false),
            plain.iter().map(|byte| format!("\\u{byte:04x}")).collect(),
            STANDARD.encode(&plain),
            URL_SAFE.encode(&plain),
            STANDARD.encode([b"x".as_slice(), &plain].concat()),
            STANDARD.encode([b"xy".as_slice(), &plain].concat()),
            hex(&plain),
            hex(&plain).to_uppercase(),
        ];
        for disguise in &disguises {
            for template in [
                get(&format!("X-Custom: {disguise}")),
                get(&format!("Authorization: Bearer {disguise}")),
            ] {
                let answer = rig.ask(way, GOOD, &template);
                let record = rig.record(way);
                let refused = answer.status == 403;
                // Whatever is not recognised is forwarded as inert bytes; the count of canaries at
                // E shows that nothing was swapped.
                assert!(
                    refused || answer.status == 200,
                    "{way:?} {disguise} {record}"
                );
                assert!(record["lent"].is_null(), "{way:?} {disguise} {record}");
            }
        }
        for (at, disguise) in disguises.iter().enumerate() {
            if at == 2 || at == 1 {
                continue;
            }
            let answer = rig.ask(way, GOOD, &get(&format!("X-Custom: {disguise}")));
            let record = rig.record(way);
            assert_eq!(answer.status, 403, "{way:?} {at} {disguise} {record}");
        }
        // Split over writes, it is the same.
        let request = rig.fill(way, GOOD, &get("Authorization: Bearer {PH:bearer}"));
        let mut wire = rig.open(way, GOOD);
        for byte in request {
            wire.send(&[byte]);
        }
        assert_eq!(wire.response().status, 200);
        rig.record(way);
    }
    rig.seen();
}

/// H05.
fn basic_credentials_are_read_strictly(rig: &Rig) {
    for way in Way::SECURE {
        let phantom = rig.phantom(way, "basic").to_owned();
        let encode = |text: String| STANDARD.encode(text);
        for (value, lent) in [
            (format!("Basic {}", encode(format!("user:{phantom}"))), true),
            (format!("basic {}", encode(format!("user:{phantom}"))), true),
            (format!("BASIC {}", encode(format!(":{phantom}"))), true),
            (
                format!("Basic {}", STANDARD_NO_PAD.encode(format!("us:{phantom}"))),
                false,
            ),
            (
                format!("Basic {}", encode(format!("{phantom}:user"))),
                false,
            ),
            (
                format!("Basic {}", encode(format!("{phantom}:{phantom}"))),
                false,
            ),
            (format!("Basic {}", encode(phantom.clone())), false),
            (
                format!("Basic {}", encode(format!("user:{phantom}x"))),
                false,
            ),
            (
                format!("Basic {}", encode(format!("user:{phantom}\n"))),
                false,
            ),
            (
                format!("Basic {}", encode(encode(format!("user:{phantom}")))),
                false,
            ),
            (format!("Basic user:{phantom}"), false),
            (
                format!("Basic {}=", encode(format!("user:{phantom}"))),
                false,
            ),
        ] {
            let answer = rig.ask(way, GOOD, &get(&format!("Authorization: {value}")));
            let record = rig.record(way);
            let count = record["lent"].as_array().map_or(0, Vec::len);
            if lent {
                assert_eq!((answer.status, count), (200, 1), "{way:?} {value} {record}");
            } else {
                assert_eq!((answer.status, count), (403, 0), "{way:?} {value} {record}");
            }
        }
    }
    rig.seen();
}

/// H06.
fn a_phantom_is_swapped_once(rig: &Rig) {
    for way in Way::SECURE {
        for template in [
            get("Cookie: sid={PH:cookie}; sid={PH:cookie}"),
            get("Authorization: Bearer {PH:bearer}\r\nX-Custom: {PH:bearer}"),
            get("Authorization: Bearer {PH:bearer}{PH:bearer}"),
            get("Authorization: Bearer {PH:bearer} {PH:bearer}"),
            get("Authorization: Bearer {PH:bearer}, Bearer {PH:bearer}"),
            get("X-Api-Key: {PH:xkey}\r\nX-Api-Key: {PH:xkey}"),
        ] {
            let answer = rig.ask(way, GOOD, &template);
            let record = rig.record(way);
            assert!(
                [400, 403].contains(&answer.status),
                "{way:?} {template} {record}"
            );
        }
        assert!(rig.seen().is_empty());
    }
}

/// H07.
fn a_phantom_beside_other_text_is_not_swapped(rig: &Rig) {
    for way in Way::SECURE {
        for value in [
            "{PH:bearer}x",
            "x{PH:bearer}",
            "{PH:bearer}.a.b",
            "{PH:bearer}{PH:xkey}",
            "\"{PH:bearer}\"",
            "{PH:bearer},x",
        ] {
            let answer = rig.ask(way, GOOD, &get(&format!("Authorization: Bearer {value}")));
            let record = rig.record(way);
            assert_eq!(answer.status, 403, "{way:?} {value} {record}");
        }
        // Nor is the start of one.
        let part = &rig.phantom(way, "bearer")[..30].to_owned();
        refused(
            rig,
            way,
            GOOD,
            &get(&format!("Authorization: Bearer {part}")),
            403,
            "foreign_credential",
        );
    }
}

/// H10.
fn a_phantom_in_a_name_is_refused(rig: &Rig) {
    for way in Way::SECURE {
        let answer = rig.ask(
            way,
            GOOD,
            "GET /x HTTP/1.1\r\nHost: {H}\r\n{PH:bearer}: x\r\n\r\n",
        );
        let record = rig.record(way);
        assert_eq!(
            (answer.status, record["reason"].as_str()),
            (403, Some("phantom_position")),
            "{way:?}"
        );
        let answer = rig.ask(
            way,
            GOOD,
            "GET /x HTTP/1.1\r\nHost: {PH:bearer}.rig.test\r\n\r\n",
        );
        rig.record(way);
        assert!(
            [400, 403, 421].contains(&answer.status),
            "{way:?} {answer:?}"
        );
        let answer = rig.ask(
            way,
            GOOD,
            "GET https://{PH:bearer}@good.rig.test/x HTTP/1.1\r\nHost: {H}\r\n\r\n",
        );
        rig.record(way);
        assert_eq!(answer.status, 400, "{way:?} {answer:?}");
        let name = format!("{}.rig.test", rig.phantom(way, "bearer").to_lowercase());
        // The name has an address inside, where the request is refused.
        let wire = rig.tunnel(way, &name, 443).unwrap();
        let mut wire = wire.secure(Some(&name), &["http/1.1"]).unwrap();
        let answer = wire.ask(format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n").as_bytes());
        assert_eq!(answer.status, 403, "{way:?} {answer:?}");
        rig.records(way, 1 + usize::from(way == Way::Transparent));
    }
    assert!(rig.seen().is_empty());
}

/// H11, H12, N06.
fn the_phantoms_of_another_session_are_refused(rig: &Rig) {
    for (name, phantom) in &rig.phantoms_b {
        assert_ne!(*phantom, rig.served.phantoms[name]);
    }
    for way in Way::SECURE {
        let theirs = &rig.phantoms_b["bearer"];
        let answer = rig.ask(way, GOOD, &get(&format!("Authorization: Bearer {theirs}")));
        let record = rig.record(way);
        // Another process knows nothing of B, so its phantom is a foreign credential there.
        let expected = if way == Way::Transparent {
            "foreign_credential"
        } else {
            "phantom_foreign_session"
        };
        assert_eq!(
            (answer.status, record["reason"].as_str()),
            (403, Some(expected)),
            "{way:?}"
        );
    }
    // And A's phantoms on B's listeners.
    let ours = &rig.served.phantoms["bearer"];
    let wire = rig
        .dial(rig.ports.tls_b)
        .secure(Some(GOOD), &["http/1.1"])
        .unwrap();
    let mut wire = wire;
    let answer = wire.ask(
        format!("GET /x HTTP/1.1\r\nHost: {GOOD}\r\nAuthorization: Bearer {ours}\r\n\r\n")
            .as_bytes(),
    );
    assert_eq!(answer.reason(), "phantom_foreign_session");
    let record = rig.record(Way::Tls);
    assert_eq!(record["session"], "b");
    for guess in [
        "$GITHUB_TOKEN",
        "${BEARER_TOKEN}",
        "openshell:resolve:env:RIG_BEARER",
        "{{bearer}}",
        "env:RIG_BEARER",
    ] {
        for way in Way::SECURE {
            refused(
                rig,
                way,
                GOOD,
                &get(&format!("Authorization: Bearer {guess}")),
                403,
                "foreign_credential",
            );
        }
    }
}

/// H13, H20.
fn foreign_credentials_do_not_reach_a_managed_host(rig: &Rig) {
    for way in Way::SECURE {
        for fields in [
            "Authorization: Bearer sk-attackers-own-key-000000000000".to_owned(),
            "X-Api-Key: attackers-own-key".to_owned(),
            format!(
                "Authorization: Basic {}",
                STANDARD.encode("attacker:password")
            ),
            "Cookie: sid=attackers-session".to_owned(),
            "Authorization: Bearer {PH:bearer}\r\nX-Api-Key: attackers-own-key".to_owned(),
            "Authorization: Digest username=\"attacker\"".to_owned(),
        ] {
            refused(rig, way, GOOD, &get(&fields), 403, "foreign_credential");
        }
        refused(
            rig,
            way,
            GOOD,
            "GET /x?key=attackers-own HTTP/1.1\r\nHost: {H}\r\n\r\n",
            403,
            "foreign_credential",
        );
        // At a host that is not managed, the client decides.
        allowed(
            rig,
            way,
            OTHER,
            &get("Authorization: Bearer sk-attackers-own-key-000000000000"),
        );
        rig.seen();
    }
}

/// R9, G10: content passes byte for byte, whatever it contains.
fn content_is_never_touched(rig: &Rig) {
    for way in Way::SECURE {
        let content = format!(
            "{{\"key\":\"{}\",\"b64\":\"{}\"}}",
            rig.phantom(way, "bearer"),
            STANDARD.encode(rig.phantom(way, "xkey"))
        );
        let template = format!(
            "POST /x HTTP/1.1\r\nHost: {{H}}\r\nAuthorization: Bearer {{PH:bearer}}\r\nContent-Length: {}\r\n\r\n{content}",
            content.len()
        );
        allowed(rig, way, GOOD, &template);
        assert_eq!(rig.seen()[0].body, content.as_bytes(), "{way:?}");
    }
}

/// H19.
fn a_managed_host_without_a_phantom_gets_no_credential(rig: &Rig) {
    for way in Way::SECURE {
        let answer = rig.ask(way, GOOD, &get("Accept: */*"));
        let record = rig.record(way);
        assert_eq!((answer.status, record["lent"].is_null()), (200, true));
        assert!(rig.seen()[0].all("authorization").is_empty());
    }
}

/// H14: neither the phantom goes out instead of the secret, nor the request without either.
fn a_secret_that_cannot_be_had_stops_the_request(rig: &Rig) {
    let path = rig.dir.path().join("secrets/xkey");
    let away = rig.dir.path().join("secrets/away");
    std::fs::rename(&path, &away).unwrap();
    // A deleted file serves for at most five more seconds.
    std::thread::sleep(std::time::Duration::from_millis(5200));
    for way in Way::SECURE {
        let answer = rig.ask(way, GOOD, &get("X-Api-Key: {PH:xkey}"));
        let record = rig.record(way);
        assert_eq!(answer.status, 503, "{way:?} {answer:?} {record}");
        assert_eq!(record["blame"], "credential", "{way:?} {record}");
        assert!(rig.seen().is_empty(), "{way:?}");
    }
    std::fs::rename(&away, &path).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    for way in Way::SECURE {
        allowed(rig, way, GOOD, &get("X-Api-Key: {PH:xkey}"));
    }
    rig.seen();
}
