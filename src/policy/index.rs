//! Finds the rules that can apply, by the principal and resource in their scopes, so that thousands
//! of other rules cost nothing.

use gateway_message::Host;
use gateway_names::Map;
use smallvec::{SmallVec, smallvec};

use super::question::Principal;
use super::rule::{Principals, Resources, Rule};
use super::schema::{Action, Actions, domains};

/// The rules of a generation, indexed by scope.
///
/// A policy whose scope does not match is never satisfied and cannot fail to evaluate, so leaving
/// it out does not change a verdict. `tests/policies.rs` and the property test in `generation.rs`
/// check this against Cedar with the whole set.
#[derive(Default, Debug)]
pub(super) struct Index {
    sessions: Map<Box<str>, u32>,
    groups: Map<Box<str>, u32>,
    users: Map<Box<str>, u32>,
    hosts: Map<Box<str>, u32>,
    domains: Map<Box<str>, u32>,
    credentials: Map<Box<str>, u32>,
    keys: Map<Box<str>, u32>,
    /// Rules by the numbers of principal and resource. 0 means any.
    by_scope: Map<(u32, u32), Vec<u32>>,
    actions: Vec<Actions>,
    permits: Vec<bool>,
    unconditional: Vec<bool>,
}

/// Numbers of rules or scopes. Few of them match, so that they need no allocation.
type Numbers = SmallVec<[u32; 8]>;

/// The resource of a question.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Resource<'a> {
    Host(&'a Host),
    Credential(&'a str),
    SigningKey(&'a str),
}

impl Index {
    /// Indexes the rules by their position in the slice.
    pub fn new(rules: &[Rule]) -> Self {
        let mut index = Self::default();
        for (nth, rule) in (0..).zip(rules) {
            index.actions.push(rule.actions);
            index.permits.push(rule.permits);
            index.unconditional.push(!rule.conditional);
            let who = match &rule.principal {
                Principals::Anyone => 0,
                Principals::Session(id) => number(&mut index.sessions, id, 0),
                Principals::Group(id) => number(&mut index.groups, id, 1),
                Principals::User(id) => number(&mut index.users, id, 2),
                Principals::Nobody => continue,
            };
            let what = match &rule.resource {
                Resources::Anything => 0,
                Resources::Host(id) => number(&mut index.hosts, id, 0),
                Resources::Domain(id) => number(&mut index.domains, id, 1),
                Resources::Credential(id) => number(&mut index.credentials, id, 2),
                Resources::SigningKey(id) => number(&mut index.keys, id, 3),
                Resources::None => continue,
            };
            index.by_scope.entry((who, what)).or_default().push(nth);
        }
        index
    }

    /// Returns the rules whose scope matches, in order.
    pub fn matching(&self, who: Principal<'_>, action: Action, target: Resource<'_>) -> Numbers {
        let mut found = Numbers::new();
        self.reaching(who, target, |rule| {
            if self.actions[rule as usize].holds(action) {
                found.push(rule);
            }
        });
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Calls `each` with the rules whose principal and resource match, whatever the action. A group
    /// that is listed twice repeats its rules.
    pub fn reaching(&self, who: Principal<'_>, target: Resource<'_>, mut each: impl FnMut(u32)) {
        let whats = self.whats(target);
        let groups = who.groups.iter().map(|group| self.groups.get(&**group));
        let user = who.user.filter(|_| !self.users.is_empty());
        let user = user.and_then(|user| self.users.get(user.as_str()));
        let whos = [Some(&0), self.sessions.get(who.session.as_str()), user];
        for who in whos.into_iter().chain(groups).flatten() {
            for what in &whats {
                if let Some(rules) = self.by_scope.get(&(*who, *what)) {
                    rules.iter().copied().for_each(&mut each);
                }
            }
        }
    }

    /// Returns the numbers of the resources that a target is, or is in.
    fn whats(&self, target: Resource<'_>) -> Numbers {
        let mut whats = smallvec![0];
        match target {
            Resource::Host(host) => {
                whats.extend(self.hosts.get(host.as_str()).copied());
                if !self.domains.is_empty() {
                    let numbers = domains(host).filter_map(|domain| self.domains.get(domain));
                    whats.extend(numbers.copied());
                }
            }
            Resource::Credential(name) => whats.extend(self.credentials.get(name).copied()),
            Resource::SigningKey(key) => whats.extend(self.keys.get(key).copied()),
        }
        whats
    }

    /// Whether some permit's scope lets the principal send the host any request, and no
    /// unconditional forbid revokes that.
    pub fn may_ask(&self, who: Principal<'_>, host: &Host) -> bool {
        let mut permitted = Actions::union([]);
        let mut forbidden = Actions::union([]);
        self.reaching(who, Resource::Host(host), |rule| {
            let nth = rule as usize;
            if self.permits[nth] {
                permitted = Actions::union([permitted, self.actions[nth]]);
            } else if self.unconditional[nth] {
                forbidden = Actions::union([forbidden, self.actions[nth]]);
            }
        });
        !permitted.and(Actions::ANY).without(forbidden).is_empty()
    }
}

/// Numbers a name within one of `COUNT` interleaved series, starting at 1, so that names of
/// different kinds never share a number.
fn number(names: &mut Map<Box<str>, u32>, id: &str, series: u32) -> u32 {
    const COUNT: u32 = 4;
    if let Some(number) = names.get(id) {
        return *number;
    }
    let nth = u32::try_from(names.len())
        .expect("a set has fewer than 2^28 rules: sources are bounded to 16 MiB each");
    let number = nth * COUNT + series + 1;
    names.insert(id.into(), number);
    number
}
