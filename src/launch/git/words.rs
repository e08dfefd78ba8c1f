//! Finds the paths that git's settings name: hooks, further settings, programs, and the files
//! passed to these.
//!
//! A value is a path, or words for a shell. A word counts if it can be a path: if it has a slash,
//! if its key is one of paths, or if it stands where a program takes a file. Most words of settings
//! are none of these (`auto`, `store`, `npm run build`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::repository::is_gits_own;
use super::settings::{Setting, settings};
use crate::failure::Failure;
use crate::identity;
use crate::program::{links, real};

/// A word of a setting that may be a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Word {
    /// The path, relative to a directory in which git or a shell would look.
    #[serde(with = "crate::exact::one")]
    pub path: PathBuf,
    /// Whether git takes a folder there, too.
    pub may_be_folder: bool,
}

impl Word {
    /// A word that names a file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            may_be_folder: false,
        }
    }
}

/// Returns the words of these settings files, and of those that they include.
///
/// # Errors
/// Returns a `Step::Git` failure if a file is too large for a settings file.
pub fn words(files: &[PathBuf]) -> Result<BTreeSet<Word>, Failure> {
    let mut found = BTreeSet::new();
    let mut files = files.to_vec();
    let mut seen = BTreeSet::new();
    while let Some(file) = files.pop() {
        // git waits for what is no file, too, so nobody has settings there.
        let real = fs::canonicalize(&file).ok();
        let Some(real) = real.filter(|real| real.is_file()) else {
            continue;
        };
        if seen.len() >= FILES || !seen.insert(real.clone()) {
            continue;
        }
        for setting in settings(&real)? {
            let words = setting.words();
            if setting.section.starts_with("include") && setting.key == "path" {
                let folders = [&file, &real].map(|one| one.parent().unwrap_or(one));
                let included = folders.map(|folder| at(&words, &[folder.to_owned()]));
                let included: BTreeSet<Word> = included.into_iter().flatten().collect();
                files.extend(included.iter().map(|word| word.path.clone()));
                found.extend(included);
            } else {
                found.extend(words);
            }
        }
    }
    Ok(found)
}

/// Returns the words as paths in each of these directories.
pub fn at(words: &BTreeSet<Word>, directories: &[PathBuf]) -> Vec<Word> {
    let in_one = |directory: &PathBuf| -> Vec<Word> {
        let named = words.iter().cloned();
        named
            .map(|word| Word {
                path: directory.join(&word.path),
                ..word
            })
            .collect()
    };
    directories.iter().flat_map(in_one).collect()
}

/// Returns the named paths that exist in a project, and the links there that lead to a named path.
/// Leaves out parents of a project or of a `kept` path, and what git writes itself.
pub fn present(named: &[Word], projects: &[PathBuf], kept: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for word in named {
        let existing = fs::canonicalize(&word.path).ok();
        // husky's hooks in `.husky/_` run the hooks in the parent folder.
        let path = existing.map(|path| match path.parent() {
            Some(above) if path.ends_with("_") => above.to_owned(),
            _ => path,
        });
        let holds_one = |path: &PathBuf| {
            let mut inner = projects.iter().chain(kept);
            inner.any(|inner| inner.starts_with(path))
        };
        let fits = |path: &PathBuf| path.is_file() || (word.may_be_folder && path.is_dir());
        if path
            .as_ref()
            .is_none_or(|path| fits(path) && !holds_one(path))
        {
            found.extend(links(&word.path));
            found.extend(path);
        }
    }
    found.retain(|path| is_in(path, projects) && !is_gits_own(path));
    found
}

/// Returns the named paths that do not exist and that the command could create in a project, each
/// with whether a folder counts there, too. What is neither file nor folder counts as absent: a
/// command could feed it while git reads.
pub fn absent(named: &[Word], projects: &[PathBuf]) -> BTreeMap<PathBuf, bool> {
    let mut found = BTreeMap::new();
    for word in named {
        let path = real(&word.path);
        let is_there = fs::metadata(&word.path).is_ok_and(|one| one.is_file() || one.is_dir());
        if !is_there && is_in(&path, projects) && !is_gits_own(&path) {
            *found.entry(path).or_default() |= word.may_be_folder;
        }
    }
    found
}

fn is_in(path: &Path, projects: &[PathBuf]) -> bool {
    projects
        .iter()
        .any(|project| path.starts_with(project) && path != project)
}

/// Returns the path that git and a shell make of `~/` and `~NAME/`.
fn at_home(word: &str) -> PathBuf {
    let begins = word.strip_prefix('~').and_then(|one| one.split_once('/'));
    let home = |name: &str| match name {
        "" => std::env::var_os("HOME").map(PathBuf::from),
        _ => identity::home_of(name),
    };
    begins
        .and_then(|(name, rest)| Some(home(name)?.join(rest)))
        .unwrap_or_else(|| word.into())
}

impl Setting {
    /// Returns the words that may be paths.
    fn words(&self) -> BTreeSet<Word> {
        let plain: String = self
            .value
            .chars()
            .filter(|c| !matches!(c, '"' | '\\'))
            .collect();
        let is_command_of_git = self.section == "alias" && !plain.starts_with('!');
        if is_command_of_git || UNOBEYED.contains(&self.key.as_str()) {
            return BTreeSet::new();
        }
        let plain = plain.trim_start_matches('!').trim();
        let of_command = [self.value.as_str(), plain].into_iter();
        let mut found: BTreeSet<Word> = of_command.flat_map(words_of_command).collect();
        found.extend(self.wholes(plain));
        found.retain(|word| (1..4096).contains(&word.path.as_os_str().len()));
        found
    }

    /// Returns each way in which git may read the value as one path.
    fn wholes(&self, plain: &str) -> Vec<Word> {
        let may_be_folder = FOLDERS.contains(&self.key.as_str());
        let is_path = may_be_folder || PATHS.contains(&self.key.as_str());
        let uncommented = plain.split(['#', ';']).next().unwrap_or_default().trim();
        [self.value.as_str(), plain, uncommented]
            .map(|whole| whole.trim_matches('\''))
            .into_iter()
            .filter(|whole| is_path || whole.contains('/'))
            .map(|whole| Word {
                path: at_home(whole),
                may_be_folder,
            })
            .collect()
    }
}

/// Returns the words of a command that may be files: those with a slash, and of the arguments those
/// with a dot, and those that an interpreter takes for its script.
fn words_of_command(text: &str) -> Vec<Word> {
    let parts = |c: char| c.is_whitespace() || "\"'`\\;|&()<>=$!{},".contains(c);
    let mut found = Vec::new();
    let (mut before, mut is_module, mut runs) = (None, false, false);
    for word in text.split(parts).filter(|word| !word.is_empty()) {
        let is_option = word.starts_with('-');
        let is_argument = before.is_some() && !is_option;
        let is_script = before.is_some_and(is_interpreter);
        runs |= is_interpreter(word);
        // `-m NAME`, `-mNAME`, `-um NAME`
        let options = word.strip_prefix('-').filter(|one| !one.starts_with('-'));
        let named = options.and_then(|one| one.split_once('m'));
        if std::mem::take(&mut is_module) {
            found.extend(module(word));
        } else if let Some((_, name)) = named.filter(|_| runs) {
            match name {
                "" => is_module = true,
                name => found.extend(module(name)),
            }
        }
        if word.contains('/') || (is_argument && (word.contains('.') || is_script)) {
            found.push(Word::file(at_home(word)));
        }
        if !is_option {
            before = Some(word);
        }
    }
    found
}

/// The places in which Python looks for a module beside where it runs.
fn module(name: &str) -> [Word; 3] {
    let path = name.replace('.', "/");
    let files = [".py", ".pyc"].map(|ending| Word::file(format!("{path}{ending}")));
    let [source, compiled] = files;
    let package = Word {
        path: path.into(),
        may_be_folder: true,
    };
    [source, compiled, package]
}

fn is_interpreter(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    INTERPRETERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}

/// The most settings files that are read when one names the next.
const FILES: usize = 64;
/// Keys whose value is the path of a file, and those that take a folder.
const PATHS: &[&str] = &[
    "path",
    "attributesfile",
    "allowedsignersfile",
    "revocationfile",
    "orderfile",
    "sslcainfo",
    "sslcert",
    "sslkey",
    "cookiefile",
];
const FOLDERS: &[&str] = &["hookspath", "templatedir", "sslcapath"];
/// Programs that run the file that is their first argument.
const INTERPRETERS: &[&str] = &[
    "sh", "bash", "dash", "zsh", "ksh", "fish", "source", "exec", "env", "python", "perl", "ruby",
    "node", "deno", "bun", "php", "lua", "awk",
];
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
    use super::super::settings::parse;
    use super::*;

    fn words_in(text: &str) -> BTreeSet<Word> {
        parse(text).iter().flat_map(Setting::words).collect()
    }

    #[test]
    fn a_word_of_a_command_may_be_a_file_and_the_folder_of_hooks_one() {
        for (text, word, may_be_folder) in [
            ("[core]\n\tfsmonitor = sh s/mon.sh\n", "s/mon.sh", false),
            ("[core]\n\tfsmonitor = sh mon\n", "mon", false),
            (
                "[core]\n\tfsmonitor = /usr/bin/python3.12 -B mon\n",
                "mon",
                false,
            ),
            (
                "[filter \"a]b\"] clean = python3 tools/strip.py %f\n",
                "tools/strip.py",
                false,
            ),
            (
                "[filter \"x\"] clean = strip strip.cfg\n",
                "strip.cfg",
                false,
            ),
            ("[alias]\n\tx = !./s/al.sh\n", "./s/al.sh", false),
            (
                "[alias]\n\tx = \"!f() { sh s/al.sh; }; f\"\n",
                "s/al.sh",
                false,
            ),
            (
                "[filter \"n\"] clean = \\\"/usr/bin/python3\\\" -m nb.strip\n",
                "nb/strip.py",
                false,
            ),
            (
                "[filter \"n\"] clean = python3 -m nbstrip\n",
                "nbstrip",
                true,
            ),
            ("[core]\n\thooksPath = hooks\n", "hooks", true),
            ("[core]\n\thooksPath = ~root/h\n", "/root/h", true),
            (
                "[core]\n\thooksPath = ~nobody-here/h\n",
                "~nobody-here/h",
                true,
            ),
            ("[core]\n\thooksPath = my hooks\n", "my hooks", true),
            (
                "[core]\n\thooksPath = \"my hooks\" ; mine\n",
                "my hooks",
                true,
            ),
            ("[core]\n\tpager = a \\\n\t b/c\n", "b/c", false),
            ("[core]\n\teditor = vim --cmd='so x/y'\n", "x/y", false),
            ("[include]\n\tpath = own\n", "own", false),
            ("[http]\n\tsslCAInfo = ca\n", "ca", false),
        ] {
            let words = words_in(text);
            let expected = Word {
                path: word.into(),
                may_be_folder,
            };
            assert!(words.contains(&expected), "{text}: {words:?}");
        }
    }

    #[test]
    fn words_that_are_no_paths_name_nothing() {
        for text in [
            "[alias]\n\tx = log src\n[remote \"o\"]\n\turl = ../x\n",
            "[credential]\n\thelper = store\n[color]\n\tui = auto\n[gc]\n\tauto = 0\n",
            "[pull]\n\trebase = false\n[push]\n\tdefault = simple\n[core]\n\tpager = delta\n",
            "[alias]\n\tb = !npm run build\n[core]\n\teditor = code --wait\n",
            "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tprocess = git-lfs filter-process\n",
            "[color \"diff\"]\n\tmeta = yellow bold\n[gc]\n\tpruneExpire = 2.weeks.ago\n",
        ] {
            assert_eq!(words_in(text), BTreeSet::new(), "{text}");
        }
    }
}
