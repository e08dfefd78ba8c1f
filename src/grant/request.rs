//! Requests that are judged again, read back from the audit log or proposed by a workload; and the
//! rule for a logged refusal, without asking a gateway.

use gateway_audit::{Injection, Record};
use gateway_credential::preset;
use gateway_message::path_pattern::spellings;
use gateway_message::{Authority, EncodedSlash, Host, Origin, RequestTarget, Scheme};
use gateway_names::{CredentialName, ReasonCode, SessionId, User};
use gateway_origin::OriginSettings;
use gateway_policy::{Explanation, Generation, OwnedFacts, Policies, Requester, Verdict, generate};
use gateway_server::{RequestedAccess, floor};

/// Reads a record back into canonical types. `None` if it was refused before policy saw it.
///
/// The record holds no groups, fields, content and actions. A policy that needs them permits less
/// here than it did then, or reports that it lacks them.
pub fn of_record(record: &Record) -> Option<OwnedFacts> {
    let host = Host::parse(record.host.as_deref()?.as_bytes()).ok()?;
    let whole = record.path.as_deref();
    let path = whole.filter(|_| record.path_bytes.is_none())?.to_owned();
    let access = RequestedAccess {
        to: to(record, host)?,
        request: Some((record.method.as_deref()?.to_owned(), path)),
        refused: None,
    };
    let session = SessionId::new(record.session.as_deref()?).ok()?;
    let mut request = of(&session, &access, record.request_bytes)?;
    request.entry = record.entry.as_deref()?.to_owned();
    request.user = record.user.as_deref().and_then(User::new);
    let presented = record.lent.iter().chain(&record.unlent);
    request.credentials = presented
        .filter_map(|one| CredentialName::new(&one.credential).ok())
        .collect();
    Some(request)
}

/// Returns the request of a workload's proposal; `None` if the proposal is only for a host.
pub fn of_access(session: &SessionId, access: &RequestedAccess) -> Option<OwnedFacts> {
    of(session, access, None)
}

fn of(session: &SessionId, access: &RequestedAccess, length: Option<u64>) -> Option<OwnedFacts> {
    let (method, path) = access.request.as_ref()?;
    let Origin { scheme, authority } = &access.to;
    // The path of a signed request to an object store is not resolved.
    let target = [EncodedSlash::Keep, EncodedSlash::Key]
        .into_iter()
        .filter_map(|slashes| RequestTarget::judged(path.as_bytes(), slashes).ok())
        .find(|target| target.path() == path)?;
    let batch = preset::is_batch(&authority.host, &target);
    let mut request = OwnedFacts::new(session.clone(), *scheme, authority.host.clone(), target);
    request.entry = "transparent".to_owned();
    (request.port, request.method) = (authority.port, method.clone());
    (request.content_length, request.batch) = (length, batch);
    request.content = request.content.filter(|_| length == Some(0));
    Some(request)
}

/// Returns the origin of a record's request; `None` if it is not known.
pub(super) fn to(record: &Record, host: Host) -> Option<Origin> {
    let scheme = match record.scheme.as_deref()? {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    let port = record.port?;
    let authority = Authority { host, port };
    Some(Origin { scheme, authority })
}

/// Returns the host and port of a refusal without a request, as a rule names them.
pub(super) fn host_alone(record: &Record) -> (&str, u16) {
    let port = record.port.filter(|port| *port != 0).unwrap_or(443);
    (record.host.as_deref().unwrap_or_default(), port)
}

/// Whether the refusal is of a host alone: a name, or a tunnel. A request with an unreadable path
/// is more than that, and a rule for its host would permit more than the request.
pub(super) fn is_host_alone(record: &Record) -> bool {
    let is_tunnel = |method: &str| method == "CONNECT";
    record.path.is_none() && record.method.as_deref().is_none_or(is_tunnel)
}

/// Returns the access that a request needs, as a workload would propose it.
pub fn access(request: &OwnedFacts) -> RequestedAccess {
    let (scheme, host, port) = (request.scheme, request.host.clone(), request.port);
    let authority = Authority { host, port };
    let path = request.target.path().to_owned();
    RequestedAccess {
        to: Origin { scheme, authority },
        request: Some((request.method.clone(), path)),
        refused: None,
    }
}

/// Returns the request in each spelling of its path; `None` if one of them is not a path.
pub(super) fn in_each_spelling(request: &OwnedFacts) -> Option<Vec<OwnedFacts>> {
    let read = |path: &String| {
        let target = RequestTarget::judged(path.as_bytes(), EncodedSlash::Keep).ok()?;
        let request = request.clone();
        Some(OwnedFacts { target, ..request })
    };
    spellings(request.target.path()).iter().map(read).collect()
}

/// Whether policies permit now what was refused for want of a rule: the request, and the loan that
/// it was refused; or some request to the host, if it was refused as a whole.
pub fn is_allowed(record: &Record, generation: &Generation, asker: &Requester) -> bool {
    if let Some(mut request) = of_record(record) {
        request.groups = asker.groups.to_vec();
        let lent =
            |unlent| lent(generation, &request, unlent).is_some_and(|(one, _)| one.allowed());
        return asked(generation, &request).0.allowed() && record.unlent.as_ref().is_none_or(lent);
    }
    let (host, port) = host_alone(record);
    let host = Host::parse(host.as_bytes()).ok();
    let host = host.filter(|_| is_host_alone(record));
    host.is_some_and(|host| generation.may_reach(asker, &https(host, port)))
}

/// Explains what policies say of a request.
pub fn asked(generation: &Generation, request: &OwnedFacts) -> (Verdict, Explanation) {
    let verdict = generation.ask(&request.facts());
    let why = generation.explain(&request.facts(), &verdict);
    (verdict, why)
}

/// Judges a refused loan again and explains the verdict; `None` if the record is damaged.
pub fn lent(
    generation: &Generation,
    request: &OwnedFacts,
    unlent: &Injection,
) -> Option<(Verdict, Explanation)> {
    let credential = CredentialName::new(&unlent.credential).ok()?;
    let (facts, place) = (request.facts(), unlent.place.as_str());
    let verdict = generation.lend(&facts, &credential, place);
    let why = generation.explain_use(&facts, &credential, place, &verdict);
    Some((verdict, why))
}

/// Why no rule would allow a request.
pub enum NoRule {
    /// The gateway refuses it whatever policies permit.
    Floor(ReasonCode),
    /// A policy reads the content of the request, and a rule would permit every content.
    Content,
}

/// Returns the narrowest rule that would allow a refused exchange, without asking a gateway; `None`
/// if no rule decided against it.
///
/// # Errors
/// Returns why the gateway refuses it whatever policies permit.
pub fn rule_for(record: &Record, settings: &OriginSettings) -> Result<Option<String>, NoRule> {
    let code = record.reason.as_deref().and_then(ReasonCode::named);
    let Some(code) = code.filter(is_for_want_of_a_rule) else {
        return Ok(None);
    };
    let is_request = code == ReasonCode::PolicyDefaultDeny;
    if is_request && !record.facts.is_empty() {
        return Err(NoRule::Content);
    }
    let above_floor =
        |to: &Origin| floor(to, settings).map_or(Ok(()), |why| Err(NoRule::Floor(why)));
    if is_request && let Some(request) = of_record(record) {
        above_floor(&access(&request).to)?;
        // Without any policy, the explanation proposes one for exactly this request.
        let none = Policies::load(&[], Default::default()).ok();
        let why = none.and_then(|none| match &record.unlent {
            Some(unlent) => lent(&none.current(), &request, unlent),
            None => Some(asked(&none.current(), &request)),
        });
        return Ok(why.and_then(|(_, why)| why.proposal));
    }
    // A rule for the host would allow more than a request.
    let (host, port) = host_alone(record);
    let Some(host) = Host::parse(host.as_bytes())
        .ok()
        .filter(|_| !is_request || is_host_alone(record))
    else {
        return Ok(None);
    };
    above_floor(&https(host.clone(), port))?;
    let session = record.session.as_deref().map(SessionId::new);
    let session = session.and_then(Result::ok);
    let rule = generate::permit_host(session.as_ref(), host.as_str(), Some(port));
    Ok(Some(rule))
}

/// Whether the refusal is for lack of a rule.
pub(super) fn is_for_want_of_a_rule(code: &ReasonCode) -> bool {
    matches!(
        code,
        ReasonCode::PolicyDefaultDeny | ReasonCode::DnsName | ReasonCode::HostNotPermitted
    )
}

/// An origin over TLS.
pub(super) fn https(host: Host, port: u16) -> Origin {
    let authority = Authority { host, port };
    let scheme = Scheme::Https;
    Origin { scheme, authority }
}
