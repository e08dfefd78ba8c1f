//! What a person refused to a workload: it holds in its session until the person undoes it.

use std::sync::Arc;

use http::StatusCode;

use super::app::App;
use super::{proposal, proposed};
use crate::audit::Injected;
use crate::control::ControlRefusal;
use crate::gateway::Proposal;
use crate::names::{CredentialName, SessionId};
use crate::policy::{Declared, Generation, OwnedFacts, Policies, Source};

/// Returns what a person refused to a session and a rule would permit, in any spelling of its path.
/// The rule is loaded and asked: that two requests differ as texts says nothing.
pub(super) fn permitted(
    app: &App,
    session: &SessionId,
    rule: &str,
    loan: Option<&Injected>,
) -> Vec<Proposal> {
    let mut denied = app.shared.proposals.denied(session);
    let sources = [Source::new("the rule", rule)];
    // A rule that does not load is refused when it is applied.
    if let Ok(alone) = Policies::load(&sources, Declared::default()) {
        let alone = alone.current();
        denied.retain(|one| permits(&alone, app, one, loan));
    }
    denied
}

/// Whether a rule permits what was refused: the request, or the loan to it. Without a whole request
/// it does where it permits anything at the host.
fn permits(rule: &Arc<Generation>, app: &App, denied: &Proposal, loan: Option<&Injected>) -> bool {
    let Some(requests) = requests(app, denied) else {
        let host = &denied.wanted.to.authority.host;
        return rule.may_resolve(&denied.session, &[], host);
    };
    let lends = |request: &OwnedFacts| {
        let named = loan.and_then(|loan| Some((CredentialName::new(&loan.credential).ok()?, loan)));
        named.is_some_and(|(name, loan)| rule.lend(&request.facts(), &name, &loan.place).allowed())
    };
    let permitted = |one: &OwnedFacts| rule.ask(&one.facts()).allowed() || lends(one);
    requests.iter().any(permitted)
}

/// The request that was refused, once for each reading of its path.
fn requests(app: &App, denied: &Proposal) -> Option<Vec<OwnedFacts>> {
    let record = proposed::record(denied)?;
    let request = proposal::request(&record, Some(&app.config)).ok()?;
    proposal::in_each_reading(&request)
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
