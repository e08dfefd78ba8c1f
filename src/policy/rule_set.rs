//! The rules that can apply to a question, prepared for Cedar, and the cache of such sets.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use cedar_policy::{Entities, Entity, EntityUid, Policy, PolicyId, PolicySet};
use foldhash::fast::RandomState;
use gateway_names::CredentialName;
use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use super::context::FactSet;
use super::fact::{FactReader, Scope, bits};
use super::fact_test::{FactTest, FactTests};
use super::index::Resource;
use super::question::{Facts, Input, LendQuestion};
use super::reads::{ExpressionReads, Hierarchy};
use super::rule::Rule;
use super::schema::{
    ACTION, Action, CREDENTIAL, DOMAIN, GROUP, HOST, SESSION, SIGNING_KEY, USER, domains, uid,
};
use super::verdict::Verdict;

/// A set of rules that are judged together.
#[derive(Debug)]
pub(super) struct RuleSet {
    /// A number that no other set of the generation ever has.
    pub number: u64,
    pub rules: Vec<u32>,
    /// The inputs of all facts that the rules read.
    pub inputs: BTreeSet<Input>,
    /// The facts that the rules read, as bits.
    pub bits: u64,
    /// All rules of the set.
    pub whole: Part,
    /// The part that can be judged before content is read. `None` if no rule reads content.
    pub head: Option<HeadRules>,
    /// The rules that nothing lifts. `None` if there are no others.
    pub firm: Option<Part>,
    /// The verdict of rules without conditions, which is the same for every request.
    pub constant: OnceLock<Verdict>,
    /// Whether any rule has a condition.
    pub conditional: bool,
    /// Whether any rule has a label.
    pub labels: bool,
    /// Whether any condition reads a fact that differs between the requests of a batch.
    pub tells_apart: bool,
}

/// The rules of a set, as judged before content is read.
#[derive(Debug)]
pub(super) struct HeadRules {
    /// The rules that read no content.
    pub all: Part,
    /// Of these, the rules that nothing lifts. `None` if there are no others.
    pub firm: Option<Part>,
    /// The head conditions of the rules that read content, each as a permit.
    pub guards: Part,
}

/// Policies prepared for Cedar, and the facts and entities that they read.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub set: PolicySet,
    pub reads: FactSet,
    /// The tests that they make of the path.
    pub paths: FactTests,
    needs: NeededTests,
    /// The entities whose ancestors a condition asks about.
    pub hierarchy: Hierarchy,
    /// Whether a condition may tell sessions of the same groups apart.
    pub session: bool,
    /// Whether a condition may tell users of one session apart.
    pub user: bool,
}

/// The tests that policies need to hold, so that Cedar need not evaluate policies whose tests fail.
#[derive(Debug, Default)]
struct NeededTests {
    tests: FactTests,
    /// The policies that need one of a list of tests, by the number of each test.
    needing: Vec<Vec<PolicyId>>,
    /// The policies that need no test.
    free: Vec<PolicyId>,
}

impl RuleSet {
    fn new(number: u64, numbers: &[u32], all: &[Rule]) -> Self {
        let rules = || numbers.iter().map(|nth| &all[*nth as usize]);
        let whole = Part::of(rules().map(|rule| (&rule.judged, &rule.reads)));
        let part_of = |fits: &dyn Fn(&&Rule) -> bool| {
            Part::of(rules().filter(fits).map(|rule| (&rule.judged, &rule.reads)))
        };
        let is_firm = |rule: &&Rule| rule.lift.is_none();
        let reads_none = |rule: &&Rule| !rule.reads_content();
        let are_others = rules().any(|rule| rule.lift.is_some());
        let firm = |fits: &dyn Fn(&&Rule) -> bool| {
            are_others.then(|| part_of(&|rule| fits(rule) && is_firm(rule)))
        };
        let head = rules().any(Rule::reads_content).then(|| HeadRules {
            all: part_of(&reads_none),
            firm: firm(&reads_none),
            guards: Part::of(
                rules()
                    .filter_map(|rule| rule.guard.as_ref())
                    .map(|guard| (&guard.judged, &guard.reads)),
            ),
        });
        let firm = firm(&|_| true);
        let mut inputs: BTreeSet<Input> = whole.reads.iter().map(|fact| fact.row().input).collect();
        inputs.extend(whole.session.then_some(Input::Session));
        inputs.extend(whole.user.then_some(Input::User));
        inputs.extend(whole.hierarchy.principal.then_some(Input::Groups));
        Self {
            number,
            inputs,
            bits: bits(&whole.reads),
            tells_apart: whole
                .reads
                .iter()
                .any(|fact| fact.row().scope == Scope::One),
            conditional: rules().any(|rule| rule.conditional),
            labels: rules().any(|rule| rule.label.is_some()),
            constant: OnceLock::new(),
            rules: numbers.to_vec(),
            whole,
            head,
            firm,
        }
    }
}

impl Part {
    pub fn of<'a>(policies: impl Iterator<Item = (&'a Policy, &'a ExpressionReads)>) -> Self {
        let mut part = Self::default();
        let policies: Vec<_> = policies.collect();
        part.needs = NeededTests::of(&policies);
        for (policy, read) in policies {
            part.reads.extend(&read.facts);
            for test in &read.paths {
                part.paths.add(test);
            }
            part.hierarchy = part.hierarchy.or(read.hierarchy);
            part.session |= read.session;
            part.user |= read.user;
            let added = part.set.add(policy.clone());
            added.expect("a number is one rule's, and no rule is here twice");
        }
        part
    }
}

impl Part {
    /// Returns the policies that the request does not rule out. The others neither hold nor fail.
    pub fn left(&self, reader: &FactReader<'_>) -> Cow<'_, PolicySet> {
        self.narrowed(reader)
            .map_or(Cow::Borrowed(&self.set), Cow::Owned)
    }

    /// `None` if it is not worthwhile, or not known.
    fn narrowed(&self, reader: &FactReader<'_>) -> Option<PolicySet> {
        let NeededTests {
            tests,
            needing,
            free,
        } = &self.needs;
        if needing.is_empty() {
            return None;
        }
        let held = tests.held(reader).ok()?;
        let held = held.iter().flat_map(|number| &needing[*number as usize]);
        let left: BTreeSet<&PolicyId> = free.iter().chain(held).collect();
        if left.len() > self.set.num_of_policies() / 2 {
            return None;
        }
        let policies = left.into_iter().map(|id| self.set.policy(id).cloned());
        PolicySet::from_policies(policies.collect::<Option<Vec<_>>>()?).ok()
    }
}

impl NeededTests {
    fn of(policies: &[(&Policy, &ExpressionReads)]) -> Self {
        // Of a policy's lists of tests, the rarest rules out the most requests.
        let mut often: BTreeMap<&FactTest, usize> = BTreeMap::new();
        for test in policies.iter().flat_map(|(_, read)| &read.needs).flatten() {
            *often.entry(test).or_default() += 1;
        }
        let mut all = Self::default();
        for (policy, read) in policies {
            let count =
                |tests: &&Vec<FactTest>| tests.iter().map(|test| often[test]).sum::<usize>();
            let Some(tests) = read.needs.iter().min_by_key(count) else {
                all.free.push(policy.id().clone());
                continue;
            };
            for test in tests {
                let number = all.tests.add(test) as usize;
                all.needing
                    .resize(all.needing.len().max(number + 1), Vec::new());
                all.needing[number].push(policy.id().clone());
            }
        }
        all
    }
}

/// A cache of recently used rule sets.
///
/// The key of a set is its rules alone, so host names that a client invents add nothing: there are
/// only as many sets as the policies allow. The cache is still bounded, by the total number of
/// rules in its sets.
#[derive(Debug)]
pub(super) struct RuleSets {
    kept: Mutex<CachedSets>,
    /// How many sets were made.
    made: AtomicU64,
}

#[derive(Debug)]
struct CachedSets {
    sets: LruCache<Box<[u32]>, Arc<RuleSet>, RandomState>,
    weight: usize,
}

impl RuleSets {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self {
            kept: Mutex::new(CachedSets {
                sets: LruCache::unbounded_with_hasher(RandomState::default()),
                weight: 0,
            }),
            made: AtomicU64::new(0),
        }
    }

    /// Returns the set of these rules, and makes it if it is not cached.
    pub fn get(&self, numbers: &[u32], all: &[Rule]) -> Arc<RuleSet> {
        if let Some(set) = self.kept().sets.get(numbers) {
            return Arc::clone(set);
        }
        // Make it outside the lock, so that other questions need not wait.
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let set = Arc::new(RuleSet::new(number, numbers, all));
        self.kept().keep(Arc::clone(&set));
        set
    }

    fn kept(&self) -> MutexGuard<'_, CachedSets> {
        self.kept.lock()
    }
}

impl CachedSets {
    fn keep(&mut self, set: Arc<RuleSet>) {
        self.weight += weight(&set);
        if let Some(replaced) = self.sets.put(set.rules.as_slice().into(), set) {
            self.weight -= weight(&replaced);
        }
        while self.weight > MOST_WEIGHT && self.sets.len() > 1 {
            if let Some((_, dropped)) = self.sets.pop_lru() {
                self.weight -= weight(&dropped);
            }
        }
    }
}

/// Returns the number of rules in the set, plus a little for the set itself.
fn weight(set: &RuleSet) -> usize {
    set.rules.len() + 16
}

/// The most weight of all cached sets together. A single set may exceed it.
const MOST_WEIGHT: usize = 65_536;

/// The principal, action and resource of a question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    facts: &'a Facts<'a>,
    lend: Option<LendQuestion<'a>>,
}

impl<'a> Question<'a> {
    /// Creates the question whether the request may be sent, or the credential used.
    pub fn new(facts: &'a Facts<'a>, lend: Option<LendQuestion<'a>>) -> Self {
        Self { facts, lend }
    }

    /// Returns the facts of the request.
    pub fn facts(&self) -> &'a Facts<'a> {
        self.facts
    }

    /// Returns the action in question.
    pub fn action(&self) -> Action {
        match (self.lend, self.facts.signs) {
            (Some(_), _) => Action::Lend,
            (_, Some(_)) => Action::Sign,
            _ => Action::of_method(self.facts.method),
        }
    }

    /// Returns the resource, for the index.
    pub fn target(&self) -> Resource<'a> {
        match (self.lend, self.facts.signs) {
            (Some(lend), _) => Resource::Credential(lend.credential.as_str()),
            (_, Some(signs)) => Resource::SigningKey(signs.key),
            _ => Resource::Host(self.facts.host),
        }
    }

    /// Returns the credential, if the question is about one.
    pub fn credential(&self) -> Option<&'a CredentialName> {
        self.lend.map(|lend| lend.credential)
    }

    /// Returns the session of the request.
    pub fn principal(&self) -> EntityUid {
        uid(&SESSION, self.facts.session.as_str())
    }

    /// Returns the resource, for Cedar.
    pub fn resource(&self) -> EntityUid {
        match (self.lend, self.facts.signs) {
            (Some(lend), _) => uid(&CREDENTIAL, lend.credential.as_str()),
            (_, Some(signs)) => uid(&SIGNING_KEY, signs.key),
            _ => self.origin(),
        }
    }

    /// Returns the host, as a Cedar entity.
    pub fn origin(&self) -> EntityUid {
        uid(&HOST, self.facts.host.as_str())
    }

    /// Returns the entities whose ancestors conditions ask about. Empty if no condition does.
    pub fn entities(&self, asked: Hierarchy) -> Cow<'static, Entities> {
        static NONE: LazyLock<Entities> = LazyLock::new(Entities::empty);
        if !asked.is_asked() {
            return Cow::Borrowed(&NONE);
        }
        let groups = self.facts.groups.iter().map(|group| uid(&GROUP, group));
        let domains = domains(self.facts.host).map(|domain| uid(&DOMAIN, domain));
        let action = self.action();
        // Each lists all of its ancestors directly. The ancestors' own entities are not needed.
        let user = self.facts.user.map(|user| uid(&USER, user.as_str()));
        let parents = || groups.clone().chain(user.clone()).collect();
        let session = || Entity::new_no_attrs(self.principal(), parents());
        let caller = || {
            user.clone()
                .map(|user| Entity::new_no_attrs(user, groups.clone().collect()))
        };
        let host = || Entity::new_no_attrs(self.origin(), domains.collect());
        let action = || Entity::new_no_attrs(action.uid().clone(), above(action));
        let all = [
            asked.principal.then(session),
            asked.principal.then(caller).flatten(),
            asked.host.then(host),
            asked.action.then(action),
        ];
        let all = Entities::from_entities(all.into_iter().flatten(), None);
        Cow::Owned(all.expect("no two of these are one entity, and none is in another"))
    }
}

/// Returns the groups that an action belongs to.
fn above(action: Action) -> HashSet<EntityUid> {
    use super::schema::Actions;
    let groups = ["any", "read", "write"].into_iter();
    let groups = groups.filter(|group| Actions::named(group, true).holds(action));
    groups.map(|group| uid(&ACTION, group)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::tests::{owned, policies, target};

    #[test]
    fn made_up_names_do_not_fill_the_cache() {
        let generation = policies(
            "permit(principal, action, resource in Gateway::Domain::\"a.example\") when { context.port == 443 };
             permit(principal, action, resource == Gateway::Host::\"b.a.example\");",
        )
        .current();
        for nth in 0..1_000 {
            let mut request = owned();
            request.host = format!("h{nth}.a.example").parse().unwrap();
            assert!(generation.ask(&request.facts()).allowed());
        }
        assert_eq!(generation.sets.kept().sets.len(), 1);
    }

    #[test]
    fn the_cache_is_bounded_by_the_rules_that_it_refers_to() {
        let hosts = 0..200_u32;
        let text: String = hosts
            .map(|nth| {
                format!("permit(principal, action, resource) when {{ context.port == {nth} }};\n")
            })
            .collect();
        let generation = policies(&text).current();
        for nth in 0..10_000_u32 {
            let numbers: Vec<u32> = (0..50)
                .map(|k| (nth + k * k) % 200)
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect();
            generation.sets.get(&numbers, &generation.rules);
        }
        let kept = generation.sets.kept();
        assert!(kept.weight <= MOST_WEIGHT, "{}", kept.weight);
        let sum: usize = kept.sets.iter().map(|(_, set)| weight(set)).sum();
        assert_eq!(sum, kept.weight);
    }

    #[test]
    fn what_is_evaluated_does_not_grow_with_the_rules_that_do_not_apply() {
        let of = |count: usize, condition: &dyn Fn(usize) -> String| {
            let rule = |nth| {
                let condition = condition(nth);
                format!("permit(principal, action, resource) when {{ {condition} }};\n")
            };
            let text: String = (0..count).map(rule).collect();
            let generation = policies(&text).current();
            let mut request = owned();
            request.target = target("/o/r7/x?page=7");
            request.fields.insert("x-role", "r7".parse().unwrap());
            let facts = request.facts();
            let all = generation.index.matching(
                facts.principal(),
                Action::Get,
                Resource::Host(facts.host),
            );
            let set = generation.sets.get(&all, &generation.rules);
            assert_eq!(generation.ask(&facts).policies.len(), 1);
            let reader = FactReader::new(&facts, None);
            let mut held = set.whole.needs.tests.held(&reader).unwrap();
            held.dedup();
            (set.whole.left(&reader).num_of_policies(), held.len())
        };
        let shapes: [&dyn Fn(usize) -> String; 9] = [
            &|nth| format!("context.prefixes.contains(\"/o/r{nth}\")"),
            &|nth| format!("context.path == \"/o/r{nth}/x\""),
            &|nth| format!("context.path like \"/o/r{nth}/*\""),
            &|nth| format!("context.path like \"*/r{nth}/x\""),
            &|nth| format!("context.segments.containsAll([\"0:o\", \"1:r{nth}\"])"),
            &|nth| format!("context.query.unique.contains(\"page={nth}\")"),
            &|nth| format!("context.fields.any.contains(\"x-role: r{nth}\")"),
            &|nth| {
                format!(
                    "context.port > 1 && (context.path == \"/{nth}\" || context.prefixes.containsAny([\"/o/r{nth}\", \"/p/r{nth}\"]))"
                )
            },
            &|nth| {
                format!(
                    "[\"/{nth}\", \"/o/r{nth}/x\"].contains(context.path) && context.depth + 1 > 0"
                )
            },
        ];
        for (nth, shape) in shapes.iter().enumerate() {
            let few = of(10, shape);
            assert_eq!((few, of(400, shape)), ((1, few.1), few), "{nth}");
        }
    }

    #[test]
    fn entities_have_whole_labels_and_groups_as_ancestors() {
        let mut request = owned();
        request.groups = vec!["ci".into()];
        let facts = request.facts();
        let question = Question::new(&facts, None);
        let entities = question.entities(Hierarchy {
            principal: true,
            action: true,
            host: true,
        });
        let above = |one: &EntityUid| -> Vec<String> {
            let all = entities.ancestors(one).unwrap().map(ToString::to_string);
            let mut names: Vec<_> = all.collect();
            names.sort();
            names
        };
        assert_eq!(above(&question.principal()), [r#"Gateway::Group::"ci""#]);
        assert_eq!(
            above(&question.origin()),
            [
                r#"Gateway::Domain::"api.github.com""#,
                r#"Gateway::Domain::"com""#,
                r#"Gateway::Domain::"github.com""#
            ]
        );
        assert_eq!(
            above(Action::Get.uid()),
            [r#"Gateway::Action::"any""#, r#"Gateway::Action::"read""#]
        );
    }
}
