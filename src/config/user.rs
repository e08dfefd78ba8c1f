//! The user's own file, `~/.config/gateway/config.toml`: how servers are reached, and what holds
//! for every sandbox. What a command may reach and what it is lent is said by projects and flags.

use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::origin::OriginRule;

use super::diagnostic::{Hint, Severity};
use super::document::Document;
use super::origin::Origin;
use super::sandbox::SandboxDns;
use super::{Config, ConfigError, keys, state};

impl Config {
    /// Reads and checks the user's own file, if there is one.
    ///
    /// # Errors
    /// Returns a [`ConfigError`] as [`Config::load`] does, or with all that such a file may not
    /// hold.
    pub fn of_user() -> Result<Option<Self>, ConfigError> {
        let there = state::user_file().filter(|path| path.symlink_metadata().is_ok());
        let Some(path) = there else { return Ok(None) };
        let text = Self::text_of(&path)?;
        let mut config = Self::from_str(&text, &path)?;
        refuse_others(&text, &path)?;
        (config.user, config.file) = (config.file, None);
        Ok(Some(config))
    }

    /// Puts a project's configuration above that of the user's own file.
    #[must_use]
    pub fn above(mut self, mut user: Self) -> Self {
        for own in &mut self.origins {
            let rule = &own.rule;
            if let Some(under) = Origin::that_covers(&user.origins, &rule.matches) {
                own.rule = OriginRule {
                    matches: rule.matches.clone(),
                    protocol: rule.protocol,
                    encoded_slash: rule.encoded_slash,
                    underscores: rule.underscores,
                    ..under.rule.clone()
                };
                own.files.clone_from(&under.files);
            }
        }
        let is_said = |known: &Origin| {
            let mut own = self.origins.iter();
            own.any(|one| one.rule.matches == known.rule.matches)
        };
        user.origins.retain(|known| !is_said(known));
        user.origins.append(&mut self.origins);
        user.warnings.append(&mut self.warnings);
        user.unusable.append(&mut self.unusable);
        let (sandbox, own) = (&mut user.sandbox, self.sandbox);
        sandbox.hide.extend(own.hide);
        sandbox.guard_tools |= own.guard_tools;
        sandbox.memory_files = own.memory_files.or(sandbox.memory_files);
        sandbox.processes = own.processes.or(sandbox.processes);
        if own.dns == SandboxDns::Strict {
            sandbox.dns = own.dns;
        }
        Self {
            project: self.project,
            policy: self.policy,
            allow: self.allow,
            presets: self.presets,
            named_logins: self.named_logins,
            credentials: self.credentials,
            facts: self.facts,
            ..user
        }
    }
}

/// Refuses the sections that the user's own file may not hold.
fn refuse_others(text: &str, path: &Path) -> Result<(), ConfigError> {
    let name = path.display().to_string();
    let document = Document::new(name.into(), text, PathBuf::new(), None);
    let (parsed, _) = DeTable::parse_recoverable(text);
    for section in parsed.get_ref().keys() {
        let word = section.get_ref().as_ref();
        if !SECTIONS.contains(&word) {
            let what = format!("{} may not stand in your own file", keys::heading(word));
            let why = "it holds for every command that you run; what one may reach and is lent is \
                       said for its project, and what a server does, in the server's file";
            let remedy = "write it into the project's file, give the flag, or name a file: \
                          `--config FILE`";
            document.error(&section.span(), what, Hint::new(why, remedy));
        }
    }
    let mistakes = document.into_found();
    match mistakes.iter().any(|one| one.severity == Severity::Error) {
        true => Err(ConfigError { mistakes }),
        false => Ok(()),
    }
}

/// What the user's own file may hold.
const SECTIONS: [&str; 6] = ["origin", "resolver", "vault", "limits", "export", "sandbox"];
