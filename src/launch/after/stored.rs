//! What git stores in a repository's directory and does not obey: a closed list. Whatever else is
//! there, git or a tool beside it may obey.

use std::ffi::CStr;

/// Whether git stores this, and does not obey it. Also its lock while it is being written.
pub fn is_stored(name: &CStr) -> bool {
    let name = name.to_bytes();
    let name = name.strip_suffix(b".lock").unwrap_or(name);
    STORED.iter().any(|stored| stored.as_bytes() == name)
        || BEGINNINGS
            .iter()
            .any(|beginning| name.starts_with(beginning.as_bytes()))
}

/// Whether a name in `objects/info` is one of git's indexes of objects, not a way to other objects.
pub fn is_index_of_objects(name: &CStr) -> bool {
    matches!(
        name.to_bytes(),
        b"packs" | b"commit-graph" | b"commit-graphs"
    )
}

/// Objects, references and what names them; messages; the state of a merge.
const STORED: &[&str] = &[
    "HEAD",
    "index",
    "objects",
    "refs",
    "reftable",
    "logs",
    "packed-refs",
    "shallow",
    "description",
    "COMMIT_EDITMSG",
    "MERGE_MSG",
    "SQUASH_MSG",
    "TAG_EDITMSG",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "MERGE_MODE",
    "MERGE_RR",
    "AUTO_MERGE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "gc.log",
    "gc.pid",
    "lfs",
];
/// How the names of the folders begin that hold what was set aside in a repository.
pub const SET_ASIDE: &str = "set-aside-by-gateway-";
const BEGINNINGS: &[&str] = &[SET_ASIDE, "sharedindex."];
