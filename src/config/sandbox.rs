//! `[sandbox]`: what the workload of `gateway exec` sees, gets and may change.

use std::path::{Path, PathBuf};

use toml::Spanned;

use crate::body::Limit;

use super::diagnostic::Hint;
use super::reference::variables;
use super::section::Section;
use super::units;

/// Settings of the sandbox that `gateway exec` builds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sandbox {
    /// Paths that the workload sees beside the system's, to be read.
    pub see: Vec<PathBuf>,
    /// Sets and paths of the home that the workload sees beside those that let programs run.
    pub see_home: Vec<String>,
    /// Paths that the workload does not see, beside those that are always hidden.
    pub hide: Vec<PathBuf>,
    /// Variables that the workload gets beside those that always pass; a name may end in `*`.
    pub pass_env: Vec<String>,
    /// Whether the workload may make user namespaces of its own.
    pub allow_userns: bool,
    /// Whether new and changed files that tools run by themselves are refused.
    pub guard_tools: bool,
    /// Paths outside the project that the workload may change for good.
    pub write: Vec<PathBuf>,
    /// All files in memory together; half of the machine's memory unless set.
    pub memory_files: Option<Limit>,
    /// Processes and threads at a time, unless the launcher's own bound holds.
    pub processes: Option<u64>,
    /// The user that the workload runs as where the launcher is root.
    pub user: Option<String>,
}

pub(super) fn sandbox(section: &Section<'_, '_>) -> Sandbox {
    let paths = |key| section.each(key, |text| section.document.path(text));
    Sandbox {
        see: paths("see").into_iter().map(Spanned::into_inner).collect(),
        see_home: section
            .each("see_home", of_home)
            .into_iter()
            .map(Spanned::into_inner)
            .collect(),
        hide: paths("hide").into_iter().map(Spanned::into_inner).collect(),
        pass_env: section
            .each("pass_env", variables)
            .into_iter()
            .map(Spanned::into_inner)
            .collect(),
        allow_userns: section.truth("allow_userns").unwrap_or(false),
        guard_tools: section.truth("guard_tools").unwrap_or(false),
        write: paths("write")
            .into_iter()
            .map(Spanned::into_inner)
            .collect(),
        memory_files: memory_files(section),
        processes: section.count("processes", 16..=4_194_304),
        user: None,
    }
}

fn memory_files(section: &Section<'_, '_>) -> Option<Limit> {
    let size = section.parsed("memory_files", units::size)?.into_inner();
    if (Limit::mib(64)..=Limit::mib(1 << 20)).contains(&size) {
        return Some(size);
    }
    section.error(
        "memory_files",
        format!("`memory_files` is {size}"),
        Hint::new(
            "it is between 64MiB and 1024GiB",
            "write for example `2GiB`",
        ),
    );
    None
}

/// The name of a set, or a path below the home; the launcher, which knows both, tells them apart.
pub(super) fn of_home(text: &str) -> Result<String, Hint> {
    let leads_out = Path::new(text)
        .components()
        .any(|part| part == std::path::Component::ParentDir);
    if text.is_empty() || leads_out {
        return Err(Hint::new(
            "it is neither a set nor a path below the home",
            "write for example `claude` or `~/.vimrc`",
        ));
    }
    Ok(text.to_owned())
}
