//! Turns a file's text into a [`Config`], or into the list of everything that is wrong with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::export::ExportSettings;
use crate::files;

use super::credential::{known_preset, login_name};
use super::diagnostic::{Diagnostic, Hint, Position, Severity};
use super::document::Document;
use super::keys::{self, SECTIONS};
use super::literal::shown;
use super::section::Section;
use super::validate::{self, Spans};
use super::{
    AllOrigins, Allowed, Config, ConfigError, control, credential, export, fact, listener, login,
    origin, sandbox, settings, state, vault, via,
};

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Returns a [`ConfigError`] with every mistake of the file, or with the reason why it cannot
    /// be read.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::from_str(&Self::text_of(path)?, path)
    }

    /// Reads the text of a file, which nobody but this user and root could have written.
    pub(super) fn text_of(path: &Path) -> Result<String, ConfigError> {
        let file: Arc<str> = path.display().to_string().into();
        files::read(path, LARGEST_MIB).map_err(|unfit| ConfigError {
            mistakes: vec![Diagnostic {
                position: Position::whole(&file),
                severity: Severity::Error,
                what: String::from("the configuration cannot be read"),
                why: unfit.to_string(),
                remedy: unfit.remedy(path),
            }],
        })
    }

    /// Reads and checks a text as if it were the file `origin`. Paths are relative to the folder of
    /// `origin`.
    ///
    /// # Errors
    /// Returns a [`ConfigError`] with every mistake of the text.
    pub fn from_str(text: &str, origin: &Path) -> Result<Self, ConfigError> {
        let absolute = std::path::absolute(origin).unwrap_or_else(|_| origin.to_owned());
        let directory = absolute
            .parent()
            .map_or_else(|| PathBuf::from("/"), Path::to_owned);
        // The launcher hides the gateway's own files by these paths, and `..` cannot be walked
        // there. So the folder is resolved now.
        let directory = crate::names::real_path(&directory).unwrap_or(directory);
        let home = state::home();
        let document = Document::new(
            origin.display().to_string().into(),
            text,
            directory,
            home.clone(),
        );
        let (parsed, syntax) = DeTable::parse_recoverable(text);
        for error in &syntax {
            // The parser's own display quotes the line, which may hold a secret. Its message does
            // not.
            let hint = Hint::new(error.message().to_owned(), "correct the TOML syntax");
            document.error(
                &error.span().unwrap_or(0..0),
                "the file is no valid TOML",
                hint,
            );
        }
        let mut config = Self {
            file: Some(absolute),
            home,
            ..Self::default()
        };
        let mut spans = Spans::default();
        document.refuse_literals(parsed.get_ref());
        for (key, value) in parsed.get_ref() {
            top_level(&document, &mut config, &mut spans, key, value);
        }
        validate::check(&document, &config, &spans);
        let found = document.into_found();
        if found
            .iter()
            .any(|mistake| mistake.severity == Severity::Error)
        {
            return Err(ConfigError { mistakes: found });
        }
        let is_warning = |one: &Diagnostic| one.severity == Severity::Warning;
        (config.warnings, config.unusable) = found.into_iter().partition(is_warning);
        Ok(config)
    }
}

fn top_level<'t>(
    document: &Document<'t>,
    config: &mut Config,
    spans: &mut Spans,
    key: &Spanned<toml::de::DeString<'t>>,
    value: &Spanned<DeValue<'t>>,
) {
    let word = key.get_ref().as_ref();
    let Some(known) = SECTIONS.iter().find(|known| known.name == word) else {
        return unknown(document, key);
    };
    let tables: Vec<_> = match (value.get_ref(), known.repeats) {
        (DeValue::Table(table), false) => vec![(table, value.span())],
        (DeValue::Array(items), true) => items
            .iter()
            .filter_map(|item| item.get_ref().as_table().map(|table| (table, item.span())))
            .collect(),
        _ => Vec::new(),
    };
    let expected = match value.get_ref() {
        DeValue::Array(items) if known.repeats => items.len(),
        _ => 1,
    };
    if tables.len() != expected {
        let why = if known.repeats {
            "it may occur many times"
        } else {
            "it may occur once"
        };
        let hint = Hint::new(why, format!("write {}", keys::heading(known.name)));
        document.error(
            &key.span(),
            format!("`{word}` is not written as {}", keys::heading(known.name)),
            hint,
        );
    }
    for (table, span) in tables {
        section(
            config,
            spans,
            known.name,
            &Section::open(document, known.name, table, span),
        );
    }
}

fn section(config: &mut Config, spans: &mut Spans, name: &str, section: &Section<'_, '_>) {
    match name {
        "ca" => {
            config.ca = settings::ca(section);
            spans.ca = section.span.clone();
        }
        "state" => config.state = settings::state(section),
        "audit" => config.audit = settings::audit(section),
        "policy" => {
            config.policy = settings::policy(section);
            config.allow = allowed(section);
            let presets = section.each("presets", known_preset).into_iter();
            config.presets = presets.map(Spanned::into_inner).collect();
            let logins = section.each("logins", login_name).into_iter();
            config.named_logins = logins.map(Spanned::into_inner).collect();
        }
        "runtime" => config.runtime = settings::runtime(section),
        "resolver" => config.resolver = settings::resolver(section),
        "control" => config.control = control::control(section),
        "limits" => config.limits = settings::limits(section),
        "sandbox" => {
            config.sandbox = sandbox::sandbox(section);
            spans.sandbox = section.span.clone();
        }
        "phantoms" => {
            config.phantoms = settings::phantoms(section);
            spans.phantoms = section.span.clone();
        }
        "fact" => {
            let added = fact::fact(section).map(|fact| config.facts.add(fact));
            if let Some(Err(clash)) = added {
                let why = "a name stands for one value, of one type, in each content";
                let hint = Hint::new(why, "give one of them another name, or other origins");
                section.error("name", clash.to_string(), hint);
            }
        }
        "vault" => config.vault = vault::vault(section),
        "export" => {
            let added = export::export(section);
            let is_there = |new: &ExportSettings| config.exports.iter().any(|one| one.is_as(new));
            if added.as_ref().is_some_and(is_there) {
                let why = "how far an export has come is kept by its `url` and its form";
                let hint = Hint::new(why, "remove one");
                section.error("url", "another `[[export]]` sends the same there", hint);
            }
            config.exports.extend(added);
        }
        "origin" if via::is_for_all(section) => {
            if config.defaults != AllOrigins::default() {
                let hint = Hint::new("one of the two would not hold", "merge them into one");
                section.error("match", "a second [[origin]] is for all origins", hint);
            }
            config.defaults = via::for_all(section);
        }
        "listener" => take(
            listener::listener(section),
            section,
            &mut config.listeners,
            &mut spans.listeners,
        ),
        "credential" => take(
            credential::credential(section),
            section,
            &mut config.credentials,
            &mut spans.credentials,
        ),
        "login" => take(
            login::login(section),
            section,
            &mut config.logins,
            &mut spans.logins,
        ),
        _ => take(
            origin::origin(section),
            section,
            &mut config.origins,
            &mut spans.origins,
        ),
    }
}

/// The hosts of `[policy] allow`, with a warning where the path of a URL is left out.
fn allowed(section: &Section<'_, '_>) -> Vec<Allowed> {
    let read = |text: &str| Ok((Allowed::parse(text)?, Allowed::leaves_out_path(text)));
    let hosts = section.each("allow", read).into_iter().map(|one| {
        let span = one.span();
        let (allowed, leaves_out_path) = one.into_inner();
        if leaves_out_path {
            let hint = Hint::new(
                "`allow` names a host, and the path of the URL is left out",
                "to allow some paths only, write a policy: `files` of `[policy]`",
            );
            let what = format!("every path of `{}` is allowed", allowed.host);
            section.document.warn(&span, what, hint);
        }
        allowed
    });
    hosts.collect()
}

fn take<T>(
    read: Option<T>,
    section: &Section<'_, '_>,
    list: &mut Vec<T>,
    spans: &mut Vec<std::ops::Range<usize>>,
) {
    if let Some(item) = read {
        list.push(item);
        spans.push(section.span.clone());
    }
}

fn unknown(document: &Document<'_>, key: &Spanned<toml::de::DeString<'_>>) {
    let word = key.get_ref().as_ref();
    let near = keys::nearest(word, SECTIONS.iter().map(|known| known.name));
    let elsewhere = keys::KEYS.iter().find(|key| key.name == word);
    let remedy = match (near, elsewhere) {
        (Some(near), _) => format!("did you mean {}?", keys::heading(near)),
        (None, Some(key)) => format!("`{word}` belongs to {}", keys::heading(key.section)),
        (None, None) => {
            let all: Vec<_> = SECTIONS
                .iter()
                .map(|known| keys::heading(known.name))
                .collect();
            format!("remove it; the sections are {}", all.join(", "))
        }
    };
    let hint = Hint::new(
        "a section that nothing reads would be settings that do not hold",
        remedy,
    );
    document.error(
        &key.span(),
        format!("unknown section or key {}", shown(word)),
        hint,
    );
}

const LARGEST_MIB: u64 = 1;
