//! The user's own file, `~/.config/gateway/config.toml`: how servers are reached, and the settings
//! of every sandbox. Projects and flags set what a command may reach, and its credentials.

use gateway_origin::OriginRule;
use toml::Spanned;
use toml::de::DeString;

use super::document::Document;
use super::origin::Origin;
use super::sandbox::SandboxDns;
use super::{Config, ConfigError, keys, state};

impl Config {
    /// Reads and checks the user's own file, if there is one.
    ///
    /// # Errors
    /// Returns a [`ConfigError`] as [`Config::load`] does, also with every section that such a file
    /// may not hold.
    pub fn of_user() -> Result<Option<Self>, ConfigError> {
        let there = state::user_file().filter(|path| path.symlink_metadata().is_ok());
        let Some(path) = there else { return Ok(None) };
        let mut config = Self::checked(&Self::text_of(&path)?, &path, |document, (section, _)| {
            refuse_other(document, section);
        })?;
        (config.user, config.file) = (config.file, None);
        Ok(Some(config))
    }

    /// Merges a project's configuration over the user's own file.
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
        sandbox.no_sign |= own.no_sign;
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
            permissions: self.permissions,
            own_presets: self.own_presets,
            named_logins: self.named_logins,
            credentials: self.credentials,
            facts: self.facts,
            ..user
        }
    }
}

/// Refuses a section that the user's own file may not hold.
fn refuse_other(document: &Document<'_>, section: &Spanned<DeString<'_>>) {
    let word = section.get_ref().as_ref();
    let is_section = keys::SECTIONS.iter().any(|known| known.name == word);
    if is_section && !SECTIONS.contains(&word) {
        let heading = keys::heading(word);
        mistake!(document, &section.span(), "{heading} may not stand in your own file";
            "it holds for every command that you run; what one may reach and is lent is said for \
             its project, and what a server does, in the server's file";
            "write it into the project's file, give the flag, or name a file: `--config FILE`");
    }
}

/// The sections that the user's own file may hold.
const SECTIONS: [&str; 7] =
    gateway_names::word_list("origin resolver store vault limits export sandbox");
