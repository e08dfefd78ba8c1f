//! `gateway session`: lists sessions, creates those that no listener owns and extends them, pauses
//! and ends sessions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::operate::ca::CaCommand;
use super::operate::env::EnvFormat;
use super::operate::gateways::{ChosenGateway, in_path};
use super::operate::{EndCommand, OneSession, list_sessions};
use super::token::narrowing::{Narrowing, lasting};
use crate::app::client_environment::script;
use crate::app::{Code, Context as _, Failure, Terminal};
use crate::files::create_private;
use crate::server::ClientEnvironment;

/// The commands about sessions.
#[derive(Subcommand)]
pub(crate) enum SessionCommand {
    /// List the sessions of the running gateways
    List(ChosenGateway),
    /// Make a session: print its token, its CA and its phantoms, which nobody is shown again
    Create(Box<CreateSession>),
    /// Let a session that was made so live longer, and print a token that lives as long
    Extend(ExtendSession),
    /// Pause a session: its requests are refused until it is resumed
    Pause(OneSession),
    /// Let a paused session go on
    Resume(OneSession),
    /// End a session, and cut what it has under way: it never goes on
    End(EndCommand),
    /// Print the CA certificate of a running `gateway serve`
    Ca(CaCommand),
}

/// Makes a session.
#[derive(Args)]
pub(crate) struct CreateSession {
    /// Its name, which is used once [default: one that is free]
    name: Option<String>,
    /// The user that policy sees behind its tokens: `alice`
    #[arg(long)]
    user: Option<String>,
    /// A group that it is in; repeat it for several
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Only this credential is lent to it, whatever policy says; repeat it for several. `none`:
    /// none at all [default: what policy lends]
    #[arg(long, value_name = "CREDENTIAL")]
    lend: Vec<String>,
    /// After what time it ends: `30m`, `8h`, `7d`
    #[arg(long, value_name = "TIME", value_parser = lasting)]
    ends: Duration,
    #[command(flatten)]
    narrowing: Narrowing,
    /// Show the same session once more if it was made with this key
    #[arg(long, value_name = "KEY", value_parser = key)]
    idempotency_key: Option<String>,
    /// Print commands for `eval` that make curl, git, Node, Python and Java use it
    #[arg(long, conflicts_with = "to")]
    env: bool,
    /// Write to this file, which must not be there yet and is for its owner alone
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    chosen: ChosenGateway,
}

/// Lets a session live longer.
#[derive(Args)]
pub(crate) struct ExtendSession {
    #[command(flatten)]
    session: OneSession,
    /// After what time from now it ends: `30m`, `8h`
    #[arg(long, value_name = "TIME", value_parser = lasting)]
    ends: Duration,
}

impl SessionCommand {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        match self {
            Self::List(chosen) => list_sessions(&chosen, terminal),
            Self::Create(command) => command.run(terminal),
            Self::Extend(command) => command.run(terminal),
            Self::Pause(command) => command.run("pause", None, terminal),
            Self::Resume(command) => command.run("resume", None, terminal),
            Self::End(command) => command.run(terminal),
            Self::Ca(command) => command.run(terminal),
        }
    }
}

impl CreateSession {
    fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
        let mut gateway = self.chosen.one()?;
        if let Some(key) = &self.idempotency_key {
            gateway.client = gateway.client.known_by(key);
        }
        let asked = self.asked()?;
        let is_there = |path: &&PathBuf| path.symlink_metadata().is_ok();
        if let Some(path) = self.to.as_ref().filter(is_there) {
            return Err(occupied(path));
        }
        let answer = gateway.post("/v1/sessions", Some(&asked))?;
        let text = shown(&answer, self.env, terminal)?;
        let Some(path) = &self.to else {
            terminal.line(text.trim_end());
            return Ok(Code::Ok);
        };
        let absolute = std::path::absolute(path);
        let written = absolute.and_then(|path| create_private(&path, text.as_bytes()));
        let is_made = written.context(format!("`{}` cannot be written", path.display()))?;
        is_made.then_some(Code::Ok).ok_or_else(|| occupied(path))
    }

    /// Returns the content of the request.
    fn asked(&self) -> Result<Value, Failure> {
        let caveats = self.narrowing.caveats()?;
        let caveats: Vec<String> = caveats.iter().map(ToString::to_string).collect();
        let lend = match &self.lend[..] {
            [] => None,
            [none] if none == "none" => Some(&[][..]),
            all => Some(all),
        };
        Ok(json!({
            "name": self.name,
            "user": self.user,
            "groups": self.groups,
            "lend": lend,
            "seconds": self.ends.as_secs(),
            "caveats": caveats,
        }))
    }
}

impl ExtendSession {
    fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
        let (gateway, id) = self.session.find()?;
        let asked = json!({ "seconds": self.ends.as_secs() });
        let path = format!("/v1/sessions/{}/extend", in_path(&id));
        let answer = gateway.post(&path, Some(&asked))?;
        terminal.answer(&answer, answer["token"].as_str().unwrap_or_default());
        if !terminal.json() {
            terminal.note("shown this once; earlier tokens end when they would have ended");
        }
        Ok(Code::Ok)
    }
}

/// Reads the environment for clients from a gateway's response.
fn environment(answer: Value) -> Result<ClientEnvironment, Failure> {
    let read = serde_json::from_value(answer);
    read.context("the gateway's answer cannot be read")
}

/// Formats a workload's environment for a shell or as JSON; with `in_full`, for all its clients.
fn shown(answer: &Value, in_full: bool, terminal: &Terminal) -> Result<String, Failure> {
    if terminal.json() {
        return Ok(format!("{answer:#}\n"));
    }
    let named = [
        ("GATEWAY_SESSION", &answer["session"]),
        ("GATEWAY_TOKEN", &answer["token"]),
        ("GATEWAY_CA", &answer["certificate"]),
    ];
    let variables = answer["variables"].as_object().filter(|_| !in_full);
    let variables = variables.into_iter().flatten();
    let named = named.into_iter().take(if in_full { 2 } else { 3 });
    let all = variables
        .map(|(name, value)| (name.as_str(), value))
        .chain(named);
    let line = |(name, value): (&str, &Value)| {
        let line = EnvFormat::Sh.line(name, value.as_str().unwrap_or_default())?;
        Ok(line + "\n")
    };
    let text: Result<String, Failure> = all.map(line).collect();
    if in_full {
        Ok(text? + &script(&environment(answer.clone())?))
    } else {
        text
    }
}

fn occupied(path: &Path) -> Failure {
    Failure::new(format!("`{}` is there already", path.display()))
        .next("name a file that is not there: none is overwritten")
}

fn key(text: &str) -> Result<String, String> {
    let fits = |char: char| (char.is_ascii_graphic() || char == ' ') && !matches!(char, '"' | '\\');
    let is_key = (1..=255).contains(&text.len()) && text.chars().all(fits);
    let what = "a key has 1 to 255 visible ASCII characters, without `\"` and `\\`";
    is_key
        .then(|| text.to_owned())
        .ok_or_else(|| what.to_owned())
}
