//! `gateway doctor --config FILE`: reports what the credentials and listeners of a configuration
//! lack, before the first request needs one.

use std::path::Path;

use serde::Serialize;
use serde_json::json;

use super::listeners;
use crate::app::process::serving;
use crate::app::reload::generation;
use crate::app::settings::resolve::ResolvedConfig;
use crate::app::settings::shell_secrets::ShellLoans;
use crate::app::{Code, Failure, Paint, Terminal, safe};
use crate::config::Config;
use crate::credential::CheckedCredential;
use crate::message::Place;
use crate::names::SessionId;
use crate::session::phantom::PhantomKey;
use crate::session::{Binding, Role};

/// The finding about a credential. It contains nothing of the secret.
#[derive(Serialize)]
struct CredentialFinding {
    credential: String,
    from: String,
    /// How it signs, or the places it is injected into.
    way: String,
    origins: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lacks: Option<String>,
}

/// Checks every credential and prints one line for each.
///
/// # Errors
/// Returns a [`Failure`] if the configuration is refused.
pub(crate) fn run(file: &Path, terminal: &Terminal) -> Result<Code, Failure> {
    serving::harden()?;
    let config = Config::load(file)?;
    terminal.warn(&config.warnings);
    terminal.warn(config.unusable());
    let resolved = ResolvedConfig::of(&config, &ShellLoans::default())?;
    let credentials = generation::credentials(&config, resolved.stored, &resolved.logins)?;
    let session = SessionId::new("doctor").expect("`doctor` is a name");
    let key = PhantomKey::random().map_err(Failure::no_randomness)?;
    let (checked, listeners) = serving::runtime()?.block_on(async {
        let checked = credentials.check(&session, &key).await;
        credentials.stores().close().await;
        (checked, listeners::check(&config).await)
    });
    let findings: Vec<CredentialFinding> = credentials
        .bindings()
        .all()
        .zip(&checked)
        .map(|(binding, checked)| finding(binding, checked))
        .collect();
    if terminal.json() {
        let findings = findings.iter().map(|finding| json!(finding));
        let listeners = listeners.iter().map(|finding| json!(finding));
        terminal.document(&findings.chain(listeners).collect::<Vec<_>>());
    } else {
        findings.iter().for_each(|finding| show(terminal, finding));
        for finding in &listeners {
            let line = format!("{:<20} session {}", finding.listener, finding.session);
            show_line(terminal, &line, finding.lacks.as_deref());
        }
    }
    let lacking = findings.iter().any(|finding| finding.lacks.is_some())
        || listeners.iter().any(|finding| finding.lacks.is_some());
    let failed = lacking || !config.unusable().is_empty();
    Ok(if failed { Code::Failed } else { Code::Ok })
}

fn finding(binding: &Binding, checked: &CheckedCredential) -> CredentialFinding {
    let way = match &binding.role {
        Role::Part(_) => String::from("signs"),
        Role::Place | Role::Signs(_) | Role::Kept => {
            let places: Vec<String> = binding.places.iter().map(Place::to_string).collect();
            places.join(" ")
        }
    };
    CredentialFinding {
        credential: checked.credential.to_string(),
        from: checked.reference.to_string(),
        way,
        origins: binding.origins.iter().map(ToString::to_string).collect(),
        lacks: checked.problem.as_ref().map(ToString::to_string),
    }
}

fn show(terminal: &Terminal, finding: &CredentialFinding) {
    let credential = safe(&finding.credential);
    let (from, way) = (safe(&finding.from), safe(&finding.way));
    let line = format!("{credential:<20} {from}  {way}");
    show_line(terminal, &line, finding.lacks.as_deref());
}

fn show_line(terminal: &Terminal, line: &str, lacks: Option<&str>) {
    let (paint, word) = match lacks {
        Some(_) => (Paint::Red, "fails "),
        None => (Paint::Green, "ok    "),
    };
    let word = terminal.paint(paint, word);
    terminal.line(format!("{word}  {}", line.trim_end()));
    if let Some(lacks) = lacks {
        terminal.line(format!("        why: {}", safe(lacks)));
    }
}
