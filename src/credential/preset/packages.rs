//! The registries of cargo and Go.

use std::path::PathBuf;

use super::mapping::{RegistryReader, lines};
use super::user_config::RegistryDoubt;

/// Reads `[source]`, `[registries]` and their variables. There is no variable for a source, so
/// cargo gets a file.
pub(super) fn crates(reader: &mut RegistryReader<'_>) -> Result<(), RegistryDoubt> {
    let user = reader.user;
    let is_index = |name: &str| name.starts_with("CARGO_REGISTRIES_") && name.ends_with("_INDEX");
    let named = user.variables.iter().filter(|(name, _)| is_index(name));
    for (name, value) in named {
        let address = reader.address(value, &format!("the variable {name}"))?;
        reader.tell(name, address);
    }
    let folder = user.place(&["CARGO_HOME"], ".cargo");
    let files = ["config", "config.toml"].map(|name| folder.join(name));
    let Some(path) = files.into_iter().find(|path| path.exists()) else {
        return Ok(());
    };
    let table = reader.toml(&path)?;
    let mut told = toml::Table::new();
    for (section, key) in [("source", "registry"), ("registries", "index")] {
        let entries = table.get(section).and_then(toml::Value::as_table);
        let mut clean = toml::Table::new();
        for (name, entry) in entries.into_iter().flatten() {
            let place = format!("`{}`, `{section}.{name}`", path.display());
            let entry = source(reader, entry, key, &place)?;
            let is_default = section == "source" && name == "crates-io";
            reader.found.replaces_public |= is_default && entry.contains_key("replace-with");
            clean.insert(name.clone(), entry.into());
        }
        if !clean.is_empty() {
            told.insert(section.to_owned(), clean.into());
        }
    }
    let default = table.get("registry").and_then(|all| all.get("default"));
    if let Some(default) = default {
        let registry = toml::Table::from_iter([("default".to_owned(), default.clone())]);
        told.insert("registry".to_owned(), registry.into());
    }
    if !told.is_empty() {
        reader.tell_by(&path, told.to_string());
    }
    Ok(())
}

/// Returns the settings of a source or registry of cargo without its token.
fn source(
    reader: &mut RegistryReader<'_>,
    entry: &toml::Value,
    key: &str,
    place: &str,
) -> Result<toml::Table, RegistryDoubt> {
    let text = |key: &str| entry.get(key).and_then(toml::Value::as_str);
    let mut told = toml::Table::new();
    for plain in ["replace-with", "directory", "local-registry"] {
        if let Some(value) = text(plain) {
            told.insert(plain.to_owned(), value.into());
        }
    }
    // Files and git over SSH need no network of a sandbox.
    let is_asked = |address: &&str| address.starts_with("http") || address.contains("+http");
    if let Some(address) = text(key).filter(is_asked) {
        told.insert(key.to_owned(), reader.address(address, place)?.into());
    }
    Ok(told)
}

/// Reads Go's own variables, and the file that may hold them.
pub(super) fn go(reader: &mut RegistryReader<'_>) -> Result<(), RegistryDoubt> {
    let user = reader.user;
    let path = user.settings("go/env");
    let path = match user.variable("GOENV") {
        Some("off") => PathBuf::from("/dev/null"),
        Some(named) => PathBuf::from(named),
        None => path,
    };
    let text = reader.text(&path)?.unwrap_or_default();
    for name in ["GOPROXY", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOSUMDB"] {
        let in_file = lines(&text, &path, &['#']).filter_map(|(place, line)| {
            let (key, value) = line.split_once('=')?;
            (key == name).then(|| (place, value.to_owned()))
        });
        let own = user.variable(name).map(str::to_owned);
        let own = own.map(|value| (format!("the variable {name}"), value));
        let Some((place, value)) = own.or(in_file.last()) else {
            continue;
        };
        let (told, asks_public) = go_list(reader, &value, &place)?;
        reader.found.replaces_public |= name == "GOPROXY" && !asks_public;
        reader.tell(name, told);
    }
    Ok(())
}

/// Returns a list of Go's with clean addresses, and whether one of them is public.
fn go_list(
    reader: &mut RegistryReader<'_>,
    list: &str,
    place: &str,
) -> Result<(String, bool), RegistryDoubt> {
    let (mut told, mut is_public) = (String::new(), false);
    for part in list.split_inclusive([',', '|', ' ']) {
        let word = part.trim_end_matches([',', '|', ' ']);
        if word.starts_with("http") {
            let address = reader.address(word, place)?;
            is_public |= reader.is_public(&address);
            told.push_str(&address);
            told.push_str(&part[word.len()..]);
        } else {
            told.push_str(part);
        }
    }
    Ok((told, is_public))
}
