//! One policy as the index needs it: its scope taken apart, and the context attributes that it
//! reads.

use cedar_policy::pst::{self, EntityOrSlot, Expr, Var};
use cedar_policy::{
    ActionConstraint, Effect, EntityTypeName, EntityUid, Policy, PrincipalConstraint,
    ResourceConstraint,
};

use super::attribute::{Attribute, Attributes};
use super::schema::{Actions, CREDENTIAL, DOMAIN, GROUP, HOST, SESSION};
use crate::names::PolicyId;

/// A loaded policy.
#[derive(Debug)]
pub(super) struct Rule {
    pub id: PolicyId,
    /// The policy itself, under the same id.
    pub cedar: Policy,
    pub permits: bool,
    /// The actions that the scope can match, as far as its resource's type allows them.
    pub actions: Actions,
    pub principal: Who,
    pub resource: What,
    /// What the conditions read of the context.
    pub reads: Attributes,
    /// Whether there is any condition beside the scope.
    pub conditional: bool,
}

/// Whom a scope names.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Who {
    Anyone,
    Session(String),
    Group(String),
    /// What no principal is.
    Nobody,
}

/// What a scope names.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum What {
    Anything,
    Host(String),
    Domain(String),
    Credential(String),
    /// What no resource is.
    Nothing,
}

impl Rule {
    /// Takes a policy apart.
    pub fn new(id: PolicyId, cedar: Policy, body: &pst::Template) -> Self {
        let (resource, typed) = what(&cedar.resource_constraint());
        let mut reads = Attributes::NONE;
        for clause in body.clauses() {
            let (pst::Clause::When(condition) | pst::Clause::Unless(condition)) = clause;
            reads = reads.or(reads_of(condition));
        }
        Self {
            permits: cedar.effect() == Effect::Permit,
            actions: actions(&cedar.action_constraint()).and(typed),
            principal: who(&cedar.principal_constraint()),
            conditional: !body.clauses().is_empty(),
            resource,
            reads,
            cedar,
            id,
        }
    }
}

fn actions(constraint: &ActionConstraint) -> Actions {
    match constraint {
        ActionConstraint::Any => Actions::ALL,
        ActionConstraint::Eq(action) => Actions::named(action.id().unescaped(), false),
        ActionConstraint::In(actions) => Actions::union(
            actions
                .iter()
                .map(|action| Actions::named(action.id().unescaped(), true)),
        ),
    }
}

fn who(constraint: &PrincipalConstraint) -> Who {
    match constraint {
        PrincipalConstraint::Any => Who::Anyone,
        PrincipalConstraint::Is(kind) if *kind == *SESSION => Who::Anyone,
        PrincipalConstraint::Eq(one) if *one.type_name() == *SESSION => Who::Session(id(one)),
        PrincipalConstraint::In(one) => who_in(one),
        PrincipalConstraint::IsIn(kind, one) if *kind == *SESSION => who_in(one),
        _ => Who::Nobody,
    }
}

// `in` is reflexive: a session is in itself.
fn who_in(one: &EntityUid) -> Who {
    if *one.type_name() == *SESSION {
        Who::Session(id(one))
    } else if *one.type_name() == *GROUP {
        Who::Group(id(one))
    } else {
        Who::Nobody
    }
}

/// What the scope names, and the actions whose resource it can be.
fn what(constraint: &ResourceConstraint) -> (What, Actions) {
    match constraint {
        ResourceConstraint::Any => (What::Anything, Actions::ALL),
        ResourceConstraint::Is(kind) => (What::Anything, actions_on(kind)),
        ResourceConstraint::Eq(one) if *one.type_name() == *DOMAIN => (What::Nothing, Actions::ALL),
        ResourceConstraint::Eq(one) | ResourceConstraint::In(one) => what_in(one),
        ResourceConstraint::IsIn(kind, one) => {
            let (what, actions) = what_in(one);
            (what, actions.and(actions_on(kind)))
        }
    }
}

fn what_in(one: &EntityUid) -> (What, Actions) {
    let kind = one.type_name();
    if *kind == *HOST {
        (What::Host(id(one)), Actions::ASK)
    } else if *kind == *DOMAIN {
        (What::Domain(id(one)), Actions::ASK)
    } else if *kind == *CREDENTIAL {
        (What::Credential(id(one)), actions_on(kind))
    } else {
        (What::Nothing, Actions::ALL)
    }
}

fn actions_on(kind: &EntityTypeName) -> Actions {
    if *kind == *HOST {
        Actions::ASK
    } else if *kind == *CREDENTIAL {
        Actions::ALL.without(Actions::ASK)
    } else {
        Actions::union([])
    }
}

fn id(one: &EntityUid) -> String {
    one.id().unescaped().to_owned()
}

/// The context attributes that an expression can read; all of them where the context is used as a
/// whole.
fn reads_of(expr: &Expr) -> Attributes {
    // INVARIANT: an attribute that this leaves out is never looked at, so the context may come
    // without it. What is not understood reads everything.
    match expr {
        Expr::Var(Var::Context) => Attributes::ALL,
        Expr::Literal(_) | Expr::Var(_) => Attributes::NONE,
        Expr::GetAttr { expr, attr } if is_context(expr) => one_named(attr),
        Expr::HasAttr { expr, attrs } if is_context(expr) => one_named(attrs.first()),
        Expr::UnaryOp { expr, .. }
        | Expr::GetAttr { expr, .. }
        | Expr::HasAttr { expr, .. }
        | Expr::Like { expr, .. } => reads_of(expr),
        Expr::BinaryOp { left, right, .. } => reads_of(left).or(reads_of(right)),
        Expr::Is { expr, in_expr, .. } => in_expr
            .iter()
            .fold(reads_of(expr), |reads, inner| reads.or(reads_of(inner))),
        Expr::IfThenElse {
            cond,
            then_expr,
            else_expr,
        } => reads_of(cond)
            .or(reads_of(then_expr))
            .or(reads_of(else_expr)),
        Expr::Set(members) => members
            .iter()
            .fold(Attributes::NONE, |reads, member| reads.or(reads_of(member))),
        Expr::Record(members) => members
            .values()
            .fold(Attributes::NONE, |reads, member| reads.or(reads_of(member))),
        _ => Attributes::ALL,
    }
}

fn is_context(expr: &Expr) -> bool {
    matches!(expr, Expr::Var(Var::Context))
}

fn one_named(name: &str) -> Attributes {
    let mut reads = Attributes::NONE;
    match Attribute::named(name) {
        Some(attribute) => reads.add(attribute),
        None => reads = Attributes::ALL,
    }
    reads
}

/// The entity that a scope names, if it names one.
pub(super) fn scope_entity(resource: &pst::ResourceConstraint) -> Option<&pst::EntityUID> {
    match resource {
        pst::ResourceConstraint::Eq(EntityOrSlot::Entity(one))
        | pst::ResourceConstraint::In(EntityOrSlot::Entity(one))
        | pst::ResourceConstraint::IsIn(_, EntityOrSlot::Entity(one)) => Some(one),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        let cedar: Policy = text.parse().unwrap();
        let body = cedar.to_pst().unwrap();
        Rule::new(PolicyId::new("p").unwrap(), cedar, body.body())
    }

    #[test]
    fn reading_one_attribute_reads_no_other() {
        let rule = rule(
            r#"permit(principal, action, resource) when { context.port == 443 } unless { !context.secure };"#,
        );
        let names: Vec<_> = rule.reads.iter().map(Attribute::name).collect();
        assert_eq!(names, ["secure", "port"]);
    }

    #[test]
    fn the_whole_context_reads_everything() {
        let rule =
            rule(r#"permit(principal, action, resource) when { [context].contains({a: 1}) };"#);
        assert_eq!(rule.reads, Attributes::ALL);
    }

    #[test]
    fn an_entity_in_the_context_is_read_through() {
        let rule =
            rule(r#"permit(principal, action, resource) when { context.origin.name == "a.b" };"#);
        assert_eq!(rule.reads.iter().collect::<Vec<_>>(), [Attribute::Origin]);
    }

    #[test]
    fn a_scope_is_taken_apart_by_its_meaning() {
        let rule = |scope: &str| rule(&format!("permit({scope});"));
        assert_eq!(
            rule("principal is Gateway::Session, action, resource").principal,
            Who::Anyone
        );
        assert_eq!(
            rule("principal is Gateway::Group, action, resource").principal,
            Who::Nobody
        );
        assert_eq!(
            rule(r#"principal == Gateway::Group::"g", action, resource"#).principal,
            Who::Nobody
        );
        assert_eq!(
            rule(r#"principal in Gateway::Group::"g", action, resource"#).principal,
            Who::Group("g".into())
        );
        assert_eq!(
            rule(r#"principal, action, resource == Gateway::Domain::"a.b""#).resource,
            What::Nothing
        );
        assert_eq!(
            rule("principal, action, resource is Gateway::Host").actions,
            Actions::ASK
        );
        let crossed =
            rule(r#"principal, action, resource is Gateway::Credential in Gateway::Domain::"a.b""#);
        assert!(crossed.actions.is_empty());
    }
}
