//! Where the gateway keeps what outlives a session, following the XDG specification.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::names::{hex, real_path};

/// The name of the key of the state in the key ring, beside the secrets of `gateway secret`.
pub const KEY_IN_RING: &str = "gateway-state";

/// Returns the audit log folder of `gateway exec`: `$XDG_STATE_HOME/gateway/audit`, else
/// `~/.local/state/gateway/audit`.
///
/// Returns `None` if neither variable holds an absolute path.
#[must_use]
pub fn audit_directory() -> Option<PathBuf> {
    directory().map(|state| state.join("audit"))
}

/// Returns the state folder: `$XDG_STATE_HOME/gateway`, else `~/.local/state/gateway`.
///
/// Returns `None` if neither variable holds an absolute path.
#[must_use]
pub fn directory() -> Option<PathBuf> {
    let usual = || home().map(|home| home.join(".local/state"));
    let state = absolute("XDG_STATE_HOME").or_else(usual)?;
    Some(state.join("gateway"))
}

/// Returns the folder of the sessions' records: `sessions` in the state folder that systemd gives a
/// service (`$STATE_DIRECTORY`), else in the user's.
///
/// Returns `None` if no variable holds an absolute path.
#[must_use]
pub fn sessions_folder() -> Option<PathBuf> {
    // systemd names several folders with colons between them (systemd.exec(5)).
    let service = std::env::var("STATE_DIRECTORY").ok();
    let service = service.as_deref().and_then(|list| list.split(':').next());
    let service = service.map(PathBuf::from).filter(|path| path.is_absolute());
    service
        .or_else(directory)
        .map(|state| state.join("sessions"))
}

/// Returns the folder of the control sockets: `gateway` in the user's runtime directory, else `run`
/// in the state folder.
///
/// A runtime directory of another user, as after `sudo`, is not used. Returns `None` if there is
/// neither.
#[must_use]
pub fn run_directory() -> Option<PathBuf> {
    let own = |path: &PathBuf| {
        let owner = std::fs::metadata(path).map(|about| about.uid());
        owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
    };
    let runtime = absolute("XDG_RUNTIME_DIR").filter(own);
    let folder = runtime.map(|runtime| runtime.join("gateway"));
    folder.or_else(|| directory().map(|state| state.join("run")))
}

/// Returns the folder of the rules that operators granted for projects, with links resolved.
#[must_use]
pub fn granted_directory() -> Option<PathBuf> {
    directory().map(|state| real(&state.join("projects")))
}

/// Returns the file of the rules that operators granted for a project: one for each folder that
/// `exec` is started in, and for each configuration file that it is started with there.
#[must_use]
pub fn granted_for(project: &Path, config: Option<&Path>) -> Option<PathBuf> {
    let mut digest = Sha256::new_with_prefix(project.as_os_str().as_encoded_bytes());
    if let Some(config) = config {
        // No path holds a NUL.
        digest.update(b"\0");
        digest.update(real(config).as_os_str().as_encoded_bytes());
    }
    let digest = digest.finalize();
    let name = hex(&digest[..16]);
    Some(granted_directory()?.join(name).join("granted.cedar"))
}

/// Returns the user's home, if it is an absolute path.
#[must_use]
pub fn home() -> Option<PathBuf> {
    absolute("HOME")
}

/// Returns the path that a variable holds, if it is an absolute one.
fn absolute(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    path.filter(|path| path.is_absolute())
}

/// Resolves the links and `..` of a path. A part that does not exist yet is appended by name.
pub(super) fn real(path: &Path) -> PathBuf {
    for there in path.ancestors() {
        if let Ok(found) = real_path(there)
            && let Ok(rest) = path.strip_prefix(there)
        {
            return rest.components().fold(found, |mut at, part| {
                match part {
                    Component::ParentDir => drop(at.pop()),
                    part => at.push(part),
                }
                at
            });
        }
    }
    path.to_owned()
}
