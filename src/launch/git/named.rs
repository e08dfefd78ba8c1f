//! What git's settings name in the projects: settings of their repositories, and settings outside.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::repository::{directory_named_by, has_head, line_of};
use super::words::{self, Word, at, words};
use crate::after::survey::{Kind, Survey};
use crate::failure::Failure;

/// Returns existing paths in the projects that outside settings name. The sandbox itself does not
/// see those settings.
///
/// # Errors
/// Returns a `Step::Git` failure if such settings cannot be read.
pub fn present_above(projects: &[PathBuf]) -> Result<BTreeSet<PathBuf>, Failure> {
    Ok(words::present(&named_above(projects)?, projects, &[]))
}

/// Returns paths that settings name and that do not exist yet, each with whether a folder counts
/// there, too. If one appears, it must not be obeyed.
pub fn absent(projects: &[PathBuf], survey: &Survey) -> BTreeMap<PathBuf, bool> {
    // If these cannot be read, the command was not started.
    let mut found = named_above(projects).unwrap_or_default();
    let own = own_words().unwrap_or_default();
    let used = used(survey);
    let is_directory = |kind| matches!(kind, Kind::Directory | Kind::Bare);
    let mut stack: Vec<PathBuf> = survey
        .repositories
        .iter()
        .filter(|(_, found)| is_directory(found.kind))
        .map(|(path, _)| path.clone())
        .collect();
    while let Some(git) = stack.pop() {
        found.extend(named_by(&git, &used, &own).unwrap_or_default());
        stack.extend(inner_directories(&git, &used));
    }
    words::absent(&found, projects)
}

/// Returns what outside settings name: those of repositories above the projects, and the user's own
/// for every repository.
fn named_above(projects: &[PathBuf]) -> Result<Vec<Word>, Failure> {
    let mut found = Vec::new();
    let mut tops: BTreeSet<PathBuf> = projects.iter().cloned().collect();
    for top in projects
        .iter()
        .flat_map(|project| project.ancestors().skip(1))
    {
        let file = top.join(".git");
        let mut directories: Vec<PathBuf> = match fs::metadata(&file) {
            Ok(found) if found.is_dir() => vec![file],
            Ok(_) => directory_named_by(&file).into_iter().collect(),
            Err(_) => continue,
        };
        tops.insert(top.to_owned());
        let common = directories.first().and_then(|directory| {
            Some(directory.join(line_of(&directory.join("commondir"))?.trim()))
        });
        directories.extend(common);
        let used = directories
            .iter()
            .map(|directory| (directory.clone(), top.to_owned()));
        let used: BTreeMap<PathBuf, PathBuf> = used.collect();
        for directory in &directories {
            found.extend(named_by(directory, &used, &BTreeSet::new())?);
        }
    }
    let tops: Vec<PathBuf> = tops.into_iter().collect();
    found.extend(at(&own_words()?, &tops));
    Ok(found)
}

/// Returns the words of the user's own settings, and of the system's, and these files. They hold
/// for every repository, also for those within a project.
///
/// # Errors
/// Returns a `Step::Git` failure if such settings cannot be read.
pub fn own_words() -> Result<BTreeSet<Word>, Failure> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let path = |name| set(name).map(PathBuf::from);
    let home = path("HOME");
    let of_home = home.iter().flat_map(|one| OWN.map(|name| one.join(name)));
    let of_variables = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"];
    let of_configuration = path("XDG_CONFIG_HOME").map(|one| one.join("git/config"));
    let mut files: Vec<PathBuf> = of_home.chain(of_configuration).collect();
    files.extend(of_variables.into_iter().filter_map(path));
    files.extend(set("PATH").iter().flat_map(|one| beside_programs(one)));
    files.push(PathBuf::from("/etc/gitconfig"));
    let mut found = words(&files)?;
    // They may lie in a project themselves, or be links into one.
    found.extend(files.into_iter().map(Word::file));
    Ok(found)
}

/// Returns the existing paths that the user's own settings name in a repository of the projects.
pub fn present_in(git: &Path, projects: &[PathBuf]) -> BTreeSet<PathBuf> {
    let bases = [git.parent().unwrap_or(git), git].map(Path::to_owned);
    // If these cannot be read, the command was not started.
    let own = own_words().unwrap_or_default();
    words::present(&at(&own, &bases), projects, &[])
}

/// Returns where each git on the search path has the system's settings, if it was installed
/// elsewhere than in `/usr`.
fn beside_programs(search: &OsStr) -> Vec<PathBuf> {
    let programs = std::env::split_paths(search).map(|folder| folder.join("git"));
    let real = |program: &PathBuf| fs::canonicalize(program).ok();
    let both = programs.flat_map(|program| [real(&program), Some(program)]);
    let prefix = |program: PathBuf| Some(program.parent()?.parent()?.join("etc/gitconfig"));
    both.flatten().filter_map(prefix).collect()
}

/// Returns what the settings of a repository's directory name, and the user's `own` there, and its
/// hooks that link to programs of the project.
pub fn named_by(
    git: &Path,
    used: &BTreeMap<PathBuf, PathBuf>,
    own: &BTreeSet<Word>,
) -> Result<Vec<Word>, Failure> {
    let trees = used
        .iter()
        .filter(|(directory, _)| directory.starts_with(git));
    let bases: Vec<PathBuf> = [git.parent().unwrap_or(git), git]
        .into_iter()
        .chain(trees.map(|(_, tree)| tree.as_path()))
        .map(Path::to_owned)
        .collect();
    let mut named = words(&["config", "config.worktree"].map(|name| git.join(name)))?;
    named.extend(own.iter().cloned());
    let mut found = at(&named, &bases);
    let hooks = fs::read_dir(git.join("hooks"))
        .into_iter()
        .flatten()
        .flatten();
    found.extend(
        hooks
            .filter(|hook| hook.path().is_symlink())
            .map(|hook| Word::file(hook.path())),
    );
    Ok(found)
}

/// Returns the repositories in a repository's directory that stay writable: those of submodules,
/// and worktrees within the projects.
pub fn inner_directories(git: &Path, used: &BTreeMap<PathBuf, PathBuf>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut stack = vec![git.join("modules")];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            // A submodule's name may have slashes; its own submodules are found when it is guarded
            // itself.
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && has_head(&path) => found.push(path),
                Ok(kind) if kind.is_dir() => stack.push(path),
                _ => {}
            }
        }
    }
    let worktrees = git.join("worktrees");
    found.extend(
        used.keys()
            .filter(|path| path.parent() == Some(&worktrees))
            .cloned(),
    );
    found
}

/// Returns the directories that `.git` files in the projects name, each with that file's folder.
pub fn used(survey: &Survey) -> BTreeMap<PathBuf, PathBuf> {
    survey
        .repositories
        .iter()
        .filter(|(_, found)| found.kind == Kind::File)
        .filter_map(|(path, _)| Some((directory_named_by(path)?, path.parent()?.to_owned())))
        .collect()
}

/// Where a user's own settings are, in the home directory.
const OWN: [&str; 2] = [".gitconfig", ".config/git/config"];
