//! What a change of policies newly permits is named before it is in force.

use super::*;

const BEFORE: &str = r#"
@id("site") permit(principal, action in Gateway::Action::"read", resource == Gateway::Host::"a.test")
when { context.port == 443 };
@id("posts") permit(principal in Gateway::Group::"ci", action == Gateway::Action::"POST", resource == Gateway::Host::"a.test")
when { context.path == "/posts" && context.port == 443 };
@id("below") permit(principal, action, resource in Gateway::Domain::"y.b.test")
when { context.path like "/pub/*" };
@id("no-admin") forbid(principal, action, resource == Gateway::Host::"a.test")
when { context.prefixes.contains("/admin") };
@id("refunds") @ask("Refund?") forbid(principal, action == Gateway::Action::"POST", resource == Gateway::Host::"pay.test");
@id("pay") @label("paid") permit(principal, action, resource == Gateway::Host::"pay.test")
when { context.scheme == "https" };
@id("sealed") forbid(principal, action, resource)
when { context.labels.contains("paid") && context.host != "pay.test" };
@id("key") permit(principal, action == Gateway::Action::"lend", resource == Gateway::Credential::"key")
when { context.host == "a.test" && context.place == "header:authorization:Bearer" };
@id("listed") permit(principal, action, resource == Gateway::Host::"q.test")
when { context.query.unique.contains("page=1") && !(context.fields.names.contains("x-admin")) };
"#;

fn generation(text: &str) -> Generation {
    let source = Source {
        name: "t.cedar".to_owned(),
        text: text.to_owned(),
    };
    Generation::load(1, &[source], &Declared::default())
        .unwrap_or_else(|error| panic!("{error:?}\n{text}"))
}

fn widened(after: &str) -> Vec<String> {
    generation(after).widened(&generation(BEFORE), Duration::from_secs(60))
}

/// Changes one text of the policies, which must be there.
fn with(from: &str, to: &str) -> String {
    assert!(BEFORE.contains(from), "{from}");
    BEFORE.replacen(from, to, 1)
}

fn and(rule: &str) -> String {
    format!("{BEFORE}{rule}")
}

/// Leaves a rule out.
fn without(id: &str) -> String {
    let (before, rest) = BEFORE.split_once(&format!("@id(\"{id}\")")).unwrap();
    let (_, after) = rest.split_once(";\n").unwrap();
    format!("{before}{after}")
}

#[test]
fn each_planted_widening_is_named() {
    let planted = [
        (
            with("action in Gateway::Action::\"read\"", "action"),
            "POST https://a.test:443/",
        ),
        (
            with(
                "action in Gateway::Action::\"read\"",
                "action in [Gateway::Action::\"read\", Gateway::Action::\"DELETE\"]",
            ),
            "DELETE https://a.test:443/",
        ),
        (
            with(
                "resource == Gateway::Host::\"a.test\")\nwhen { context.port == 443 };",
                "resource == Gateway::Host::\"a.test\");",
            ),
            "a.test:80/",
        ),
        (
            with("context.port == 443 };", "context.port >= 443 };"),
            "a.test:8443",
        ),
        (
            with(
                "context.port == 443 };",
                "context.port == 443 || context.port == 9000 };",
            ),
            "a.test:9000",
        ),
        (
            with("Gateway::Group::\"ci\"", "Gateway::Group::\"all\""),
            "POST https://a.test:443 /posts",
        ),
        (
            with("principal in Gateway::Group::\"ci\"", "principal"),
            "POST https://a.test:443 /posts",
        ),
        (
            with("context.path == \"/posts\" && ", ""),
            "POST https://a.test:443/",
        ),
        (
            with(
                "context.path == \"/posts\"",
                "context.path like \"/posts*\"",
            ),
            "a.test /postsany",
        ),
        (
            with(
                "context.path == \"/posts\"",
                "(context.path == \"/posts\" || context.path == \"/users\")",
            ),
            "a.test /users",
        ),
        (with("\"/pub/*\"", "\"/*\""), "y.b.test:443/"),
        (with("\"/pub/*\"", "\"/p*\""), "b.test /pany"),
        (
            with(
                "in Gateway::Domain::\"y.b.test\"",
                "in Gateway::Domain::\"b.test\"",
            ),
            "any.b.test /pub/any",
        ),
        (
            with("in Gateway::Domain::\"y.b.test\"", "is Gateway::Host"),
            "any.example /pub/any",
        ),
        (without("no-admin"), "a.test /admin"),
        (with("\"/admin\"", "\"/admin/keys\""), "a.test /admin"),
        (
            with(
                "forbid(principal, action, resource == Gateway::Host::\"a.test\")",
                "forbid(principal, action == Gateway::Action::\"DELETE\", resource == Gateway::Host::\"a.test\")",
            ),
            "a.test /admin",
        ),
        (
            with(
                "forbid(principal, action, resource == Gateway::Host::\"a.test\")",
                "forbid(principal in Gateway::Group::\"ci\", action, resource == Gateway::Host::\"a.test\")",
            ),
            "a.test /admin",
        ),
        (
            with(
                "@id(\"no-admin\") forbid",
                "@id(\"no-admin\") @ask(\"Admin?\") forbid",
            ),
            "a.test /admin",
        ),
        (without("refunds"), "POST https://pay.test:443/"),
        (
            with("@ask(\"Refund?\") forbid", "@ask(\"ok?\") forbid"),
            "POST https://pay.test:443/",
        ),
        (
            with(
                "resource == Gateway::Host::\"pay.test\");",
                "resource == Gateway::Host::\"pay.test\") when { context.path == \"/v1\" };",
            ),
            "POST https://pay.test:443/",
        ),
        (with("@label(\"paid\") ", ""), "https://pay.test:443/"),
        (
            with("@label(\"paid\") ", "@label(\"other\") "),
            "https://pay.test:443/",
        ),
        (
            with("when { context.scheme == \"https\" };", ";").replace("\n;", ";"),
            "http://pay.test",
        ),
        (without("sealed"), "a.test"),
        (
            with(
                "&& context.host != \"pay.test\"",
                "&& context.host != \"pay.test\" && context.host != \"a.test\"",
            ),
            "https://a.test:443",
        ),
        (
            with(
                "context.labels.contains(\"paid\")",
                "context.labels.contains(\"other\")",
            ),
            "a.test",
        ),
        (
            with(
                "context.host == \"a.test\" && context.place",
                "context.place",
            ),
            "`key` at header:authorization:Bearer to any.example",
        ),
        (
            with(
                "context.host == \"a.test\" &&",
                "(context.host == \"a.test\" || context.host == \"evil.test\") &&",
            ),
            "`key` at header:authorization:Bearer to evil.test",
        ),
        (
            with(" && context.place == \"header:authorization:Bearer\"", ""),
            "`key` at ",
        ),
        (
            with(
                "context.place == \"header:authorization:Bearer\"",
                "context.place like \"header:*\"",
            ),
            "`key` at header:",
        ),
        (
            with(
                "resource == Gateway::Credential::\"key\"",
                "resource is Gateway::Credential",
            ),
            "`any` at",
        ),
        (
            and("@id(\"n\") permit(principal, action, resource == Gateway::Host::\"new.test\");"),
            "GET https://new.test:443/",
        ),
        (
            and("@id(\"n\") permit(principal, action, resource == Gateway::Host::\"10.0.0.7\");"),
            "newly reached at a private address by `n`: 10.0.0.7",
        ),
        (
            and("@id(\"n\") permit(principal, action, resource);"),
            "any.example",
        ),
        (
            and(
                "@id(\"n\") permit(principal in Gateway::User::\"ada\", action == Gateway::Action::\"PUT\", resource == Gateway::Host::\"a.test\");",
            ),
            "PUT https://a.test:443/",
        ),
        (
            and(
                "@id(\"n\") permit(principal, action == Gateway::Action::\"lend\", resource == Gateway::Credential::\"other\") when { context.host == \"a.test\" };",
            ),
            "`other` at",
        ),
        (
            with("contains(\"page=1\")", "contains(\"page=2\")"),
            "q.test",
        ),
        (
            with(" && !(context.fields.names.contains(\"x-admin\"))", ""),
            "listed",
        ),
        (
            with("context.query.unique.contains(\"page=1\") && ", ""),
            "q.test:443/",
        ),
        (
            and(
                "@id(\"n\") permit(principal, action == Gateway::Action::\"POST\", resource == Gateway::Host::\"git.test\") when { context.git.refs.contains(\"update refs/heads/main\") };",
            ),
            "cannot be judged: no request that is made from the policies shows what it changes: `n`",
        ),
        // What the rule that stands reads, and no text of it has.
        (
            with(
                "@id(\"site\")",
                "@id(\"up\") permit(principal, action == Gateway::Action::\"GET\", resource == Gateway::Host::\"q.test\");\n@id(\"site\")",
            ),
            "newly allowed q.test",
        ),
        (
            with(
                "!(context.fields.names.contains(\"x-admin\"))",
                "context.upgrade == \"\"",
            ),
            "listed",
        ),
    ];
    assert!(planted.len() >= 40);
    let mut missed = Vec::new();
    for (after, shown) in planted {
        let told = widened(&after);
        let shows = |line: &String| shown.split(' ').all(|part| line.contains(part));
        if !told.iter().any(shows) {
            missed.push((shown, told, after));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn no_widening_is_passed_over_in_silence() {
    let site = r#"permit(principal, action, resource == Gateway::Host::"api.test");"#;
    let below = r#"permit(principal, action, resource == Gateway::Host::"a.b.test");"#;
    let group = r#"permit(principal in Gateway::Group::"ci", action, resource);"#;
    let lends = r#"permit(principal, action == Gateway::Action::"lend", resource == Gateway::Credential::"key");"#;
    let keyed = r#"permit(principal, action == Gateway::Action::"lend", resource) when { context.place == "header:x-api-key" };"#;
    let when =
        |condition: &str| format!("permit(principal, action, resource) when {{ {condition} }};");
    let without = |rules: &str, rule: &str| (format!("{rules}\n{rule}"), rules.to_owned());
    let silent = [
        without(
            site,
            r#"forbid(principal, action, resource) when { context.path == "/admin" };"#,
        ),
        without(
            site,
            r#"forbid(principal, action == Gateway::Action::"POST", resource);"#,
        ),
        without(
            site,
            "forbid(principal, action, resource) when { context.port != 443 };",
        ),
        without(
            below,
            r#"forbid(principal, action, resource in Gateway::Domain::"b.test");"#,
        ),
        without(
            lends,
            r#"forbid(principal, action == Gateway::Action::"lend", resource) when { context.place == "query:key" };"#,
        ),
        without(
            group,
            r#"forbid(principal in Gateway::Group::"interns", action, resource);"#,
        ),
        without(
            group,
            r#"forbid(principal == Gateway::Session::"a1", action, resource);"#,
        ),
        without(
            keyed,
            r#"forbid(principal, action, resource) when { context.host == "api.test" };"#,
        ),
        (
            when(r#"context.path like "/a/*" && !(context.path like "*/admin")"#),
            when(r#"context.path like "/a/*""#),
        ),
        (
            when(r#"context.prefixes.contains("/a") && !(context.path like "*.json")"#),
            when(r#"context.prefixes.contains("/a")"#),
        ),
        (when("context.depth < 5"), when("context.depth < 9")),
        (
            when(r#"context.labels.contains("a")"#),
            when(
                r#"context.labels.contains("a") || (context.labels.contains("b") && context.labels.contains("c") && !context.labels.contains("d"))"#,
            ),
        ),
        (when("context.query.any.isEmpty()"), when("true")),
        (
            when(r#"context.entry == "tls""#),
            when(r#"context.entry != "transparent""#),
        ),
        without(
            site,
            r#"permit(principal, action, resource) when { context.model.name == "x" };"#,
        ),
        (
            format!("{site}{}", when(r#"context.labels.contains("vip")"#)),
            format!(
                "@label(\"vip\") {site}{}",
                when(r#"context.labels.contains("vip")"#)
            ),
        ),
    ];
    for (before, after) in silent {
        let told = generation(&after).widened(&generation(&before), Duration::from_secs(60));
        assert!(!told.is_empty(), "{before}\nto {after}");
    }
    let told = generation(&format!("{keyed}{site}"));
    let told = told.widened(&generation(keyed), Duration::from_secs(60));
    assert!(
        told.iter().any(|line| line.contains("newly lent")),
        "{told:?}"
    );
}

#[test]
fn what_takes_too_long_is_told_to_be_unjudged() {
    let rule = |nth: usize| {
        let one = |what: &str| format!(r#"context.{what}.contains("{what}{nth}=1")"#);
        let all = ["labels", "query.any", "fields.names", "actions"]
            .map(one)
            .join(" || ");
        format!(
            "permit(principal, action, resource) when {{ context.path == \"/{nth}\" || {all} }};"
        )
    };
    let many: String = (0..100).map(rule).collect();
    let (many, none) = (generation(&many), generation(""));
    let began = std::time::Instant::now();
    let told = many.widened(&none, Duration::from_millis(200));
    let took = began.elapsed();
    assert!(
        told.len() >= 100 && took < Duration::from_secs(20),
        "{took:?}"
    );
}

#[test]
fn a_change_that_permits_nothing_new_names_nothing() {
    let mut reversed: Vec<&str> = BEFORE.split_inclusive(";\n").collect();
    reversed.reverse();
    let mut harmless = vec![
        BEFORE.to_owned(),
        reversed.concat(),
        format!("// What may be sent.\n{BEFORE}"),
        BEFORE.replace("when {", "when  {\n  "),
        with("@id(\"site\")", "@id(\"website\")"),
        with("@id(\"no-admin\")", "@id(\"nothing-below-admin\")"),
        with("@id(\"refunds\")", "@id(\"money\")"),
        with("@id(\"pay\")", "@id(\"payments\")"),
        with("@id(\"key\")", "@id(\"token\")"),
        with("@ask(\"Refund?\") ", ""),
        and(
            "@id(\"again\") permit(principal, action in Gateway::Action::\"read\", resource == Gateway::Host::\"a.test\") when { context.port == 443 };",
        ),
        with(
            "action in Gateway::Action::\"read\"",
            "action == Gateway::Action::\"GET\"",
        ),
        with(
            "when { context.port == 443 };",
            "when { context.port == 443 && context.path like \"/pub*\" };",
        ),
        with(
            "principal in Gateway::Group::\"ci\"",
            "principal in Gateway::Group::\"ci\" ",
        ),
        with(
            "context.path == \"/posts\"",
            "context.path == \"/posts\" && context.secure",
        ),
        with(
            "context.path == \"/posts\" && context.port == 443",
            "context.port == 443 && context.path == \"/posts\"",
        ),
        with("\"/pub/*\"", "\"/pub/a*\""),
        with(
            "in Gateway::Domain::\"y.b.test\"",
            "== Gateway::Host::\"x.y.b.test\"",
        ),
        with(
            "in Gateway::Domain::\"y.b.test\"",
            "in Gateway::Domain::\"x.y.b.test\"",
        ),
        with(
            "\"/admin\") }",
            "\"/admin\") || context.prefixes.contains(\"/root\") }",
        ),
        with(
            "context.prefixes.contains(\"/admin\")",
            "context.path like \"/a*\" || context.prefixes.contains(\"/admin\")",
        ),
        with(
            "action == Gateway::Action::\"POST\", resource == Gateway::Host::\"pay.test\"",
            "action in Gateway::Action::\"write\", resource == Gateway::Host::\"pay.test\"",
        ),
        with("context.scheme == \"https\"", "context.secure"),
        with(
            "context.host == \"a.test\" && context.place",
            "context.host == \"a.test\" && context.port == 443 && context.place",
        ),
        with(
            "!(context.fields.names.contains(\"x-admin\"))",
            "!(context.fields.names.contains(\"x-admin\") || context.fields.names.contains(\"x-root\"))",
        ),
        and(
            "@id(\"n\") permit(principal, action == Gateway::Action::\"GET\", resource == Gateway::Host::\"a.test\") when { context.port == 443 && context.path == \"/\" };",
        ),
    ];
    for id in ["site", "posts", "below", "pay", "key", "listed"] {
        harmless.push(without(id));
    }
    for rule in [
        "forbid(principal, action, resource);",
        "forbid(principal, action == Gateway::Action::\"lend\", resource);",
        "forbid(principal, action, resource == Gateway::Host::\"a.test\");",
        "forbid(principal in Gateway::Group::\"ci\", action, resource);",
        "forbid(principal, action, resource) when { context.port != 443 };",
        "@ask(\"Sure?\") forbid(principal, action, resource == Gateway::Host::\"a.test\");",
        "@ask(\"Sure?\") forbid(principal, action in Gateway::Action::\"write\", resource);",
        "forbid(principal, action, resource) when { context.fields.names.contains(\"x\") };",
    ] {
        harmless.push(and(&format!("@id(\"more\") {rule}")));
    }
    assert!(harmless.len() >= 40, "{}", harmless.len());
    let told = harmless.into_iter().map(|after| (widened(&after), after));
    let named: Vec<_> = told.filter(|(told, _)| !told.is_empty()).collect();
    assert!(named.is_empty(), "{named:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_some_request_shows_is_not_passed_over_in_silence(
        old in proptest::collection::vec(super::against_cedar::scopes(), 1..4),
        new in proptest::collection::vec(super::against_cedar::scopes(), 1..4),
        asked in proptest::collection::vec(super::against_cedar::requests(), 30),
    ) {
        let numbered = |rules: &[String]| {
            let rules = rules.iter().enumerate();
            let rules: String = rules.map(|(nth, rule)| format!("@id(\"p{nth}\") {rule}\n")).collect();
            generation(&rules)
        };
        let (old, new) = (numbered(&old), numbered(&new));
        let shows = asked.iter().find(|(request, lend)| {
            let allows = |of: &Generation| match lend {
                None => of.ask(&request.facts()).allowed(),
                Some(name) => {
                    let name = CredentialName::new(name).unwrap();
                    of.lend(&request.facts(), &name, "basic:user").allowed()
                }
            };
            allows(&new) && !allows(&old)
        });
        if let Some(request) = shows {
            prop_assert!(!new.widened(&old, Duration::from_secs(60)).is_empty(), "{request:?}");
        }
    }
}
