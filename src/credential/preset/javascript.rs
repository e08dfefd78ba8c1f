//! The registries of npm, in the settings that similar clients read, too.

use std::collections::BTreeMap;
use std::path::Path;

use super::mapping::{RegistryReader, lines, unquoted};
use super::user_config::RegistryDoubt;

/// The registry for all packages, and those for scopes.
#[derive(Default)]
struct Scoped {
    default: Option<String>,
    scopes: BTreeMap<String, String>,
}

/// Reads `.npmrc` and the variables that replace it.
pub(super) fn read(reader: &mut RegistryReader<'_>) -> Result<(), RegistryDoubt> {
    let user = reader.user;
    let system = ["etc/npmrc", "usr/etc/npmrc", "usr/local/etc/npmrc"];
    let mut found = Scoped::default();
    // Later files override earlier ones.
    for path in system.map(|path| user.system.join(path)) {
        found.take_npmrc(reader, &path)?;
    }
    let global = ["npm_config_globalconfig", "NPM_CONFIG_GLOBALCONFIG"];
    found.take_npmrc(reader, &user.place(&global, ""))?;
    let own = ["npm_config_userconfig", "NPM_CONFIG_USERCONFIG"];
    found.take_npmrc(reader, &user.place(&own, ".npmrc"))?;
    found.take_variables(reader)?;
    let mut npmrc = String::new();
    if let Some(address) = found.default {
        npmrc.push_str(&format!("registry={address}\n"));
        reader.tell("npm_config_registry", address);
    }
    for (scope, address) in found.scopes {
        npmrc.push_str(&format!("{scope}:registry={address}\n"));
    }
    if !npmrc.is_empty() {
        // A variable for a scope would be lost in a shell: dash does not support its name.
        reader.tell_by(&user.home.join(".npmrc"), npmrc);
    }
    Ok(())
}

/// Reads only the `.npmrc` of the home.
pub(super) fn read_npmrc(reader: &mut RegistryReader<'_>) -> Result<(), RegistryDoubt> {
    let path = reader.user.home.join(".npmrc");
    Scoped::default().take_npmrc(reader, &path)
}

impl Scoped {
    fn take_npmrc(
        &mut self,
        reader: &mut RegistryReader<'_>,
        path: &Path,
    ) -> Result<(), RegistryDoubt> {
        let text = reader.text(path)?.unwrap_or_default();
        for (place, line) in lines(&text, path, &[';', '#']) {
            if let Some((key, value)) = line.split_once('=') {
                let value = value.split([';', '#']).next().unwrap_or_default();
                self.take(reader, unquoted(key), value, &place)?;
            }
        }
        Ok(())
    }

    fn take_variables(&mut self, reader: &mut RegistryReader<'_>) -> Result<(), RegistryDoubt> {
        for (name, value) in &reader.user.variables {
            let lower = name.to_ascii_lowercase();
            let key = lower.strip_prefix("npm_config_").unwrap_or_default();
            if !value.is_empty() {
                self.take(reader, key, value, &format!("the variable {name}"))?;
            }
        }
        Ok(())
    }

    /// Handles `registry` and `@scope:registry`.
    fn take(
        &mut self,
        reader: &mut RegistryReader<'_>,
        key: &str,
        value: &str,
        place: &str,
    ) -> Result<(), RegistryDoubt> {
        if key == "registry" {
            self.default = Some(reader.default(value, place)?);
        } else if key.starts_with('@') && key.ends_with(":registry") {
            let scope = key.trim_end_matches(":registry");
            let address = reader.address(value, place)?;
            self.scopes.insert(scope.to_owned(), address);
        }
        Ok(())
    }
}
