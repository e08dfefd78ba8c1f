//! What a person refused to a workload: it holds in its session until the person undoes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;

use super::app::App;
use super::{proposal, proposed, standing};
use crate::audit::Record;
use crate::config::Config;
use crate::control::ControlRefusal;
use crate::gateway::{Proposal, ProposalState, ProposedAccess};
use crate::message::{Authority, Origin, Scheme};
use crate::names::{CredentialName, SessionId};
use crate::policy::{Declared, Generation, Operation, OwnedFacts, Policies, Source};

/// A credential, and where it stands in a request.
pub(super) type NamedLoan = (CredentialName, String);

/// What a person refused, as rules are asked about it.
struct Denial {
    session: SessionId,
    wanted: ProposedAccess,
    /// The request in each spelling of its path; `None` if it is not known whole.
    requests: Option<Vec<OwnedFacts>>,
}

impl Denial {
    fn of(session: &SessionId, wanted: &ProposedAccess, config: Option<&Config>) -> Self {
        let record = proposed::record_of(session, wanted);
        let request = record.and_then(|record| proposal::request(&record, config).ok());
        Self {
            session: session.clone(),
            wanted: wanted.clone(),
            requests: request.and_then(|request| proposal::in_each_reading(&request)),
        }
    }

    /// Reads what the audit log shows of a refusal. That is without a scheme, so it is of both.
    fn shown(session: &SessionId, shown: &str) -> Vec<Self> {
        let first = shown.split(" or ").next().unwrap_or_default();
        let (method, to) = first.split_once(' ').unwrap_or(("", first));
        let (host, path) = to.split_at(to.find('/').unwrap_or(to.len()));
        let Ok(authority) = Authority::parse(host.as_bytes(), Some(443)) else {
            return Vec::new();
        };
        let request = (!path.is_empty()).then(|| (method.to_owned(), path.to_owned()));
        let of = |scheme| ProposedAccess {
            to: Origin {
                scheme,
                authority: authority.clone(),
            },
            request: request.clone(),
            refused: None,
        };
        [Scheme::Https, Scheme::Http]
            .map(|scheme| Self::of(session, &of(scheme), None))
            .into()
    }

    /// Whether a rule permits what was refused: the request, or a loan to it. Without a whole
    /// request it does where it permits anything at the host.
    fn is_permitted_by(&self, rule: &Arc<Generation>, loans: &[NamedLoan]) -> bool {
        let Some(requests) = &self.requests else {
            let host = &self.wanted.to.authority.host;
            return rule.may_resolve(&self.session, &[], host);
        };
        let lends = |one: &OwnedFacts, (name, place): &NamedLoan| {
            let verdict = rule.lend(&one.facts(), name, place);
            verdict.allowed()
        };
        let is_permitted = |one: &OwnedFacts| {
            rule.ask(&one.facts()).allowed() || loans.iter().any(|loan| lends(one, loan))
        };
        requests.iter().any(is_permitted)
    }
}

/// What a person refused, as an audit log tells, by the id of the proposal.
#[derive(Default)]
pub(super) struct ToldDenials(BTreeMap<String, (String, Vec<Denial>)>);

impl ToldDenials {
    /// Notes what a person refused, or took back.
    pub(super) fn hear(&mut self, record: &Record) {
        let is_answer = record.name.as_deref() == Some(Operation::ProposalRefuse.name())
            && record.decision.as_deref() == Some("allow");
        let subject = record.subject.as_deref().filter(|_| is_answer);
        let subject = subject.unwrap_or_default();
        let undone = subject.strip_prefix("undo ");
        let session = SessionId::new(record.session.as_deref().unwrap_or_default());
        match (undone.unwrap_or(subject).split_once(' '), session) {
            (Some((id, _)), _) if undone.is_some() => drop(self.0.remove(id)),
            (Some((id, shown)), Ok(session)) => {
                let denials = Denial::shown(&session, shown);
                self.0.insert(id.to_owned(), (shown.to_owned(), denials));
            }
            _ => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each as it was shown.
    pub(super) fn shown(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|(shown, _)| shown.as_str())
    }

    /// What was refused and may be this request, as it was shown.
    pub(super) fn of(&self, asked: &ProposedAccess) -> Option<&str> {
        let is_of = |all: &[Denial]| all.iter().any(|one| one.wanted.may_be_same(asked));
        let mut all = self.0.values();
        let found = all.find(|(_, denials)| is_of(denials));
        found.map(|(shown, _)| shown.as_str())
    }

    /// Asks a rule, alone, about everything that was refused: it may cover many paths.
    pub(super) fn are_permitted_by(&self, rule: &str, loans: &[NamedLoan]) -> bool {
        let rule = alone(rule).filter(|_| !self.is_empty());
        let mut denials = self.0.values().flat_map(|(_, denials)| denials);
        rule.is_some_and(|rule| denials.any(|one| one.is_permitted_by(&rule, loans)))
    }
}

/// Loads a rule alone, to ask it. `None` if it does not load, and so permits nothing.
pub(super) fn alone(rule: &str) -> Option<Arc<Generation>> {
    let sources = [Source::new("the rule", rule)];
    let loaded = Policies::load(&sources, Declared::default()).ok()?;
    Some(loaded.current())
}

/// Returns what a person refused to a session and a rule would permit, in any spelling of its path.
/// The rule is loaded and asked: that two requests differ as texts says nothing.
pub(super) fn permitted(
    app: &App,
    session: &SessionId,
    rule: &str,
    loans: &[NamedLoan],
) -> Vec<Proposal> {
    let mut denied = app.shared.proposals.denied(session);
    match alone(rule) {
        Some(rule) => denied.retain(|one| of(app, one).is_permitted_by(&rule, loans)),
        None => denied.clear(),
    }
    denied
}

/// Returns what a person refused to the session of a request, if it may be this request.
pub(super) fn same(app: &App, request: &OwnedFacts) -> Vec<Proposal> {
    let asked = proposal::access(request);
    let mut denied = app.shared.proposals.denied(&request.session);
    denied.retain(|one| one.wanted.may_be_same(&asked));
    denied
}

fn of(app: &App, denied: &Proposal) -> Denial {
    Denial::of(&denied.session, &denied.wanted, Some(&app.config))
}

/// Leaves out of granted rules those that were granted elsewhere and permit what a person refused
/// here, and says so. What `allowed` has is granted here. Returns whether there was one.
pub(crate) fn withhold(app: &App, granted: &mut [Source], allowed: &[Source]) -> bool {
    let mut denied = app.shared.proposals.all();
    denied.retain(|one| one.state == ProposalState::Refused);
    if denied.is_empty() {
        return false;
    }
    let (loans, allowed) = (loans(app), standing::rules(allowed));
    let stands = |rule: &str| app.standing.has(rule) || allowed.contains(rule);
    let denial = |rule: &str| {
        let rule = alone(rule).filter(|_| !stands(rule))?;
        let permits = |one: &&Proposal| of(app, one).is_permitted_by(&rule, &loans);
        denied.iter().find(permits)
    };
    let mut withheld = false;
    for source in granted {
        for (place, rule) in source.rules() {
            if let Some(denied) = denial(&rule) {
                source.leave_out(place);
                warn(denied);
                withheld = true;
            }
        }
    }
    withheld
}

/// Every credential, in each place that it may have.
fn loans(app: &App) -> Vec<NamedLoan> {
    let snapshot = app.shared.current();
    let bindings = snapshot.credentials.bindings().all();
    let all = bindings.flat_map(|binding| {
        let places = binding.places.iter().map(ToString::to_string);
        places.map(|place| (binding.credential.clone(), place))
    });
    all.collect()
}

fn warn(denied: &Proposal) {
    let (id, wanted) = (&denied.id, denied.wanted.shown());
    tracing::warn!(
        "a rule that was granted elsewhere is left out, since a person has refused `{wanted}` \
         here: `gateway deny --undo {id}`, then `gateway reload`"
    );
}

/// Refuses a rule for what a person refused.
///
/// # Errors
/// Returns what was refused, and how to undo that.
pub(super) fn refuse(denied: &[Proposal]) -> Result<(), ControlRefusal> {
    let Some(denied) = denied.first() else {
        return Ok(());
    };
    let (id, wanted) = (&denied.id, denied.wanted.shown());
    let what = format!("a person has refused `{wanted}`");
    Err(ControlRefusal::new(StatusCode::CONFLICT, what)
        .because("that holds for the session until it is undone")
        .next(format!("undo it first: `gateway deny --undo {id}`")))
}
