//! `gateway allow`: allows a session a refused request, by the narrowest rule. It applies to a
//! running session, or to the next run in the folder of a command that has ended.

use std::path::Path;
use std::time::Duration;

use clap::{ArgGroup, Args};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::app::control::parse_host;
use crate::app::process::serving;
use crate::app::project::project;
use crate::app::reload::generation::EXEC;
use crate::app::{Code, Failure, Paint, Terminal, safe};
use crate::cli::confirm::confirmed;
use crate::cli::last_run::LastRun;
use crate::cli::operate::gateways::{ChosenGateway, Gateway};
use crate::cli::proposals;
use crate::cli::why::Why;
use crate::config::{self, HostPort};
use crate::grant::{AllowRequest, AllowResponse, GrantedFile};
use crate::names::SessionId;
use crate::policy::generate;

/// Allow what was refused, or one request that a policy asks about
///
/// Shows the narrowest rule, asks, and applies it; for a command that has ended, keeps it for the
/// next one in its folder.
#[derive(Args)]
#[command(group = ArgGroup::new("asked").args(["what", "last"]).required(true))]
pub(super) struct Allow {
    /// A host (`api.example.com`, `api.example.com:8443`, `*.example.com`), or the id of a refused
    /// exchange or a proposal
    #[arg(value_name = "HOST|ID")]
    what: Option<String>,
    /// What was refused last
    #[arg(long)]
    last: bool,
    /// End it by itself after this time: `30m`, `1h`, `7d`
    #[arg(long = "for", value_name = "TIME", value_parser = lasting)]
    lasts: Option<Duration>,
    /// Apply the rule without a question
    #[arg(long, short)]
    yes: bool,
    /// The session that may; needed for a host if there are several
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// The user who may, in whatever session: as `gateway why` and `gateway log` name it
    #[arg(long, value_name = "USER", conflicts_with_all = ["session", "group"])]
    user: Option<String>,
    /// The group that may, in whatever session
    #[arg(long, value_name = "GROUP", conflicts_with = "session")]
    group: Option<String>,
    #[command(flatten)]
    chosen: ChosenGateway,
}

impl Allow {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        if let Some(last) = self.ended()? {
            return self.keep(&last, terminal);
        }
        let gateway = self.chosen.one()?;
        let asked = self.request();
        let id = asked.exchange.as_deref().map(str::to_ascii_lowercase);
        if let Some(one) = id.map_or(Ok(None), |id| proposals::asked(&gateway, &id))? {
            return self.allow_once(&gateway, &one, terminal);
        }
        let rule = ask(&gateway, &asked)?;
        print(&rule.policy, terminal);
        for told in careful(&rule, &asked) {
            terminal.warning("careful", &told);
        }
        let question = format!("Apply it now, and keep it in {}?", safe(&rule.file));
        if !self.is_confirmed(&question, terminal)? {
            return Ok(Code::Failed);
        }
        let policy = Some(rule.policy);
        let applied = ask(&gateway, &AllowRequest { policy, ..asked })?;
        let word = terminal.paint(Paint::Green, "applied");
        let (generation, file) = (applied.generation, safe(&applied.file));
        let until = ends(applied.until);
        let line = format!("{word} as generation {generation}{until}, kept in {file}");
        terminal.answer(&applied, line);
        Ok(Code::Ok)
    }

    /// Allows one request that a policy asks about, which then goes on, or is sent when it is
    /// repeated.
    fn allow_once(
        &self,
        gateway: &Gateway,
        one: &Value,
        terminal: &mut Terminal,
    ) -> Result<Code, Failure> {
        let wider = (self.lasts, &self.session, &self.user, &self.group);
        if wider != (None, &None, &None, &None) {
            let failure = Failure::usage("an answer to a policy is for one request alone");
            return Err(failure.next("leave out all but the id and `--yes`, or change the policy"));
        }
        if !terminal.json() {
            let lines = proposals::ask_lines(one);
            lines.iter().for_each(|line| terminal.line(line));
        }
        if !self.is_confirmed("Allow this one request, once?", terminal)? {
            return Ok(Code::Failed);
        }
        let allowed = gateway.post("/v1/proposals/allow", Some(&json!({ "id": one["id"] })))?;
        let word = terminal.paint(Paint::Green, "allowed once");
        let wanted = safe(allowed["wanted"].as_str().unwrap_or_default());
        terminal.answer(
            &allowed,
            format!("{word}: {wanted}; it holds for ten minutes"),
        );
        Ok(Code::Ok)
    }

    fn is_confirmed(&self, question: &str, terminal: &Terminal) -> Result<bool, Failure> {
        let yes = self.yes || confirmed(question)?;
        if !yes {
            terminal.note("gateway: nothing was changed");
        }
        Ok(yes)
    }

    /// Returns the last run of `exec` in this folder, if its gateway has ended and none runs here.
    fn ended(&self) -> Result<Option<LastRun>, Failure> {
        // A command of `exec` has no user.
        if self.chosen.is_named() || self.user.is_some() || self.group.is_some() {
            return Ok(None);
        }
        let (project, running) = (project()?, self.chosen.find()?);
        let is_here = |gateway: &Gateway| {
            let status = gateway.get_soon("/v1/status").unwrap_or_default();
            let directory = status["directory"].as_str().map(Path::new);
            directory.is_some_and(|at| at.starts_with(&project))
        };
        if running.iter().any(is_here) {
            Ok(None)
        } else {
            // Without a run here, a run elsewhere is meant.
            Ok(LastRun::of(&project).ok())
        }
    }

    /// Stores the rule for the next run in this folder.
    fn keep(&self, last: &LastRun, terminal: &mut Terminal) -> Result<Code, Failure> {
        let unkept = || {
            Failure::new("nothing is kept for this folder")
                .because("the command may change the folder where it would be kept")
                .next("start it again with `--allow HOST`")
        };
        let file = GrantedFile::new(last.granted.clone().ok_or_else(unkept)?);
        let policy = match self.what.as_deref().filter(|what| !is_id(what)) {
            Some(host) => of_host(host)?,
            None => {
                let id = self.what.as_ref().map(|id| id.to_ascii_lowercase());
                Why::of_run(id, last).rule(terminal)?
            }
        };
        let folder = project()?.display().to_string();
        print(&policy, terminal);
        let question = format!("Keep it for commands in {}?", safe(&folder));
        if !self.is_confirmed(&question, terminal)? {
            return Ok(Code::Failed);
        }
        let seconds = self.lasts.map(|lasts| lasts.as_secs());
        let rule = AllowResponse::new(policy, &file, seconds);
        let add = file.add(&rule.policy, rule.until, &folder);
        serving::runtime()?.block_on(add)?;
        let (folder, until) = (safe(&folder), ends(rule.until));
        terminal.answer(
            &rule,
            format!("kept for commands in {folder}{until}: run it again"),
        );
        Ok(Code::Ok)
    }

    fn request(&self) -> AllowRequest {
        let (exchange, host) = match self.what.clone() {
            Some(what) if is_id(&what) => (Some(what), None),
            what => (None, what),
        };
        AllowRequest {
            host,
            exchange,
            last: self.last,
            session: self.session.clone(),
            user: self.user.clone(),
            group: self.group.clone(),
            seconds: self.lasts.map(|lasts| lasts.as_secs()),
            policy: None,
        }
    }
}

/// Prints a rule, unless a document is printed at the end.
fn print(policy: &str, terminal: &Terminal) {
    if !terminal.json() {
        policy.lines().for_each(|line| terminal.line(safe(line)));
    }
}

/// Returns the warnings about a rule that precede the question.
pub(super) fn careful(rule: &AllowResponse, asked: &AllowRequest) -> Vec<String> {
    let mut told = Vec::new();
    if rule.policy.len() > SEEN_WHOLE {
        let begins: Vec<&str> = rule.policy.lines().take(HEAD).map(str::trim).collect();
        let begins = safe(&begins.join(" "));
        told.push(format!("the rule is long; it begins: {begins}"));
    }
    told.extend(rule.needs.as_deref().map(safe));
    told.extend(rule.widens.iter().map(|line| safe(line)));
    let before = |denied: &String| format!("{} was refused to this session before", safe(denied));
    told.extend(rule.denied.iter().map(before));
    if asked.host.as_deref().is_some_and(HostPort::leaves_out_path) {
        let whole = "every path of the host would be allowed: a rule for one request is that of \
                     its id, and one for some paths is a policy of your own";
        told.push(whole.to_owned());
    }
    told
}

/// Returns the rule that permits a host to the commands of `exec`.
fn of_host(text: &str) -> Result<String, Failure> {
    let (host, port) = parse_host(text)?;
    let session = SessionId::new(EXEC).map_err(|error| Failure::new(error.to_string()))?;
    let (session, host) = (Some(&session), host.to_string());
    Ok(generate::permit_host(session, &host, Some(port)))
}

/// Reads the duration of a grant: a second or more.
fn lasting(text: &str) -> Result<Duration, String> {
    let lasts = config::duration(text).map_err(|hint| format!("{}: {}", hint.why, hint.remedy))?;
    match lasts.as_secs() {
        0 => Err("a grant lasts a second or more: write for example `1h`".to_owned()),
        _ => Ok(lasts),
    }
}

/// Returns the end of a grant, as a part of a sentence.
fn ends(until: Option<i64>) -> String {
    let at = until.and_then(|until| OffsetDateTime::from_unix_timestamp(until).ok());
    let text = at.and_then(|at| at.format(&Rfc3339).ok());
    text.map(|text| format!(" until {text}"))
        .unwrap_or_default()
}

fn is_id(text: &str) -> bool {
    (4..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Requests a rule, or its application.
pub(super) fn ask(gateway: &Gateway, asked: &AllowRequest) -> Result<AllowResponse, Failure> {
    let answer = gateway.post("/v1/policies/allow", Some(&json!(asked)))?;
    serde_json::from_value(answer)
        .map_err(|error| Failure::of("the gateway's answer cannot be read", &error))
}

/// A rule of at most so many bytes is shown whole above the question.
const SEEN_WHOLE: usize = 1000;
/// The lines that name the rule, the session, the method and the host.
const HEAD: usize = 5;
