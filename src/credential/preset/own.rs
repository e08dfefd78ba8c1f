//! Presets by name: those of the program, and one's own from files, checked as strictly.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use gateway_message::HostPattern;
use gateway_names::CredentialName;
use gateway_session::Bindings;

use super::{Preset, PresetCredential, PresetPermission, all, of_variable};

/// Those that configurations named so far. Like those of the program they stay, and only a changed
/// text is another.
static OWN: RwLock<Vec<OwnPreset>> = RwLock::new(Vec::new());

struct OwnPreset {
    path: PathBuf,
    text: String,
    preset: &'static Preset,
}

/// Reads a preset of one's own, of which this is the file's path and text.
///
/// # Errors
/// Says what is wrong with it, and in which line, if that is known.
pub fn own(path: &Path, text: &str) -> Result<&'static Preset, String> {
    let preset: Preset = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text[..at].matches('\n').count();
        format!("line {line}: {}", error.message())
    })?;
    let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    check(stem, &preset)?;
    let mut known = OWN.write().unwrap_or_else(PoisonError::into_inner);
    let former = known.iter().position(|one| one.preset.name == preset.name);
    if let Some(former) = former {
        let one = &known[former];
        if one.path != path {
            let (name, file) = (&preset.name, one.path.display());
            return Err(format!(
                "this program runs with another `{name}`, that of `{file}`"
            ));
        }
        if one.text == text {
            return Ok(one.preset);
        }
        known.swap_remove(former);
    }
    let preset: &'static Preset = Box::leak(Box::new(preset));
    known.push(OwnPreset {
        path: path.to_owned(),
        text: text.to_owned(),
        preset,
    });
    Ok(preset)
}

/// Returns the preset with this name, of the program or of one's own.
pub fn named(name: &str) -> Option<&'static Preset> {
    super::named(name).or_else(|| own_named(name))
}

fn own_named(name: &str) -> Option<&'static Preset> {
    let known = OWN.read().unwrap_or_else(PoisonError::into_inner);
    let mut known = known.iter().map(|one| one.preset);
    known.find(|one| one.name == name)
}

/// Returns the preset and the permission that `NAME` or `NAME:PERMISSION` requests; `None` if
/// either is not known.
pub fn requested(text: &str) -> Option<(&'static Preset, Option<&'static PresetPermission>)> {
    let Some((name, permission)) = text.split_once(':') else {
        return named(text).map(|preset| (preset, None));
    };
    let preset = named(name)?;
    let mut all = preset.permissions.iter();
    let known = all.find(|known| known.name == permission)?;
    Some((preset, Some(known)))
}

fn check(stem: &str, preset: &Preset) -> Result<(), String> {
    let name = &preset.name;
    if name != stem || CredentialName::new(name).is_err() {
        return Err(format!(
            "its `name` is `{name}`, and its file is called `{stem}.toml`"
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
    let bindings: Result<Vec<_>, _> = preset.credentials.iter().map(bound).collect();
    let bindings = Bindings::new(bindings?);
    bindings.map_err(|error| error.to_string()).map(drop)
}

fn bound(credential: &PresetCredential) -> Result<gateway_session::Binding, String> {
    let name = &credential.name;
    if credential.verify.is_some() {
        return Err("`verify` is for presets of the program".to_owned());
    }
    let mut known = all().flat_map(|preset| &preset.credentials);
    if known.any(|known| known.name == *name) {
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
