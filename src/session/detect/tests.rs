//! Group H of the threat catalogue, row by row: each refusal, with its code. The tests of
//! `credential::inject` cover the accepted requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_message::Host;
use http::Method;

use super::super::Binding;
use super::super::phantom::Shape;
use super::super::stage::{binding, field, head, stage, stage_of};
use super::*;

#[test]
fn h01_h02_a_phantom_to_an_origin_to_which_it_is_not_bound_is_out_of_scope() {
    let stage = stage();
    let phantom = stage.of("github");
    let bearer = format!("Bearer {phantom}");
    for origin in [
        "https://unmanaged.example",
        "https://other.example",
        "https://good.example:8443",
        "https://sub.good.example",
        "https://wild.example:8443",
    ] {
        for fields in [
            ("authorization", bearer.as_str()),
            ("x-api-key", &phantom),
            ("cookie", &phantom),
            ("user-agent", &phantom),
        ] {
            assert_eq!(
                stage.refusal(origin, "/", &[fields]),
                "phantom_out_of_scope",
                "{origin} {}",
                fields.0
            );
        }
        assert_eq!(
            stage.refusal(origin, &format!("/{phantom}"), &[]),
            "phantom_out_of_scope"
        );
        assert_eq!(
            stage.refusal(origin, &format!("/?access_token={phantom}"), &[]),
            "phantom_out_of_scope"
        );
        let basic = STANDARD.encode(format!("user:{phantom}"));
        assert_eq!(
            stage.refusal(origin, "/", &[("authorization", &format!("Basic {basic}"))]),
            "phantom_out_of_scope"
        );
    }
    assert_eq!(
        stage.refusal("http://good.example", "/", &[("authorization", &bearer)]),
        "cleartext_injection"
    );
}

#[test]
fn a_phantom_with_another_method_or_path_than_its_binding_names_is_out_of_scope() {
    let stage = stage();
    let phantom = stage.of("gemini");
    let fields = [("x-goog-api-key", phantom.as_str())];
    assert_eq!(
        stage
            .detect(&head("https://gemini.example", "/v1/x", &fields))
            .unwrap()
            .lends()
            .len(),
        1
    );
    assert_eq!(
        stage.refusal("https://gemini.example", "/v2", &fields),
        "phantom_out_of_scope"
    );
    assert_eq!(
        stage.refusal("https://gemini.example", "/v1x", &fields),
        "phantom_out_of_scope"
    );
    let post = RequestHead {
        method: Method::POST,
        ..head("https://gemini.example", "/v1/x", &fields)
    };
    assert_eq!(
        stage.detect(&post).unwrap_err().reason().as_str(),
        "phantom_out_of_scope"
    );
}

#[test]
fn h03_a_phantom_at_its_origin_in_another_place_is_refused() {
    let stage = stage();
    let phantom = stage.of("github");
    for name in [
        "user-agent",
        "referer",
        "x-forwarded-for",
        "x-custom",
        "cookie",
        "x-api-key",
        "if-none-match",
    ] {
        assert_eq!(
            stage.refusal("https://good.example", "/", &[(name, &phantom)]),
            "phantom_position",
            "{name}"
        );
        let inside = format!("a={phantom}; b=c");
        assert_eq!(
            stage.refusal("https://good.example", "/", &[(name, &inside)]),
            "phantom_position",
            "{name}"
        );
    }
    for target in [
        format!("/{phantom}"),
        format!("/?q={phantom}"),
        format!("/?{phantom}=1"),
        format!("/a/{phantom}/b"),
    ] {
        assert_eq!(
            stage.refusal("https://good.example", &target, &[]),
            "phantom_position"
        );
    }
    for value in [
        phantom.clone(),
        format!("Digest {phantom}"),
        format!("Bearer {phantom},x"),
    ] {
        assert_eq!(
            stage.refusal("https://good.example", "/", &[("authorization", &value)]),
            "phantom_position",
            "{value}"
        );
    }
}

#[test]
fn h04_a_disguised_phantom_is_never_replaced_and_refused() {
    let stage = stage();
    let phantom = stage.of("github");
    let percent: String = phantom.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let hex: String = phantom.bytes().map(|byte| format!("{byte:02x}")).collect();
    let json: String = phantom
        .bytes()
        .map(|byte| format!("\\u{byte:04x}"))
        .collect();
    let base64 = STANDARD.encode(&phantom);
    for origin in ["https://good.example", "https://unmanaged.example"] {
        for disguise in [
            &percent,
            &percent.replace('%', "%25"),
            &hex,
            &json,
            &base64,
            &base64.replace('=', ""),
        ] {
            for value in [disguise.clone(), format!("Bearer {disguise}")] {
                for name in ["authorization", "x-note", "cookie"] {
                    assert_eq!(
                        stage.refusal(origin, "/", &[(name, &value)]),
                        "phantom_disguised",
                        "{name}: {value}"
                    );
                }
            }
        }
        // Decoding letters once is already part of canonicalisation, so the phantom is plain there.
        assert_ne!(stage.refusal(origin, &format!("/?q={percent}"), &[]), "");
        assert_eq!(
            stage.refusal(origin, &format!("/?q={}", percent.replace('%', "%25")), &[]),
            "phantom_disguised"
        );
        assert_eq!(
            stage.refusal(origin, &format!("/{hex}"), &[]),
            "phantom_disguised"
        );
        assert_eq!(
            stage.refusal(origin, &format!("/?q={}", base64.replace('=', "%3D")), &[]),
            "phantom_disguised"
        );
    }
}

#[test]
fn h06_a_phantom_that_stands_twice_is_refused() {
    let stage = stage();
    let (github, other) = (stage.of("github"), stage.of("other"));
    let bearer = format!("Bearer {github}");
    let twice = [
        ("authorization", bearer.as_str()),
        ("authorization", bearer.as_str()),
    ];
    assert_eq!(
        stage.refusal("https://good.example", "/", &twice),
        "phantom_count"
    );
    let inside = format!("Bearer {github} {github}");
    assert_eq!(
        stage.refusal("https://good.example", "/", &[("authorization", &inside)]),
        "phantom_count"
    );
    let two_places = [
        ("x-api-key", other.as_str()),
        ("authorization", &format!("Bearer {other}")),
    ];
    assert_eq!(
        stage.refusal("https://other.example", "/", &two_places),
        "phantom_count"
    );
    let beside = [("authorization", bearer.as_str()), ("x-note", &github)];
    assert_eq!(
        stage.refusal("https://good.example", "/", &beside),
        "phantom_position"
    );
}

#[test]
fn h07_a_phantom_inside_a_longer_token_is_not_the_phantom() {
    let stage = stage();
    let (github, other) = (stage.of("github"), stage.of("other"));
    for token in [
        format!("{github}x"),
        format!("x{github}"),
        format!("{github}{other}"),
        format!("{github}.{github}x"),
    ] {
        let reason = stage.refusal(
            "https://good.example",
            "/",
            &[("authorization", &format!("Bearer {token}"))],
        );
        assert!(["phantom_position", "phantom_count"].contains(&reason));
    }
}

#[test]
fn h10_a_phantom_in_the_host_or_a_field_name_is_refused() {
    let hostly = Binding {
        shape: Some(Shape::parse("[40 alnum]").unwrap()),
        ..binding("github", &["https://good.example"], &["header:x-api-key"])
    };
    let stage = stage_of(vec![hostly]);
    let phantom = stage.of("github");
    assert_eq!(
        stage.refusal(&format!("https://{phantom}.evil.example"), "/", &[]),
        "phantom_out_of_scope"
    );
    assert_eq!(
        stage.refusal("https://good.example", "/", &[(&phantom, "1")]),
        "phantom_position"
    );
    assert_eq!(
        stage.refusal(
            "https://good.example",
            "/",
            &[(&format!("x-{phantom}-y"), "1")]
        ),
        "phantom_position"
    );
    let hex: String = phantom.bytes().map(|byte| format!("{byte:02x}")).collect();
    let labels = format!("https://{}.evil.example", &hex[..60]);
    // Part of a phantom is not a phantom: it reveals nothing and is never replaced.
    assert!(stage.detect(&head(&labels, "/", &[])).is_ok());
    assert_eq!(
        stage.refusal("https://good.example", "/", &[(&format!("x-{hex}"), "1")]),
        "phantom_disguised"
    );
    assert_eq!(
        Host::parse(b"good.example").unwrap().as_str(),
        "good.example"
    );
}

#[test]
fn h11_another_sessions_phantom_is_refused_and_called_that() {
    let stage = stage();
    let theirs = &stage.theirs;
    let phantom = theirs.all()[0].reveal();
    let bearer = format!("Bearer {phantom}");
    let basic = format!("Basic {}", STANDARD.encode(format!("u:{phantom}")));
    for origin in [
        "https://good.example",
        "https://other.example",
        "https://unmanaged.example",
    ] {
        for value in [&bearer, &basic] {
            let reason = stage.refusal(origin, "/", &[("authorization", value)]);
            assert_eq!(reason, "phantom_foreign_session", "{origin}");
        }
    }
}

#[test]
fn h12_two_sessions_hold_different_phantoms() {
    let stage = stage();
    let theirs = &stage.theirs;
    for (ours, theirs) in stage.phantoms.all().iter().zip(theirs.all()) {
        assert_ne!(ours.reveal(), theirs.reveal());
    }
}

#[test]
fn h13_a_foreign_credential_at_a_managed_origin_is_refused_and_elsewhere_goes_on() {
    let stage = stage();
    for (name, value) in [
        ("authorization", "Bearer attackers-own-key"),
        ("authorization", "token attackers-own-key"),
        ("authorization", "Basic dXNlcjpwYXNz"),
        ("authorization", "Basic !!!"),
        ("authorization", "Negotiate abc"),
        ("x-api-key", "attackers-own-key"),
        ("x-goog-api-key", "attackers-own-key"),
        ("private-token", "attackers-own-key"),
        ("x_api_key", "attackers-own-key"),
        ("X-Api-Key", "attackers-own-key"),
    ] {
        assert_eq!(
            stage.refusal("https://good.example", "/", &[(name, value)]),
            "foreign_credential",
            "{name}: {value}"
        );
        assert!(
            stage
                .detect(&head("https://unmanaged.example", "/", &[(name, value)]))
                .unwrap()
                .lends()
                .is_empty()
        );
    }
    assert_eq!(
        stage.refusal("https://good.example", "/?access_token=attackers", &[]),
        "foreign_credential"
    );
    assert_eq!(
        stage.refusal("https://gemini.example", "/v1?key=attackers", &[]),
        "foreign_credential"
    );
    assert_eq!(
        stage.refusal(
            "https://other.example",
            "/",
            &[("cookie", "a=b; sid=attackers")]
        ),
        "foreign_credential"
    );
    assert!(
        stage
            .detect(&head(
                "https://other.example",
                "/?key=x",
                &[("cookie", "a=b; sid=")]
            ))
            .is_ok()
    );
}

#[test]
fn e20_a_foreign_credential_beside_the_phantom_is_refused() {
    let stage = stage();
    let bearer = format!("Bearer {}", stage.of("github"));
    for foreign in [
        ("authorization", "Bearer attackers"),
        ("x-api-key", "attackers"),
        ("x_auth_token", "attackers"),
    ] {
        let fields = [("authorization", bearer.as_str()), foreign];
        assert_eq!(
            stage.refusal("https://good.example", "/", &fields),
            "foreign_credential"
        );
        let fields = [foreign, ("authorization", bearer.as_str())];
        assert_eq!(
            stage.refusal("https://good.example", "/", &fields),
            "foreign_credential"
        );
    }
}

#[test]
fn a_session_that_does_not_hold_a_credential_never_has_it_put_in() {
    let always = Binding {
        when: When::Always,
        ..binding("github", &["https://good.example"], &["header:x-key"])
    };
    let stage = stage_of(vec![always]);
    let none = Phantoms::none();
    let head = head("https://good.example", "/", &[]);
    let here = Arc::new(stage.bindings.at_origin(&head.origin));
    assert!(
        stage
            .bindings
            .detect(&head, here, &none, &stage.registry)
            .unwrap()
            .lends()
            .is_empty()
    );
}

#[test]
fn an_ordinary_request_is_let_through_without_a_word() {
    let stage = stage();
    let fields = [
        ("accept", "*/*"),
        ("accept-encoding", "gzip, deflate, br"),
        (
            "user-agent",
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126 Safari/537.36",
        ),
        (
            "cookie",
            "a=b; c=d%20e; __cf_bm=abcdefghijklmnopqrstuvwxyz0123456789",
        ),
        ("content-type", "application/json"),
    ];
    for origin in [
        "https://good.example",
        "https://unmanaged.example",
        "http://unmanaged.example",
    ] {
        let presented = stage
            .detect(&head(origin, "/a%20b/c?q=1&r=%2F", &fields))
            .unwrap();
        assert!(presented.lends().is_empty() && presented.strip.is_empty());
    }
}

#[test]
fn h05_basic_that_is_not_strictly_one_pair_with_one_phantom_is_refused() {
    let stage = stage();
    let phantom = stage.of("github");
    let once = STANDARD.encode(format!("us:{phantom}"));
    assert!(once.ends_with('='));
    for (value, reason) in [
        (
            format!("Basic {}", once.trim_end_matches('=')),
            "phantom_disguised",
        ),
        (
            format!("Basic {}", STANDARD.encode(&once)),
            "phantom_disguised",
        ),
        (
            format!("Basic {}", STANDARD.encode(format!("a:b{phantom}"))),
            "phantom_position",
        ),
        (
            format!("Basic {}", STANDARD.encode(format!("{phantom}x:b"))),
            "phantom_position",
        ),
        (
            format!("Basic {}", STANDARD.encode(format!("{phantom}:{phantom}"))),
            "phantom_count",
        ),
        (
            format!(
                "Basic {}",
                STANDARD.encode(format!("u:{phantom}:{phantom}"))
            ),
            "phantom_count",
        ),
        (format!("Basic {phantom}"), "phantom_position"),
    ] {
        assert_eq!(
            stage.refusal("https://good.example", "/", &[("authorization", &value)]),
            reason,
            "{value}"
        );
    }
}

#[test]
fn a_query_place_takes_its_phantom_once_and_nothing_else() {
    let stage = stage();
    let gemini = stage.of("gemini");
    for target in [
        format!("/v1?key={gemini}&key={gemini}"),
        format!("/v1?key={gemini}&q={gemini}"),
        format!("/v1?key={gemini}&{gemini}="),
    ] {
        let reason = stage.refusal("https://gemini.example", &target, &[]);
        assert!(
            ["phantom_count", "phantom_position"].contains(&reason),
            "{reason}"
        );
    }
}

#[test]
fn r10_stripping_is_for_fields_alone() {
    let strip = Binding {
        foreign: Foreign::Strip,
        ..super::super::stage::usual().remove(0)
    };
    let stage = stage_of(vec![strip]);
    assert_eq!(
        stage.refusal("https://good.example", "/?access_token=attackers", &[]),
        "foreign_credential"
    );
}

#[test]
fn a_parameter_is_known_in_every_spelling_and_where_its_service_uses_it_alone() {
    let narrow = Binding {
        takes: vec!["query:token@/hooks".parse().unwrap()],
        ..binding("github", &["https://good.example"], &["header:x-key"])
    };
    let stage = stage_of(vec![narrow]);
    for target in [
        "/hooks?token=x",
        "/hooks/1?Token[]=x",
        "/hooks?$token=x",
        "//hooks;v=1?a&t%6Fken=x",
    ] {
        assert_eq!(
            stage.refusal("https://good.example", target, &[]),
            "foreign_credential",
            "{target}"
        );
    }
    for target in ["/x?token=x", "/hooks?page_token=x", "/hooks?token="] {
        assert!(
            stage
                .detect(&head("https://good.example", target, &[]))
                .is_ok(),
            "{target}"
        );
    }
    // An unknown service is judged by the parameter's name.
    let unknown = stage_of(vec![binding(
        "github",
        &["https://good.example"],
        &["header:x-key"],
    )]);
    for target in [
        "/x?token=x",
        "/x?sig=x",
        "/x?Access-Token=x",
        "/x?client_secret=x",
        "/x?AWSAccessKeyId=x",
    ] {
        assert_eq!(
            unknown.refusal("https://good.example", target, &[]),
            "foreign_credential",
            "{target}"
        );
    }
    let google = stage_of(vec![binding(
        "github",
        &["https://drive.googleapis.com"],
        &["header:x-key"],
    )]);
    for target in ["/x?key=x", "/x?$key=x", "/x?%24.key=x", "/x?oauth_token=x"] {
        assert_eq!(
            google.refusal("https://drive.googleapis.com", target, &[]),
            "foreign_credential",
            "{target}"
        );
    }
}

#[test]
fn a_credential_among_subprotocols_is_foreign() {
    let stage = stage();
    let fields = [(
        "sec-websocket-protocol",
        "realtime, openai-insecure-api-key.attackers",
    )];
    assert_eq!(
        stage.refusal("https://good.example", "/", &fields),
        "foreign_credential"
    );
    let fields = [("sec-websocket-protocol", "graphql-transport-ws")];
    assert!(
        stage
            .detect(&head("https://good.example", "/", &fields))
            .is_ok()
    );
}

#[test]
fn at_a_managed_origin_a_cookie_goes_on_that_is_known_to_hold_no_account() {
    let named = Binding {
        cookies: vec!["lang".into()],
        takes: vec!["cookie:d".parse().unwrap()],
        ..binding("github", &["https://good.example"], &["cookie:sid"])
    };
    let stage = stage_of(vec![named]);
    let settled = |value: &str| {
        let mut head = head("https://good.example", "/", &[("cookie", value)]);
        let presented = stage.detect(&head).unwrap();
        presented.settle(&mut head);
        field(&head, "cookie").join("|")
    };
    let phantom = stage.of("github");
    for (sent, kept) in [
        ("remember=attackers", ""),
        ("lang=de; remember=x", "lang=de"),
        ("__cf_bm=abc; _session=x;AWSALB=y", "__cf_bm=abc; AWSALB=y"),
        ("__cf_bm=a, session=x", ""),
        ("__cf_bm=\"a; session=x\"", ""),
        ("d=; lang=de", "lang=de"),
    ] {
        assert_eq!(settled(sent), kept, "{sent}");
    }
    assert_eq!(
        settled(&format!("x=y; lang=de; sid={phantom}; z")),
        format!("lang=de; sid={phantom}")
    );
    assert_eq!(
        stage.refusal("https://good.example", "/", &[("cookie", "d=attackers")]),
        "foreign_credential"
    );
    let free = Binding {
        cookies: vec!["*".into()],
        ..binding("github", &["https://good.example"], &["header:x-key"])
    };
    let stage = stage_of(vec![free]);
    let mut one = head("https://good.example", "/", &[("cookie", "a=b; c=d")]);
    stage.detect(&one).unwrap().settle(&mut one);
    assert_eq!(field(&one, "cookie"), ["a=b; c=d"]);
}

#[test]
fn a_token_of_a_gateway_never_leaves() {
    let stage = stage();
    let token = format!("gwt1_{}", "Ab0-_".repeat(12));
    let basic = format!("Basic {}", STANDARD.encode(format!("gateway:{token}")));
    let bearer = format!("Bearer {token}");
    for origin in ["https://unmanaged.example", "https://good.example"] {
        for (path, fields) in [
            ("/".to_owned(), &[("x-note", token.as_str())][..]),
            ("/".to_owned(), &[("authorization", &bearer)]),
            ("/".to_owned(), &[("authorization", &basic)]),
            (format!("/{token}"), &[]),
            (format!("/?a={token}"), &[]),
        ] {
            let refused = stage.refusal(origin, &path, fields);
            assert_eq!(refused, "token_misplaced", "{origin}{path} {fields:?}");
        }
    }
    assert!(!has_token(b"the prefix gwt1_ of tokens, and gwt1_a-word"));
}
