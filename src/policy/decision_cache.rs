//! A cache of recent verdicts.
//!
//! Cedar's answer depends only on the rules, the entities and the context. A key holds the rule
//! set's number and everything from which the entities and the context are made, so two questions
//! with the same key have the same answer. Each generation has one bounded cache, dropped with it.
//! Verdicts that depend on the clock, on all fields or on the content rarely repeat, so they are
//! not cached.

use std::num::NonZeroUsize;

use foldhash::quality::RandomState;
use lru::LruCache;
use parking_lot::Mutex;

use super::decision_key::DecisionKey;
use super::question::{Facts, Input, LendQuestion};
use super::rule_set::RuleSet;
use super::schema::Action;
use super::verdict::Verdict;

/// The verdicts of one generation. The least recently used are dropped first.
pub(super) struct DecisionCache(Mutex<LruCache<Box<[u8]>, Verdict, RandomState>>);

gateway_names::concealed!(DecisionCache);

impl DecisionCache {
    /// Creates an empty cache.
    pub fn new() -> Self {
        let most = NonZeroUsize::new(MOST_VERDICTS).expect("it is not 0");
        Self(Mutex::new(LruCache::with_hasher(
            most,
            RandomState::default(),
        )))
    }

    /// Looks up the verdict of a question on a rule set, and judges only if it is not cached.
    pub fn get(
        &self,
        set: &RuleSet,
        facts: &Facts<'_>,
        lend: Option<LendQuestion<'_>>,
        judge: impl FnOnce() -> Verdict,
    ) -> Verdict {
        let Some(key) = key(set, facts, lend) else {
            return judge();
        };
        if let Some(known) = self.0.lock().get(&*key) {
            return known.clone();
        }
        // Judged outside the lock, so that other questions need not wait.
        let verdict = judge();
        if verdict.policies.len() <= MOST_POLICIES {
            self.0.lock().put(key.into(), verdict.clone());
        }
        verdict
    }
}

/// Returns the key: everything that the verdict depends on. `None` if it must not be cached.
fn key(set: &RuleSet, facts: &Facts<'_>, lend: Option<LendQuestion<'_>>) -> Option<Vec<u8>> {
    let mut key = DecisionKey::new();
    key.number(set.number);
    key.text(facts.host.as_str());
    match (lend, facts.signs) {
        (Some(lend), _) => {
            key.number(1);
            key.text(lend.credential.as_str());
            key.text(lend.place);
        }
        (_, Some(signs)) => {
            key.number(2);
            key.text(signs.key);
            key.text(signs.repository);
        }
        _ => {
            key.number(0);
            key.text(Action::of_method(facts.method).as_str());
        }
    }
    for input in set.inputs.iter() {
        match input {
            // Of the path, only the results of the rules' tests.
            Input::Path => set.whole.paths.write(facts.target.path(), &mut key)?,
            other => facts.write(*other, &mut key)?,
        }
    }
    Some(key.finish(MOST_BYTES))
}

/// With [`MOST_BYTES`], all keys together take less than 8 MiB.
const MOST_VERDICTS: usize = 4096;
const MOST_BYTES: usize = 1024;
/// A verdict holds the names of all its policies, and more than this rarely decide together.
const MOST_POLICIES: usize = 16;

#[cfg(test)]
mod tests {
    use gateway_message::{EncodedSlash, RequestTarget, Scheme};
    use gateway_names::{CredentialName, SessionId, User};
    use http::header::CONTENT_TYPE;

    use super::*;
    use crate::fact::{FACTS, Scope};
    use crate::generation::tests::{BEARER, owned, policies};
    use crate::question::OwnedFacts;

    /// Whether a request is allowed, first alone, then after another request was judged.
    fn allowed(condition: &str, request: &OwnedFacts, before: &OwnedFacts) -> [bool; 2] {
        let text = format!("permit(principal, action, resource) when {{ {condition} }};");
        [None, Some(before)].map(|before| {
            let generation = policies(&text).current();
            if let Some(before) = before {
                assert!(generation.ask(&before.facts()).allowed(), "{condition}");
            }
            generation.ask(&request.facts()).allowed()
        })
    }

    #[test]
    fn a_verdict_is_not_given_to_another_request() {
        let (first, mut other) = (owned(), owned());
        other.session = SessionId::new("s2").unwrap();
        other.groups = vec!["g".into()];
        other.user = User::new("u");
        other.labels = vec!["l".into()];
        other.entry = "proxy".into();
        other.now += std::time::Duration::from_secs(1 << 32);
        other.scheme = Scheme::Http;
        other.host = "b.example".parse().unwrap();
        other.port = 8443;
        other.method = "PROPFIND".into();
        other.target = RequestTarget::parse(b"/a?b=c", EncodedSlash::Refuse).unwrap();
        let kind = http::HeaderValue::from_static("text/plain");
        other.fields.append(CONTENT_TYPE, kind);
        other.content_length = Some(1);
        other.upgrade = "websocket".into();
        other.credentials = vec![CredentialName::new("c").unwrap()];
        other.actions = vec!["s3:GetObject".into()];
        for condition in [
            r#"context.session == "s1""#,
            r#"principal == Gateway::Session::"s1""#,
            "context.groups.isEmpty()",
            "context.labels.isEmpty()",
            r#"!(principal in Gateway::Group::"g")"#,
            r#"!(principal in Gateway::User::"u")"#,
            r#"!(Gateway::User::"u" in Gateway::Group::"g")"#,
            r#"context.entry == "transparent""#,
            r#"context.now < datetime("2100-01-01")"#,
            r#"context.scheme == "https""#,
            "context.secure",
            r#"context.host == "api.github.com""#,
            r#"resource in Gateway::Domain::"github.com""#,
            "context.port == 443",
            r#"context.method == "GET""#,
            r#"action == Gateway::Action::"GET""#,
            r#"context.path == "/repos/o/r""#,
            r#"context.prefixes.contains("/repos")"#,
            r#"context.segments.contains("0:repos")"#,
            r#"context.anySegments.contains("0:repos")"#,
            "context.depth == 3",
            "context.query.any.isEmpty()",
            "context.query.unique.isEmpty()",
            "context.query.names.isEmpty()",
            "context.fields.any.isEmpty()",
            "context.fields.unique.isEmpty()",
            "context.fields.names.isEmpty()",
            r#"context.contentType == """#,
            "context.contentLength == 0",
            r#"context.upgrade == """#,
            "context.credentials.isEmpty()",
            "context.actions.isEmpty()",
        ] {
            assert_eq!(
                allowed(condition, &other, &first),
                [false; 2],
                "{condition}"
            );
        }
    }

    #[test]
    fn every_fact_of_a_request_is_tried_there() {
        let tried = include_str!("decision_cache.rs");
        for row in FACTS
            .iter()
            .filter(|row| !matches!(row.scope, Scope::Lend | Scope::Sign))
        {
            let is_tried = tried.contains(&format!("context.{}", row.name));
            assert!(is_tried || row.fact.is_of_content(), "{}", row.name);
        }
    }

    #[test]
    fn callers_of_the_same_groups_share_verdicts_unless_a_rule_tells_them_apart() {
        let verdicts = |condition: &str| {
            let text = format!("permit(principal, action, resource) when {{ {condition} }};");
            let generation = policies(&text).current();
            for nth in 0..10_000 {
                let mut request = owned();
                request.session = SessionId::new(&format!("s{nth}")).unwrap();
                request.user = User::new(&format!("u{nth}"));
                request.groups = vec!["team".into()];
                let _ = generation.ask(&request.facts());
            }
            generation.decisions.0.lock().len()
        };
        assert_eq!(verdicts(r#"principal in Gateway::Group::"team""#), 1);
        assert_eq!(verdicts("context.port == 443"), 1);
        assert_eq!(verdicts(r#"context.session == "s1""#), MOST_VERDICTS);
        let names_a_user = r#"principal in Gateway::User::"u1""#;
        assert_eq!(verdicts(names_a_user), MOST_VERDICTS);
    }

    #[test]
    fn a_loan_is_known_by_its_credential_and_its_place() {
        let text = format!(
            "permit(principal, action == Gateway::Action::\"lend\", resource) when \
             {{ context.place == \"{BEARER}\" && context.credential == \"github\" }};"
        );
        let generation = policies(&text).current();
        let [github, other] = ["github", "other"].map(|name| CredentialName::new(name).unwrap());
        for _ in 0..2 {
            let request = owned();
            assert!(generation.lend(&request.facts(), &github, BEARER).allowed());
            let elsewhere = generation.lend(&request.facts(), &github, "basic:user");
            assert!(!elsewhere.allowed());
            assert!(!generation.lend(&request.facts(), &other, BEARER).allowed());
        }
    }

    #[test]
    fn where_one_text_ends_and_the_next_begins_is_in_the_key() {
        let generation = policies(
            "permit(principal, action, resource) when { context.upgrade == \"\" && context.entry == \"tls\" };",
        )
        .current();
        let set = generation.sets.get(&[0], &generation.rules);
        let key = |entry: &str, upgrade: &str| {
            let mut request = owned();
            request.entry = entry.into();
            request.upgrade = upgrade.into();
            key(&set, &request.facts(), None).unwrap()
        };
        assert_ne!(key("AB", "C"), key("A", "BC"));
    }

    #[test]
    fn what_depends_on_the_clock_is_not_kept_and_the_rest_is() {
        let kept = |condition: &str| {
            let text = format!("permit(principal, action, resource) when {{ {condition} }};");
            let generation = policies(&text).current();
            let _ = generation.ask(&owned().facts());
            generation.decisions.0.lock().len()
        };
        assert_eq!(kept("context.port == 443"), 1);
        assert_eq!(kept(r#"context.now < datetime("2100-01-01")"#), 0);
    }

    #[test]
    fn made_up_paths_do_not_grow_the_cache_beyond_its_bound() {
        let of = |condition: &str| {
            policies(&format!(
                "permit(principal, action, resource) when {{ {condition} }};"
            ))
            .current()
        };
        let generation = of(r#"context.path like "/*" && context.depth < 8"#);
        let mut request = owned();
        for nth in 0..100 {
            let path = format!("/{nth}");
            request.target = RequestTarget::parse(path.as_bytes(), EncodedSlash::Refuse).unwrap();
            assert!(generation.ask(&request.facts()).allowed());
        }
        assert_eq!(generation.decisions.0.lock().len(), 1);
        let generation = of("context.path != context.method");
        for nth in 0..MOST_VERDICTS + 100 {
            let path = format!("/{nth}");
            request.target = RequestTarget::parse(path.as_bytes(), EncodedSlash::Refuse).unwrap();
            assert!(generation.ask(&request.facts()).allowed());
        }
        assert_eq!(generation.decisions.0.lock().len(), MOST_VERDICTS);
        // Long paths are told apart, too.
        let set = generation.sets.get(&[0], &generation.rules);
        let [one, other] = ["b", "c"].map(|end| {
            let path = format!("/{}{end}", "a".repeat(MOST_BYTES));
            request.target = RequestTarget::parse(path.as_bytes(), EncodedSlash::Refuse).unwrap();
            key(&set, &request.facts(), None).unwrap()
        });
        assert!(one != other && one.len() < MOST_BYTES);
    }
}
