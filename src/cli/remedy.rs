//! What would allow a refused request, as the gateway that refused it says; without it, as the
//! configuration says.

use std::path::Path;

use serde_json::json;

use super::gateways::{ChosenGateway, Gateway};
use super::generation;
use super::logs::{self, Chain};
use super::terminal::{Terminal, safe};
use crate::audit::{Found, Record};
use crate::config::Config;
use crate::grant::{NoRule, request, rule_for};
use crate::names::ReasonCode;
use crate::origin::OriginSettings;

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
    /// is named: it knows its settings, and has verified its log.
    pub(super) fn of(found: &Found, chain: &Chain, config: Option<&Config>) -> Self {
        let remedy = match config {
            Some(_) => Self::local(&found.exchange, config),
            None => match Self::local(&found.exchange, None) {
                Self::Unneeded => Self::Unneeded,
                local => match Self::of_gateway(found) {
                    Some(remedy) => return remedy,
                    None => local.past(),
                },
            },
        };
        match remedy {
            Self::Policy(_) | Self::Past(_) => remedy.verified(found, chain),
            remedy => remedy,
        }
    }

    fn local(record: &Record, config: Option<&Config>) -> Self {
        let is_known = |why| {
            let is_fixed = matches!(why, ReasonCode::Metadata | ReasonCode::OwnAddress);
            config.is_some() || is_fixed
        };
        match rule_for(record, &origins(config)) {
            Ok(Some(text)) => Self::Policy(text),
            Ok(None) => Self::Unneeded,
            Err(NoRule::Floor(why)) if is_known(why) => {
                Self::None(format!("no policy would allow it: {}", why.meaning()))
            }
            Err(NoRule::Content) => Self::None(
                "a policy reads the content of the request; change that policy, as a rule without \
                 it would permit every content"
                    .to_owned(),
            ),
            Err(NoRule::Floor(why)) => Self::None(format!(
                "no policy alone would allow it, unless an `[[origin]]` of the gateway does: {} \
                 Name its configuration: `--config FILE`.",
                why.meaning()
            )),
        }
    }

    /// Returns it only if the log holds, has this very record, and tells of no refusal by a person.
    fn verified(self, found: &Found, chain: &Chain) -> Self {
        let told = logs::told(chain, found.exchange.id.as_deref().unwrap_or_default());
        let (record, denied) = match told {
            Ok(told) => told,
            Err(why) => return Self::None(why.to_string()),
        };
        if record.is_none_or(|record| *record != found.exchange) {
            return Self::None("the audit log was changed meanwhile".to_owned());
        }
        let asked = request::of_record(&found.exchange);
        let asked = asked.map(|request| request::access(&request));
        match asked.as_ref().and_then(|asked| denied.of(asked)) {
            Some(denied) => Self::None(format!(
                "a person refused `{denied}` to that session; for a new one, a person decides anew"
            )),
            None => self,
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
            // The next step says why.
            Self::None(_) | Self::Unneeded => {}
        }
    }
}

/// Returns the settings for origins of a configuration, if they can be had.
pub(super) fn origins(config: Option<&Config>) -> OriginSettings {
    let of = |config| generation::origins(config, &[], Vec::new()).ok();
    config.and_then(of).unwrap_or_default()
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
