//! Names of values in content: a JSON Pointer, or the name of a value in a form.

use std::fmt;
use std::str::FromStr;

use super::parameter::folded_parameter;

/// A JSON Pointer: the member names and list indices that lead to a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pointer(Vec<String>);

/// Why a text is not a pointer to a value inside a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a JSON Pointer begins with `/`, as `/messages/0/role`; in a name `~` is `~0` and `/` is `~1`"
)]
pub struct PointerMalformed(());

impl Pointer {
    /// The member names and list indices, unescaped.
    pub fn tokens(&self) -> &[String] {
        &self.0
    }

    /// The pointer from the root of a document whose value at `members` this one points into.
    #[must_use]
    pub fn below(&self, members: impl Iterator<Item = String>) -> Self {
        Self(members.chain(self.0.iter().cloned()).collect())
    }
}

impl FromStr for Pointer {
    type Err = PointerMalformed;

    fn from_str(text: &str) -> Result<Self, PointerMalformed> {
        let rest = text.strip_prefix('/').ok_or(PointerMalformed(()))?;
        let tokens = rest.split('/').map(|token| {
            let escapes = token.matches("~0").count() + token.matches("~1").count();
            let whole = token.matches('~').count() == escapes;
            whole.then(|| token.replace("~1", "/").replace("~0", "~"))
        });
        let tokens: Option<Vec<String>> = tokens.collect();
        tokens.map(Self).ok_or(PointerMalformed(()))
    }
}

/// The name of a value in a form, such as `amount` or `card[number]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FormName {
    text: String,
    parts: Vec<String>,
}

impl FormName {
    /// The name as it is written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The parts, each folded: `card` and `number`.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tokens = self.0.iter();
        tokens.try_for_each(|token| write!(f, "/{}", token.replace('~', "~0").replace('/', "~1")))
    }
}

impl fmt::Display for FormName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is not the name of a value in a form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a name in a form has letters, digits and `_`, `-`, `.`, and parts in brackets: `card[number]`"
)]
pub struct FormNameMalformed(());

impl FromStr for FormName {
    type Err = FormNameMalformed;

    fn from_str(text: &str) -> Result<Self, FormNameMalformed> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.[]".contains(&b);
        let parts = parts(text);
        let brackets = text.matches('[').count();
        let is_closed = text.matches(']').count() == brackets
            && (brackets == 0 || text.ends_with(']') && text.matches("][").count() + 1 == brackets);
        if !text.bytes().all(plain) || !is_closed || parts.iter().any(String::is_empty) {
            return Err(FormNameMalformed(()));
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }
}

/// Splits a name into parts, folded so that most spellings become equal.
pub fn parts(name: &str) -> Vec<String> {
    // Some readers stop at NUL.
    let name = name.split('\0').next().unwrap_or_default();
    // `a[b]c` is `a[b]` to PHP, and `[a][b]` is `a[b]` to Rack.
    let name = name.trim_start_matches(|letter: char| !letter.is_ascii_alphanumeric());
    let name = name.trim_end_matches(']').replace("][", "[");
    name.split(['[', ']']).map(part).collect()
}

/// Folds one part. Other characters than ASCII never belong to a name of a form, and some readers
/// drop them.
pub fn part(text: &str) -> String {
    let mut part = folded_parameter(text);
    part.retain(|letter| letter.is_ascii());
    part
}

/// Whether the name has the form that all readers split alike: `a`, `a[]`, `a[b][c]`.
pub fn is_plain(name: &str) -> bool {
    let (first, rest) = name.split_at(name.find(['[', ']']).unwrap_or(name.len()));
    let inner = rest
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let members = |inner: &str| inner.split("][").all(|one| !one.contains(['[', ']']));
    !first.starts_with([' ', '.', '\t', '+', '?'])
        && (name.is_empty() || !first.is_empty())
        && (rest.is_empty() || inner.is_some_and(members))
}
