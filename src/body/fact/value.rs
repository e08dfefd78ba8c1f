//! The types and values of facts, and the only form in which each value is accepted.

use std::str::FromStr;

gateway_names::words! {
    /// The type that a value must have to be read.
    pub enum FactType {
        /// A whole number with magnitude below 2^53. In JSON, a number without fraction and
        /// exponent. In a form, the same digits.
        Long = "Long",
        /// A string without NUL.
        String = "String",
        /// `true` or `false`.
        Bool = "Bool",
        /// A JSON list of strings.
        Strings = "Set<String>",
    }
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

impl FromStr for FactType {
    type Err = FactTypeUnknown;

    fn from_str(text: &str) -> Result<Self, FactTypeUnknown> {
        Self::named(text).ok_or(FactTypeUnknown(()))
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
