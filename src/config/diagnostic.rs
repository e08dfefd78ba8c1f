//! Findings about a configuration: the place, the mistake, its reason and its remedy.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use gateway_files::BadFile;
use gateway_policy::Problems;

/// Why a value is not accepted, and what to write instead.
macro_rules! hint {
    ($why:literal; $remedy:literal) => {
        $crate::Hint::new(format!($why), format!($remedy))
    };
}

/// Refuses a value: [`hint!`] as an error.
macro_rules! refused {
    ($($hint:literal);*) => {
        Err(hint!($($hint); *))
    };
}

/// Records an error at a place: what is wrong, why, and what to write instead.
macro_rules! mistake {
    ($here:expr, $place:expr, $what:literal; $($hint:literal);*) => {
        $here.error($place, format!($what), hint!($($hint); *))
    };
}

/// Records that a section lacks a key, if it does: why it needs one, and what to add.
macro_rules! require {
    ($section:expr, $key:expr; $($hint:literal);*) => {
        $section.require($key, hint!($($hint); *))
    };
}

/// Records a warning, as [`mistake!`] does an error.
macro_rules! warning {
    ($here:expr, $place:expr, $what:literal; $($hint:literal);*) => {
        $here.warn($place, format!($what), hint!($($hint); *))
    };
}

/// Whether a finding stops the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// A secret cannot be used at present. A command that lends it refuses the configuration; a
    /// command that only reads a log or a policy goes on.
    Unusable,
    /// The configuration is accepted, but the operator should look at it.
    Warning,
}

/// A position in a text. Line and column count characters from 1; 0 and 0 mean the whole text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The file, or `command line`.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

/// One finding about a configuration. It never holds a value that could be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The position in the file.
    pub position: Position,
    /// Whether it stops the gateway.
    pub severity: Severity,
    /// What is wrong.
    pub what: String,
    /// Why it is refused.
    pub why: String,
    /// What to write instead.
    pub remedy: String,
}

/// Why a single value is not accepted, without its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// Why the value is refused.
    pub why: String,
    /// What to write instead.
    pub remedy: String,
}

impl Hint {
    /// Creates a hint from its two sentences.
    pub fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            remedy: remedy.into(),
        }
    }

    /// Explains why a file cannot be read.
    pub(super) fn of(unfit: &BadFile, path: &Path) -> Self {
        Self::new(unfit.to_string(), unfit.remedy(path))
    }
}

/// Returns a function that turns an error into a hint with this remedy.
pub(super) fn remedy<E: fmt::Display>(remedy: &str) -> impl Fn(E) -> Hint {
    move |error| Hint::new(error.to_string(), remedy)
}

impl From<Problems> for Hint {
    fn from(Problems(problems): Problems) -> Self {
        let whys = problems
            .iter()
            .map(|problem| format!("`{}`: {}", problem.file, problem.reason));
        let whys: Vec<String> = whys.collect();
        let remedy = problems.into_iter().find_map(|problem| problem.help);
        Self::new(whys.join("; "), remedy.unwrap_or_default())
    }
}

impl Position {
    /// Returns the line and column where a byte range of `text` starts.
    pub fn of(file: &Arc<str>, text: &str, span: &Range<usize>) -> Self {
        let end = span.start.min(text.len());
        let before = text.as_bytes().get(..end).unwrap_or_default();
        let line_start = before.iter().rposition(|byte| *byte == b'\n');
        let line_start = line_start.map_or(0, |at| at + 1);
        // UTF-8 continuation bytes are not characters of their own.
        let column = before[line_start..]
            .iter()
            .filter(|byte| **byte & 0xC0 != 0x80)
            .count();
        Self {
            file: Arc::clone(file),
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            column: column + 1,
        }
    }

    /// Points at a text as a whole.
    pub fn whole(file: &Arc<str>) -> Self {
        Self {
            file: Arc::clone(file),
            line: 0,
            column: 0,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            f.write_str(&self.file)
        } else {
            write!(f, "{}:{}:{}", self.file, self.line, self.column)
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error | Self::Unusable => "error",
            Self::Warning => "warning",
        })
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}: {}\n    why: {}\n    fix: {}",
            self.position, self.severity, self.what, self.why, self.remedy
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_counts_lines_and_characters_from_one() {
        let file = Arc::from("a.toml");
        let text = "x = 1\né = \"ü\" # 2\n";
        let at = |start| {
            let position = Position::of(&file, text, &(start..start));
            (position.line, position.column)
        };
        assert_eq!(at(0), (1, 1));
        assert_eq!(at(4), (1, 5));
        assert_eq!(at(6), (2, 1));
        assert_eq!(at(8), (2, 2));
        assert_eq!(at(9_999), (3, 1));
    }
}
