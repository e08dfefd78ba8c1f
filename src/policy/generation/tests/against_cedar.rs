//! Compares judging with few rules and facts to Cedar with all rules and facts.

use gateway_body::fact::FactValue;
use gateway_intercept::Caller;
use gateway_names::User;
use gateway_session::Session;
use gateway_session::phantom::Phantoms;

use super::*;
use crate::applicable::{AskedFacts, KnownRules};
use crate::fact::CedarType;

pub(super) fn scopes() -> impl Strategy<Value = String> {
    let who = prop_oneof![
        Just("principal"),
        Just("principal is Gateway::Session"),
        Just(r#"principal == Gateway::Session::"s1""#),
        Just(r#"principal in Gateway::Session::"s2""#),
        Just(r#"principal in Gateway::Group::"g1""#),
        Just(r#"principal is Gateway::Session in Gateway::Group::"g2""#),
        Just(r#"principal in Gateway::User::"u1""#),
        Just(r#"principal is Gateway::Session in Gateway::User::"u2""#),
    ];
    let ask = (
        prop_oneof![
            Just(r#"action == Gateway::Action::"GET""#),
            Just(r#"action == Gateway::Action::"other""#),
            Just(r#"action in Gateway::Action::"read""#),
            Just(r#"action in Gateway::Action::"write""#),
            Just(r#"action in [Gateway::Action::"any"]"#),
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
    let sign = (
        prop_oneof![
            Just(r#"action == Gateway::Action::"commit.sign""#),
            Just(r#"action in [Gateway::Action::"commit.sign", Gateway::Action::"lend"]"#),
        ],
        prop_oneof![
            Just("resource"),
            Just("resource is Gateway::SigningKey"),
            Just(
                r#"resource == Gateway::SigningKey::"SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA""#
            ),
        ],
        Just(""),
    );
    let both = (
        Just("action"),
        prop_oneof![
            Just("resource"),
            Just(
                r#"resource == Gateway::SigningKey::"SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA""#
            ),
            Just(r#"resource in Gateway::Domain::"b.example""#),
            Just(r#"resource == Gateway::Credential::"c1""#)
        ],
        Just(""),
    );
    let common = prop_oneof![
        3 => Just(""),
        1 => Just(r#"when { context.session like "s*" }"#),
        1 => Just(r#"when { context.groups.contains("g1") }"#),
        1 => Just(r#"unless { principal in Gateway::User::"u1" }"#),
        1 => Just(r#"when { Gateway::User::"u1" in Gateway::Group::"g1" || principal in [Gateway::User::"u2", Gateway::User::"u1"] }"#),
        1 => Just(r#"when { context.prefixes.contains("/a") && context.depth < 3 }"#),
        1 => Just(r#"unless { context.segments.contains("1:b") }"#),
        1 => Just(r#"when { context.segments.containsAll(["0:a", "2:c"]) || context.path like "/a*" }"#),
        1 => Just(r#"unless { context.prefixes.containsAny(["/ab", "/a/b"]) || context.path == "/" }"#),
        1 => Just(r#"when { context.query.any.contains("x=1") }"#),
        1 => Just(r#"when { context.query.unique.contains("x=1") && ["x"].containsAll(context.query.names) }"#),
        1 => Just(r#"when { context.fields.unique.contains("accept: b") || context.fields.names.isEmpty() }"#),
        1 => Just(r#"unless { context.fields.any.contains("accept: b") }"#),
        1 => Just(r#"when { context.contentType == "text/plain" || context.contentLength > 5 }"#),
        1 => Just(r#"when { context.now < datetime("2026-09-22") || context.upgrade == "websocket" }"#),
        1 => Just(r#"when { context.secure && context.scheme == "https" && context.entry == "transparent" }"#),
        1 => Just(r#"when { context.credentials.contains("c1") && context.method != "PUT" && context.path != "/" }"#),
        1 => Just(r#"when { ["s3:PutObject"].containsAll(context.actions) && !context.actions.isEmpty() }"#),
        // These two fail to evaluate for requests with content.
        1 => Just(r#"when { context.contentLength + 9223372036854775807 > 0 }"#),
        1 => Just(r#"when { principal in Gateway::Group::"g1" || context.contentLength * 9223372036854775807 < 9 }"#),
        1 => Just(r#"when { context has port && context.query == context.query }"#),
    ];
    let shape = prop_oneof![4 => ask, 2 => lend, 2 => sign, 1 => both];
    (any::<bool>(), who, shape, common).prop_map(
        |(permits, who, (action, resource, own), common)| {
            let effect = if permits { "permit" } else { "forbid" };
            format!("{effect}({who}, {action}, {resource}) {own} {common};")
        },
    )
}

pub(super) fn requests() -> impl Strategy<Value = (OwnedFacts, Option<&'static str>)> {
    let few = |all: &'static [&'static str]| proptest::sample::select(all);
    let lists = |all: &'static [&'static str]| proptest::sample::subsequence(all, 0..=all.len());
    (
        (
            few(&["s1", "s2", "s3"]),
            proptest::option::of(few(&["u1", "u2"])),
            lists(&["g1", "g2"]),
        ),
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
            proptest::option::weighted(0.3, few(&["A", "B"])),
        ),
    )
        .prop_map(
            |((session, user, groups), host, method, path, query, accept, rest, credentials)| {
                let (content_length, upgrade, scheme) = rest;
                let mut fields = HeaderMap::new();
                for value in accept {
                    fields.append("accept", value.parse().unwrap());
                }
                let request = OwnedFacts {
                    session: SessionId::new(session).unwrap(),
                    user: user.and_then(User::new),
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
                    signs: credentials
                        .3
                        .filter(|_| credentials.1.is_none())
                        .map(|one| (format!("SHA256:{}", one.repeat(43)), "r".into())),
                    ..owned()
                };
                (request, credentials.1)
            },
        )
}

fn few_u64() -> impl Strategy<Value = u64> {
    proptest::sample::select(vec![0, 1, 7, u64::MAX])
}

/// Returns Cedar's own answer, from the policies as written: the whole set and the full context,
/// checked against the schema except for facts of content that were left out.
fn whole(text: &str, facts: &Facts<'_>, lend: Option<LendQuestion<'_>>) -> (Outcome, Vec<String>) {
    let verdict = whole_as_sent(text, facts, lend);
    let others = facts.target.other_readings();
    let others = others.iter().map(|target| Facts { target, ..*facts });
    let mut others = others.map(|facts| whole_as_sent(text, &facts, lend));
    match others.find(|other| other.0 != Outcome::Allowed) {
        _ if verdict.0 != Outcome::Allowed => verdict,
        None => verdict,
        Some((Outcome::Unpermitted, _)) => (Outcome::Unjudged(FactFault::PathReadings), Vec::new()),
        Some(other) => other,
    }
}

fn whole_as_sent(
    text: &str,
    facts: &Facts<'_>,
    lend: Option<LendQuestion<'_>>,
) -> (Outcome, Vec<String>) {
    let set: PolicySet = text.parse().unwrap();
    let named = set.policies().map(|policy| {
        let id = policy.annotation("id").unwrap().to_owned();
        policy.new_id(cedar_policy::PolicyId::new(id))
    });
    let set = PolicySet::from_policies(named).unwrap();
    let schema = schema(&declared());
    let principal = uid(&SESSION, facts.session.as_str());
    let host = uid(&HOST, facts.host.as_str());
    let credential = lend.map(|lend| uid(&CREDENTIAL, lend.credential.as_str()));
    let key = facts.signs.map(|signs| uid(&SIGNING_KEY, signs.key));
    let other = credential.or(key);
    let groups = facts.groups.iter().map(|group| uid(&GROUP, group));
    let user = facts.user.map(|user| uid(&USER, user.as_str()));
    let domains: Vec<_> = domains(facts.host)
        .map(|domain| uid(&DOMAIN, domain))
        .collect();
    let mut entities = vec![
        Entity::new_no_attrs(
            principal.clone(),
            groups.clone().chain(user.clone()).collect(),
        ),
        Entity::new_no_attrs(host.clone(), domains.iter().cloned().collect()),
    ];
    entities.extend(user.map(|user| Entity::new_no_attrs(user, groups.clone().collect())));
    entities.extend(groups.map(Entity::with_uid));
    entities.extend(domains.into_iter().map(Entity::with_uid));
    entities.extend(other.iter().cloned().map(Entity::with_uid));
    let entities = Entities::from_entities(entities, Some(&schema)).unwrap();
    let question = Question::new(facts, lend);
    let action = question.action().uid().clone();
    let all = FACTS.iter().filter(|row| match row.scope {
        Scope::Lend => lend.is_some(),
        Scope::Sign => facts.signs.is_some(),
        _ => true,
    });
    let reader = FactReader::new(facts, lend.map(|lend| (lend, &host)));
    let full = |reader: &FactReader<'_>| {
        context(&all.clone().map(|row| row.fact).collect(), reader).unwrap()
    };
    let request = |context, schema| {
        let resource = other.clone().unwrap_or(host.clone());
        Request::new(principal.clone(), action.clone(), resource, context, schema).unwrap()
    };
    // With every fact of the content, the context matches the schema.
    let everything = read_all();
    let checked = Facts {
        content: Some(&everything),
        ..*facts
    };
    let _ = request(
        full(&FactReader::new(&checked, lend.map(|lend| (lend, &host)))),
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
    let declared = r#"{"amount":1,"model":"a","stream":true,"tools":[]}"#;
    let mut all = read(&owned(), declared);
    for row in FACTS.iter().filter(|row| row.name.contains('.')) {
        all.say(
            row.name,
            match row.kind {
                CedarType::Strings => FactValue::Strings(vec!["a".into()]),
                CedarType::Long => FactValue::Long(1),
                _ => FactValue::String("a".into()),
            },
        );
    }
    all
}

fn sorted(verdict: &Verdict) -> Vec<String> {
    let mut names: Vec<_> = verdict.policies.iter().map(ToString::to_string).collect();
    names.sort();
    names
}

/// Generates rules that differ by their conditions alone: tests of facts, and expressions that fail
/// to evaluate for requests with content.
fn conditional() -> impl Strategy<Value = String> {
    let atoms = proptest::sample::select(vec![
        r#"context.prefixes.contains("/a")"#,
        r#"context.prefixes.contains("/a/b")"#,
        r#"context.prefixes.containsAny(["/ab", "/q"])"#,
        r#"context.prefixes.containsAll(["/a", "/a/b"])"#,
        r#"context.segments.contains("1:b")"#,
        r#"context.anySegments.containsAll(["0:a", "1:b"])"#,
        r#"context.segments.containsAny(["0:ab", "2:c"])"#,
        r#"context.path == "/ab""#,
        r#""/a/b/c" == context.path"#,
        r#"context.path != "/""#,
        r#"context.path like "/a*""#,
        r#"context.path like "*c""#,
        r#"context.path like "/a*b*""#,
        r#"context.path like "/ab""#,
        r#"["/a", "/"].contains(context.path)"#,
        r#"context.depth < 2"#,
        r#"context.query.any.contains("x=1")"#,
        r#"context.query.names.containsAny(["y", "z"])"#,
        r#"["x"].containsAll(context.query.names)"#,
        r#"context.fields.names.contains("accept")"#,
        r#"["accept: a"].containsAny(context.fields.unique)"#,
        r#"context.method == "GET""#,
        r#"["GET", "BREW"].contains(context.method)"#,
        r#"context.host == "b.example""#,
        r#"context.contentLength > 5"#,
        r#"context.contentLength + 9223372036854775807 > 0"#,
        r#"context.credentials.contains("c1")"#,
        r#"principal in Gateway::Group::"g1""#,
    ]);
    let atoms = atoms.prop_map(str::to_owned);
    let conditions = atoms.prop_recursive(3, 6, 2, |inner| {
        let two = || (inner.clone(), inner.clone());
        prop_oneof![
            3 => two().prop_map(|(one, other)| format!("({one} && {other})")),
            2 => two().prop_map(|(one, other)| format!("({one} || {other})")),
            1 => inner.clone().prop_map(|one| format!("!({one})")),
            1 => two().prop_map(|(one, other)| format!("(if {one} then {other} else false)")),
        ]
    });
    let kinds = proptest::sample::select(vec![
        "permit(principal, action in Gateway::Action::\"any\", resource) when",
        "permit(principal, action in Gateway::Action::\"any\", resource) when",
        "permit(principal, action in Gateway::Action::\"any\", resource) unless",
        "forbid(principal, action in Gateway::Action::\"any\", resource) when",
    ]);
    (kinds, conditions).prop_map(|(kind, condition)| format!("{kind} {{ {condition} }};"))
}

/// Returns how many cases to try: the number in the environment, or this one.
fn cases(usual: u32) -> ProptestConfig {
    let wanted = std::env::var("PROPTEST_CASES").ok();
    let wanted = wanted.and_then(|text| text.parse().ok());
    ProptestConfig::with_cases(wanted.unwrap_or(usual))
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn with_and_without_the_index_of_facts_the_verdict_is_the_same(
        texts in proptest::collection::vec(conditional(), 1..24),
        requests in proptest::collection::vec(requests(), 1..4),
    ) {
        let text = numbered(&texts);
        let policies = policies(&text);
        let generation = policies.current();
        for (request, _) in &requests {
            let facts = request.facts();
            let verdict = generation.ask(&facts);
            prop_assert_eq!((verdict.outcome, sorted(&verdict)), whole(&text, &facts, None), "{}\n{:?}", text, request);
            prop_assert_eq!(generation.ask(&facts), verdict);
        }
    }

    #[test]
    fn a_slice_with_few_facts_judges_like_the_whole_set_with_all(
        texts in proptest::collection::vec(scopes(), 0..12),
        requests in proptest::collection::vec(requests(), 1..12),
    ) {
        let text = numbered(&texts);
        let policies = policies(&text);
        let generation = policies.current();
        let known = KnownRules::default();
        for (request, credential) in requests.iter().chain(&requests) {
            let facts = request.facts();
            let name = credential.map(|name| CredentialName::new(name).unwrap());
            let lend = name.as_ref().map(|credential| LendQuestion { credential, place: "basic:user" });
            let verdict = generation.judge((&facts).into(), lend);
            prop_assert_eq!((verdict.outcome, sorted(&verdict)), whole(&text, &facts, lend), "{}\n{:?}", text, request);
            let session = Session::new(
                request.session.clone(),
                Vec::new(),
                Phantoms::none(),
                None,
            );
            let (user, groups) = (request.user.clone(), request.groups.clone());
            let caller = Arc::new(Caller {
                user,
                groups,
                ..Caller::default()
            });
            // Twice, so that each set is looked up and then known.
            for method in METHODS.into_iter().chain(METHODS) {
                let rules = known.of(generation.number(), (&session, Some(&caller)), &request.host);
                let facts = Facts { method, ..facts };
                let by_route = generation.judge(AskedFacts { facts: &facts, rules: Some(&rules) }, lend);
                let verdict = generation.judge((&facts).into(), lend);
                prop_assert_eq!((by_route.outcome, sorted(&by_route)), (verdict.outcome, sorted(&verdict)));
            }
            if facts.signs.is_none() && generation.ask(&facts).allowed() {
                prop_assert!(generation.may_resolve(facts.principal(), &request.host));
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
            let lend = name.as_ref().map(|credential| LendQuestion { credential, place: "basic:user" });
            let cedar = whole(&text, &request.facts(), lend);
            let full = generation.judge((&request.facts()).into(), lend);
            prop_assert_eq!((full.outcome, sorted(&full)), cedar, "{}\n{:?}", text, request);
            // Content does not change what the head decides. An earlier `no` may name fewer
            // policies.
            let head = unread(&request);
            let head = generation.judge((&head.facts()).into(), lend);
            match head.outcome {
                Outcome::Unjudged(FactFault::ContentUnread) => {}
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
            // A request that is allowed without any fact is allowed whatever the facts are.
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

/// Generates policies, some of which read content behind conditions on the head.
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
