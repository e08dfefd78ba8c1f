//! Presets of one's own, from files, checked as strictly as those of the program.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use gateway_message::HostPattern;
use gateway_session::Bindings;

use super::{Preset, PresetCredential, all, of_login, of_variable};

/// Those that were read so far, by their text. Like those of the program they stay, so a reload of
/// the same text adds none.
static READ: Mutex<Vec<(String, &'static Preset)>> = Mutex::new(Vec::new());

/// Reads a preset of one's own, of which this is the file's path and text.
///
/// # Errors
/// Says what is wrong with it, and in which line, if that is known.
pub fn read(path: &Path, text: &str) -> Result<&'static Preset, String> {
    let preset: Preset = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text[..at].matches('\n').count();
        // A value of the wrong type would stand in it, whatever it is.
        let told = error.message();
        let (what, value) = told.split_once('"').unwrap_or((told, ""));
        let more = value.rsplit('"').next().unwrap_or_default();
        format!("line {line}: {what}{more}")
    })?;
    let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    check(stem, &preset)?;
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = read.iter().find(|(known, _)| known == text) {
        return Ok(known);
    }
    let preset: &'static Preset = Box::leak(Box::new(preset));
    read.push((text.to_owned(), preset));
    Ok(preset)
}

fn check(stem: &str, preset: &Preset) -> Result<(), String> {
    let name = &preset.name;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(plain);
    if name != stem || !is_name(name) {
        return Err(format!(
            "its `name` is `{name}`, and its file is called `{stem}.toml`; both are of lower case letters, digits and hyphens"
        ));
    }
    if super::named(name).is_some() {
        return Err(format!(
            "the program has a preset `{name}`, which no file widens"
        ));
    }
    let only_ours = [
        ("login", !preset.logins.is_empty()),
        ("registry", preset.registry.is_some()),
        ("home", !preset.home.is_empty()),
        ("projects", !preset.projects.is_empty()),
    ];
    if let Some((key, _)) = only_ours.into_iter().find(|(_, is_there)| *is_there) {
        return Err(format!("`{key}` is for presets of the program"));
    }
    let mut permissions = HashSet::new();
    let mut named = preset.permissions.iter().map(|one| &one.name);
    if let Some(name) = named.find(|name| !is_name(name) || !permissions.insert(*name)) {
        return Err(format!(
            "the permission `{name}` is there twice, or its name is none"
        ));
    }
    let mut kinds = preset.blocks.iter().map(|block| &block.kind);
    if let Some(kind) = kinds.find(|kind| !is_name(kind)) {
        return Err(format!("`{kind}` is no name of a kind"));
    }
    let but = preset.permissions.iter().flat_map(|one| &one.but);
    if let Some(one) = preset.mints.iter().chain(but).find(|one| !one.is_by_path()) {
        return Err(format!("`{one}`: such a request is `GET` or any"));
    }
    let mut mutations = preset.permissions.iter().flat_map(|one| &one.mutations);
    let mutation = preset.mint_mutations.first().or(mutations.next());
    if let Some(mutation) =
        mutation.filter(|_| !preset.endpoints.iter().any(|one| one.is_graphql()))
    {
        return Err(format!(
            "`{mutation}` is a mutation, and no `[[read]]` is `graphql`"
        ));
    }
    let bindings: Result<Vec<_>, _> = preset.credentials.iter().map(bound).collect();
    Bindings::new(bindings?)
        .map_err(|error| error.to_string())
        .map(drop)
}

fn bound(credential: &PresetCredential) -> Result<gateway_session::Binding, String> {
    let name = &credential.name;
    if credential.verify.is_some() {
        return Err("`verify` is for presets of the program".to_owned());
    }
    let mut known = all().flat_map(|preset| &preset.credentials);
    let is_it = |known: &PresetCredential| known.name.as_str().eq_ignore_ascii_case(name.as_str());
    if known.any(is_it) || of_login(name).is_some() || name.as_str() == "aws" {
        return Err(format!("the program's presets have a credential `{name}`"));
    }
    let mut variables = credential.variables.iter();
    if let Some((variable, known)) = variables.find_map(|one| Some((one, of_variable(one)?.0))) {
        return Err(format!(
            "`{variable}` is a variable of the preset `{}`",
            known.name
        ));
    }
    let mut origins = credential.origins.iter();
    if let Some(wide) = origins.find(|one| !matches!(one.hosts, HostPattern::Exact(_))) {
        return Err(format!(
            "`{name}` goes to hosts by their names, and not to `{wide}`"
        ));
    }
    let bound = credential.bind(name.clone(), Vec::new());
    bound.map_err(|missing| missing.to_string())
}
