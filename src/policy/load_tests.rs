//! Tests of loading: what is refused, what is warned about, and how policies are named.

use super::*;
use crate::generation::tests::declared;

fn problems(text: &str) -> Vec<Problem> {
    match load(&[Source::new("f.cedar", text)], &declared()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0,
    }
}

fn lints(text: &str) -> Vec<String> {
    let (_, lints) = load(&[Source::new("f.cedar", text)], &declared())
        .unwrap_or_else(|problems| panic!("{text}\n{problems}"));
    let warnings = lints.into_iter().filter(|lint| !lint.is_note);
    warnings.map(|lint| lint.at.reason).collect()
}

fn refused(text: &str, part: &str) {
    let found = problems(text);
    assert!(
        found.iter().any(|problem| problem.reason.contains(part)),
        "{text}\n{found:#?}"
    );
}

/// A permit of one host with a condition.
fn permit(condition: &str) -> String {
    format!(
        r#"permit(principal, action == Gateway::Action::"GET", resource == Gateway::Host::"a.b.example") when {{ {condition} }};"#
    )
}

/// A forbid with a condition.
fn forbid(condition: &str) -> String {
    format!(
        r#"forbid(principal, action in Gateway::Action::"any", resource) when {{ {condition} }};"#
    )
}

#[test]
fn all_problems_are_reported_at_once_with_their_places() {
    let sources = [
        Source::new(
            "a.cedar",
            "permit(principal, action, resource) when { context.nothing };",
        ),
        Source::new("b.cedar", "\n  permit(principal action, resource);"),
        Source::new(
            "c.cedar",
            "forbid(principal, action, resource)\nwhen { context.port == \"x\" };",
        ),
    ];
    let found = load(&sources, &declared()).unwrap_err().0;
    let places: Vec<_> = found
        .iter()
        .map(|one| (one.file.as_str(), one.line))
        .collect();
    assert!(places.contains(&("a.cedar", 1)), "{found:#?}");
    assert!(places.contains(&("b.cedar", 2)), "{found:#?}");
    assert!(places.contains(&("c.cedar", 2)), "{found:#?}");
}

#[test]
fn the_former_name_of_any_request_is_refused_with_the_new_one() {
    let text = forbid("true").replace("\"any\"", "\"ask\"");
    let found = problems(&text);
    let told = "any request is `Gateway::Action::\"any\"`";
    let mut helps = found.iter().filter_map(|one| one.help.as_deref());
    assert!(helps.any(|help| help == told), "{found:#?}");
}

#[test]
fn a_policy_is_named_by_its_id_or_by_its_place() {
    let text = "permit(principal, action, resource);\n@id(\"x/y\")\nforbid(principal, action, resource);\n\n\
        forbid(principal, action, resource); forbid(principal, action, resource);";
    let (rules, _) = load(&[Source::new("dir/f g.cedar", text)], &declared()).unwrap();
    let ids: Vec<_> = rules.iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "dir/f_g.cedar:1",
            "x/y",
            "dir/f_g.cedar:5",
            "dir/f_g.cedar:5:38"
        ]
    );
}

#[test]
fn two_policies_of_one_id_are_refused_across_files() {
    let text = "@id(\"x\") permit(principal, action, resource);";
    let found = load(
        &[Source::new("a", text), Source::new("b", text)],
        &declared(),
    )
    .unwrap_err()
    .0;
    assert_eq!((found.len(), found[0].file.as_str()), (1, "b"));
    assert!(
        found[0].reason.contains("already the one of a:1"),
        "{}",
        found[0].reason
    );
}

#[test]
fn an_id_that_is_no_name_is_refused() {
    refused(
        "@id(\"a b\") permit(principal, action, resource);",
        "`@id(\"a b\")`",
    );
    refused("@id permit(principal, action, resource);", "@id");
}

#[test]
fn templates_are_refused() {
    refused(
        "permit(principal == ?principal, action, resource);",
        "templates",
    );
}

#[test]
fn a_forbid_that_can_never_apply_is_refused_and_such_a_permit_warned_about() {
    let scope =
        r#"(principal, action == Gateway::Action::"GET", resource == Gateway::Credential::"c");"#;
    assert!(!problems(&format!("forbid{scope}")).is_empty());
    let impossible = r#"(principal, action == Gateway::Action::"GET", resource == Gateway::Host::"a.b")
        when { context.port == 1 && false };"#;
    assert!(!problems(&format!("forbid{impossible}")).is_empty());
    assert!(!lints(&format!("permit{impossible}")).is_empty());
}

#[test]
fn a_permit_of_a_top_level_domain_is_refused() {
    let whole = "that anyone can register";
    for scope in [
        r#"resource in Gateway::Domain::"com""#,
        r#"resource is Gateway::Host in Gateway::Domain::"com""#,
    ] {
        refused(&format!("permit(principal, action, {scope});"), whole);
        assert_eq!(
            problems(&format!("forbid(principal, action, {scope});")),
            []
        );
    }
    refused(&permit(r#"resource in Gateway::Domain::"com""#), whole);
    refused(&permit(r#"context.host like "api.*""#), whole);
    refused(&permit(r#"context.host like "*""#), whole);
    refused(
        r#"permit(principal, action == Gateway::Action::"lend", resource == Gateway::Credential::"c")
        when { context.origin in Gateway::Domain::"com" };"#,
        whole,
    );
    assert_eq!(
        problems(&permit(r#"!(resource in Gateway::Domain::"com")"#)),
        []
    );
    assert_eq!(problems(&forbid(r#"context.host like "*.com""#)), []);
    assert_eq!(
        problems(&forbid(r#"!(resource in Gateway::Domain::"com")"#)),
        []
    );
}

#[test]
fn what_never_matches_is_refused() {
    for condition in [
        r#"context.host == "API.example""#,
        r#"resource == Gateway::Host::"https://a.b""#,
        r#"resource in Gateway::Domain::"*.b.example""#,
        r#"context.prefixes.contains("/admin/")"#,
        r#"context.prefixes.containsAny(["/ok", "admin"])"#,
        r#"context.segments.contains("admin")"#,
        r#"context.fields.any.contains("X-Role: admin")"#,
        r#"context.fields.any.contains("x-role:admin")"#,
        r#"["X-Role"].contains("X") || context.fields.names.contains("X-Role")"#,
        r#"context.query.any.contains("admin")"#,
        r#"context.contentType == "application/json; charset=utf-8""#,
        r#"context.upgrade == "WebSocket""#,
        r#"context.path == "admin""#,
        r#"context.host == "10.1""#,
    ] {
        refused(&forbid(condition), "never matches");
    }
}

#[test]
fn a_path_pattern_that_crosses_segments_is_warned_about() {
    let crossing =
        |pattern: &str| !lints(&permit(&format!("context.path like \"{pattern}\""))).is_empty();
    assert!(crossing("/repos/o/r*"));
    assert!(crossing("/repos/*/issues"));
    assert!(crossing("*"));
    assert!(!crossing("/repos/o/r/*"));
    assert!(!crossing("/repos/o/r"));
    assert_eq!(
        lints(&forbid(r#"context.path like "/admin*""#)),
        Vec::<String>::new()
    );
    assert_eq!(
        lints(&permit(r#"!(context.path like "/admin*")"#)),
        Vec::<String>::new()
    );
}

#[test]
fn a_host_pattern_without_a_dot_is_warned_about() {
    assert_eq!(
        lints(&permit(r#"context.host like "*github.com""#)).len(),
        1
    );
    assert!(lints(&permit(r#"context.host like "*.github.com""#)).is_empty());
}

#[test]
fn a_permit_that_a_client_can_satisfy_beside_a_bad_value_is_warned_about() {
    assert_eq!(
        lints(&permit(r#"context.query.any.contains("repo=ok")"#)).len(),
        1
    );
    assert_eq!(
        lints(&permit(r#"context.fields.any.contains("x-a: b")"#)).len(),
        1
    );
    assert!(lints(&permit(r#"context.query.unique.contains("repo=ok")"#)).is_empty());
    assert!(lints(&permit(r#"!context.query.any.contains("admin=1")"#)).is_empty());
    assert!(lints(&permit(r#"["page", "q"].containsAll(context.query.names)"#)).is_empty());
}

#[test]
fn a_forbid_that_a_client_can_escape_by_repeating_is_warned_about() {
    assert_eq!(
        lints(&forbid(r#"context.query.unique.contains("admin=1")"#)).len(),
        1
    );
    assert!(lints(&forbid(r#"context.query.any.contains("admin=1")"#)).is_empty());
    let unless = r#"permit(principal, action == Gateway::Action::"GET", resource == Gateway::Host::"a.b.example")
        unless { context.fields.unique.contains("x-a: b") };"#;
    assert_eq!(lints(unless).len(), 1);
}

#[test]
fn a_permit_without_a_resource_or_an_origin_is_warned_about() {
    assert_eq!(
        lints("permit(principal, action in Gateway::Action::\"read\", resource);").len(),
        1
    );
    assert_eq!(lints("permit(principal, action, resource);").len(), 3);
    let lend = r#"permit(principal, action == Gateway::Action::"lend", resource == Gateway::Credential::"c")"#;
    assert_eq!(lints(&format!("{lend};")).len(), 1);
    assert!(
        lints(&format!(
            "{lend} when {{ context.origin == Gateway::Host::\"a.b\" }};"
        ))
        .is_empty()
    );
    assert_eq!(
        lints(r#"permit(principal, action, resource in Gateway::Domain::"github.io");"#).len(),
        1
    );
}

#[test]
fn a_fact_that_nothing_reads_from_the_host_is_a_lint() {
    for (condition, section) in [
        (
            "context.graphql.fields.isEmpty()",
            "`[[read]]` reads `graphql.fields`",
        ),
        ("context.content.amount == 1", ""),
    ] {
        let told = lints(&permit(condition)).concat();
        assert_eq!(told.is_empty(), section.is_empty(), "{told}");
        assert!(told.contains(section), "{told}");
    }
    let elsewhere = permit("context.content.amount == 1").replace("a.b.example", "c.example");
    assert!(
        lints(&elsewhere)
            .concat()
            .contains("`[[fact]]` reads `amount`")
    );
}

#[test]
fn text_that_reads_otherwise_than_it_compares_is_refused() {
    assert!(!problems(&permit("context.path == \"/a\u{202e}b\"")).is_empty());
}

#[test]
fn an_unknown_attribute_is_told_once_a_place_with_the_actions_that_lack_it() {
    let text = "permit(principal, action, resource) when { context.nothere == 1 };\n\
                permit(principal, action in [Gateway::Action::\"GET\", Gateway::Action::\"PUT\"], \
                resource) when { context.nothere == 1 };\n";
    let problems = problems(text);
    let lines: Vec<usize> = problems.iter().map(|one| one.line).collect();
    assert_eq!(lines, [1, 2]);
    let all = &problems[0].reason;
    assert!(
        all.contains("::\"DELETE\", ") && all.contains("::\"lend\", "),
        "{all}"
    );
    let two = "context for Gateway::Action::\"GET\", Gateway::Action::\"PUT\" not found";
    assert!(problems[1].reason.contains(two), "{}", problems[1].reason);
}

#[test]
fn an_annotation_that_nothing_reads_is_refused_where_it_stands() {
    const RULE: &str = "permit(principal, action, resource);";
    assert_eq!(problems(&format!("@id(\"a\")\n{RULE}")), []);
    for annotation in ["@asq", "@limit(\"nope\")", "@ID(\"a\")", "@advice(\"x\")"] {
        let found = problems(&format!("{RULE}\n@id(\"b\")\n  {annotation}\n{RULE}"));
        let name = annotation.split('(').next().unwrap();
        let [problem] = &found[..] else {
            panic!("{annotation}: {found:#?}")
        };
        assert_eq!((problem.line, problem.column), (3, 3), "{problem:?}");
        assert!(problem.reason.contains(&format!("`{name}`")), "{problem:?}");
        assert!(
            problem.help.as_ref().unwrap().contains("@id"),
            "{problem:?}"
        );
    }
}
