//! Where the gateway stores data that outlives a session, following the XDG specification.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gateway_files::absolute;
pub(super) use gateway_files::real;
pub use gateway_files::{granted_directory, home, state_directory as directory};
use gateway_names::hex;
use sha2::{Digest as _, Sha256};

/// The name of the state's key in the key ring, next to the secrets of `gateway secret`.
pub const KEY_IN_RING: &str = "gateway-state";

/// Returns the place of the user's own file: `gateway/config.toml` in `$XDG_CONFIG_HOME`, else in
/// `~/.config`.
///
/// Returns `None` if neither variable holds an absolute path.
pub fn user_file() -> Option<PathBuf> {
    let usual = || home().map(|home| home.join(".config"));
    let folder = absolute("XDG_CONFIG_HOME").or_else(usual)?;
    Some(folder.join("gateway/config.toml"))
}

/// Returns the audit log folder of `gateway exec`: `$XDG_STATE_HOME/gateway/audit`, else
/// `~/.local/state/gateway/audit`.
///
/// Returns `None` if neither variable holds an absolute path.
pub fn audit_directory() -> Option<PathBuf> {
    directory().map(|state| state.join("audit"))
}

/// Returns the folder of the sessions' records: `sessions` in the state folder that systemd gives a
/// service (`$STATE_DIRECTORY`), else in the user's.
///
/// Returns `None` if no variable holds an absolute path.
pub fn sessions_folder() -> Option<PathBuf> {
    // systemd names several folders with colons between them (systemd.exec(5)).
    let service = std::env::var("STATE_DIRECTORY").ok();
    let service = service.as_deref().and_then(|list| list.split(':').next());
    let service = service.map(PathBuf::from).filter(|path| path.is_absolute());
    service
        .or_else(directory)
        .map(|state| state.join("sessions"))
}

/// Returns the default file of a CA's certificate, next to the sessions' records.
pub(super) fn certificate() -> Option<PathBuf> {
    sessions_folder().map(|folder| folder.with_file_name("ca-{session}.pem"))
}

/// Returns the file of revocations for every gateway of this user, next to the sessions' records.
pub fn revoked_file() -> Option<PathBuf> {
    sessions_folder().map(|folder| folder.join("revoked.json"))
}

/// Returns the database of the logins for every gateway of this user, next to the sessions'
/// records.
pub fn logins_database() -> Option<PathBuf> {
    sessions_folder().map(|folder| folder.join("user.db"))
}

/// Returns the folder of the control sockets: `gateway` in the user's runtime directory, else `run`
/// in the state folder.
///
/// A runtime directory of another user, as after `sudo`, is not used. Returns `None` if there is
/// neither.
pub fn run_directory() -> Option<PathBuf> {
    let own = |path: &PathBuf| {
        let owner = std::fs::metadata(path).map(|about| about.uid());
        owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
    };
    let runtime = absolute("XDG_RUNTIME_DIR").filter(own);
    let folder = runtime.map(|runtime| runtime.join("gateway"));
    folder.or_else(|| directory().map(|state| state.join("run")))
}

/// Returns the file of the rules that operators granted for a project: one for each folder that
/// `exec` is started in, and for each configuration file that it is started with there.
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
