//! Where the gateway keeps what outlives a session, following the XDG specification.

use std::path::PathBuf;

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
    let named = |variable| {
        std::env::var_os(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = named("XDG_STATE_HOME").or_else(|| home().map(|home| home.join(".local/state")))?;
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

/// Returns the user's home, if it is an absolute path.
#[must_use]
pub fn home() -> Option<PathBuf> {
    std::env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}
