//! The rules that can apply to one session, action and resource, made ready for Cedar once.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cedar_policy::{Entities, Entity, EntityUid, PolicySet, RestrictedExpression};

use super::attribute::Attributes;
use super::index::Target;
use super::memo::Memo;
use super::rule::Rule;
use super::schema::{ACTION, Action, CREDENTIAL, DOMAIN, GROUP, HOST, SESSION, domains, uid};
use super::verdict::Verdict;
use crate::message::Host;

/// Whom, what and where a slice is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Question<'a> {
    pub session: &'a str,
    pub groups: &'a [Arc<str>],
    pub action: Action,
    /// The credential of a loan.
    pub credential: Option<&'a str>,
    pub host: &'a Host,
}

/// What differs most from question to question; the rest is compared, not hashed.
impl Hash for Question<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (
            self.session,
            self.host,
            self.action as u8,
            self.credential.is_some(),
        )
            .hash(state);
    }
}

impl<'a> Question<'a> {
    /// The resource that is asked for.
    pub fn target(&self) -> Target<'a> {
        self.credential
            .map_or(Target::Host(self.host), Target::Credential)
    }
}

/// The rules that several slices share, as Cedar takes them.
#[derive(Debug)]
pub(super) struct RuleSet {
    pub rules: Vec<u32>,
    pub set: PolicySet,
    pub reads: Attributes,
    pub conditional: bool,
}

impl RuleSet {
    /// Copies the rules (by reference) into a set of their own.
    pub fn new(numbers: Vec<u32>, all: &[Rule]) -> Self {
        let rules = || numbers.iter().map(|nth| &all[*nth as usize]);
        let set = PolicySet::from_policies(rules().map(|rule| rule.cedar.clone()))
            .expect("ids are unique in the whole set, and no number is here twice");
        Self {
            set,
            reads: rules().fold(Attributes::NONE, |reads, rule| reads.or(rule.reads)),
            conditional: rules().any(|rule| rule.conditional),
            rules: numbers,
        }
    }
}

/// One question's rules and entities.
#[derive(Debug)]
pub(super) struct Slice {
    owner: Owner,
    pub rules: Arc<RuleSet>,
    pub entities: Entities,
    pub principal: EntityUid,
    pub resource: EntityUid,
    pub origin: EntityUid,
    /// The verdict, where it hangs on nothing that a request says.
    pub constant: Option<Verdict>,
    /// Verdicts that hang on what a request says.
    pub memo: Memo,
}

#[derive(Debug)]
struct Owner {
    session: Box<str>,
    groups: Box<[Arc<str>]>,
    action: Action,
    credential: Option<Box<str>>,
    host: Host,
}

impl Owner {
    fn is(&self, question: &Question<'_>) -> bool {
        *self.session == *question.session
            && *self.groups == *question.groups
            && self.action == question.action
            && self.credential.as_deref() == question.credential
            && self.host == *question.host
    }
}

impl Slice {
    /// Whether the slice is the one of this question.
    pub fn is_of(&self, question: &Question<'_>) -> bool {
        self.owner.is(question)
    }

    /// Makes the entities that the question is about; without a constant verdict yet.
    pub fn new(question: &Question<'_>, rules: Arc<RuleSet>) -> Self {
        let principal = uid(&SESSION, question.session);
        let origin = uid(&HOST, question.host.as_str());
        let resource = question
            .credential
            .map_or_else(|| origin.clone(), |name| uid(&CREDENTIAL, name));
        Self {
            // Rules without a condition are decided by their scopes, which the index has matched
            // already.
            entities: match rules.conditional {
                true => entities(question, &principal, &origin, &resource),
                false => Entities::empty(),
            },
            owner: Owner {
                session: question.session.into(),
                groups: question.groups.into(),
                action: question.action,
                credential: question.credential.map(Into::into),
                host: question.host.clone(),
            },
            rules,
            principal,
            resource,
            origin,
            constant: None,
            memo: Memo::default(),
        }
    }
}

fn entities(
    question: &Question<'_>,
    principal: &EntityUid,
    origin: &EntityUid,
    resource: &EntityUid,
) -> Entities {
    let groups: HashSet<EntityUid> = question
        .groups
        .iter()
        .map(|group| uid(&GROUP, group))
        .collect();
    let mut all: Vec<Entity> = groups.iter().cloned().map(Entity::with_uid).collect();
    all.push(Entity::new_no_attrs(principal.clone(), groups));
    let names: Vec<EntityUid> = domains(question.host)
        .map(|domain| uid(&DOMAIN, domain))
        .collect();
    for (nth, domain) in names.iter().enumerate() {
        all.push(Entity::new_no_attrs(
            domain.clone(),
            names.get(nth + 1).cloned().into_iter().collect(),
        ));
    }
    let name = RestrictedExpression::new_string(question.host.as_str().to_owned());
    let host = Entity::new(
        origin.clone(),
        [("name".to_owned(), name)].into(),
        names.first().cloned().into_iter().collect(),
    );
    all.push(host.expect("a string evaluates to itself"));
    if resource != origin {
        all.push(Entity::with_uid(resource.clone()));
    }
    all.extend(actions().iter().cloned());
    Entities::from_entities(all, None)
        .expect("no two of these are one entity, and nothing is its own parent")
}

/// The schema's actions and their groups.
fn actions() -> &'static [Entity] {
    static ACTIONS: std::sync::LazyLock<Vec<Entity>> = std::sync::LazyLock::new(|| {
        let parents = |action: Action| -> HashSet<EntityUid> {
            use super::schema::Actions;
            ["ask", "read", "write"]
                .into_iter()
                .filter(|group| Actions::named(group, true).holds(action))
                .map(|group| uid(&ACTION, group))
                .collect()
        };
        let mut all: Vec<Entity> = Action::ALL
            .into_iter()
            .map(|action| Entity::new_no_attrs(action.uid().clone(), parents(action)))
            .collect();
        let ask = uid(&ACTION, "ask");
        all.push(Entity::with_uid(ask.clone()));
        for group in ["read", "write"] {
            all.push(Entity::new_no_attrs(
                uid(&ACTION, group),
                HashSet::from([ask.clone()]),
            ));
        }
        all
    });
    &ACTIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_have_whole_labels_and_groups_as_ancestors() {
        let groups = [Arc::from("ci")];
        let question = Question {
            session: "s",
            groups: &groups,
            action: Action::Get,
            credential: None,
            host: &"api.github.com".parse().unwrap(),
        };
        let (principal, origin) = (uid(&SESSION, "s"), uid(&HOST, "api.github.com"));
        let entities = entities(&question, &principal, &origin, &origin);
        let above = |one: &EntityUid| -> Vec<String> {
            let mut names: Vec<_> = entities
                .ancestors(one)
                .unwrap()
                .map(ToString::to_string)
                .collect();
            names.sort();
            names
        };
        assert_eq!(above(&principal), [r#"Gateway::Group::"ci""#]);
        assert_eq!(
            above(&origin),
            [
                r#"Gateway::Domain::"api.github.com""#,
                r#"Gateway::Domain::"com""#,
                r#"Gateway::Domain::"github.com""#
            ]
        );
        assert_eq!(
            above(Action::Get.uid()),
            [r#"Gateway::Action::"ask""#, r#"Gateway::Action::"read""#]
        );
    }
}
