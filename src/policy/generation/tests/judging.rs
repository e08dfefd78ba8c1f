//! Requests that are denied, that are allowed, and that cannot be judged.

use super::*;

#[test]
fn nothing_is_permitted_without_a_policy() {
    assert_eq!(outcome("", &owned()), Outcome::Unpermitted);
    let none = Policies::load(&[], declared()).unwrap();
    assert_eq!(
        none.current().ask(&owned().facts()).outcome,
        Outcome::Unpermitted
    );
}

#[test]
fn f14_a_batch_is_allowed_where_all_of_its_host_is() {
    let batch = OwnedFacts {
        method: "POST".into(),
        target: target("/v1.0/$batch"),
        ..owned()
    };
    assert!(batch.facts().batch);
    // The same request alone was judged before. Its verdict must not be used for the batch.
    let alone = Facts {
        batch: false,
        ..batch.facts()
    };
    let narrow = Outcome::Unjudged(FactFault::Batch);
    let host = r#"resource == Gateway::Host::"api.github.com""#;
    let whole = format!(
        "permit(principal, action in Gateway::Action::\"any\", {host}) when {{ context.port == 443 }};"
    );
    let github = CredentialName::new("github").unwrap();
    for (more, expected) in [
        ("", Outcome::Allowed),
        (
            r#"forbid(principal, action, resource) unless { context.secure };"#,
            Outcome::Allowed,
        ),
        (
            r#"forbid(principal, action, resource) when { context.prefixes.contains("/admin") };"#,
            narrow,
        ),
        (
            r#"forbid(principal, action, resource) when { context.fields.any.contains("x-role: admin") };"#,
            narrow,
        ),
        (
            r#"forbid(principal, action == Gateway::Action::"DELETE", resource);"#,
            narrow,
        ),
        (
            r#"forbid(principal, action == Gateway::Action::"GET", resource) when { context.query.any.contains("a=b") };"#,
            narrow,
        ),
    ] {
        assert_eq!(
            outcome(&format!("{whole}\n{more}"), &batch),
            expected,
            "{more}"
        );
    }
    for permit in [
        format!(r#"permit(principal, action == Gateway::Action::"POST", {host});"#),
        format!(r#"permit(principal, action in Gateway::Action::"write", {host});"#),
        format!(
            r#"permit(principal, action, {host}) when {{ context.prefixes.contains("/v1.0") }};"#
        ),
    ] {
        assert_eq!(outcome(&permit, &batch), narrow, "{permit}");
        let single = policies(&permit).current().ask(&alone).outcome;
        assert_eq!(single, Outcome::Allowed, "{permit}");
    }
    let lent = |rule: &str| {
        let loaded = policies(rule).current();
        assert!(loaded.lend(&alone, &github, BEARER).allowed(), "{rule}");
        loaded.lend(&batch.facts(), &github, BEARER).outcome
    };
    let any = r#"permit(principal, action == Gateway::Action::"lend", resource) when { context.secure };"#;
    assert_eq!(lent(any), Outcome::Allowed);
    let below = r#"permit(principal, action == Gateway::Action::"lend", resource) when { context.prefixes.contains("/v1.0") };"#;
    assert_eq!(lent(below), narrow);
}

#[test]
fn a_forbid_that_errs_denies() {
    let text = r#"
        @id("all") permit(principal, action, resource);
        @id("overflow") forbid(principal, action, resource) when { context.contentLength * 2 > 10 };"#;
    let mut request = OwnedFacts {
        content_length: Some(1),
        ..owned()
    };
    assert_eq!(outcome(text, &request), Outcome::Allowed);
    request.content_length = Some(u64::MAX);
    let verdict = policies(text).current().ask(&request.facts());
    assert_eq!(
        (verdict.outcome, named(&verdict)),
        (Outcome::PolicyError, vec!["overflow"])
    );
    assert!(!verdict.allowed());
}

#[test]
fn a_permit_that_errs_denies_although_another_permits() {
    let text = r#"
        permit(principal, action, resource);
        permit(principal, action, resource) when { context.port + 9223372036854775807 > 0 };"#;
    assert_eq!(outcome(text, &owned()), Outcome::PolicyError);
}

#[test]
fn reading_what_the_schema_lacks_is_refused_at_load() {
    for condition in [
        "context.content == 1",
        "context.port == \"443\"",
        "ip(context.host).isLoopback()",
        "resource.owner == 1",
    ] {
        let text = format!("forbid(principal, action, resource) when {{ {condition} }};");
        assert!(
            Policies::load(&[Source::new("f", text)], declared()).is_err(),
            "{condition}"
        );
    }
}

#[test]
fn what_cannot_be_represented_is_denied_only_where_it_is_read() {
    let request = OwnedFacts {
        target: target(&"/a".repeat(65)),
        ..owned()
    };
    assert_eq!(
        outcome("permit(principal, action, resource);", &request),
        Outcome::Allowed
    );
    let reads =
        r#"permit(principal, action, resource) unless { context.prefixes.contains("/admin") };"#;
    assert_eq!(
        outcome(reads, &request),
        Outcome::Unjudged(FactFault::TooManySegments)
    );
}

#[test]
fn every_reading_of_a_path_is_judged() {
    let forbid = r#"permit(principal, action, resource);
        forbid(principal, action, resource) when { context.prefixes.contains("/admin") };"#;
    let permit = r#"permit(principal, action, resource)
        when { context.segments.containsAll(["0:repos", "3:issues"]) };"#;
    let below = r#"permit(principal, action, resource) when { context.prefixes.contains("/p") };"#;
    let deep = r#"permit(principal, action, resource) when { context.depth > 2 };"#;
    let path = r#"permit(principal, action, resource) unless { context.path == "/admin" };"#;
    let doubtful = Outcome::Unjudged(FactFault::PathReadings);
    for (policy, asked, expected) in [
        (forbid, "/admin", Outcome::Forbidden),
        (forbid, "//admin", Outcome::Forbidden),
        (forbid, "/admin;x/y", Outcome::Forbidden),
        (forbid, "/;x/admin?q", Outcome::Forbidden),
        (forbid, "/admin%3Bx", Outcome::Forbidden),
        (forbid, "//ok;x//y", Outcome::Allowed),
        (permit, "/repos/o/r/issues", Outcome::Allowed),
        (permit, "/repos/o//issues", doubtful),
        (permit, "/repos/o/;r/issues", doubtful),
        (permit, "/repos/o/r/issues//1;x", Outcome::Allowed),
        (below, "/p//o;x", Outcome::Allowed),
        (below, "/;x/p", Outcome::Unpermitted),
        (deep, "/a//b", doubtful),
        (path, "//admin", doubtful),
        (path, "/admin;x", doubtful),
    ] {
        let facts = OwnedFacts {
            target: target(asked),
            ..owned()
        };
        assert_eq!(outcome(policy, &facts), expected, "{policy} {asked}");
    }
}

#[test]
fn a_method_is_compared_exactly_and_unknown_ones_are_other() {
    let get = r#"permit(principal, action == Gateway::Action::"GET", resource);"#;
    for (method, allowed) in [
        ("GET", true),
        ("get", false),
        ("GETT", false),
        ("G", false),
        ("POST", false),
    ] {
        let request = OwnedFacts {
            method: method.into(),
            ..owned()
        };
        assert_eq!(
            outcome(get, &request) == Outcome::Allowed,
            allowed,
            "{method}"
        );
    }
    let other = r#"permit(principal, action == Gateway::Action::"other", resource) when { context.method == "PROPFIND" };"#;
    for (method, allowed) in [
        ("PROPFIND", true),
        ("propfind", false),
        (&*"X".repeat(1024), false),
        ("GET", false),
    ] {
        let request = OwnedFacts {
            method: method.into(),
            ..owned()
        };
        assert_eq!(
            outcome(other, &request) == Outcome::Allowed,
            allowed,
            "{method}"
        );
    }
}

#[test]
fn a_domain_is_matched_by_whole_labels() {
    let text = r#"permit(principal, action, resource in Gateway::Domain::"good.example");"#;
    let table = [
        ("good.example", true),
        ("a.good.example", true),
        ("a.b.good.example", true),
        ("evilgood.example", false),
        ("good.example.evil", false),
        ("good.evil", false),
        ("example", false),
        ("good-example", false),
        ("xgood.example", false),
        ("good.examplex", false),
        ("10.0.0.1", false),
        ("::1", false),
    ];
    for (host, allowed) in table {
        let request = OwnedFacts {
            host: host.parse().unwrap(),
            ..owned()
        };
        assert_eq!(
            outcome(text, &request) == Outcome::Allowed,
            allowed,
            "{host}"
        );
        assert_eq!(
            policies(text)
                .current()
                .may_resolve(request.facts().principal(), &request.host),
            allowed,
            "{host}"
        );
    }
}

#[test]
fn a_loan_is_another_question_than_the_request() {
    let text = r#"
        permit(principal, action in Gateway::Action::"any", resource == Gateway::Host::"api.github.com");
        @id("lend") permit(principal, action == Gateway::Action::"lend", resource == Gateway::Credential::"github")
        when { context.origin in Gateway::Domain::"github.com" && context.place == "header:authorization:Bearer" };"#;
    let generation = policies(text).current();
    let request = owned();
    let github = CredentialName::new("github").unwrap();
    let lent = generation.lend(&request.facts(), &github, BEARER);
    assert_eq!(
        (lent.outcome, named(&lent)),
        (Outcome::Allowed, vec!["lend"])
    );
    assert!(
        !generation
            .lend(&request.facts(), &github, "query:token")
            .allowed()
    );
    assert!(
        !generation
            .lend(
                &request.facts(),
                &CredentialName::new("aws").unwrap(),
                BEARER
            )
            .allowed()
    );
    let elsewhere = OwnedFacts {
        host: "evil.example".parse().unwrap(),
        ..owned()
    };
    assert!(
        !generation
            .lend(&elsewhere.facts(), &github, BEARER)
            .allowed()
    );
}
