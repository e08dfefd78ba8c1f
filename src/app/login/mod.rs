//! Logins: those of a run, those that sessions made, and their stores and files.

pub(crate) mod captured;
pub(crate) mod login_files;
pub(crate) mod run_logins;
pub(crate) mod stores;
