//! What a run is set up with: flags, the project and its file, profiles, presets and what it may
//! have of the shell.

pub(crate) mod flags;
pub(crate) mod git_access;
pub(crate) mod profile;
pub(crate) mod project_file;
pub(crate) mod resolve;
pub(crate) mod seeds;
pub(crate) mod shell_secrets;
