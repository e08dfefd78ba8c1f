//! Reads one table of a configuration file key by key. Records every mistake and goes on.

use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::Hint;
use super::document::Document;
use super::keys;
use super::literal::shown;

/// One table of the file, with the name of its section.
pub(super) struct Section<'p, 't> {
    /// The document that collects the mistakes.
    pub document: &'p Document<'t>,
    /// Where the table is in the file.
    pub span: Range<usize>,
    name: &'static str,
    table: &'p DeTable<'t>,
}

impl<'p, 't> Section<'p, 't> {
    /// Opens a table and refuses keys that its section does not have.
    pub fn open(
        document: &'p Document<'t>,
        name: &'static str,
        table: &'p DeTable<'t>,
        span: Range<usize>,
    ) -> Self {
        let section = Self {
            document,
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
            self.document
                .error(&key.span(), what, Hint::new(UNKNOWN, remedy));
        }
    }

    /// Returns the keys that are present and known.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        keys::of(self.name)
            .map(|key| key.name)
            .filter(|name| self.has(name))
    }

    /// Returns the raw value of a key.
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

    /// Returns whether the key is present.
    pub fn has(&self, key: &'static str) -> bool {
        self.value(key).is_some()
    }

    /// Returns where the key's value is, or else where the section is.
    pub fn span_of(&self, key: &'static str) -> Range<usize> {
        self.value(key)
            .map_or_else(|| self.span.clone(), Spanned::span)
    }

    /// Records an error about a key of this section.
    pub fn error(&self, key: &'static str, what: impl Into<String>, hint: Hint) {
        self.document.error(&self.span_of(key), what, hint);
    }

    /// Records that a key is missing.
    pub fn missing(&self, key: &'static str, why: &str, remedy: &str) {
        let what = format!("{} has no `{key}`", keys::heading(self.name));
        self.document
            .error(&self.span, what, Hint::new(why, remedy));
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
        self.document.error(
            &value.span(),
            what,
            Hint::new(
                format!("it takes a {wanted}"),
                format!("write {}", example(takes)),
            ),
        );
    }

    /// Returns a value of the type that `read` takes. One of another type is a mistake.
    fn typed<T>(
        &self,
        key: &'static str,
        wanted: &str,
        read: impl FnOnce(&'p DeValue<'t>) -> Option<T>,
    ) -> Option<Spanned<T>> {
        let value = self.value(key)?;
        let read = read(value.get_ref());
        if read.is_none() {
            self.mistyped(key, value, wanted);
        }
        Some(Spanned::new(value.span(), read?))
    }

    /// Returns a text.
    pub fn text(&self, key: &'static str) -> Option<Spanned<&'p str>> {
        self.typed(key, "text in quotes", DeValue::as_str)
    }

    /// Returns a text, read by `parse`.
    pub fn parsed<T>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Hint>,
    ) -> Option<Spanned<T>> {
        self.accept(key, self.text(key)?, parse)
    }

    /// Returns a list of texts, each read by `parse`.
    pub fn each<T>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Hint>,
    ) -> Vec<Spanned<T>> {
        let Some(items) = self.typed(key, "list of texts in brackets", DeValue::as_array) else {
            return Vec::new();
        };
        let mut taken = Vec::new();
        for item in items.into_inner() {
            match item.get_ref().as_str() {
                Some(text) => {
                    taken.extend(self.accept(key, Spanned::new(item.span(), text), &parse))
                }
                None => self.mistyped(key, item, "text in quotes"),
            }
        }
        taken
    }

    fn accept<T>(
        &self,
        key: &'static str,
        text: Spanned<&str>,
        parse: impl FnOnce(&str) -> Result<T, Hint>,
    ) -> Option<Spanned<T>> {
        match parse(text.get_ref()) {
            Ok(value) => Some(Spanned::new(text.span(), value)),
            Err(hint) => {
                self.refuse(key, &text, hint);
                None
            }
        }
    }

    /// Records that a key does not take the value that it has.
    fn refuse(&self, key: &'static str, value: &Spanned<&str>, hint: Hint) {
        let (section, shown) = (keys::heading(self.name), shown(value.get_ref()));
        let what = format!("`{key}` of {section} is {shown}");
        self.document.error(&value.span(), what, hint);
    }

    /// Returns a Boolean.
    pub fn truth(&self, key: &'static str) -> Option<bool> {
        self.typed(key, "truth value without quotes", DeValue::as_bool)
            .map(Spanned::into_inner)
    }

    /// Returns a whole number within a range.
    pub fn count(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.typed(key, "whole number without quotes", DeValue::as_integer)?;
        let (span, number) = (value.span(), value.into_inner());
        let count = u64::from_str_radix(number.as_str(), number.radix()).ok();
        let fits = count.filter(|count| range.contains(count));
        if fits.is_none() {
            let why = format!("it is outside {} to {}", range.start(), range.end());
            let hint = Hint::new(why, "write a number within that range");
            self.refuse(key, &Spanned::new(span, number.as_str()), hint);
        }
        fits
    }

    /// Returns one of a few words.
    pub fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let chosen = self.parsed(key, |text| {
            let known = choices.iter().find(|(word, _)| *word == text);
            known
                .map(|(_, value)| *value)
                .ok_or_else(|| no_word_of(choices))
        });
        chosen.map(Spanned::into_inner)
    }

    /// Returns the texts of a table with arbitrary names. Each name must pass `check`.
    pub fn texts(
        &self,
        key: &'static str,
        check: impl Fn(&str) -> Result<(), Hint>,
    ) -> Vec<(String, Spanned<String>)> {
        let Some(table) = self.typed(key, "table in braces", DeValue::as_table) else {
            return Vec::new();
        };
        let mut texts = Vec::new();
        for (name, value) in table.into_inner() {
            if let Err(hint) = check(name.get_ref()) {
                let what = format!("unknown name {} in `{key}`", shown(name.get_ref()));
                self.document.error(&name.span(), what, hint);
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

    /// Returns the tables of a list.
    pub fn tables(&self, key: &'static str, name: &'static str) -> Vec<Section<'p, 't>> {
        let Some(items) = self.typed(key, "list of tables in brackets", DeValue::as_array) else {
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items.into_inner() {
            match item.get_ref().as_table() {
                Some(table) => tables.push(Section::open(self.document, name, table, item.span())),
                None => self.mistyped(key, item, "table in braces"),
            }
        }
        tables
    }

    /// Returns a table within this one.
    pub fn inner(&self, key: &'static str, name: &'static str) -> Option<Section<'p, 't>> {
        let table = self.typed(key, "table in braces", DeValue::as_table)?;
        let (span, table) = (table.span(), table.into_inner());
        Some(Section::open(self.document, name, table, span))
    }
}

/// Why a text is refused that is none of a few words.
fn no_word_of<T>(choices: &[(&str, T)]) -> Hint {
    let words = choices.iter().map(|(word, _)| format!("`{word}`"));
    let words: Vec<String> = words.collect();
    let remedy = format!("write {}", words.join(" or "));
    Hint::new("it is not one of the known words", remedy)
}

const UNKNOWN: &str = "a key that nothing reads would be a setting that does not hold";
/// How a value of this kind is written.
fn example(takes: &str) -> String {
    match takes {
        "duration" => String::from("a duration, such as \"10s\" or \"24h\""),
        "size" => String::from("a size, such as \"64KiB\" or \"256MiB\""),
        "true or false" => takes.to_owned(),
        other => format!("a {other}"),
    }
}
