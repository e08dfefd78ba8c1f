//! `gateway session`: makes sessions that no listener owns, and lets them live longer.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::operate::OneSession;
use super::operate::env::EnvFormat;
use super::operate::gateways::{ChosenGateway, in_path};
use super::token::narrowing::{Narrowing, lasting};
use crate::app::client_environment::{script, variables, write_trust};
use crate::app::{Code, Context as _, Failure, Terminal};
use crate::files::create_private;
use crate::gateway::ClientEnvironment;
use crate::intercept::PRESENTED_USER;

/// The commands that make sessions.
#[derive(Subcommand)]
pub(crate) enum SessionCommand {
    /// Make a session: print its token, its CA and its phantoms, which nobody is shown again
    Create(Box<CreateSession>),
    /// Let a session that was made so live longer, and print a token that lives as long
    Extend(ExtendSession),
    /// Write what clients of a session need into a new folder: variables, CA, files of logins
    Env(SessionEnv),
}

/// Writes what clients of a session need.
#[derive(Args)]
pub(crate) struct SessionEnv {
    #[command(flatten)]
    session: OneSession,
    /// The folder, which must not be there yet: `env` has the variables, `home` the files of logins
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Where clients will have that folder, such as `/gateway` in a container [default: DIR]
    #[arg(long, value_name = "PATH")]
    at: Option<PathBuf>,
    /// How to write the variables
    #[arg(long, value_enum, default_value_t = EnvFormat::Dotenv)]
    form: EnvFormat,
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
    pub(super) fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
        match self {
            Self::Create(command) => command.run(terminal),
            Self::Extend(command) => command.run(terminal),
            Self::Env(command) => command.run(terminal),
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

    /// The content of the call.
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

impl SessionEnv {
    fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
        let (gateway, id) = self.session.find()?;
        let answer = gateway.get(&format!("/v1/sessions/{}/environment", in_path(&id)))?;
        let mut needs = environment(answer)?;
        let proxy = needs.proxy.as_mut();
        if let Some(user) = proxy.and_then(|proxy| proxy.user.as_mut()) {
            match std::env::var("GATEWAY_TOKEN") {
                Ok(token) if user == PRESENTED_USER => *user = format!("{user}:{token}"),
                _ => terminal.note(format!("gateway: the proxy asks for what `{user}` presents, which is not written: put it into the URLs")),
            }
        }
        let into = self.into.display();
        self.write(&needs)
            .context(format!("`{into}` cannot be written"))??;
        terminal.note(format!("written to {into}, which is for its owner alone"));
        Ok(Code::Ok)
    }

    fn write(&self, needs: &ClientEnvironment) -> std::io::Result<Result<(), Failure>> {
        let private = || {
            let mut folders = DirBuilder::new();
            folders.mode(0o700);
            folders
        };
        // Nothing of a folder that is there is followed or replaced.
        private().create(&self.into)?;
        let into = std::path::absolute(&self.into)?;
        let files = write_trust(
            &into,
            self.at.as_deref().unwrap_or(&into),
            &needs.certificate,
        )?;
        let mut text = String::new();
        for (name, value) in variables(needs, &files) {
            match self.form.line(&name, &value) {
                Ok(line) => text += &(line + "\n"),
                Err(failure) => return Ok(Err(failure)),
            }
        }
        create_private(&into.join("env"), text.as_bytes())?;
        for (path, content) in &needs.files {
            let path = into.join(format!("home/{path}"));
            private()
                .recursive(true)
                .create(path.parent().unwrap_or(&into))?;
            create_private(&path, content.as_bytes())?;
        }
        Ok(Ok(()))
    }
}

/// What clients need, as a gateway answers.
fn environment(answer: Value) -> Result<ClientEnvironment, Failure> {
    let read = serde_json::from_value(answer);
    read.context("the gateway's answer cannot be read")
}

/// What a workload needs, for a shell or as JSON; with `in_full`, all that its clients need.
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
    match in_full {
        true => Ok(text? + &script(&environment(answer.clone())?)),
        false => text,
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
