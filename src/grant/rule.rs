//! The narrowest rule for a refusal, a proposal or a host that an operator names; how it takes
//! effect, and how it ends.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use gateway_audit::{self as audit, Injection, LogUnverified, Record, VerifiedRecord};
use gateway_message::{Host, HostPattern, Origin, Scheme};
use gateway_names::{CredentialName, ReasonCode, SessionId, User};
use gateway_policy::{OwnedFacts, Requester, Source, generate};
use gateway_server::{Proposal, chain, floor};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::denials::refuse;
use super::error::ControlRefusal;
use super::file::{GrantedFile, GrantedRule, pruned};
use super::grants::Grants;
use super::lookup;
use super::request::{self, host_alone, https, is_for_want_of_a_rule, is_host_alone};

/// What an operator wants to allow. Exactly one of `host`, `exchange` and `last` is set.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AllowRequest {
    /// Every request to this host, with its port: 443 unless given.
    pub host: Option<String>,
    /// What this refused exchange or proposal asked for: its id.
    pub exchange: Option<String>,
    /// What the last refused exchange asked for.
    pub last: bool,
    /// The session that the rule is for; for an exchange, its own.
    pub session: Option<String>,
    /// The user that the rule is for, in any session, instead of one session.
    pub user: Option<String>,
    /// The group that the rule is for, likewise.
    pub group: Option<String>,
    /// After how many seconds the rule expires, if it does.
    pub seconds: Option<u64>,
    /// The rule, as an earlier answer showed it. Without it, nothing is applied.
    pub policy: Option<String>,
}

/// A rule that allows the request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AllowResponse {
    /// The rule, in Cedar.
    pub policy: String,
    /// Whether it is in force now.
    pub applied: bool,
    /// The generation of policies in force.
    pub generation: u64,
    /// Where it is kept for the next start.
    pub file: String,
    /// When the rule expires, in seconds since 1970, if it does.
    pub until: Option<i64>,
    /// The proposals that a person refused and the rule would permit, as they were shown.
    pub denied: Vec<String>,
    /// The further change that the host needs, if the rule alone lets no request through.
    #[serde(default)]
    pub needs: Option<String>,
    /// What the rule would have permitted besides what it says, in words.
    #[serde(default)]
    pub widens: Vec<String>,
}

impl AllowResponse {
    /// Returns a rule that is not in force yet, and expires after so many seconds, if given.
    pub fn new(policy: String, file: &GrantedFile, seconds: Option<u64>) -> Self {
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let until = |seconds| now.saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX));
        Self {
            policy,
            applied: false,
            generation: 0,
            file: file.path().display().to_string(),
            until: seconds.map(until),
            denied: Vec::new(),
            needs: None,
            widens: Vec::new(),
        }
    }
}

/// The hosts and the port that an operator names, parsed as in the configuration.
pub type ParsedHosts = Result<(HostPattern, u16), ControlRefusal>;

/// A rule, the refused proposals that it would permit, and the further need of its host.
type NewRule = (String, Vec<Proposal>, Option<String>);

impl Grants {
    pub(super) fn file(&self) -> Result<&GrantedFile, ControlRefusal> {
        let what = "there is no file to keep granted rules in";
        let file = self.file.as_ref();
        file.ok_or_else(|| ControlRefusal::unavailable(what))
    }

    /// Returns the narrowest rule that allows the requested access, as it would be applied. `parse`
    /// reads a host as the configuration does.
    ///
    /// # Errors
    /// Returns why no rule would allow it, or that the request names nothing to allow, or that a
    /// person refused the same, which holds until it is undone.
    pub fn rule(
        &self,
        asked: &AllowRequest,
        parse: impl Fn(&str) -> ParsedHosts,
    ) -> Result<AllowResponse, ControlRefusal> {
        let whom = match (asked.user.as_deref(), asked.group.as_deref()) {
            (None, None) => None,
            (Some(user), None) => Some(("User", user)),
            (None, Some(group)) => Some(("Group", group)),
            (Some(_), Some(_)) => {
                let what = "a rule is for a user or for a group";
                return Err(ControlRefusal::new(StatusCode::BAD_REQUEST, what));
            }
        };
        let (policy, denied, needs) = match (&asked.host, &asked.exchange, asked.last) {
            (Some(host), None, false) => {
                let named = asked.session.as_deref();
                self.of_host(parse(host)?, (named, whom.is_some()))?
            }
            (None, Some(id), false) if id.len() == WHOLE_ID => match self.proposed(id) {
                Some((session, request)) => {
                    self.of_request(&self.session(Some(session.as_str()))?, request, None)?
                }
                None => {
                    let is_it = |record: &Record| record.id.as_deref() == Some(id);
                    self.of_refusal(&*self.last_refused(is_it)?, parse, whom.is_some())?
                }
            },
            (None, Some(_), false) => {
                let what = format!("an id has {WHOLE_ID} digits");
                return Err(ControlRefusal::new(StatusCode::BAD_REQUEST, what)
                    .next("write the whole id: `gateway log --refused` shows it"));
            }
            (None, None, true) => {
                self.of_refusal(&*self.last_refused(|_| true)?, parse, whom.is_some())?
            }
            _ => {
                let what = "it is not clear what to allow";
                return Err(ControlRefusal::new(StatusCode::BAD_REQUEST, what)
                    .next("name a host, an exchange, or the last one"));
            }
        };
        let policy = match whom {
            None => policy,
            Some(_) => {
                self.refuse_denied_to_any(&generate::for_whom(&policy, None))?;
                generate::for_whom(&policy, whom)
            }
        };
        Ok(AllowResponse {
            generation: self.shared.look().number(),
            denied: denied.iter().map(|one| one.wanted.shown()).collect(),
            needs,
            ..AllowResponse::new(policy, self.file()?, asked.seconds)
        })
    }

    /// Returns the session and request of a proposal that names no refused exchange; `None` if no
    /// such proposal has this id.
    fn proposed(&self, id: &str) -> Option<(SessionId, OwnedFacts)> {
        let all = self.shared.proposals.all();
        let named = |one: &&Proposal| one.wanted.refused.is_none() && one.id.to_string() == id;
        let one = all.iter().find(named)?;
        let request = request::of_access(&one.session, &one.wanted)?;
        Some((one.session.clone(), request))
    }

    /// Returns the rule for hosts; if no session is named, for the session that was refused them.
    fn of_host(
        &self,
        (host, port): (HostPattern, u16),
        (named, is_for_others): (Option<&str>, bool),
    ) -> Result<NewRule, ControlRefusal> {
        let mut needs = None;
        if let HostPattern::Exact(host) = &host {
            let origin = https(host.clone(), port);
            self.above_floor(&origin)?;
            needs = lookup::prohibited(&self.shared.current().origins, &origin)
                .map(|(why, reason)| {
                    let step = self.step(reason, &origin.authority.shown());
                    let (host, why) = (&origin.authority.host, why.to_string());
                    let step = step.replace("ADDRESS", &why);
                    format!("a request would be refused all the same: the address of `{host}` is {why}. {step}")
                });
        }
        if is_for_others {
            let policy = generate::permit_host(None, &host.to_string(), Some(port));
            return Ok((policy, Vec::new(), needs));
        }
        let session = match (named, &host) {
            (None, HostPattern::Exact(host)) => self.refused_at(host, port)?,
            _ => self.session(named)?,
        };
        let policy = generate::permit_host(Some(&session), &host.to_string(), Some(port));
        let denied = self.denied_by(&session, &policy, &[]);
        Ok((policy, denied, needs))
    }

    /// Refuses a rule for an origin that the gateway refuses whatever policies permit.
    fn above_floor(&self, origin: &Origin) -> Result<(), ControlRefusal> {
        let Some(reason) = floor(origin, &self.shared.current().origins) else {
            return Ok(());
        };
        let host = origin.authority.host.as_str();
        let to = match origin.scheme {
            Scheme::Https => origin.authority.shown(),
            Scheme::Http => origin.authority.to_string(),
        };
        Err(
            ControlRefusal::conflict(format!("no rule would allow `{host}`"))
                .because(reason.meaning())
                .next(self.step(reason, &to)),
        )
    }

    /// Returns the operator's remedy for a reason, naming the configuration file.
    fn step(&self, reason: ReasonCode, to: &str) -> String {
        let step = reason.step_for_operator(to, "");
        match &self.config {
            Some(file) => {
                let file = format!("`{}`", file.display());
                step.replace("the gateway's configuration", &file)
            }
            None => step,
        }
    }

    /// Returns the named session, else the only one.
    fn session(&self, named: Option<&str>) -> Result<SessionId, ControlRefusal> {
        let mut all = self.shared.sessions.all();
        all.retain(|session| named.is_none_or(|named| session.id().as_str() == named));
        match all.as_slice() {
            [only] => Ok(only.id().clone()),
            [] => {
                let what = "there is no such session";
                Err(ControlRefusal::new(StatusCode::NOT_FOUND, what))
            }
            _ => {
                let what = "there are several sessions, and none is named";
                let error = ControlRefusal::new(StatusCode::BAD_REQUEST, what);
                Err(error.next("name one: `--session NAME`"))
            }
        }
    }

    /// Returns the only session, else the only one that was refused a host. The message of a
    /// refusal names only the host; this finds the session.
    fn refused_at(&self, host: &Host, port: u16) -> Result<SessionId, ControlRefusal> {
        let all = self.shared.sessions.all();
        if all.len() < 2 {
            return self.session(None);
        }
        let read = self.refused(|sessions: &mut BTreeSet<String>, record| {
            let code = record.reason.as_deref().and_then(ReasonCode::named);
            if host_alone(&record) == (host.as_str(), port)
                && code.as_ref().is_some_and(is_for_want_of_a_rule)
            {
                sessions.extend(record.session.as_deref().map(str::to_owned));
            }
        });
        // If the log cannot be read, a person must name the session.
        let mut refused = read.unwrap_or_default();
        refused.retain(|name| all.iter().any(|session| session.id().as_str() == name));
        let only = refused.pop_first().filter(|_| refused.is_empty());
        self.session(only.as_deref())
    }

    /// Returns the last matching record of a refusal: by policy, by a name server, or by a proxy
    /// before there was a request.
    fn last_refused(
        &self,
        fits: impl Fn(&Record) -> bool,
    ) -> Result<VerifiedRecord, ControlRefusal> {
        let found = self.refused(|last: &mut Option<VerifiedRecord>, record| {
            if fits(&record) {
                *last = Some(record);
            }
        })?;
        let what = "no such exchange was refused";
        let none = ControlRefusal::new(StatusCode::NOT_FOUND, what);
        found.ok_or_else(|| none.next("`gateway log --refused` lists them"))
    }

    /// Reads the whole log once, and folds the refused exchanges with `each`.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read or fails verification: a forged record must not
    /// become a rule.
    pub(super) fn refused<T: Default>(
        &self,
        each: impl Fn(&mut T, VerifiedRecord),
    ) -> Result<T, ControlRefusal> {
        let path = self.shared.log.path().unwrap_or(Path::new(""));
        let read = audit::verified(path, self.shared.log.head(), |made, record| {
            if record.kind == "exchange" && record.reason.is_some() {
                each(made, record);
            }
        });
        read.map_err(|why| match why {
            LogUnverified::Unreadable(error) => {
                ControlRefusal::unavailable("the audit log cannot be read").because(chain(&error))
            }
            LogUnverified::Fault(problem) => {
                ControlRefusal::unavailable("the audit log does not hold")
                    .because(format!("{problem}, so no rule is made from it"))
                    .next("see `gateway log verify`, or name the host: `gateway allow HOST`")
            }
        })
    }

    /// Returns the rule for a refused exchange.
    fn of_refusal(
        &self,
        record: &Record,
        parse: impl Fn(&str) -> ParsedHosts,
        is_for_others: bool,
    ) -> Result<NewRule, ControlRefusal> {
        let reason = record.reason.as_deref().unwrap_or_default();
        let code = ReasonCode::named(reason);
        let (host, port) = host_alone(record);
        if !code.as_ref().is_some_and(is_for_want_of_a_rule) {
            let id = record.id.as_deref().unwrap_or_default();
            let next = code.map(|code| code.step_for_operator(host, id));
            let what = format!("it was refused for `{reason}`, which no further rule changes");
            return Err(ControlRefusal::conflict(what).next(next.unwrap_or_default()));
        }
        let session = self.session(record.session.as_deref())?;
        if !is_for_others && self.is_allowed(record, &session) {
            return Err(ControlRefusal::conflict("it is allowed meanwhile").next("send it again"));
        }
        if let Some(request) = request::of_record(record) {
            return self.of_request(&session, request, record.unlent.as_ref());
        }
        let pattern = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        if !is_host_alone(record) {
            let what = "the log does not hold the request's whole path, so no rule is for it alone";
            let next = format!("allow the host with every path: `gateway allow {pattern}`");
            return Err(ControlRefusal::conflict(what).next(next));
        }
        let rule = self.of_host(parse(&pattern)?, (Some(session.as_str()), false))?;
        refuse(&rule.1)?;
        Ok(rule)
    }

    /// Whether the policies in force permit to the session what it was refused.
    fn is_allowed(&self, record: &Record, session: &SessionId) -> bool {
        let live = self.shared.sessions.get(session);
        let asker = Requester {
            session: session.clone(),
            user: record.user.as_deref().and_then(User::new),
            groups: live
                .map(|live| live.last_groups().to_vec())
                .unwrap_or_default()
                .into(),
        };
        let generation = self.shared.current().policies.current();
        request::is_allowed(record, &generation, &asker)
    }

    /// Returns the rule for a request, and for a loan that it was refused.
    fn of_request(
        &self,
        id: &SessionId,
        mut request: OwnedFacts,
        unlent: Option<&Injection>,
    ) -> Result<NewRule, ControlRefusal> {
        let access = request::access(&request);
        self.above_floor(&access.to)?;
        if let Some(session) = self.shared.sessions.get(id) {
            request.groups = session.last_groups().to_vec();
        }
        let generation = self.shared.current().policies.current();
        let (_, asked) = request::asked(&generation, &request);
        let lent = unlent.and_then(|unlent| request::lent(&generation, &request, unlent));
        let wanted = lent.map_or_else(|| asked.clone(), |(_, why)| why);
        let rules = [asked.proposal, wanted.proposal].into_iter().flatten();
        let rules: BTreeSet<String> = rules.collect();
        if rules.is_empty() {
            return Err(ControlRefusal::conflict(wanted.reason).next(wanted.next_step));
        }
        let policy = rules.into_iter().collect::<Vec<_>>().join("\n");
        let loan = unlent.and_then(|unlent| {
            let name = CredentialName::new(&unlent.credential).ok()?;
            Some((name, unlent.place.to_string()))
        });
        let mut same = self.shared.proposals.denied(id);
        same.retain(|one| one.wanted.may_be_same(&access));
        refuse(&same)?;
        refuse(&self.denied_by(id, &policy, loan.as_slice()))?;
        Ok((policy, Vec::new(), None))
    }

    /// Adds a rule to the file, and puts it in force by `reload`, which receives the rule and
    /// returns the generation. If `reload` refuses the rule, the file is restored.
    ///
    /// # Errors
    /// Returns that the file cannot be written, or the error of `reload`.
    pub async fn apply<E, F>(
        &self,
        rule: AllowResponse,
        of: &str,
        reload: impl FnOnce(Source) -> F,
    ) -> Result<AllowResponse, E>
    where
        E: From<ControlRefusal>,
        F: Future<Output = Result<u64, E>>,
    {
        let file = self.file()?;
        let changed = file.add(&rule.policy, rule.until, of).await?;
        let applied = reload(Source::new("the rule", &rule.policy)).await;
        let generation = applied.inspect_err(|_| changed.undo())?;
        Ok(AllowResponse {
            applied: true,
            generation,
            ..rule
        })
    }

    /// Ends granted rules when they expire: removes them from the file for good, and puts the
    /// change in force by `end`. Runs for ever.
    pub async fn end_grants<E, F>(&self, end: impl Fn() -> F)
    where
        E: std::fmt::Display,
        F: Future<Output = Result<(), E>>,
    {
        let Some(file) = &self.file else { return };
        // A rule that had expired by now was never in force here.
        let (mut seen, mut pause) = (OffsetDateTime::now_utc(), LOOKED_AT_EVERY);
        loop {
            tokio::time::sleep(pause).await;
            pause = LOOKED_AT_EVERY;
            let (now, path) = (OffsetDateTime::now_utc(), file.path().to_owned());
            let look = tokio::task::spawn_blocking(move || std::fs::read_to_string(path).ok());
            let Some(text) = look.await.ok().flatten() else {
                continue;
            };
            let ends = GrantedRule::all_ending(&text).filter_map(|one| one.until);
            let ends: Vec<OffsetDateTime> = ends.collect();
            let to_come = ends.iter().filter(|until| **until >= now).min();
            let left = to_come.and_then(|until| Duration::try_from(*until - now).ok());
            pause = left.map_or(pause, |left| pause.min(left + CLOCK_STEP));
            if ends.iter().any(|until| (seen..now).contains(until)) {
                // Every gateway of the folder does this. Until one has, the rule is left out.
                let gone = ControlRefusal::conflict("it is gone");
                let prune = |text: Option<String>| text.map(pruned).ok_or(gone);
                let _ = file.change(prune).await;
                // On failure, this is tried again: until then, the rule is in force.
                if let Err(failure) = end().await {
                    tracing::error!(%failure, "a granted rule has ended, and is still in force");
                    continue;
                }
            }
            seen = now;
        }
    }
}

/// How often the file of granted rules is looked at, if no rule ends before.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);
/// How long after its expiry a rule is seen to have expired.
const CLOCK_STEP: Duration = Duration::from_millis(2);
/// How many digits an id has.
const WHOLE_ID: usize = 20;
