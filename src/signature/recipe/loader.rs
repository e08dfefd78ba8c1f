//! Looks up the names in a description and collects the mistakes in it.

use std::collections::BTreeSet;
use std::fmt;

use super::canonical::Selection;
use super::name::Name;
use super::place::Slot;
use super::raw::RawRecipe;
use super::template::Template;

/// A mistake in a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The place of the mistake: `part.key`, `let.scope`, `place 2`.
    pub at: String,
    /// The mistake itself.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// The names in a description, and the mistakes found in it so far.
pub(super) struct Loader {
    parts: Vec<String>,
    values: Vec<String>,
    steps: Vec<String>,
    mistakes: Vec<Mistake>,
}

impl Loader {
    pub(super) fn new(raw: &RawRecipe) -> Loader {
        Loader {
            parts: raw.part.keys().cloned().collect(),
            values: raw.value.keys().cloned().collect(),
            steps: raw.steps.keys().cloned().collect(),
            mistakes: Vec::new(),
        }
    }

    /// Returns the loaded value, unless there were mistakes.
    pub(super) fn finish<T>(self, loaded: T) -> Result<T, Vec<Mistake>> {
        if self.mistakes.is_empty() {
            Ok(loaded)
        } else {
            Err(self.mistakes)
        }
    }

    pub(super) fn wrong(&mut self, at: impl Into<String>, what: impl Into<String>) {
        self.mistakes.push(Mistake {
            at: at.into(),
            what: what.into(),
        });
    }

    pub(super) fn template(&mut self, at: &str, text: &str) -> Template {
        let resolve = |name: &str| {
            let index = |names: &[String]| names.iter().position(|known| known == name);
            index(&self.parts)
                .map(Name::Part)
                .or_else(|| index(&self.values).map(Name::Value))
                .or_else(|| index(&self.steps).map(Name::Step))
                .or_else(|| (name == "signature").then_some(Name::Signature))
        };
        match Template::parse(text, &resolve) {
            Ok(template) => template,
            Err(what) => {
                self.wrong(at, what);
                Template(Vec::new())
            }
        }
    }

    pub(super) fn selection(&mut self, at: &str, text: &str) -> Selection {
        Selection::parse(text, &|_| None).unwrap_or_else(|what| {
            self.wrong(at, what);
            Selection::default()
        })
    }

    pub(super) fn slots(&mut self, at: &str, texts: &[String]) -> Vec<Slot> {
        let mut slots = Vec::new();
        for text in texts {
            match Slot::parse(text) {
                Some(slot) => slots.push(slot),
                None => self.wrong(at, format!("`{text}` is no place: `header:NAME`, `query:NAME`, `form:NAME`, `json:NAME`, `authorization:SCHEME:NAME`")),
            }
        }
        slots
    }

    /// Checks that every name is well-formed, not reserved, and used once.
    pub(super) fn check_names(&mut self) {
        let names: Vec<String> = [&self.parts, &self.values, &self.steps]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let mut seen = BTreeSet::new();
        for name in names {
            let fits = name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            if !fits || name.is_empty() {
                self.wrong(&name, "a name has only a-z, 0-9 and `-`");
            }
            if RESERVED.contains(&name.as_str()) {
                self.wrong(&name, "this name is taken by the language");
            }
            if !seen.insert(name.clone()) {
                self.wrong(&name, "this name stands for two things");
            }
        }
    }
}

/// Names of terms that take no argument, and the signature's.
const RESERVED: [&str; 8] =
    gateway_names::word_list("method host scheme path query target content signature");
