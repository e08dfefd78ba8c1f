//! A configuration file being read, with every mistake found in it.

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gateway_credential::SecretRef;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Hint, Position, Severity};
use super::literal::known_prefix;

/// A file being read: its text, the base of its paths, and the findings so far.
pub(super) struct Document<'t> {
    file: Arc<str>,
    text: &'t str,
    directory: PathBuf,
    home: Option<PathBuf>,
    found: RefCell<Vec<Diagnostic>>,
    in_stores: RefCell<Vec<InStore>>,
}

/// A reference to a store, with its place and its key.
type InStore = (Range<usize>, String, SecretRef);

/// The message about a secret that stands in the file.
const LITERAL: &str = "the file contains a literal secret";

impl<'t> Document<'t> {
    pub fn new(file: Arc<str>, text: &'t str, directory: PathBuf, home: Option<PathBuf>) -> Self {
        Self {
            file,
            text,
            directory,
            home,
            found: RefCell::default(),
            in_stores: RefCell::default(),
        }
    }

    /// Notes a reference to a store, which is checked when all stores are known.
    pub fn note_in_store(&self, span: &Range<usize>, key: &str, reference: &SecretRef) {
        let noted = (span.clone(), key.to_owned(), reference.clone());
        self.in_stores.borrow_mut().push(noted);
    }

    /// Returns the references to stores that were noted.
    pub fn in_stores(&self) -> Vec<InStore> {
        self.in_stores.take()
    }

    /// Returns the name of the file, as it was given.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Records an error at a place in the file.
    pub fn error(&self, span: &Range<usize>, what: impl Into<String>, hint: Hint) {
        self.note(Severity::Error, span, what.into(), hint);
    }

    /// Records at a place in the file that a secret cannot be used.
    pub fn unusable(&self, span: &Range<usize>, what: impl Into<String>, hint: Hint) {
        self.note(Severity::Unusable, span, what.into(), hint);
    }

    /// Records a warning at a place in the file.
    pub fn warn(&self, span: &Range<usize>, what: impl Into<String>, hint: Hint) {
        self.note(Severity::Warning, span, what.into(), hint);
    }

    fn note(&self, severity: Severity, span: &Range<usize>, what: String, hint: Hint) {
        let mistake = Diagnostic {
            position: Position::of(&self.file, self.text, span),
            severity,
            what,
            why: hint.why,
            remedy: hint.remedy,
        };
        self.found.borrow_mut().push(mistake);
    }

    /// Returns all findings, in the order of the file.
    pub fn into_found(self) -> Vec<Diagnostic> {
        let mut found = self.found.into_inner();
        found.sort_by(|left, right| left.position.cmp(&right.position));
        // A literal secret is reported once, without what its key makes of it.
        found.dedup_by(|one, known| {
            let is_same = one == known || known.what == LITERAL;
            is_same && one.position == known.position && one.why == known.why
        });
        found
    }

    /// Resolves a path relative to the file; `~/` is the user's home.
    ///
    /// # Errors
    /// Returns a [`Hint`] if the text is empty or contains NUL, or if `~` is used and there is no
    /// home.
    pub fn path(&self, text: &str) -> Result<PathBuf, Hint> {
        resolve_path(text, &self.directory, self.home.as_deref())
    }

    /// Refuses literal credentials anywhere in the table, without repeating them.
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
            self.error(&span, LITERAL, literal_hint());
        }
    }
}

/// Returns why a literal secret is refused.
pub(super) fn literal_hint() -> Hint {
    hint!("the configuration holds references to secrets, never secrets: files are copied, committed and shown";
        "store it (`gateway secret set NAME`), write `from = \"keyring:gateway/NAME\"`, and rotate this one")
}

/// Resolves a path relative to `directory`; `~/` is the user's home.
pub(super) fn resolve_path(
    text: &str,
    directory: &Path,
    home: Option<&Path>,
) -> Result<PathBuf, Hint> {
    if text.is_empty() || text.contains('\0') {
        return refused!("a path has at least one character and no NUL"; "write a path");
    }
    if let Some(rest) = text
        .strip_prefix("~/")
        .or_else(|| (text == "~").then_some(""))
    {
        let home = home.ok_or_else(
            || hint!("HOME is not set, so `~` has no meaning"; "write the whole path"),
        )?;
        return Ok(home.join(rest));
    }
    if text.starts_with('~') {
        return refused!("`~user` is not looked up"; "write the whole path");
    }
    Ok(directory.join(text))
}
