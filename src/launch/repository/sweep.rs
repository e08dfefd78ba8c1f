//! The sweep after a sandbox's last process has gone, and the sweep of a home that is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::io;
use std::path::{Path, PathBuf};

use super::check::{Checker, Found, moment_of};
use super::record::{ChangeTime, Guard, Repositories};
use super::walk::{SearchVisitor, Walk};
use crate::folder::{Folder, path_in};

/// The findings after a command.
#[derive(Debug, Default)]
pub struct SweepFindings {
    /// The findings, by path.
    pub found: BTreeMap<PathBuf, Found>,
    /// Folders that were not searched.
    pub missed: BTreeSet<PathBuf>,
    /// Whether the command was ended because it kept on making files that git obeys.
    pub was_ended: bool,
}

impl Checker {
    /// Searches the projects: for new repositories, for new files in known ones, and for files that
    /// tools read by themselves. With `guards_tools`, new files of tools are moved away.
    pub fn sweep(mut self, guards_git: bool, guards_tools: bool) -> SweepFindings {
        if !guards_git && !guards_tools {
            return SweepFindings::default();
        }
        let guards = self.look_anew();
        let projects = self.projects.clone();
        let tools = ChangedTools {
            since: self.began,
            found: BTreeMap::new(),
        };
        let walk = Walk::over(&projects, tools);
        if guards_git {
            let mut submodules = Vec::new();
            for entry in &walk.entries {
                let is_known = self.is_known(entry);
                let stays = (!is_known).then(|| self.new_repository(entry)).flatten();
                if let Some((directory, inner)) = stays {
                    self.links(&directory);
                    submodules.extend(inner);
                }
            }
            for (directory, top) in self.known.clone() {
                submodules.extend(self.directory(&directory, &top));
                self.links(&directory);
            }
            // Includes folders that are too deep for the search.
            while let Some(top) = submodules.pop() {
                for (directory, inner) in self.top(&top) {
                    self.links(&directory);
                    submodules.extend(inner);
                }
            }
            self.mark();
        }
        for (path, tool) in walk.visitor.found {
            let is_guarded =
                |path: &Path| guards.get(path).is_some_and(|one| *one != Guard::Pinned);
            // A change by the user stays, and the summary names it.
            let is_kept = path.ancestors().any(is_guarded);
            let is_folder = path.symlink_metadata().is_ok_and(|found| found.is_dir());
            if guards_tools && !is_kept && !is_folder {
                self.move_away(&path, &format!("{tool} runs or obeys it"))
            } else {
                _ = self.found.insert(path, Found::Tool(tool))
            }
        }
        SweepFindings {
            found: self.found,
            missed: walk.missed,
            was_ended: false,
        }
    }
}

/// Finds files that tools read by themselves, if they were made or changed.
struct ChangedTools {
    since: ChangeTime,
    found: BTreeMap<PathBuf, &'static str>,
}

impl SearchVisitor for ChangedTools {
    fn name(&mut self, folder: &Folder, path: &Path, name: &CStr, tool: &'static str) {
        let is_new = |found| moment_of(&found) >= self.since;
        if self.found.len() < MOST_TOOLS && folder.look(name).is_ok_and(is_new) {
            self.found.insert(path_in(path, name), tool);
        }
    }
}

/// Puts off the repositories in a folder that is kept for a command's home, unless they run
/// nothing, and removes links through which git would write elsewhere.
///
/// # Errors
/// An error if not everything was searched, or a file could not be put away.
pub fn sweep_home(folder: &Path, state: &Path) -> io::Result<()> {
    let folder = folder.canonicalize()?;
    let known = Repositories {
        state: state.to_owned(),
        ..Repositories::default()
    };
    let left = Checker::of(vec![folder], &known).sweep(true, false);
    if let Some(missed) = left.missed.first() {
        let missed = missed.display();
        return Err(io::Error::other(format!("`{missed}` was not searched")));
    }
    let armed = left.found.into_values().find_map(|found| match found {
        Found::Armed(why) => Some(Err(io::Error::other(why))),
        _ => None,
    });
    armed.unwrap_or(Ok(()))
}

/// How many files of tools the summary names.
const MOST_TOOLS: usize = 10_000;
