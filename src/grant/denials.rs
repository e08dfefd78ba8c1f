//! How a person answered a workload's proposals: a refusal holds in its session until the person
//! undoes it, and a proposal that is allowed waits no more.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use gateway_audit::{Record, VerifiedRecord};
use gateway_message::{Authority, Origin, Scheme};
use gateway_names::{CredentialName, SessionId};
use gateway_policy::{
    Declared, Generation, Operation, OwnedFacts, Policies, Principal, Requester, Source,
};
use gateway_server::{Proposal, ProposalState, RequestedAccess};

use super::error::ControlRefusal;
use super::grants::{Grants, rules};
use super::request;

/// A credential, and its place in a request.
pub(super) type NamedLoan = (CredentialName, String);

/// Loads a rule alone, so that requests can be judged by it: comparing texts would prove nothing.
/// Returns `None` if the rule does not load, and so permits nothing.
pub(super) fn alone(rule: &str) -> Option<Arc<Generation>> {
    let sources = [Source::new("the rule", rule)];
    let loaded = Policies::load(&sources, Declared::default()).ok()?;
    Some(loaded.current())
}

/// Whether a rule permits a refused request, or a loan to it, in any spelling of its path. A
/// refusal without a whole request counts as permitted if the rule permits anything at the host.
fn permits(
    rule: &Generation,
    (session, wanted): (&SessionId, &RequestedAccess),
    groups: &[Arc<str>],
    loans: &[NamedLoan],
) -> bool {
    let request = request::of_access(session, wanted);
    let Some(all) = request.and_then(|one| request::in_each_spelling(&one)) else {
        let who = Principal {
            session,
            user: None,
            groups,
        };
        return rule.may_resolve(who, &wanted.to.authority.host);
    };
    all.into_iter().any(|request| {
        let groups = groups.to_vec();
        let request = OwnedFacts { groups, ..request };
        let facts = request.facts();
        let lends = |(name, place): &NamedLoan| rule.lend(&facts, name, place).allowed();
        rule.ask(&facts).allowed() || loans.iter().any(lends)
    })
}

/// The refusals by a person that an audit log records, by the id of the proposal.
#[derive(Default)]
pub struct RecordedDenials(BTreeMap<String, (String, Vec<(SessionId, RequestedAccess)>)>);

impl RecordedDenials {
    /// Notes a refusal by a person, or that one was undone.
    pub fn note(&mut self, record: &Record) {
        let is_answer = record.name.as_deref() == Some(Operation::ProposalRefuse.as_str())
            && record.decision.as_deref() == Some("allow");
        let subject = record.subject.as_deref().filter(|_| is_answer);
        let subject = subject.unwrap_or_default();
        if let Some(undone) = subject.strip_prefix("undo ") {
            self.0.remove(undone.split(' ').next().unwrap_or_default());
        } else if let Some((id, shown)) = subject.split_once(' ')
            && let Ok(session) = SessionId::new(record.session.as_deref().unwrap_or_default())
        {
            let denied = read(shown).into_iter().map(|one| (session.clone(), one));
            let denied = (shown.to_owned(), denied.collect());
            self.0.insert(id.to_owned(), denied);
        }
    }

    /// Returns each refusal as it was shown.
    pub(super) fn shown(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|(shown, _)| shown.as_str())
    }

    /// Returns the refusal, as it was shown, that may be of this request.
    pub fn of(&self, asked: &RequestedAccess) -> Option<&str> {
        let mut all = self.0.values();
        let found = all.find(|(_, all)| all.iter().any(|(_, one)| one.may_be_same(asked)));
        found.map(|(shown, _)| shown.as_str())
    }

    /// Judges every refused request by a rule alone, since the rule may cover many paths.
    pub(super) fn are_permitted_by(&self, rule: &str, loans: &[NamedLoan]) -> bool {
        let rule = alone(rule).filter(|_| !self.0.is_empty());
        let mut all = self.0.values().flat_map(|(_, all)| all);
        rule.is_some_and(|rule| {
            all.any(|(session, wanted)| permits(&rule, (session, wanted), &[], loans))
        })
    }
}

/// Reads a refusal as the audit log shows it. It names no scheme, so it stands for both.
fn read(shown: &str) -> Vec<RequestedAccess> {
    let first = shown.split(" or ").next().unwrap_or_default();
    let (method, to) = first.split_once(' ').unwrap_or(("", first));
    let (host, path) = to.split_at(to.find('/').unwrap_or(to.len()));
    let Ok(authority) = Authority::parse(host.as_bytes(), Some(443)) else {
        return Vec::new();
    };
    let of = |scheme| RequestedAccess {
        to: Origin {
            scheme,
            authority: authority.clone(),
        },
        request: (!path.is_empty()).then(|| (method.to_owned(), path.to_owned())),
        refused: None,
    };
    [Scheme::Https, Scheme::Http].map(of).into()
}

impl Grants {
    /// Whether a rule permits what a person refused here.
    fn is_permitted(&self, one: &Proposal, rule: &Generation, loans: &[NamedLoan]) -> bool {
        let session = self.shared.sessions.get(&one.session);
        let groups = session.map(|session| session.last_groups());
        let denied = (&one.session, &one.wanted);
        permits(rule, denied, groups.as_deref().unwrap_or_default(), loans)
    }

    /// Returns the proposals that a person refused to a session and that a rule would permit.
    pub(super) fn denied_by(
        &self,
        session: &SessionId,
        rule: &str,
        loans: &[NamedLoan],
    ) -> Vec<Proposal> {
        let mut denied = self.shared.proposals.denied(session);
        let rule = alone(rule);
        denied.retain(|one| {
            let rule = rule.as_deref();
            rule.is_some_and(|rule| self.is_permitted(one, rule, loans))
        });
        denied
    }

    /// Refuses a rule for others than one session if it would permit anything that a person refused
    /// to any session.
    pub(super) fn refuse_denied_to_any(&self, rule: &str) -> Result<(), ControlRefusal> {
        let mut denied = self.shared.proposals.all();
        let (rule, loans) = (alone(rule), self.loans());
        denied.retain(|one| {
            let is_permitted = |rule: &Arc<Generation>| self.is_permitted(one, rule, &loans);
            one.state == ProposalState::Refused && rule.as_ref().is_none_or(is_permitted)
        });
        refuse(&denied)
    }

    /// Leaves out each granted rule that was granted elsewhere and would permit what a person
    /// refused here, and warns of it. The rules of `allowed` count as granted here. Returns whether
    /// any rule was left out.
    pub fn withhold(&self, granted: &mut [Source], allowed: &[Source]) -> bool {
        let mut denied = self.shared.proposals.all();
        denied.retain(|one| one.state == ProposalState::Refused);
        if denied.is_empty() {
            return false;
        }
        let (loans, allowed) = (self.loans(), rules(allowed));
        let stands = |rule: &str| self.standing.lock().contains(rule) || allowed.contains(rule);
        let denial = |rule: &str| {
            let rule = alone(rule).filter(|_| !stands(rule))?;
            denied
                .iter()
                .find(|one| self.is_permitted(one, &rule, &loans))
        };
        let mut withheld = false;
        for source in granted {
            for (place, rule) in source.rules() {
                if let Some(denied) = denial(&rule) {
                    source.leave_out(place);
                    let (id, wanted) = (&denied.id, denied.wanted.shown());
                    tracing::warn!(
                        "a rule that was granted elsewhere is left out, since a person has refused \
                         `{wanted}` here: `gateway deny --undo {id}`, then `gateway reload`"
                    );
                    withheld = true;
                }
            }
        }
        withheld
    }

    /// Marks as granted the proposals that are allowed now. Call it after a rule is applied.
    pub fn settle(&self) {
        let proposals = &self.shared.proposals;
        let mut waiting = proposals.all();
        // A refused request may be allowed too: a person named its host. This holds for a request
        // only; for a refused host, any rule covers only a part.
        waiting.retain(|one| one.state != ProposalState::Granted);
        let ids = waiting.iter().filter_map(|one| one.wanted.refused);
        let ids: HashSet<String> = ids.map(|id| id.to_string()).collect();
        // The log, which may be large, is read once for all. If it cannot be read, all still wait.
        let read = |found: &mut HashMap<String, VerifiedRecord>, record: VerifiedRecord| {
            if let Some(id) = record.id.as_deref().filter(|id| ids.contains(*id)) {
                found.insert(id.to_owned(), record);
            }
        };
        let refused = if ids.is_empty() {
            HashMap::new()
        } else {
            self.refused(read).unwrap_or_default()
        };
        for one in &waiting {
            let record = one.wanted.refused.map(|id| refused.get(&id.to_string()));
            let is_known = record.is_none_or(|record| record.is_some());
            if is_known && self.is_allowed_now(one, record.flatten().map(|record| &**record)) {
                let to = (one.state, ProposalState::Granted);
                // The rule that allows it is recorded.
                let _ = proposals.settle((&one.session, one.id), to, None);
            }
        }
    }

    /// Whether a proposal, or the refused exchange behind it, is allowed now in a live session.
    fn is_allowed_now(&self, one: &Proposal, record: Option<&Record>) -> bool {
        let session = self.shared.sessions.get(&one.session);
        let Some(session) = session.filter(|session| !session.is_over()) else {
            return false;
        };
        let generation = self.shared.current().policies.current();
        let asker = Requester::of(&session, None, u64::MAX);
        let request = match record {
            Some(record) => request::of_record(record),
            None => request::of_access(&one.session, &one.wanted),
        };
        match request {
            Some(request) => {
                let groups = asker.groups.to_vec();
                let request = OwnedFacts { groups, ..request };
                generation.ask(&request.facts()).allowed()
            }
            // There was no request: only a name, or a tunnel.
            None => {
                let host = &one.wanted.to.authority.host;
                let waits = one.state == ProposalState::Waiting;
                waits && generation.may_resolve(asker.principal(), host)
            }
        }
    }

    /// Returns every credential with each of its places.
    fn loans(&self) -> Vec<NamedLoan> {
        let snapshot = self.shared.current();
        let bindings = snapshot.credentials.bindings().all();
        let all = bindings.flat_map(|binding| {
            let places = binding.places.iter().map(ToString::to_string);
            places.map(|place| (binding.credential.clone(), place))
        });
        all.collect()
    }
}

/// Refuses a rule if it would permit any of these refused proposals.
pub(super) fn refuse(denied: &[Proposal]) -> Result<(), ControlRefusal> {
    let Some(denied) = denied.first() else {
        return Ok(());
    };
    let (id, wanted) = (&denied.id, denied.wanted.shown());
    Err(
        ControlRefusal::conflict(format!("a person has refused `{wanted}`"))
            .because("that holds for the session until it is undone")
            .next(format!("undo it first: `gateway deny --undo {id}`")),
    )
}
