//! One policy, split for judging: its scope for the index, its conditions for Cedar.

use std::collections::BTreeSet;
use std::sync::Arc;

use cedar_policy::pst::{self, Clause, EntityOrSlot};
use cedar_policy::{
    ActionConstraint, Effect, EntityTypeName, EntityUid, Policy, PrincipalConstraint,
    ResourceConstraint,
};
use gateway_names::PolicyId;

use super::fact::Fact;
use super::reads::{AnalysisFailure, ExpressionReads};
use super::schema::{Action, Actions, CREDENTIAL, DOMAIN, GROUP, HOST, SESSION, SIGNING_KEY, USER};
use super::split::Conditions;

/// A loaded policy.
#[derive(Debug)]
pub(super) struct Rule {
    pub id: PolicyId,
    pub permits: bool,
    /// The actions that the scope can match, limited to those its resource's type allows.
    pub actions: Actions,
    pub principal: Principals,
    pub resource: Resources,
    /// The facts and entities that the conditions read.
    pub reads: ExpressionReads,
    /// Whether there are any conditions besides the scope.
    pub conditional: bool,
    /// The conditions, with an open scope since the index has matched it. Named by the policy's
    /// number.
    pub judged: Policy,
    /// If the policy reads content, or asks about it: its conditions on the head, as a permit.
    pub guard: Option<HeadGuard>,
    /// What lifts it for one request.
    pub lift: Option<Lift>,
    /// The label of the session whose request it permits.
    pub label: Option<Arc<str>>,
}

/// What lifts a forbid for one request.
#[derive(Debug)]
pub(super) enum Lift {
    /// A person, who is asked this.
    Ask(Arc<str>),
    /// A budget of this name, while it lasts.
    Budget(Arc<str>),
}

/// The part of a policy that can be judged before content is read.
#[derive(Debug)]
pub(super) struct HeadGuard {
    pub judged: Policy,
    pub reads: ExpressionReads,
}

/// The principals that a scope matches.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Principals {
    Anyone,
    Session(String),
    Group(String),
    User(String),
    /// Matches no principal.
    Nobody,
}

/// The resources that a scope matches.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Resources {
    Anything,
    Host(String),
    Domain(String),
    Credential(String),
    SigningKey(String),
    /// Matches no resource.
    None,
}

impl Rule {
    /// Splits a policy. `number` is its position among all policies, and `counts_content` says of a
    /// budget whether it counts what the content of a request asks for.
    ///
    /// # Errors
    /// [`AnalysisFailure`] if its conditions cannot be analysed.
    pub fn new(
        number: usize,
        id: PolicyId,
        cedar: &Policy,
        body: &pst::Template,
        counts_content: impl Fn(&str) -> bool,
    ) -> Result<Self, AnalysisFailure> {
        let mut conditions = Conditions::of(body.clauses())?;
        let (resource, typed) = what(&cedar.resource_constraint());
        let text = |name| cedar.annotation(name).map(Arc::from);
        let budget = text("budget");
        // An answer is for this content alone, and some budgets count what the content asks for.
        let reads_content =
            cedar.annotation("ask").is_some() || budget.as_deref().is_some_and(counts_content);
        let lift = text("ask").map(Lift::Ask);
        let lift = lift.or_else(|| budget.map(Lift::Budget));
        if reads_content {
            conditions.reads.facts.insert(Fact::Content);
        }
        let guard = (reads_content || !conditions.content.is_empty()).then(|| HeadGuard {
            judged: open(number, pst::Effect::Permit, conditions.guard()),
            reads: conditions.head_reads.clone(),
        });
        Ok(Self {
            permits: cedar.effect() == Effect::Permit,
            actions: actions(&cedar.action_constraint()).and(typed),
            principal: who(&cedar.principal_constraint()),
            conditional: lift.is_some() || !body.clauses().is_empty(),
            judged: open(number, body.effect, conditions.whole()),
            reads: conditions.reads,
            resource,
            guard,
            lift,
            label: text("label"),
            id,
        })
    }

    /// The sessions, groups and credentials that it names, by type.
    pub fn entities(&self) -> BTreeSet<(&'static str, String)> {
        let entities = self.judged.entity_literals();
        let inside = entities.iter().filter_map(|one| {
            let kinds = [
                (&SESSION, "session"),
                (&GROUP, "group"),
                (&CREDENTIAL, "credential"),
            ];
            let kind = kinds.iter().find(|(kind, _)| *one.type_name() == ***kind)?;
            Some((kind.1, id(one)))
        });
        let principal = match &self.principal {
            Principals::Session(id) => Some(("session", id.clone())),
            Principals::Group(id) => Some(("group", id.clone())),
            _ => None,
        };
        let resource = match &self.resource {
            Resources::Credential(id) => Some(("credential", id.clone())),
            _ => None,
        };
        inside.chain(principal).chain(resource).collect()
    }

    /// Whether a condition reads content.
    pub fn reads_content(&self) -> bool {
        self.guard.is_some()
    }
}

/// Makes a policy from these clauses with an open scope, named by its number.
pub(super) fn open(
    number: usize,
    effect: pst::Effect,
    clauses: impl Iterator<Item = Clause>,
) -> Policy {
    let template = pst::Template::new(
        number.to_string().as_str(),
        effect,
        pst::PrincipalConstraint::Any,
        pst::ActionConstraint::Any,
        pst::ResourceConstraint::Any,
    );
    let policy = template
        .try_with_clauses(clauses)
        .map(|template| pst::StaticPolicy::try_from(template).map(pst::Policy::Static));
    let Ok(Ok(policy)) = policy else {
        unreachable!("the clauses are those of a policy, and the scope has no slots");
    };
    let policy = Policy::from_pst(policy).expect("the clauses are those of a policy");
    // Drop the source text: rule sets hold clones of the policy.
    Policy::from(policy.as_ref().clone())
}

fn actions(constraint: &ActionConstraint) -> Actions {
    let named = |action: &EntityUid, grouped| Actions::named(action.id().unescaped(), grouped);
    match constraint {
        ActionConstraint::Any => Actions::ALL,
        ActionConstraint::Eq(action) => named(action, false),
        ActionConstraint::In(all) => Actions::union(all.iter().map(|one| named(one, true))),
    }
}

fn who(constraint: &PrincipalConstraint) -> Principals {
    match constraint {
        PrincipalConstraint::Any => Principals::Anyone,
        PrincipalConstraint::Is(kind) if *kind == *SESSION => Principals::Anyone,
        PrincipalConstraint::Eq(it) if *it.type_name() == *SESSION => Principals::Session(id(it)),
        PrincipalConstraint::In(one) => who_in(one),
        PrincipalConstraint::IsIn(kind, one) if *kind == *SESSION => who_in(one),
        _ => Principals::Nobody,
    }
}

// `in` is reflexive: a session is in itself. It is also in its caller's user.
fn who_in(one: &EntityUid) -> Principals {
    if *one.type_name() == *SESSION {
        Principals::Session(id(one))
    } else if *one.type_name() == *GROUP {
        Principals::Group(id(one))
    } else if *one.type_name() == *USER {
        Principals::User(id(one))
    } else {
        Principals::Nobody
    }
}

/// Returns the resources that the scope matches, and the actions that can apply to them.
fn what(constraint: &ResourceConstraint) -> (Resources, Actions) {
    match constraint {
        ResourceConstraint::Any => (Resources::Anything, Actions::ALL),
        ResourceConstraint::Is(kind) => (Resources::Anything, actions_on(kind)),
        ResourceConstraint::Eq(it) if *it.type_name() == *DOMAIN => (Resources::None, Actions::ALL),
        ResourceConstraint::Eq(one) | ResourceConstraint::In(one) => what_in(one),
        ResourceConstraint::IsIn(kind, one) => {
            let (what, actions) = what_in(one);
            (what, actions.and(actions_on(kind)))
        }
    }
}

fn what_in(one: &EntityUid) -> (Resources, Actions) {
    let kind = one.type_name();
    if *kind == *HOST {
        (Resources::Host(id(one)), Actions::ANY)
    } else if *kind == *DOMAIN {
        (Resources::Domain(id(one)), Actions::ANY)
    } else if *kind == *CREDENTIAL {
        (Resources::Credential(id(one)), actions_on(kind))
    } else if *kind == *SIGNING_KEY {
        (Resources::SigningKey(id(one)), actions_on(kind))
    } else {
        (Resources::None, Actions::ALL)
    }
}

fn actions_on(kind: &EntityTypeName) -> Actions {
    if *kind == *HOST {
        Actions::ANY
    } else if *kind == *CREDENTIAL {
        Actions::named(Action::Lend.as_str(), false)
    } else if *kind == *SIGNING_KEY {
        Actions::named(Action::Sign.as_str(), false)
    } else {
        Actions::union([])
    }
}

fn id(one: &EntityUid) -> String {
    one.id().unescaped().to_owned()
}

/// Returns the entity that a scope names, if any.
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
        let id = PolicyId::new("p").unwrap();
        Rule::new(0, id, &cedar, body.body(), |_| false).unwrap()
    }

    #[test]
    fn a_scope_is_taken_apart_by_its_meaning() {
        let rule = |scope: &str| rule(&format!("permit({scope});"));
        assert_eq!(
            rule("principal is Gateway::Session, action, resource").principal,
            Principals::Anyone
        );
        assert_eq!(
            rule("principal is Gateway::Group, action, resource").principal,
            Principals::Nobody
        );
        assert_eq!(
            rule(r#"principal == Gateway::Group::"g", action, resource"#).principal,
            Principals::Nobody
        );
        assert_eq!(
            rule(r#"principal in Gateway::Group::"g", action, resource"#).principal,
            Principals::Group("g".into())
        );
        assert_eq!(
            rule(r#"principal in Gateway::User::"u", action, resource"#).principal,
            Principals::User("u".into())
        );
        assert_eq!(
            rule(r#"principal == Gateway::User::"u", action, resource"#).principal,
            Principals::Nobody
        );
        assert_eq!(
            rule(r#"principal, action, resource == Gateway::Domain::"a.b""#).resource,
            Resources::None
        );
        assert_eq!(
            rule("principal, action, resource is Gateway::Host").actions,
            Actions::ANY
        );
        let crossed =
            rule(r#"principal, action, resource is Gateway::Credential in Gateway::Domain::"a.b""#);
        assert!(crossed.actions.is_empty());
    }
}
