//! The rules that can apply to the requests of one session to one host, looked up once.

use std::sync::Arc;

use gateway_intercept::Caller;
use gateway_message::Host;
use gateway_names::{CredentialName, SessionId};
use gateway_session::Session;
use parking_lot::{Mutex, RwLock};

use super::question::Facts;
use super::rule_set::{Question, RuleSet};
use super::schema::Action;

/// Caches the rules that can apply to the requests of a session to a host.
#[derive(Default)]
pub struct KnownRules(Mutex<Option<Arc<ApplicableRules>>>);

impl KnownRules {
    /// Returns the rules of a session, its caller and a host. They are looked up anew for another
    /// generation, session, caller or host, or if the session's groups changed.
    pub(super) fn of(
        &self,
        generation: u64,
        (session, caller): (&Session, Option<&Arc<Caller>>),
        host: &Host,
    ) -> Arc<ApplicableRules> {
        let own = session.groups(generation);
        let mut known = self.0.lock();
        let is_it = |rules: &&Arc<ApplicableRules>| {
            rules.generation == generation
                && Arc::ptr_eq(&rules.own, &own)
                && rules.caller.as_ref().map(Arc::as_ptr) == caller.map(Arc::as_ptr)
                && rules.session == *session.id()
                && rules.host == *host
        };
        if let Some(rules) = known.as_ref().filter(is_it) {
            return rules.clone();
        }
        let rules = Arc::new(ApplicableRules {
            generation,
            session: session.id().clone(),
            groups: Caller::with_groups(caller.map(|caller| &**caller), own.clone()),
            own,
            caller: caller.cloned(),
            host: host.clone(),
            sets: RwLock::default(),
        });
        *known = Some(rules.clone());
        rules
    }
}

/// The facts of a question, with the applicable rules of this session and host, if they are known.
#[derive(Clone, Copy)]
pub(super) struct AskedFacts<'a> {
    pub(super) facts: &'a Facts<'a>,
    pub(super) rules: Option<&'a ApplicableRules>,
}

impl<'a> From<&'a Facts<'a>> for AskedFacts<'a> {
    fn from(facts: &'a Facts<'a>) -> Self {
        Self { facts, rules: None }
    }
}

/// The sets of rules that can apply, each looked up when a question first needs it.
#[derive(Debug)]
pub(super) struct ApplicableRules {
    pub(super) generation: u64,
    session: SessionId,
    pub(super) caller: Option<Arc<Caller>>,
    /// The session's own groups, in this generation.
    own: Arc<[Arc<str>]>,
    /// The session's own groups and the caller's.
    pub(super) groups: Arc<[Arc<str>]>,
    host: Host,
    /// The sets by action and credential: at most one for each action and each credential to lend.
    sets: RwLock<Vec<KnownSet>>,
}

/// Returns the set for a question, if it was looked up.
fn known<'s>(
    sets: &'s [KnownSet],
    (action, credential): (Action, Option<&CredentialName>),
) -> Option<&'s Option<Arc<RuleSet>>> {
    let is_it = |known: &&KnownSet| known.0 == action && known.1.as_ref() == credential;
    Some(&sets.iter().find(is_it)?.2)
}

/// The rules that can apply to an action, or to the use of a credential. `None` if no rule can.
type KnownSet = (Action, Option<CredentialName>, Option<Arc<RuleSet>>);

impl ApplicableRules {
    /// Returns the facts that the rules for these questions read, as bits; `None` if the rules for
    /// one of them were not looked up yet.
    pub(super) fn bits<'a>(
        &self,
        questions: impl Iterator<Item = (Action, Option<&'a CredentialName>)>,
    ) -> Option<u64> {
        let sets = self.sets.read();
        questions.into_iter().try_fold(0, |all, asked| {
            let set = known(&sets, asked)?.as_ref();
            Some(all | set.map_or(0, |set| set.bits))
        })
    }

    /// Returns the set for a question of this session about this host; `find` looks it up at first.
    pub(super) fn set(
        &self,
        question: &Question<'_>,
        find: impl FnOnce() -> Option<Arc<RuleSet>>,
    ) -> Option<Arc<RuleSet>> {
        let (action, credential) = (question.action(), question.credential());
        if let Some(set) = known(&self.sets.read(), (action, credential)) {
            return set.clone();
        }
        let set = find();
        let known = (action, credential.cloned(), set.clone());
        self.sets.write().push(known);
        set
    }
}
