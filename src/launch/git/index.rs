//! Reads from git's index which folders are submodules.
//!
//! The command can write an index. So every reading that git may take counts: with either length of
//! hashes, in order, and from each offset that a table for several threads names.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Returns the folders that an index names as submodules, relative to its working tree.
pub fn submodules(index: &[u8]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let (Some(b"DIRC"), Some(version), Some(count)) =
        (index.get(..4), word(index, 4), word(index, 8))
    else {
        return found;
    };
    for hash_bytes in HASHES {
        let mut entries = Entries {
            index,
            version,
            hash_bytes,
            left: index.len() / (FIXED_BYTES + hash_bytes) + 1,
            found: &mut found,
        };
        entries.block(HEADER_BYTES, count);
        entries.tables();
    }
    found
}

/// The entries of an index, as git reads them with hashes of this length.
struct Entries<'a> {
    index: &'a [u8],
    version: u32,
    hash_bytes: usize,
    /// How many entries may still be read: more than a real index of this size has.
    left: usize,
    found: &'a mut BTreeSet<PathBuf>,
}

impl Entries<'_> {
    /// Reads a number of entries from an offset, as far as they are ones.
    fn block(&mut self, mut at: usize, count: u32) {
        let mut name = None;
        for _ in 0..count {
            let Some(length) = self.entry(at, &mut name).filter(|_| self.left > 0) else {
                return;
            };
            self.left -= 1;
            at += length;
        }
    }

    /// Reads the blocks that a table of offsets names.
    fn tables(&mut self) {
        let index = self.index;
        for at in memchr::memmem::find_iter(index, b"IEOT") {
            let (Some(length), Some(1)) = (word(index, at + 4), word(index, at + 8)) else {
                continue;
            };
            let end = at.saturating_add(8 + length as usize).min(index.len());
            for block in index.get(at + 12..end).unwrap_or_default().chunks_exact(8) {
                if let (Some(offset), Some(count)) = (word(block, 0), word(block, 4)) {
                    self.block(offset as usize, count);
                }
            }
        }
    }

    /// Reads one entry, and returns its length. `name` is that of the entry before, if any.
    fn entry(&mut self, start: usize, name: &mut Option<Vec<u8>>) -> Option<usize> {
        let index = self.index;
        let mode = word(index, start.checked_add(MODE_AT)?)?;
        let flags_at = start + FIXED_BYTES + self.hash_bytes;
        let flags = word(index, flags_at)? >> 16;
        let mut at = flags_at + if flags & EXTENDED == 0 { 2 } else { 4 };
        let mut own = Vec::new();
        if self.version == COMPRESSED {
            let (stripped, length) = number(index.get(at..)?);
            at += length;
            own = name.take().unwrap_or_default();
            // The first one of a block has none before it, whatever it says.
            own.truncate(own.len().saturating_sub(stripped));
        }
        let rest = index.get(at..)?;
        let length = match (flags & NAME_MASK) as usize {
            LONG_NAME => memchr::memchr(0, rest)?,
            whole => whole.checked_sub(own.len())?,
        };
        own.extend(rest.get(..length)?);
        if mode & FORMAT_MASK == SUBMODULE {
            let text = own.split(|byte| *byte == 0).next().unwrap_or_default();
            self.found.insert(OsStr::from_bytes(text).into());
        }
        *name = Some(own);
        let end = at + length - start;
        Some(match self.version {
            COMPRESSED => end + 1,
            _ => (end + 8) & !7,
        })
    }
}

/// Reads the number of bytes that a compressed name leaves out, and the length of this number. One
/// that git refuses is none, as for git.
fn number(bytes: &[u8]) -> (usize, usize) {
    let mut value = 0_usize;
    for (at, byte) in bytes.iter().enumerate() {
        let low = usize::from(byte & 127);
        let next = value
            .checked_mul(128)
            .and_then(|high| high.checked_add(low));
        match (next, byte & 128) {
            (Some(value), 0) => return (value, at + 1),
            (Some(next), _) => value = next.saturating_add(1),
            (None, _) => break,
        }
    }
    (0, 0)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// The lengths of git's hashes: SHA-1 and SHA-256.
const HASHES: [usize; 2] = [20, 32];
const HEADER_BYTES: usize = 12;
/// What an entry has before its hash.
const FIXED_BYTES: usize = 40;
const MODE_AT: usize = 24;
const FORMAT_MASK: u32 = 0o170000;
const SUBMODULE: u32 = 0o160000;
const EXTENDED: u32 = 0x4000;
const NAME_MASK: u32 = 0xFFF;
/// Stands for the length of a name that is as long or longer.
const LONG_NAME: usize = 0xFFF;
/// The version in which a name leaves out what it has in common with the one before.
const COMPRESSED: u32 = 4;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn git(folder: &std::path::Path, words: &[&str]) {
        let mut command = Command::new("git");
        let output = command.current_dir(folder).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    }

    /// The index that git writes of two files and two submodules, one with a long name.
    fn written(settings: &[&str], hash: &str, long: &str) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let format = format!("--object-format={hash}");
        git(at, &["init", "-q", &format]);
        for setting in settings {
            let (key, value) = setting.split_once('=').unwrap();
            git(at, &["config", key, value]);
        }
        let digits = if hash == "sha1" { 40 } else { 64 };
        let id = "1".repeat(digits);
        for (mode, name) in [
            ("100644", "a/file"),
            ("160000", "a/module"),
            ("100644", "a/module.txt"),
            ("160000", long),
        ] {
            let entry = format!("{mode},{id},{name}");
            git(
                at,
                &[
                    "update-index",
                    "--add",
                    "--info-only",
                    "--cacheinfo",
                    &entry,
                ],
            );
        }
        std::fs::read(at.join(".git/index")).unwrap()
    }

    #[test]
    fn submodules_are_found_in_each_form_of_an_index() {
        let long = ["b"; 2100].join("/");
        for hash in ["sha1", "sha256"] {
            for version in ["2", "3", "4"] {
                let setting = format!("index.version={version}");
                let index = written(&[&setting], hash, &long);
                let found = submodules(&index);
                let expected = BTreeSet::from(["a/module".into(), PathBuf::from(&long)]);
                assert_eq!(found, expected, "{hash}, version {version}");
            }
        }
    }

    #[test]
    fn what_only_a_table_of_offsets_names_is_found() {
        let mut index = written(&[], "sha1", "b");
        let (start, count) = (index.len() as u32, 1_u32);
        let mut entry = vec![0; MODE_AT];
        entry.extend(SUBMODULE.to_be_bytes());
        entry.resize(FIXED_BYTES + 20, 0);
        entry.extend(b"\x00\x06hidden\0\0\0\0");
        index.extend(entry);
        index.extend(b"IEOT\0\0\0\x0C\0\0\0\x01");
        index.extend([start.to_be_bytes(), count.to_be_bytes()].concat());
        assert!(submodules(&index).contains(&PathBuf::from("hidden")));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(version in 2_u8..5, count: u32, rest: Vec<u8>, tail: Vec<u8>) {
            let start = [&b"DIRC\0\0\0"[..], &[version], &count.to_be_bytes()].concat();
            submodules(&[&start[..], &rest, b"IEOT\0\0\xFF\xFF\0\0\0\x01", &tail].concat());
        }
    }
}
