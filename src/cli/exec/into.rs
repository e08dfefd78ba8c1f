//! `gateway exec --into SESSION -- CMD`: a further command in the sandbox of a running `exec`.

use std::ffi::OsString;

use serde_json::json;

use crate::app::{Code, Failure};
use crate::cli::exec::launching::not_launched;
use crate::cli::operate::gateways::{ChosenGateway, Gateway, ShownCertificate, in_path};
use crate::cli::operate::{OneSession, sessions};
use crate::control::Client;
use crate::launch::{JoinListener, LAUNCHER_FAILED};

/// Runs the command in the sandbox of a session, and exits as the command does.
///
/// # Errors
/// Returns a [`Failure`] if the command was not started.
pub(crate) fn enter(
    session: String,
    gateway: Option<String>,
    command: Vec<OsString>,
) -> Result<Code, Failure> {
    let (gateway, id) = find(session, gateway)?;
    let elsewhere =
        || Failure::usage("a sandbox is entered from its own machine alone").coded(LAUNCHER_FAILED);
    // The command's streams are handed over, and a socket is created in that user's folder: not of
    // another user's gateway, even if root named it.
    let socket = gateway.client.path().ok_or_else(elsewhere)?.to_owned();
    let gateway = Gateway {
        client: Client::new(&socket),
        ..gateway
    };
    let unopened = |error: std::io::Error| {
        Failure::of("the sandbox cannot be entered", &error).coded(LAUNCHER_FAILED)
    };
    let folder = socket.parent().unwrap_or("/".as_ref());
    let listener = JoinListener::open(folder).map_err(unopened)?;
    let asked = json!({ "socket": listener.path() });
    let path = format!("/v1/sessions/{}/enter", in_path(&id));
    gateway
        .post(&path, Some(&asked))
        .map_err(|failure| failure.coded(LAUNCHER_FAILED))?;
    listener.join(command).map_err(not_launched)?.resume()
}

/// Returns the session's gateway and its id. The gateway's own name is accepted too, since all
/// sessions of `exec` have one name.
fn find(session: String, gateway: Option<String>) -> Result<(Gateway, String), Failure> {
    let of = |gateway| ChosenGateway::named(gateway, ShownCertificate::default());
    let named = of(Some(session.clone())).find()?;
    let by_name = named.into_iter().find(|one| one.name == session);
    if let Some(found) = by_name.filter(|_| gateway.is_none()) {
        let sessions = sessions(&found)?;
        if let [only] = sessions.as_slice()
            && let Some(id) = only["id"].as_str()
        {
            return Ok((found, id.to_owned()));
        }
    }
    let chosen = of(gateway);
    let one = OneSession { session, chosen };
    one.find().map_err(|failure| match failure.code {
        Code::Usage => failure,
        _ => failure.coded(LAUNCHER_FAILED),
    })
}
