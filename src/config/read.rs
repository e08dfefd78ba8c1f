//! Turns a file's text into a [`Config`], or into the list of all its mistakes.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gateway_export::ExportSettings;
use gateway_files as files;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::credential::{login_name, requested_preset};
use super::diagnostic::{Diagnostic, Position, Severity};
use super::document::Document;
use super::keys::{self, SECTIONS};
use super::literal::shown;
use super::section::Section;
use super::validate::{self, Spans};
use super::{
    AllOrigins, Config, ConfigError, HostPort, budget, control, credential, export, fact, listener,
    login, notify, origin, price, sandbox, settings, state, store, via,
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

    /// Reads the text of a file that only this user and root could have written.
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
        Self::checked(text, origin, |_, _| {})
    }

    /// Reads and checks a text. `check` also inspects each section.
    pub(super) fn checked(
        text: &str,
        origin: &Path,
        check: impl Fn(&Document<'_>, (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)),
    ) -> Result<Self, ConfigError> {
        let absolute = std::path::absolute(origin).unwrap_or_else(|_| origin.to_owned());
        let directory = absolute
            .parent()
            .map_or_else(|| PathBuf::from("/"), Path::to_owned);
        // The launcher hides the gateway's own files by these paths, and `..` cannot be walked
        // there. So the folder is resolved now.
        let directory = gateway_names::real_path(&directory).unwrap_or(directory);
        let home = state::home();
        let name = origin.display().to_string().into();
        let document = Document::new(name, text, directory, home.clone());
        let (parsed, syntax) = DeTable::parse_recoverable(text);
        for error in &syntax {
            // The parser's own display quotes the line, which may hold a secret. Its message does
            // not.
            let (span, why) = (error.span().unwrap_or(0..0), error.message());
            mistake!(document, &span, "the file is no valid TOML"; "{why}";
                "correct the TOML syntax");
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
            check(&document, (key, value));
        }
        validate::check(&document, &config, &spans);
        let found = document.into_found();
        if found.iter().any(|one| one.severity == Severity::Error) {
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
    key: &Spanned<DeString<'t>>,
    value: &Spanned<DeValue<'t>>,
) {
    let word = key.get_ref().as_ref();
    let Some(known) = SECTIONS.iter().find(|known| known.name == word) else {
        return unknown(document, key);
    };
    let items = match (value.get_ref(), known.repeats) {
        (DeValue::Array(items), true) => Some(&items[..]),
        (_, true) => None,
        (_, false) => Some(std::slice::from_ref(value)),
    };
    let tables = items.into_iter().flatten();
    let tables = tables.filter_map(|item| Some((item.span(), item.get_ref().as_table()?)));
    let tables: Vec<_> = tables.collect();
    if items.is_none_or(|items| items.len() != tables.len()) {
        let times = if known.repeats { "many times" } else { "once" };
        let heading = keys::heading(known.name);
        mistake!(document, &key.span(), "`{word}` is not written as {heading}";
            "it may occur {times}"; "write {heading}");
    }
    for (span, table) in tables {
        let table = Section::open(document, known.name, table, span);
        section(config, spans, known.name, &table);
    }
}

fn section(config: &mut Config, spans: &mut Spans, name: &str, section: &Section<'_, '_>) {
    let span = section.span.clone();
    match name {
        "ca" => (config.ca, spans.ca) = (settings::ca(section), span),
        "state" => config.state = settings::state(section),
        "audit" => config.audit = settings::audit(section),
        "policy" => {
            config.policy = settings::policy(section);
            config.allow = allowed(section);
            let path = |text: &str| section.document.path(text);
            let presets = section.all("presets", |text| requested_preset(text, path));
            config.presets = config.request(presets);
            config.named_logins = section.all("logins", login_name);
        }
        "runtime" => config.runtime = settings::runtime(section),
        "resolver" => config.resolver = settings::resolver(section),
        "control" => config.control = control::control(section),
        "sessions" => config.sessions = settings::sessions(section),
        "limits" => config.limits = settings::limits(section),
        "sandbox" => (config.sandbox, spans.sandbox) = (sandbox::sandbox(section), span),
        "phantoms" => (config.phantoms, spans.phantoms) = (settings::phantoms(section), span),
        "fact" => {
            let fact = fact::fact(section);
            let tool = fact.as_ref().filter(|fact| fact.tool.is_some());
            let tool = tool.map(|fact| (fact.origins.clone(), section.span_of("tool")));
            spans.tools.extend(tool);
            let added = fact.map(|fact| config.facts.add(fact));
            if let Some(Err(clash)) = added {
                mistake!(section, "name", "{clash}";
                    "a name stands for one value, of one type, in each content";
                    "give one of them another name, or other origins");
            }
        }
        "read" => {
            if let Some(endpoint) = fact::endpoint(section) {
                config.facts.add_endpoint(endpoint);
            }
        }
        "budget" => take(
            budget::budget(section),
            span,
            &mut config.budgets,
            &mut spans.budgets,
        ),
        "price" => config.prices.extend(price::price(section)),
        "notify" => take(
            notify::notify(section),
            section.span_of("url"),
            &mut config.notify,
            &mut spans.notify,
        ),
        "store" | "vault" => store::add(section, &mut config.stores, &mut spans.stores),
        "export" => {
            let added = export::export(section);
            let is_there = |new: &ExportSettings| config.exports.iter().any(|one| one.is_as(new));
            if added.as_ref().is_some_and(is_there) {
                mistake!(section, "url", "another `[[export]]` sends the same there";
                    "how far an export has come is kept by its `url` and its form"; "remove one");
            }
            config.exports.extend(added);
        }
        "origin" if via::is_for_all(section) => {
            if config.defaults != AllOrigins::default() {
                mistake!(section, "match", "a second [[origin]] is for all origins";
                    "one of the two would not hold"; "merge them into one");
            }
            config.defaults = via::for_all(section);
        }
        "listener" => take(
            listener::listener(section),
            span,
            &mut config.listeners,
            &mut spans.listeners,
        ),
        "credential" => take(
            credential::credential(section),
            span,
            &mut config.credentials,
            &mut spans.credentials,
        ),
        "login" => take(
            login::login(section),
            span,
            &mut config.logins,
            &mut spans.logins,
        ),
        _ => take(
            origin::origin(section),
            span,
            &mut config.origins,
            &mut spans.origins,
        ),
    }
}

/// Reads the hosts of `[policy] allow`, and warns if the path of a URL is left out.
fn allowed(section: &Section<'_, '_>) -> Vec<HostPort> {
    let read = |text: &str| Ok((HostPort::parse(text)?, HostPort::leaves_out_path(text)));
    let hosts = section.each("allow", read).into_iter().map(|one| {
        let (span, (allowed, leaves_out_path)) = (one.span(), one.into_inner());
        if leaves_out_path {
            let host = &allowed.host;
            warning!(section.document, &span, "every path of `{host}` is allowed";
                "`allow` names a host, and the path of the URL is left out";
                "to allow some paths only, write a policy: `files` of `[policy]`");
        }
        allowed
    });
    hosts.collect()
}

fn take<T>(read: Option<T>, span: Range<usize>, list: &mut Vec<T>, spans: &mut Vec<Range<usize>>) {
    if let Some(item) = read {
        list.push(item);
        spans.push(span);
    }
}

fn unknown(document: &Document<'_>, key: &Spanned<DeString<'_>>) {
    let word = key.get_ref().as_ref();
    let names = || SECTIONS.iter().map(|known| known.name);
    let near = keys::nearest(word, names()).map(keys::heading);
    let all = names().map(keys::heading).collect();
    let remedy = keys::instead(word, near, ("sections", all));
    let word = shown(word);
    mistake!(document, &key.span(), "unknown section or key {word}";
        "a section that nothing reads would be settings that do not hold"; "{remedy}");
}

const LARGEST_MIB: u64 = 1;
