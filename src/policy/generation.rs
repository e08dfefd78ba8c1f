//! One generation of policies, and how it judges requests.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use cedar_policy::{AuthorizationError, Authorizer, Decision, Request, Response};
use gateway_message::Host;
use gateway_names::{CredentialName, PolicyId};
use gateway_session::Session;

use super::applicable::{ApplicableRules, AskedFacts};
use super::content::Declared;
use super::context::context;
use super::decision_cache::DecisionCache;
use super::fact::{Fact, FactReader, OF_PATH, bits};
use super::fault::FactFault;
use super::generate::lifting;
use super::index::Index;
use super::load::load;
use super::question::{Facts, LendQuestion, OwnedFacts, Principal};
use super::rule::{Lift, Principals, Resources, Rule};
use super::rule_set::{HeadRules, Part, Question, RuleSet, RuleSets};
use super::schema::Actions;
use super::source::{Lint, Problems, Source};
use super::verdict::{Ask, BudgetUse, Obligations, Outcome, Verdict};

/// One loaded set of policies. It is immutable, so its answers never change.
#[derive(Debug)]
pub struct Generation {
    number: u64,
    pub(super) rules: Vec<Rule>,
    /// All facts that any rule reads, as [`bits`].
    reads: u64,
    pub(super) index: Index,
    lints: Vec<Lint>,
    notes: Vec<Lint>,
    /// For each rule, a slice with its id alone, so that a typical verdict allocates nothing.
    alone: Vec<Arc<[PolicyId]>>,
    nobody: Arc<[PolicyId]>,
    pub(super) sets: RuleSets,
    pub(super) decisions: DecisionCache,
}

/// One generation of policies, with the facts of content that they may read. It never changes: a
/// reload makes the next one.
#[derive(Debug)]
pub struct Policies {
    current: Arc<Generation>,
    declared: Arc<Declared>,
}

/// A host, or a domain and everything under it, that a permit reaches.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HostScope {
    /// One host.
    Host(String),
    /// A domain, including the domain itself.
    Domain(String),
}

impl Policies {
    /// Loads the first generation, number 1, which may read the declared facts of content. Without
    /// any source, nothing is permitted.
    ///
    /// # Errors
    /// Every problem of the sources.
    pub fn load(sources: &[Source], declared: Declared) -> Result<Self, Problems> {
        Self::numbered(1, sources, declared)
    }

    /// Loads the generation after this one.
    ///
    /// # Errors
    /// Every problem of the sources.
    pub fn next(&self, sources: &[Source], declared: Declared) -> Result<Self, Problems> {
        Self::numbered(self.current.number() + 1, sources, declared)
    }

    fn numbered(number: u64, sources: &[Source], declared: Declared) -> Result<Self, Problems> {
        Ok(Self {
            current: Arc::new(Generation::load(number, sources, &declared)?),
            declared: Arc::new(declared),
        })
    }

    /// Returns the generation that judges.
    pub fn current(&self) -> Arc<Generation> {
        Arc::clone(&self.current)
    }

    /// Returns the generation that judges, for a short look.
    pub fn generation(&self) -> &Generation {
        &self.current
    }

    /// Returns the declared facts of content.
    pub fn declared(&self) -> &Arc<Declared> {
        &self.declared
    }
}

impl Generation {
    fn load(number: u64, sources: &[Source], declared: &Declared) -> Result<Self, Problems> {
        let (rules, found) = load(sources, declared)?;
        let (notes, lints) = found.into_iter().partition(|lint| lint.is_note);
        Ok(Self {
            number,
            index: Index::new(&rules),
            reads: bits(rules.iter().flat_map(|rule| &rule.reads.facts)),
            lints,
            notes,
            alone: rules
                .iter()
                .map(|rule| Arc::from([rule.id.clone()]))
                .collect(),
            nobody: Arc::from([]),
            rules,
            sets: RuleSets::new(),
            decisions: DecisionCache::new(),
        })
    }

    /// Returns the generation's number. It starts at 1 and rises by one with every successful load.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the policies that loaded but look doubtful.
    pub fn lints(&self) -> &[Lint] {
        &self.lints
    }

    /// Policies that may not do what is intended at some servers.
    pub fn notes(&self) -> &[Lint] {
        &self.notes
    }

    /// The sessions, groups and credentials that each policy names, by type, but for the group that
    /// lifts a preset's own rule.
    pub fn entities(&self) -> impl Iterator<Item = (&PolicyId, &'static str, String)> {
        let rules = self.rules.iter();
        rules.flat_map(|rule| {
            let group = lifting(&rule.id).map(|(group, _)| group);
            let named = rule.entities().into_iter();
            let named = named.filter(move |(_, name)| group.as_ref() != Some(name));
            named.map(|(kind, name)| (&rule.id, kind, name))
        })
    }

    /// How many policies there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no policies. Nothing is permitted then.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Judges whether the request may be sent.
    ///
    /// A batch is allowed only if every other request to the host would be, too: with any method,
    /// and by rules that read no fact that differs between requests to one host.
    pub fn ask(&self, facts: &Facts<'_>) -> Verdict {
        self.judge(facts.into(), None)
    }

    /// Judges whether the request may carry a credential at a place, given in the text form of
    /// [`gateway_message::Place`].
    ///
    /// This does not cover the request itself, which [`Self::ask`] must have allowed.
    pub fn lend(&self, facts: &Facts<'_>, credential: &CredentialName, place: &str) -> Verdict {
        self.judge(facts.into(), Some(LendQuestion { credential, place }))
    }

    /// Judges whether a session may have a commit of the repository signed by the key of this
    /// fingerprint.
    pub fn sign(&self, session: &Session, key: &str, repository: &str) -> Verdict {
        let mut question = OwnedFacts::signing(session.id().clone(), key, repository);
        question.user = session.user().cloned();
        question.groups = session.groups(self.number).to_vec();
        question.labels = session.labels().map_or_else(Vec::new, |all| all.to_vec());
        self.ask(&question.facts())
    }

    /// Whether some permit's scope lets the principal send the host any request. A name server
    /// inside the sandbox may answer for such hosts only.
    ///
    /// Conditions are not evaluated here, so a request may still be denied.
    #[must_use]
    pub fn may_resolve(&self, who: Principal<'_>, host: &Host) -> bool {
        self.index.may_ask(who, host)
    }

    /// Returns the hosts that permits reach, for a CA's name constraints. `None` if a permit
    /// reaches every host.
    pub fn hosts(&self) -> Option<Vec<HostScope>> {
        scopes(self.rules.iter())
    }

    /// Returns the hosts that permits for the principal reach. `None` if one reaches every host.
    #[must_use]
    pub fn hosts_of(&self, who: Principal<'_>) -> Option<Vec<HostScope>> {
        let is_about = |rule: &&Rule| match &rule.principal {
            Principals::Anyone => true,
            Principals::Session(id) => id == who.session.as_str(),
            Principals::User(id) => who.user.is_some_and(|user| user.as_str() == id),
            Principals::Group(id) => who.groups.iter().any(|group| **group == **id),
            Principals::Nobody => false,
        };
        scopes(self.rules.iter().filter(is_about))
    }

    /// Whether any rule reads any of these facts.
    pub(super) fn reads_any(&self, wanted: &[Fact]) -> bool {
        self.reads & bits(wanted) != 0
    }

    /// Whether a rule that can apply to this question reads any of these facts.
    pub(super) fn reads(
        &self,
        asked: AskedFacts<'_>,
        lend: Option<LendQuestion<'_>>,
        wanted: &[Fact],
    ) -> bool {
        let facts = asked.facts;
        let wanted = bits(wanted);
        let reads = |facts: &Facts<'_>| {
            let set = self.set(&Question::new(facts, lend), asked.rules);
            set.is_some_and(|set| set.bits & wanted != 0)
        };
        // A batch is allowed only if every method is.
        let of_a_batch = |method| reads(&Facts { method, ..*facts });
        reads(facts) || facts.batch && METHODS.into_iter().any(of_a_batch)
    }

    /// Returns the rules that can apply to a question. `None` if there are none.
    fn set(
        &self,
        question: &Question<'_>,
        rules: Option<&ApplicableRules>,
    ) -> Option<Arc<RuleSet>> {
        let facts = question.facts();
        let find = || {
            let (action, target) = (question.action(), question.target());
            let matching = self.index.matching(facts.principal(), action, target);
            (!matching.is_empty()).then(|| self.sets.get(&matching, &self.rules))
        };
        let are_known = |rules: &&ApplicableRules| rules.generation == self.number;
        match rules.filter(|rules| are_known(rules) && facts.signs.is_none()) {
            Some(rules) => rules.set(question, find),
            None => find(),
        }
    }

    /// Judges a request, or the use of a credential.
    pub(super) fn judge(&self, asked: AskedFacts<'_>, lend: Option<LendQuestion<'_>>) -> Verdict {
        let mut verdict = self.judge_readings(asked, lend);
        let AskedFacts { facts, rules } = asked;
        if !facts.batch || lend.is_some() || !verdict.may_be_lifted() {
            return verdict;
        }
        let is_whole = METHODS.iter().all(|method| {
            let facts = &Facts { method, ..*facts };
            let one = self.judge_alone(AskedFacts { facts, rules }, None);
            let is_allowed = one.allowed();
            verdict.join(one);
            is_allowed
        });
        if is_whole {
            verdict
        } else {
            self.nobodys(Outcome::Unjudged(FactFault::Batch))
        }
    }

    /// Judges every reading that an origin may have of the path, and every path that a field names.
    /// All must be allowed.
    fn judge_readings(&self, asked: AskedFacts<'_>, lend: Option<LendQuestion<'_>>) -> Verdict {
        let mut verdict = self.judge_alone(asked, lend);
        let AskedFacts { facts, rules } = asked;
        if !verdict.may_be_lifted() || !self.reads(asked, lend, &OF_PATH) {
            return verdict;
        }
        let readings = facts.target.other_readings().into_iter();
        let mut others = readings
            .map(|one| (one, FactFault::PathReadings))
            .collect::<Vec<_>>();
        for named in facts.named_targets() {
            let Some(target) = named else {
                return self.nobodys(Outcome::Unjudged(FactFault::NamedPath));
            };
            let readings = target.other_readings().into_iter().chain([target]);
            others.extend(readings.map(|one| (one, FactFault::NamedPath)));
        }
        for (target, doubt) in &others {
            let facts = &Facts { target, ..*facts };
            let other = self.judge_alone(AskedFacts { facts, rules }, lend);
            match other.outcome {
                Outcome::Allowed | Outcome::Asked | Outcome::Budgeted => verdict.join(other),
                Outcome::Unpermitted => return self.nobodys(Outcome::Unjudged(*doubt)),
                _ => return other,
            }
        }
        verdict
    }

    fn judge_alone(&self, asked: AskedFacts<'_>, lend: Option<LendQuestion<'_>>) -> Verdict {
        let facts = asked.facts;
        let Some(set) = self.set(&Question::new(facts, lend), asked.rules) else {
            return self.nobodys(Outcome::Unpermitted);
        };
        if facts.batch && set.tells_apart {
            return self.nobodys(Outcome::Unjudged(FactFault::Batch));
        }
        if !set.conditional {
            return set
                .constant
                .get_or_init(|| self.labelled(&set, self.by_scope_alone(&set)))
                .clone();
        }
        let judge = |part: &Part| self.evaluate(part, facts, lend);
        self.decisions.get(&set, facts, lend, || {
            let verdict = match &set.head {
                Some(head) if facts.content.is_none() => self.judge_head(&set, head, judge),
                _ => self.lifting(&set, (&set.whole, set.firm.as_ref()), judge),
            };
            self.labelled(&set, verdict)
        })
    }

    /// Adds the labels of the permits that allow the question.
    fn labelled(&self, set: &RuleSet, mut verdict: Verdict) -> Verdict {
        if set.labels && verdict.may_be_lifted() {
            let rules = set.rules.iter().map(|nth| &self.rules[*nth as usize]);
            let permits = rules.filter(|rule| verdict.policies.contains(&rule.id));
            let labels: BTreeSet<_> = permits.filter_map(|rule| rule.label.clone()).collect();
            if !labels.is_empty() {
                Arc::make_mut(verdict.obligations.get_or_insert_default()).labels = labels;
            }
        }
        verdict
    }

    /// Judges by all of these rules; if nothing but rules that can be lifted forbids the question,
    /// by the firm ones, and returns what must be lifted.
    fn lifting(
        &self,
        set: &RuleSet,
        (all, firm): (&Part, Option<&Part>),
        judge: impl Fn(&Part) -> Verdict,
    ) -> Verdict {
        let verdict = judge(all);
        let Some(firm) = firm.filter(|_| verdict.outcome == Outcome::Forbidden) else {
            return verdict;
        };
        let rules = set.rules.iter().map(|nth| &self.rules[*nth as usize]);
        let forbids = rules.filter(|rule| verdict.policies.contains(&rule.id));
        let mut all = Obligations::default();
        for rule in forbids {
            let policy = rule.id.clone();
            match rule.lift.as_ref() {
                None => return verdict,
                Some(Lift::Ask(question)) => {
                    let question = question.clone();
                    all.asks.push(Ask { policy, question });
                }
                Some(Lift::Budget(budget)) => {
                    let budget = budget.clone();
                    all.budgets.insert(BudgetUse { policy, budget });
                }
            }
        }
        let firm = judge(firm);
        match firm.outcome {
            Outcome::Allowed => Verdict {
                outcome: all.outcome(),
                obligations: Some(Arc::new(all)),
                ..firm
            },
            _ => firm,
        }
    }

    /// Judges without the content, if no policy's verdict can depend on it.
    fn judge_head(
        &self,
        set: &RuleSet,
        head: &HeadRules,
        judge: impl Fn(&Part) -> Verdict,
    ) -> Verdict {
        let firm = self.lifting(set, (&head.all, head.firm.as_ref()), &judge);
        if !firm.may_be_lifted() && firm.outcome != Outcome::Unpermitted {
            return firm;
        }
        let guards = judge(&head.guards);
        match guards.outcome {
            Outcome::Unpermitted => firm,
            Outcome::Allowed => Verdict {
                outcome: Outcome::Unjudged(FactFault::ContentUnread),
                ..guards
            },
            _ => guards,
        }
    }

    /// Returns the verdict of matching rules without conditions.
    fn by_scope_alone(&self, set: &RuleSet) -> Verdict {
        let those = |permits: bool| -> Vec<u32> {
            let all = set.rules.iter().copied();
            all.filter(|nth| self.rules[*nth as usize].permits == permits)
                .collect()
        };
        match those(false) {
            forbids if !forbids.is_empty() => self.verdict(Outcome::Forbidden, self.named(forbids)),
            _ => self.verdict(Outcome::Allowed, self.named(those(true))),
        }
    }

    fn evaluate(&self, part: &Part, facts: &Facts<'_>, lend: Option<LendQuestion<'_>>) -> Verdict {
        match ask_cedar(part, facts, lend) {
            Ok(response) => self.read(&response),
            Err(fault) => self.nobodys(Outcome::Unjudged(fault)),
        }
    }

    /// Returns the names of the facts of content on which the verdict depends: those read by rules
    /// whose conditions on the head are met.
    pub(super) fn content_read(
        &self,
        asked: AskedFacts<'_>,
        lend: Option<LendQuestion<'_>>,
    ) -> Vec<&str> {
        let rules = self.by_content(asked, lend);
        let names = rules.into_iter().flat_map(|rule| &rule.reads.content);
        names.map(String::as_str).collect()
    }

    /// Returns the rules that only the content decides: they read it, and their conditions on the
    /// head are met.
    pub(super) fn by_content(
        &self,
        asked: AskedFacts<'_>,
        lend: Option<LendQuestion<'_>>,
    ) -> Vec<&Rule> {
        let facts = asked.facts;
        // A batch is not judged by content.
        if facts.content.is_none() || facts.batch {
            return Vec::new();
        }
        let set = self.set(&Question::new(facts, lend), asked.rules);
        let Some(head) = set.as_ref().and_then(|set| set.head.as_ref()) else {
            return Vec::new();
        };
        let Ok(response) = ask_cedar(&head.guards, facts, lend) else {
            return Vec::new();
        };
        let hold = response.diagnostics().reason().filter_map(number_of);
        hold.map(|nth| &self.rules[nth as usize]).collect()
    }

    /// Reads Cedar's answer. Any evaluation error is a denial, whatever the decision.
    fn read(&self, response: &Response) -> Verdict {
        let diagnostics = response.diagnostics();
        let erred: Vec<u32> = diagnostics
            .errors()
            .map(|AuthorizationError::PolicyEvaluationError(error)| error.policy_id())
            .filter_map(number_of)
            .collect();
        if diagnostics.errors().next().is_some() {
            return self.verdict(Outcome::PolicyError, self.named(erred));
        }
        let decided: Vec<u32> = diagnostics.reason().filter_map(number_of).collect();
        let outcome = match (response.decision(), decided.is_empty()) {
            (Decision::Allow, _) => Outcome::Allowed,
            (Decision::Deny, true) => Outcome::Unpermitted,
            (Decision::Deny, false) => Outcome::Forbidden,
        };
        self.verdict(outcome, self.named(decided))
    }

    /// Returns the rules' ids, in the order of the sources.
    fn named(&self, mut rules: Vec<u32>) -> Arc<[PolicyId]> {
        match rules.as_slice() {
            [] => Arc::clone(&self.nobody),
            [one] => Arc::clone(&self.alone[*one as usize]),
            _ => {
                rules.sort_unstable();
                rules
                    .iter()
                    .map(|nth| self.rules[*nth as usize].id.clone())
                    .collect()
            }
        }
    }

    /// Returns a verdict that no policy decided.
    fn nobodys(&self, outcome: Outcome) -> Verdict {
        self.verdict(outcome, Arc::clone(&self.nobody))
    }

    fn verdict(&self, outcome: Outcome, policies: Arc<[PolicyId]>) -> Verdict {
        Verdict {
            outcome,
            policies,
            generation: self.number,
            obligations: None,
        }
    }
}

/// Returns the hosts of the permits among these rules. `None` if one is for every host.
fn scopes<'a>(rules: impl Iterator<Item = &'a Rule>) -> Option<Vec<HostScope>> {
    let mut hosts = BTreeSet::new();
    for rule in rules {
        if !rule.permits || rule.actions.and(Actions::ANY).is_empty() {
            continue;
        }
        match &rule.resource {
            Resources::Anything => return None,
            Resources::Host(name) => hosts.insert(HostScope::Host(name.clone())),
            Resources::Domain(name) => hosts.insert(HostScope::Domain(name.clone())),
            Resources::Credential(_) | Resources::SigningKey(_) | Resources::None => false,
        };
    }
    Some(hosts.into_iter().collect())
}

/// Asks Cedar a question about these policies.
pub(super) fn ask_cedar(
    part: &Part,
    facts: &Facts<'_>,
    lend: Option<LendQuestion<'_>>,
) -> Result<Response, FactFault> {
    static AUTHORIZER: LazyLock<Authorizer> = LazyLock::new(Authorizer::new);
    let question = Question::new(facts, lend);
    let origin = question.origin();
    let reader = FactReader::new(facts, lend.map(|lend| (lend, &origin)));
    let request = Request::new(
        question.principal(),
        question.action().uid().clone(),
        question.resource(),
        context(&part.reads, &reader)?,
        // Valid by construction: a property test checks every context against the schema.
        None,
    );
    let request = request.map_err(|_| FactFault::Context)?;
    let entities = question.entities(part.hierarchy);
    Ok(AUTHORIZER.is_authorized(&request, &part.left(&reader), &entities))
}

/// One method for each action that a request can be.
pub(super) const METHODS: [&str; 8] = [
    "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "OTHER",
];

/// Returns the number of a rule, from its name in Cedar.
fn number_of(id: &cedar_policy::PolicyId) -> Option<u32> {
    AsRef::<str>::as_ref(id).parse().ok()
}

#[cfg(test)]
pub(super) mod tests;
