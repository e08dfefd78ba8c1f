//! Tests of judging: against Cedar with the whole set, against errors, and across reloads.

use std::time::{Duration, SystemTime};

use cedar_policy::{Entities, Entity, PolicySet};
use http::HeaderMap;
use proptest::prelude::*;

use super::*;
use crate::body::fact::{FactType, Location, Plain};
use crate::message::{Authority, EncodedSlash, Origin, RequestTarget, Scheme};
use crate::names::SessionId;
use crate::policy::content::{ContentFact, ContentFacts};
use crate::policy::fact::{FACTS, Scope};
use crate::policy::question::OwnedFacts;
use crate::policy::schema::{CREDENTIAL, DOMAIN, GROUP, HOST, SESSION, domains, schema, uid};

/// A `GET` of one repository.
pub(in crate::policy) fn owned() -> OwnedFacts {
    let session = SessionId::new("s1").unwrap();
    let host = "api.github.com".parse().unwrap();
    let mut request = OwnedFacts::new(session, Scheme::Https, host, target("/repos/o/r"));
    request.now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_790_000_000_123);
    request
}

/// `amount` and `model` of JSON, at every host of `b.example`, and of GitHub's API.
pub(in crate::policy) fn declared() -> Declared {
    let mut declared = Declared::default();
    for (name, kind) in [
        ("amount", FactType::Long),
        ("model", FactType::String),
        ("stream", FactType::Bool),
        ("tools", FactType::Strings),
    ] {
        let origins = [
            "https://api.github.com",
            "https://*.b.example",
            "https://b.example",
        ];
        let fact = ContentFact {
            name: name.parse().unwrap(),
            kind,
            origins: origins.map(|origin| origin.parse().unwrap()).into(),
            location: Location::Json(format!("/{name}").parse().unwrap()),
        };
        declared.add(fact).unwrap();
    }
    declared
}

/// A `POST` of JSON content.
fn post(content: &str) -> OwnedFacts {
    let mut request = owned();
    request.method = "POST".into();
    request.content_length = Some(content.len() as u64);
    request.content = Some(read(&request, content));
    request
}

fn read(request: &OwnedFacts, content: &str) -> ContentFacts {
    let json = http::HeaderValue::from_static("application/json");
    let fields = HeaderMap::from_iter([(http::header::CONTENT_TYPE, json)]);
    let origin = Origin {
        scheme: request.scheme,
        authority: Authority {
            host: request.host.clone(),
            port: request.port,
        },
    };
    let content = Plain {
        bytes: content.to_owned().into(),
        ..Plain::default()
    };
    declared().read(&origin, &fields, "", &content)
}

/// The place of a bearer token.
pub(in crate::policy) const BEARER: &str = "header:authorization:Bearer";

fn target(text: &str) -> RequestTarget {
    RequestTarget::parse(text.as_bytes(), EncodedSlash::Refuse).unwrap()
}

pub(in crate::policy) fn policies(text: &str) -> Policies {
    Policies::load(&[Source::new("test.cedar", text)], declared())
        .unwrap_or_else(|problems| panic!("{problems}"))
}

fn outcome(text: &str, request: &OwnedFacts) -> Outcome {
    policies(text).current().ask(&request.facts()).outcome
}

fn named(verdict: &Verdict) -> Vec<&str> {
    verdict.policies.iter().map(PolicyId::as_str).collect()
}

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
    // Asked before for the same request by itself: that answer is not for the batch.
    let alone = Facts {
        batch: false,
        ..batch.facts()
    };
    let narrow = Outcome::Unjudged(Fault::Batch);
    let host = r#"resource == Gateway::Host::"api.github.com""#;
    let whole = format!(
        "permit(principal, action in Gateway::Action::\"ask\", {host}) when {{ context.port == 443 }};"
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
        Outcome::Unjudged(Fault::TooManySegments)
    );
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
                .may_resolve(&request.session, &[], &request.host),
            allowed,
            "{host}"
        );
    }
}

#[test]
fn a_loan_is_another_question_than_the_request() {
    let text = r#"
        permit(principal, action in Gateway::Action::"ask", resource == Gateway::Host::"api.github.com");
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

#[test]
fn a_failed_reload_keeps_the_generation() {
    let policies = policies("permit(principal, action, resource);");
    let request = owned();
    for bad in [
        "permit(principal, action, resource)",
        "forbid(principal, action, resource) when { context.nothing };",
    ] {
        assert!(
            policies
                .replace(&[Source::new("good", ""), Source::new("bad", bad)])
                .is_err()
        );
        assert_eq!(policies.current().number(), 1);
        assert!(policies.current().ask(&request.facts()).allowed());
    }
    let next = policies.replace(&[]).unwrap();
    assert_eq!(next.number(), 2);
    let verdict = policies.current().ask(&request.facts());
    assert_eq!(
        (verdict.outcome, verdict.generation),
        (Outcome::Unpermitted, 2)
    );
}

#[test]
fn a_thousand_reloads_never_mix_two_sets() {
    // Each set names its own policy by its generation's number, so a verdict of a mixture would
    // show.
    let text = |n: u64| {
        format!("@id(\"g{n}\") permit(principal, action, resource) when {{ context.port == 443 }};")
    };
    let policies = Arc::new(policies(&text(1)));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (policies, stop) = (Arc::clone(&policies), Arc::clone(&stop));
            std::thread::spawn(move || {
                let (request, mut judged) = (owned(), 0_u64);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) || judged == 0 {
                    let verdict = policies.current().ask(&request.facts());
                    assert_eq!(named(&verdict), [format!("g{}", verdict.generation)]);
                    judged += 1;
                }
            })
        })
        .collect();
    for number in 2..=1000 {
        assert_eq!(
            policies
                .replace(&[Source::new("f", text(number))])
                .unwrap()
                .number(),
            number
        );
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    readers
        .into_iter()
        .for_each(|reader| reader.join().unwrap());
}

#[test]
fn the_reachable_hosts_are_a_closed_list_or_none() {
    let closed = r#"
        permit(principal, action, resource == Gateway::Host::"a.example.com");
        permit(principal, action == Gateway::Action::"GET", resource in Gateway::Domain::"b.example");
        permit(principal, action == Gateway::Action::"lend", resource);
        forbid(principal, action, resource);"#;
    let scopes = policies(closed).current().hosts().unwrap();
    assert_eq!(
        scopes,
        [
            HostScope::Host("a.example.com".into()),
            HostScope::Domain("b.example".into())
        ]
    );
    assert_eq!(
        policies("permit(principal, action, resource);")
            .current()
            .hosts(),
        None
    );
}

#[test]
fn an_unconditional_forbid_takes_a_name_back() {
    let text = r#"
        permit(principal in Gateway::Group::"ci", action, resource in Gateway::Domain::"b.example");
        forbid(principal, action, resource == Gateway::Host::"x.b.example");
        forbid(principal, action, resource) when { context.port == 22 };"#;
    let generation = policies(text).current();
    let ci = [Arc::from("ci")];
    let session = SessionId::new("s").unwrap();
    assert!(generation.may_resolve(&session, &ci, &"a.b.example".parse().unwrap()));
    assert!(!generation.may_resolve(&session, &[], &"a.b.example".parse().unwrap()));
    assert!(!generation.may_resolve(&session, &ci, &"x.b.example".parse().unwrap()));
}

#[test]
fn a_change_of_groups_is_another_slice() {
    let generation = policies(
        r#"permit(principal in Gateway::Group::"ci", action, resource) when { context.secure };"#,
    )
    .current();
    let inside = OwnedFacts {
        groups: vec!["ci".into(), "ci".into()],
        ..owned()
    };
    for _ in 0..2 {
        assert!(generation.ask(&inside.facts()).allowed());
        assert!(!generation.ask(&owned().facts()).allowed());
    }
}

// ── Against Cedar with the whole set ──

fn scopes() -> impl Strategy<Value = String> {
    let who = prop_oneof![
        Just("principal"),
        Just("principal is Gateway::Session"),
        Just(r#"principal == Gateway::Session::"s1""#),
        Just(r#"principal in Gateway::Session::"s2""#),
        Just(r#"principal in Gateway::Group::"g1""#),
        Just(r#"principal is Gateway::Session in Gateway::Group::"g2""#),
    ];
    let ask = (
        prop_oneof![
            Just(r#"action == Gateway::Action::"GET""#),
            Just(r#"action == Gateway::Action::"other""#),
            Just(r#"action in Gateway::Action::"read""#),
            Just(r#"action in Gateway::Action::"write""#),
            Just(r#"action in [Gateway::Action::"ask"]"#),
            Just(r#"action in [Gateway::Action::"POST", Gateway::Action::"read"]"#),
        ],
        prop_oneof![
            Just("resource"),
            Just("resource is Gateway::Host"),
            Just(r#"resource == Gateway::Host::"a.b.example""#),
            Just(r#"resource in Gateway::Host::"b.example""#),
            Just(r#"resource in Gateway::Domain::"b.example""#),
            Just(r#"resource is Gateway::Host in Gateway::Domain::"a.b.example""#),
        ],
        prop_oneof![
            Just(""),
            Just(r#"when { context.host == "a.b.example" }"#),
            Just(r#"when { resource in Gateway::Domain::"b.example" && context.port > 100 }"#),
            Just(
                r#"when { action == Gateway::Action::"GET" || action in Gateway::Action::"write" }"#
            ),
        ],
    );
    let lend = (
        Just(r#"action == Gateway::Action::"lend""#),
        prop_oneof![
            Just("resource"),
            Just("resource is Gateway::Credential"),
            Just(r#"resource == Gateway::Credential::"c1""#),
            Just(r#"resource in Gateway::Credential::"c2""#),
        ],
        prop_oneof![
            Just(""),
            Just(r#"when { context.origin in Gateway::Domain::"b.example" }"#),
            Just(
                r#"when { context.origin == Gateway::Host::"b.example" && context.place == "basic:user" }"#
            ),
            Just(r#"unless { context.credential == "c1" }"#),
        ],
    );
    let both = (
        Just("action"),
        prop_oneof![
            Just("resource"),
            Just(r#"resource in Gateway::Domain::"b.example""#),
            Just(r#"resource == Gateway::Credential::"c1""#)
        ],
        Just(""),
    );
    let common = prop_oneof![
        3 => Just(""),
        1 => Just(r#"when { context.session like "s*" }"#),
        1 => Just(r#"when { context.groups.contains("g1") }"#),
        1 => Just(r#"when { context.prefixes.contains("/a") && context.depth < 3 }"#),
        1 => Just(r#"unless { context.segments.contains("1:b") }"#),
        1 => Just(r#"when { context.query.any.contains("x=1") }"#),
        1 => Just(r#"when { context.query.unique.contains("x=1") && ["x"].containsAll(context.query.names) }"#),
        1 => Just(r#"when { context.fields.unique.contains("accept: b") || context.fields.names.isEmpty() }"#),
        1 => Just(r#"unless { context.fields.any.contains("accept: b") }"#),
        1 => Just(r#"when { context.contentType == "text/plain" || context.contentLength > 5 }"#),
        1 => Just(r#"when { context.now < datetime("2026-09-22") || context.upgrade == "websocket" }"#),
        1 => Just(r#"when { context.secure && context.scheme == "https" && context.entry == "exec" }"#),
        1 => Just(r#"when { context.credentials.contains("c1") && context.method != "PUT" && context.path != "/" }"#),
        1 => Just(r#"when { ["s3:PutObject"].containsAll(context.actions) && !context.actions.isEmpty() }"#),
        // These two err on requests with content.
        1 => Just(r#"when { context.contentLength + 9223372036854775807 > 0 }"#),
        1 => Just(r#"when { principal in Gateway::Group::"g1" || context.contentLength * 9223372036854775807 < 9 }"#),
        1 => Just(r#"when { context has port && context.query == context.query }"#),
    ];
    let shape = prop_oneof![4 => ask, 2 => lend, 1 => both];
    (any::<bool>(), who, shape, common).prop_map(
        |(permits, who, (action, resource, own), common)| {
            let effect = if permits { "permit" } else { "forbid" };
            format!("{effect}({who}, {action}, {resource}) {own} {common};")
        },
    )
}

fn requests() -> impl Strategy<Value = (OwnedFacts, Option<&'static str>)> {
    let few = |all: &'static [&'static str]| proptest::sample::select(all);
    let lists = |all: &'static [&'static str]| proptest::sample::subsequence(all, 0..=all.len());
    (
        (few(&["s1", "s2", "s3"]), lists(&["g1", "g2"])),
        few(&[
            "a.b.example",
            "b.example",
            "x.a.b.example",
            "c.example",
            "10.0.0.1",
        ]),
        few(&["GET", "HEAD", "POST", "DELETE", "get", "BREW"]),
        few(&["/", "/a", "/a/b/c", "/ab", "/a//b/"]),
        few(&["", "?x=1", "?x=1&x=2", "?x=2;x=1", "?y", "?"]),
        lists(&["a", "b", "a, b"]),
        (
            proptest::option::of(few_u64()),
            few(&["", "websocket"]),
            proptest::sample::select(vec![Scheme::Https, Scheme::Http]),
        ),
        (
            lists(&["c1", "c2"]),
            proptest::option::of(few(&["c1", "c2"])),
            lists(&["s3:PutObject", "s3:PutObjectAcl"]),
        ),
    )
        .prop_map(
            |((session, groups), host, method, path, query, accept, rest, credentials)| {
                let (content_length, upgrade, scheme) = rest;
                let mut fields = HeaderMap::new();
                for value in accept {
                    fields.append("accept", value.parse().unwrap());
                }
                let request = OwnedFacts {
                    session: SessionId::new(session).unwrap(),
                    groups: groups.into_iter().map(Arc::from).collect(),
                    scheme,
                    host: host.parse().unwrap(),
                    port: 443,
                    method: method.into(),
                    target: target(&format!("{path}{query}")),
                    fields,
                    content_length,
                    upgrade: upgrade.into(),
                    credentials: credentials
                        .0
                        .into_iter()
                        .map(|name| CredentialName::new(name).unwrap())
                        .collect(),
                    actions: credentials.2.into_iter().map(str::to_owned).collect(),
                    ..owned()
                };
                (request, credentials.1)
            },
        )
}

fn few_u64() -> impl Strategy<Value = u64> {
    proptest::sample::select(vec![0, 1, 7, u64::MAX])
}

/// Cedar's own answer to policies as they are written, over the whole set, with the full context,
/// everything checked against the schema but facts of the content that were left out.
fn whole(text: &str, facts: &Facts<'_>, loan: Option<Loan<'_>>) -> (Outcome, Vec<String>) {
    let set: PolicySet = text.parse().unwrap();
    let named = set.policies().map(|policy| {
        let id = policy.annotation("id").unwrap().to_owned();
        policy.new_id(cedar_policy::PolicyId::new(id))
    });
    let set = PolicySet::from_policies(named).unwrap();
    let schema = schema(&declared());
    let principal = uid(&SESSION, facts.session.as_str());
    let host = uid(&HOST, facts.host.as_str());
    let credential = loan.map(|loan| uid(&CREDENTIAL, loan.credential.as_str()));
    let groups = facts.groups.iter().map(|group| uid(&GROUP, group));
    let domains: Vec<_> = domains(facts.host)
        .map(|domain| uid(&DOMAIN, domain))
        .collect();
    let mut entities = vec![
        Entity::new_no_attrs(principal.clone(), groups.clone().collect()),
        Entity::new_no_attrs(host.clone(), domains.iter().cloned().collect()),
    ];
    entities.extend(groups.map(Entity::with_uid));
    entities.extend(domains.into_iter().map(Entity::with_uid));
    entities.extend(credential.iter().cloned().map(Entity::with_uid));
    let entities = Entities::from_entities(entities, Some(&schema)).unwrap();
    let question = Question::new(facts, loan);
    let action = question.action().uid().clone();
    let all = FACTS
        .iter()
        .filter(|row| loan.is_some() || row.scope != Scope::Loan);
    let reader = Reader::new(facts, loan.map(|loan| (loan, &host)));
    let full =
        |reader: &Reader<'_>| context(&all.clone().map(|row| row.fact).collect(), reader).unwrap();
    let request = |context, schema| {
        let resource = credential.clone().unwrap_or(host.clone());
        Request::new(principal.clone(), action.clone(), resource, context, schema).unwrap()
    };
    // With every fact of the content it is one of the schema.
    let everything = read_all();
    let checked = Facts {
        content: Some(&everything),
        ..*facts
    };
    let _ = request(
        full(&Reader::new(&checked, loan.map(|loan| (loan, &host)))),
        Some(&schema),
    );
    let response = Authorizer::new().is_authorized(&request(full(&reader), None), &set, &entities);
    let errors: Vec<String> = response
        .diagnostics()
        .errors()
        .map(|AuthorizationError::PolicyEvaluationError(error)| error.policy_id().to_string())
        .collect();
    let reasons: Vec<String> = response
        .diagnostics()
        .reason()
        .map(ToString::to_string)
        .collect();
    let (outcome, mut names) = match (response.decision(), errors.is_empty()) {
        (_, false) => (Outcome::PolicyError, errors),
        (Decision::Allow, true) => (Outcome::Allowed, reasons),
        (Decision::Deny, true) if reasons.is_empty() => (Outcome::Unpermitted, reasons),
        (Decision::Deny, true) => (Outcome::Forbidden, reasons),
    };
    names.sort();
    (outcome, names)
}

fn read_all() -> ContentFacts {
    read(
        &owned(),
        r#"{"amount":1,"model":"a","stream":true,"tools":[]}"#,
    )
}

fn sorted(verdict: &Verdict) -> Vec<String> {
    let mut names: Vec<_> = verdict.policies.iter().map(ToString::to_string).collect();
    names.sort();
    names
}

/// A request without its content, as it is judged first.
fn unread(request: &OwnedFacts) -> OwnedFacts {
    OwnedFacts {
        content: None,
        ..request.clone()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_slice_with_few_facts_judges_like_the_whole_set_with_all(
        texts in proptest::collection::vec(scopes(), 0..12),
        requests in proptest::collection::vec(requests(), 1..12),
    ) {
        let text = numbered(&texts);
        let policies = policies(&text);
        let generation = policies.current();
        for (request, credential) in requests.iter().chain(&requests) {
            let facts = request.facts();
            let name = credential.map(|name| CredentialName::new(name).unwrap());
            let loan = name.as_ref().map(|credential| Loan { credential, place: "basic:user" });
            let verdict = generation.judge(&facts, loan);
            prop_assert_eq!((verdict.outcome, sorted(&verdict)), whole(&text, &facts, loan), "{}\n{:?}", text, request);
            if generation.ask(&facts).allowed() {
                prop_assert!(generation.may_resolve(&request.session, &request.groups, &request.host));
            }
        }
    }

    #[test]
    fn the_head_and_then_the_content_judge_like_cedar_over_both(
        texts in proptest::collection::vec(content_scopes(), 1..8),
        requests in proptest::collection::vec((requests(), contents()), 1..8),
    ) {
        let text = numbered(&texts);
        let policies = policies(&text);
        let generation = policies.current();
        for ((mut request, credential), content) in requests {
            request.content = Some(read(&request, &content));
            let name = credential.map(|name| CredentialName::new(name).unwrap());
            let loan = name.as_ref().map(|credential| Loan { credential, place: "basic:user" });
            let cedar = whole(&text, &request.facts(), loan);
            let full = generation.judge(&request.facts(), loan);
            prop_assert_eq!((full.outcome, sorted(&full)), cedar, "{}\n{:?}", text, request);
            // What the head decides, the content does not change; an earlier `no` may name fewer.
            let head = unread(&request);
            let head = generation.judge(&head.facts(), loan);
            match head.outcome {
                Outcome::Unjudged(Fault::ContentUnread) => {}
                Outcome::Allowed | Outcome::Unpermitted => prop_assert_eq!(head, full),
                _ => prop_assert!(!full.allowed()),
            }
        }
    }

    #[test]
    fn a_fact_that_is_left_out_never_adds_a_permission(
        texts in proptest::collection::vec(content_scopes(), 1..8),
        requests in proptest::collection::vec((requests(), contents(), contents()), 1..8),
    ) {
        let generation = policies(&numbered(&texts)).current();
        for ((mut request, _), content, _) in requests {
            let full = read_all();
            request.content = Some(full);
            let with_all = generation.ask(&request.facts());
            request.content = Some(ContentFacts::default());
            let with_none = generation.ask(&request.facts());
            // Allowed without any fact is allowed whatever they say.
            if with_none.allowed() {
                prop_assert_eq!(&with_none, &with_all);
                request.content = Some(read(&request, &content));
                prop_assert_eq!(&with_none, &generation.ask(&request.facts()));
            }
        }
    }
}

/// Policies with the ids `p0`, `p1`, ….
fn numbered(texts: &[String]) -> String {
    let numbered = texts.iter().enumerate();
    numbered
        .map(|(nth, text)| format!("@id(\"p{nth}\") {text}\n"))
        .collect()
}

/// Policies of which some read content, behind conditions on the head.
fn content_scopes() -> impl Strategy<Value = String> {
    let content = prop_oneof![
        Just("context.content.amount <= 5000"),
        Just("context.content.model == \"a\" || context.content.amount > 5"),
        Just("!(context.content.stream && context.content.model like \"b*\")"),
        Just("context.content.tools.contains(\"x\")"),
        Just("context.content.amount + 9223372036854775807 > 0"),
        Just("if context.secure then context.content.stream else true"),
        Just("context.port == 1 || context.content.amount > 1"),
    ];
    let read = (scopes(), content).prop_map(|(scope, content)| {
        let scope = scope.trim_end_matches(';').trim_end();
        format!("{scope} when {{ {content} }};")
    });
    prop_oneof![2 => read, 1 => scopes()]
}

fn contents() -> impl Strategy<Value = String> {
    let amount = prop_oneof![
        Just(""),
        Just("\"amount\":1,"),
        Just("\"amount\":6000,"),
        Just("\"amount\":\"1\","),
        Just("\"amount\":1,\"amount\":1,")
    ];
    let model = prop_oneof![
        Just("\"model\":\"a\","),
        Just("\"model\":\"b2\","),
        Just("")
    ];
    let stream = prop_oneof![
        Just("\"stream\":true,"),
        Just("\"stream\":false,"),
        Just("")
    ];
    let tools = prop_oneof![
        Just("\"tools\":[\"x\"]"),
        Just("\"tools\":[1]"),
        Just("\"z\":0")
    ];
    (amount, model, stream, tools).prop_map(|(a, m, s, t)| format!("{{{a}{m}{s}{t}}}"))
}

fn content_outcome(text: &str, content: &str) -> Outcome {
    let post = post(content);
    let outcome = policies(text).current().ask(&post.facts()).outcome;
    // The head alone says that the content is needed.
    let head = policies(text).current().ask(&unread(&post).facts()).outcome;
    assert_eq!(head, Outcome::Unjudged(Fault::ContentUnread));
    outcome
}

#[test]
fn a_fact_that_does_not_read_in_one_way_denies() {
    let permit = "permit(principal, action, resource) when { context.content.amount <= 5000 };";
    let forbid = "permit(principal, action, resource);
        forbid(principal, action, resource) when { context.content.amount > 5000 };";
    for text in [permit, forbid] {
        assert_eq!(
            content_outcome(text, r#"{"amount":5000}"#),
            Outcome::Allowed
        );
        assert!(!matches!(
            content_outcome(text, r#"{"amount":5001}"#),
            Outcome::Allowed
        ));
        for content in [
            "",
            "{}",
            "[]",
            r#"{"amount":"1"}"#,
            r#"{"amount":1,"amount":1}"#,
            r#"{"amount":1.0}"#,
            r#"{"amount":99999999999999999999}"#,
            r#"{"amount":1}{}"#,
            "\u{feff}{\"amount\":1}",
            r#"{"Amount":1}"#,
            r#"{"amount":null}"#,
        ] {
            assert_eq!(
                content_outcome(text, content),
                Outcome::PolicyError,
                "{content}"
            );
        }
    }
}

#[test]
fn what_the_head_rules_out_is_judged_without_content() {
    let text = r#"
        permit(principal, action, resource) when { context.secure };
        @id("big") forbid(principal, action == Gateway::Action::"POST", resource)
        when { context.content.amount > 5000 && context.path == "/v1/refunds" };"#;
    let generation = policies(text).current();
    let mut request = unread(&post("{}"));
    assert_eq!(generation.ask(&request.facts()).outcome, Outcome::Allowed);
    request.target = target("/v1/refunds");
    let verdict = generation.ask(&request.facts());
    assert_eq!(verdict.outcome, Outcome::Unjudged(Fault::ContentUnread));
    assert_eq!(named(&verdict), ["big"]);
    request.method = "GET".into();
    assert_eq!(generation.ask(&request.facts()).outcome, Outcome::Allowed);
    let forbidden = format!(
        "{text} @id(\"no\") forbid(principal, action, resource) when {{ context.path == \"/v1/refunds\" }};"
    );
    request.method = "POST".into();
    let verdict = policies(&forbidden).current().ask(&request.facts());
    assert_eq!(
        (verdict.outcome, named(&verdict)),
        (Outcome::Forbidden, vec!["no"])
    );
}
