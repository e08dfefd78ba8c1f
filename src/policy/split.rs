//! Splits conditions into those that read the head of a request and those that read its content.

use std::sync::Arc;

use cedar_policy::pst::{BinaryOp, Clause, Expr, UnaryOp};

use super::reads::{NotRead, Read, reads_of};

/// The conditions of a policy, joined by `&&` in this order.
///
/// Conditions on the head come before those on content. So a request that the head already rules
/// out is judged without its content, and a missing fact causes an error only if it is reached.
#[derive(Debug)]
pub(super) struct Conditions {
    pub head: Vec<Arc<Expr>>,
    pub content: Vec<Arc<Expr>>,
    pub reads: Read,
    /// What the conditions on the head read.
    pub head_reads: Read,
}

impl Conditions {
    /// Splits clauses.
    ///
    /// # Errors
    /// [`NotRead`] if a clause reads the context in a way that cannot be analysed.
    pub fn of(clauses: &[Clause]) -> Result<Self, NotRead> {
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
            reads: Read::default(),
            head_reads: Read::default(),
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
        Ok(parts)
    }

    /// All conditions, as clauses.
    pub fn whole(&self) -> impl Iterator<Item = Clause> {
        let all = self.head.iter().chain(&self.content);
        all.cloned().map(Clause::When)
    }

    /// The conditions on the head, as clauses.
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
