//! Logins: those of a run, those that sessions made, and their stores and files.

pub mod captured;
pub mod login_files;
pub mod run_logins;
pub mod stores;
