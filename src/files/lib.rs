//! Reads the files that configure the gateway. Refuses a file that another user could have written,
//! or a command in a sandbox, unless a person allowed its text.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod bad_file;
mod consent;
mod database;
mod folders;
mod judged;
mod kept;
mod private;
mod socket;
mod state_folder;
mod text;
mod written;

pub use bad_file::{BadFile, Replaceable, WritableEntry};
pub use consent::{Choice, Consent, allowed_files, allowed_in};
pub use database::{NewDatabase, Schema, known_version, reached};
pub use folders::{check_folders, trusted};
pub use judged::{read, to_show, unallowed};
pub use kept::{UserKind, UserRow, UserTable, user_database};
pub use private::{
    check_private, check_replaceable, create_private, lock_file, private_folder, put_aside,
    replace_if, replace_private,
};
pub use socket::{SocketFault, SocketFile, is_live, is_socket};
pub use state_folder::{absolute, granted_directory, home, real, state_directory};
pub use text::{open, shown, traced};
pub use written::{check_program, check_written, note_writable};
