//! Generations replace one another as a whole.

use arc_swap::ArcSwap;

use super::*;

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
                .next(
                    &[Source::new("good", ""), Source::new("bad", bad)],
                    declared()
                )
                .is_err()
        );
        assert_eq!(policies.current().number(), 1);
        assert!(policies.current().ask(&request.facts()).allowed());
    }
    let next = policies.next(&[], declared()).unwrap();
    assert_eq!(next.current().number(), 2);
    let verdict = next.current().ask(&request.facts());
    assert_eq!(
        (verdict.outcome, verdict.generation),
        (Outcome::Unpermitted, 2)
    );
}

#[test]
fn a_thousand_reloads_never_mix_two_sets() {
    // Each set's policy is named after its generation, so a verdict from a mixture of sets would
    // show.
    let text = |n: u64| {
        format!("@id(\"g{n}\") permit(principal, action, resource) when {{ context.port == 443 }};")
    };
    let policies = Arc::new(ArcSwap::from_pointee(policies(&text(1))));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (policies, stop) = (Arc::clone(&policies), Arc::clone(&stop));
            std::thread::spawn(move || {
                let (request, mut judged) = (owned(), 0_u64);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) || judged == 0 {
                    let verdict = policies.load().current().ask(&request.facts());
                    assert_eq!(named(&verdict), [format!("g{}", verdict.generation)]);
                    judged += 1;
                }
            })
        })
        .collect();
    for number in 2..=1000 {
        let next = policies
            .load()
            .next(&[Source::new("f", text(number))], declared());
        let next = Arc::new(next.unwrap());
        assert_eq!(next.current().number(), number);
        policies.store(next);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    readers
        .into_iter()
        .for_each(|reader| reader.join().unwrap());
}
