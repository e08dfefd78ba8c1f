//! Sources of policies, and the problems and lints found in them, with their positions.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use cedar_policy::{Effect, Policy, PolicySet};
use gateway_files as files;

use super::content::Declared;

/// Where the policies are: files, patterns with `*` in their last part, and folders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Paths, absolute or relative to the working directory.
    pub files: Vec<PathBuf>,
    /// Policies in the configuration itself.
    pub rules: Option<Source>,
}

/// One text of Cedar policies, and its name in messages and policy ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file's name, or another origin of the text (`--allow`).
    pub name: String,
    /// The Cedar policies. A text without policies is valid, and permits nothing.
    pub text: String,
}

/// Why a policy set cannot be loaded. One load reports all of its problems.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The source's name.
    pub file: String,
    /// The line, from 1. 0 if the problem is the file itself.
    pub line: usize,
    /// The column in characters, from 1. 0 if the problem is the file itself.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
    /// What to write instead, if known.
    pub help: Option<String>,
}

/// A policy that loads, but may not mean what its author intended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lint {
    /// The policy's id.
    pub policy: String,
    /// The position and the reason, in the same form as a problem.
    pub at: Problem,
    /// Whether it depends on the server that this is one.
    pub(super) is_note: bool,
}

/// Every problem of one load. Never empty.
#[derive(Clone, Debug, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl Source {
    /// Makes a source from a name and a text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
        }
    }

    /// Reads a file, the files that match a pattern, or the `*.cedar` files directly in a folder,
    /// sorted by name.
    ///
    /// # Errors
    /// Every file that [`files::read`] refuses: without one of its files a set may lack a forbid,
    /// so nothing is loaded. Also a pattern or folder without any files, since the path is probably
    /// wrong.
    pub fn read(path: &Path) -> Result<Vec<Self>, Problems> {
        let files = expand(path).map_err(|problem| Problems(vec![problem]))?;
        all(files.iter().map(|file| read_file(file)))
    }

    /// Returns each policy, with its place in the text; none if the text cannot be parsed.
    pub fn rules(&self) -> Vec<(Range<usize>, String)> {
        let set: PolicySet = self.text.parse().unwrap_or_default();
        let policies = set.policies();
        let places =
            policies.filter_map(|policy| policy.as_ref().loc().map(|at| at.start()..at.end()));
        let rule = |at: Range<usize>| Some((at.clone(), self.text.get(at)?.to_owned()));
        places.filter_map(rule).collect()
    }

    /// Blanks out a place in the text. The rest keeps its place.
    pub fn leave_out(&mut self, place: Range<usize>) {
        if let Some(text) = self.text.get(place.clone()) {
            let blank: String = text
                .bytes()
                .map(|byte| if byte == b'\n' { '\n' } else { ' ' })
                .collect();
            self.text.replace_range(place, &blank);
        }
    }

    /// Returns the first annotation without effect, of a policy that begins at a byte offset. A
    /// person may have written it to narrow a rule, so it must not be overlooked. `declared` is
    /// what the policies for requests may name; those for operators have no obligations.
    pub(super) fn unread_annotation(
        &self,
        at: usize,
        policy: &Policy,
        declared: Option<&Declared>,
    ) -> Option<Problem> {
        let is_for = match policy.effect() {
            Effect::Permit => "permit",
            Effect::Forbid => "forbid",
        };
        let names = || policy.annotations().map(|(name, _)| name);
        let is_lifted_twice = names()
            .filter(|name| ["ask", "budget"].contains(name))
            .count()
            > 1;
        let unread = |name: &str, text: &str| {
            Some(match (name, is_for, declared) {
                ("id", ..) => return None,
                ("ask", "forbid", Some(_)) if !is_one_line(text) => (
                    "`@ask` has no question that a person can read".to_owned(),
                    "write it in one line of at most 280 bytes: `@ask(\"Refund the customer?\")`"
                        .to_owned(),
                ),
                ("budget", "forbid", Some(_)) if is_lifted_twice => (
                    "the forbid has `@ask` and `@budget`, and each would lift it".to_owned(),
                    "write it twice, once with each".to_owned(),
                ),
                ("budget", "forbid", Some(declared)) if !declared.budgets().any(|b| b == text) => {
                    let known: Vec<_> = declared.budgets().map(|b| format!("`{b}`")).collect();
                    let known = match known.is_empty() {
                        true => "there is none".to_owned(),
                        false => format!("there are {}", known.join(", ")),
                    };
                    (
                        format!("there is no budget `{}`", text.escape_debug()),
                        format!("add `[[budget]]` with `name = …`; {known}"),
                    )
                }
                ("label", "permit", Some(_)) if !is_label(text) => (
                    format!("`{}` is no label", text.escape_debug()),
                    "a label has letters, digits, `_`, `-`, `.` and `:`, and at most 64 of them"
                        .to_owned(),
                ),
                ("ask" | "budget", "forbid", Some(_)) | ("label", "permit", Some(_)) => {
                    return None;
                }
                ("ask", _, Some(_)) => (
                    "`@ask` is on a permit, and a person can lift forbids alone".to_owned(),
                    "permit it, and put `@ask` on a forbid with the same scope and conditions"
                        .to_owned(),
                ),
                ("budget", _, Some(_)) => (
                    "`@budget` is on a permit, and a budget lifts forbids alone".to_owned(),
                    "permit it, and put `@budget` on a forbid with the same scope and conditions"
                        .to_owned(),
                ),
                ("label", _, Some(_)) => (
                    "`@label` is on a forbid, and a request that is forbidden gives no label"
                        .to_owned(),
                    "put it on the permit that allows what the label stands for".to_owned(),
                ),
                _ => (
                    format!("`@{name}` is an annotation that nothing reads"),
                    "`@id(\"…\")` is read, on forbids of requests `@ask(\"…\")` and \
                     `@budget(\"…\")`, on permits of requests `@label(\"…\")`; write a note as a \
                     comment: `// …`"
                        .to_owned(),
                ),
            })
        };
        let mut all = policy.annotations();
        let (name, (reason, help)) =
            all.find_map(|(name, text)| Some((name, unread(name, text)?)))?;
        let written = self
            .text
            .get(at..)
            .and_then(|text| text.find(&format!("@{name}")));
        let at = at + written.unwrap_or_default();
        Some(self.problem(at, reason, Some(help)))
    }

    /// Makes a problem at a byte offset.
    pub(super) fn problem(
        &self,
        offset: usize,
        reason: impl Into<String>,
        help: Option<String>,
    ) -> Problem {
        Lines::of(self).problem(offset, reason, help)
    }
}

/// Whether this is one line that a person can read, as it is compared.
fn is_one_line(text: &str) -> bool {
    let unseen = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    (1..=280).contains(&text.trim().len()) && !text.contains(unseen)
}

/// Whether this is a label.
fn is_label(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(fits)
}

/// The offsets of a source's lines, found once for all of its policies.
pub(super) struct Lines<'a> {
    source: &'a Source,
    begins: Vec<usize>,
}

impl<'a> Lines<'a> {
    /// Finds the lines.
    pub(super) fn of(source: &'a Source) -> Self {
        let ends = source.text.match_indices('\n').map(|(at, _)| at + 1);
        let begins = std::iter::once(0).chain(ends).collect();
        Self { source, begins }
    }

    /// Returns the line and column of a byte offset, both from 1.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.begins.partition_point(|begin| *begin <= offset);
        let before = self.source.text.get(self.begins[line - 1]..offset);
        (line, before.unwrap_or_default().chars().count() + 1)
    }

    /// Makes a problem at a byte offset.
    pub(super) fn problem(
        &self,
        offset: usize,
        reason: impl Into<String>,
        help: Option<String>,
    ) -> Problem {
        let (line, column) = self.position(offset);
        Problem {
            file: self.source.name.clone(),
            line,
            column,
            reason: reason.into(),
            help,
        }
    }
}

impl Settings {
    /// Reads every file once, expanding patterns and folders again.
    ///
    /// # Errors
    /// Every problem of every file. See [`Source::read`].
    pub fn sources(&self) -> Result<Vec<Source>, Problems> {
        let read = all(self.files.iter().map(|path| Source::read(path)))?;
        let mut sources: Vec<Source> = self.rules.iter().cloned().collect();
        for source in read.into_iter().flatten() {
            if !sources.iter().any(|known| known.name == source.name) {
                sources.push(source);
            }
        }
        Ok(sources)
    }

    /// Whether there are policies, which then decide about the hosts in configurations.
    #[must_use]
    pub fn decide(&self) -> bool {
        !self.files.is_empty() || self.rules.is_some()
    }

    /// Returns the files that match now. Paths that cannot be expanded are left out.
    pub fn paths(&self) -> Vec<PathBuf> {
        let expanded = self.files.iter().filter_map(|path| expand(path).ok());
        expanded.flatten().collect()
    }

    /// Returns the folders searched for files. A file added there is read at the next reload.
    pub fn folders(&self) -> Vec<PathBuf> {
        let patterns = self.files.iter().filter_map(|path| pattern_of(path));
        patterns
            .filter_map(|pattern| std::fs::canonicalize(pattern.parent()?).ok())
            .collect()
    }
}

/// The extension of the file with an operator's grants for one configuration.
pub const GRANTED: &str = "granted.cedar";

impl Problem {
    fn of_file(path: &Path, reason: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            file: path.display().to_string(),
            line: 0,
            column: 0,
            reason: reason.into(),
            help: Some(help.into()),
        }
    }
}

/// Returns all values, or all problems.
fn all<T, E: Into<Problems>>(
    results: impl Iterator<Item = Result<T, E>>,
) -> Result<Vec<T>, Problems> {
    let (mut values, mut problems) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(found) => problems.extend(found.into().0),
        }
    }
    if problems.is_empty() {
        Ok(values)
    } else {
        Err(Problems(problems))
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

/// Returns the files that a path names, sorted.
fn expand(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    let Some(pattern) = pattern_of(path) else {
        return Ok(vec![path.to_owned()]);
    };
    let directory = match pattern.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    let fail = |reason: String| Problem::of_file(path, reason, "create it, or correct the path");
    if directory.as_os_str().as_encoded_bytes().contains(&b'*') {
        let reason = "`*` may occur in the last part of a path only";
        return Err(Problem::of_file(path, reason, "name each folder"));
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|error| fail(error.to_string()))? {
        let entry = entry.map_err(|error| fail(error.to_string()))?;
        let file = entry.file_name();
        let file = file.to_string_lossy();
        if stands_for(&name, &file) && !is_granted(directory, &file) {
            found.push(entry.path());
        }
    }
    let allowed = files::allowed_in(directory).map_err(|unfit| fail(unfit.to_string()))?;
    let is_gone = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default();
        stands_for(&name, &file.to_string_lossy()) && path.symlink_metadata().is_err()
    };
    if let Some(gone) = allowed.into_iter().find(is_gone) {
        let reason = "you allowed it, and it is gone: what it forbids would not hold without it";
        let forget = format!(
            "put it back, or forget it: `gateway project forget {}`",
            gone.display()
        );
        return Err(Problem::of_file(&gone, reason, forget));
    }
    if found.is_empty() {
        return Err(fail(format!("no file matches `{name}`")));
    }
    found.sort();
    Ok(found)
}

/// Whether a file has an operator's grants for the configuration next to it. Other configurations
/// in the folder do not read it.
fn is_granted(directory: &Path, file: &str) -> bool {
    let stem = file.strip_suffix(GRANTED);
    let stem = stem.filter(|stem| stem.ends_with('.') && stem.len() > 1);
    stem.is_some_and(|stem| directory.join(format!("{stem}toml")).exists())
}

/// Returns the pattern, if the path is a folder or has `*` in its last part.
fn pattern_of(path: &Path) -> Option<PathBuf> {
    if path.as_os_str().as_encoded_bytes().contains(&b'*') {
        return Some(path.to_owned());
    }
    path.is_dir().then(|| path.join("*.cedar"))
}

/// Whether a pattern with `*` matches a file name. Hidden files match only a pattern that starts
/// with a dot.
fn stands_for(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty()
}

fn read_file(path: &Path) -> Result<Source, Problem> {
    let text = files::read(path, LARGEST_MIB)
        .map_err(|unfit| Problem::of_file(path, unfit.to_string(), unfit.remedy(path)))?;
    Ok(Source::new(path.display().to_string(), text))
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}", self.reason)?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, problem) in self.0.iter().enumerate() {
            if nth > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (policy `{}`)", self.at, self.policy)
    }
}

const LARGEST_MIB: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_counts_lines_and_characters_from_one() {
        let source = Source::new("f", "aé\nbc");
        let lines = Lines::of(&source);
        assert_eq!(lines.position(0), (1, 1));
        assert_eq!(lines.position(3), (1, 3));
        assert_eq!(lines.position(5), (2, 2));
    }

    #[test]
    fn a_star_stands_for_any_characters_of_one_name() {
        for (pattern, name) in [
            ("*.cedar", "a.cedar"),
            ("*", "x"),
            ("a*b*c", "aXbYc"),
            ("a*", "a"),
            ("*.c*r", "a.cedar"),
        ] {
            assert!(stands_for(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("*.cedar", "a.cedar.bak"),
            ("*.cedar", ".a.cedar"),
            ("a*b", "ab.c"),
            ("a*ba", "aba."),
        ] {
            assert!(!stands_for(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn one_unreadable_file_refuses_all_and_none_is_read_twice() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("good.cedar"), "permit(principal, action, resource);").unwrap();
        let read = |names: &[&str]| {
            let files = names.iter().map(|name| at(name)).collect();
            let rules = None;
            Settings { files, rules }.sources()
        };
        assert_eq!(read(&["*.cedar", "good.cedar"]).unwrap().len(), 1);
        let refused = read(&["good.cedar", "missing.cedar", "*.none", "a*/x"]).unwrap_err();
        assert_eq!(refused.0.len(), 3, "{refused}");
    }

    #[test]
    fn a_folder_is_read_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Source::read(dir.path()).is_err(), "an empty folder");
        std::fs::write(dir.path().join("b.cedar"), "// b").unwrap();
        std::fs::write(dir.path().join("a.cedar"), "// a").unwrap();
        std::fs::write(dir.path().join("README"), "no policy").unwrap();
        let texts: Vec<_> = Source::read(dir.path())
            .unwrap()
            .into_iter()
            .map(|source| source.text)
            .collect();
        assert_eq!(texts, ["// a", "// b"]);
        std::fs::write(dir.path().join("c.cedar"), [0xff, 0xfe]).unwrap();
        assert_eq!(Source::read(dir.path()).unwrap_err().0.len(), 1);
        assert!(Source::read(&dir.path().join("absent")).is_err());
    }
}
