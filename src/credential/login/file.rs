//! The files in which programs keep their logins: reading tokens from them, and replacing them.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use zeroize::Zeroizing;

use super::{LoginFile, TokenKind, Tokens};

/// A program's file cannot be read. The message holds no value of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}`: {why}; correct it, or log in again with the program that writes it", path.display())]
pub struct FileUnreadable {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub why: String,
}

/// Reads a login's tokens. `None` if the file has no login, as after a logout.
///
/// # Errors
/// [`FileUnreadable`] by cause.
pub fn read(file: &LoginFile, text: &[u8]) -> Result<Option<Tokens>, FileUnreadable> {
    let document = document(file, text)?;
    let token = |kind| {
        let (_, member) = file.members.iter().find(|(known, _)| *known == kind)?;
        let text = document.pointer(member)?.as_str()?;
        Some(Zeroizing::new(text.to_owned()))
    };
    let Some(access) = token(TokenKind::Access) else {
        return Ok(None);
    };
    let expires = file.expires.as_ref().and_then(|at| document.pointer(at));
    let expires = expires.and_then(Value::as_u64);
    Ok(Some(Tokens {
        access,
        refresh: token(TokenKind::Refresh),
        id: token(TokenKind::Id),
        expires: expires.map(|millis| UNIX_EPOCH + Duration::from_millis(millis)),
        scope: None,
    }))
}

/// Replaces the tokens; everything else stays.
///
/// # Errors
/// [`FileUnreadable`] by cause.
pub fn replace(
    file: &LoginFile,
    text: &[u8],
    tokens: &Tokens,
) -> Result<Zeroizing<Vec<u8>>, FileUnreadable> {
    let mut document = document(file, text)?;
    for (kind, member) in &file.members {
        if let (Some(token), Some(at)) = (tokens.of(*kind), document.pointer_mut(member)) {
            *at = Value::String(token.to_string());
        }
    }
    let at = file.expires.as_ref();
    if let (Some(at), Some(end)) = (at.and_then(|at| document.pointer_mut(at)), tokens.expires) {
        let since = end
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        *at = Value::from(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    }
    Ok(Zeroizing::new(document.to_string().into_bytes()))
}

fn document(file: &LoginFile, text: &[u8]) -> Result<Value, FileUnreadable> {
    serde_json::from_slice(text).map_err(|error| FileUnreadable {
        path: file.path.clone(),
        why: format!("it is no whole JSON document: {error}"),
    })
}
