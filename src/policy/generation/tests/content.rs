//! Facts of content.

use super::*;

fn content_outcome(text: &str, content: &str) -> Outcome {
    let post = post(content);
    let outcome = policies(text).current().ask(&post.facts()).outcome;
    // Judging the head shows that the content is needed.
    let head = policies(text).current().ask(&unread(&post).facts()).outcome;
    assert_eq!(head, Outcome::Unjudged(FactFault::ContentUnread));
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
    assert_eq!(verdict.outcome, Outcome::Unjudged(FactFault::ContentUnread));
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
