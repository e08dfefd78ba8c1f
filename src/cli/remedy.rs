//! What would allow a refused request, as the gateway that refused it says; without it, as the
//! configuration says.

use std::path::Path;

use serde_json::json;

use super::gateways::{ChosenGateway, Gateway};
use super::logs::Chain;
use super::proposal::{self, Unallowable};
use super::terminal::{Terminal, safe};
use crate::audit::{Expected, Found, verify};
use crate::config::Config;

/// What would allow a request.
pub(super) enum Remedy {
    /// This policy would.
    Policy(String),
    /// This policy would have, in a gateway that no longer runs.
    Past(String),
    /// No policy would, or none is proposed, for this reason.
    None(String),
    /// No policy refused it.
    Unneeded,
}

impl Remedy {
    /// Finds what would allow a request. Its gateway is asked if it still runs and no configuration
    /// is named: it knows its settings.
    pub(super) fn of(found: &Found, chain: &Chain, config: Option<&Config>) -> Self {
        let local = Self::local(found, config);
        let remedy = match (&local, config) {
            (Self::Unneeded, _) | (_, Some(_)) => local,
            (_, None) => Self::of_gateway(found).unwrap_or_else(|| local.past()),
        };
        let holds = || verify(chain, Expected::default()).is_ok_and(|report| report.holds());
        match remedy {
            Self::Policy(_) | Self::Past(_) if !holds() => {
                Self::None("nothing is proposed: the audit log does not verify".to_owned())
            }
            remedy => remedy,
        }
    }

    fn local(found: &Found, config: Option<&Config>) -> Self {
        match proposal::of(&found.exchange, config) {
            Ok(Some(text)) => Self::Policy(text),
            Ok(None) => Self::Unneeded,
            Err(Unallowable::Floor(why)) => {
                Self::None(format!("no policy would allow it: {}", why.meaning()))
            }
            Err(Unallowable::Setting(why)) => Self::None(format!(
                "no policy alone would allow it, unless an `[[origin]]` of the gateway does: {} \
                 Name its configuration: `--config FILE`.",
                why.meaning()
            )),
        }
    }

    /// Asks the gateway that writes the log, if it runs.
    fn of_gateway(found: &Found) -> Option<Self> {
        let log = found.file.canonicalize().ok()?;
        let all = ChosenGateway::default().find().ok()?;
        let gateway = all.iter().find(|gateway| writes(gateway, &log))?;
        let asked = json!({ "exchange": found.exchange.id.as_deref()? });
        Some(match gateway.post("/v1/policies/allow", Some(&asked)) {
            Ok(rule) => Self::Policy(rule["policy"].as_str()?.to_owned()),
            Err(refused) => Self::None(refused.to_string()),
        })
    }

    fn past(self) -> Self {
        match self {
            Self::Policy(text) => Self::Past(text),
            other => other,
        }
    }

    /// What to do about it now, if the gateway that refused it no longer runs.
    pub(super) fn of_the_past(&self, to: &str, is_loan: bool) -> Option<String> {
        matches!(self, Self::Past(_)).then(|| {
            let flag = format!("start the next with `--allow {to}`, or ");
            let flag = if is_loan { "" } else { &flag };
            let rule = "put the policy below into a file that `--policy` names";
            format!("That gateway no longer runs: {flag}{rule}.")
        })
    }

    /// The policy that would allow the request.
    pub(super) fn proposal(&self) -> Option<&str> {
        match self {
            Self::Policy(text) | Self::Past(text) => Some(text),
            _ => None,
        }
    }

    /// Why none is proposed, if one was looked for.
    pub(super) fn why_not(&self) -> Option<&str> {
        match self {
            Self::None(why) => Some(why),
            _ => None,
        }
    }

    pub(super) fn print(&self, terminal: &Terminal) {
        match self {
            Self::Policy(text) | Self::Past(text) => {
                terminal.line("");
                text.lines().for_each(|line| terminal.line(safe(line)));
            }
            Self::None(why) => terminal.line(format!("  {}", safe(why))),
            Self::Unneeded => {}
        }
    }
}

/// Whether a gateway writes this log, or wrote it before it was rotated.
fn writes(gateway: &Gateway, log: &Path) -> bool {
    let state = gateway.get("/v1/status").ok();
    let named = state.as_ref().and_then(|state| state["audit"].as_str());
    let named = named.and_then(|path| Path::new(path).canonicalize().ok());
    named.is_some_and(|named| {
        let rotated = format!("{}.", named.display());
        named == log || log.display().to_string().starts_with(&rotated)
    })
}
