//! What future requests could do: the hosts that they reach, and the credentials lent to them.
//!
//! Cedar judges the rules with only the conditions on facts that are known beforehand. Any other
//! condition may hold for some request, so a permit counts, and a forbid does not.

use std::collections::BTreeSet;
use std::sync::Arc;

use cedar_policy::Decision;
use cedar_policy::pst::{BinaryOp, Clause, Effect, Expr, UnaryOp};
use gateway_intercept::Caller;
use gateway_message::{
    Authority, EncodedSlash, Host, HostPattern, Origin, OriginPattern, RequestHead, RequestTarget,
    Scheme,
};
use gateway_names::{SessionId, User};
use gateway_session::{Binding, Session};

use super::fact::Fact;
use super::generation::{Generation, HostScope, METHODS, ask_cedar};
use super::question::{Facts, LendQuestion, OwnedFacts, Principal};
use super::reads::{ExpressionReads, reads_of};
use super::rule::{Principals, Resources, Rule, open};
use super::rule_set::{Part, Question};

/// The principal of future requests.
#[derive(Clone, Debug)]
pub struct Requester {
    /// The session.
    pub session: SessionId,
    /// The user behind its connection, if evidence names one.
    pub user: Option<User>,
    /// All groups of both.
    pub groups: Arc<[Arc<str>]>,
}

impl Requester {
    /// Returns the principal of a session, its caller, if evidence shows one, and the session's
    /// groups in a generation.
    #[must_use]
    pub fn of(session: &Session, caller: Option<&Caller>, generation: u64) -> Self {
        Self {
            session: session.id().clone(),
            user: caller.and_then(|caller| caller.user.clone()),
            groups: Caller::with_groups(caller, session.groups(generation)),
        }
    }

    /// Returns the principal for a question.
    #[must_use]
    pub fn principal(&self) -> Principal<'_> {
        Principal {
            session: &self.session,
            user: self.user.as_ref(),
            groups: &self.groups,
        }
    }
}

impl Generation {
    /// Returns the users and groups that rules name, each as a principal in this session.
    pub fn askers(&self, session: &SessionId) -> impl Iterator<Item = Requester> {
        let named: BTreeSet<_> = self
            .rules
            .iter()
            .map(|rule| match &rule.principal {
                Principals::Group(name) => (None, Some(name.as_str())),
                Principals::User(name) => (Some(name.as_str()), None),
                _ => (None, None),
            })
            .collect();
        named.into_iter().map(|(user, group)| Requester {
            session: session.clone(),
            user: user.and_then(User::new),
            groups: group.into_iter().map(Arc::from).collect(),
        })
    }

    /// Returns the credentials that permits name for lending.
    pub fn lent_by_name(&self) -> BTreeSet<String> {
        let name = |rule: &Rule| match &rule.resource {
            Resources::Credential(name) if rule.permits => Some(name.clone()),
            _ => None,
        };
        self.rules.iter().filter_map(name).collect()
    }

    /// Returns the hosts that some request could reach. `None` if a permit is for every host.
    pub fn reaches(&self, asker: &Requester) -> Option<Vec<HostScope>> {
        let mut scopes = self.hosts_of(asker.principal())?;
        scopes.retain(|scope| {
            let hosts = match scope {
                HostScope::Host(name) => name.parse().into_iter().collect(),
                HostScope::Domain(name) => self.examples(name, true),
            };
            let mut known = OF_ASKER.to_vec();
            known.extend(matches!(scope, HostScope::Host(_)).then_some(Fact::Host));
            let asks = |host| self.may_ask_with(asker, Scheme::Https, host, 443, &known);
            hosts.into_iter().any(asks)
        });
        Some(scopes)
    }

    /// Whether some request to this origin could be permitted.
    pub fn may_reach(&self, asker: &Requester, to: &Origin) -> bool {
        let mut known = [&OF_ASKER[..], &OF_ORIGIN].concat();
        known.push(Fact::Host);
        let Authority { host, port } = to.authority.clone();
        self.may_ask_with(asker, to.scheme, host, port, &known)
    }

    /// Whether a request with this head could be permitted, whatever else it has.
    pub fn may_permit(&self, asker: &Requester, head: &RequestHead) -> bool {
        let Origin { scheme, authority } = &head.origin;
        let mut request = request(asker, *scheme, authority.host.clone(), authority.port);
        request.target = head.target.clone();
        request.method = head.method.as_str().to_owned();
        let known = [&OF_ASKER[..], &OF_ORIGIN, &OF_HEAD].concat();
        self.is_possible(&request.facts(), None, &known)
    }

    /// Whether a credential could be lent to some request to this origin.
    pub fn may_lend(&self, asker: &Requester, binding: &Binding, to: &OriginPattern) -> bool {
        let mut known = [&OF_ASKER[..], &OF_ORIGIN, &OF_LOAN].concat();
        let hosts = match &to.hosts {
            HostPattern::Exact(host) => {
                known.push(Fact::Host);
                vec![host.clone()]
            }
            HostPattern::Below(domain) => self.examples(domain.as_str(), false),
        };
        hosts.into_iter().any(|host| {
            let request = request(asker, to.scheme, host.clone(), to.port);
            let lends = |place: &str| {
                let credential = &binding.credential;
                let lend = LendQuestion { credential, place };
                self.is_possible(&request.facts(), Some(lend), &known)
            };
            let mut places = binding.places.iter().map(ToString::to_string);
            self.may_ask_with(asker, to.scheme, host, to.port, &known)
                && places.any(|place| lends(&place))
        })
    }

    fn may_ask_with(
        &self,
        asker: &Requester,
        scheme: Scheme,
        host: Host,
        port: u16,
        known: &[Fact],
    ) -> bool {
        let request = request(asker, scheme, host, port);
        METHODS.iter().any(|method| {
            let facts = Facts {
                method,
                ..request.facts()
            };
            self.is_possible(&facts, None, known)
        })
    }

    /// Returns hosts of a domain, one for each that a rule could tell from the others.
    fn examples(&self, domain: &str, with_itself: bool) -> Vec<Host> {
        let text = self.rules.iter().map(|rule| rule.judged.to_string());
        let scopes = self.rules.iter().map(|rule| match &rule.resource {
            Resources::Host(name) | Resources::Domain(name) => format!("::\"{name}\""),
            _ => String::new(),
        });
        let below = format!(".{domain}");
        let mut hosts = BTreeSet::from([format!("any{below}")]);
        hosts.extend(with_itself.then(|| domain.to_owned()));
        for text in text.chain(scopes) {
            let named = text.split("::\"").skip(1);
            let named = named.filter_map(|rest| rest.split('"').next());
            for name in named.filter(|name| name.ends_with(&below)) {
                hosts.extend([name.to_owned(), format!("any.{name}")]);
            }
        }
        hosts.iter().filter_map(|host| host.parse().ok()).collect()
    }

    /// Evaluates the rules in Cedar, by the known facts of the question.
    fn is_possible(
        &self,
        facts: &Facts<'_>,
        lend: Option<LendQuestion<'_>>,
        known: &[Fact],
    ) -> bool {
        let question = Question::new(facts, lend);
        let (action, target) = (question.action(), question.target());
        let matching = self.index.matching(facts.principal(), action, target);
        let rules = matching.iter().map(|nth| *nth as usize);
        let rules = rules.filter_map(|nth| Some((nth, known_part(&self.rules[nth], known)?)));
        let rules: Vec<(usize, Vec<Arc<Expr>>)> = rules.collect();
        let is_free = |(nth, rest): &(usize, Vec<_>)| self.rules[*nth].permits && rest.is_empty();
        if rules.iter().all(|(nth, _)| self.rules[*nth].permits) && rules.iter().any(is_free) {
            return true;
        }
        let judged: Vec<_> = rules
            .into_iter()
            .map(|(nth, rest)| {
                let mut read = ExpressionReads::default();
                rest.iter()
                    .for_each(|one| read.join(&reads_of(one).unwrap_or_default()));
                let effect = if self.rules[nth].permits {
                    Effect::Permit
                } else {
                    Effect::Forbid
                };
                (open(nth, effect, rest.into_iter().map(Clause::When)), read)
            })
            .collect();
        let part = Part::of(judged.iter().map(|(policy, read)| (policy, read)));
        ask_cedar(&part, facts, lend).is_ok_and(|response| {
            let has_failed = response.diagnostics().errors().next().is_some();
            response.decision() == Decision::Allow && !has_failed
        })
    }
}

/// Returns the known part of a rule's conditions. `None` if it is a forbid that may not hold.
fn known_part(rule: &Rule, known: &[Fact]) -> Option<Vec<Arc<Expr>>> {
    let body = rule.judged.to_pst().ok()?;
    let mut parts = Vec::new();
    for clause in body.body().clauses() {
        let (Clause::When(one) | Clause::Unless(one)) = clause;
        match decided(one, rule.permits, known) {
            Some(part) => parts.push(part),
            None if rule.permits => {}
            None => return None,
        }
    }
    Some(parts)
}

/// Returns the part of a condition that the known facts decide. `None` if the unknown rest may give
/// it the `wanted` value.
fn decided(expr: &Arc<Expr>, wanted: bool, known: &[Fact]) -> Option<Arc<Expr>> {
    match &**expr {
        Expr::BinaryOp { op, left, right } if matches!(op, BinaryOp::And | BinaryOp::Or) => {
            let (left, right) = (decided(left, wanted, known), decided(right, wanted, known));
            // One side with the wanted value is enough for `||` to be true, or `&&` to be false.
            let is_enough = (*op == BinaryOp::Or) == wanted;
            match (left, right) {
                (Some(left), Some(right)) => Some(Arc::new(Expr::BinaryOp {
                    op: *op,
                    left,
                    right,
                })),
                (left, right) => left.or(right).filter(|_| !is_enough),
            }
        }
        Expr::UnaryOp { op, expr } if *op == UnaryOp::Not => {
            let expr = decided(expr, !wanted, known)?;
            Some(Arc::new(Expr::UnaryOp { op: *op, expr }))
        }
        _ => {
            let read = reads_of(expr).ok()?;
            let is_known = read.facts.iter().all(|fact| known.contains(fact));
            is_known.then(|| Arc::clone(expr))
        }
    }
}

fn request(asker: &Requester, scheme: Scheme, host: Host, port: u16) -> OwnedFacts {
    let target = RequestTarget::parse(b"/", EncodedSlash::Keep).expect("`/` is a target");
    let mut facts = OwnedFacts::new(asker.session.clone(), scheme, host, target);
    facts.user.clone_from(&asker.user);
    (facts.groups, facts.port) = (asker.groups.to_vec(), port);
    facts
}

const OF_ASKER: [Fact; 2] = [Fact::Session, Fact::Groups];
const OF_ORIGIN: [Fact; 3] = [Fact::Scheme, Fact::Secure, Fact::Port];
const OF_HEAD: [Fact; 7] = [
    Fact::Host,
    Fact::Method,
    Fact::Path,
    Fact::Prefixes,
    Fact::Segments,
    Fact::AnySegments,
    Fact::Depth,
];
const OF_LOAN: [Fact; 3] = [Fact::Credential, Fact::Origin, Fact::Place];
