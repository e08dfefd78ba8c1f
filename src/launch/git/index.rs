//! Reads git's index: which folders are submodules, and whether a path leads where git must not
//! write.
//!
//! The command can write an index, and git checks no path in one: `git checkout .` writes what it
//! names, into `.git/hooks` or out of the working tree. So every reading that git may take counts:
//! with either length of hashes, in order, and from each offset that a table for several threads
//! names. Git reads on behind the end of the file, where its page is empty; so what does not end in
//! the file is no sound index.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use gateway_names::hex;

/// What an index says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// The folders that it names as submodules, relative to its working tree.
    pub submodules: BTreeSet<PathBuf>,
    /// Whether git would write where it must not, or whether no git wrote this index.
    pub is_forged: bool,
    /// Whether a name in it says so. What is forged otherwise may not be written to the end yet.
    pub leads_astray: bool,
    /// The names of the files with the rest of it, if it is split.
    pub shared: BTreeSet<String>,
}

impl Index {
    /// Reads the index of a repository whose hashes have this length.
    pub fn read(index: &[u8], hash_bytes: usize) -> Self {
        let mut found = Self::default();
        let (Some(b"DIRC"), Some(version), Some(count)) =
            (index.get(..4), word(index, 4), word(index, 8))
        else {
            return found;
        };
        for &length in HASHES {
            let mut entries = Entries {
                index,
                version,
                hash_bytes: length,
                // Each entry is read twice at the most: in order, and by the table.
                left: index.len() / (FIXED_BYTES + length) * 2 + FURTHER,
                name_bytes: MOST_NAME_BYTES,
                submodule_bytes: MOST_SUBMODULE_BYTES,
                submodules: &mut found.submodules,
                is_forged: false,
                leads_astray: false,
            };
            let end = entries.block(HEADER_BYTES, count);
            entries.is_forged |= end.is_none();
            entries.tables();
            entries.is_forged |= entries.leads_astray;
            // Read with the other length, a sound index says anything.
            if length == hash_bytes {
                found.shared = entries.shared(end);
                found.leads_astray = entries.leads_astray;
                found.is_forged = entries.is_forged || found.shared.len() > 1;
            }
        }
        found
    }
}

/// The entries of an index, as git reads them with hashes of this length.
struct Entries<'a> {
    index: &'a [u8],
    version: u32,
    hash_bytes: usize,
    /// How many entries may still be looked for: more than a real index of this size has.
    left: usize,
    /// How long all names together may still become.
    name_bytes: usize,
    /// How much memory the submodules may still take.
    submodule_bytes: usize,
    submodules: &'a mut BTreeSet<PathBuf>,
    is_forged: bool,
    leads_astray: bool,
}

impl Entries<'_> {
    /// Reads a number of entries from an offset, and returns where they end. Returns `None` if one
    /// of them is not sound.
    fn block(&mut self, mut at: usize, count: u32) -> Option<usize> {
        let mut name = None;
        for _ in 0..count {
            self.left = self.left.checked_sub(1)?;
            at += self.entry(at, &mut name)?;
        }
        (at <= self.index.len()).then_some(at)
    }

    /// Reads the blocks that a table of offsets names.
    fn tables(&mut self) {
        let index = self.index;
        for at in memchr::memmem::find_iter(index, b"IEOT") {
            let (Some(length), Some(1)) = (word(index, at + 4), word(index, at + 8)) else {
                continue;
            };
            let end = at.saturating_add(8 + length as usize);
            self.is_forged |= end > index.len();
            let table = index.get(at + 12..end.min(index.len()));
            for block in table.unwrap_or_default().chunks_exact(8) {
                if let (Some(offset), Some(count)) = (word(block, 0), word(block, 4)) {
                    self.listed(offset as usize, count);
                }
                if self.left == 0 {
                    return;
                }
            }
        }
    }

    /// Reads a block that a table names. One that counts none costs as much to look at.
    fn listed(&mut self, offset: usize, count: u32) {
        let end = match count {
            0 => self.left.checked_sub(1).map(|left| self.left = left),
            _ => self.block(offset, count).map(|_| ()),
        };
        self.is_forged |= end.is_none() || self.left == 0;
    }

    /// Returns the names of the files with the rest of a split index. The extensions that say so
    /// begin behind the entries, or where the last extension says.
    fn shared(&self, end: Option<usize>) -> BTreeSet<String> {
        let ends = HASHES.iter().filter_map(|length| {
            let at = self
                .index
                .len()
                .checked_sub(12 + length + self.hash_bytes)?;
            let is_end = self.index.get(at..at + 4) == Some(b"EOIE");
            Some(word(self.index, at + 8).filter(|_| is_end)? as usize)
        });
        let mut found = BTreeSet::new();
        for start in ends.chain(end) {
            self.links(start, &mut found);
        }
        found
    }

    /// Goes through the extensions from an offset on, until more than one names a file.
    fn links(&self, mut at: usize, found: &mut BTreeSet<String>) {
        let last = self.index.len().checked_sub(self.hash_bytes + 8);
        while last.is_some_and(|last| at <= last) && found.len() < 2 {
            if self.index.get(at..at + 4) == Some(b"link") {
                let hash = self.index.get(at + 8..at + 8 + self.hash_bytes);
                found.insert(format!("sharedindex.{}", hex(hash.unwrap_or_default())));
            }
            at += 8 + word(self.index, at + 4).unwrap_or(u32::MAX) as usize;
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
        self.name_bytes = self.name_bytes.checked_sub(own.len())?;
        if own.len() > LONGEST_NAME {
            return None;
        }
        let text = own.split(|byte| *byte == 0).next().unwrap_or_default();
        self.leads_astray |= leads_astray(text);
        if mode & FORMAT_MASK == SUBMODULE {
            let bytes = text.len() + SUBMODULE_BYTES;
            self.submodule_bytes = self.submodule_bytes.checked_sub(bytes)?;
            self.submodules.insert(OsStr::from_bytes(text).into());
        }
        *name = Some(own);
        let end = at + length - start;
        Some(match self.version {
            COMPRESSED => end + 1,
            _ => (end + 8) & !7,
        })
    }
}

/// Whether git itself never puts such a path into an index (`verify_path` in git's read-cache.c).
fn leads_astray(path: &[u8]) -> bool {
    // A folder of a sparse index ends in a slash. An entry that replaces one of a shared index has
    // no name.
    let path = path.strip_suffix(b"/").unwrap_or(path);
    if path.is_empty() {
        return false;
    }
    let is_git = |part: &[u8]| {
        [&b".git"[..], b"git~1"]
            .iter()
            .any(|name| part.eq_ignore_ascii_case(name))
    };
    let mut parts = path.split(|byte| *byte == b'/');
    parts.any(|part| matches!(part, b"" | b"." | b"..") || is_git(part))
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

/// The length of a SHA-1, by which git names objects unless the repository says otherwise.
pub const SHA1_BYTES: usize = 20;
/// The length of a SHA-256.
pub const SHA256_BYTES: usize = 32;
/// The lengths of all hashes that git knows.
pub const HASHES: &[usize] = &[SHA1_BYTES, SHA256_BYTES];
/// How many entries more than fit into an index are looked for.
const FURTHER: usize = 1024;
/// The longest name of a sound index: twice the kernel's longest path.
const LONGEST_NAME: usize = 8192;
/// How long all names of a sound index may be together, each counted twice.
const MOST_NAME_BYTES: usize = 512 << 20;
/// How much memory the submodules of a sound index may take, and one of them beside its name.
const MOST_SUBMODULE_BYTES: usize = 2 << 20;
const SUBMODULE_BYTES: usize = 64;
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
                let hash_bytes = if hash == "sha1" {
                    SHA1_BYTES
                } else {
                    SHA256_BYTES
                };
                let expected = Index {
                    submodules: BTreeSet::from(["a/module".into(), PathBuf::from(&long)]),
                    is_forged: false,
                    leads_astray: false,
                    shared: BTreeSet::new(),
                };
                let found = Index::read(&index, hash_bytes);
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
        let found = Index::read(&index, SHA1_BYTES);
        assert!(found.submodules.contains(&PathBuf::from("hidden")));
        let hidden = index.windows(6).position(|part| part == b"hidden").unwrap();
        index[hidden..hidden + 6].copy_from_slice(b"../x/y");
        assert!(Index::read(&index, SHA1_BYTES).is_forged);
    }

    #[test]
    fn a_path_that_git_would_refuse_makes_an_index_a_forged_one() {
        for (path, is_forged) in [
            (".git/hooks/post-checkout", true),
            ("../outside", true),
            ("/etc/passwd", true),
            ("a/../b", true),
            ("a//b", true),
            ("a/./b", true),
            ("sub/.GIT/config", true),
            ("a/git~1/x", true),
            (".github/x", false),
            ("a/.gitignore", false),
            ("a/..b/...", false),
        ] {
            assert_eq!(leads_astray(path.as_bytes()), is_forged, "{path}");
        }
        assert!(!leads_astray(b"sparse/") && !leads_astray(b""));
    }

    #[test]
    fn an_index_that_takes_long_is_given_up_as_a_forged_one() {
        let began = std::time::Instant::now();
        let many_tables = b"IEOT\xff\xff\xff\xff\0\0\0\x01".repeat(30_000);
        let entry = [&[0; MODE_AT][..], &SUBMODULE.to_be_bytes(), &[0; 32]].concat();
        let entry = [&entry[..], b"\x0f\xff\0", &[b'a'; 10], b"\0"].concat();
        for (version, content) in [(2_u8, many_tables), (4, entry.repeat(30_000))] {
            let count = 1_u32 << 20;
            let head = [&b"DIRC\0\0\0"[..], &[version], &count.to_be_bytes()].concat();
            assert!(Index::read(&[head, content].concat(), SHA1_BYTES).is_forged);
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(20));
    }

    #[test]
    fn an_index_that_does_not_end_in_its_file_is_a_forged_one() {
        for (settings, hash, bytes) in [
            (&[][..], "sha1", SHA1_BYTES),
            (&["index.version=4"], "sha1", SHA1_BYTES),
            (&[], "sha256", SHA256_BYTES),
        ] {
            let index = written(settings, hash, "last");
            assert!(!Index::read(&index, bytes).is_forged, "{settings:?}");
            let name = memchr::memmem::rfind(&index, b"last").unwrap();
            for end in HEADER_BYTES..name + 4 {
                assert!(
                    Index::read(&index[..end], bytes).is_forged,
                    "{settings:?} {end}"
                );
            }
        }
        let mut index = written(&[], "sha1", "last");
        index.extend(b"IEOT\0\0\0\x0C\0\0\0\x01\0\0");
        assert!(Index::read(&index, SHA1_BYTES).is_forged);
    }

    #[test]
    fn more_submodules_than_anybody_has_are_not_remembered() {
        let entry = |at: u32| {
            let start = [&[0; MODE_AT][..], &SUBMODULE.to_be_bytes(), &[0; 32]].concat();
            [&start[..], b"\0\x08", format!("{at:08}\0\0").as_bytes()].concat()
        };
        for (count, is_forged) in [(10_000_u32, false), (100_000, true)] {
            let head = [&b"DIRC\0\0\0\x02"[..], &count.to_be_bytes()].concat();
            let entries: Vec<u8> = (0..count).flat_map(entry).collect();
            let found = Index::read(&[head, entries].concat(), SHA1_BYTES);
            assert_eq!(found.is_forged, is_forged, "{count}");
            assert!(found.submodules.len() < 50_000, "{count}");
        }
    }

    #[test]
    fn a_split_index_names_one_file() {
        let mut index = written(&[], "sha1", "last");
        let trailer = index.split_off(index.len() - SHA1_BYTES);
        let link = |byte: u8| [&b"link\0\0\0\x14"[..], &[byte; 20]].concat();
        let read = |links: &[Vec<u8>]| {
            let index = [&index[..], &links.concat(), &trailer].concat();
            Index::read(&index, SHA1_BYTES)
        };
        let one = read(&[link(0xAB)]);
        let name = format!("sharedindex.{}", "ab".repeat(20));
        assert_eq!((one.is_forged, one.shared), (false, BTreeSet::from([name])));
        assert!(read(&[link(1), link(2)]).is_forged);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(version in 2_u8..5, count: u32, rest: Vec<u8>, tail: Vec<u8>) {
            let start = [&b"DIRC\0\0\0"[..], &[version], &count.to_be_bytes()].concat();
            Index::read(&[&start[..], &rest, b"IEOT\0\0\xFF\xFF\0\0\0\x01", &tail].concat(), SHA1_BYTES);
        }
    }
}
