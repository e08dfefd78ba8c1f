//! What does it cost to judge one request, with 1 to 10,000 policies loaded?
//!
//! To compare with: Cedar's authorizer over the whole set takes 3.1 µs with 1 policy, 678 µs with
//! 1,000 and 7.7 ms with 10,000 (docs/policy.md). `hit` judges a request for a host that was asked
//! before, `miss` one for a host never seen, `constant` one whose rules have no condition,
//! `context` one whose rules read path, query and fields, `prefixes` one of whose host's rules each
//! is for a prefix of the path, and `hundred` one to whose host a hundred conditions apply.

use std::hint::black_box;
use std::time::SystemTime;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gateway::message::{EncodedSlash, Host, RequestTarget, Scheme};
use gateway::names::{CredentialName, SessionId};
use gateway::policy::{Declared, OwnedFacts, Policies, Source};

/// One session and one host a policy, as a fleet has; and one policy for a domain.
fn load(count: usize, condition: &str) -> Policies {
    let mut text = String::new();
    for nth in 1..count {
        text.push_str(&format!(
            "permit(principal == Gateway::Session::\"s{nth}\", action in Gateway::Action::\"read\", \
             resource == Gateway::Host::\"h{nth}.example.com\") {condition};\n"
        ));
    }
    text.push_str(&format!(
        "permit(principal in Gateway::Group::\"ci\", action in Gateway::Action::\"read\", \
         resource in Gateway::Domain::\"github.com\") {condition};\n"
    ));
    Policies::load(&[Source::new("bench.cedar", text)], Declared::default()).unwrap()
}

fn asked() -> OwnedFacts {
    let target = b"/repos/octo/hello/issues?page=2&per_page=100";
    let mut asked = OwnedFacts::new(
        SessionId::new("s0").unwrap(),
        Scheme::Https,
        "api.github.com".parse().unwrap(),
        RequestTarget::parse(target, EncodedSlash::Refuse).unwrap(),
    );
    asked.groups = vec!["ci".into()];
    asked.now = SystemTime::UNIX_EPOCH;
    asked.content = None;
    asked.credentials = vec![CredentialName::new("github").unwrap()];
    for (name, value) in [
        ("accept", "application/json"),
        ("user-agent", "bench/1"),
        ("authorization", "Bearer ghp_phantom"),
    ] {
        asked.fields.insert(name, value.parse().unwrap());
    }
    asked
}

fn authorize(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("authorize");
    group
        .sample_size(40)
        .measurement_time(std::time::Duration::from_secs(2));
    group.warm_up_time(std::time::Duration::from_millis(500));
    let asked = asked();
    let known = asked.facts();
    let stranger: Host = "evil.example.org".parse().unwrap();
    let context = "when { context.port == 443 && context.prefixes.contains(\"/repos/octo/hello\") && \
        context.query.unique.contains(\"page=2\") && context.fields.names.contains(\"accept\") }";
    for (name, condition) in [
        ("constant", ""),
        (
            "condition",
            "when { context.port == 443 && context.path like \"/repos/*\" }",
        ),
        ("context", context),
    ] {
        for count in [1, 10, 100, 1_000, 10_000] {
            if name == "context" && count != 1_000 {
                continue;
            }
            let generation = load(count, condition).current();
            assert!(generation.ask(&known).allowed());
            group.bench_function(BenchmarkId::new(format!("{name}/hit"), count), |bench| {
                bench.iter(|| generation.ask(black_box(&known)));
            });
            let mut nth = 0_u64;
            group.bench_function(BenchmarkId::new(format!("{name}/miss"), count), |bench| {
                bench.iter(|| {
                    nth += 1;
                    let host = format!("h{nth}.github.com").parse().unwrap();
                    let mut facts = known;
                    facts.host = &host;
                    generation.ask(black_box(&facts))
                });
            });
        }
    }
    for count in [10, 1_000, 10_000] {
        let rule = |nth| {
            format!(
                "permit(principal, action, resource == Gateway::Host::\"api.github.com\") \
                 when {{ context.prefixes.contains(\"/repos/o{nth}\") }};\n"
            )
        };
        let text: String = (0..count).map(rule).collect();
        let by_entry = "permit(principal, action, resource) when { context.entry == \"no\" };";
        let sources = [Source::new("prefixes", text + by_entry)];
        let generation = Policies::load(&sources, Declared::default())
            .unwrap()
            .current();
        let mut asked = asked.clone();
        asked.target = RequestTarget::parse(b"/repos/o7/x", EncodedSlash::Refuse).unwrap();
        assert!(generation.ask(&asked.facts()).allowed());
        group.bench_function(BenchmarkId::new("prefixes/hit", count), |bench| {
            bench.iter(|| generation.ask(black_box(&asked.facts())));
        });
        let mut nth = 0_u64;
        group.bench_function(BenchmarkId::new("prefixes/miss", count), |bench| {
            bench.iter(|| {
                nth += 1;
                asked.entry = nth.to_string();
                generation.ask(black_box(&asked.facts()))
            });
        });
    }
    let hundred: String = (0..100)
        .map(|nth| {
            format!(
                "permit(principal, action, resource == Gateway::Host::\"api.github.com\") \
                 when {{ context.port == 443 && context.path like \"/repos/o{nth}/*\" }};\n"
            )
        })
        .collect();
    let hundred = Policies::load(&[Source::new("hundred", hundred)], Declared::default());
    let hundred = hundred.unwrap().current();
    group.bench_function("hundred", |bench| {
        bench.iter(|| hundred.ask(black_box(&known)));
    });
    let generation = load(10_000, "when { context.secure }").current();
    group.bench_function("unpermitted_host/10000", |bench| {
        bench.iter(|| {
            let mut facts = known;
            facts.host = &stranger;
            generation.ask(black_box(&facts))
        });
    });
    group.bench_function("may_resolve/10000", |bench| {
        bench.iter(|| generation.may_resolve(known.principal(), black_box(&stranger)));
    });
    group.finish();
}

criterion_group!(benches, authorize);
criterion_main!(benches);
