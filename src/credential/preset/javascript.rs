//! The registries of npm, pnpm, Yarn and Bun.

use std::collections::BTreeMap;
use std::path::Path;

use super::mapping::{RegistryReader, doubt, lines, unquoted};
use super::user_config::RegistryDoubt;

/// The registry for all packages, and those for scopes.
#[derive(Default)]
struct Scoped {
    default: Option<String>,
    scopes: BTreeMap<String, String>,
}

/// Reads `.npmrc`, which all of them read, and `.yarnrc.yml`.
pub(super) fn read(reader: &mut RegistryReader<'_>) -> Result<(), RegistryDoubt> {
    let user = reader.user;
    let system = ["etc/npmrc", "usr/etc/npmrc", "usr/local/etc/npmrc"];
    let mut found = Scoped::default();
    // The later overrides the earlier.
    for path in system.map(|path| user.system.join(path)) {
        found.take_npmrc(reader, &path)?;
    }
    let global = ["npm_config_globalconfig", "NPM_CONFIG_GLOBALCONFIG"];
    found.take_npmrc(reader, &user.place(&global, ""))?;
    found.take_npmrc(reader, &user.settings("pnpm/rc"))?;
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
        // A variable for a scope would be lost in a shell: its name is none that dash knows.
        reader.tell_by(&user.home.join(".npmrc"), npmrc);
    }
    read_yarn(reader)
}

/// Reads `.npmrc` of the home alone.
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
        let mut named: Vec<_> = reader.user.variables.iter().collect();
        named.sort();
        for (name, value) in named {
            let lower = name.to_ascii_lowercase();
            let key = lower.strip_prefix("npm_config_").unwrap_or_default();
            if !value.is_empty() {
                self.take(reader, key, value, &format!("the variable {name}"))?;
            }
        }
        Ok(())
    }

    /// Takes `registry` and `@scope:registry`.
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

/// Reads `npmRegistryServer` and `npmScopes` of Yarn's settings.
fn read_yarn(reader: &mut RegistryReader<'_>) -> Result<(), RegistryDoubt> {
    let path = reader.user.home.join(".yarnrc.yml");
    let text = reader.text(&path)?.unwrap_or_default();
    let mut found = Scoped::default();
    let mut scope: Option<String> = None;
    for (place, line) in lines(&text, &path, &['#']) {
        let is_top = !line.starts_with([' ', '\t']);
        let (key, value) = line.trim().split_once(':').unwrap_or((line, ""));
        let value = value.split(" #").next().unwrap_or_default();
        let (key, value) = (unquoted(key), unquoted(value));
        match (key, &scope) {
            ("npmRegistryServer", _) if is_top => {
                found.default = Some(reader.default(value, &place)?);
            }
            ("npmScopes", _) if is_top && !value.is_empty() => {
                return Err(doubt(&place, "write each scope on a line of its own"));
            }
            ("npmRegistryServer", Some(scope)) => {
                found
                    .scopes
                    .insert(scope.clone(), reader.address(value, &place)?);
            }
            (_, Some(_)) if !is_top && value.is_empty() => scope = Some(key.to_owned()),
            (_, Some(_)) if !is_top && value.starts_with('{') => {
                return Err(doubt(&place, "write each setting on a line of its own"));
            }
            _ => {}
        }
        if is_top {
            scope = (key == "npmScopes").then(String::new);
        }
    }
    let mut text = String::new();
    if let Some(address) = found.default {
        text.push_str(&format!("npmRegistryServer: \"{address}\"\n"));
    }
    if !found.scopes.is_empty() {
        text.push_str("npmScopes:\n");
    }
    for (scope, address) in found.scopes {
        text.push_str(&format!(
            "  \"{scope}\":\n    npmRegistryServer: \"{address}\"\n"
        ));
    }
    if !text.is_empty() {
        reader.tell_by(&path, text);
    }
    Ok(())
}
