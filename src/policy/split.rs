//! Splits conditions into those that read the head of a request and those that read its content.

use std::sync::Arc;

use cedar_policy::pst::{BinaryOp, Clause, Expr, UnaryOp, Var};

use super::fact_test::FactTest;
use super::reads::{AnalysisFailure, ExpressionReads, fact_tests, path_of, reads_of};

/// The conditions of a policy, joined by `&&` in this order.
///
/// Conditions on the head come before those on content. So a request that the head already rules
/// out is judged without its content, and a missing fact causes an error only if it is reached.
#[derive(Debug)]
pub(super) struct Conditions {
    pub head: Vec<Arc<Expr>>,
    pub content: Vec<Arc<Expr>>,
    pub reads: ExpressionReads,
    /// The facts and entities that the conditions on the head read.
    pub head_reads: ExpressionReads,
}

impl Conditions {
    /// Splits clauses.
    ///
    /// # Errors
    /// [`AnalysisFailure`] if a clause reads the context in a way that cannot be analysed.
    pub fn of(clauses: &[Clause]) -> Result<Self, AnalysisFailure> {
        let mut all = Vec::new();
        for clause in clauses {
            match clause {
                Clause::When(condition) => conjuncts(condition, false, &mut all),
                Clause::Unless(condition) => conjuncts(condition, true, &mut all),
            }
        }
        let mut parts = Self {
            head: Vec::new(),
            content: Vec::new(),
            reads: ExpressionReads::default(),
            head_reads: ExpressionReads::default(),
        };
        for one in all {
            let read = reads_of(&one)?;
            if read.content.is_empty() {
                parts.head_reads.join(&read);
                parts.head.push(one);
            } else {
                parts.content.push(one);
            }
            parts.reads.join(&read);
        }
        let needs = all_needed(&parts.head);
        parts.head_reads.needs.clone_from(&needs);
        parts.reads.needs = needs;
        Ok(parts)
    }

    /// Returns all conditions, as clauses.
    pub fn whole(&self) -> impl Iterator<Item = Clause> {
        let all = self.head.iter().chain(&self.content);
        all.cloned().map(Clause::When)
    }

    /// Returns the conditions on the head, as clauses.
    pub fn guard(&self) -> impl Iterator<Item = Clause> {
        self.head.iter().cloned().map(Clause::When)
    }
}

/// Splits at `&&`, and at a negated `||`. Both are evaluated left to right and stop at the first
/// part that decides, so the parts in sequence mean the same.
fn conjuncts(expr: &Arc<Expr>, negated: bool, out: &mut Vec<Arc<Expr>>) {
    match (&**expr, negated) {
        (Expr::BinaryOp { op, left, right }, _)
            if *op == if negated { BinaryOp::Or } else { BinaryOp::And } =>
        {
            conjuncts(left, negated, out);
            conjuncts(right, negated, out);
        }
        (
            Expr::UnaryOp {
                op: UnaryOp::Not,
                expr,
            },
            _,
        ) => conjuncts(expr, !negated, out),
        (_, false) => out.push(Arc::clone(expr)),
        (_, true) => out.push(Arc::new(Expr::UnaryOp {
            op: UnaryOp::Not,
            expr: Arc::clone(expr),
        })),
    }
}

/// Returns the tests that conditions need, evaluated in this order, up to the first that may fail.
fn all_needed(conditions: &[Arc<Expr>]) -> Vec<Vec<FactTest>> {
    let mut all = Vec::new();
    for one in conditions {
        all.extend(needed(one));
        if may_fail(one) {
            break;
        }
    }
    all
}

/// Returns lists of tests. If all tests of one list fail, the condition is false, and its
/// evaluation does not fail.
fn needed(condition: &Arc<Expr>) -> Vec<Vec<FactTest>> {
    match &**condition {
        Expr::BinaryOp {
            op: BinaryOp::And,
            left,
            right,
        } => all_needed(&[left.clone(), right.clone()]),
        Expr::BinaryOp {
            op: BinaryOp::Or,
            left,
            right,
        } => {
            let (left, right) = (needed(left), needed(right));
            let either = left.into_iter().zip(right).next();
            let joined = either.map(|(left, right)| [left, right].concat());
            joined.into_iter().collect()
        }
        expr @ (Expr::BinaryOp { .. } | Expr::Like { .. }) => {
            let tests = fact_tests(expr).filter(|(fact, _)| !fact.is_of_content());
            let tests = tests.map_or_else(Vec::new, |(_, tests)| tests);
            match expr {
                Expr::BinaryOp { op, .. } if *op == BinaryOp::NotEq => Vec::new(),
                Expr::BinaryOp { op, .. } if *op == BinaryOp::ContainsAll => {
                    tests.into_iter().map(|one| vec![one]).collect()
                }
                _ if tests.is_empty() => Vec::new(),
                _ => vec![tests],
            }
        }
        _ => Vec::new(),
    }
}

/// Whether the evaluation of a condition on the head may fail. A valid condition fails only by
/// arithmetic, by extensions and by missing attributes. Of the context's attributes, only those of
/// content may be missing.
fn may_fail(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(_) => false,
        Expr::Var(var) => *var == Var::Context,
        Expr::GetAttr { .. } => path_of(expr).is_none(),
        Expr::Like { expr, .. }
        | Expr::UnaryOp {
            op: UnaryOp::Not | UnaryOp::IsEmpty,
            expr,
        } => may_fail(expr),
        Expr::BinaryOp { op, left, right } => {
            !NEVER_FAIL.contains(op) || may_fail(left) || may_fail(right)
        }
        Expr::Is { expr, in_expr, .. } => {
            may_fail(expr) || in_expr.as_deref().is_some_and(may_fail)
        }
        Expr::Set(all) => all.iter().any(|one| may_fail(one)),
        _ => true,
    }
}

/// The operators that do not fail on values of the types that the validator demands.
const NEVER_FAIL: [BinaryOp; 12] = [
    BinaryOp::And,
    BinaryOp::Or,
    BinaryOp::Eq,
    BinaryOp::NotEq,
    BinaryOp::Less,
    BinaryOp::LessEq,
    BinaryOp::Greater,
    BinaryOp::GreaterEq,
    BinaryOp::In,
    BinaryOp::Contains,
    BinaryOp::ContainsAll,
    BinaryOp::ContainsAny,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> (Vec<String>, Vec<String>) {
        let policy: cedar_policy::Policy = text.parse().unwrap();
        let parts = Conditions::of(policy.to_pst().unwrap().body().clauses()).unwrap();
        let show = |all: &[Arc<Expr>]| all.iter().map(ToString::to_string).collect();
        (show(&parts.head), show(&parts.content))
    }

    #[test]
    fn conditions_of_the_head_are_moved_before_those_of_content() {
        let (head, content) = shown(
            "permit(principal, action, resource)
             when { context.content.a > 1 && context.port == 443 && context.content.b < 2 }
             unless { context.content.c || !(context.secure && context.depth > 1) }
             when { context.path == \"/x\" || context.content.d };",
        );
        assert_eq!(
            head,
            ["context.port == 443", "context.secure", "context.depth > 1"]
        );
        assert_eq!(content.len(), 4, "{content:?}");
    }

    #[test]
    fn a_condition_that_is_not_joined_by_and_stays_whole() {
        let (head, content) = shown(
            "forbid(principal, action, resource)
             when { context.secure || context.port == 1 }
             when { if context.content.a > 1 then context.secure else false };",
        );
        assert_eq!((head.len(), content.len()), (1, 1));
    }
}
