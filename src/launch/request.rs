//! The caller's decisions: what to run in the sandbox, and how.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::bounds::Bounds;
use super::environment::VariableRules;
use super::exact;
use super::identity::User;
use super::ports::Ports;
use crate::enroll::Capture;

/// A folder of the command's home directory that outlives the sandbox, or a socket of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFolder {
    /// Its path, relative to the home directory; of a socket, absolute.
    #[serde(with = "exact::one")]
    pub name: PathBuf,
    /// The folder or socket of the host: it belongs to the command's user, and no other user
    /// can read it.
    #[serde(with = "exact::one")]
    pub folder: PathBuf,
}

/// The command to run, and the settings for it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Launch {
    /// The command and its arguments. The first is the program, looked up in `PATH` unless
    /// `own_program` is set.
    pub arguments: Vec<OsString>,
    /// Whether the program is this very program, whatever the first argument says. It then runs
    /// from the open file, so the sandbox's user need not be able to reach its path.
    pub own_program: bool,
    /// The project of the working directory, if that is a directory above it; absolute.
    pub project: Option<PathBuf>,
    /// Further directories that stay the host's own and writable; absolute.
    pub projects: Vec<PathBuf>,
    /// Further directories and files to show, read-only; absolute.
    pub see: Vec<PathBuf>,
    /// The parts of the home directory to show beyond the default: names of [`super::tools::SETS`],
    /// and paths.
    pub see_home: Vec<String>,
    /// Further sets of the home directory, by name, if the user has one.
    pub sets: Vec<String>,
    /// Folders of the home directory that outlive the sandbox.
    pub kept: Vec<KeptFolder>,
    /// Files that the command gets in its home directory unless the home shows them, by path
    /// relative to it.
    pub files: BTreeMap<PathBuf, String>,
    /// Variables that the command gets unless it has them. `~/` at the start of a value stands for
    /// its home directory, and `$NAME` for the value of another variable.
    pub variables: BTreeMap<String, String>,
    /// Files and directories to hide, beyond the built-in ones; absolute.
    pub hide: Vec<PathBuf>,
    /// The paths in `hide` that are the gateway's own files. No file may take their place, because
    /// the next start would read it.
    pub own: Vec<PathBuf>,
    /// Folders that the gateway searches for its own files by a pattern. The command may add no
    /// file there.
    pub own_folders: Vec<PathBuf>,
    /// Files of the gateway in the projects that the command may read, but neither change nor make;
    /// absolute.
    pub read_only: Vec<PathBuf>,
    /// Which variables pass, beyond the built-in list.
    pub environment: VariableRules,
    /// How much of the machine's resources the sandbox may use.
    pub bounds: Bounds,
    /// The user that runs the command. Root only; `None`: the user who called `sudo`, or `nobody`.
    pub user: Option<User>,
    /// Whether the command may create its own user namespaces (Chromium, bubblewrap, podman, a
    /// nested gateway).
    pub allow_userns: bool,
    /// Whether the files that git obeys in the projects' repositories stay writable.
    pub writable_git: bool,
    /// Whether files that outside tools run on their own are guarded: none can change, and none can
    /// appear.
    pub guard_tools: bool,
    /// The ports that connect the sandbox with the host's loopback.
    pub ports: Ports,
    /// Forces one way of capture; `None` for the best one that the kernel has.
    pub capture: Option<Capture>,
}
