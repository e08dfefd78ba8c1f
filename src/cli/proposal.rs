//! The policy that would allow what was refused, and what no policy would.

use std::sync::Arc;

use super::failure::Failure;
use super::generation;
use crate::audit::{Injected, Record};
use crate::config::Config;
use crate::credential::preset;
use crate::gateway::{ProposedAccess, floor};
use crate::message::route::spellings;
use crate::message::{Authority, EncodedSlash, Host, Origin, RequestTarget, Scheme};
use crate::names::{CredentialName, ReasonCode, SessionId};
use crate::origin::OriginSettings;
use crate::policy::{Explanation, Generation, OwnedFacts, Policies, Verdict, generate};

/// Why no policy would allow a request.
pub(super) enum Unallowable {
    /// The gateway refuses it whatever its settings and policies say.
    Floor(ReasonCode),
    /// An unknown setting of the gateway could lift this.
    Setting(ReasonCode),
    /// A policy reads the content of the request.
    Content,
}

/// Returns the policy that would allow a refused exchange; `None` if no rule decided against it.
///
/// # Errors
/// Returns why the gateway refuses it whatever policies permit.
pub(super) fn of(record: &Record, config: Option<&Config>) -> Result<Option<String>, Unallowable> {
    let is_denied = record.reason.as_deref() == Some(ReasonCode::PolicyDefaultDeny.as_str());
    // A rule would permit every content.
    if is_denied && !record.facts.is_empty() {
        return Err(Unallowable::Content);
    }
    proposed(record, config).map_err(|why| match why {
        ReasonCode::Metadata | ReasonCode::OwnAddress => Unallowable::Floor(why),
        why if config.is_some() => Unallowable::Floor(why),
        why => Unallowable::Setting(why),
    })
}

fn proposed(record: &Record, config: Option<&Config>) -> Result<Option<String>, ReasonCode> {
    let code = record.reason.as_deref().and_then(ReasonCode::named);
    let settings = settings(config);
    let by_name = || of_name(record, &settings);
    match code {
        Some(ReasonCode::PolicyDefaultDeny) => match request(record, config) {
            Ok(request) => of_request(&request, record.unlent.as_ref(), &settings),
            Err(_) if is_host_alone(record) => by_name(),
            // A rule for the host would allow more than this request.
            Err(_) => Ok(None),
        },
        Some(ReasonCode::DnsName | ReasonCode::HostNotPermitted) => by_name(),
        _ => Ok(None),
    }
}

/// Whether only a host was asked for: a name, or a tunnel. A request whose path could not be read
/// is more than that, and a rule for its host would permit more than the request.
pub(super) fn is_host_alone(record: &Record) -> bool {
    let is_tunnel = |method: &str| method == "CONNECT";
    record.path.is_none() && record.method.as_deref().is_none_or(is_tunnel)
}

/// Returns the settings for origins of a configuration, if they can be had.
pub(super) fn settings(config: Option<&Config>) -> Arc<OriginSettings> {
    let of = |config| generation::origins(config, &[], Vec::new()).ok();
    Arc::new(config.and_then(of).unwrap_or_default())
}

/// Where a request goes.
pub(super) fn origin(request: &OwnedFacts) -> Origin {
    let (host, port) = (request.host.clone(), request.port);
    let (scheme, authority) = (request.scheme, Authority { host, port });
    Origin { scheme, authority }
}

/// What is asked for by a request, as a workload would propose it.
pub(super) fn access(request: &OwnedFacts) -> ProposedAccess {
    let path = request.target.path().to_owned();
    ProposedAccess {
        to: origin(request),
        request: Some((request.method.clone(), path)),
        refused: None,
    }
}

fn of_request(
    request: &OwnedFacts,
    unlent: Option<&Injected>,
    settings: &OriginSettings,
) -> Result<Option<String>, ReasonCode> {
    floor(&origin(request), settings).map_or(Ok(()), Err)?;
    // Without any policy, the explanation proposes one for exactly this request.
    let Ok(none) = Policies::load(&[], Default::default()) else {
        return Ok(None);
    };
    let generation = none.current();
    let explanation = match unlent {
        Some(unlent) => loan(&generation, request, unlent).map(|(_, why)| why),
        None => Some(asked(&generation, request)),
    };
    Ok(explanation.and_then(|explanation| explanation.proposal))
}

/// The request, once for each spelling of its path; `None` if one of them is no path.
pub(super) fn in_each_reading(request: &OwnedFacts) -> Option<Vec<OwnedFacts>> {
    let read = |path: &String| {
        let target = RequestTarget::parse(path.as_bytes(), EncodedSlash::Keep).ok()?;
        let request = request.clone();
        Some(OwnedFacts { target, ..request })
    };
    spellings(request.target.path()).iter().map(read).collect()
}

/// Explains what policies say of a request.
pub(super) fn asked(generation: &Generation, request: &OwnedFacts) -> Explanation {
    let verdict = generation.ask(&request.facts());
    generation.explain(&request.facts(), &verdict)
}

/// Explains what policies say of a loan that was refused; `None` if the record is damaged.
pub(super) fn loan(
    generation: &Generation,
    request: &OwnedFacts,
    unlent: &Injected,
) -> Option<(Verdict, Explanation)> {
    let credential = CredentialName::new(&unlent.credential).ok()?;
    let (facts, place) = (request.facts(), unlent.place.as_str());
    let verdict = generation.lend(&facts, &credential, place);
    let why = generation.explain_loan(&facts, &credential, place, &verdict);
    Some((verdict, why))
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

/// Reads a record back into canonical types. If that fails, the request was refused before any
/// policy saw it.
///
/// The record holds no fields, no content and no actions. A policy that needs those allows less
/// here than it did, or says so.
///
/// # Errors
/// Returns a [`Failure`] if the exchange never became a request that a policy could judge.
pub(super) fn request(record: &Record, config: Option<&Config>) -> Result<OwnedFacts, Failure> {
    let text = |part: Option<&str>| part.map(str::to_owned).ok_or_else(unjudged);
    let session = SessionId::new(&text(record.session.as_deref())?).map_err(|_| unjudged())?;
    let listeners = config
        .map(|config| config.listeners.as_slice())
        .unwrap_or_default();
    let groups = listeners
        .iter()
        .find(|listener| listener.session == session)
        .map(|listener| listener.groups.as_slice())
        .unwrap_or_default();
    let scheme = match text(record.scheme.as_deref())?.as_str() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return Err(unjudged()),
    };
    let host = Host::parse(text(record.host.as_deref())?.as_bytes()).map_err(|_| unjudged())?;
    if record.path_bytes.is_some() {
        return Err(unjudged());
    }
    let target = target(&text(record.path.as_deref())?).ok_or_else(unjudged)?;
    let mut request = OwnedFacts::new(session, scheme, host, target);
    request.groups = groups.iter().map(|group| group.as_str().into()).collect();
    request.entry = text(record.entry.as_deref())?;
    request.port = record.port.ok_or_else(unjudged)?;
    request.method = text(record.method.as_deref())?;
    request.content_length = record.request_bytes;
    if record.request_bytes != Some(0) {
        request.content = None;
    }
    request.batch = preset::is_batch(&request.host, &request.target);
    let presented = record.lent.iter().chain(&record.unlent);
    let lent = presented.map(|lent| lent.credential.as_str());
    request.credentials = lent
        .filter_map(|name| CredentialName::new(name).ok())
        .collect();
    Ok(request)
}

/// Returns the target as it was judged. The path of a signed request to an object store is not
/// resolved.
fn target(path: &str) -> Option<RequestTarget> {
    [EncodedSlash::Keep, EncodedSlash::Key]
        .into_iter()
        .filter_map(|slashes| RequestTarget::parse(path.as_bytes(), slashes).ok())
        .find(|target| target.path() == path)
}

fn unjudged() -> Failure {
    Failure::new("the request never came before a policy")
        .because("it was refused while it was read, so that it has no session, host, method or path to judge")
        .next("`gateway why ID` says for what it was refused")
}
