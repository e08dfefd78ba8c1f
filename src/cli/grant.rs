//! Rules that an operator grants while a gateway runs: the narrowest one for what was refused, and
//! the file that keeps it.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use time::OffsetDateTime;

use super::app::App;
use super::failure::Failure;
use super::project::{project, working_directory};
use super::write::write;
use super::{denials, granted, prohibited, proposal, proposed, serving};
use crate::audit::{self, Record, Unverified, VerifiedRecord};
use crate::config::{Allowed, state};
use crate::control::{AllowRequest, ControlRefusal, GrantedRule};
use crate::files::{self, Consent, Unfit};
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
    let NewRule {
        policy,
        denied,
        needs,
    } = new_rule(app, asked)?;
    let file = app.config.granted.as_deref().ok_or_else(unkept)?;
    let denied = denied.iter().map(|one| one.wanted.shown()).collect();
    Ok(GrantedRule {
        policy,
        applied: false,
        generation: app.shared.look().number(),
        file: file.display().to_string(),
        until: asked.seconds.map(until),
        denied,
        needs,
    })
}

/// A rule that would be applied.
struct NewRule {
    policy: String,
    /// What a person refused before, and it would permit.
    denied: Vec<Proposal>,
    needs: Option<String>,
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

/// When a grant ends that holds for so many seconds, in seconds since 1970.
pub(super) fn until(seconds: u64) -> i64 {
    let now = OffsetDateTime::now_utc().unix_timestamp();
    now.saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// Writes a rule into its file, whose text was `before`. What has ended meanwhile goes.
pub(super) fn keep(
    path: &Path,
    before: Option<&str>,
    rule: &GrantedRule,
    whose: &str,
) -> Result<(), Failure> {
    let text = before.map_or_else(|| granted::head(whose), str::to_owned);
    let until = rule
        .until
        .map(OffsetDateTime::from_unix_timestamp)
        .transpose();
    let until =
        until.map_err(|_| Failure::usage("it would hold for longer than can be counted"))?;
    let text = granted::with(&granted::pruned(&text), &rule.policy, until);
    write_allowed(path, &text)
}

/// Writes a rule into its file while no gateway has it in force.
pub(super) fn keep_later(path: &Path, rule: &GrantedRule, whose: &str) -> Result<(), Failure> {
    let _held = serving::runtime()?.block_on(hold(path))?;
    let before = path
        .exists()
        .then(|| files::read(path, LARGEST_MIB))
        .transpose();
    let before = before.map_err(|unfit| unread(path, &unfit))?;
    keep(path, before.as_deref(), rule, whose)
}

/// Says that the file of granted rules cannot be read.
pub(super) fn unread(path: &Path, unfit: &Unfit) -> Failure {
    let what = format!("the granted rules in {} cannot be read", path.display());
    Failure::of(what, unfit).next(unfit.remedy(path))
}

/// The folder or the configuration whose rules a file keeps.
fn whose(app: &App, path: &Path) -> String {
    let config = app.config.file.as_deref();
    let here = working_directory().ok();
    let here = here.filter(|folder| state::granted_for(folder, config).as_deref() == Some(path));
    let of = config
        .map(Path::to_owned)
        .or(here)
        .or_else(|| project().ok());
    of.unwrap_or_default().display().to_string()
}

/// Writes the granted rules. A person granted them, so they are in force also where a command in a
/// sandbox could have written them.
pub(super) fn write_allowed(path: &Path, text: &str) -> Result<(), Failure> {
    if files::check_written(path).is_err() {
        let kept = Consent::to(&files::real(path), text).keep();
        kept.map_err(|unfit| Failure::of("the granted rules cannot be kept", &unfit))?;
    }
    write(path, text.as_bytes(), 0o600)
}

/// Holds the granted rules until this is dropped. Several gateways may share them, and each reads
/// them, writes them and takes back what is refused. What is locked is a file that no other user
/// can open: they may read the folder, and what one can open one can lock.
pub(super) async fn hold(path: &Path) -> Result<File, Failure> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder);
    let unkept = |error| Failure::of("the granted rules cannot be kept", &error);
    let mut private = File::options();
    private.create(true).append(true).mode(0o600);
    let open = || private.open(path.with_extension("lock"));
    let held = made.and_then(|()| open()).map_err(unkept)?;
    let until = Instant::now() + HELD_AT_MOST;
    loop {
        match held.try_lock() {
            Ok(()) => return Ok(held),
            Err(TryLockError::Error(error)) => return Err(unkept(error)),
            Err(TryLockError::WouldBlock) if Instant::now() > until => {
                return Err(Failure::new("another gateway changes the granted rules")
                    .next("allow it once more"));
            }
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOOKS_EVERY).await,
        }
    }
}

/// Reads the granted rules anew whenever one of them has ended, for ever, and removes it.
pub(super) async fn end_grants(app: Arc<App>) {
    let Some(path) = app.config.granted.clone() else {
        return;
    };
    // A rule that had ended before was never in force here.
    let mut seen = OffsetDateTime::now_utc();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (now, file) = (OffsetDateTime::now_utc(), path.clone());
        let look = tokio::task::spawn_blocking(move || std::fs::read_to_string(file).ok());
        let text = look.await.ok().flatten().unwrap_or_default();
        let grants = granted::Grant::all_ending(&text).into_iter();
        let mut ends = grants.filter_map(|one| one.until);
        if ends.any(|until| (seen..now).contains(&until)) {
            // Each gateway of the folder does the same. Until one has, the rule is left out.
            if let Ok(_held) = hold(&path).await
                && let Ok(text) = files::read(&path, LARGEST_MIB)
            {
                let _ = write_allowed(&path, &granted::pruned(&text));
            }
            // One that is refused is tried again: until then, the rule is in force.
            if let Err(failure) = app.reload().await {
                tracing::error!(%failure, "a granted rule has ended, and is still in force");
                continue;
            }
        }
        seen = now;
    }
}

/// Returns the rule for a host that an operator names.
fn of_host(app: &App, asked: &AllowRequest, host: &str) -> Result<NewRule, ControlRefusal> {
    let allowed = Allowed::parse(host).map_err(|hint| {
        let what = format!("`{host}` cannot be allowed");
        ControlRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, what)
            .because(hint.why)
            .next(hint.remedy)
    })?;
    let mut needs = None;
    if let HostPattern::Exact(host) = &allowed.host {
        let (host, port) = (host.clone(), allowed.port);
        let (scheme, authority) = (Scheme::Https, Authority { host, port });
        let origin = Origin { scheme, authority };
        above_floor(app, &origin)?;
        needs = prohibited::looked_up(app, &origin);
    }
    let session = match &asked.session {
        None => refused_at(app, &allowed)?,
        named => session(app, named.as_deref())?,
    };
    let policy = permit(&session, &allowed.host.to_string(), allowed.port);
    let denied = denials::permitted(app, &session, &policy, &[]);
    Ok(NewRule {
        policy,
        denied,
        needs,
    })
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
        .next(prohibited::step(app, reason, &to))
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
        needs: None,
    })
}

fn unkept() -> ControlRefusal {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    ControlRefusal::new(status, "there is no file to keep granted rules in")
}

/// How long another gateway may take to put a rule into force.
const HELD_AT_MOST: Duration = Duration::from_secs(15);
const LOOKS_EVERY: Duration = Duration::from_millis(20);
/// How many digits an id has.
const WHOLE_ID: usize = 20;
/// As large as a policy file may be.
pub(super) const LARGEST_MIB: u64 = 16;
