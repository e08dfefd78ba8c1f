//! The settings of a run: flags, the project and its file, profiles, presets and the shell's
//! secrets that it may use.

pub mod commit_key;
pub mod flags;
pub mod git_access;
pub mod profile;
pub mod project_file;
pub mod resolve;
pub mod seeds;
pub mod shell_secrets;
