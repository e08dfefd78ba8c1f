//! The indexes of pip, uv and twine.

use super::mapping::{RegistryReader, ini};
use super::user_config::RegistryDoubt;

/// The indexes of one client.
#[derive(Default)]
struct Indexes {
    default: Option<String>,
    extra: Vec<String>,
    /// Pages of links.
    links: Vec<String>,
}

/// Reads the files and variables of pip and uv, and the repository that twine uploads to.
pub(super) fn read(reader: &mut RegistryReader<'_>) -> Result<(), RegistryDoubt> {
    let user = reader.user;
    let (mut pip, mut uv) = (Indexes::default(), Indexes::default());
    // Later files override earlier ones.
    for path in [
        user.system.join("etc/xdg/pip/pip.conf"),
        user.system.join("etc/pip.conf"),
        user.home.join(".pip/pip.conf"),
        user.settings("pip/pip.conf"),
        user.place(&["PIP_CONFIG_FILE"], ""),
        user.home.join(".pypirc"),
    ] {
        let text = reader.text(&path)?.unwrap_or_default();
        for (place, key, value) in ini(&text, &path) {
            pip.take(reader, &key, &value, &place)?;
        }
    }
    for path in [
        user.system.join("etc/uv/uv.toml"),
        user.settings("uv/uv.toml"),
    ] {
        let table = reader.toml(&path)?;
        let own = table.get("pip").and_then(toml::Value::as_table);
        for table in [Some(&table), own].into_iter().flatten() {
            uv.take_table(reader, table, &format!("`{}`", path.display()))?;
        }
    }
    for (client, prefix) in [
        (&mut pip, "PIP_"),
        (&mut uv, "UV_"),
        (&mut Indexes::default(), "TWINE_"),
    ] {
        for (name, value) in &user.variables {
            let key = name.strip_prefix(prefix).unwrap_or_default();
            let key = key.to_ascii_lowercase().replace('_', "-");
            client.take(reader, &key, value, &format!("the variable {name}"))?;
        }
    }
    // An index that replaces the public one for one client replaces it for both.
    let default = |own: &Indexes, other: &Indexes| own.default.clone().or(other.default.clone());
    reader.tell("PIP_INDEX_URL", default(&pip, &uv).unwrap_or_default());
    reader.tell("UV_DEFAULT_INDEX", default(&uv, &pip).unwrap_or_default());
    reader.tell("PIP_EXTRA_INDEX_URL", pip.extra.join(" "));
    reader.tell("PIP_FIND_LINKS", pip.links.join(" "));
    reader.tell("UV_INDEX", uv.extra.join(" "));
    Ok(())
}

impl Indexes {
    /// Handles a setting: addresses, each perhaps with a name as uv writes it, `name=URL`.
    fn take(
        &mut self,
        reader: &mut RegistryReader<'_>,
        key: &str,
        value: &str,
        place: &str,
    ) -> Result<(), RegistryDoubt> {
        if key == "no-index" && !["", "0", "no", "off", "false"].contains(&value) {
            reader.found.replaces_public = true;
            reader.tell("PIP_NO_INDEX", "1".to_owned());
        }
        if !ADDRESSES.contains(&key) {
            return Ok(());
        }
        let mut told = Vec::new();
        // A path of this machine is useless to a client in a sandbox.
        let is_path = |word: &&str| key == "find-links" && !word.contains("://");
        for word in value.split_whitespace().filter(|word| !is_path(word)) {
            let named = word.split_once('=').filter(|(name, _)| !name.contains(':'));
            let (name, address) = named.map_or(("", word), |(_, address)| {
                (&word[..word.len() - address.len()], address)
            });
            told.push(format!("{name}{}", reader.address(address, place)?));
        }
        match key {
            "index-url" | "default-index" => {
                self.default = told.pop();
                let is_public = |one: &String| reader.is_public(one);
                reader.found.replaces_public |= !self.default.as_ref().is_some_and(is_public);
            }
            "extra-index-url" | "index" => self.extra.extend(told),
            "find-links" => self.links = told,
            _ => {}
        }
        Ok(())
    }

    /// Handles the settings of uv.
    fn take_table(
        &mut self,
        reader: &mut RegistryReader<'_>,
        table: &toml::Table,
        place: &str,
    ) -> Result<(), RegistryDoubt> {
        for (key, value) in table {
            for one in value
                .as_array()
                .map_or(std::slice::from_ref(value), Vec::as_slice)
            {
                let text = |key: &str| one.get(key).and_then(toml::Value::as_str);
                let name = text("name").map_or(String::new(), |name| format!("{name}="));
                let address = text("url").map(|url| name + url);
                let is_default = one.get("default").and_then(toml::Value::as_bool) == Some(true);
                let key = if is_default { "default-index" } else { key };
                if let Some(address) = address.as_deref().or(one.as_str()) {
                    self.take(reader, key, address, &format!("{place}, `{key}`"))?;
                }
            }
        }
        Ok(())
    }
}

/// The settings that hold addresses.
const ADDRESSES: [&str; 8] = gateway_names::word_list(
    "index-url default-index extra-index-url index find-links repository repository-url \
     publish-url",
);
