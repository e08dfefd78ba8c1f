//! What git's settings name in the projects: settings of their repositories, and settings outside.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::repository::{directory_named_by, has_head, line_of};
use super::settings::{self, Named};
use crate::after::survey::{Kind, Survey};
use crate::failure::Failure;

/// Returns existing paths in the projects that outside settings name. The sandbox itself does not
/// see those settings.
///
/// # Errors
/// Returns a `Step::Git` failure if such settings cannot be read.
pub fn present_above(projects: &[PathBuf]) -> Result<BTreeSet<PathBuf>, Failure> {
    Ok(settings::present(&named_above(projects)?, projects, &[]))
}

/// Returns paths that settings name and that do not exist yet. If one appears, it must not be
/// obeyed.
pub fn absent(projects: &[PathBuf], survey: &Survey) -> BTreeSet<PathBuf> {
    // If these cannot be read, the command was not started.
    let mut found = named_above(projects).unwrap_or_default();
    let used = used(survey);
    let is_directory = |kind| matches!(kind, Kind::Directory | Kind::Bare);
    let mut stack: Vec<PathBuf> = survey
        .repositories
        .iter()
        .filter(|(_, found)| is_directory(found.kind))
        .map(|(path, _)| path.clone())
        .collect();
    while let Some(git) = stack.pop() {
        found.extend(named_by(&git, &used).unwrap_or_default());
        stack.extend(inner_directories(&git, &used));
    }
    settings::absent(&found, projects)
}

/// Returns what outside settings name: those of repositories above the projects, and the user's own
/// for every repository.
fn named_above(projects: &[PathBuf]) -> Result<Vec<Named>, Failure> {
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
            found.extend(named_by(directory, &used)?);
        }
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let own = home
        .iter()
        .flat_map(|home| OWN_SETTINGS.map(|name| home.join(name)));
    let files: Vec<PathBuf> = own.chain([PathBuf::from("/etc/gitconfig")]).collect();
    let tops: Vec<PathBuf> = tops.into_iter().collect();
    found.extend(settings::named(&files, &tops)?);
    Ok(found)
}

/// Returns what the settings of a repository's directory name, and its hooks that link to programs
/// of the project.
pub fn named_by(git: &Path, used: &BTreeMap<PathBuf, PathBuf>) -> Result<Vec<Named>, Failure> {
    let trees = used
        .iter()
        .filter(|(directory, _)| directory.starts_with(git));
    let bases: Vec<PathBuf> = [git.parent().unwrap_or(git), git]
        .into_iter()
        .chain(trees.map(|(_, tree)| tree.as_path()))
        .map(Path::to_owned)
        .collect();
    let files = ["config", "config.worktree"].map(|name| git.join(name));
    let mut found = settings::named(&files, &bases)?;
    let hooks = fs::read_dir(git.join("hooks"))
        .into_iter()
        .flatten()
        .flatten();
    found.extend(
        hooks
            .filter(|hook| hook.path().is_symlink())
            .map(|hook| Named {
                path: hook.path(),
                is_whole: true,
            }),
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
const OWN_SETTINGS: [&str; 2] = [".gitconfig", ".config/git/config"];
