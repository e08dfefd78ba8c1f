//! The tests that conditions make of facts, answered without Cedar. All paths with the same answers
//! share one cached verdict, and policies that the answers rule out are not evaluated.
//!
//! The tests that hold are found by looking up the facts of the request, not by trying all tests:
//! the cost of a request does not grow with the rules that do not apply to it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cedar_policy::RestrictedExpression as Value;
use cedar_policy::pst::{BinaryOp, Expr, Literal, PatternElem};
use gateway_names::Map;
use smallvec::SmallVec;

use super::decision_key::DecisionKey;
use super::fact::{CedarType, Fact, FactReader};
use super::fault::FactFault;
use super::path::{any_segments, depth, prefixes, segments};

/// The facts of the path whose tests are looked up by its parts. A rule that reads another one has
/// a verdict for each path.
pub(super) const LOOKED_UP: [Fact; 4] = {
    use Fact::{AnySegments, Path, Prefixes, Segments};
    [Path, Prefixes, Segments, AnySegments]
};

/// A test of a fact.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum FactTest {
    /// Any other use of the path: verdicts are kept for each path.
    Whole,
    /// Any test of `context.depth`.
    Depth,
    /// The fact is this text, or has it as an element: `context.path == "…"`,
    /// `context.prefixes.contains("…")`.
    Has(Fact, String),
    /// `context.path like "…"`, as the texts between the wildcards: two or more.
    Like(Vec<String>),
}

impl FactTest {
    /// Returns the tests that an operator makes of a fact against a literal, where `path` are
    /// attributes of the context. `None` if the expression makes no such tests.
    pub fn of(path: &[&str], op: BinaryOp, written: &Expr) -> Option<(Fact, Vec<Self>)> {
        use BinaryOp::{Contains, ContainsAll, ContainsAny, Eq, NotEq};
        let name = path.join(".");
        let fact = Fact::named(&name).find(|fact| fact.row().name == name)?;
        let texts = match (fact.row().kind, op, written) {
            (CedarType::String, Contains, Expr::Set(all))
            | (CedarType::Strings, ContainsAll | ContainsAny, Expr::Set(all)) => {
                all.iter().map(|one| text_of(one)).collect()
            }
            (CedarType::String, Eq | NotEq, one) | (CedarType::Strings, Contains, one) => {
                text_of(one).map(|text| vec![text])
            }
            _ => None,
        };
        let test = |text| Self::Has(fact, text);
        Some((fact, texts?.into_iter().map(test).collect()))
    }

    /// Returns the test that a pattern makes of the path.
    pub fn like(pattern: &[PatternElem]) -> Self {
        let pieces = pattern.split(|part| *part == PatternElem::Wildcard);
        let text = |piece: &[PatternElem]| {
            let letters = piece.iter().filter_map(|part| match part {
                PatternElem::Char(letter) => Some(*letter),
                PatternElem::Wildcard => None,
            });
            letters.collect::<String>()
        };
        let mut pieces: Vec<String> = pieces.map(text).collect();
        match pieces.len() {
            1 => Self::Has(Fact::Path, pieces.remove(0)),
            _ => Self::Like(pieces),
        }
    }
}

fn text_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Literal(Literal::String(text)) => Some(text.to_string()),
        _ => None,
    }
}

/// Numbers of tests. Few of them hold for one request.
pub(super) type Numbers = SmallVec<[u32; 8]>;

/// Patterns with the same first and last piece, by their pieces.
type Patterns = Map<Vec<String>, u32>;

/// Tests, indexed by their texts.
#[derive(Debug, Default)]
pub(super) struct FactTests {
    has: BTreeMap<Fact, Map<Box<str>, u32>>,
    /// By the lengths of the first and the last piece, and by these pieces as one text.
    likes: BTreeMap<(usize, usize), Map<Box<str>, Patterns>>,
    /// The length of the longest text.
    longest: usize,
    count: u32,
    whole: bool,
    depth: bool,
}

impl FactTests {
    /// Adds a test, and returns its number. Equal tests have one number.
    pub fn add(&mut self, test: &FactTest) -> u32 {
        let next = self.count;
        let number = match test {
            FactTest::Has(fact, text) => {
                self.longest = self.longest.max(text.len());
                let texts = self.has.entry(*fact).or_default();
                *texts.entry(text.as_str().into()).or_insert(next)
            }
            FactTest::Like(pieces) => {
                let (first, last) = (&pieces[0], &pieces[pieces.len() - 1]);
                let alike = self.likes.entry((first.len(), last.len())).or_default();
                let alike = alike.entry([first.as_str(), last].concat().into());
                *alike.or_default().entry(pieces.clone()).or_insert(next)
            }
            FactTest::Whole | FactTest::Depth => {
                self.whole |= *test == FactTest::Whole;
                self.depth |= *test == FactTest::Depth;
                return next;
            }
        };
        self.count += u32::from(number == next);
        number
    }

    /// Adds the tests of the path that hold to a key. `None` if the path has too many segments:
    /// conditions that read them cannot be judged.
    pub fn write(&self, path: &str, key: &mut DecisionKey) -> Option<()> {
        if self.whole || self.count == 0 && !self.depth {
            key.text(path);
            return Some(());
        }
        let depth = depth(path).ok()?;
        if self.depth {
            key.number(depth as u64);
        }
        let mut held = Numbers::new();
        self.held_by_path(path, &mut held).ok()?;
        held.sort_unstable();
        key.number(held.len() as u64);
        held.iter().for_each(|number| key.number((*number).into()));
        Some(())
    }

    /// Returns the tests that hold for a request.
    ///
    /// # Errors
    /// [`FactFault`], if a fact that they test has no value.
    pub fn held(&self, reader: &FactReader<'_>) -> Result<Numbers, FactFault> {
        let mut held = Numbers::new();
        self.held_by_path(reader.path(), &mut held)?;
        for (fact, numbers) in &self.has {
            if LOOKED_UP.contains(fact) {
                continue;
            }
            each_text(&fact.value(reader)?, |text| {
                held.extend(numbers.get(text).copied());
            });
        }
        Ok(held)
    }

    /// Adds the tests of the path that hold, each once.
    fn held_by_path(&self, path: &str, held: &mut Numbers) -> Result<(), FactFault> {
        let of = |fact| self.has.get(&fact);
        if let Some(numbers) = of(Fact::Path) {
            held.extend(numbers.get(path).copied());
        }
        if let Some(numbers) = of(Fact::Prefixes) {
            let all = prefixes(path)?.into_iter();
            let short = all.take_while(|prefix| prefix.len() <= self.longest);
            held.extend(short.filter_map(|prefix| numbers.get(prefix).copied()));
        }
        if let Some(numbers) = of(Fact::Segments) {
            let mut text = String::new();
            for (place, segment) in segments(path)?.enumerate() {
                text.clear();
                let _ = write!(text, "{place}:{segment}");
                held.extend(numbers.get(text.as_str()).copied());
            }
        }
        if let Some(numbers) = of(Fact::AnySegments) {
            let all = any_segments(path)?;
            held.extend(
                all.iter()
                    .filter_map(|one| numbers.get(one.as_str()).copied()),
            );
        }
        for ((first, last), alike) in &self.likes {
            let ends = path.len().checked_sub(*last).filter(|end| first <= end);
            let ends = ends.and_then(|end| Some([path.get(..*first)?, path.get(end..)?].concat()));
            let alike = ends.and_then(|ends| alike.get(ends.as_str()));
            let like =
                |(pieces, number): (&Vec<String>, &u32)| is_like(path, pieces).then_some(*number);
            held.extend(alike.into_iter().flatten().filter_map(like));
        }
        Ok(())
    }
}

/// Calls `each` with a value that is a text, or with each text of a set.
fn each_text(value: &Value, mut each: impl FnMut(&str)) {
    let value = value.as_ref();
    if let Some(text) = value.as_string() {
        each(text);
    }
    for one in value.as_set_elements().into_iter().flatten() {
        if let Some(text) = one.as_string() {
            each(text);
        }
    }
}

/// Whether the text consists of the pieces, with any text between them.
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
            let mut tests = FactTests::default();
            tests.add(&FactTest::like(&parts));
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
                let mut held = Numbers::new();
                tests.held_by_path(path, &mut held).unwrap();
                assert_eq!(held.len() == 1, allowed, "{path} like {pattern}");
            }
        }
    }
}
