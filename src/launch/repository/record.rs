//! The repositories of the projects when the command starts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::walk::FoundRepository;
use crate::exact;

/// A moment: seconds and nanoseconds of the system's clock. A command cannot set a file's time of
/// change.
pub type ChangeTime = (i64, i64);

/// The repositories of the projects, and the mounts that guard them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repositories {
    /// The folder of the state, to which files are moved.
    #[serde(with = "exact::one")]
    pub state: PathBuf,
    /// When the search for them began: any later change is the command's.
    pub began: ChangeTime,
    /// The repositories, as git finds them.
    pub entries: Vec<FoundRepository>,
    /// Their directories, with those of submodules and worktrees: each with the top of its tree.
    #[serde(with = "exact::map")]
    pub directories: BTreeMap<PathBuf, OsString>,
    /// The relative folders of hooks that settings name: each counts in every working tree.
    #[serde(with = "exact::list")]
    pub hooks: BTreeSet<PathBuf>,
    /// What becomes a mount, parents first.
    #[serde(with = "exact::map")]
    pub guards: BTreeMap<PathBuf, Guard>,
    /// Folders that were not searched.
    #[serde(with = "exact::list")]
    pub missed: BTreeSet<PathBuf>,
}

/// How a path is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Guard {
    /// It can be written, but not moved away.
    Pinned,
    /// It is read-only, if it exists.
    ReadOnly,
    /// It is read-only; where it does not exist, an empty file takes its place.
    File,
    /// As [`Guard::File`], with the content of a `commondir` that leads nowhere else.
    Commondir,
    /// It is read-only; where it does not exist, an empty folder takes its place.
    Folder,
}
