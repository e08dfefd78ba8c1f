//! The output of commands: plain in a pipe, coloured in a terminal, JSON for a machine.

pub mod standard_error;
pub mod text;

use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use gateway_config::{Diagnostic, Severity};

use crate::terminal::standard_error::StandardError;
use crate::terminal::text::{folded, harmless, width_of};
use crate::{Code, Failure};

pub use crate::terminal::text::safe;

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
    pub fn new(json: bool, when: Color) -> Self {
        let plain =
            std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) || is_dumb();
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
    pub fn json(&self) -> bool {
        self.json
    }

    /// Prints a line to standard output. A reader that has gone is not a failure.
    pub fn line(&self, text: impl AsRef<str>) {
        let mut out = std::io::stdout().lock();
        let written = writeln!(out, "{}", text.as_ref()).and_then(|()| out.flush());
        if written.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
            UNWRITTEN.store(true, Ordering::Relaxed);
        }
    }

    /// Turns a successful exit code into a failure if the output could not be written.
    pub fn written(&self, code: Code) -> Result<Code, Failure> {
        match code {
            Code::Ok if UNWRITTEN.load(Ordering::Relaxed) => {
                Err(Failure::new("the output could not be written").next("see the disk"))
            }
            code => Ok(code),
        }
    }

    /// Prints a line to standard error.
    pub fn note(&self, text: impl AsRef<str>) {
        note(text);
    }

    /// Undoes changes to the terminal by which a command could hide or disguise later output. The
    /// cursor stays. A terminal that does not know these sequences would print them.
    pub fn reset(&self) {
        let mut error = std::io::stderr().lock();
        if error.is_terminal() && !is_dumb() {
            let written = error.write_all(RESET.as_bytes());
            written.and_then(|()| error.flush()).unwrap_or(());
        }
    }

    /// Colours a text for a note.
    pub fn paint_note(&self, paint: Paint, text: &str) -> String {
        painted(self.err, paint, text)
    }

    /// Prints one entry of a summary: a name, and a text that is wrapped between words at the width
    /// of the terminal.
    pub fn entry(&self, name: &str, text: &str) {
        self.named(Paint::Dim, name, text);
    }

    /// As [`Terminal::entry`], for entries that need attention.
    pub fn warning(&self, name: &str, text: &str) {
        self.named(Paint::Yellow, name, text);
    }

    /// As [`Terminal::entry`], with a peer's text: no part of it begins a row, however long it is.
    pub fn entry_of_peer(&self, name: &str, text: &str) {
        let name = painted(self.err, Paint::Dim, &format!("gateway  {name:<8}"));
        let rows = folded(text, room(width(std::io::stderr()), INDENT));
        let rows = rows.join(&format!("\n{:INDENT$}", ""));
        self.note(format!("{name} {rows}"));
    }

    /// As [`Terminal::line`], with a peer's text: no part of it begins a row.
    pub fn line_of_peer(&self, text: &str) {
        rows_of_peer(text).iter().for_each(|row| self.line(row));
    }

    fn named(&self, paint: Paint, name: &str, text: &str) {
        let name = painted(self.err, paint, &format!("gateway  {name:<8}"));
        let text = wrapped(text, width(std::io::stderr()), INDENT);
        self.note(format!("{name} {text}"));
    }

    /// Prints a JSON document to standard output.
    pub fn document(&self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(text) => self.line(harmless(text)),
            Err(error) => self.note(format!("gateway: the JSON cannot be written: {error}")),
        }
    }

    /// Prints a JSON document, or for a person the line with the same content.
    pub fn answer(&self, document: &impl Serialize, line: impl AsRef<str>) {
        if self.json {
            self.document(document)
        } else {
            self.line(line)
        }
    }

    /// Colours a text for standard output.
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
            let mistake = |one: &Diagnostic| {
                let at = &one.position;
                serde_json::json!({
                    "file": at.file, "line": at.line, "column": at.column,
                    "severity": one.severity.to_string(),
                    "what": one.what, "why": one.why, "fix": one.remedy,
                })
            };
            let mistakes: Vec<_> = failure.mistakes.iter().map(mistake).collect();
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
        let what = painted(self.err, Paint::Red, &safe(&failure.what));
        text.push_str(&format!("gateway: {what}"));
        for (label, part) in [("why", &failure.why), ("next", &failure.next)] {
            if let Some(part) = part {
                let label = painted(self.err, Paint::Bold, label);
                // A list of mistakes has a line for each part.
                let lines = part
                    .lines()
                    .map(|line| wrapped(&safe(line), width(std::io::stderr()), LABEL));
                let lines: Vec<String> = lines.collect();
                let part = lines.join(&format!("\n{:LABEL$}", ""));
                write!(text, "\n  {label}: {part}").unwrap_or(());
            }
        }
        self.note(text);
    }

    fn mistake(&self, mistake: &Diagnostic) -> String {
        let paint = match mistake.severity {
            Severity::Error | Severity::Unusable => Paint::Red,
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

/// Prints a line to standard error.
pub fn note(text: impl AsRef<str>) {
    let line = format!("{}\n", text.as_ref());
    StandardError.write_all(line.as_bytes()).unwrap_or(());
}

/// Returns the rows of [`Terminal::line_of_peer`], to be painted.
pub fn rows_of_peer(text: &str) -> Vec<String> {
    folded(text, width(std::io::stdout()))
}

/// Formats a number of things in words: `1 policy`, `2 policies`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// Whether a line did not reach standard output, although its reader was there.
static UNWRITTEN: AtomicBool = AtomicBool::new(false);

/// Returns how many characters fit in one line of the terminal, if it is one.
fn width(terminal: impl AsFd) -> usize {
    // Only a terminal has a size.
    let size = rustix::termios::tcgetwinsize(terminal).ok();
    match size.map(|size| usize::from(size.ws_col)) {
        Some(0) => USUAL,
        Some(columns) => columns.max(NARROWEST),
        None => usize::MAX,
    }
}

/// Returns the rest of a line after an indent.
fn room(width: usize, indent: usize) -> usize {
    width.saturating_sub(indent).max(NARROWEST)
}

/// Breaks a text between words. All lines begin at the same column.
fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let width = room(width, indent);
    let (mut lines, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let long = word.chars().map(width_of).sum::<usize>();
        if length > 0 && length + 1 + long > width {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
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

/// The width of `gateway`, a name, and the spaces before the text.
const INDENT: usize = 18;
/// The width of `  next: `.
const LABEL: usize = 8;
/// The least width: a narrower terminal breaks lines itself.
const NARROWEST: usize = 20;
/// The width of a terminal that does not report its own.
const USUAL: usize = 80;

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

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|value| value == "dumb")
}

/// Ends an open sequence; then resets the screen, margins, character set, colours, palette, and the
/// reporting of keys and clicks, and clears everything below the cursor. The cursor's place is
/// saved around sequences that would move it.
const RESET: &str = "\x1b\\\x1b7\x1b[?1049l\x1b7\x1b[r\x1b8\x1b[!p\x1b(B\x0f\x1b[0m\x1b[?7h\x1b[?25h\
\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[<u\
\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\\x1b]112\x1b\\\x1b[J";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_between_words_and_never_in_one() {
        let text = "api.github.com, github.com and 3 more";
        assert_eq!(wrapped(text, usize::MAX, INDENT), text);
        let indent = " ".repeat(INDENT);
        let broken = format!("api.github.com,\n{indent}github.com and 3\n{indent}more");
        assert_eq!(wrapped(text, INDENT + 20, INDENT), broken);
        assert_eq!(
            wrapped("a-word-that-is-too-long b", INDENT + 4, INDENT),
            format!("a-word-that-is-too-long\n{indent}b")
        );
    }
}
