//! Reads one table of a configuration file key by key. Records every mistake and goes on.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::certificates::{Certificates, certificates};
use super::diagnostic::{Hint, remedy};
use super::document::Document;
use super::keys;
use super::literal::shown;

/// One choice of a key: its word, the keys that it requires and the keys that it allows, each list
/// separated by spaces.
pub(super) type Variant = (&'static str, &'static str, &'static str);

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
        for (key, _) in table {
            let word = key.get_ref().as_ref();
            let known = || keys::of(name).map(|key| key.name);
            if !known().any(|known| known == word) {
                let near = keys::nearest(word, known()).map(|near| format!("`{near}`"));
                let all = known().map(str::to_owned).collect();
                let remedy = keys::instead(word, near, ("keys here", all));
                let (word, section) = (shown(word), keys::heading(name));
                mistake!(document, &key.span(), "unknown key {word} in {section}";
                    "a key that nothing reads would be a setting that does not hold"; "{remedy}");
            }
        }
        Self {
            document,
            span,
            name,
            table,
        }
    }

    /// Whether it is the section with this name.
    pub fn is(&self, name: &str) -> bool {
        self.name == name
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

    /// Records a warning about a key of this section.
    pub fn warn(&self, key: &'static str, what: impl Into<String>, hint: Hint) {
        self.document.warn(&self.span_of(key), what, hint);
    }

    /// Records that a key is missing.
    pub fn missing(&self, key: &'static str, hint: Hint) {
        let what = format!("{} has no `{key}`", keys::heading(self.name));
        self.document.error(&self.span, what, hint);
    }

    /// Records that a key is missing, if it is.
    pub fn require(&self, key: &'static str, hint: Hint) {
        if !self.has(key) {
            self.missing(key, hint);
        }
    }

    /// Records an error about each of these keys that is present.
    pub fn refuse(&self, keys: &[&'static str], what: &str, hint: Hint) {
        for key in keys.iter().filter(|key| self.has(key)) {
            self.error(key, format!("`{key}` {what}"), hint.clone());
        }
    }

    /// Checks that its keys, apart from `common`, belong to the word that `key` chooses: others
    /// would have no effect.
    pub fn variant(&self, (key, chosen): (&str, &str), (variants, common): (&[Variant], &str)) {
        let Some((_, needed, allowed)) = variants.iter().find(|(word, ..)| *word == chosen) else {
            return;
        };
        for name in needed.split(' ') {
            require!(self, name; "`{key} = \"{chosen}\"` needs it"; "add `{name} = \"…\"`");
        }
        let known = || {
            [common, needed, allowed]
                .into_iter()
                .flat_map(|all| all.split(' '))
        };
        for name in self
            .keys()
            .filter(|name| !known().any(|known| known == *name))
        {
            mistake!(self, name, "`{name}` does not belong to `{key} = \"{chosen}\"`";
                "the {key} does not use it"; "remove `{name}`");
        }
    }

    fn mistyped(&self, key: &'static str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let (section, found) = (keys::heading(self.name), value.get_ref().type_str());
        let takes = keys::of(self.name)
            .find(|known| known.name == key)
            .map_or(wanted, |key| key.takes);
        let example = match takes {
            "duration" => "a duration, such as \"10s\" or \"24h\"",
            "size" => "a size, such as \"64KiB\" or \"256MiB\"",
            "true or false" => takes,
            other => &format!("a {other}"),
        };
        mistake!(self.document, &value.span(), "`{key}` of {section} is of type {found}";
            "it takes a {wanted}"; "write {example}");
    }

    /// Returns a value of the type that `read` accepts. A value of another type is a mistake.
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
    pub fn get<T>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Hint>,
    ) -> Option<T> {
        self.accept(key, self.text(key)?, parse)
            .map(Spanned::into_inner)
    }

    /// Returns a list of texts, each read by `parse`.
    pub fn all<T>(&self, key: &'static str, parse: impl Fn(&str) -> Result<T, Hint>) -> Vec<T> {
        let list = self.each(key, parse).into_iter();
        list.map(Spanned::into_inner).collect()
    }

    /// Returns a list of texts, each read by `parse`, with its position.
    pub fn each<T>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Hint>,
    ) -> Vec<Spanned<T>> {
        let items = self.items(key, "text in quotes", DeValue::as_str);
        let items = items.into_iter();
        let taken = items.filter_map(|text| self.accept(key, text, &parse));
        taken.collect()
    }

    /// Returns the items of a list that `read` accepts. Any other item is a mistake.
    fn items<T>(
        &self,
        key: &'static str,
        wanted: &str,
        read: impl Fn(&'p DeValue<'t>) -> Option<T>,
    ) -> Vec<Spanned<T>> {
        let list = match wanted {
            "text in quotes" => "list of texts in brackets",
            _ => "list of tables in brackets",
        };
        let items = self.typed(key, list, DeValue::as_array);
        let items = items.into_iter().flat_map(Spanned::into_inner);
        let items = items.filter_map(|item| match read(item.get_ref()) {
            Some(value) => Some(Spanned::new(item.span(), value)),
            None => {
                self.mistyped(key, item, wanted);
                None
            }
        });
        items.collect()
    }

    /// Reads a text of a key. Records the hint if `parse` refuses it.
    pub fn accept<T>(
        &self,
        key: &'static str,
        text: Spanned<&str>,
        parse: impl FnOnce(&str) -> Result<T, Hint>,
    ) -> Option<Spanned<T>> {
        let refuse = |hint| {
            let (section, shown) = (keys::heading(self.name), shown(text.get_ref()));
            let what = format!("`{key}` of {section} is {shown}");
            self.document.error(&text.span(), what, hint);
        };
        let value = parse(text.get_ref()).map_err(refuse).ok()?;
        Some(Spanned::new(text.span(), value))
    }

    /// Returns a path.
    pub fn path(&self, key: &'static str) -> Option<PathBuf> {
        self.get(key, |text| self.document.path(text))
    }

    /// Returns a list of paths.
    pub fn paths(&self, key: &'static str) -> Vec<PathBuf> {
        self.all(key, |text| self.document.path(text))
    }

    /// Returns the certificates of a file, and the file.
    pub fn certificates(&self, key: &'static str) -> Option<Certificates> {
        self.get(key, |text| certificates(self.document.path(text)?))
    }

    /// Returns the certificates of a list of files, and the files.
    pub fn roots(&self, key: &'static str) -> (Vec<PathBuf>, Vec<CertificateDer<'static>>) {
        let read = self.all(key, |text| certificates(self.document.path(text)?));
        let (files, roots): (_, Vec<_>) = read.into_iter().unzip();
        (files, roots.concat())
    }

    /// Returns a Boolean; `None` if the key is absent.
    pub fn truth(&self, key: &'static str) -> Option<bool> {
        self.typed(key, "truth value without quotes", DeValue::as_bool)
            .map(Spanned::into_inner)
    }

    /// Returns whether the key is `true`.
    pub fn is_true(&self, key: &'static str) -> bool {
        self.truth(key).unwrap_or(false)
    }

    /// Returns a whole number within a range.
    pub fn count<T: TryFrom<u64>>(
        &self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<T> {
        let value = self.typed(key, "whole number without quotes", DeValue::as_integer)?;
        let (span, number) = (value.span(), value.into_inner());
        let fits = |_: &str| {
            let count = u64::from_str_radix(number.as_str(), number.radix()).ok();
            let count = count.filter(|count| range.contains(count));
            let (least, most) = (range.start(), range.end());
            count.ok_or_else(
                || hint!("it is outside {least} to {most}"; "write a number within that range"),
            )
        };
        let count = self.accept(key, Spanned::new(span, number.as_str()), fits)?;
        T::try_from(count.into_inner()).ok()
    }

    /// Returns an amount, read by `parse`: a whole number, or money as text.
    pub fn amount<T>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Hint>,
    ) -> Option<T> {
        let read = |value: &DeValue<'_>| match value {
            DeValue::Integer(number) => {
                let read = u64::from_str_radix(number.as_str(), number.radix());
                Some(read.map_or_else(|_| number.as_str().to_owned(), |read| read.to_string()))
            }
            text => text.as_str().map(str::to_owned),
        };
        let value = self.typed(key, "whole number, or money as text in quotes", read)?;
        let (span, text) = (value.span(), value.into_inner());
        self.accept(key, Spanned::new(span, &*text), parse)
            .map(Spanned::into_inner)
    }

    /// Returns a number that may have decimals, read as it is written, so that nothing is rounded.
    pub fn decimal<T: FromStr<Err: fmt::Display>>(
        &self,
        key: &'static str,
        example: &'static str,
    ) -> Option<T> {
        let number = self.typed(key, "number without quotes", |value| match value {
            DeValue::Integer(whole) if whole.radix() == 10 => Some(whole.as_str()),
            DeValue::Float(number) => Some(number.as_str()),
            _ => None,
        })?;
        self.accept(key, number, parsed(example))
            .map(Spanned::into_inner)
    }

    /// Returns one of a few words.
    pub fn choice<T: Clone>(&self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        self.get(key, |text| {
            let known = choices.iter().find(|(word, _)| *word == text);
            let words = || choices.iter().map(|(word, _)| format!("`{word}`"));
            known.map(|(_, value)| value.clone()).ok_or_else(|| {
                let words = words().collect::<Vec<_>>().join(" or ");
                hint!("it is not one of the known words"; "write {words}")
            })
        })
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
                let text = Spanned::new(value.span(), text.to_owned());
                texts.push((name.get_ref().to_string(), text));
            } else {
                self.mistyped(key, value, "table of texts");
            }
        }
        texts
    }

    /// Returns the tables of a list.
    pub fn tables(&self, key: &'static str, name: &'static str) -> Vec<Self> {
        let items = self.items(key, "table in braces", DeValue::as_table);
        let open = |table| self.opened(name, table);
        items.into_iter().map(open).collect()
    }

    /// Returns a table within this one.
    pub fn inner(&self, key: &'static str, name: &'static str) -> Option<Self> {
        let table = self.typed(key, "table in braces", DeValue::as_table)?;
        Some(self.opened(name, table))
    }

    fn opened(&self, name: &'static str, table: Spanned<&'p DeTable<'t>>) -> Self {
        let (span, table) = (table.span(), table.into_inner());
        Self::open(self.document, name, table, span)
    }
}

/// Returns the text if it has 1 to `most` bytes and all of them fit.
pub(super) fn characters(text: &str, most: usize, fits: impl Fn(u8) -> bool) -> Option<String> {
    let all = (1..=most).contains(&text.len()) && text.bytes().all(fits);
    all.then(|| text.to_owned())
}

/// Reads a name or an id.
pub(super) fn word(text: &str) -> Result<String, Hint> {
    characters(text, 256, |byte| byte.is_ascii_graphic())
        .ok_or_else(|| hint!("it has 1 to 256 visible characters"; "write the name or id"))
}

/// Reads a value with its type's own notation. The hint of a refused value has this remedy.
pub(super) fn parsed<T: FromStr<Err: fmt::Display>>(
    example: &'static str,
) -> impl Fn(&str) -> Result<T, Hint> {
    move |text| text.parse().map_err(remedy(example))
}
