//! The policy that would allow a refused request, by the gateway that refused it, else by the
//! configuration.

use std::path::Path;

use serde_json::json;

use crate::app::reload::generation;
use crate::app::settings::resolve::ResolvedConfig;
use crate::app::settings::shell_secrets::ShellLoans;
use crate::audit::{ExchangeEntry, Record};
use crate::cli::log::logs;
use crate::cli::log::logs::Chain;
use crate::cli::operate::gateways::{ChosenGateway, Gateway};
use crate::config::Config;
use crate::grant::request::{self, NoRule, rule_for};
use crate::message::{EncodedSlash, Origin};
use crate::names::ReasonCode;
use crate::origin::OriginSettings;

/// The remedy for a refused request; empty if no policy refused it.
#[derive(Default)]
pub(super) struct Remedy {
    /// The policy that would allow it.
    pub(super) policy: Option<String>,
    /// Whether the gateway that refused it no longer runs.
    is_past: bool,
    /// Why no policy is proposed, if one was looked for.
    pub(super) why_not: Option<String>,
}

impl Remedy {
    /// Finds the remedy for a request. Its gateway is asked if it still runs and no configuration
    /// is named: it knows its settings, and has verified its log.
    pub(super) fn of(found: &ExchangeEntry, chain: &Chain, config: Option<&Config>) -> Self {
        let (policy, why_not) = match local(&found.exchange, config) {
            Ok(None) => return Self::default(),
            Ok(policy) => (policy, None),
            Err(why) => (None, Some(why)),
        };
        if config.is_none()
            && let Some(asked) = Self::of_gateway(found)
        {
            return asked;
        }
        let refused = policy.as_ref().and_then(|_| unproved(found, chain));
        Self {
            policy: policy.filter(|_| refused.is_none()),
            is_past: config.is_none() && why_not.is_none() && refused.is_none(),
            why_not: why_not.or(refused),
        }
    }

    /// Asks the gateway that writes the log, if it runs.
    fn of_gateway(found: &ExchangeEntry) -> Option<Self> {
        let log = found.file.canonicalize().ok()?;
        let all = ChosenGateway::default().find().ok()?;
        let gateway = all.iter().find(|gateway| writes(gateway, &log))?;
        let asked = json!({ "exchange": found.exchange.id.as_deref()? });
        let (policy, why_not) = match gateway.post("/v1/policies/allow", Some(&asked)) {
            Ok(rule) => (Some(rule["policy"].as_str()?.to_owned()), None),
            Err(refused) => (None, Some(refused.to_string())),
        };
        Some(Self {
            policy,
            why_not,
            is_past: false,
        })
    }

    /// Returns the next step, if it is known better than by the code of the refusal.
    pub(super) fn step(&self, to: &str, is_loan: bool) -> Option<String> {
        let rule = "put the policy below into a file that `--policy` names";
        match &self.why_not {
            Some(why) => Some(format!(
                "No rule is proposed: {}.",
                why.trim_end_matches('.')
            )),
            None if !self.is_past => None,
            None if is_loan => Some(format!("That gateway no longer runs: {rule}.")),
            None => Some(format!(
                "That gateway no longer runs: `gateway allow {to}` in its folder keeps a rule for \
                 the next run there, or {rule}."
            )),
        }
    }
}

/// Returns the policy that would allow a request, by the configuration alone; `None` if no policy
/// refused it.
fn local(record: &Record, config: Option<&Config>) -> Result<Option<String>, String> {
    rule_for(record, &origins(config)).map_err(|why| match why {
        NoRule::Content => "a policy reads the content of the request; change that policy, as a \
                            rule without it would permit every content"
            .to_owned(),
        NoRule::Floor(why)
            if config.is_some() || matches!(why, ReasonCode::Metadata | ReasonCode::OwnAddress) =>
        {
            format!("no policy would allow it: {}", why.meaning())
        }
        NoRule::Floor(why) => format!(
            "no policy alone would allow it, unless an `[[origin]]` of the gateway does: {} \
             Name its configuration: `--config FILE`.",
            why.meaning()
        ),
    })
}

/// Returns why no policy is proposed: the log fails verification, lacks this exact record, or shows
/// that a person refused the request.
fn unproved(found: &ExchangeEntry, chain: &Chain) -> Option<String> {
    let id = found.exchange.id.as_deref().unwrap_or_default();
    let (record, denied) = match logs::told(chain, id) {
        Ok(told) => told,
        Err(why) => return Some(why.to_string()),
    };
    if record.is_none_or(|record| *record != found.exchange) {
        return Some("the audit log was changed meanwhile".to_owned());
    }
    let asked = request::of_record(&found.exchange)?;
    let denied = denied.of(&request::access(&asked))?.to_owned();
    Some(format!(
        "a person refused `{denied}` to that session; for a new one, a person decides anew"
    ))
}

/// Returns the settings for origins of a configuration and its presets, if they are valid.
pub(super) fn origins(config: Option<&Config>) -> OriginSettings {
    let of = |config| {
        let resolved = ResolvedConfig::of(config, &ShellLoans::default()).ok()?;
        generation::origins(config, &resolved.encoded_slash, Vec::new()).ok()
    };
    config.and_then(of).unwrap_or_default()
}

/// Returns how an origin reads encoded slashes, as a run would without a client's signature.
pub(super) fn slashes(origins: &OriginSettings, origin: &Origin) -> EncodedSlash {
    match origins.rule(origin) {
        Some(rule) if rule.encoded_slash => EncodedSlash::Keep,
        _ => EncodedSlash::Refuse,
    }
}

/// Whether a gateway writes this log, or wrote it before its rotation.
fn writes(gateway: &Gateway, log: &Path) -> bool {
    let state = gateway.get("/v1/status").ok();
    let named = state.as_ref().and_then(|state| state["audit"].as_str());
    let named = named.and_then(|path| Path::new(path).canonicalize().ok());
    named.is_some_and(|named| {
        let rotated = format!("{}.", named.display());
        named == log || log.display().to_string().starts_with(&rotated)
    })
}
