//! `gateway token mint` and `revoke`, which call a running gateway.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::narrowing::{Narrowing, lasting};
use super::reading::{TokenSource, malformed};
use crate::app::revocations::unusable;
use crate::app::{Code, Failure, Terminal, counted, safe};
use crate::cli::operate::gateways::{ChosenGateway, ShownCertificate, in_path};
use crate::cli::operate::revoke::tell;
use crate::config::state;
use crate::state::RevokedFile;
use crate::token::{PrefixId, inspect};

/// Mints a token.
#[derive(Args)]
pub(crate) struct MintToken {
    /// The session that it is for, which a listener of the gateway has
    #[arg(long)]
    session: String,
    /// For how long: `30m`, `8h`, `7d`
    #[arg(long = "for", value_name = "TIME", value_parser = lasting)]
    lasts: Duration,
    #[command(flatten)]
    narrowing: Narrowing,
    #[command(flatten)]
    chosen: ChosenGateway,
}

impl MintToken {
    pub(super) fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
        let caveats = self.narrowing.caveats()?;
        let caveats: Vec<String> = caveats.iter().map(ToString::to_string).collect();
        let asked = json!({ "seconds": self.lasts.as_secs(), "caveats": caveats });
        let path = format!("/v1/sessions/{}/tokens", in_path(&self.session));
        let answer = self.chosen.one()?.post(&path, Some(&asked))?;
        let token = answer["token"].as_str();
        let token = token.ok_or_else(|| Failure::new("the gateway's answer has no token"))?;
        terminal.answer(&answer, token);
        if terminal.json() {
            return Ok(Code::Ok);
        }
        let id = answer["id"].as_str().unwrap_or_default();
        terminal.note(format!(
            "shown this once; `gateway token revoke {}` revokes it and what is derived from it",
            safe(id)
        ));
        Ok(Code::Ok)
    }
}

/// Revokes a token.
#[derive(Args)]
pub(crate) struct RevokeToken {
    /// The id of the token, as `mint` and `inspect` show it [default: that of the token on standard
    /// input]
    #[arg(value_name = "ID", value_parser = id)]
    id: Option<PrefixId>,
    /// Ask this gateway alone, such as another user's: its process number, its name, the path of
    /// its control socket, or the URL of its control port
    #[arg(long, value_name = "PID|NAME|SOCKET|URL", env = "GATEWAY_CONTROL")]
    gateway: Option<String>,
    #[command(flatten)]
    shown: ShownCertificate,
}

impl RevokeToken {
    /// Revokes the token. As with a credential, the row is written before gateways are looked for.
    pub(super) fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
        let id = match self.id {
            Some(id) => id,
            None => {
                let token = TokenSource { file: None }.read()?;
                inspect(&token).map_err(malformed)?.id
            }
        };
        let chosen = ChosenGateway::named(self.gateway, self.shown);
        let gateways = if chosen.is_named() {
            // The gateway writes its own row.
            vec![chosen.one()?]
        } else {
            keep(&id)?;
            chosen.find()?
        };
        let answers = tell(&gateways, &format!("/v1/tokens/{id}/revoke"), None);
        if answers.is_silent() {
            return Err(
                Failure::new(format!("no gateway confirmed that token {id} is revoked"))
                    .because("none of yours runs; those that you start later refuse it")
                    .next("if another user's has it, name that: `--gateway SOCKET`"),
            );
        }
        let confirmed = counted(answers.confirmed.len() as u64, "gateway", "gateways");
        let line = format!(
            "token {id} is revoked, with all that was derived from it: {confirmed} confirmed"
        );
        let lines = std::iter::once(line).chain(answers.proven());
        let line = lines.collect::<Vec<_>>().join("\n");
        let document = json!({ "token": id.to_string(), "confirmed": answers.confirmed });
        terminal.answer(&document, &line);
        answers.settle()
    }
}

/// Stores the row for gateways of this user that start later.
fn keep(id: &PrefixId) -> Result<(), Failure> {
    let none = || Failure::no_state_folder("nothing is revoked: there is no place to keep it");
    let file = RevokedFile::at(state::revoked_file().ok_or_else(none)?);
    let kept = file.revoke_token(id);
    kept.map_err(|unfit| unusable(&file, &unfit))
}

fn id(text: &str) -> Result<PrefixId, String> {
    let what = if text.starts_with("gwt1_") {
        "a token is never an argument: give it on standard input, and revoke it"
    } else {
        "an id has 32 hexadecimal digits, as `gateway token inspect` shows it"
    };
    PrefixId::named(text).ok_or_else(|| what.to_owned())
}
