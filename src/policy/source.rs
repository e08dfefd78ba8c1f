//! Where policies come from, and what is said about them: sources, problems and lints with their
//! places.

use std::fmt;
use std::path::Path;

/// One text of Cedar policies, and the name that messages and policy ids give it.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's name, or where else the text comes from (`--allow`).
    pub name: String,
    /// Cedar policies; none is allowed, and permits nothing.
    pub text: String,
}

/// What keeps a policy set from being loaded. One load reports all of its problems.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The source's name.
    pub file: String,
    /// Counts from 1; 0 where the problem is the file itself.
    pub line: usize,
    /// In characters, counts from 1; 0 where the problem is the file itself.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
    /// What to write instead, where that is known.
    pub help: Option<String>,
}

/// What loads and yet may mean something else than its author thinks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lint {
    /// The policy's id.
    pub policy: String,
    /// Where, and why; the same form as a problem's.
    pub at: Problem,
}

/// Every problem of one load: never empty.
#[derive(Clone, Debug, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl Source {
    /// A source from a name and a text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
        }
    }

    /// Reads a file, or the `*.cedar` files directly in a folder, by name.
    ///
    /// # Errors
    /// Every file that cannot be read, is no file, or is larger than 16 MiB: a set without one of
    /// its files may lack a forbid, so it is not loaded at all. A folder without any such file,
    /// too: it is rather a wrong path.
    pub fn read(path: &Path) -> Result<Vec<Self>, Problems> {
        let at_path = |reason: String| Problems(vec![Problem::of_file(path, reason)]);
        let about = std::fs::metadata(path).map_err(|error| at_path(error.to_string()))?;
        if !about.is_dir() {
            return Ok(vec![
                read_file(path).map_err(|problem| Problems(vec![problem]))?,
            ]);
        }
        let entries = std::fs::read_dir(path).map_err(|error| at_path(error.to_string()))?;
        let mut files = Vec::new();
        let mut problems = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) if entry.path().extension().is_some_and(|end| end == "cedar") => {
                    files.push(entry.path())
                }
                Ok(_) => {}
                Err(error) => problems.push(Problem::of_file(path, error.to_string())),
            }
        }
        files.sort();
        if files.is_empty() && problems.is_empty() {
            problems.push(Problem::of_file(
                path,
                "the folder has no `*.cedar` file".into(),
            ));
        }
        let mut sources = Vec::new();
        for file in &files {
            match read_file(file) {
                Ok(source) => sources.push(source),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            Ok(sources)
        } else {
            Err(Problems(problems))
        }
    }

    /// The line and column, both from 1, of a byte offset.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (
            before.matches('\n').count() + 1,
            before[line_start..].chars().count() + 1,
        )
    }

    /// A problem at a byte offset.
    pub(super) fn problem(
        &self,
        offset: usize,
        reason: impl Into<String>,
        help: Option<String>,
    ) -> Problem {
        let (line, column) = self.position(offset);
        Problem {
            file: self.name.clone(),
            line,
            column,
            reason: reason.into(),
            help,
        }
    }
}

impl Problem {
    fn of_file(path: &Path, reason: String) -> Self {
        Self {
            file: path.display().to_string(),
            line: 0,
            column: 0,
            reason,
            help: None,
        }
    }
}

fn read_file(path: &Path) -> Result<Source, Problem> {
    let fail = |reason: String| Problem::of_file(path, reason);
    let about = std::fs::metadata(path).map_err(|error| fail(error.to_string()))?;
    if !about.is_file() {
        return Err(fail("this is no regular file".into()));
    }
    if about.len() > MAX_SOURCE_BYTES {
        return Err(fail("a policy file has at most 16 MiB".into()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    Ok(Source {
        name: path.display().to_string(),
        text,
    })
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

const MAX_SOURCE_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_counts_lines_and_characters_from_one() {
        let source = Source::new("f", "aé\nbc");
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position(3), (1, 3));
        assert_eq!(source.position(5), (2, 2));
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
