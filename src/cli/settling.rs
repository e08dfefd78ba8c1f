//! Marks the proposals that a granted rule allows.

use super::app::App;
use super::{grant, proposal, proposed};
use crate::audit::Record;
use crate::gateway::{Proposal, ProposalState, ProposedAccess};
use crate::message::Host;
use crate::names::SessionId;

/// Marks as granted what is allowed now. Call it after a rule was applied.
pub(super) fn settle(app: &App) {
    let proposals = &app.shared.proposals;
    let waiting = |one: &Proposal| one.state == ProposalState::Waiting;
    for one in proposals.all().into_iter().filter(waiting) {
        let wanted = match &one.wanted {
            ProposedAccess::Request { .. } => proposed::record(&one),
            ProposedAccess::Refused(id, _) => grant::refused_exchange(app, &id.to_string()).ok(),
        };
        if wanted.is_some_and(|record| allowed_now(app, &record)) {
            proposals.settle(&one.session, one.id, ProposalState::Granted);
        }
    }
}

fn allowed_now(app: &App, record: &Record) -> bool {
    let named = record.session.as_deref();
    let id = named.and_then(|named| SessionId::new(named).ok());
    let Some(session) = id.and_then(|id| app.shared.sessions.get(&id)) else {
        return false;
    };
    let generation = app.shared.current().policies.current();
    let groups = session.last_groups().to_vec();
    match proposal::request(record, Some(&app.config)) {
        Ok(mut request) => {
            request.groups = groups;
            generation.ask(&request.facts()).allowed()
        }
        // There was no request: only a name, or a tunnel.
        Err(_) => {
            let host = record.host.as_deref().unwrap_or_default();
            Host::parse(host.as_bytes())
                .is_ok_and(|host| generation.may_resolve(session.id(), &groups, &host))
        }
    }
}
