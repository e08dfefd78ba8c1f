//! `[policy]`: which files hold the rules, and how they are read at start and at each reload.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::mistake::Doubt;
use super::page::Section;

/// Names the policy files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The files and patterns, absolute or relative to the working directory.
    pub files: Vec<PathBuf>,
}

/// Holds the text of one policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySource {
    /// The file.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// A policy file could not be read, so that none is taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy file `{}`: {why}; {remedy}", .path.display())]
pub struct PolicyUnreadable {
    /// The file or pattern.
    pub path: PathBuf,
    /// Why it is refused.
    pub why: String,
    /// What to do.
    pub remedy: String,
}

impl Policy {
    /// Reads every file, patterns expanded anew, in the order of their names.
    ///
    /// One bad file refuses all of them: the others without its `forbid`s would allow too much
    /// (threats M03).
    ///
    /// # Errors
    /// Every file or pattern that is missing, unreadable, too large, no UTF-8, or writable by
    /// everyone.
    pub fn sources(&self) -> Result<Vec<PolicySource>, Vec<PolicyUnreadable>> {
        let mut sources: Vec<PolicySource> = Vec::new();
        let mut refused = Vec::new();
        for pattern in &self.files {
            let paths = match expand(pattern) {
                Ok(paths) => paths,
                Err(doubt) => {
                    refused.push(unreadable(pattern, doubt));
                    continue;
                }
            };
            for path in paths {
                if sources.iter().any(|source| source.path == path) {
                    continue;
                }
                match read(&path) {
                    Ok(text) => sources.push(PolicySource { path, text }),
                    Err(doubt) => refused.push(unreadable(&path, doubt)),
                }
            }
        }
        if refused.is_empty() {
            Ok(sources)
        } else {
            Err(refused)
        }
    }

    /// The files that the patterns stand for now; what cannot be expanded is left out.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.files
            .iter()
            .filter_map(|pattern| expand(pattern).ok())
            .flatten()
            .collect()
    }

    /// The folders in which patterns look for files: a file that is added there is read at the next
    /// start.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        let patterns = self.files.iter().filter(|pattern| {
            let name = pattern.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.contains('*'))
        });
        patterns
            .filter_map(|pattern| std::fs::canonicalize(pattern.parent()?).ok())
            .collect()
    }
}

pub(super) fn policy(section: &Section<'_, '_>) -> Policy {
    let files = section.each("files", |text| {
        let pattern = section.page.path(text)?;
        for path in expand(&pattern)? {
            read(&path).map_err(|doubt| {
                Doubt::new(format!("`{}`: {}", path.display(), doubt.why), doubt.remedy)
            })?;
        }
        Ok(pattern)
    });
    Policy {
        files: files.into_iter().map(toml::Spanned::into_inner).collect(),
    }
}

fn unreadable(path: &Path, doubt: Doubt) -> PolicyUnreadable {
    PolicyUnreadable {
        path: path.to_owned(),
        why: doubt.why,
        remedy: doubt.remedy,
    }
}

/// The files that a path stands for, sorted; `*` may stand in its last part.
///
/// # Errors
/// A [`Doubt`] where there is no such file: a pattern that matches nothing is a mistake, not an
/// empty policy.
fn expand(pattern: &Path) -> Result<Vec<PathBuf>, Doubt> {
    let name = pattern.file_name().and_then(|name| name.to_str());
    let directory = pattern.parent().unwrap_or(Path::new("/"));
    if directory.as_os_str().as_encoded_bytes().contains(&b'*') {
        return Err(Doubt::new(
            "`*` may stand in the last part of a path only",
            "name each folder",
        ));
    }
    let Some(name) = name.filter(|name| name.contains('*')) else {
        return Ok(vec![pattern.to_owned()]);
    };
    let cannot = |error: std::io::Error| {
        Doubt::new(
            format!("the folder cannot be read: {error}"),
            "create it, or correct the path",
        )
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        if entry
            .file_name()
            .to_str()
            .is_some_and(|candidate| stands_for(name, candidate))
        {
            found.push(entry.path());
        }
    }
    if found.is_empty() {
        return Err(Doubt::new(
            "no file matches the pattern",
            "create a policy, or correct the path",
        ));
    }
    found.sort();
    Ok(found)
}

/// Whether a pattern with `*` matches a file's name; hidden files are matched only by a pattern
/// that starts with a dot.
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

fn read(path: &Path) -> Result<String, Doubt> {
    let cannot = |error: std::io::Error| {
        Doubt::new(
            format!("the file cannot be read: {error}"),
            "create it, or correct the path",
        )
    };
    let file = std::fs::File::open(path).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    if !metadata.is_file() {
        return Err(Doubt::new(
            "it is no regular file",
            "name the file that holds the policies",
        ));
    }
    if metadata.permissions().mode() & 0o002 != 0 {
        let why = "everyone on this machine can change the rules, the workload too";
        return Err(Doubt::new(
            why,
            format!("run `chmod o-w {}`", path.display()),
        ));
    }
    let mut text = String::new();
    let read = file.take(LARGEST + 1).read_to_string(&mut text);
    match read {
        Ok(length) if length as u64 > LARGEST => {
            Err(Doubt::new("the file is larger than 16MiB", "split it"))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(cannot(error)),
    }
}

const LARGEST: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

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
    fn one_unreadable_file_refuses_all() {
        let directory = tempfile::tempdir().unwrap();
        let good = directory.path().join("good.cedar");
        std::fs::write(&good, "permit(principal, action, resource);").unwrap();
        let missing = directory.path().join("missing.cedar");
        let both = Policy {
            files: vec![good.clone(), missing.clone()],
        };
        assert_eq!(both.sources().unwrap_err()[0].path, missing);
        let alone = Policy {
            files: vec![directory.path().join("*.cedar"), good.clone()],
        };
        let sources = alone.sources().unwrap();
        assert_eq!(sources.len(), 1);
        assert_eq!(sources[0].path, good);
    }

    #[test]
    fn a_pattern_without_a_file_a_writable_file_and_a_binary_file_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |files| Policy { files }.sources().unwrap_err()[0].why.clone();
        assert!(refused(vec![directory.path().join("*.cedar")]).contains("no file matches"));
        let path = directory.path().join("a.cedar");
        std::fs::write(&path, [0xFF, 0xFE]).unwrap();
        assert!(refused(vec![path.clone()]).contains("cannot be read"));
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(refused(vec![path]).contains("everyone"));
    }
}
