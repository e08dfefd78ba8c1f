//! `gateway token attenuate` and `inspect`, which need no gateway.

use std::time::{Duration, SystemTime};

use clap::{ArgGroup, Args};
use serde_json::json;

use super::narrowing::{Narrowing, lasting};
use super::reading::{TokenSource, malformed};
use crate::app::{Code, Context as _, Failure, Terminal};
use crate::token::{Caveat, attenuate, inspect};

/// Narrows a token.
#[derive(Args)]
#[command(group = ArgGroup::new("narrower").multiple(true).required(true)
    .args(["host", "method", "path", "credential", "lasts", "from", "beside", "policy",
        "budget", "once", "request"]))]
pub(crate) struct Attenuate {
    #[command(flatten)]
    token: TokenSource,
    /// Only for this time: `30m`, `8h`, `7d`
    #[arg(long = "for", value_name = "TIME", value_parser = lasting)]
    lasts: Option<Duration>,
    #[command(flatten)]
    narrowing: Narrowing,
}

impl Attenuate {
    pub(super) fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
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

/// Shows the content of a token.
pub(super) fn show(source: &TokenSource, terminal: &Terminal) -> Result<Code, Failure> {
    let inside = inspect(&source.read()?).map_err(malformed)?;
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
