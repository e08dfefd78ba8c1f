//! The indexes of pip, uv and twine.

use std::path::Path;

use super::mapping::{RegistryReader, lines};
use super::user_config::RegistryDoubt;

/// The indexes of one client.
#[derive(Default)]
struct Indexes {
    default: Option<String>,
    extra: Vec<String>,
    /// Pages of links.
    links: Vec<String>,
    /// Whether no index is asked.
    none: bool,
}

/// Reads the files and variables of pip and uv, and where twine uploads to.
pub(super) fn read(reader: &mut RegistryReader<'_>) -> Result<(), RegistryDoubt> {
    let pip = pip(reader)?;
    let uv = uv(reader)?;
    for name in ["TWINE_REPOSITORY_URL", "UV_PUBLISH_URL"] {
        if let Some(address) = reader.user.variable(name) {
            reader.address(address, &format!("the variable {name}"))?;
        }
    }
    // What replaces the public index for one of them replaces it for both.
    let default = |own: &Indexes, other: &Indexes| own.default.clone().or(other.default.clone());
    reader.tell("PIP_INDEX_URL", default(&pip, &uv).unwrap_or_default());
    reader.tell("UV_DEFAULT_INDEX", default(&uv, &pip).unwrap_or_default());
    reader.tell("PIP_EXTRA_INDEX_URL", pip.extra.join(" "));
    reader.tell("PIP_FIND_LINKS", pip.links.join(" "));
    reader.tell("UV_INDEX", uv.extra.join(" "));
    if pip.none {
        reader.tell("PIP_NO_INDEX", "1".to_owned());
    }
    Ok(())
}

fn pip(reader: &mut RegistryReader<'_>) -> Result<Indexes, RegistryDoubt> {
    let user = reader.user;
    let mut found = Indexes::default();
    // The later overrides the earlier.
    let files = [
        user.system.join("etc/xdg/pip/pip.conf"),
        user.system.join("etc/pip.conf"),
        user.home.join(".pip/pip.conf"),
        user.settings("pip/pip.conf"),
        user.place(&["PIP_CONFIG_FILE"], ".config/pip/pip.conf"),
        user.home.join(".pypirc"),
    ];
    for path in files {
        let text = reader.text(&path)?.unwrap_or_default();
        for (place, key, value) in ini(&text, &path) {
            found.take(reader, &key, &value, &place)?;
        }
    }
    for key in ["index-url", "extra-index-url", "find-links", "no-index"] {
        let name = format!("PIP_{}", key.to_ascii_uppercase().replace('-', "_"));
        if let Some(value) = user.variable(&name) {
            found.take(reader, key, value, &format!("the variable {name}"))?;
        }
    }
    Ok(found)
}

impl Indexes {
    /// Takes a setting by pip's name of it.
    fn take(
        &mut self,
        reader: &mut RegistryReader<'_>,
        key: &str,
        value: &str,
        place: &str,
    ) -> Result<(), RegistryDoubt> {
        let words = || value.split_whitespace();
        match key {
            "index-url" => self.default = Some(reader.default(value, place)?),
            "extra-index-url" => {
                let extra = words().map(|word| reader.address(word, place));
                self.extra = extra.collect::<Result<_, _>>()?;
            }
            // A path of this machine says nothing to a client inside.
            "find-links" => {
                let links = words().filter(|word| word.contains("://"));
                let links = links.map(|word| reader.address(word, place));
                self.links = links.collect::<Result<_, _>>()?;
            }
            "no-index" => {
                self.none =
                    !["", "0", "no", "off", "false"].contains(&value.to_lowercase().as_str());
                reader.found.replaces_public |= self.none;
            }
            "repository" => {
                reader.address(value, place)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes an index as uv writes it in a variable: `URL` or `name=URL`.
    fn take_word(
        &mut self,
        reader: &mut RegistryReader<'_>,
        word: &str,
        is_default: bool,
        place: &str,
    ) -> Result<(), RegistryDoubt> {
        let named = word.split_once('=').filter(|(name, _)| !name.contains(':'));
        let (name, address) = named.map_or((String::new(), word), |(name, address)| {
            (format!("{name}="), address)
        });
        if is_default {
            self.default = Some(reader.default(address, place)?);
        } else {
            self.extra.push(name + &reader.address(address, place)?);
        }
        Ok(())
    }
}

fn uv(reader: &mut RegistryReader<'_>) -> Result<Indexes, RegistryDoubt> {
    let user = reader.user;
    let mut found = Indexes::default();
    for path in [
        user.system.join("etc/uv/uv.toml"),
        user.settings("uv/uv.toml"),
    ] {
        let table = reader.toml(&path)?;
        let pip = table.get("pip").and_then(toml::Value::as_table);
        for table in [Some(&table), pip].into_iter().flatten() {
            found.take_uv(reader, table, &path)?;
        }
    }
    for (name, is_default) in [
        ("UV_INDEX_URL", true),
        ("UV_DEFAULT_INDEX", true),
        ("UV_EXTRA_INDEX_URL", false),
        ("UV_INDEX", false),
    ] {
        let place = format!("the variable {name}");
        for word in user.variable(name).unwrap_or_default().split_whitespace() {
            found.take_word(reader, word, is_default, &place)?;
        }
    }
    Ok(found)
}

impl Indexes {
    fn take_uv(
        &mut self,
        reader: &mut RegistryReader<'_>,
        table: &toml::Table,
        path: &Path,
    ) -> Result<(), RegistryDoubt> {
        let place = |key: &str| format!("`{}`, `{key}`", path.display());
        for (key, is_default) in [("index-url", true), ("extra-index-url", false)] {
            for address in texts(table.get(key)) {
                self.take_word(reader, address, is_default, &place(key))?;
            }
        }
        for address in texts(table.get("publish-url")) {
            reader.address(address, &place("publish-url"))?;
        }
        let indexes = table.get("index").and_then(toml::Value::as_array);
        for index in indexes.into_iter().flatten() {
            let is_default = index.get("default").and_then(toml::Value::as_bool);
            let name = texts(index.get("name")).next();
            let name = name.map_or(String::new(), |name| format!("{name}="));
            for address in texts(index.get("url")) {
                let word = format!("{name}{address}");
                self.take_word(reader, &word, is_default == Some(true), &place("index"))?;
            }
        }
        Ok(())
    }
}

fn texts(value: Option<&toml::Value>) -> impl Iterator<Item = &str> {
    let list = match value {
        Some(toml::Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    list.iter().filter_map(toml::Value::as_str)
}

/// The settings of an INI file, each with its place; an indented line continues the one before.
fn ini(text: &str, path: &Path) -> Vec<(String, String, String)> {
    let mut settings: Vec<(String, String, String)> = Vec::new();
    for (place, line) in lines(text, path, &['#', ';', '[']) {
        if line.starts_with([' ', '\t']) {
            if let Some((_, _, value)) = settings.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((key, value)) = line.split_once(['=', ':']) {
            let key = key.trim().to_ascii_lowercase().replace('_', "-");
            settings.push((place, key, value.trim().to_owned()));
        }
    }
    settings
}
