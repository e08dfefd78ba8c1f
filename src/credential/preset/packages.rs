//! The registries of cargo, Go, Ruby, Composer, Maven and Gradle.

use std::path::PathBuf;

use super::mapping::{RegistryReader, lines, unquoted};
use super::user_config::RegistryDoubt;

/// Reads `[source]`, `[registries]` and their variables. Sources have no variables, so cargo gets a
/// file.
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

/// What a source or registry of cargo's says beside its token.
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
    // Files and git over SSH are not asked over the network of a sandbox.
    let is_asked = |address: &&str| address.starts_with("http") || address.contains("+http");
    if let Some(address) = text(key).filter(is_asked) {
        told.insert(key.to_owned(), reader.address(address, place)?.into());
    }
    Ok(told)
}

/// Reads Go's own variables, and the file that holds them.
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

/// A list of Go's with clean addresses, and whether one of them is public.
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

/// Reads the mirrors of bundler, which gets a file, and the sources of gem.
pub(super) fn ruby(reader: &mut RegistryReader<'_>) -> Result<(), RegistryDoubt> {
    let path = reader.user.home.join(".bundle/config");
    let text = reader.text(&path)?.unwrap_or_default();
    let mut told = String::new();
    for (place, line) in lines(&text, &path, &['#', '-']) {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        let key = unquoted(key);
        let is_timeout = key.trim_end_matches('/').ends_with("__FALLBACK_TIMEOUT");
        if !key.starts_with("BUNDLE_MIRROR__") || is_timeout {
            continue;
        }
        let replaces = key == "BUNDLE_MIRROR__ALL" || key.contains("RUBYGEMS__ORG");
        let address = match replaces {
            true => reader.default(value, &place)?,
            false => reader.address(value, &place)?,
        };
        told.push_str(&format!("{key}: \"{address}\"\n"));
    }
    if !told.is_empty() {
        reader.tell_by(&path, format!("---\n{told}"));
    }
    let path = reader.user.home.join(".gemrc");
    let text = reader.text(&path)?.unwrap_or_default();
    for (place, line) in lines(&text, &path, &['#']) {
        let address = line.trim().strip_prefix("- ").unwrap_or_default();
        if address.contains("://") {
            reader.untold_address(&path, address, &place)?;
        }
    }
    Ok(())
}

/// Reads Composer's repositories. It has no variable for them.
pub(super) fn composer(reader: &mut RegistryReader<'_>) -> Result<(), RegistryDoubt> {
    let user = reader.user;
    for path in [
        user.place(&["COMPOSER_HOME"], ".composer")
            .join("config.json"),
        user.settings("composer/config.json"),
    ] {
        let text = reader
            .text(&path)?
            .unwrap_or_default()
            .replace([' ', '\n', '\t'], "");
        reader.untold(&path, &text.replace("\\/", "/"), ("\"url\":\"", '"'))?;
        if text.contains("\"repositories\"") {
            reader.leave_untold(&path);
        }
    }
    Ok(())
}

/// Reads the mirrors and repositories of Maven's settings, and looks for Gradle's. They have no
/// variables for them.
pub(super) fn jvm(reader: &mut RegistryReader<'_>) -> Result<(), RegistryDoubt> {
    let user = reader.user;
    let path = user.home.join(".m2/settings.xml");
    let text = reader.text(&path)?.unwrap_or_default();
    reader.untold(&path, &without_comments(&text), ("<url>", '<'))?;
    let folder = user.place(&["GRADLE_USER_HOME"], ".gradle");
    let mut scripts = vec![folder.join("init.gradle"), folder.join("init.gradle.kts")];
    let further = std::fs::read_dir(folder.join("init.d"))
        .into_iter()
        .flatten();
    scripts.extend(further.flatten().map(|entry| entry.path()));
    // Programs of Gradle's: which of the addresses in them is whose, only Gradle knows.
    for path in scripts {
        if reader.text(&path)?.is_some_and(|text| text.contains("://")) {
            reader.leave_untold(&path);
        }
    }
    Ok(())
}

/// An XML text without its comments; of one that does not end, nothing that follows is left out.
fn without_comments(text: &str) -> String {
    let mut left = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("<!--") {
        left.push_str(before);
        rest = comment
            .split_once("-->")
            .map_or(comment, |(_, after)| after);
    }
    left + rest
}
