//! What `@ask`, `@budget` and `@label` change of a verdict, and what they do not.

use super::*;

/// Conditions of a request to `/repos/o/r` with the content `{"amount": 5}`: true, false, failing.
const CONDITIONS: [&str; 6] = [
    "",
    "when { context.path == \"/repos/o/r\" }",
    "when { context.path == \"/other\" }",
    "when { context.content.amount > 3 }",
    "when { context.content.amount < 3 }",
    "when { context.content.amount + 9223372036854775807 > 0 }",
];

/// The effects, each with an annotation. `money` counts what the content asks for, `hits` does not.
const EFFECTS: [(&str, &str); 6] = [
    ("permit", ""),
    ("permit", "@label(\"l\")"),
    ("forbid", ""),
    ("forbid", "@ask(\"Sure?\")"),
    ("forbid", "@budget(\"hits\")"),
    ("forbid", "@budget(\"money\")"),
];

/// A rule: its effect and its condition.
type Written = (usize, usize);

fn text(rules: &[(usize, Written)], is_annotated: bool) -> String {
    let rule = |(nth, (effect, condition)): &(usize, Written)| {
        let (effect, annotation) = EFFECTS[*effect];
        let annotation = if is_annotated {
            annotation.replace("\"l\"", &format!("\"l{nth}\""))
        } else {
            String::new()
        };
        let condition = CONDITIONS[*condition];
        format!("@id(\"r{nth}\") {annotation} {effect}(principal, action, resource) {condition};\n")
    };
    rules.iter().map(rule).collect()
}

/// What is decided: the outcome, the rules that are yet to be lifted, the labels.
type Decided = (Outcome, BTreeSet<String>, BTreeSet<String>);

fn decided(text: &str, is_read: bool) -> Decided {
    let mut declared = declared();
    declared.add_budget("hits".into(), false);
    declared.add_budget("money".into(), true);
    let loaded = Policies::load(&[Source::new("test.cedar", text)], declared).unwrap();
    let mut request = owned();
    request.method = "POST".into();
    let mut content = ContentFacts::default();
    content.say("amount", gateway_body::fact::FactValue::Long(5));
    request.content = is_read.then_some(content);
    let verdict = loaded.current().ask(&request.facts());
    let all = verdict.obligations.unwrap_or_default();
    let asks = all.asks.iter().map(|ask| ask.policy.to_string());
    let lifted = asks.chain(all.budgets.iter().map(|one| one.policy.to_string()));
    let labels = all.labels.iter().map(ToString::to_string).collect();
    (verdict.outcome, lifted.collect(), labels)
}

fn lifted_of(rules: &[(usize, Written)], lifted: &BTreeSet<String>) -> Outcome {
    let is_left = |nth: usize| !lifted.contains(&format!("r{nth}"));
    let rest = rules.iter().filter(|(nth, _)| is_left(*nth));
    decided(&text(&rest.copied().collect::<Vec<_>>(), false), true).0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn an_annotation_widens_nothing_lifts_itself_alone_and_depends_on_no_order(
        written in prop::collection::vec((0..6_usize, 0..6_usize), 1..8),
        mix in Just((0..8_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let rules: Vec<(usize, Written)> = written.into_iter().enumerate().collect();
        let all = decided(&text(&rules, true), true);
        let (outcome, lifted, labels) = all.clone();
        let (plain, ..) = decided(&text(&rules, false), true);
        // Read as plain Cedar, the rules are at their strictest.
        prop_assert_eq!(outcome == Outcome::Allowed, plain == Outcome::Allowed);
        let mut mixed = rules.clone();
        mixed.sort_by_key(|(nth, _)| mix[*nth]);
        prop_assert_eq!(decided(&text(&mixed, true), true), all.clone());
        // By its head alone, it is decided alike or not at all.
        let by_head = decided(&text(&rules, true), false);
        if by_head.0 != Outcome::Unjudged(FactFault::ContentUnread) {
            prop_assert_eq!(by_head.0.may_be_lifted(), outcome.may_be_lifted());
            if outcome.may_be_lifted() {
                prop_assert_eq!(by_head, all);
            }
        }
        let applies = |nth: &usize| [0, 1, 3].contains(&rules[*nth].1.1);
        if !outcome.may_be_lifted() {
            prop_assert!(lifted.is_empty() && labels.is_empty());
            return Ok(());
        }
        // The labels are those of all permits that apply.
        let permits = (0..rules.len()).filter(|nth| rules[*nth].1.0 == 1 && applies(nth));
        prop_assert_eq!(labels, permits.map(|nth| format!("l{nth}")).collect::<BTreeSet<_>>());
        // Without those that are lifted, and only without all of them, it is allowed.
        prop_assert_eq!(lifted_of(&rules, &lifted), Outcome::Allowed);
        for one in &lifted {
            let mut some = lifted.clone();
            some.remove(one);
            prop_assert_eq!(lifted_of(&rules, &some), Outcome::Forbidden);
        }
    }
}

#[test]
fn an_annotation_that_means_nothing_there_is_refused() {
    for (text, why) in [
        (
            "@budget(\"hits\") permit(principal, action, resource);",
            "`@budget` is on a permit",
        ),
        (
            "@budget(\"none\") forbid(principal, action, resource);",
            "there is no budget `none`",
        ),
        (
            "@label(\"l\") forbid(principal, action, resource);",
            "`@label` is on a forbid",
        ),
        (
            "@label(\"a b\") permit(principal, action, resource);",
            "is no label",
        ),
        (
            "@label(\"\") permit(principal, action, resource);",
            "is no label",
        ),
        (
            "@ask(\"Sure?\") @budget(\"hits\") forbid(principal, action, resource);",
            "`@ask` and `@budget`",
        ),
        (
            "@limit(\"hits\") forbid(principal, action, resource);",
            "nothing reads",
        ),
    ] {
        let mut declared = declared();
        declared.add_budget("hits".into(), false);
        let refused = Policies::load(&[Source::new("test.cedar", text)], declared);
        let refused = refused.map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(why), "{text}: {refused}");
    }
}

#[test]
fn the_labels_of_a_session_are_a_fact_of_its_requests() {
    let text = "permit(principal, action, resource);
        forbid(principal, action, resource) when { context.labels.contains(\"read_mail\") };";
    let generation = policies(text).current();
    let mut request = owned();
    assert!(generation.ask(&request.facts()).allowed());
    request.labels = vec!["read_mail".into()];
    assert_eq!(generation.ask(&request.facts()).outcome, Outcome::Forbidden);
    request.labels = vec!["other".into()];
    assert!(generation.ask(&request.facts()).allowed());
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
    assert!(verdict.obligations.is_none());
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
    let asks = verdict.obligations.iter().flat_map(|all| &all.asks);
    let asks: Vec<&str> = asks.map(|ask| ask.policy.as_str()).collect();
    assert_eq!(
        (verdict.outcome, asks),
        (Outcome::Asked, vec!["one", "two"])
    );
    request.batch = true;
    let verdict = generation.ask(&request.facts());
    assert_eq!(verdict.outcome, Outcome::Unjudged(FactFault::Batch));
}
