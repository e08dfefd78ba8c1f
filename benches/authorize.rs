//! What does it cost to judge one request, with 1 to 10,000 policies loaded?
//!
//! To compare with: Cedar's authorizer over the whole set takes 3.1 µs with 1 policy, 678 µs with
//! 1,000 and 7.7 ms with 10,000 (docs/policy.md). `hit` judges a request for a host that was asked
//! before, `miss` one for a host never seen, `constant` one whose rules have no condition,
//! `context` one whose rules read path, query and fields, and `hundred` one to whose host a hundred
//! conditions apply.

use std::hint::black_box;
use std::time::SystemTime;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gateway::message::{EncodedSlash, Host, RequestTarget, Scheme};
use gateway::names::{CredentialName, SessionId};
use gateway::policy::{Declared, Facts, Policies, Source};
use http::HeaderMap;

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

struct Asked {
    session: SessionId,
    groups: [std::sync::Arc<str>; 1],
    fields: HeaderMap,
    credentials: [CredentialName; 1],
    target: RequestTarget,
}

impl Asked {
    fn new() -> Self {
        let mut fields = HeaderMap::new();
        fields.insert("accept", "application/json".parse().unwrap());
        fields.insert("user-agent", "bench/1".parse().unwrap());
        fields.insert("authorization", "Bearer ghp_phantom".parse().unwrap());
        Self {
            session: SessionId::new("s0").unwrap(),
            groups: ["ci".into()],
            fields,
            credentials: [CredentialName::new("github").unwrap()],
            target: RequestTarget::parse(
                b"/repos/octo/hello/issues?page=2&per_page=100",
                EncodedSlash::Refuse,
            )
            .unwrap(),
        }
    }

    fn facts<'a>(&'a self, host: &'a Host) -> Facts<'a> {
        Facts {
            session: &self.session,
            groups: &self.groups,
            entry: "exec",
            now: SystemTime::UNIX_EPOCH,
            scheme: Scheme::Https,
            host,
            port: 443,
            method: "GET",
            target: &self.target,
            fields: &self.fields,
            content_length: Some(0),
            content: None,
            upgrade: "",
            credentials: &self.credentials,
            batch: false,
            actions: &[],
        }
    }
}

fn authorize(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("authorize");
    group
        .sample_size(40)
        .measurement_time(std::time::Duration::from_secs(2));
    group.warm_up_time(std::time::Duration::from_millis(500));
    let asked = Asked::new();
    let known: Host = "api.github.com".parse().unwrap();
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
            assert!(generation.ask(&asked.facts(&known)).allowed());
            group.bench_function(BenchmarkId::new(format!("{name}/hit"), count), |bench| {
                bench.iter(|| generation.ask(black_box(&asked.facts(&known))));
            });
            let mut nth = 0_u64;
            group.bench_function(BenchmarkId::new(format!("{name}/miss"), count), |bench| {
                bench.iter(|| {
                    nth += 1;
                    let host = format!("h{nth}.github.com").parse().unwrap();
                    generation.ask(black_box(&asked.facts(&host)))
                });
            });
        }
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
        bench.iter(|| hundred.ask(black_box(&asked.facts(&known))));
    });
    let generation = load(10_000, "when { context.secure }").current();
    group.bench_function("unpermitted_host/10000", |bench| {
        bench.iter(|| generation.ask(black_box(&asked.facts(&stranger))));
    });
    group.bench_function("may_resolve/10000", |bench| {
        bench.iter(|| generation.may_resolve(&asked.session, &asked.groups, black_box(&stranger)));
    });
    group.finish();
}

criterion_group!(benches, authorize);
criterion_main!(benches);
