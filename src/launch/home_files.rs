//! The gateway's files for the command's home directory: those of its logins, with phantoms.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::exact;

/// A file for the command's home directory, which the command alone reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeFile {
    /// Its path, relative to the home directory.
    pub path: PathBuf,
    /// Its content.
    pub content: Vec<u8>,
}

/// A file's path and length, as in the head of a message.
#[derive(Serialize, Deserialize)]
pub(super) struct FileHead {
    #[serde(with = "exact::one")]
    path: PathBuf,
    bytes: usize,
}

/// Returns the head of each file, and their contents, one after the other; `None` if they exceed a
/// sandbox's limits.
pub(super) fn joined(files: &[HomeFile]) -> Option<(Vec<FileHead>, Vec<u8>)> {
    let heads = files.iter().map(|file| FileHead {
        path: file.path.clone(),
        bytes: file.content.len(),
    });
    let heads: Vec<FileHead> = heads.collect();
    let contents: Vec<&[u8]> = files.iter().map(|file| &file.content[..]).collect();
    is_bounded(&heads).then(|| (heads, contents.concat()))
}

/// Takes the files apart again; `None` if they exceed a sandbox's limits, or have a path outside of
/// its home.
pub(super) fn parted(heads: Vec<FileHead>, mut contents: &[u8]) -> Option<Vec<HomeFile>> {
    if !is_bounded(&heads) {
        return None;
    }
    let mut files = Vec::with_capacity(heads.len());
    for FileHead { path, bytes } in heads {
        let (content, rest) = contents.split_at_checked(bytes)?;
        let content = content.to_vec();
        files.push(HomeFile { path, content });
        contents = rest;
    }
    contents.is_empty().then_some(files)
}

fn is_bounded(heads: &[FileHead]) -> bool {
    let fits = |head: &FileHead| head.bytes <= MOST_BYTES && is_in_home(&head.path);
    let all = heads.iter().map(|head| head.bytes);
    heads.len() <= MOST_FILES && heads.iter().all(fits) && all.sum::<usize>() <= MOST_BYTES_IN_ALL
}

fn is_in_home(path: &Path) -> bool {
    let mut parts = path.components();
    path.file_name().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// How many files a sandbox gets at most.
pub const MOST_FILES: usize = 64;
/// How large one file may be.
pub const MOST_BYTES: usize = 1 << 20;
/// How large all files together may be.
pub const MOST_BYTES_IN_ALL: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, bytes: usize) -> HomeFile {
        let content = vec![b'x'; bytes];
        let path = path.into();
        HomeFile { path, content }
    }

    #[test]
    fn files_arrive_as_they_were_and_no_more_of_them_than_are_taken() {
        let all = [file(".a/b", 3), file("c", 0), file("d", MOST_BYTES)];
        let (heads, contents) = joined(&all).unwrap();
        assert_eq!(parted(heads, &contents).unwrap(), all);
        let few = |count, bytes| (0..count).map(|_| file("a", bytes)).collect::<Vec<_>>();
        for refused in [
            few(MOST_FILES + 1, 0),
            few(1, MOST_BYTES + 1),
            few(5, MOST_BYTES),
            vec![file("/a", 1)],
            vec![file("../a", 1)],
            vec![file("a/../../b", 1)],
            vec![file("", 1)],
        ] {
            assert!(joined(&refused).is_none());
        }
        let (heads, contents) = joined(&[file("a", 2)]).unwrap();
        assert!(parted(heads, &contents[1..]).is_none());
    }
}
