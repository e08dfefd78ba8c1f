//! The DNS server of a session, which gives names addresses and knows whose they are.

use std::sync::{Arc, Once};

use crate::app::process::serving;
use crate::app::{App, Failure};
use crate::config::{Listener, SandboxDns};
use crate::gateway::Worker;
use crate::intercept::{Responder, Synthetic};
use crate::names::SessionId;
use crate::policy::Asker;

/// The DNS server that the listeners of a session share.
///
/// # Errors
/// Returns a [`Failure`] if there is no worker yet, or no one session: nothing shows the callers of
/// captured connections.
pub(crate) fn of_listener(app: &App, known: &Listener) -> Result<Arc<Responder>, Failure> {
    let session = known.session.one();
    let session = session.ok_or_else(|| Failure::new("nothing shows who the caller is"))?;
    let workers = app.listening.workers();
    let worker = workers.first();
    let worker = worker.ok_or_else(|| Failure::new("nothing serves listeners"))?;
    let make = || responder(app, worker, session);
    Ok(app.listening.names(session, make))
}

/// Makes the DNS server of a session.
pub(crate) fn responder(app: &App, worker: &Arc<Worker>, session: &SessionId) -> Arc<Responder> {
    let (shared, id) = (app.shared.clone(), session.clone());
    let pool = match app.config.sandbox.dns {
        SandboxDns::Explain => Synthetic::new(NAMES).explaining(),
        SandboxDns::Strict => Synthetic::new(NAMES),
    };
    // The first name that is asked for is the first sign of a request.
    let asked = Once::new();
    Arc::new(Responder::new(
        pool,
        Box::new(move |host| {
            asked.call_once(serving::settle);
            let snapshot = shared.look();
            let policies = snapshot.policies.generation();
            let asks = shared.sessions.get(&id);
            asks.is_some_and(|asks| {
                let asker = Asker::of(&asks, None, policies.number());
                policies.may_resolve(asker.principal(), host)
            })
        }),
        Box::new(worker.name_observer(session)),
    ))
}

/// The number of names that a session may resolve, each with its own synthetic address.
const NAMES: usize = 16_384;
