//! Reads a configuration file key by key and keeps every mistake, instead of stopping at the first.

use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys;
use super::literal::{known_prefix, shown};
use super::mistake::{Doubt, Mistake, Position, Severity};

/// Holds one file while it is read: its text, where its paths start, and what was found wrong.
pub(super) struct Page<'t> {
    file: Arc<str>,
    text: &'t str,
    directory: PathBuf,
    home: Option<PathBuf>,
    found: RefCell<Vec<Mistake>>,
}

/// Holds one table of the file under the name of its section.
pub(super) struct Section<'p, 't> {
    /// The page that collects the mistakes.
    pub page: &'p Page<'t>,
    /// Where the table stands.
    pub span: Range<usize>,
    name: &'static str,
    table: &'p DeTable<'t>,
}

impl<'t> Page<'t> {
    pub fn new(file: Arc<str>, text: &'t str, directory: PathBuf, home: Option<PathBuf>) -> Self {
        Self {
            file,
            text,
            directory,
            home,
            found: RefCell::new(Vec::new()),
        }
    }

    /// Notes an error at a place of the file.
    pub fn error(&self, span: &Range<usize>, what: impl Into<String>, doubt: Doubt) {
        self.note(Severity::Error, span, what.into(), doubt);
    }

    /// Notes a warning at a place of the file.
    pub fn warn(&self, span: &Range<usize>, what: impl Into<String>, doubt: Doubt) {
        self.note(Severity::Warning, span, what.into(), doubt);
    }

    fn note(&self, severity: Severity, span: &Range<usize>, what: String, doubt: Doubt) {
        let mistake = Mistake {
            position: Position::of(&self.file, self.text, span),
            severity,
            what,
            why: doubt.why,
            remedy: doubt.remedy,
        };
        self.found.borrow_mut().push(mistake);
    }

    /// Gives all that was found, in the order of the file.
    pub fn into_found(self) -> Vec<Mistake> {
        let mut found = self.found.into_inner();
        found.sort_by(|left, right| left.position.cmp(&right.position));
        found.dedup();
        found
    }

    /// The path that a text means: relative to the file, `~/` the user's home.
    ///
    /// # Errors
    /// A [`Doubt`] where the text is empty or holds NUL, or where there is no home to stand for
    /// `~`.
    pub fn path(&self, text: &str) -> Result<PathBuf, Doubt> {
        resolve_path(text, &self.directory, self.home.as_deref())
    }

    /// Refuses a literal credential wherever it stands, without repeating it.
    pub fn refuse_literals(&self, table: &DeTable<'_>) {
        for (key, value) in table {
            self.refuse_literal(key.get_ref(), key.span());
            self.refuse_literals_in(value);
        }
    }

    fn refuse_literals_in(&self, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::String(text) => self.refuse_literal(text, value.span()),
            DeValue::Array(items) => items.iter().for_each(|item| self.refuse_literals_in(item)),
            DeValue::Table(table) => self.refuse_literals(table),
            _ => {}
        }
    }

    fn refuse_literal(&self, text: &str, span: Range<usize>) {
        if text.len() >= 20 && known_prefix(text) {
            self.error(
                &span,
                "a literal secret stands in the file",
                literal_doubt(),
            );
        }
    }
}

/// Why a literal secret is refused.
pub(super) fn literal_doubt() -> Doubt {
    Doubt::new(
        "the configuration holds references to secrets, never secrets: files are copied, committed and shown",
        "store it (`gateway secret set NAME`), write `from = \"keyring:gateway/NAME\"`, and rotate this one",
    )
}

/// The path that a text means: relative to `directory`, `~/` the user's home.
pub(super) fn resolve_path(
    text: &str,
    directory: &Path,
    home: Option<&Path>,
) -> Result<PathBuf, Doubt> {
    if text.is_empty() || text.contains('\0') {
        return Err(Doubt::new(
            "a path has at least one character and no NUL",
            "write a path",
        ));
    }
    if let Some(rest) = text
        .strip_prefix("~/")
        .or_else(|| (text == "~").then_some(""))
    {
        let home = home.ok_or_else(|| {
            Doubt::new("there is no HOME to stand for `~`", "write the whole path")
        })?;
        return Ok(home.join(rest));
    }
    if text.starts_with('~') {
        return Err(Doubt::new(
            "`~user` is not looked up",
            "write the whole path",
        ));
    }
    Ok(directory.join(text))
}

impl<'p, 't> Section<'p, 't> {
    /// Opens a table and refuses the keys that its section does not have.
    pub fn open(
        page: &'p Page<'t>,
        name: &'static str,
        table: &'p DeTable<'t>,
        span: Range<usize>,
    ) -> Self {
        let section = Self {
            page,
            span,
            name,
            table,
        };
        section.refuse_unknown();
        section
    }

    fn refuse_unknown(&self) {
        for (key, _) in self.table {
            let word = key.get_ref().as_ref();
            if keys::of(self.name).any(|known| known.name == word) {
                continue;
            }
            let known = || keys::of(self.name).map(|key| key.name);
            let elsewhere = keys::KEYS.iter().find(|key| key.name == word);
            let remedy = match (keys::nearest(word, known()), elsewhere) {
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, Some(key)) => format!("`{word}` belongs to {}", keys::heading(key.section)),
                (None, None) => format!(
                    "remove it; the keys here are {}",
                    known().collect::<Vec<_>>().join(", ")
                ),
            };
            let what = format!(
                "unknown key {} in {}",
                shown(word),
                keys::heading(self.name)
            );
            self.page
                .error(&key.span(), what, Doubt::new(UNKNOWN, remedy));
        }
    }

    /// The raw value of a key.
    pub fn value(&self, key: &'static str) -> Option<&'p Spanned<DeValue<'t>>> {
        debug_assert!(
            keys::of(self.name).any(|known| known.name == key),
            "`{key}` is no key of `{}`",
            self.name
        );
        self.table
            .iter()
            .find(|(name, _)| name.get_ref().as_ref() == key)
            .map(|(_, value)| value)
    }

    /// Whether the key is there at all.
    pub fn has(&self, key: &'static str) -> bool {
        self.value(key).is_some()
    }

    /// Where the key's value stands, or else the section.
    pub fn span_of(&self, key: &'static str) -> Range<usize> {
        self.value(key)
            .map_or_else(|| self.span.clone(), Spanned::span)
    }

    /// Notes an error about a key of this section.
    pub fn error(&self, key: &'static str, what: impl Into<String>, doubt: Doubt) {
        self.page.error(&self.span_of(key), what, doubt);
    }

    /// Notes that a key is missing.
    pub fn missing(&self, key: &'static str, why: &str, remedy: &str) {
        let what = format!("{} has no `{key}`", keys::heading(self.name));
        self.page.error(&self.span, what, Doubt::new(why, remedy));
    }

    fn mistyped(&self, key: &'static str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let what = format!(
            "`{key}` of {} is of type {}",
            keys::heading(self.name),
            value.get_ref().type_str()
        );
        let takes = keys::of(self.name)
            .find(|known| known.name == key)
            .map_or(wanted, |key| key.takes);
        self.page.error(
            &value.span(),
            what,
            Doubt::new(format!("it takes a {wanted}"), format!("write {takes}")),
        );
    }

    /// A text.
    pub fn text(&self, key: &'static str) -> Option<Spanned<&'p str>> {
        let value = self.value(key)?;
        match value.get_ref().as_str() {
            Some(text) => Some(Spanned::new(value.span(), text)),
            None => {
                self.mistyped(key, value, "text in quotes");
                None
            }
        }
    }

    /// A text that `parse` understands.
    pub fn parsed<T>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Doubt>,
    ) -> Option<Spanned<T>> {
        self.judge(key, self.text(key)?, parse)
    }

    /// A list of texts that `parse` understands each.
    pub fn each<T>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Doubt>,
    ) -> Vec<Spanned<T>> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let Some(items) = value.get_ref().as_array() else {
            self.mistyped(key, value, "list of texts in brackets");
            return Vec::new();
        };
        let mut taken = Vec::new();
        for item in items {
            match item.get_ref().as_str() {
                Some(text) => {
                    taken.extend(self.judge(key, Spanned::new(item.span(), text), &parse))
                }
                None => self.mistyped(key, item, "text in quotes"),
            }
        }
        taken
    }

    fn judge<T>(
        &self,
        key: &'static str,
        text: Spanned<&str>,
        parse: impl FnOnce(&str) -> Result<T, Doubt>,
    ) -> Option<Spanned<T>> {
        match parse(text.get_ref()) {
            Ok(value) => Some(Spanned::new(text.span(), value)),
            Err(doubt) => {
                let what = format!(
                    "`{key}` of {} is {}",
                    keys::heading(self.name),
                    shown(text.get_ref())
                );
                self.page.error(&text.span(), what, doubt);
                None
            }
        }
    }

    /// A truth value.
    pub fn truth(&self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        let truth = value.get_ref().as_bool();
        if truth.is_none() {
            self.mistyped(key, value, "truth value without quotes");
        }
        truth
    }

    /// A whole number within a range.
    pub fn count(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.value(key)?;
        let Some(number) = value.get_ref().as_integer() else {
            self.mistyped(key, value, "whole number without quotes");
            return None;
        };
        let count = u64::from_str_radix(number.as_str(), number.radix()).ok();
        let fits = count.filter(|count| range.contains(count));
        if fits.is_none() {
            let what = format!(
                "`{key}` of {} is {}",
                keys::heading(self.name),
                shown(number.as_str())
            );
            let why = format!("it is outside {} to {}", range.start(), range.end());
            self.page.error(
                &value.span(),
                what,
                Doubt::new(why, "write a number within that range"),
            );
        }
        fits
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let chosen = self.parsed(key, |text| {
            choices
                .iter()
                .find(|(word, _)| *word == text)
                .map(|(_, value)| *value)
                .ok_or_else(|| {
                    let words: Vec<_> = choices
                        .iter()
                        .map(|(word, _)| format!("`{word}`"))
                        .collect();
                    Doubt::new(
                        "it is none of the words that stand for something",
                        format!("write {}", words.join(" or ")),
                    )
                })
        });
        chosen.map(Spanned::into_inner)
    }

    /// The texts of a table whose names are not fixed, each with its name, which `check` takes.
    pub fn texts(
        &self,
        key: &'static str,
        check: impl Fn(&str) -> Result<(), Doubt>,
    ) -> Vec<(String, Spanned<String>)> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let Some(table) = value.get_ref().as_table() else {
            self.mistyped(key, value, "table in braces");
            return Vec::new();
        };
        let mut texts = Vec::new();
        for (name, value) in table {
            if let Err(doubt) = check(name.get_ref()) {
                let what = format!("unknown name {} in `{key}`", shown(name.get_ref()));
                self.page.error(&name.span(), what, doubt);
            } else if let Some(text) = value.get_ref().as_str() {
                texts.push((
                    name.get_ref().to_string(),
                    Spanned::new(value.span(), text.to_owned()),
                ));
            } else {
                self.mistyped(key, value, "table of texts");
            }
        }
        texts
    }

    /// The tables of a list.
    pub fn tables(&self, key: &'static str, name: &'static str) -> Vec<Section<'p, 't>> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let Some(items) = value.get_ref().as_array() else {
            self.mistyped(key, value, "list of tables in brackets");
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items {
            match item.get_ref().as_table() {
                Some(table) => tables.push(Section::open(self.page, name, table, item.span())),
                None => self.mistyped(key, item, "table in braces"),
            }
        }
        tables
    }

    /// A table within this one.
    pub fn inner(&self, key: &'static str, name: &'static str) -> Option<Section<'p, 't>> {
        let value = self.value(key)?;
        match value.get_ref().as_table() {
            Some(table) => Some(Section::open(self.page, name, table, value.span())),
            None => {
                self.mistyped(key, value, "table in braces");
                None
            }
        }
    }
}

const UNKNOWN: &str = "a key that nothing reads would be a setting that does not hold";
