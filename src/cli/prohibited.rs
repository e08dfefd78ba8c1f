//! What an operator is told of a host whose address the gateway does not dial.

use std::net::IpAddr;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::app::App;
use crate::message::{Authority, Origin};
use crate::names::ReasonCode;
use crate::origin::resolve::{Family, Resolve as _, StubResolver};
use crate::origin::vet::vet;

/// Looks up a host that an operator names, and returns what it needs besides a rule, if all of its
/// addresses are prohibited. A lookup that fails or takes long tells nothing: each request is
/// judged anyway. Blocks, on a thread that may.
pub(super) fn looked_up(app: &App, origin: &Origin) -> Option<String> {
    let settings = app.shared.current().origins.clone();
    let rule = settings.rule(origin);
    if origin.authority.host.ip().is_some() || rule.is_some_and(|rule| rule.connect.is_some()) {
        return None;
    }
    let resolver = StubResolver::new(&settings.resolver).ok()?;
    let Authority { host, port } = &origin.authority;
    let both = async {
        let of = |family| resolver.resolve(host.as_str(), family);
        tokio::join!(of(Family::V4), of(Family::V6))
    };
    let (four, six) = Handle::current().block_on(timeout(WITHIN, both)).ok()?;
    let found: Vec<IpAddr> = [four, six].into_iter().flatten().flatten().collect();
    let exceptions = rule.map_or(&[][..], |rule| &rule.addresses);
    let refused = |ip: &IpAddr| vet(*ip, *port, exceptions).err();
    let reason = refused(found.first()?)?.reason();
    if !found.iter().all(|ip| refused(ip).is_some()) {
        return None;
    }
    let address = found.first()?.to_string();
    let step = step(app, reason, &origin.authority.shown()).replace("ADDRESS", &address);
    Some(format!(
        "a request would be refused all the same: the address of `{host}` is {address}. {step}"
    ))
}

/// Returns what an operator does about a reason, with the file that it is done in.
pub(super) fn step(app: &App, reason: ReasonCode, to: &str) -> String {
    let step = reason.step_for_operator(to, "");
    match &app.config.file {
        Some(file) => {
            let file = file.display().to_string();
            step.replace("the gateway's configuration", &format!("`{file}`"))
        }
        None => step,
    }
}

const WITHIN: Duration = Duration::from_secs(3);
