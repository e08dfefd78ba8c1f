//! What is wrong in a configuration: where, what, why, and what to do next.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::policy::Problems;

/// Tells whether a finding stops the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// The configuration is taken; the operator should look at it.
    Warning,
}

/// Points into a text: line and column count characters from 1; 0 and 0 is the text as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The file, or `command line`.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

/// Holds one finding about a configuration. It never holds a value that could be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where it stands.
    pub position: Position,
    /// Whether it stops the gateway.
    pub severity: Severity,
    /// What is wrong.
    pub what: String,
    /// Why that is refused.
    pub why: String,
    /// What to write instead.
    pub remedy: String,
}

/// Says why a single value is not accepted, without where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// Why the value is refused.
    pub why: String,
    /// What to write instead.
    pub remedy: String,
}

impl Hint {
    /// Makes a hint of its two sentences.
    pub fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            remedy: remedy.into(),
        }
    }
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
    /// Finds the line and column of a byte range's start within `text`.
    #[must_use]
    pub fn of(file: &Arc<str>, text: &str, span: &Range<usize>) -> Self {
        let end = span.start.min(text.len());
        let before = text.as_bytes().get(..end).unwrap_or_default();
        let line_start = before
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        // Continuation bytes of UTF-8 are no characters of their own.
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
    #[must_use]
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
            Self::Error => "error",
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
