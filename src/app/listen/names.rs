//! The DNS servers of sessions, which give names synthetic addresses and identify the clients.

use std::sync::{Arc, Once};

use crate::App;
use crate::process::serving;
use gateway_config::SandboxDns;
use gateway_intercept::{AddressPool, Responder};
use gateway_names::SessionId;
use gateway_policy::Requester;
use gateway_server::{SessionNames, SharedState};

/// Returns a function that creates each session's DNS server on first use.
pub fn of_listeners(app: &App) -> SessionNames {
    let (known, shared) = (app.listening.names().clone(), app.shared.clone());
    let dns = app.config.sandbox.dns;
    Arc::new(move |session| {
        let mut known = known.lock();
        if let Some(names) = known.get(session) {
            return names.clone();
        }
        let made = responder(&shared, dns, session);
        known.insert(session.clone(), made.clone());
        made
    })
}

/// Creates the DNS server of a session.
pub fn responder(
    shared: &Arc<SharedState>,
    dns: SandboxDns,
    session: &SessionId,
) -> Arc<Responder> {
    let observe = shared.name_observer(session);
    let (shared, id) = (shared.clone(), session.clone());
    let pool = match dns {
        SandboxDns::Explain => AddressPool::new(NAMES).explaining(),
        SandboxDns::Strict => AddressPool::new(NAMES),
    };
    // The first DNS query announces a request.
    let asked = Once::new();
    Arc::new(Responder::new(
        pool,
        Box::new(move |host, caller| {
            asked.call_once(serving::settle);
            let snapshot = shared.look();
            let policies = snapshot.policies.generation();
            let asks = shared.sessions.get(&id);
            asks.is_some_and(|asks| {
                let asker = Requester::of(&asks, caller, policies.number());
                policies.may_resolve(asker.principal(), host)
            })
        }),
        observe,
    ))
}

/// The number of names that a session may resolve, each with its own synthetic address.
const NAMES: usize = 16_384;
