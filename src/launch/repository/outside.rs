//! The repository outside of the projects to which a project belongs: as a linked worktree, or as a
//! submodule that was opened by itself.

use std::fs;
use std::path::{Path, PathBuf};

use super::found::named_by;
use super::git::{Git, text_of};

/// Returns the repository outside `projects` that a project's `.git` file belongs to, if that
/// repository confirms it.
///
/// A command could have written the file, and anything else in places that a command could once
/// write. So the file counts only if it names a place that git itself would use: the `worktrees` or
/// the `modules` of a repository that contains none of the projects.
pub fn outside(project: &Path, projects: &[&Path]) -> Option<PathBuf> {
    let file = project.join(".git");
    let directory = named_by(&file)?;
    let given = match text_of(&directory.join("gitdir"), b"") {
        Some(back) => {
            let common = text_of(&directory.join("commondir"), b"")?;
            let common = fs::canonicalize(directory.join(common)).ok()?;
            let is_ours =
                fs::canonicalize(directory.join(back)).ok()? == fs::canonicalize(&file).ok()?;
            let is_in_place = directory.parent()? == common.join("worktrees");
            (is_ours && is_in_place && is_repository(&common)).then_some(common)?
        }
        None => {
            let settings = Git::find()?.settings(&directory.join("config")).ok()?;
            let back = settings
                .iter()
                .find(|setting| setting.key == "core.worktree")?;
            let is_ours = fs::canonicalize(directory.join(&back.value)).ok()? == project;
            let is_of_modules = |above: &Path| {
                above.ends_with("modules") && above.parent().is_some_and(is_repository)
            };
            let is_in_place = directory.ancestors().skip(1).any(is_of_modules);
            (is_ours && is_in_place && is_repository(&directory)).then_some(directory.clone())?
        }
    };
    let is_apart =
        |project: &&Path| !directory.starts_with(project) && !project.starts_with(&given);
    projects.iter().all(is_apart).then_some(given)
}

/// Whether git treats a directory as a repository (`is_git_directory` in git's setup.c).
fn is_repository(directory: &Path) -> bool {
    fs::symlink_metadata(directory.join("HEAD")).is_ok()
        && ["objects", "refs"]
            .iter()
            .all(|name| directory.join(name).is_dir())
}
