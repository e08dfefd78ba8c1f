//! What git stores in a repository's directory and does not obey: a closed list. Whatever else is
//! there, git or a tool beside it may obey. And the names of what is set aside, which nobody obeys.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use gateway_names::hex;

use crate::git::{GUARDED, Guarded, WRITTEN};

/// Whether git stores this, and does not obey it. Also its lock while it is being written.
pub fn is_stored(name: &CStr) -> bool {
    let name = name.to_bytes();
    let name = name.strip_suffix(b".lock").unwrap_or(name);
    is_aside(name)
        || WRITTEN
            .iter()
            .chain(STORED)
            .any(|one| one.as_bytes() == name)
        || BEGINNINGS
            .iter()
            .any(|beginning| name.starts_with(beginning.as_bytes()))
}

/// Whether a name belongs into a bare repository, which contains nothing else.
pub fn is_of_bare(name: &CStr) -> bool {
    let guarded = |one: &Guarded| one.name.as_bytes() == name.to_bytes();
    let is_other = matches!(name.to_bytes(), b"info" | b"branches");
    is_stored(name) || is_other || GUARDED.iter().any(guarded)
}

/// Whether a name is one that [`aside`] gives. Neither git nor a tool knows such names.
pub fn is_aside(name: &[u8]) -> bool {
    let at = name.len().saturating_sub(ASIDE.len() + DIGITS);
    let (_, end) = name.split_at(at);
    end.strip_prefix(ASIDE)
        .is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Returns the name under which something is set aside. The command cannot know it before.
///
/// # Errors
/// If there is no randomness.
pub fn aside(name: &OsStr) -> io::Result<OsString> {
    let mut new = name.as_bytes().to_vec();
    new.truncate(LONGEST);
    new.extend(ASIDE);
    new.extend(unforeseen()?.into_bytes());
    Ok(OsString::from_vec(new))
}

/// Returns a name for a folder of what is set aside in a repository.
///
/// # Errors
/// As [`aside`].
pub fn folder_for_aside() -> io::Result<String> {
    Ok(format!("{SET_ASIDE}{}", unforeseen()?))
}

fn unforeseen() -> io::Result<String> {
    let mut bytes = [0_u8; DIGITS / 2];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(hex(&bytes))
}

/// Whether a name in `objects/info` is one of git's indexes of objects, not a way to other objects.
pub fn is_index_of_objects(name: &CStr) -> bool {
    matches!(
        name.to_bytes(),
        b"packs" | b"commit-graph" | b"commit-graphs"
    )
}

/// What git stores beside what it writes every day: messages, the state of a merge or a bisection.
const STORED: &[&str] = &[
    "description",
    "MERGE_MSG",
    "SQUASH_MSG",
    "TAG_EDITMSG",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "MERGE_MODE",
    "AUTO_MERGE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "GITGUI_MSG",
    "rr-cache",
    "gc.log",
    "gc.pid",
    "lfs",
];
/// How the names of the folders begin that hold what was set aside in a repository.
const SET_ASIDE: &str = "set-aside-by-gateway-";
/// What the name of something is extended with that was set aside, and how many digits follow.
const ASIDE: &[u8] = b".set-aside-";
const DIGITS: usize = 8;
/// How much of a name is kept when it is extended.
const LONGEST: usize = 200;
const BEGINNINGS: &[&str] = &[SET_ASIDE, "sharedindex.", "BISECT_"];
