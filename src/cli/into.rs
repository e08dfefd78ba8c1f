//! `gateway exec --into SESSION -- CMD`: a further command in the sandbox of a running `exec`.

use std::ffi::OsString;

use serde_json::json;

use super::failure::{Code, Failure};
use super::gateways::{ChosenGateway, Gateway, in_path};
use super::launching::not_launched;
use super::operate::OneSession;
use crate::launch::{Doorway, LAUNCHER_FAILED};

/// Runs the command in the sandbox of a session, and ends as it does.
///
/// # Errors
/// Returns a [`Failure`] if the command was not started.
pub(super) fn enter(
    session: String,
    gateway: Option<String>,
    command: Vec<OsString>,
) -> Result<Code, Failure> {
    let (gateway, id) = find(session, gateway)?;
    let unopened = |error: std::io::Error| {
        Failure::of("the sandbox cannot be entered", &error).coded(LAUNCHER_FAILED)
    };
    let folder = gateway.client.path().parent().unwrap_or("/".as_ref());
    let doorway = Doorway::open(folder).map_err(unopened)?;
    let asked = json!({ "socket": doorway.path() });
    let path = format!("/v1/sessions/{}/enter", in_path(&id));
    gateway
        .post(&path, Some(&asked))
        .map_err(|failure| failure.coded(LAUNCHER_FAILED))?;
    doorway.enter(command).map_err(not_launched)?.resume()
}

/// Returns the session's gateway and its whole id. A gateway's own name will do, as all sessions of
/// `exec` have one name.
fn find(session: String, gateway: Option<String>) -> Result<(Gateway, String), Failure> {
    let is_gateway = gateway.is_none()
        && ChosenGateway::named(Some(session.clone()))
            .find()?
            .iter()
            .any(|found| found.name == session);
    let one = match is_gateway {
        true => OneSession {
            session: String::new(),
            chosen: ChosenGateway::named(Some(session)),
        },
        false => OneSession {
            session,
            chosen: ChosenGateway::named(gateway),
        },
    };
    one.find().map_err(|failure| match failure.code {
        Code::Usage => failure,
        _ => failure.coded(LAUNCHER_FAILED),
    })
}
