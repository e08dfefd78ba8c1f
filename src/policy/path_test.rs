//! What conditions ask about a path, answered without Cedar: one verdict is kept for all paths of
//! which the answers are the same.

use std::collections::BTreeSet;
use std::sync::Arc;

use cedar_policy::pst::{BinaryOp, Expr, Literal, PatternElem};

use super::decision_key::DecisionKey;
use super::path::{depth, is_prefix, segments};

/// A question about a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum PathTest {
    /// Any other use of the path: verdicts are kept for each path.
    Whole,
    /// `context.depth`, whatever is asked of it.
    Depth,
    /// `context.path == "…"`.
    Is(String),
    /// `context.path like "…"`, as the texts between the wildcards.
    Like(Vec<String>),
    /// `context.prefixes.contains("…")`.
    Prefix(String),
    /// `context.segments.contains("…")`.
    Segment(String),
}

impl PathTest {
    /// The tests that `path op right` makes, where `path` are attributes of the context. `None` if
    /// it is not made of such tests.
    pub fn of(path: &[&str], op: BinaryOp, right: &Arc<Expr>) -> Option<Vec<Self>> {
        use BinaryOp::{Contains, ContainsAll, ContainsAny, Eq, NotEq};
        let make = match (path, op) {
            (["path"], Eq | NotEq) => Self::Is,
            (["prefixes"], Contains | ContainsAll | ContainsAny) => Self::Prefix,
            (["segments"], Contains | ContainsAll | ContainsAny) => Self::Segment,
            _ => return None,
        };
        let texts = match &**right {
            Expr::Set(all) => all.as_slice(),
            _ => std::slice::from_ref(right),
        };
        let test = |text: &Arc<Expr>| match &**text {
            Expr::Literal(Literal::String(text)) => Some(make(text.to_string())),
            _ => None,
        };
        texts.iter().map(test).collect()
    }

    /// The test that a pattern makes of the path.
    pub fn like(pattern: &[PatternElem]) -> Self {
        let pieces = pattern.split(|part| *part == PatternElem::Wildcard);
        let text = |piece: &[PatternElem]| {
            let letters = piece.iter().filter_map(|part| match part {
                PatternElem::Char(letter) => Some(*letter),
                PatternElem::Wildcard => None,
            });
            letters.collect()
        };
        Self::Like(pieces.map(text).collect())
    }
}

/// Adds the answers for a path to a key. `None` if the path has too many segments: conditions that
/// read them cannot be judged.
pub(super) fn write(tests: &BTreeSet<PathTest>, path: &str, key: &mut DecisionKey) -> Option<()> {
    if tests.is_empty() || tests.contains(&PathTest::Whole) {
        key.text(path);
        return Some(());
    }
    let depth = depth(path).ok()?;
    for test in tests {
        let holds = match test {
            PathTest::Whole => continue,
            PathTest::Depth => {
                key.number(depth as u64);
                continue;
            }
            PathTest::Is(text) => path == text,
            PathTest::Like(pieces) => is_like(path, pieces),
            PathTest::Prefix(text) => is_prefix(path, text),
            PathTest::Segment(text) => has_segment(segments(path).ok()?, text),
        };
        // A set's tests have an order, so that nothing else need be written.
        key.bytes.push(holds.into());
    }
    Some(())
}

/// Whether the text is made of the pieces, with anything between them.
fn is_like(text: &str, pieces: &[String]) -> bool {
    let [first, between @ .., last] = pieces else {
        return pieces.first().is_some_and(|piece| text == piece);
    };
    let rest = text.strip_prefix(first.as_str());
    let Some(mut rest) = rest.and_then(|rest| rest.strip_suffix(last.as_str())) else {
        return false;
    };
    between.iter().all(|piece| {
        let found = rest.split_once(piece.as_str());
        found.map(|(_, after)| rest = after).is_some()
    })
}

/// Whether a segment stands at its place: `0:repos`.
fn has_segment<'a>(segments: impl Iterator<Item = &'a str>, text: &str) -> bool {
    let (place, name) = text.split_once(':').unwrap_or_default();
    let mut all = segments.enumerate();
    all.any(|(nth, segment)| segment == name && nth.to_string() == place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_cedar() {
        for pattern in [
            "", "*", "/a", "/a*", "*/a", "/*/b", "/a*b*a", "*a*a*", "**", "/a*/a", "é*",
        ] {
            let literal = format!(
                "permit(principal, action, resource) when {{ context.path like \"{pattern}\" }};"
            );
            let policy: cedar_policy::Policy = literal.parse().unwrap();
            let parts: Vec<PatternElem> = pattern
                .chars()
                .map(|one| match one {
                    '*' => PatternElem::Wildcard,
                    one => PatternElem::Char(one),
                })
                .collect();
            let PathTest::Like(pieces) = PathTest::like(&parts) else {
                unreachable!()
            };
            for path in [
                "", "/", "/a", "/a/b", "/ab/a", "/a/a", "/aba", "/x/a", "a", "é/é",
            ] {
                let value = cedar_policy::RestrictedExpression::new_string(path.to_owned());
                let context =
                    cedar_policy::Context::from_pairs([("path".to_owned(), value)]).unwrap();
                let any: cedar_policy::EntityUid = r#"A::"a""#.parse().unwrap();
                let request =
                    cedar_policy::Request::new(any.clone(), any.clone(), any, context, None)
                        .unwrap();
                let set = cedar_policy::PolicySet::from_policies([policy.clone()]).unwrap();
                let answer = cedar_policy::Authorizer::new().is_authorized(
                    &request,
                    &set,
                    &cedar_policy::Entities::empty(),
                );
                let allowed = answer.decision() == cedar_policy::Decision::Allow;
                assert_eq!(is_like(path, &pieces), allowed, "{path} like {pattern}");
            }
        }
    }
}
