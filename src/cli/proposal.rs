//! The policy that would allow what was refused, and what no policy would.

use std::sync::Arc;

use super::generation;
use super::policy;
use crate::audit::Record;
use crate::config::Config;
use crate::gateway::floor;
use crate::message::{Authority, Host, Origin, Scheme};
use crate::names::{ReasonCode, SessionId};
use crate::origin::OriginSettings;
use crate::policy::{OwnedFacts, Policies, generate};

/// Returns the policy that would allow a refused exchange; `None` if no rule decided against it.
///
/// # Errors
/// Returns why the gateway refuses it whatever policies permit.
pub(super) fn of(record: &Record, config: Option<&Config>) -> Result<Option<String>, ReasonCode> {
    let code = record.reason.as_deref().and_then(ReasonCode::named);
    let settings = settings(config);
    let by_name = || of_name(record, &settings);
    match code {
        Some(ReasonCode::PolicyDefaultDeny) => match policy::request(record, config) {
            Ok(request) => of_request(&request, &settings),
            // A tunnel was refused before there was a request.
            Err(_) => by_name(),
        },
        Some(ReasonCode::DnsName | ReasonCode::HostNotPermitted) => by_name(),
        _ => Ok(None),
    }
}

/// Returns the settings for origins of a configuration, if they can be had.
pub(super) fn settings(config: Option<&Config>) -> Arc<OriginSettings> {
    let of = |config| generation::origins(config, &[], Vec::new()).ok();
    Arc::new(config.and_then(of).unwrap_or_default())
}

/// Where a request goes.
pub(super) fn origin(request: &OwnedFacts) -> Origin {
    Origin {
        scheme: request.scheme,
        authority: Authority {
            host: request.host.clone(),
            port: request.port,
        },
    }
}

fn of_request(
    request: &OwnedFacts,
    settings: &OriginSettings,
) -> Result<Option<String>, ReasonCode> {
    floor(&origin(request), settings).map_or(Ok(()), Err)?;
    // Without any policy, the explanation proposes one for exactly this request.
    let Ok(none) = Policies::load(&[], Default::default()) else {
        return Ok(None);
    };
    let generation = none.current();
    let verdict = generation.ask(&request.facts());
    Ok(generation.explain(&request.facts(), &verdict).proposal)
}

fn of_name(record: &Record, settings: &OriginSettings) -> Result<Option<String>, ReasonCode> {
    let named = |text: &str| Host::parse(text.as_bytes()).ok();
    let Some(host) = record.host.as_deref().and_then(named) else {
        return Ok(None);
    };
    let port = record.port.filter(|port| *port != 0).unwrap_or(443);
    let authority = Authority {
        host: host.clone(),
        port,
    };
    let scheme = Scheme::Https;
    floor(&Origin { scheme, authority }, settings).map_or(Ok(()), Err)?;
    let session = record.session.as_deref();
    let session = session.and_then(|session| SessionId::new(session).ok());
    Ok(Some(generate::permit_host(
        session.as_ref(),
        host.as_str(),
        Some(port),
    )))
}
