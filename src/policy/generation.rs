//! One generation of policies, which judges; and the holder that swaps generations whole.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use cedar_policy::{AuthorizationError, Authorizer, Context, Decision, Request, Response};

use super::attribute::Attributes;
use super::context::context;
use super::facts::{Facts, Fault, Loan};
use super::index::Index;
use super::load::load;
use super::memo;
use super::rule::{Rule, What};
use super::schema::{Action, Actions};
use super::shelf::Shelves;
use super::slice::{Question, RuleSet, Slice};
use super::source::{Lint, Problems, Source};
use super::verdict::{Outcome, Verdict};
use crate::message::Host;
use crate::names::{CredentialName, PolicyId, SessionId};

/// The policies in force, replaced whole or not at all.
#[derive(Debug)]
pub struct Policies {
    current: ArcSwap<Generation>,
    /// Held while a set is replaced, so that numbers rise in the order of the swaps.
    replacing: Mutex<()>,
}

impl Policies {
    /// Loads the first generation, number 1. No source at all permits nothing.
    ///
    /// # Errors
    /// Every problem of the sources.
    pub fn load(sources: &[Source]) -> Result<Self, Problems> {
        Ok(Self {
            current: ArcSwap::from_pointee(Generation::load(1, sources)?),
            replacing: Mutex::new(()),
        })
    }

    /// The generation in force. Judge one request by one of these, from its first question to its
    /// last.
    #[must_use]
    pub fn current(&self) -> Arc<Generation> {
        self.current.load_full()
    }

    /// The same for one look, without a count that every thread would write to.
    pub(super) fn look(&self) -> Guard<Arc<Generation>> {
        self.current.load()
    }

    /// Replaces the policies by those of the sources, and gives the new generation.
    ///
    /// # Errors
    /// Every problem of the sources; the old generation then stays in force, under its old number.
    pub fn replace(&self, sources: &[Source]) -> Result<Arc<Generation>, Problems> {
        let _one_at_a_time = self
            .replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let next = Arc::new(Generation::load(self.current.load().number + 1, sources)?);
        self.current.store(Arc::clone(&next));
        Ok(next)
    }
}

/// One loaded set of policies: immutable, so what it said once it says always.
#[derive(Debug)]
pub struct Generation {
    number: u64,
    pub(super) rules: Vec<Rule>,
    pub(super) index: Index,
    lints: Vec<Lint>,
    /// A rule's number by its id.
    numbers: HashMap<Box<str>, u32>,
    /// Each rule's id alone, so that the usual verdict allocates nothing for it.
    alone: Vec<Arc<[PolicyId]>>,
    nobody: Arc<[PolicyId]>,
    /// What any rule reads.
    reads: Attributes,
    shelves: Shelves,
}

/// A host, or a domain and everything under it, that some permit reaches.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HostScope {
    /// One host.
    Host(String),
    /// A domain, itself included.
    Domain(String),
}

impl Generation {
    fn load(number: u64, sources: &[Source]) -> Result<Self, Problems> {
        let (rules, lints) = load(sources)?;
        let numbers = (0..)
            .zip(&rules)
            .map(|(nth, rule)| (rule.id.as_str().into(), nth))
            .collect();
        Ok(Self {
            number,
            index: Index::new(&rules),
            lints,
            numbers,
            alone: rules
                .iter()
                .map(|rule| Arc::from([rule.id.clone()]))
                .collect(),
            nobody: Arc::from([]),
            reads: rules
                .iter()
                .fold(Attributes::NONE, |reads, rule| reads.or(rule.reads)),
            rules,
            shelves: Shelves::new(),
        })
    }

    /// Rises by one with every successful load, from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What the load found doubtful.
    #[must_use]
    pub fn lints(&self) -> &[Lint] {
        &self.lints
    }

    /// How many policies there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there is no policy, and so nothing is permitted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Judges whether the request may be asked.
    ///
    /// One that holds many others is allowed only where every other to the host is: whatever its
    /// method, and by rules that do not look at what tells one request from another.
    pub fn ask(&self, facts: &Facts<'_>) -> Verdict {
        self.judge(facts, None)
    }

    /// Judges whether the request may carry a credential, at that place, in
    /// [`crate::message::Place`]'s text form.
    ///
    /// A loan does not include the request: [`Self::ask`] must have allowed that.
    pub fn lend(&self, facts: &Facts<'_>, credential: &CredentialName, place: &str) -> Verdict {
        self.judge(facts, Some(Loan { credential, place }))
    }

    /// Whether any permit's scope lets the session ask the host anything: what a name server inside
    /// may answer for.
    ///
    /// Conditions are unknown here, so a yes promises nothing.
    #[must_use]
    pub fn may_resolve(&self, session: &SessionId, groups: &[Arc<str>], host: &Host) -> bool {
        self.index.may_ask(session.as_str(), groups, host)
    }

    /// The hosts that permits reach, for a CA's name constraints; `None` if one of them reaches
    /// every host.
    #[must_use]
    pub fn hosts(&self) -> Option<Vec<HostScope>> {
        let mut hosts = BTreeSet::new();
        for rule in &self.rules {
            if !rule.permits || rule.actions.and(Actions::ASK).is_empty() {
                continue;
            }
            match &rule.resource {
                What::Anything => return None,
                What::Host(name) => hosts.insert(HostScope::Host(name.clone())),
                What::Domain(name) => hosts.insert(HostScope::Domain(name.clone())),
                What::Credential(_) | What::Nothing => false,
            };
        }
        Some(hosts.into_iter().collect())
    }

    /// Judges either question.
    pub(super) fn judge(&self, facts: &Facts<'_>, loan: Option<Loan<'_>>) -> Verdict {
        let verdict = self.judge_alone(facts, loan);
        if !facts.batch || loan.is_some() || !verdict.allowed() {
            return verdict;
        }
        let is_whole = METHODS.iter().all(|method| {
            let facts = Facts { method, ..*facts };
            self.judge_alone(&facts, None).allowed()
        });
        if is_whole {
            verdict
        } else {
            self.verdict(Outcome::Unjudged(Fault::Batch), Arc::clone(&self.nobody))
        }
    }

    fn judge_alone(&self, facts: &Facts<'_>, loan: Option<Loan<'_>>) -> Verdict {
        let question = question(facts, loan);
        let Some(slice) = self.slice(&question) else {
            return self.verdict(Outcome::Unpermitted, Arc::clone(&self.nobody));
        };
        if facts.batch && slice.rules.reads.holds_any(&Attributes::OF_ONE_REQUEST) {
            return self.verdict(Outcome::Unjudged(Fault::Batch), Arc::clone(&self.nobody));
        }
        if let Some(verdict) = &slice.constant {
            return verdict.clone();
        }
        KEY.with_borrow_mut(|key| {
            let keeps = memo::key(slice.rules.reads, facts, loan, key);
            if keeps && let Some(verdict) = slice.memo.find(key) {
                return verdict;
            }
            let verdict = match context(
                slice.rules.reads,
                facts,
                loan.map(|loan| (loan, &slice.origin)),
            ) {
                Ok(context) => self.evaluate(&slice, question.action, context),
                Err(fault) => self.verdict(Outcome::Unjudged(fault), Arc::clone(&self.nobody)),
            };
            if keeps {
                slice.memo.keep(key, verdict.clone());
            }
            verdict
        })
    }

    /// Whether a rule that can apply to this question reads a field.
    pub(super) fn reads_fields(&self, facts: &Facts<'_>, loan: Option<Loan<'_>>) -> bool {
        let reads = |facts: &Facts<'_>| {
            let slice = self.slice(&question(facts, loan));
            slice.is_some_and(|slice| slice.rules.reads.holds_any(&Attributes::OF_FIELDS))
        };
        // A batch is allowed only where each method is.
        let of_a_batch = |method| reads(&Facts { method, ..*facts });
        self.reads.holds_any(&Attributes::OF_FIELDS)
            && (reads(facts) || facts.batch && METHODS.into_iter().any(of_a_batch))
    }

    /// The question's slice, kept for the next one like it; `None` if no rule can apply.
    fn slice(&self, question: &Question<'_>) -> Option<Arc<Slice>> {
        match self.shelves.slice(question) {
            Ok(slice) => Some(slice),
            // Where there is none nothing is kept: made-up names must not push out the slices of
            // real ones.
            Err(key) => {
                let slice = Arc::new(self.new_slice(question)?);
                self.shelves.keep(key, Arc::clone(&slice));
                Some(slice)
            }
        }
    }

    fn new_slice(&self, question: &Question<'_>) -> Option<Slice> {
        let matching = self.index.matching(
            question.session,
            question.groups,
            question.action,
            question.target(),
        );
        if matching.is_empty() {
            return None;
        }
        let mut slice = Slice::new(question, self.shelves.rule_set(matching, &self.rules));
        if !slice.rules.conditional {
            slice.constant = Some(self.by_scope_alone(&slice.rules));
        } else if slice.rules.reads.is_empty() {
            slice.constant = Some(self.evaluate(&slice, question.action, Context::empty()));
        }
        Some(slice)
    }

    /// The verdict of rules that have only scopes, all of which match.
    fn by_scope_alone(&self, set: &RuleSet) -> Verdict {
        let those = |permits: bool| -> Vec<u32> {
            set.rules
                .iter()
                .copied()
                .filter(|nth| self.rules[*nth as usize].permits == permits)
                .collect()
        };
        match those(false) {
            forbids if !forbids.is_empty() => self.verdict(Outcome::Forbidden, self.named(forbids)),
            _ => self.verdict(Outcome::Allowed, self.named(those(true))),
        }
    }

    fn evaluate(&self, slice: &Slice, action: Action, context: Context) -> Verdict {
        static AUTHORIZER: LazyLock<Authorizer> = LazyLock::new(Authorizer::new);
        let request = Request::new(
            slice.principal.clone(),
            action.uid().clone(),
            slice.resource.clone(),
            context,
            // Checked by construction: a property test holds every context against the schema.
            None,
        );
        match request {
            Ok(request) => {
                self.read(&AUTHORIZER.is_authorized(&request, &slice.rules.set, &slice.entities))
            }
            Err(_) => self.verdict(Outcome::Unjudged(Fault::Context), Arc::clone(&self.nobody)),
        }
    }

    /// Reads Cedar's answer: an error is a denial, whatever the decision.
    fn read(&self, response: &Response) -> Verdict {
        let diagnostics = response.diagnostics();
        let erred: Vec<u32> = diagnostics
            .errors()
            .map(|AuthorizationError::PolicyEvaluationError(error)| error.policy_id())
            .filter_map(|id| self.number_of(id.as_ref()))
            .collect();
        if diagnostics.errors().next().is_some() {
            return self.verdict(Outcome::PolicyError, self.named(erred));
        }
        let decided: Vec<u32> = diagnostics
            .reason()
            .filter_map(|id| self.number_of(id.as_ref()))
            .collect();
        let outcome = match (response.decision(), decided.is_empty()) {
            (Decision::Allow, _) => Outcome::Allowed,
            (Decision::Deny, true) => Outcome::Unpermitted,
            (Decision::Deny, false) => Outcome::Forbidden,
        };
        self.verdict(outcome, self.named(decided))
    }

    fn number_of(&self, id: &str) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    /// The rules' ids, in the order of the sources.
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

    fn verdict(&self, outcome: Outcome, policies: Arc<[PolicyId]>) -> Verdict {
        Verdict {
            outcome,
            policies,
            generation: self.number,
        }
    }
}

fn question<'a>(facts: &Facts<'a>, loan: Option<Loan<'a>>) -> Question<'a> {
    Question {
        session: facts.session.as_str(),
        groups: facts.groups,
        action: if loan.is_some() {
            Action::Lend
        } else {
            Action::of_method(facts.method)
        },
        credential: loan.map(|loan| loan.credential.as_str()),
        host: facts.host,
    }
}

/// One for each action that a request can be.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "OTHER",
];

thread_local! {
    static KEY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[cfg(test)]
#[path = "generation_tests.rs"]
pub(super) mod tests;
