//! Finds the facts that conditions read from the context.

use std::collections::BTreeSet;

use cedar_policy::pst::{BinaryOp, Expr, Literal, Var};

use super::context::FactSet;
use super::fact::Fact;
use super::fact_test::{FactTest, LOOKED_UP};
use super::question::Input;

/// The facts and entities that an expression reads.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct ExpressionReads {
    /// The facts it reads from the context.
    pub facts: FactSet,
    /// The tests that it makes of the path.
    pub paths: BTreeSet<FactTest>,
    /// Lists of tests, one for each condition joined by `&&`. If all tests of one list fail, the
    /// conditions are false, and their evaluation does not fail.
    pub needs: Vec<Vec<FactTest>>,
    /// The facts it reads from the content, by name.
    pub content: BTreeSet<String>,
    /// The entities whose ancestors it asks about.
    pub hierarchy: Hierarchy,
    /// Whether it may differ between two sessions of the same groups.
    pub session: bool,
    /// Whether it may differ between two users of the same session.
    pub user: bool,
}

/// The entities whose ancestors a condition asks about.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Hierarchy {
    pub principal: bool,
    pub action: bool,
    /// The resource, or the origin of a credential use.
    pub host: bool,
}

impl Hierarchy {
    const ALL: Self = Self {
        principal: true,
        action: true,
        host: true,
    };

    /// Returns the entities that `expr in …` asks about.
    fn of(expr: &Expr) -> Self {
        match expr {
            Expr::Var(Var::Principal) => Self {
                principal: true,
                ..Self::default()
            },
            Expr::Var(Var::Action) => Self {
                action: true,
                ..Self::default()
            },
            Expr::Var(Var::Resource) => Self {
                host: true,
                ..Self::default()
            },
            _ if path_of(expr).as_deref() == Some(&["origin"]) => Self {
                host: true,
                ..Self::default()
            },
            _ => Self::ALL,
        }
    }

    /// Whether there are any.
    pub fn is_asked(self) -> bool {
        self.principal || self.action || self.host
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            principal: self.principal || other.principal,
            action: self.action || other.action,
            host: self.host || other.host,
        }
    }
}

/// Why an expression cannot be analysed, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AnalysisFailure {
    pub reason: &'static str,
    pub help: &'static str,
}

impl ExpressionReads {
    /// Adds the reads of another expression.
    pub fn join(&mut self, other: &Self) {
        self.facts.extend(&other.facts);
        self.paths.extend(other.paths.iter().cloned());
        self.content.extend(other.content.iter().cloned());
        self.hierarchy = self.hierarchy.or(other.hierarchy);
        self.session |= other.session;
        self.user |= other.user;
    }
}

/// Finds the facts and entities that an expression reads.
///
/// # Errors
/// [`AnalysisFailure`] if its text does not show them, and for `has` on a fact of the content.
pub(super) fn reads_of(expr: &Expr) -> Result<ExpressionReads, AnalysisFailure> {
    let mut read = ExpressionReads::default();
    follow(expr, &mut read)?;
    Ok(read)
}

// INVARIANT: a fact that this leaves out is never read, so the context may omit it. Expressions
// that are not understood are refused.
fn follow(expr: &Expr, read: &mut ExpressionReads) -> Result<(), AnalysisFailure> {
    if let Some(path) = path_of(expr) {
        return take(&path, read);
    }
    if let Some((fact, tests)) = fact_tests(expr).filter(|(fact, _)| LOOKED_UP.contains(fact)) {
        read.facts.insert(fact);
        read.paths.extend(tests);
        return Ok(());
    }
    match expr {
        Expr::Literal(literal) => {
            // Only the session of the request is in its groups, so the same question differs by
            // session. The same holds for its user.
            read.session |= is_entity(literal, "Session");
            read.user |= is_entity(literal, "User");
            Ok(())
        }
        Expr::Var(Var::Context) => Err(WHOLE_CONTEXT),
        Expr::Var(Var::Principal) => {
            read.session = true;
            Ok(())
        }
        Expr::Var(_) => Ok(()),
        Expr::HasAttr { expr, attrs } => match path_of(expr) {
            Some(mut path) => {
                path.extend(attrs.iter().map(|attr| attr.as_str()));
                match path.first() {
                    Some(first) if is_of_content(first) => Err(HAS_CONTENT),
                    _ => take(&path, read),
                }
            }
            None if is_context(expr) && is_of_content(attrs.first()) => Err(HAS_CONTENT),
            None if is_context(expr) => take(&[attrs.first().as_str()], read),
            None => follow(expr, read),
        },
        Expr::UnaryOp { expr, .. } | Expr::GetAttr { expr, .. } | Expr::Like { expr, .. } => {
            follow(expr, read)
        }
        Expr::BinaryOp { op, left, right } => {
            if *op == BinaryOp::In {
                read.hierarchy = read.hierarchy.or(Hierarchy::of(left));
            }
            // The groups and the user of the request decide this.
            let by_parents = *op == BinaryOp::In && is_principal(left) && is_parent(right);
            if !by_parents {
                follow(left, read)?;
            }
            follow(right, read)
        }
        Expr::Is { expr, in_expr, .. } => {
            if in_expr.is_some() {
                read.hierarchy = read.hierarchy.or(Hierarchy::of(expr));
            }
            // Every principal is a session, so `is` is decided.
            if !is_principal(expr) || !in_expr.as_deref().is_none_or(is_parent) {
                follow(expr, read)?;
            }
            in_expr.iter().try_for_each(|inner| follow(inner, read))
        }
        Expr::IfThenElse {
            cond,
            then_expr,
            else_expr,
        } => [cond, then_expr, else_expr]
            .into_iter()
            .try_for_each(|part| follow(part, read)),
        Expr::Set(members) => members.iter().try_for_each(|member| follow(member, read)),
        Expr::Record(members) => members.values().try_for_each(|member| follow(member, read)),
        _ => Err(UNKNOWN),
    }
}

/// Returns the attributes that lead from the context to a value. `None` if the expression is not
/// such a path.
pub(super) fn path_of(expr: &Expr) -> Option<Vec<&str>> {
    let Expr::GetAttr { expr, attr } = expr else {
        return None;
    };
    let mut path = match &**expr {
        Expr::Var(Var::Context) => Vec::new(),
        inner => path_of(inner)?,
    };
    path.push(attr);
    Some(path)
}

/// Returns the tests that an expression makes of a fact, if it does nothing else with it.
pub(super) fn fact_tests(expr: &Expr) -> Option<(Fact, Vec<FactTest>)> {
    match expr {
        Expr::BinaryOp { op, left, right } => match path_of(left) {
            Some(path) => FactTest::of(&path, *op, right),
            // These mean the same with their sides exchanged; or the list is on the left.
            None if *op != BinaryOp::ContainsAll => FactTest::of(&path_of(right)?, *op, left),
            None => None,
        },
        Expr::Like { expr, pattern } if path_of(expr)? == ["path"] => {
            Some((Fact::Path, vec![FactTest::like(pattern)]))
        }
        _ => None,
    }
}

fn take(path: &[&str], read: &mut ExpressionReads) -> Result<(), AnalysisFailure> {
    match path {
        ["depth"] => drop(read.paths.insert(FactTest::Depth)),
        [name, ..] if Fact::named(name).any(|fact| fact.row().input == Input::Path) => {
            read.paths.insert(FactTest::Whole);
        }
        _ => {}
    }
    match path {
        [record] if is_of_content(record) => return Err(WHOLE_CONTENT),
        ["content", name, ..] => {
            read.content.insert((*name).to_owned());
            read.facts.insert(Fact::Content);
        }
        [record, name, ..] if is_of_content(record) => {
            let name = format!("{record}.{name}");
            // Reading a part of the content reads the content.
            read.facts.extend(Fact::named(&name).chain([Fact::Content]));
            read.content.insert(name);
        }
        [record, name, ..] if Fact::named(&format!("{record}.{name}")).next().is_some() => {
            read.facts.extend(Fact::named(&format!("{record}.{name}")));
        }
        // An attribute that is not in the schema fails validation.
        [name, ..] => read.facts.extend(Fact::named(name)),
        [] => return Err(WHOLE_CONTEXT),
    }
    Ok(())
}

/// Whether a fact is made from the content, or all facts of a record are.
fn is_of_content(name: &str) -> bool {
    Fact::named(name).any(Fact::is_of_content)
}

fn is_context(expr: &Expr) -> bool {
    matches!(expr, Expr::Var(Var::Context))
}

fn is_principal(expr: &Expr) -> bool {
    matches!(expr, Expr::Var(Var::Principal))
}

/// Whether an expression names a group or a user.
fn is_parent(expr: &Expr) -> bool {
    let is_one = |literal| {
        ["Group", "User"]
            .iter()
            .any(|kind| is_entity(literal, kind))
    };
    matches!(expr, Expr::Literal(literal) if is_one(literal))
}

fn is_entity(literal: &Literal, kind: &str) -> bool {
    matches!(literal, Literal::EntityUID(uid) if uid.ty.0.id.as_str() == kind)
}

const WHOLE_CONTEXT: AnalysisFailure = AnalysisFailure {
    reason: "the context is used as a whole",
    help: "name the attribute: `context.path`",
};
const WHOLE_CONTENT: AnalysisFailure = AnalysisFailure {
    reason: "the content is used as a whole",
    help: "name the fact: `context.content.NAME`, `context.graphql.fields`",
};
const HAS_CONTENT: AnalysisFailure = AnalysisFailure {
    reason: "`has` asks whether a fact of the content was read",
    help: "leave it out: a fact that is missing, doubled or of another type fails where it is read, and a policy that fails denies; with `has` a `forbid` would not apply",
};
const UNKNOWN: AnalysisFailure = AnalysisFailure {
    reason: "this expression is not supported",
    help: "write it with the operators of docs/policy.md",
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::FACTS;

    fn read(condition: &str) -> Result<ExpressionReads, AnalysisFailure> {
        let text = format!("permit(principal, action, resource) when {{ {condition} }};");
        let policy: cedar_policy::Policy = text.parse().unwrap();
        let pst = policy.to_pst().unwrap();
        let mut read = ExpressionReads::default();
        for clause in pst.body().clauses() {
            let (cedar_policy::pst::Clause::When(one) | cedar_policy::pst::Clause::Unless(one)) =
                clause;
            read.join(&reads_of(one)?);
        }
        Ok(read)
    }

    fn facts(condition: &str) -> Vec<Fact> {
        read(condition).unwrap().facts.into_iter().collect()
    }

    #[test]
    fn every_fact_of_the_path_is_in_the_key_of_a_verdict() {
        for row in FACTS.iter().filter(|row| row.input == Input::Path) {
            let read = read(&format!("context.{0} == context.{0}", row.name)).unwrap();
            let tests: Vec<_> = read.paths.into_iter().collect();
            match row.fact {
                Fact::Depth => assert_eq!(tests, [FactTest::Depth]),
                _ => assert_eq!(tests, [FactTest::Whole], "{}", row.name),
            }
        }
    }

    #[test]
    fn reading_one_fact_reads_no_other() {
        let condition = "context.port == 443 && !(!context.secure)";
        assert_eq!(facts(condition), [Fact::Secure, Fact::Port]);
        assert_eq!(
            facts("context.query.any.contains(\"a=b\")"),
            [Fact::QueryAny]
        );
        assert_eq!(facts("context has port"), [Fact::Port]);
        assert_eq!(
            facts("context.origin == Gateway::Host::\"a.b\""),
            [Fact::Origin]
        );
        let whole = "context.query == context.query";
        assert_eq!(
            facts(whole),
            [Fact::QueryAny, Fact::QueryUnique, Fact::QueryNames]
        );
    }

    #[test]
    fn facts_of_the_content_are_read_by_name() {
        let read = read("context.content.amount > 5 && context.content.model like \"a*\"").unwrap();
        assert_eq!(read.facts, FactSet::from([Fact::Content]));
        assert_eq!(Vec::from_iter(read.content), ["amount", "model"]);
        let read = super::tests::read("context.graphql.fields.contains(\"query.a\")").unwrap();
        assert_eq!(
            read.facts,
            FactSet::from([Fact::Content, Fact::GraphqlFields])
        );
        assert_eq!(Vec::from_iter(read.content), ["graphql.fields"]);
    }

    #[test]
    fn what_entities_are_in_is_asked_by_in_alone() {
        let asked = |condition: &str| {
            let asked = read(condition).unwrap().hierarchy;
            (asked.principal, asked.action, asked.host)
        };
        for (condition, expected) in [
            ("resource in Gateway::Domain::\"a.b\"", (false, false, true)),
            (
                "context.origin in Gateway::Domain::\"a.b\"",
                (false, false, true),
            ),
            ("action in Gateway::Action::\"read\"", (false, true, false)),
            (
                "principal is Gateway::Session in Gateway::Group::\"g\"",
                (true, false, false),
            ),
            ("Gateway::Host::\"a.b\" in resource", (true, true, true)),
            (
                "context.origin == Gateway::Host::\"a.b\"",
                (false, false, false),
            ),
        ] {
            assert_eq!(asked(condition), expected, "{condition}");
        }
    }

    #[test]
    fn sessions_of_the_same_groups_differ_only_where_the_session_is_read() {
        for (condition, expected) in [
            ("context.port == 443", false),
            ("principal in Gateway::Group::\"g\"", false),
            ("!(principal in Gateway::Group::\"g\")", false),
            ("principal is Gateway::Session", false),
            (
                "principal is Gateway::Session in Gateway::Group::\"g\"",
                false,
            ),
            ("principal == Gateway::Session::\"s\"", true),
            ("principal in Gateway::Session::\"s\"", true),
            (
                "principal in [Gateway::Group::\"g\", Gateway::Session::\"s\"]",
                true,
            ),
            ("Gateway::Session::\"s\" in principal", true),
            ("Gateway::Session::\"s\" in Gateway::Group::\"g\"", true),
            (
                "Gateway::Session::\"s\" is Gateway::Session in Gateway::Group::\"g\"",
                true,
            ),
            (
                "(if true then principal else principal) in Gateway::Group::\"g\"",
                true,
            ),
            ("[principal].contains(Gateway::Session::\"s\")", true),
            ("{ a: principal }.a == Gateway::Session::\"s\"", true),
        ] {
            assert_eq!(read(condition).unwrap().session, expected, "{condition}");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        for (condition, refused) in [
            ("[context].contains(context)", WHOLE_CONTEXT),
            (
                "(if true then context else context).port == 1",
                WHOLE_CONTEXT,
            ),
            ("[context.content].contains(context.content)", WHOLE_CONTENT),
            ("{ a: context.content }.a.amount == 1", WHOLE_CONTENT),
            ("context has content", HAS_CONTENT),
            ("context.content has amount", HAS_CONTENT),
            ("context has content.amount", HAS_CONTENT),
            ("context[\"content\"] has \"amount\"", HAS_CONTENT),
            ("context.graphql == context.graphql", WHOLE_CONTENT),
            ("context has graphql", HAS_CONTENT),
            ("context.graphql has fields", HAS_CONTENT),
            ("context has graphql.fields", HAS_CONTENT),
        ] {
            assert_eq!(read(condition), Err(refused), "{condition}");
        }
    }
}
