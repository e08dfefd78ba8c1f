//! Logins: those that a run uses, those that sessions made, their stores and files.

pub(crate) mod captured;
pub(crate) mod login_files;
pub(crate) mod run_logins;
pub(crate) mod stores;
