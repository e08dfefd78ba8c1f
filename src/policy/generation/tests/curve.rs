//! The time of judging a request, and the memory of a rule, with many rules.

use std::time::Instant;

use gateway_session::Session;
use gateway_session::phantom::Phantoms;

use super::*;
use crate::applicable::{AskedFacts, KnownRules};

/// A condition of the rule with this number.
type Condition = fn(usize) -> String;

const PREFIX: Condition = |nth| format!("context.prefixes.contains(\"/o/r{nth}\")");

/// The conditions of rules for one host, of which one applies to the request.
const SHAPES: [(&str, Condition); 7] = [
    ("prefix", PREFIX),
    ("path", |nth| format!("context.path == \"/o/r{nth}/x\"")),
    ("like", |nth| format!("context.path like \"/o/r{nth}/*\"")),
    ("segment", |nth| {
        format!("context.segments.contains(\"1:r{nth}\")")
    }),
    ("query", |nth| {
        format!("context.query.unique.contains(\"page={nth}\")")
    }),
    // Ten rules for each host.
    ("hosts", PREFIX),
    // One rule.
    ("list", PREFIX),
];

fn rules(shape: &str, condition: Condition, count: usize) -> String {
    let rule = |host: &str, condition: &str| {
        format!(
            "permit(principal, action in Gateway::Action::\"any\", resource == Gateway::Host::\"{host}.example\") when {{ {condition} }};\n"
        )
    };
    let host = |nth| match (shape, nth / 10) {
        ("hosts", other @ 1..) => format!("h{other}"),
        _ => "one".to_owned(),
    };
    match shape {
        "list" => {
            let names: Vec<String> = (0..count).map(|nth| format!("\"/o/r{nth}\"")).collect();
            let listed = format!("context.prefixes.containsAny([{}])", names.join(", "));
            rule("one", &listed)
        }
        _ => (0..count)
            .map(|nth| rule(&host(nth), &condition(nth)))
            .collect(),
    }
}

/// Measures the best time of judging a request: one that was judged before on its connection, one
/// that was not, and the first one of a connection.
fn costs(policies: &Policies) -> [Duration; 3] {
    let generation = policies.current();
    let session = SessionId::new("s1").unwrap();
    let session = Session::new(session, Vec::new(), Phantoms::none(), None);
    let mut best = [Duration::MAX; 3];
    for round in 0..40 {
        let mut request = owned();
        request.host = "one.example".parse().unwrap();
        request.target = target("/o/r7/x?page=7");
        let known = KnownRules::default();
        for (kind, times) in [(2, 1), (1, 1), (0, 20)] {
            // A rule reads the entry.
            request.entry = format!("{}.{round}", kind.max(1));
            let facts = &request.facts();
            let begin = Instant::now();
            for _ in 0..times {
                let rules = known.of(1, (&session, None), facts.host);
                let rules = Some(&*rules);
                assert!(
                    generation
                        .judge(AskedFacts { facts, rules }, None)
                        .allowed()
                );
            }
            best[kind] = best[kind].min(begin.elapsed() / times);
        }
    }
    best
}

/// `RULES_CURVE=10000` tries that many rules, too.
#[test]
fn what_a_request_costs_does_not_grow_with_the_rules_that_do_not_apply_to_it() {
    let most = std::env::var("RULES_CURVE").map_or(1_000, |most| most.parse().unwrap());
    let counts = [10, 100, 1_000, 10_000]
        .into_iter()
        .filter(|count| *count <= most);
    for (shape, condition) in SHAPES {
        let mut of_ten = None;
        for count in counts.clone() {
            let text = rules(shape, condition, count);
            let text = format!(
                "{text}permit(principal, action, resource) when {{ context.entry == \"base\" }};"
            );
            let begin = Instant::now();
            let loaded = policies(&text);
            let load = begin.elapsed();
            let [again, fresh, first] = costs(&loaded);
            println!(
                "{shape:>8} {count:>6}: loaded in {load:>8.1?}; judged before {again:>8.2?}, fresh {fresh:>8.2?}, first {first:>8.2?}"
            );
            let [known, unknown, _] = *of_ten.get_or_insert([again, fresh, first]);
            // A hundred times as many rules. Trying each one took 25 to 250 times as long.
            assert!(again < known * 3, "{shape} {count}: {again:?}, {known:?}");
            // Cedar reads the whole of a list.
            let is_list = shape == "list";
            assert!(
                is_list || fresh < unknown * 4,
                "{shape} {count}: {fresh:?}, {unknown:?}"
            );
        }
    }
}

/// Returns the memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap();
    pages * 4096
}

/// Runs in a process of its own: memory of other tests would be counted, too.
#[test]
fn a_rule_takes_at_most_four_kibibytes() {
    const ALONE: &str = "RULES_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = format!("{}::a_rule_takes_at_most_four_kibibytes", module_path!());
        let name = name.split_once("::").unwrap().1;
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1");
        let output = alone.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}"
        );
        return println!("{said}");
    }
    let (count, kept) = (2_000, 4);
    let text = rules("hosts", PREFIX, count);
    // Loading takes more memory than it keeps, and freed memory is used again.
    let first = [policies(&text), policies(&text)];
    let before = resident();
    let all: Vec<Policies> = (0..kept).map(|_| policies(&text)).collect();
    let each = resident().saturating_sub(before) / kept / count;
    println!(
        "{each} bytes a rule; {} sets are kept",
        first.len() + all.len()
    );
    assert!(each <= 4096, "{each}");
}
