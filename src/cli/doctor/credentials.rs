//! `gateway doctor --config FILE`: what the credentials of a configuration lack, told before the
//! first request needs one.

use std::path::Path;

use serde::Serialize;

use crate::cli::assembly;
use crate::cli::expand::Expanded;
use crate::cli::failure::{Code, Failure};
use crate::cli::screen::{Paint, Screen, safe};
use crate::cli::serving;
use crate::config::Config;
use crate::credential::CheckedCredential;
use crate::message::Place;
use crate::names::SessionId;
use crate::session::phantom::PhantomKey;
use crate::session::{Binding, Role};

/// What is told of a credential. Nothing of its secret is in it.
#[derive(Serialize)]
struct Finding {
    credential: String,
    from: String,
    /// How it signs, or where it stands.
    way: String,
    origins: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lacks: Option<String>,
}

/// Examines every credential, a line each.
///
/// # Errors
/// A [`Failure`] where the configuration is refused.
pub(super) fn run(file: &Path, screen: &Screen) -> Result<Code, Failure> {
    serving::harden()?;
    let config = Config::load(file)?;
    screen.warn(&config.warnings);
    let expanded = Expanded::of(&config, false)?;
    let credentials = assembly::credentials(&config, expanded.stored)?;
    let session = SessionId::new("doctor").expect("`doctor` is a name");
    let key = PhantomKey::random().map_err(|error| {
        Failure::new("the system gives no random bytes").because(error.to_string())
    })?;
    let checked = serving::runtime()?.block_on(async {
        let checked = credentials.check(&session, &key).await;
        credentials.stores().close().await;
        checked
    });
    let findings: Vec<Finding> = credentials
        .bindings()
        .all()
        .zip(&checked)
        .map(|(binding, checked)| finding(binding, checked))
        .collect();
    if screen.json() {
        screen.document(&findings);
    } else {
        findings.iter().for_each(|finding| show(screen, finding));
    }
    let failed = findings.iter().any(|finding| finding.lacks.is_some());
    Ok(if failed { Code::Failed } else { Code::Ok })
}

fn finding(binding: &Binding, checked: &CheckedCredential) -> Finding {
    let way = match &binding.role {
        Role::Part(_) => String::from("signs"),
        Role::Place | Role::Signs(_) => {
            let places: Vec<String> = binding.places.iter().map(Place::to_string).collect();
            places.join(" ")
        }
    };
    Finding {
        credential: checked.credential.to_string(),
        from: checked.reference.to_string(),
        way,
        origins: binding.origins.iter().map(ToString::to_string).collect(),
        lacks: checked.problem.as_ref().map(ToString::to_string),
    }
}

fn show(screen: &Screen, finding: &Finding) {
    let (paint, word) = match finding.lacks {
        Some(_) => (Paint::Red, "fails "),
        None => (Paint::Green, "ok    "),
    };
    let line = format!(
        "{}  {:<20} {}  {}",
        screen.paint(paint, word),
        safe(&finding.credential),
        safe(&finding.from),
        safe(&finding.way)
    );
    screen.line(line.trim_end());
    if let Some(lacks) = &finding.lacks {
        screen.line(format!("        why: {}", safe(lacks)));
    }
}
