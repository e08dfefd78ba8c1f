//! Finds the paths that git's settings name: hooks, further settings, programs, and the files
//! passed to these.
//!
//! A value is a path, or words for a shell. Both readings count, since guarding an extra name does
//! no harm.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::failure::{At, Failure, Step};
use crate::paths::lexical;

/// One path that settings may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The path as named, below one of the directories in which git or a shell would look.
    pub path: PathBuf,
    /// Whether this is a whole value, which may name a directory.
    pub is_whole: bool,
}

/// One setting.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    section: String,
    /// The name, in lower case.
    pub key: String,
    /// The value as written.
    pub value: String,
}

/// Returns what these settings files name, resolved from each of the `bases`.
///
/// # Errors
/// Returns a [`Step::Git`] failure if a file exists and is not a settings file.
pub fn named(files: &[PathBuf], bases: &[PathBuf]) -> Result<Vec<Named>, Failure> {
    let mut found = Vec::new();
    let mut files = files.to_vec();
    let mut seen = BTreeSet::new();
    while let Some(file) = files.pop() {
        let Ok(real) = fs::canonicalize(&file) else {
            continue;
        };
        if seen.len() >= FILES || !seen.insert(real.clone()) {
            continue;
        }
        let own = real.parent().map(Path::to_owned);
        for setting in settings(&real)? {
            let bases = bases.iter().chain(&own);
            let words = setting.words();
            let names: Vec<Named> = bases
                .flat_map(|base| {
                    words.iter().map(|(word, is_whole)| Named {
                        path: base.join(at_home(word)),
                        is_whole: *is_whole,
                    })
                })
                .collect();
            if setting.section.starts_with("include") && setting.key == "path" {
                files.extend(names.iter().map(|named| named.path.clone()));
            }
            found.extend(names);
        }
    }
    Ok(found)
}

/// Returns the named paths that exist in a project, except parents of a project or of a `kept`
/// path.
pub fn present(named: &[Named], projects: &[PathBuf], kept: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for Named { path, is_whole } in named {
        let Ok(path) = fs::canonicalize(path) else {
            continue;
        };
        // husky's hooks in `.husky/_` run the hooks in the parent folder.
        let path = match path.parent() {
            Some(above) if path.ends_with("_") => above.to_owned(),
            _ => path,
        };
        let holds_one = projects
            .iter()
            .chain(kept)
            .any(|inner| inner.starts_with(&path));
        if (*is_whole || !path.is_dir()) && is_in(&path, projects) && !holds_one {
            found.insert(path);
        }
    }
    found
}

/// Returns the named paths that do not exist and that the command could create in a project.
pub fn absent(named: &[Named], projects: &[PathBuf]) -> BTreeSet<PathBuf> {
    named
        .iter()
        .filter(|named| fs::metadata(&named.path).is_err())
        .map(|named| lexical(&named.path))
        .filter(|path| is_in(path, projects) && !path.iter().any(|part| part == ".git"))
        .collect()
}

fn is_in(path: &Path, projects: &[PathBuf]) -> bool {
    projects
        .iter()
        .any(|project| path.starts_with(project) && path != project)
}

fn at_home(word: &str) -> PathBuf {
    match (word.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => word.into(),
    }
}

/// Reads the settings of a file, if it exists and can be read at all.
///
/// # Errors
/// A [`Step::Git`] failure if it is not a settings file.
pub fn settings(file: &Path) -> Result<Vec<Setting>, Failure> {
    match read(file) {
        Ok(text) => Ok(parse(&String::from_utf8_lossy(&text))),
        Err(error) if is_out_of_reach(&error) => Ok(Vec::new()),
        Err(error) => Err(error).at(Step::Git, file.display().to_string()),
    }
}

/// Whether there is no such file, or none that this user can read.
fn is_out_of_reach(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::NotADirectory
    )
}

fn parse(text: &str) -> Vec<Setting> {
    let joined = text.replace("\\\r\n", "").replace("\\\n", "");
    let mut section = String::new();
    let mut found = Vec::new();
    for line in joined.lines().map(str::trim) {
        let rest = match line.strip_prefix('[').map(end_of_header) {
            None => line,
            Some((header, rest)) => {
                let name = header
                    .split([' ', '\t', '"', '.'])
                    .next()
                    .unwrap_or_default();
                section = name.to_ascii_lowercase();
                rest
            }
        };
        if let Some((key, value)) = rest.split_once('=') {
            found.push(Setting {
                section: section.clone(),
                key: key.trim().to_ascii_lowercase(),
                value: value.trim().to_owned(),
            });
        }
    }
    found
}

/// Splits the line after a `[` at the first `]` outside quotes.
fn end_of_header(line: &str) -> (&str, &str) {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return (&line[..at], &line[at + 1..]),
            _ => {}
        }
    }
    (line, "")
}

impl Setting {
    /// Returns each way that git may read the value as a whole, and its words. Each has whether it
    /// is whole.
    fn words(&self) -> Vec<(String, bool)> {
        let plain: String = self
            .value
            .chars()
            .filter(|c| !matches!(c, '"' | '\\'))
            .collect();
        let is_command_of_git = self.section == "alias" && !plain.starts_with('!');
        if is_command_of_git || UNOBEYED.contains(&self.key.as_str()) {
            return Vec::new();
        }
        let plain = plain.trim_start_matches('!').trim();
        let uncommented = plain.split(['#', ';']).next().unwrap_or_default().trim();
        let wholes =
            [self.value.as_str(), plain, uncommented].map(|whole| (whole.trim_matches('\''), true));
        let parts = |c: char| c.is_whitespace() || "\"'`\\;|&()<>=$!{},".contains(c);
        let words = [self.value.as_str(), plain]
            .into_iter()
            .flat_map(|text| text.split(parts));
        let mut found: Vec<(String, bool)> = wholes
            .into_iter()
            .chain(words.map(|word| (word, false)))
            .filter(|(word, _)| !word.is_empty() && word.len() < 4096)
            .map(|(word, is_whole)| (word.to_owned(), is_whole))
            .collect();
        found.sort();
        found.dedup();
        found
    }
}

/// Reads a settings file that a command may have created.
///
/// # Errors
/// As [`read_within`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_within(path, FILE_BYTES)
}

/// Reads a file that a command may have created: a regular file, no link, up to a size limit.
///
/// # Errors
/// Returns an error if it cannot be opened or is no such file.
pub fn read_within(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut content = Vec::new();
    if file.metadata()?.is_file() {
        file.take(most + 1).read_to_end(&mut content)?;
        if content.len() as u64 <= most {
            return Ok(content);
        }
    }
    Err(ErrorKind::InvalidData.into())
}

/// The most bytes that are read from a file. A larger file is not a settings file.
const FILE_BYTES: u64 = 1 << 20;
/// The most settings files that are read when one names the next.
const FILES: usize = 64;
/// Settings whose values may name a file or folder of the project, but from which git runs nothing.
const UNOBEYED: &[&str] = &[
    "url",
    "pushurl",
    "worktree",
    "fetch",
    "push",
    "merge",
    "remote",
    "name",
    "email",
    "excludesfile",
    "ignorerevsfile",
    "template",
    "defaultbranch",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_value_may_be_a_file_and_the_whole_a_folder() {
        for (text, word, is_whole) in [
            ("[core]\n\tfsmonitor = sh s/mon.sh\n", "s/mon.sh", false),
            (
                "[filter \"a]b\"] clean = python3 tools/strip.py %f\n",
                "tools/strip.py",
                false,
            ),
            ("[alias]\n\tx = !./s/al.sh\n", "./s/al.sh", true),
            (
                "[alias]\n\tx = \"!f() { sh s/al.sh; }; f\"\n",
                "s/al.sh",
                false,
            ),
            ("[core]\n\thooksPath = my hooks\n", "my hooks", true),
            (
                "[core]\n\thooksPath = \"my hooks\" ; mine\n",
                "my hooks",
                true,
            ),
            ("[core]\n\tpager = a \\\n\t b/c\n", "b/c", false),
            ("[core]\n\teditor = vim --cmd='so x/y'\n", "x/y", false),
        ] {
            let words: Vec<_> = parse(text).iter().flat_map(Setting::words).collect();
            assert!(
                words.contains(&(word.to_owned(), is_whole)),
                "{text}: {words:?}"
            );
        }
        let plain = "[alias]\n\tx = log src\n[remote \"o\"]\n\turl = ../x\n";
        assert!(
            parse(plain)
                .iter()
                .all(|setting| setting.words().is_empty())
        );
    }
}
