//! Which folders commands in sandboxes could ever write to, and whether one could have written what
//! is about to be run or obeyed.
//!
//! Before a command starts, `gateway exec` writes down each folder that it may change. A folder is
//! known again by its path, and by its inode and its birth if it was moved.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::private::{check_private, private_folder, replace_private};
use super::state_folder::{home, real, state_directory};
use super::unfit::{Replaceable, Unfit, WritableEntry};
use crate::launch::program;

/// Writes down that a command is about to start which may write to these folders.
///
/// It is on the disk when this returns. Runs that start at the same time wait for each other.
///
/// # Errors
/// Returns the cause as [`Unfit`], also if the command could change the note.
pub fn note_writable(folders: &[PathBuf]) -> Result<(), Unfit> {
    let nowhere = || io::Error::other("neither HOME nor XDG_STATE_HOME names a folder");
    let record = record().ok_or_else(nowhere)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let last = now.map_or(0, |now| now.as_secs());
    if let Some(folder) = folders.iter().find(|folder| record.starts_with(folder)) {
        let (entry, folder) = (record, folder.clone());
        let written = WritableEntry {
            entry,
            folder,
            last,
        };
        return Err(Replaceable::Command(Box::new(written)).into());
    }
    private_folder(record.parent().unwrap_or(&record))?;
    let mut private = OpenOptions::new();
    private.create(true).append(true).mode(0o600);
    let turn = private.open(record.with_extension("lock"))?;
    turn.lock()?;
    let mut known = known(&record)?;
    for path in folders {
        let (path, identity) = (path.clone(), FolderIdentity::of(path));
        let new = Folder {
            path,
            identity,
            last,
        };
        known.retain(|one| one.path != new.path || one.is_another(new.identity));
        known.push(new);
    }
    let lines = Folder::kept(known).into_iter().map(|one| one.line());
    let text: Vec<u8> = lines.flatten().collect();
    Ok(replace_private(&record, &text)?)
}

/// Checks that no command in a sandbox could ever have written what a path leads to, nor a link on
/// its way.
///
/// # Errors
/// Returns [`Replaceable`] with what such a command could have written.
pub fn check_written(path: &Path) -> Result<(), Replaceable> {
    check_places(places(&std::path::absolute(path)?))
}

/// Checks the same of a program that is run in `/`, of its interpreters, and of all that its
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

/// What a shell makes of the user's home at the start of a word.
fn of_home(word: &str) -> Option<PathBuf> {
    let mut starts = ["~/", "$HOME/", "${HOME}/"].into_iter();
    Some(home()?.join(starts.find_map(|start| word.strip_prefix(start))?))
}

/// The path behind the letter of a flag, such as `-I/usr/lib`; any other word as it is.
fn of_flag(word: &str) -> &str {
    let at = word.find('/').filter(|_| word.starts_with('-'));
    at.map_or(word, |at| word.split_at(at).1)
}

/// Whether a path ends before this character, in a line of a shell or a flag.
fn ends_path(char: char) -> bool {
    char.is_whitespace() || "\"'`=,:;|&()<>".contains(char)
}

/// The links on a path, and where it leads.
fn places(path: &Path) -> Vec<PathBuf> {
    let mut places = program::links(path);
    places.push(program::real(path));
    places
}

fn check_places(places: Vec<PathBuf>) -> Result<(), Replaceable> {
    let known = record().map_or(Ok(Vec::new()), |record| known(&record));
    let known = known.map_err(|why| Replaceable::Untold(why.to_string()))?;
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

/// The nearest folder of commands that something lies in, or is, and when the last one began.
fn holder<'p>(known: &[Folder], entry: &'p Path) -> Option<(&'p Path, u64)> {
    entry.ancestors().find_map(|at| {
        let identity = FolderIdentity::of(at);
        let those = known
            .iter()
            .filter(|one| one.path == at || one.was(identity));
        Some((at, those.map(|one| one.last).max()?))
    })
}

/// A folder that a command could write to.
struct Folder {
    path: PathBuf,
    identity: Option<FolderIdentity>,
    /// When the last command began.
    last: u64,
}

impl Folder {
    fn was(&self, identity: Option<FolderIdentity>) -> bool {
        let both = self.identity.zip(identity);
        both.is_some_and(|(one, other)| one.is(&other))
    }

    fn is_another(&self, identity: Option<FolderIdentity>) -> bool {
        self.identity.is_some() && !self.was(identity)
    }

    /// Leaves out those that are gone for long: one that has another path now is still known, until
    /// many more have gone.
    fn kept(known: Vec<Self>) -> Vec<Self> {
        let is_there = |one: &Self| one.was(FolderIdentity::of(&one.path));
        let (mut kept, mut gone): (Vec<_>, Vec<_>) = known.into_iter().partition(is_there);
        gone.sort_by_key(|one| std::cmp::Reverse(one.last));
        gone.truncate(MOST_GONE);
        kept.append(&mut gone);
        kept
    }

    /// A line of the record. It ends with NUL, which no path holds.
    fn line(self) -> Vec<u8> {
        let FolderIdentity {
            device,
            inode,
            born,
        } = self.identity.unwrap_or_default();
        let mut line = format!("{} {device} {inode} {born} ", self.last).into_bytes();
        line.extend(self.path.as_os_str().as_bytes());
        line.push(0);
        line
    }

    fn of_line(line: &[u8]) -> Option<Self> {
        let mut parts = line.splitn(5, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
        let last: u64 = number()?;
        let identity = FolderIdentity {
            device: number()?,
            inode: number()?,
            born: number()?,
        };
        let path = Path::new(OsStr::from_bytes(parts.next()?));
        path.is_absolute().then(|| Self {
            path: path.to_owned(),
            identity: (identity != FolderIdentity::default()).then_some(identity),
            last,
        })
    }
}

/// What a file or folder is known by, whatever its path.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct FolderIdentity {
    device: u64,
    inode: u64,
    /// Its birth in nanoseconds since 1970; 0 if the file system does not know it.
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

    /// Numbers of devices change from one start of the machine to the next, and numbers of inodes
    /// are used again: a birth tells more.
    fn is(&self, other: &Self) -> bool {
        let is_same = match (self.born, other.born) {
            (0, _) | (_, 0) => self.device == other.device,
            (one, other) => one == other,
        };
        is_same && self.inode == other.inode
    }
}

fn record() -> Option<PathBuf> {
    Some(real(&state_directory()?).join("writable"))
}

fn known(record: &Path) -> Result<Vec<Folder>, Unfit> {
    match fs::symlink_metadata(record) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        _ => check_private(record)?,
    }
    let text = fs::read(record)?;
    let lines = text
        .split(|byte| *byte == 0)
        .filter(|line| !line.is_empty());
    let folders = lines.map(Folder::of_line).collect::<Option<Vec<_>>>();
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is damaged");
    Ok(folders.ok_or_else(damaged)?)
}

/// How many folders are remembered that are no longer where they were.
const MOST_GONE: usize = 1024;
