//! The options that narrow a token.

use std::time::Duration;

use clap::Args;

use crate::app::{Failure, safe};
use crate::config;
use crate::token::Caveat;

/// What narrows a token.
#[derive(Args)]
pub(crate) struct Narrowing {
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
    /// With all that is derived from it, only so much: `requests 1000`, `usd 5.00 per day`; repeat
    /// it for several
    #[arg(long, value_name = "BUDGET")]
    budget: Vec<String>,
    /// With all that is derived from it, only one request
    #[arg(long)]
    once: bool,
    /// Only the request whose method, space, URL, newline and content have this hash: `sha256:…`
    #[arg(long, value_name = "HASH")]
    request: Option<String>,
}

impl Narrowing {
    pub(crate) fn caveats(&self) -> Result<Vec<Caveat>, Failure> {
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
        // Each named evidence must accompany the token, and each budget must have room.
        let beside = self.beside.iter().map(|name| format!("as {name}"));
        let budgets = self.budget.iter().map(|budget| format!("budget {budget}"));
        let once = self.once.then(|| "once".to_owned());
        let request = self.request.iter().map(|hash| format!("request {hash}"));
        for text in beside.chain(budgets).chain(once).chain(request) {
            all.push(caveat(&text)?);
        }
        Ok(all)
    }
}

fn caveat(text: &str) -> Result<Caveat, Failure> {
    text.parse().map_err(|malformed| {
        Failure::usage(format!("`{}` narrows nothing", safe(text))).because(format!("{malformed}"))
    })
}

pub(crate) fn lasting(text: &str) -> Result<Duration, String> {
    config::duration(text).map_err(|hint| format!("{}: {}", hint.why, hint.remedy))
}
