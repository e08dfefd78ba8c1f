//! `gateway token`: has a gateway mint and revoke tokens; narrows them and shows what they say,
//! without a gateway and without its key.

mod minting;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{ArgGroup, Args, Subcommand};
use serde_json::json;
use zeroize::Zeroizing;

use crate::app::{Code, Context as _, Failure, Terminal, safe};
use crate::config;
use crate::credential::ring;
use crate::token::{Caveat, TokenMalformed, attenuate, inspect};

/// The commands about tokens.
#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Mint a token of a session: whoever presents it to a listener that takes tokens is that session
    Mint(minting::Mint),
    /// Revoke a token in every gateway of yours, with all that was derived from it
    Revoke(minting::Revoke),
    /// Narrow a token: print one that allows only this of what it allowed
    Attenuate(Attenuate),
    /// Show whose a token is and what narrows it; whether it is genuine only its gateway knows
    Inspect(TokenSource),
}

/// Where a token is read from.
#[derive(Args)]
pub(crate) struct TokenSource {
    /// The file that has the token [default: standard input]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Narrows a token.
#[derive(Args)]
#[command(group = ArgGroup::new("narrower").multiple(true).required(true)
    .args(["host", "method", "path", "credential", "lasts", "from", "beside", "policy"]))]
pub(crate) struct Attenuate {
    #[command(flatten)]
    token: TokenSource,
    /// Only for this time: `30m`, `8h`, `7d`
    #[arg(long = "for", value_name = "TIME", value_parser = lasting)]
    lasts: Option<Duration>,
    #[command(flatten)]
    narrowing: Narrowing,
}

/// What narrows a token.
#[derive(Args)]
struct Narrowing {
    /// Only this host; repeat it for several: `api.example.com`, `*.example.com`, `host:port`
    #[arg(long)]
    host: Vec<String>,
    /// Only this method; repeat it for several
    #[arg(long)]
    method: Vec<String>,
    /// Only this path and what is below it; repeat it for several
    #[arg(long)]
    path: Vec<String>,
    /// Only this credential is lent; repeat it for several. `none`: none at all
    #[arg(long, value_name = "NAME")]
    credential: Vec<String>,
    /// Only from addresses of this network; repeat it for several: `100.64.0.0/10`
    #[arg(long, value_name = "NETWORK")]
    from: Vec<String>,
    /// Only beside this other evidence, such as `uid:1000` at a Unix socket
    #[arg(long = "as", value_name = "NAME")]
    beside: Vec<String>,
    /// Only what this policy alone allows; repeat it for several
    #[arg(long, value_name = "ID")]
    policy: Vec<String>,
}

impl TokenCommand {
    pub(crate) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        match self {
            Self::Mint(command) => command.run(terminal),
            Self::Revoke(command) => command.run(terminal),
            Self::Attenuate(command) => command.run(terminal),
            Self::Inspect(source) => source.show(terminal),
        }
    }
}

impl Attenuate {
    fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
        let mut caveats = self.narrowing.caveats()?;
        if let Some(lasts) = self.lasts {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let now = now.context("the clock is before 1970")?;
            caveats.push(Caveat::Before((now + lasts).as_secs()));
        }
        let token = attenuate(&self.token.read()?, &caveats).map_err(malformed)?;
        let id = inspect(token.as_str()).map_err(malformed)?.id;
        let document = json!({ "token": token.as_str(), "id": id.to_string() });
        terminal.answer(&document, token.as_str());
        Ok(Code::Ok)
    }
}

impl Narrowing {
    fn caveats(&self) -> Result<Vec<Caveat>, Failure> {
        let mut all = Vec::new();
        for (kind, values) in [
            ("host in", &self.host),
            ("method in", &self.method),
            ("path under", &self.path),
            ("credential in", &self.credential),
            ("from", &self.from),
            ("policy in", &self.policy),
        ] {
            let text = match values.as_slice() {
                [] => continue,
                [none] if kind == "credential in" && none == "none" => "credential none".to_owned(),
                values => format!("{kind} {}", values.join(" ")),
            };
            all.push(caveat(&text)?);
        }
        // All that are named must stand beside it.
        for name in &self.beside {
            all.push(caveat(&format!("as {name}"))?);
        }
        Ok(all)
    }
}

fn caveat(text: &str) -> Result<Caveat, Failure> {
    text.parse().map_err(|malformed| {
        Failure::usage(format!("`{}` narrows nothing", safe(text))).because(format!("{malformed}"))
    })
}

impl TokenSource {
    fn read(&self) -> Result<Zeroizing<String>, Failure> {
        let bytes = match &self.file {
            None => ring::read_secret("token: ").context("no token was read")?,
            Some(file) if file.to_string_lossy().starts_with("gwt1_") => return Err(typed()),
            Some(file) => {
                let what = format!("{} cannot be read", safe(&file.to_string_lossy()));
                Zeroizing::new(std::fs::read(file).context(what)?)
            }
        };
        let text = std::str::from_utf8(&bytes).context("the token is not text")?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned().into())
    }

    fn show(self, terminal: &Terminal) -> Result<Code, Failure> {
        let inside = inspect(&self.read()?).map_err(malformed)?;
        let caveats: Vec<String> = inside.caveats.iter().map(ToString::to_string).collect();
        if terminal.json() {
            terminal.document(&json!({
                "session": inside.session.as_str(),
                "key": inside.key,
                "id": inside.id.to_string(),
                "caveats": caveats,
            }));
            return Ok(Code::Ok);
        }
        terminal.line(format!("session {}", inside.session));
        terminal.line(format!("key     {}", inside.key));
        terminal.line(format!("id      {}", inside.id));
        let lines = caveats.iter().map(|caveat| format!("caveat  {caveat}"));
        lines.for_each(|line| terminal.line(line));
        terminal.note("not verified: only its gateway knows whether the token is genuine");
        Ok(Code::Ok)
    }
}

fn typed() -> Failure {
    Failure::usage("a token is never an argument")
        .because("every process of this machine can read the arguments of another, and the shell keeps them")
        .next("give it on standard input, or name a file; and revoke the one that was typed")
}

fn malformed(malformed: TokenMalformed) -> Failure {
    Failure::of("this is not a token", &malformed).next("take it as its gateway printed it, whole")
}

fn lasting(text: &str) -> Result<Duration, String> {
    config::duration(text).map_err(|hint| format!("{}: {}", hint.why, hint.remedy))
}
