//! `gateway why`: explains one request's outcome from the audit log, and what would allow it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::audit::{ExchangeEntry, Record, find, read};
use crate::config::Config;
use crate::config::keys::nearest;
use crate::names::{ExchangeId, PolicyId, ReasonCode};
use crate::policy::generate;

use crate::app::{Code, ConfigFile, Failure, Paint, Terminal, safe};
use crate::cli::last_run::LastRun;
use crate::cli::log::logs;
use crate::cli::log::logs::Chain;
use crate::cli::log::story::{Story, StoryRow};
use crate::cli::remedy::Remedy;

/// Tells what became of a request.
#[derive(Args)]
pub(super) struct Why {
    /// The id in the response (`Gateway-Exchange`), or its beginning: at least 4 of 20 hexadecimal
    /// digits
    #[arg(required_unless_present_any = ["last", "code"], conflicts_with_all = ["last", "code"])]
    id: Option<String>,
    /// What was refused last
    #[arg(long, conflicts_with = "code")]
    last: bool,
    /// Explain a code instead, such as `policy_default_deny`
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// An audit log, with what it was rotated into [default: that of `--config`, or those of the
    /// running gateways and of your state directory]
    #[arg(long, value_name = "FILE")]
    audit: Vec<PathBuf>,
    #[command(flatten)]
    config: ConfigFile,
}

impl Why {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        if let Some(code) = &self.code {
            return explain(terminal, code);
        }
        let (found, chain) = self.search(terminal)?;
        let remedy = Remedy::of(&found, &chain, self.config()?.as_ref());
        if terminal.json() {
            terminal.document(&document(&found, &remedy)?);
        } else {
            print(terminal, &found, &remedy);
            let policy = remedy.policy.as_deref();
            let lines = policy.map(|policy| std::iter::once("").chain(policy.lines()));
            lines
                .into_iter()
                .flatten()
                .for_each(|line| terminal.line(safe(line)));
        }
        Ok(Code::Ok)
    }

    /// Explains an exchange of a run, or its last refused one.
    pub(super) fn of_run(id: Option<String>, run: &LastRun) -> Self {
        Self {
            last: id.is_none(),
            id,
            code: None,
            audit: vec![run.log.clone()],
            config: ConfigFile::of(run.config.clone()),
        }
    }

    /// Returns the policy that would have allowed the exchange.
    ///
    /// # Errors
    /// Returns a [`Failure`] if no log has the exchange, if the log fails verification, or if no
    /// policy would allow it.
    pub(super) fn rule(&self, terminal: &Terminal) -> Result<String, Failure> {
        let (found, chain) = self.search(terminal)?;
        let remedy = Remedy::of(&found, &chain, self.config()?.as_ref());
        let reason = found.exchange.reason.as_deref().unwrap_or("another reason");
        let code = ReasonCode::named(reason).filter(|_| remedy.why_not.is_none());
        let host = found.exchange.host.as_deref().unwrap_or_default();
        let id = found.exchange.id.as_deref().unwrap_or_default();
        let next = code.map(|code| code.step_for_operator(host, id));
        let reason = safe(reason);
        let what = format!("no rule would allow it: it was refused for `{reason}`");
        let refused = Failure {
            why: remedy.why_not,
            ..Failure::new(what).next(next.unwrap_or_else(|| "gateway why --last".to_owned()))
        };
        remedy.policy.ok_or(refused)
    }

    /// Returns what is written in the place of an id.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns the configuration, if one is named.
    pub(super) fn config(&self) -> Result<Option<Config>, Failure> {
        self.config.find()
    }

    /// Returns the record of the exchange from a log whose chain verifies. The user may put the
    /// policy proposed from it into use, so the log must be intact.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the id is invalid, no log contains it, or the log does not verify.
    pub(super) fn find_in_whole_log(&self, terminal: &Terminal) -> Result<ExchangeEntry, Failure> {
        let (found, chain) = self.search(terminal)?;
        let (record, _) = logs::told(&chain, found.exchange.id.as_deref().unwrap_or_default())?;
        match record {
            Some(record) if *record == found.exchange => Ok(found),
            _ => Err(Failure::new("the audit log was changed meanwhile").next("ask again")),
        }
    }

    /// Returns the record of the exchange, and the log that contains it.
    fn search(&self, terminal: &Terminal) -> Result<(ExchangeEntry, Chain), Failure> {
        if let Some(id) = self.id.as_deref().filter(|id| !is_beginning(id)) {
            exchange_id(id)?;
        }
        let config = if self.audit.is_empty() {
            self.config.find()?
        } else {
            None
        };
        let chains = logs::find(&self.audit, config.as_ref(), terminal)?.chains;
        let id = match &self.id {
            Some(id) if id.len() == 20 => exchange_id(id)?,
            begin => whole_id(&chains, begin.as_deref())?,
        };
        let mut files = Vec::new();
        for chain in chains {
            let found = find(&chain, id)
                .map_err(|error| Failure::of("the audit log cannot be read", &error))?;
            if let Some(found) = found {
                return Ok((found, chain));
            }
            files.extend(chain.last().map(|path| path.display().to_string()));
        }
        let searched = match files.as_slice() {
            few if few.len() <= 3 => format!("searched {}", few.join(", ")),
            many => format!("searched {} logs, such as {}", many.len(), many[0]),
        };
        Err(Failure::new(format!("no record has the id {id}"))
            .because(searched)
            .next(ANOTHER_LOG))
    }
}

/// The next step if the default logs lack an exchange.
const ANOTHER_LOG: &str =
    "name the audit log of that gateway, `--audit FILE`, or its configuration, `--config FILE`";

fn is_beginning(text: &str) -> bool {
    (4..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Finds the only exchange whose id begins so; without a beginning, the last refused one.
fn whole_id(chains: &[Chain], begin: Option<&str>) -> Result<ExchangeId, Failure> {
    let Some(begin) = begin.map(str::to_ascii_lowercase) else {
        return last_refused(chains);
    };
    let mut found = BTreeSet::new();
    each(chains, |record| {
        let id = record.id.filter(|id| id.starts_with(&begin));
        if let Some(id) = id.filter(|_| found.len() < MOST_SHOWN) {
            found.insert(id.to_string());
        }
    })?;
    if found.len() > 1 {
        let all: Vec<&str> = found.iter().map(String::as_str).collect();
        return Err(Failure::usage("several exchanges begin like this")
            .because(all.join(", "))
            .next("write more of it"));
    }
    found.first().map_or_else(
        || Err(Failure::new("no exchange has an id that begins like this").next(ANOTHER_LOG)),
        |id| exchange_id(id),
    )
}

fn last_refused(chains: &[Chain]) -> Result<ExchangeId, Failure> {
    let mut last = None;
    each(chains, |record| {
        if record.kind == "exchange" && record.reason.is_some() {
            last = last.take().max(record.time.zip(record.id));
        }
    })?;
    let Some((_, id)) = last else {
        let what = "nothing was refused, as far as the audit logs tell";
        return Err(Failure::new(what).next(ANOTHER_LOG));
    };
    exchange_id(&id)
}

fn each(chains: &[Chain], mut look: impl FnMut(Record)) -> Result<(), Failure> {
    let unreadable = |error| Failure::of("the audit log cannot be read", &error);
    let mut chains = chains.iter();
    chains.try_for_each(|chain| read(chain, &mut look).map_err(unreadable))
}

/// How many ids with the same beginning are shown.
const MOST_SHOWN: usize = 6;

/// Explains a code.
fn explain(terminal: &mut Terminal, code: &str) -> Result<Code, Failure> {
    let Some(code) = ReasonCode::named(code) else {
        let known = ReasonCode::ALL.iter().map(|code| code.as_str());
        let failure = Failure::usage(format!("`{}` is no code of a refusal", safe(code)));
        return Err(match nearest(code, known) {
            Some(near) => failure.next(format!("did you mean `{near}`?")),
            None => failure.next("copy it from the response: `reason` in the JSON"),
        });
    };
    if terminal.json() {
        terminal.document(&json!({
            "code": code.as_str(), "status": code.status().as_u16(),
            "side": code.blame().as_str(), "meaning": code.meaning(),
            "next": own_step(code, "", "ID"), "retry": !code.is_final(),
        }));
        return Ok(Code::Ok);
    }
    let name = terminal.paint(Paint::Bold, code.as_str());
    let (status, side) = (code.status().as_u16(), code.blame().as_str());
    terminal.line(format!("{name} status {status}, side: {side}"));
    terminal.line(format!("  {}", code.meaning()));
    let next = terminal.paint(Paint::Bold, "next");
    terminal.line(format!("{next} {}", own_step(code, "", "ID")));
    Ok(Code::Ok)
}

/// Parses an id as written in a response.
pub(super) fn exchange_id(text: &str) -> Result<ExchangeId, Failure> {
    let fits = text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| fits);
    let number = number.map(u128::to_be_bytes);
    if let Some([_, _, _, _, _, _, bytes @ ..]) = number {
        return Ok(ExchangeId::from_bytes(bytes));
    }
    Err(Failure::usage("the id cannot be read")
        .because("an id has 20 hexadecimal digits, of which the first 4 or more will do")
        .next(
            "copy it from the response: `request_id` in the JSON, or the `Gateway-Exchange` field",
        ))
}

/// Returns everything as one document: the records, the next step, and the policy to allow it.
fn document(found: &ExchangeEntry, remedy: &Remedy) -> Result<Value, Failure> {
    let mut document = serde_json::to_value(found)
        .map_err(|error| Failure::of("the record cannot be written", &error))?;
    let record = &found.exchange;
    let next = record.reason.as_deref();
    let next = next.map(|reason| next_step(record, reason, remedy));
    document["next"] = json!(next);
    document["proposal"] = json!(remedy.policy);
    document["no_proposal"] = json!(remedy.why_not);
    Ok(document)
}

fn print(terminal: &Terminal, found: &ExchangeEntry, remedy: &Remedy) {
    let record = &found.exchange;
    let story = Story {
        record,
        end: found.end.as_ref(),
        again: found.again,
    };
    let mut rows = story.rows();
    let ids = record.policies.iter();
    let lifting = ids.filter_map(|id| generate::lifting(&PolicyId::new(id).ok()?));
    rows.extend(lifting.map(|(group, _)| {
        let group = safe(&group);
        let how = format!("for a session by `--group {group}`, or `groups` of its listener");
        StoryRow::new("lifted", how)
    }));
    if let Some(reason) = &record.reason {
        let next = safe(&next_step(record, reason, remedy));
        rows.push(StoryRow::new("next", next));
    }
    let file = safe(&found.file.display().to_string());
    rows.push(StoryRow::new("", format!("{file}:{}", found.line)));
    for StoryRow {
        name,
        verdict,
        text,
        ..
    } in rows
    {
        let name = match name {
            "" => String::from(" "),
            name => terminal.paint(Paint::Bold, name),
        };
        let paint = match &*verdict {
            "refused" => Paint::Red,
            _ => Paint::Green,
        };
        let verdict = match &*verdict {
            "" => verdict,
            word => terminal.paint(paint, word),
        };
        terminal.line(format!("{name} {verdict}{text}"));
    }
}

/// Returns the event and the user's next step, by the code.
fn next_step(record: &Record, reason: &str, remedy: &Remedy) -> String {
    let Some(code) = ReasonCode::named(reason) else {
        return String::from("The code is of another version of the gateway.");
    };
    let host = record.host.as_deref().unwrap_or_default();
    let to = match record.port {
        None | Some(0 | 443) => host.to_owned(),
        Some(port) => format!("{host}:{port}"),
    };
    let to = if host.is_empty() { "" } else { &to };
    let id = record.id.as_deref().unwrap_or("ID");
    let known = remedy.step(to, record.unlent.is_some());
    let step = known.unwrap_or_else(|| own_step(code, to, id));
    let cause = record.cause.as_deref().unwrap_or_default();
    let mut words = cause.split([' ', ',']);
    let address = words.find(|word| word.parse::<IpAddr>().is_ok());
    let step = step.replace("ADDRESS", address.unwrap_or("ADDRESS"));
    format!("{} {step}", code.meaning())
}

/// Returns the next step for the reader. For some codes, a refusal names this very command.
fn own_step(code: ReasonCode, to: &str, id: &str) -> String {
    match code {
        ReasonCode::PolicyError | ReasonCode::PolicyUnjudged => {
            "Look at the policies that decided: one reads a value that the request does not say in \
             exactly one way, or fails to evaluate."
                .to_owned()
        }
        ReasonCode::Revoked => "Send it again: the policies now in force judge it.".to_owned(),
        code => code.step_for_operator(to, id),
    }
}
