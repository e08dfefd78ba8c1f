//! Errors for stored logins that cannot be used, with their remedies.

use std::path::Path;

use gateway_files::BadFile;
use gateway_names::CredentialName;
use gateway_state::StateError;

use super::super::StoreError;
use crate::login::{Login, LoginPlace};

/// Returns the error for rows that cannot be read or written.
pub(super) fn of_state(why: &StateError) -> StoreError {
    let text = format!(
        "what is kept of logins cannot be used: {why}; {}",
        match why {
            StateError::Changed => "remove it: `gateway login forget NAME`, and log in again",
            _ => "let the state folder and all in it belong to you alone",
        }
    );
    StoreError::LoginState(text.into())
}

/// Returns the error for a program's file that cannot be used.
pub(super) fn of_file(path: &Path, why: &str, remedy: &str) -> StoreError {
    let text = format!("`{}` cannot be used: {why}; {remedy}", path.display());
    StoreError::LoginUnusable(text.into())
}

/// Returns the error for a program's file of another owner, or that others could have written.
pub(super) fn unfit(path: &Path, why: &BadFile) -> StoreError {
    of_file(path, &why.to_string(), &why.remedy(path))
}

/// Returns how to log in again.
pub(super) fn again(login: &Login) -> String {
    match &login.place {
        LoginPlace::File(file) => format!(
            "log in again with the program that keeps it in `{}`, or in the sandbox",
            file.path.display()
        ),
        LoginPlace::State => of_row(&login.name),
    }
}

fn of_row(name: &CredentialName) -> String {
    format!("log in again in the sandbox, or with `gateway login add {name}`")
}
