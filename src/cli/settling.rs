//! Marks the proposals that a granted rule allows.

use std::collections::{HashMap, HashSet};

use super::app::App;
use super::{grant, proposal, proposed};
use crate::audit::{Record, VerifiedRecord};
use crate::gateway::{Proposal, ProposalState};
use crate::message::Host;
use crate::names::SessionId;

/// Marks as granted what is allowed now. Call it after a rule was applied.
pub(super) fn settle(app: &App) {
    let proposals = &app.shared.proposals;
    let mut waiting = proposals.all();
    // What was refused may be allowed too: a person named its host. That holds for a request. Of a
    // refused host, any rule is only a part.
    waiting.retain(|one| one.state != ProposalState::Granted && lives(app, one));
    let refused = refused(app, &waiting);
    for one in &waiting {
        let allowed = match &one.wanted.refused {
            None => proposed::record(one).is_some_and(|record| allowed_now(app, one, &record)),
            Some(id) => {
                let record = refused.get(&id.to_string());
                record.is_some_and(|record| allowed_now(app, one, record))
            }
        };
        if allowed {
            let to = (one.state, ProposalState::Granted);
            // The rule that allows it is recorded.
            let _ = proposals.settle((&one.session, one.id), to);
        }
    }
}

fn lives(app: &App, one: &Proposal) -> bool {
    let session = app.shared.sessions.get(&one.session);
    session.is_some_and(|session| !session.is_over())
}

/// The refusals that proposals name, by id. The log, which may be large, is read once for all.
fn refused(app: &App, waiting: &[Proposal]) -> HashMap<String, VerifiedRecord> {
    let ids = waiting.iter().filter_map(|one| one.wanted.refused);
    let ids: HashSet<String> = ids.map(|id| id.to_string()).collect();
    if ids.is_empty() {
        return HashMap::new();
    }
    let found = grant::refused(app, |found: &mut HashMap<_, _>, record| {
        if let Some(id) = record.id.as_deref().filter(|id| ids.contains(*id)) {
            found.insert(id.to_owned(), record);
        }
    });
    // What cannot be read still waits.
    found.unwrap_or_default()
}

fn allowed_now(app: &App, one: &Proposal, record: &Record) -> bool {
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
        Err(_) if one.state != ProposalState::Waiting => false,
        Err(_) => {
            let host = record.host.as_deref().unwrap_or_default();
            Host::parse(host.as_bytes())
                .is_ok_and(|host| generation.may_resolve(session.id(), &groups, &host))
        }
    }
}
