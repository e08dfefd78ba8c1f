//! The settings that an agent's ready screen needs, in addition to its tokens: members of its own
//! settings, in the file that is kept for the project. They hold no secret.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::Deserialize;
use serde_json::{Map, Value};

use gateway_credential::login::file;
use gateway_files as files;
use gateway_launch::home_files::{HomeFile, MOST_BYTES};

/// Members of an agent's settings in JSON, by their pointers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seed {
    /// The file inside, relative to the home, directly in a kept folder.
    pub file: PathBuf,
    /// The user's own file, relative to the home outside.
    own: PathBuf,
    /// The variable that may name another folder of the user's own file.
    folder_variable: Option<String>,
    /// The members that are copied from the user's own file.
    members: Vec<String>,
    /// The members that it needs once a person is logged in, if they are not set.
    #[serde(default)]
    logged_in: BTreeMap<String, Value>,
}

impl Seed {
    /// Returns the file for a home, if the home lacks any member. `kept` is the folder of the kept
    /// home.
    pub fn planted(
        &self,
        kept: Option<&Path>,
        home: &Path,
        is_logged_in: bool,
    ) -> Option<HomeFile> {
        let before = match kept.map(|kept| kept_text(&kept.join(&self.file))) {
            None | Some(ExistingFile::Nothing) => Value::Object(Map::new()),
            Some(ExistingFile::Text(text)) => serde_json::from_str(&text).ok()?,
            Some(ExistingFile::Unreadable) => return None,
        };
        let mut after = before.clone();
        let own = files::shown(&self.own(home), 1).ok();
        let own = own.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        for pointer in &self.members {
            if let Some(value) = own.as_ref().and_then(|own| own.pointer(pointer)) {
                file::put(&mut after, pointer, value.clone());
            }
        }
        for (pointer, value) in self.logged_in.iter().filter(|_| is_logged_in) {
            if after.pointer(pointer).is_none() {
                file::put(&mut after, pointer, value.clone());
            }
        }
        let path = self.file.clone();
        let content = format!("{after:#}\n").into_bytes();
        // The kept file, once indented, may be larger than a sandbox accepts.
        let is_due = after != before && content.len() <= MOST_BYTES;
        is_due.then_some(HomeFile { path, content })
    }

    fn own(&self, home: &Path) -> PathBuf {
        let folder = self.folder_variable.as_ref().and_then(std::env::var_os);
        let folder = folder.map(PathBuf::from).filter(|one| one.is_absolute());
        match (folder, self.own.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => home.join(&self.own),
        }
    }
}

/// The file at a path that a command may have written to.
enum ExistingFile {
    Nothing,
    Text(String),
    /// A link, a folder, or a file that is too large. It belongs to the command.
    Unreadable,
}

fn kept_text(path: &Path) -> ExistingFile {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match openat(CWD, path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return ExistingFile::Nothing,
        Err(_) => return ExistingFile::Unreadable,
        Ok(opened) => std::fs::File::from(opened),
    };
    let is_plain = opened.metadata().is_ok_and(|about| about.is_file());
    let mut text = String::new();
    let read = is_plain.then(|| opened.take(MOST_BYTES as u64).read_to_string(&mut text));
    match read {
        Some(Ok(length)) if length < MOST_BYTES => ExistingFile::Text(text),
        _ => ExistingFile::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_file_that_would_be_too_large_is_left_as_it_is() {
        let seed = Seed {
            file: PathBuf::from("kept.json"),
            own: PathBuf::from("own.json"),
            folder_variable: None,
            members: Vec::new(),
            logged_in: BTreeMap::from([("/done".to_owned(), Value::Bool(true))]),
        };
        let folder = tempfile::tempdir().unwrap();
        let planted = |members: usize| {
            let kept = format!("{{\"a\":[{}0]}}", "0,".repeat(members));
            assert!(kept.len() < MOST_BYTES);
            std::fs::write(folder.path().join("kept.json"), kept).unwrap();
            seed.planted(Some(folder.path()), folder.path(), true)
        };
        assert!(planted(1_000).is_some());
        assert!(planted(MOST_BYTES / 2 - 100).is_none());
    }
}
