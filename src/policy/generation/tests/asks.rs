//! What `@ask` changes of a verdict, and what it does not.

use super::*;
use crate::verdict::Ask;

/// Conditions of a request to `/repos/o/r` with the content `{"amount": 5}`: true, false, failing.
const CONDITIONS: [&str; 6] = [
    "",
    "when { context.path == \"/repos/o/r\" }",
    "when { context.path == \"/other\" }",
    "when { context.content.amount > 3 }",
    "when { context.content.amount < 3 }",
    "when { context.content.amount + 9223372036854775807 > 0 }",
];

/// A rule: whether it permits, whether it asks, its condition.
type Written = (bool, bool, usize);

fn text(rules: &[(usize, Written)], with_asks: bool) -> String {
    let rule = |(nth, (permits, asks, condition)): &(usize, Written)| {
        let effect = if *permits { "permit" } else { "forbid" };
        let ask = if *asks && !permits && with_asks {
            format!("@ask(\"question {nth}?\")")
        } else {
            String::new()
        };
        let condition = CONDITIONS[*condition];
        format!("@id(\"r{nth}\") {ask} {effect}(principal, action, resource) {condition};\n")
    };
    rules.iter().map(rule).collect()
}

/// The verdict on the request, and what it asks, in an order of its own.
fn verdict(text: &str) -> (Outcome, Vec<Ask>) {
    let loaded = Policies::load(&[Source::new("test.cedar", text)], declared()).unwrap();
    let mut request = owned();
    request.method = "POST".into();
    let mut content = ContentFacts::default();
    content.say("amount", gateway_body::fact::FactValue::Long(5));
    request.content = Some(content);
    let verdict = loaded.current().ask(&request.facts());
    let asks = verdict.asks.iter().flat_map(|asks| asks.iter().cloned());
    let mut asks: Vec<Ask> = asks.collect();
    asks.sort();
    (verdict.outcome, asks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn an_ask_widens_nothing_lifts_itself_alone_and_depends_on_no_order(
        written in prop::collection::vec((any::<bool>(), any::<bool>(), 0..6_usize), 1..7),
        mix in Just((0..7_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let rules: Vec<(usize, Written)> = written.into_iter().enumerate().collect();
        let (outcome, asks) = verdict(&text(&rules, true));
        let (plain, _) = verdict(&text(&rules, false));
        // Read as plain Cedar, the rules are at their strictest.
        prop_assert_eq!(outcome == Outcome::Allowed, plain == Outcome::Allowed);
        let mut mixed = rules.clone();
        mixed.sort_by_key(|(nth, _)| mix[*nth]);
        prop_assert_eq!(verdict(&text(&mixed, true)), (outcome, asks.clone()));
        if outcome != Outcome::Asked {
            prop_assert!(asks.is_empty());
            return Ok(());
        }
        prop_assert_eq!(plain, Outcome::Forbidden);
        // Without those that ask, and only without all of them, it is allowed.
        let without = |left: &[Ask]| {
            let is_left = |nth: &usize| left.iter().any(|ask| ask.policy.as_str() == format!("r{nth}"));
            let rest: Vec<_> = rules.iter().filter(|(nth, _)| !is_left(nth)).copied().collect();
            verdict(&text(&rest, false)).0
        };
        prop_assert_eq!(without(&asks), Outcome::Allowed);
        for nth in 0..asks.len() {
            let mut some = asks.clone();
            some.remove(nth);
            prop_assert_eq!(without(&some), Outcome::Forbidden);
        }
    }
}

#[test]
fn nobody_is_asked_about_content_that_is_not_read() {
    let text =
        "permit(principal, action, resource); @ask(\"Sure?\") forbid(principal, action, resource);";
    let generation = policies(text).current();
    let mut request = owned();
    request.content = None;
    let verdict = generation.ask(&request.facts());
    assert_eq!(verdict.outcome, Outcome::Unjudged(FactFault::ContentUnread));
    assert!(verdict.asks.is_none());
}

#[test]
fn every_reading_of_a_path_is_asked_about_and_a_batch_is_not() {
    let text = "permit(principal, action, resource);
        @id(\"one\") @ask(\"One?\") forbid(principal, action, resource) when { context.path == \"/a/b\" };
        @id(\"two\") @ask(\"Two?\") forbid(principal, action, resource) when { context.path == \"/a//b\" };";
    let generation = policies(text).current();
    let mut request = owned();
    request.content = Some(ContentFacts::default());
    request.target = target("/a//b");
    let verdict = generation.ask(&request.facts());
    let asks = verdict.asks.iter().flat_map(|asks| asks.iter());
    let asks: Vec<&str> = asks.map(|ask| ask.policy.as_str()).collect();
    assert_eq!(
        (verdict.outcome, asks),
        (Outcome::Asked, vec!["one", "two"])
    );
    request.batch = true;
    let verdict = generation.ask(&request.facts());
    assert_eq!(verdict.outcome, Outcome::Unjudged(FactFault::Batch));
}
