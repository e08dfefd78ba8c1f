//! The folders that commands in sandboxes could ever write to, and whether such a command could
//! have written a file that is about to be run or obeyed.
//!
//! Before a command starts, `gateway exec` records each folder that it may change. A folder is
//! recognised by its path or, if it was moved, by its inode and birth time.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway_launch::program;

use super::bad_file::{BadFile, Replaceable, WritableEntry};
use super::kept::{UserKind, UserRow, UserRows, UserTable};
use super::state_folder::home;

/// Records that a command is about to start which may write to these folders.
///
/// The record is on the disk when this returns. Runs that start at the same time wait for each
/// other. If the same record is younger than an hour, nothing is written.
///
/// # Errors
/// Returns the cause as [`BadFile`], also if the command could change the record.
pub fn note_writable(folders: &[PathBuf]) -> Result<(), BadFile> {
    let (table, now) = (table(), SystemTime::now());
    let entry = table.database().to_owned();
    if let Some(folder) = folders.iter().find(|folder| entry.starts_with(folder)) {
        let written = WritableEntry {
            entry,
            folder: folder.clone(),
            last: seconds(now),
        };
        return Err(Replaceable::Command(Box::new(written)).into());
    }
    let new = folders.iter().map(|path| Folder {
        path: path.clone(),
        identity: FolderIdentity::of(path),
        last: now,
    });
    let new: Vec<Folder> = new.collect();
    let known = Folder::all(&table.rows()?)?;
    if new.iter().all(|new| known.iter().any(|one| one.notes(new))) {
        return Ok(());
    }
    table.change(|rows| {
        let mut known = Folder::all(rows)?;
        for new in new {
            known.retain(|one| one.path != new.path || one.is_another(new.identity));
            known.push(new);
        }
        *rows = Folder::kept(known).into_iter().map(Folder::row).collect();
        Ok(())
    })?
}

/// Checks that no command in a sandbox could ever have written the file at a path, or a link on the
/// way to it.
///
/// # Errors
/// Returns [`Replaceable`] with the entry that such a command could have written.
pub fn check_written(path: &Path) -> Result<(), Replaceable> {
    check_places(places(&std::path::absolute(path)?))
}

/// Checks the same of a program that is run in `/`, of its interpreters, and of every path that its
/// arguments name.
///
/// # Errors
/// As [`check_written`].
pub fn check_program(path: &Path, arguments: &[String], search: &OsStr) -> Result<(), Replaceable> {
    let mut names = program::names(path, search);
    let words = arguments.iter().flat_map(|text| text.split(ends_path));
    for word in words.filter(|word| !word.is_empty()) {
        let named = match of_home(word) {
            Some(path) => Some(path),
            None if word.contains('/') => Some(Path::new("/").join(of_flag(word))),
            None => program::find(word.as_ref(), search, Path::new("/")),
        };
        names.extend(
            named
                .map(|path| program::names(&path, search))
                .unwrap_or_default(),
        );
    }
    check_places(names)
}

/// Expands the user's home at the start of a word, as a shell does.
fn of_home(word: &str) -> Option<PathBuf> {
    let mut starts = ["~/", "$HOME/", "${HOME}/"].into_iter();
    Some(home()?.join(starts.find_map(|start| word.strip_prefix(start))?))
}

/// The path after the letter of a flag, such as `-I/usr/lib`; any other word as it is.
fn of_flag(word: &str) -> &str {
    let at = word.find('/').filter(|_| word.starts_with('-'));
    at.map_or(word, |at| word.split_at(at).1)
}

/// Whether this character ends a path in a shell's command line or in a flag.
fn ends_path(char: char) -> bool {
    char.is_whitespace() || "\"'`=,:;|&()<>".contains(char)
}

/// The links on a path, and the path that it resolves to.
fn places(path: &Path) -> Vec<PathBuf> {
    let mut places = program::links(path);
    places.push(program::real(path));
    places
}

fn check_places(places: Vec<PathBuf>) -> Result<(), Replaceable> {
    let known = known().map_err(|unfit| Replaceable::Untold {
        why: unfit.to_string(),
        next: unfit.remedy(table().database()),
    })?;
    if known.is_empty() {
        return Ok(());
    }
    for entry in places {
        if let Some((folder, last)) = holder(&known, &entry) {
            let folder = folder.to_owned();
            return Err(Replaceable::Command(Box::new(WritableEntry {
                entry,
                folder,
                last,
            })));
        }
        let about = fs::symlink_metadata(&entry).ok();
        if about.is_some_and(|about| about.is_file() && about.nlink() > 1 && about.uid() != 0) {
            return Err(Replaceable::OtherName(entry));
        }
    }
    Ok(())
}

/// The nearest recorded folder that is or holds the entry, and when its last command began.
fn holder<'p>(known: &[Folder], entry: &'p Path) -> Option<(&'p Path, u64)> {
    entry.ancestors().find_map(|at| {
        let identity = FolderIdentity::of(at);
        let those = known
            .iter()
            .filter(|one| one.path == at || one.was(identity));
        Some((at, seconds(those.map(|one| one.last).max()?)))
    })
}

/// A folder that a command could write to.
struct Folder {
    path: PathBuf,
    identity: Option<FolderIdentity>,
    /// When the last command that could write to it began.
    last: SystemTime,
}

impl Folder {
    fn was(&self, identity: Option<FolderIdentity>) -> bool {
        let both = self.identity.zip(identity);
        both.is_some_and(|(one, other)| one.is(&other))
    }

    fn is_another(&self, identity: Option<FolderIdentity>) -> bool {
        self.identity.is_some() && !self.was(identity)
    }

    /// Whether this record already covers a new one.
    fn notes(&self, new: &Self) -> bool {
        let age = new.last.duration_since(self.last);
        let is_fresh = age.is_ok_and(|age| age < FRESH);
        is_fresh && (&self.path, self.identity) == (&new.path, new.identity)
    }

    /// Drops the oldest of the folders that are no longer at their path. The newest are kept,
    /// because a moved folder may be among them.
    fn kept(known: Vec<Self>) -> Vec<Self> {
        let is_there = |one: &Self| one.was(FolderIdentity::of(&one.path));
        let (mut kept, mut gone): (Vec<_>, Vec<_>) = known.into_iter().partition(is_there);
        gone.sort_by_key(|one| std::cmp::Reverse(one.last));
        gone.truncate(MOST_GONE);
        kept.append(&mut gone);
        kept
    }

    /// Returns its row, named by identity and path: two folders may have had one path.
    fn row(self) -> (Vec<u8>, UserRow) {
        let FolderIdentity {
            device,
            inode,
            born,
        } = self.identity.unwrap_or_default();
        let mut name = format!("{device} {inode} {born} ").into_bytes();
        name.extend(self.path.as_os_str().as_bytes());
        let row = UserRow {
            content: Vec::new(),
            written: self.last,
        };
        (name, row)
    }

    fn all(rows: &UserRows) -> Result<Vec<Self>, BadFile> {
        let folders = rows.iter().map(|(name, row)| Self::of_row(name, row));
        let folders = folders.collect::<Option<_>>();
        folders.ok_or(BadFile::Damaged("a folder of an earlier run has no path"))
    }

    fn of_row(name: &[u8], row: &UserRow) -> Option<Self> {
        let mut parts = name.splitn(4, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
        let identity = FolderIdentity {
            device: number()?,
            inode: number()?,
            born: number()?,
        };
        let path = Path::new(OsStr::from_bytes(parts.next()?));
        path.is_absolute().then(|| Self {
            path: path.to_owned(),
            identity: (identity != FolderIdentity::default()).then_some(identity),
            last: row.written,
        })
    }
}

/// The identity of a file or folder, whatever its path.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct FolderIdentity {
    device: u64,
    inode: u64,
    /// Its birth time in nanoseconds since 1970; 0 if the file system does not record it.
    born: u64,
}

impl FolderIdentity {
    fn of(path: &Path) -> Option<Self> {
        let about = fs::symlink_metadata(path).ok()?;
        let born = about.created().ok();
        let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Some(Self {
            device: about.dev(),
            inode: about.ino(),
            born: born.map_or(0, |born| born.as_nanos().try_into().unwrap_or(0)),
        })
    }

    /// Device numbers change from one boot to the next, and inode numbers are reused, so the birth
    /// time decides if both are known.
    fn is(&self, other: &Self) -> bool {
        let is_same = match (self.born, other.born) {
            (0, _) | (_, 0) => self.device == other.device,
            (one, other) => one == other,
        };
        is_same && self.inode == other.inode
    }
}

fn known() -> Result<Vec<Folder>, BadFile> {
    let table = table();
    // The rows are read first: the database may be put aside just now.
    let known = Folder::all(&table.rows()?)?;
    table.unread().map_or(Ok(known), Err)
}

fn table() -> UserTable {
    UserTable::of_user(&UserKind {
        name: "writable",
        version: 1,
        what: "what commands in sandboxes could write to",
        anew: "",
    })
}

fn seconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH);
    since.as_ref().map_or(0, Duration::as_secs)
}

/// How old a record may be, at the start of a command, to count as fresh.
const FRESH: Duration = Duration::from_secs(60 * 60);
/// How many folders are remembered that are no longer at their path.
const MOST_GONE: usize = 1024;
