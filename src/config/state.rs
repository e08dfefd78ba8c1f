//! Where the gateway keeps what outlives a session, by the XDG rules.

use std::path::PathBuf;

/// The folder of the audit logs of `gateway exec`: `$XDG_STATE_HOME/gateway/audit`, else
/// `~/.local/state/gateway/audit`.
///
/// `None` where neither variable names an absolute path.
#[must_use]
pub fn audit_directory() -> Option<PathBuf> {
    directory().map(|state| state.join("audit"))
}

/// The folder of all of it: `$XDG_STATE_HOME/gateway`, else `~/.local/state/gateway`.
///
/// `None` where neither variable names an absolute path.
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

/// The user's home, where it is an absolute path.
#[must_use]
pub fn home() -> Option<PathBuf> {
    std::env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}
