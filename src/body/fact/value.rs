//! The types and values of facts, and the only form in which each value is accepted.

use std::fmt;
use std::str::FromStr;

/// The type that a value must have to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FactType {
    /// A whole number with magnitude below 2^53. In JSON, a number without fraction and exponent.
    /// In a form, the same digits.
    Long,
    /// A string without NUL.
    String,
    /// `true` or `false`.
    Bool,
    /// A JSON list of strings.
    Strings,
}

/// A value that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FactValue {
    /// A whole number.
    Long(i64),
    /// A string.
    String(String),
    /// A boolean.
    Bool(bool),
    /// The strings of a list.
    Strings(Vec<String>),
}

/// A text that does not name a [`FactType`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a type is `Long`, `String`, `Bool` or `Set<String>`")]
pub struct FactTypeUnknown(());

impl FactType {
    const ALL: [Self; 4] = [Self::Long, Self::String, Self::Bool, Self::Strings];

    /// The type's name in Cedar.
    pub fn name(self) -> &'static str {
        match self {
            Self::Long => "Long",
            Self::String => "String",
            Self::Bool => "Bool",
            Self::Strings => "Set<String>",
        }
    }
}

impl FromStr for FactType {
    type Err = FactTypeUnknown;

    fn from_str(text: &str) -> Result<Self, FactTypeUnknown> {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.name() == text)
            .ok_or(FactTypeUnknown(()))
    }
}

impl fmt::Display for FactType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The value of a text in a form, where every value is text.
pub(crate) fn of_text(text: &str, wanted: FactType) -> Option<FactValue> {
    match wanted {
        FactType::Long => canonical(text).and_then(of_number),
        FactType::Bool => text.parse().ok().map(FactValue::Bool),
        FactType::String => of_string(text),
        FactType::Strings => None,
    }
}

/// A string value. Very long strings are not read, nor strings with NUL, where some readers stop.
pub(crate) fn of_string(text: &str) -> Option<FactValue> {
    let is_read = text.len() <= LONGEST_TEXT && !text.contains('\0');
    is_read.then(|| FactValue::String(text.to_owned()))
}

/// Parses a number in canonical form only: `0`, `5`, `-5`.
fn canonical(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// A number that all readers represent exactly: some round numbers beyond 2^53 (RFC 7493 §2.2).
pub(crate) fn of_number(number: i64) -> Option<FactValue> {
    (number.unsigned_abs() < 1 << 53).then_some(FactValue::Long(number))
}

/// Bounds the text that policy patterns are matched against.
const LONGEST_TEXT: usize = 64 << 10;
