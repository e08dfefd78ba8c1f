//! What a person refused to a workload: it holds in its session until the person undoes it.

use http::StatusCode;

use super::app::App;
use crate::audit::Record;
use crate::config::Allowed;
use crate::control::ControlRefusal;
use crate::gateway::{Proposal, ProposedAccess};
use crate::message::{Authority, Host, Origin, Scheme};
use crate::names::SessionId;

/// Refuses a rule for what a person refused, by whatever id it is named.
///
/// # Errors
/// Returns what was refused, and how to undo that.
pub(super) fn refuse(
    app: &App,
    session: &SessionId,
    record: &Record,
) -> Result<(), ControlRefusal> {
    let Some(wanted) = wanted(record) else {
        return Ok(());
    };
    let denied = app.shared.proposals.denied(session);
    let same = denied.iter().find(|one| one.wanted.is_same(&wanted));
    same.map_or(Ok(()), |denied| Err(refusal(denied)))
}

fn refusal(denied: &Proposal) -> ControlRefusal {
    let (id, wanted) = (&denied.id, denied.wanted.shown());
    let what = format!("a person has refused `{wanted}`");
    ControlRefusal::new(StatusCode::CONFLICT, what)
        .because("that holds for the session until it is undone")
        .next(format!("undo it first: `gateway deny --undo {id}`"))
}

/// Returns what was refused about a host that is named now, for the person to see.
pub(super) fn about(app: &App, session: Option<&str>, host: &str) -> Vec<String> {
    let Ok(allowed) = Allowed::parse(host) else {
        return Vec::new();
    };
    let sessions = app.shared.sessions.all();
    let named = |id: &SessionId| session.is_none_or(|session| id.as_str() == session);
    let ids = sessions.iter().map(|one| one.id()).filter(|id| named(id));
    let denied = ids.flat_map(|id| app.shared.proposals.denied(id));
    let fits = |to: &Authority| allowed.port == to.port && allowed.host.matches(&to.host);
    denied
        .filter(|one| fits(&one.wanted.to.authority))
        .map(|one| one.wanted.shown())
        .collect()
}

/// What a refused exchange wanted, as a proposal of it would say.
fn wanted(record: &Record) -> Option<ProposedAccess> {
    let host = Host::parse(record.host.as_deref()?.as_bytes()).ok()?;
    let scheme = match record.scheme.as_deref() {
        Some("http") => Scheme::Http,
        _ => Scheme::Https,
    };
    let port = record.port.filter(|port| *port != 0).unwrap_or(443);
    let method = record.method.as_deref().map(str::to_owned);
    let path = record.path.as_deref().map(str::to_owned);
    Some(ProposedAccess {
        to: Origin {
            scheme,
            authority: Authority { host, port },
        },
        request: method.zip(path),
        refused: None,
    })
}
