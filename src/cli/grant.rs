//! Rules that an operator grants while a gateway runs: the narrowest one for what was refused, and
//! the file that keeps it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use http::StatusCode;

use super::app::App;
use super::failure::Failure;
use super::granting::{LARGEST_MIB, hold, keep, unread, until, whose, write_allowed};
use super::{denials, proposal, proposed};
use crate::audit::{self, Record, Unverified, VerifiedRecord};
use crate::config::Allowed;
use crate::control::{AllowRequest, ControlRefusal, GrantedRule};
use crate::files;
use crate::gateway::{Proposal, chain, floor};
use crate::message::{Authority, HostPattern, Origin, Scheme};
use crate::names::{CredentialName, ReasonCode, SessionId};
use crate::policy::{Source, generate};

/// Returns the narrowest rule that allows what is asked for, as it would be applied.
///
/// # Errors
/// Returns why no rule would allow it, or why nothing says what to allow; or that a person refused
/// the same, which holds until it is undone.
pub fn rule(app: &App, asked: &AllowRequest) -> Result<GrantedRule, ControlRefusal> {
    let NewRule { policy, denied } = new_rule(app, asked)?;
    let file = app.config.granted.as_deref().ok_or_else(unkept)?;
    let denied = denied.iter().map(|one| one.wanted.shown()).collect();
    Ok(GrantedRule {
        policy,
        applied: false,
        generation: app.shared.look().number(),
        file: file.display().to_string(),
        until: asked.seconds.map(until),
        denied,
    })
}

/// A rule that would be applied.
struct NewRule {
    policy: String,
    /// What a person refused before, and it would permit.
    denied: Vec<Proposal>,
}

fn new_rule(app: &App, asked: &AllowRequest) -> Result<NewRule, ControlRefusal> {
    match (&asked.host, &asked.exchange, asked.last) {
        (Some(host), None, false) => of_host(app, asked, host),
        (None, Some(id), false) if id.len() == WHOLE_ID => {
            let subject = match proposed::requested(app, id) {
                Some(record) => RuleSubject::Proposed(record),
                None => {
                    let is_it = |record: &Record| record.id.as_deref() == Some(id);
                    RuleSubject::Refused(refused_record(app, is_it)?)
                }
            };
            of_record(app, &subject)
        }
        (None, Some(_), false) => {
            let what = format!("an id has {WHOLE_ID} digits");
            Err(ControlRefusal::new(StatusCode::BAD_REQUEST, what)
                .next("write the whole id: `gateway log --refused` shows it"))
        }
        (None, None, true) => {
            let last = refused_record(app, |_| true)?;
            of_record(app, &RuleSubject::Refused(last))
        }
        _ => Err(
            ControlRefusal::new(StatusCode::BAD_REQUEST, "it is not clear what to allow")
                .next("name a host, an exchange, or the last one"),
        ),
    }
}

/// Puts the rule into its file, and the file into force. If it is refused, the file stays as it
/// was.
///
/// # Errors
/// Returns a [`Failure`] if the file cannot be written, or if the policies are refused with it.
pub async fn apply(app: &Arc<App>, rule: GrantedRule) -> Result<GrantedRule, Failure> {
    let path = app.config.granted.as_deref();
    let path = path.ok_or_else(|| Failure::new(unkept().what))?;
    let _held = hold(path).await?;
    let before = match path.exists() {
        true => Some(files::read(path, LARGEST_MIB)),
        false => None,
    };
    let before = before.transpose().map_err(|unfit| unread(path, &unfit))?;
    keep(path, before.as_deref(), &rule, &whose(app, path))?;
    let granted = Source::new("the rule", &rule.policy);
    let applied = app.reload_granting(Some(granted)).await.inspect_err(|_| {
        // The reload already fails. If this fails too, the next one tells of the file.
        let _ = match &before {
            Some(before) => write_allowed(path, before).map_err(drop),
            None => std::fs::remove_file(path).map_err(drop),
        };
    })?;
    Ok(GrantedRule {
        applied: true,
        generation: applied.generation,
        ..rule
    })
}

/// Returns the rule for a host that an operator names.
fn of_host(app: &App, asked: &AllowRequest, host: &str) -> Result<NewRule, ControlRefusal> {
    let allowed = Allowed::parse(host).map_err(|hint| {
        let what = format!("`{host}` cannot be allowed");
        ControlRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, what)
            .because(hint.why)
            .next(hint.remedy)
    })?;
    if let HostPattern::Exact(host) = &allowed.host {
        let authority = Authority {
            host: host.clone(),
            port: allowed.port,
        };
        above_floor(
            app,
            &Origin {
                scheme: Scheme::Https,
                authority,
            },
        )?;
    }
    let session = match &asked.session {
        None => refused_at(app, &allowed)?,
        named => session(app, named.as_deref())?,
    };
    let policy = permit(&session, &allowed.host.to_string(), allowed.port);
    let denied = denials::permitted(app, &session, &policy, &[]);
    Ok(NewRule { policy, denied })
}

/// Refuses a rule for what the gateway refuses whatever policies permit.
fn above_floor(app: &App, origin: &Origin) -> Result<(), ControlRefusal> {
    let refused = |reason: ReasonCode| {
        let host = origin.authority.host.as_str();
        let to = match origin.scheme {
            Scheme::Https => origin.authority.shown(),
            Scheme::Http => origin.authority.to_string(),
        };
        ControlRefusal::new(
            StatusCode::CONFLICT,
            format!("no rule would allow `{host}`"),
        )
        .because(reason.meaning())
        .next(reason.next_step_for(&to, ""))
    };
    let snapshot = app.shared.current();
    floor(origin, &snapshot.origins).map_or(Ok(()), |reason| Err(refused(reason)))
}

/// Returns the session that is named, else the only one.
fn session(app: &App, named: Option<&str>) -> Result<SessionId, ControlRefusal> {
    let all = app.shared.sessions.all();
    let mut fitting = all
        .iter()
        .filter(|session| named.is_none_or(|named| session.id().as_str() == named));
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only.id().clone()),
        (None, _) => Err(ControlRefusal::new(
            StatusCode::NOT_FOUND,
            "there is no such session",
        )),
        (Some(_), Some(_)) => {
            let what = "there are several sessions, and none is named";
            Err(ControlRefusal::new(StatusCode::BAD_REQUEST, what)
                .next("name one: `--session NAME`"))
        }
    }
}

/// Returns the only session, else the only one that was refused a host. A refusal names the host,
/// and leaves the session to this.
fn refused_at(app: &App, allowed: &Allowed) -> Result<SessionId, ControlRefusal> {
    let all = app.shared.sessions.all();
    let HostPattern::Exact(host) = &allowed.host else {
        return session(app, None);
    };
    if all.len() < 2 {
        return session(app, None);
    }
    let is_here = |record: &Record| {
        let port = record.port.filter(|port| *port != 0).unwrap_or(443);
        let code = record.reason.as_deref().and_then(ReasonCode::named);
        record.host.as_deref() == Some(host.as_str())
            && port == allowed.port
            && code.is_some_and(is_for_want_of_a_rule)
    };
    let read = refused(app, |sessions: &mut BTreeSet<String>, record| {
        if is_here(&record) {
            sessions.extend(record.session.as_deref().map(str::to_owned));
        }
    });
    // Without the log, a person names the session.
    let mut refused = read.unwrap_or_default();
    refused.retain(|name| all.iter().any(|session| session.id().as_str() == name));
    match (refused.pop_first(), refused.pop_first()) {
        (Some(only), None) => session(app, Some(&only)),
        _ => session(app, None),
    }
}

fn permit(session: &SessionId, host: &str, port: u16) -> String {
    generate::permit_host(Some(session), host, Some(port))
}

/// Returns the last record of a refusal that fits. A policy may have refused it, or a name server,
/// or a proxy before there was a request.
fn refused_record(
    app: &App,
    fits: impl Fn(&Record) -> bool,
) -> Result<VerifiedRecord, ControlRefusal> {
    let found = refused(app, |last: &mut Option<VerifiedRecord>, record| {
        if fits(&record) {
            *last = Some(record);
        }
    })?;
    found.ok_or_else(|| {
        let what = "no such exchange was refused";
        ControlRefusal::new(StatusCode::NOT_FOUND, what).next("`gateway log --refused` lists them")
    })
}

/// Reads the whole log once, and returns what `each` made of the refused exchanges.
///
/// # Errors
/// Returns that it cannot be read, or does not hold: a rule is made from no record that somebody
/// may have put there.
pub(super) fn refused<T: Default>(
    app: &App,
    each: impl Fn(&mut T, VerifiedRecord),
) -> Result<T, ControlRefusal> {
    let path = app.shared.log.path().unwrap_or(Path::new(""));
    let read = audit::verified(path, app.shared.log.head(), |made, record| {
        if record.kind == "exchange" && record.reason.is_some() {
            each(made, record);
        }
    });
    let unavailable = |what| ControlRefusal::new(StatusCode::SERVICE_UNAVAILABLE, what);
    read.map_err(|why| match why {
        Unverified::Unreadable(error) => {
            unavailable("the audit log cannot be read").because(chain(&error))
        }
        Unverified::Fault(problem) => unavailable("the audit log does not hold")
            .because(format!("{problem}, so no rule is made from it"))
            .next("see `gateway audit verify`, or name the host: `gateway allow HOST`"),
    })
}

/// Whether something was refused because no rule permits it.
fn is_for_want_of_a_rule(code: ReasonCode) -> bool {
    matches!(
        code,
        ReasonCode::PolicyDefaultDeny | ReasonCode::DnsName | ReasonCode::HostNotPermitted
    )
}

/// What a rule is made for.
enum RuleSubject {
    Refused(VerifiedRecord),
    /// A request that was never made, as the record of its refusal.
    Proposed(Record),
}

/// Returns the rule for what an exchange asked for.
fn of_record(app: &App, asked: &RuleSubject) -> Result<NewRule, ControlRefusal> {
    let record: &Record = match asked {
        RuleSubject::Refused(record) => record,
        RuleSubject::Proposed(record) => record,
    };
    let conflict = |what: String| ControlRefusal::new(StatusCode::CONFLICT, what);
    let reason = record.reason.as_deref().unwrap_or_default();
    let code = ReasonCode::named(reason);
    match code {
        Some(code) if is_for_want_of_a_rule(code) => {}
        _ => {
            let host = record.host.as_deref().unwrap_or_default();
            let id = record.id.as_deref().unwrap_or_default();
            let next = code.map(|code| code.step_for_operator(host, id));
            let what = format!("it was refused for `{reason}`, which no further rule changes");
            return Err(conflict(what).next(next.unwrap_or_default()));
        }
    }
    let named = record.session.as_deref();
    let id = session(app, named)?;
    let Ok(mut request) = proposal::request(record, Some(&app.config)) else {
        let host = record.host.as_deref().unwrap_or_default();
        let port = record.port.filter(|port| *port != 0).unwrap_or(443);
        let pattern = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        if !proposal::is_host_alone(record) {
            let what = "the log does not hold the request's whole path, so no rule is for it alone";
            let next = format!("allow the host with every path: `gateway allow {pattern}`");
            return Err(conflict(what.to_owned()).next(next));
        }
        let asked = AllowRequest {
            session: Some(id.to_string()),
            ..AllowRequest::default()
        };
        let rule = of_host(app, &asked, &pattern)?;
        denials::refuse(&rule.denied)?;
        return Ok(rule);
    };
    above_floor(app, &proposal::origin(&request))?;
    if let Some(session) = app.shared.sessions.get(&id) {
        request.groups = session.last_groups().to_vec();
    }
    let generation = app.shared.current().policies.current();
    let asked = proposal::asked(&generation, &request);
    let unlent = record.unlent.as_ref();
    let lent = unlent.and_then(|unlent| proposal::loan(&generation, &request, unlent));
    let wanted = lent.map_or_else(|| asked.clone(), |(_, why)| why);
    let rules: BTreeSet<String> = [&asked, &wanted]
        .into_iter()
        .filter_map(|one| one.proposal.clone())
        .collect();
    if rules.is_empty() {
        return Err(conflict(wanted.reason).next(wanted.next_step));
    }
    let policy = rules.into_iter().collect::<Vec<_>>().join("\n");
    let loan = unlent.and_then(|unlent| {
        let name = CredentialName::new(&unlent.credential).ok()?;
        Some((name, unlent.place.to_string()))
    });
    denials::refuse(&denials::same(app, &request))?;
    denials::refuse(&denials::permitted(app, &id, &policy, loan.as_slice()))?;
    Ok(NewRule {
        policy,
        denied: Vec::new(),
    })
}

fn unkept() -> ControlRefusal {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    ControlRefusal::new(status, "there is no file to keep granted rules in")
}

/// How many digits an id has.
const WHOLE_ID: usize = 20;
