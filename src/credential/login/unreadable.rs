//! Why a program's file cannot be read.

use std::path::PathBuf;

use super::{LoginFile, TokenKind};

/// A program's file cannot be read. The message quotes no value of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}`{}: {fault}; correct it, or log in again with the program that writes it",
    path.display(),
    member.as_ref().map(|member| format!(", member `{member}`")).unwrap_or_default()
)]
pub struct FileUnreadable {
    /// The file.
    pub path: PathBuf,
    /// The member, if a single one is at fault.
    pub member: Option<String>,
    /// The fault of the file or the member.
    pub fault: FileFault,
}

/// A fault in a program's file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// It has another form.
    #[error("{0}")]
    Form(String),
    /// A member occurs twice: this one, or any other.
    #[error("a member is there twice, so that programs may disagree on its value")]
    Doubled,
    /// The member is not a text.
    #[error("it is not a text")]
    NoText,
    /// The member looks like a JSON Web Token, but its claims, which programs read, are unreadable.
    #[error("it looks like a JSON Web Token, and its claims cannot be read")]
    NoClaims,
    /// The member is not the base64 of a user and a token.
    #[error("it is not base64 of `user:token`")]
    NoPair,
    /// The member names no host.
    #[error("it names no host that a token could be for")]
    NoHost,
    /// The member is not a moment.
    #[error("it is neither a number of seconds or milliseconds nor a date of RFC 3339")]
    NoMoment,
    /// The file's format is for tokens that do not expire.
    #[error("tokens in a file of this format do not end, so none of them is replaced")]
    Endless,
    /// There is no object that the member could be added to.
    #[error("it is not there, and there is no object for it")]
    NoPlace,
}

impl LoginFile {
    /// Returns the same file for the access token of one of its hosts.
    pub(crate) fn with_access(&self, member: String) -> Self {
        Self {
            members: vec![(TokenKind::Access, member)],
            ..self.clone()
        }
    }

    /// Returns the error for the file as a whole.
    pub(super) fn unreadable(&self, fault: FileFault) -> FileUnreadable {
        FileUnreadable {
            path: self.path.clone(),
            member: None,
            fault,
        }
    }

    /// Returns the error for a member.
    pub(crate) fn at(&self, member: &str, fault: FileFault) -> FileUnreadable {
        FileUnreadable {
            member: Some(member.to_owned()),
            ..self.unreadable(fault)
        }
    }
}
