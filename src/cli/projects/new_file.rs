//! A new project file: its text, and the question to a person before it is written.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use crate::app::{Context as _, Failure, Paint, Terminal, safe};
use crate::cli::config_summary::ConsentEffects;
use crate::cli::confirm::confirmed;
use crate::cli::{projects, remedy};
use crate::config::{Config, Credential};
use crate::credential::preset;
use crate::grant::ObservedAccess;
use crate::names::join;

/// Returns the text of a file that would have permitted a run's requests.
///
/// # Errors
/// Returns a [`Failure`] if such a file would be refused.
pub(crate) fn learned(config: &Config, observed: &ObservedAccess) -> Result<String, Failure> {
    let mut text =
        String::from("# What a run needed, as `gateway exec --learn` saw it.\n\n[policy]\n");
    if !config.presets.is_empty() {
        // A project's file names no other.
        let ours = config.presets.iter();
        let ours = ours.filter(|name| preset::named(name).is_some()).cloned();
        let permissions = config.permissions.iter();
        let permissions = permissions.map(|(preset, one)| (&preset.name, &one.name));
        let permissions = permissions.filter(|(preset, _)| preset::named(preset).is_some());
        let permissions = permissions.map(|(preset, name)| format!("{preset}:{name}"));
        let presets = ours.chain(permissions);
        let presets = join(presets.map(|name| quoted(&name)), ", ");
        text.push_str(&format!("presets = [{presets}]\n"));
    }
    if !config.named_logins.is_empty() {
        let logins = join(config.named_logins.iter().map(|name| quoted(name)), ", ");
        text.push_str(&format!("logins = [{logins}]\n"));
    }
    let rules = observed.rules(&remedy::origins(Some(config)));
    text.push_str(&format!("rules = '''\n{rules}'''\n"));
    for credential in config.credentials.iter().filter(|one| one.by_flag) {
        text.push_str(&credential_of_flag(credential));
    }
    Ok(text)
}

/// Writes a credential of a flag, unless a project's file may not name its reference.
fn credential_of_flag(credential: &Credential) -> String {
    let name = quoted(credential.name.as_str());
    let from = credential.from.to_string();
    let is_known = from.starts_with("env:") || from.starts_with("keyring:");
    if credential.signing.is_some() || !is_known {
        return format!("\n# The credential {name} is named by a flag: give it at each start.\n");
    }
    let preset = credential.preset.as_deref();
    let preset = preset.map(|preset| format!("preset = {}\n", quoted(preset)));
    let origins = credential.origins.iter().map(ToString::to_string);
    let origins = join(origins.map(|origin| quoted(&origin)), ", ");
    let origins = if origins.is_empty() {
        String::new()
    } else {
        format!("origins = [{origins}]\n")
    };
    let from = quoted(&from);
    let preset = preset.unwrap_or_default();
    format!("\n[[credential]]\nname = {name}\nfrom = {from}\n{preset}{origins}")
}

/// Quotes a name or an origin, which contains nothing that TOML escapes.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Shows a file before it is written, and writes it after a yes. Returns whether it was written.
///
/// A person who answers has seen the text, so it is allowed too. With `yes` no person has: it is
/// only written, and not in force until it is allowed.
///
/// # Errors
/// Returns a [`Failure`] if the file exists, if it would be refused, or if the question cannot be
/// asked.
pub(crate) fn offer(
    path: &Path,
    text: &str,
    yes: bool,
    terminal: &Terminal,
) -> Result<bool, Failure> {
    let config = Config::of_project(text, path)?;
    let consented = ConsentEffects::of(&config)?;
    let shown = safe(&path.display().to_string());
    terminal.note(terminal.paint_note(Paint::Bold, &format!("gateway: proposed as {shown}:")));
    for line in text.lines() {
        terminal.note(format!("  {}", safe(line)));
    }
    consented.note(terminal);
    refuse_existing(path)?;
    if !yes {
        if !std::io::stdin().is_terminal() {
            terminal.note("gateway: nothing was written; `--yes` writes it without a question");
            return Ok(false);
        }
        if !confirmed("Write it, and let `gateway exec` take it up?")? {
            terminal.note("gateway: nothing was written");
            return Ok(false);
        }
    }
    create(path, text)?;
    if yes {
        let next = "read it, then let it be taken up: `gateway project allow`";
        terminal.note(format!("gateway: wrote {shown}; {next}"));
    } else {
        projects::allow(path, text)?;
        terminal.note(format!(
            "gateway: wrote {shown}, in force from the next start on"
        ));
    }
    Ok(true)
}

/// Refuses to overwrite a file.
///
/// # Errors
/// Returns a [`Failure`] if the name is taken.
pub(crate) fn refuse_existing(path: &Path) -> Result<(), Failure> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Failure::usage(format!("`{}` exists", path.display()))
        .because("a file of yours is never overwritten")
        .next("add what you want of the proposal to it, or move it away"))
}

fn create(path: &Path, text: &str) -> Result<(), Failure> {
    // A file or a link that was made meanwhile is refused.
    let created = std::fs::File::create_new(path);
    let written = created.and_then(|mut file| file.write_all(text.as_bytes()));
    written.context(format!("`{}` cannot be written", path.display()))
}
