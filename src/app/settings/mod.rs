//! The settings of a run: flags, the project and its file, profiles, presets and the shell's
//! secrets that it may use.

pub(crate) mod flags;
pub(crate) mod git_access;
pub(crate) mod profile;
pub(crate) mod project_file;
pub(crate) mod resolve;
pub(crate) mod seeds;
pub(crate) mod shell_secrets;
