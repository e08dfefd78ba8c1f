//! The output of commands: plain in a pipe, coloured in a terminal, JSON for a machine.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

use serde::Serialize;

use crate::config::{Diagnostic, Severity};

use super::failure::{Failure, MistakeJson};

/// When output is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// In a terminal, unless `NO_COLOR` is set.
    Auto,
    /// In a pipe too.
    Always,
    /// In no case.
    Never,
}

/// Prints the output of one command.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    json: bool,
    out: bool,
    err: bool,
}

/// The colours in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Something failed.
    Red,
    /// Something needs attention.
    Yellow,
    /// Something succeeded.
    Green,
    /// Something important.
    Bold,
    /// Something that may be skipped.
    Dim,
}

impl Terminal {
    /// Creates a terminal on the process's standard output and error.
    #[must_use]
    pub fn new(json: bool, when: Color) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let painted = |terminal: bool| match when {
            Color::Auto => terminal && !plain,
            Color::Always => true,
            Color::Never => false,
        };
        Self {
            json,
            out: painted(std::io::stdout().is_terminal()),
            err: painted(std::io::stderr().is_terminal()),
        }
    }

    /// Whether the output is JSON.
    #[must_use]
    pub fn json(&self) -> bool {
        self.json
    }

    /// Prints a line to standard output. It is not a failure if the reader has gone.
    pub fn line(&self, text: impl AsRef<str>) {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", text.as_ref())
            .and_then(|()| out.flush())
            .unwrap_or(());
    }

    /// Prints a line to standard error.
    pub fn note(&self, text: impl AsRef<str>) {
        writeln!(std::io::stderr().lock(), "{}", text.as_ref()).unwrap_or(());
    }

    /// Colours a text for a note.
    #[must_use]
    pub fn paint_note(&self, paint: Paint, text: &str) -> String {
        painted(self.err, paint, text)
    }

    /// Prints one entry of a summary: a name, and a text that is broken between words where the
    /// terminal ends.
    pub fn entry(&self, name: &str, text: &str) {
        self.named(Paint::Dim, name, text);
    }

    /// As [`Terminal::entry`], for what needs attention.
    pub fn warning(&self, name: &str, text: &str) {
        self.named(Paint::Yellow, name, text);
    }

    fn named(&self, paint: Paint, name: &str, text: &str) {
        let name = painted(self.err, paint, &format!("gateway  {name:<8}"));
        self.note(format!("{name} {}", wrapped(text, width())));
    }

    /// Prints a JSON document to standard output.
    pub fn document(&self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(text) => self.line(harmless(text)),
            Err(error) => self.note(format!("gateway: the JSON cannot be written: {error}")),
        }
    }

    /// Colours a text for standard output.
    #[must_use]
    pub fn paint(&self, paint: Paint, text: &str) -> String {
        painted(self.out, paint, text)
    }

    /// Prints the warnings of a configuration to standard error.
    pub fn warn(&self, warnings: &[Diagnostic]) {
        for warning in warnings {
            self.note(self.mistake(warning));
        }
    }

    /// Prints a failure to standard error.
    pub fn fail(&self, failure: &Failure) {
        if self.json {
            let mistakes: Vec<MistakeJson<'_>> =
                failure.mistakes.iter().map(MistakeJson::from).collect();
            let error = serde_json::json!({
                "what": failure.what, "why": failure.why, "next": failure.next, "mistakes": mistakes,
            });
            return self.note(serde_json::json!({ "error": error }).to_string());
        }
        let mut text = String::new();
        for mistake in &failure.mistakes {
            text.push_str(&self.mistake(mistake));
            text.push('\n');
        }
        text.push_str(&format!(
            "gateway: {}",
            painted(self.err, Paint::Red, &safe(&failure.what))
        ));
        for (label, part) in [("why", &failure.why), ("next", &failure.next)] {
            if let Some(part) = part {
                write!(
                    text,
                    "\n  {}: {}",
                    painted(self.err, Paint::Bold, label),
                    safe(part)
                )
                .unwrap_or(());
            }
        }
        self.note(text);
    }

    fn mistake(&self, mistake: &Diagnostic) -> String {
        let paint = match mistake.severity {
            Severity::Error => Paint::Red,
            Severity::Warning => Paint::Yellow,
        };
        let bold = |text: &str| painted(self.err, Paint::Bold, text);
        format!(
            "{}: {}: {}\n    {}: {}\n    {}: {}",
            bold(&safe(&mistake.position.to_string())),
            painted(self.err, paint, &mistake.severity.to_string()),
            safe(&mistake.what),
            bold("why"),
            safe(&mistake.why),
            bold("fix"),
            safe(&mistake.remedy),
        )
    }
}

/// How many characters of an entry's text fit in one line of the terminal, if it is one.
fn width() -> usize {
    let error = std::io::stderr();
    let size = error
        .is_terminal()
        .then(|| rustix::termios::tcgetwinsize(&error));
    let columns = size
        .and_then(Result::ok)
        .map(|size| usize::from(size.ws_col));
    let columns = columns.filter(|columns| *columns >= NARROWEST);
    columns.map_or(usize::MAX, |columns| columns - INDENT)
}

/// Breaks a text between words. Further lines begin where the first one does.
fn wrapped(text: &str, width: usize) -> String {
    let (mut lines, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let long = word.chars().count();
        if length > 0 && length + 1 + long > width {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', INDENT));
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += long;
    }
    lines
}

/// The width of `gateway`, a name, and what is between them and the text.
const INDENT: usize = 18;
/// A narrower terminal breaks lines itself.
const NARROWEST: usize = 40;

fn painted(colours: bool, paint: Paint, text: &str) -> String {
    if !colours {
        return text.to_owned();
    }
    let code = match paint {
        Paint::Red => "1;31",
        Paint::Yellow => "33",
        Paint::Green => "32",
        Paint::Bold => "1",
        Paint::Dim => "2",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// Makes a peer's text safe for a terminal. Control, format and bidirectional characters are shown
/// by number.
#[must_use]
pub fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            write!(shown, "\\u{{{:x}}}", u32::from(c)).unwrap_or(());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a character could steer a terminal, or change how others are read.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}' | '\u{61C}' | '\u{E0000}'..='\u{E007F}')
}

/// The same JSON on one line, with escapes for every character that could steer a terminal.
fn harmless(json: String) -> String {
    if !json.contains(steers) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if steers(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").unwrap_or(());
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_steers_no_terminal_and_stays_the_same_json() {
        let hostile = "a\u{9b}31m\u{202e}\u{e0041}\u{2028}é\n";
        let shown = harmless(serde_json::to_string(hostile).unwrap());
        assert!(!shown.contains(steers), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), hostile);
    }

    #[test]
    fn a_text_is_broken_between_words_and_never_in_one() {
        let text = "api.github.com, github.com and 3 more";
        assert_eq!(wrapped(text, usize::MAX), text);
        let indent = " ".repeat(INDENT);
        let broken = format!("api.github.com,\n{indent}github.com and\n{indent}3 more");
        assert_eq!(wrapped(text, 15), broken);
        assert_eq!(
            wrapped("a-word-that-is-too-long b", 4),
            format!("a-word-that-is-too-long\n{indent}b")
        );
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_printed() {
        let shown = safe("a\u{1b}[31m\r\n\u{202e}\u{200b}\u{9b}é\u{e0041}");
        assert_eq!(
            shown,
            "a\\u{1b}[31m\\u{d}\\u{a}\\u{202e}\\u{200b}\\u{9b}é\\u{e0041}"
        );
    }
}
