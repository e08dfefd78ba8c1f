//! The registries that the user's own files name, and how clients in a sandbox learn of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gateway_message::{Authority, HostPattern, OriginPattern, Scheme};
use gateway_names::prefixes;

use super::user_config::{RegistryDoubt, UserConfig, text};

/// The registries of one package manager in the user's own files and variables. Holds no part of a
/// credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryMapping {
    /// The origins of the registries, each once. Only https ones.
    pub origins: Vec<OriginPattern>,
    /// Whether another registry replaces the public one.
    pub replaces_public: bool,
    /// Variables that name the same registries to clients in a sandbox.
    pub variables: BTreeMap<String, String>,
    /// Files that name them where no variable does, by path relative to the home.
    pub files: BTreeMap<PathBuf, String>,
    /// A file whose registries cannot be named to clients in a sandbox.
    pub untold: Option<PathBuf>,
    /// The files that were read.
    pub read: Vec<PathBuf>,
}

/// Reads the files of one package manager.
pub(super) struct RegistryReader<'a> {
    pub(super) user: &'a UserConfig,
    /// The public registry.
    pub(super) public: &'a [OriginPattern],
    pub(super) found: RegistryMapping,
}

impl RegistryReader<'_> {
    /// Returns the text of a file; `None` if the file does not exist.
    pub(super) fn text(&mut self, path: &Path) -> Result<Option<String>, RegistryDoubt> {
        let text = text(path)?;
        self.found
            .read
            .extend(text.as_ref().map(|_| path.to_owned()));
        Ok(text)
    }

    /// Returns the content of a TOML file; an empty table if the file does not exist.
    pub(super) fn toml(&mut self, path: &Path) -> Result<toml::Table, RegistryDoubt> {
        let text = self.text(path)?.unwrap_or_default();
        text.parse().map_err(|error: toml::de::Error| {
            // The `Display` of the error would quote the line.
            let start = error.span().map_or(0, |span| span.start);
            let line = text[..start.min(text.len())].matches('\n').count() + 1;
            doubt(&at(path, line), error.message())
        })
    }

    /// Notes the origin of an address, and returns the address without the parts that may hold a
    /// credential: user and password, query and fragment.
    pub(super) fn address(&mut self, text: &str, place: &str) -> Result<String, RegistryDoubt> {
        let text = unquoted(text);
        if text.contains("${") {
            return Err(doubt(
                place,
                "it names a variable; write the address itself",
            ));
        }
        let kind = ["sparse+", "registry+"];
        let kind = kind.into_iter().find(|kind| text.starts_with(kind));
        let kind = kind.unwrap_or_default();
        let Some((scheme, rest)) = text[kind.len()..]
            .split_once("://")
            .filter(|(scheme, _)| matches!(*scheme, "https" | "http"))
        else {
            return Err(doubt(place, "it is no address that begins with https://"));
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let default_port = if scheme == "https" { 443 } else { 80 };
        let Ok(parsed) = Authority::parse(authority.as_bytes(), Some(default_port)) else {
            return Err(doubt(place, "its host cannot be read"));
        };
        if path.contains('@') || path.split('/').any(may_be_token) {
            let why = "its path may hold a credential; have the client send that in a field";
            return Err(doubt(place, why));
        }
        let origin = OriginPattern {
            scheme: Scheme::Https,
            hosts: HostPattern::Exact(parsed.host),
            port: parsed.port,
        };
        if scheme == "https" && !self.found.origins.contains(&origin) {
            self.found.origins.push(origin);
        }
        Ok(format!("{kind}{scheme}://{authority}{path}"))
    }

    /// As [`Self::address`], for the address that clients use in place of the public registry.
    pub(super) fn default(&mut self, text: &str, place: &str) -> Result<String, RegistryDoubt> {
        let address = self.address(text, place)?;
        self.found.replaces_public |= !self.is_public(&address);
        Ok(address)
    }

    /// Whether an address belongs to the public registry.
    pub(super) fn is_public(&self, address: &str) -> bool {
        let host = address.split("://").nth(1).unwrap_or_default();
        let host = host.split('/').next().unwrap_or_default();
        let mut public = self.public.iter();
        public.any(|origin| origin.hosts.to_string().eq_ignore_ascii_case(host))
    }

    /// Sets a variable for clients in a sandbox.
    pub(super) fn tell(&mut self, name: &str, value: String) {
        if !value.is_empty() {
            self.found.variables.insert(name.to_owned(), value);
        }
    }

    /// Sets a file for clients in a sandbox, in place of a file of the home.
    pub(super) fn tell_by(&mut self, path: &Path, text: String) {
        match path.strip_prefix(&self.user.home) {
            Ok(name) => drop(self.found.files.insert(name.to_owned(), text)),
            Err(_) => self.leave_untold(path),
        }
    }

    /// Notes a file that cannot be shown to clients, so that they do not use the public registry.
    fn leave_untold(&mut self, path: &Path) {
        self.found.replaces_public = true;
        self.found.untold = Some(path.to_owned());
    }
}

/// Whether a segment of a path may be a token: a known prefix with a long rest, or a long word of
/// letters and digits.
fn may_be_token(segment: &str) -> bool {
    let has = |is: fn(&u8) -> bool| segment.bytes().any(|byte| is(&byte));
    let is_word = segment.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_long = segment.len() >= LONG && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
    let mut known = prefixes::matches(segment.as_bytes());
    is_word && is_long || known.any(|known| known.rest.len() >= LONG)
}

/// The least length of a word that may be a token.
const LONG: usize = 16;

pub(super) fn doubt(place: &str, why: &str) -> RegistryDoubt {
    RegistryDoubt {
        place: place.to_owned(),
        why: why.to_owned(),
    }
}

/// Formats a line of a file for messages.
pub(super) fn at(path: &Path, line: usize) -> String {
    format!("`{}`, line {line}", path.display())
}

pub(super) fn unquoted(value: &str) -> &str {
    value.trim().trim_matches(['"', '\'']).trim()
}

/// Returns the lines of a text that are neither empty nor comments, each with its place.
pub(super) fn lines<'a>(
    text: &'a str,
    path: &'a Path,
    comments: &'static [char],
) -> impl Iterator<Item = (String, &'a str)> {
    let numbered = text.lines().enumerate();
    let held = numbered.filter(move |(_, line)| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with(comments)
    });
    held.map(|(number, line)| (at(path, number + 1), line))
}

/// Returns the settings of an INI file, each with its place; an indented line continues the last.
pub(super) fn ini(text: &str, path: &Path) -> Vec<(String, String, String)> {
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
