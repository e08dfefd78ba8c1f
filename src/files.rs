//! Reads the files that configure the gateway, and only those that no other user could have
//! written.

mod private;

pub use private::{check_private, create_private, private_folder};

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

/// Why another user can replace a file, whoever owns it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Replaceable {
    /// Everyone may write to a folder on its path.
    #[error("everyone on this machine can replace it, for they may write to the folder `{}`", .0.display())]
    Folder(PathBuf),
    /// An entry on its path, in a folder such as `/tmp`, belongs to another user.
    #[error("user {owner} can replace it, who owns `{}`", entry.display())]
    Entry {
        /// The folder, the link or the file.
        entry: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// A folder on its path cannot be inspected.
    #[error("a folder on its path cannot be looked at: {0}")]
    Unknown(io::ErrorKind),
}

impl Replaceable {
    /// Returns what to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::Folder(folder) => format!("run `chmod o-w {}`", folder.display()),
            Self::Entry { .. } => String::from("move it to a folder of your own"),
            Self::Unknown(_) => String::from("correct the path"),
        }
    }
}

impl From<io::Error> for Replaceable {
    fn from(error: io::Error) -> Self {
        Self::Unknown(error.kind())
    }
}

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It is missing, may not be read, or is not UTF-8.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is a folder, a device or a pipe.
    #[error("it is no regular file")]
    Irregular,
    /// It belongs to another user.
    #[error("it belongs to user {0}, who can change it")]
    Owner(u32),
    /// Another user can replace it.
    #[error(transparent)]
    Replaceable(#[from] Replaceable),
    /// Everyone may write to it.
    #[error("everyone on this machine can change the file, the workload too")]
    Writable,
    /// Other users may use it. Its mode.
    #[error("other users may use it (mode {0:04o})")]
    Exposed(u32),
    /// It is larger than this limit, in MiB.
    #[error("the file is larger than {0}MiB")]
    Large(u64),
}

impl Unfit {
    /// Returns what to do about it.
    #[must_use]
    pub fn remedy(&self, path: &Path) -> String {
        match self {
            Self::Unreadable(_) => String::from("create it, or correct the path"),
            Self::Irregular => String::from("name the file itself"),
            Self::Owner(_) => format!(
                "run the gateway as that user, or `chown` {} to your own",
                path.display()
            ),
            Self::Replaceable(why) => why.remedy(),
            Self::Writable => format!("run `chmod o-w {}`", path.display()),
            Self::Exposed(_) => format!("run `chmod go= {}`", path.display()),
            Self::Large(_) => String::from("split it, or correct the path"),
        }
    }
}

thread_local! {
    /// The files that this thread read, while somebody wants to know.
    static TRACED: RefCell<Option<BTreeSet<PathBuf>>> = const { RefCell::new(None) };
}

/// Does something, and says which files [`read`] was asked for meanwhile on this thread, whether or
/// not they could be read.
pub fn traced<T>(done: impl FnOnce() -> T) -> (T, BTreeSet<PathBuf>) {
    TRACED.set(Some(BTreeSet::new()));
    let done = done();
    (done, TRACED.take().unwrap_or_default())
}

/// Reads a text file of at most `most_mib` MiB that belongs to root or to the gateway's own user.
/// Refuses it if everyone may write or replace it.
///
/// Symbolic links are followed, because orchestrators mount files through them. The checks apply to
/// the open file that they lead to.
///
/// # Errors
/// Returns the cause as [`Unfit`].
pub fn read(path: &Path, most_mib: u64) -> Result<String, Unfit> {
    TRACED.with_borrow_mut(|traced| traced.as_mut().map(|all| all.insert(path.to_owned())));
    // Non-blocking, so that a pipe cannot block the reader.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(Unfit::Irregular);
    }
    if !trusted(about.uid()) {
        return Err(Unfit::Owner(about.uid()));
    }
    if about.mode() & 0o002 != 0 {
        return Err(Unfit::Writable);
    }
    check_folders(path)?;
    let mut text = String::new();
    let most = most_mib << 20;
    if file.take(most + 1).read_to_string(&mut text)? as u64 > most {
        return Err(Unfit::Large(most_mib));
    }
    Ok(text)
}

/// Checks that no other user can replace a file: not everyone may write to a folder on its path.
///
/// Links are followed one at a time, and the folders of each are checked. In a folder like `/tmp`,
/// users cannot touch each other's entries, so it is safe if the entry is trusted.
///
/// # Errors
/// Returns [`Replaceable`] with the folder or the entry.
pub fn check_folders(path: &Path) -> Result<(), Replaceable> {
    let mut at = PathBuf::from("/");
    let mut rest = parts_from_last(&std::path::absolute(path)?);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        match part.as_path().components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::Normal(name)) => {
                let entry = at.join(name);
                let about = fs::symlink_metadata(&entry)?;
                check_entry(&at, &entry, &about)?;
                if !about.is_symlink() {
                    at = entry;
                    continue;
                }
                links += 1;
                if links > MOST_LINKS {
                    return Err(Replaceable::Unknown(io::ErrorKind::Other));
                }
                rest.extend(parts_from_last(&fs::read_link(&entry)?));
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    Ok(())
}

fn parts_from_last(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().rev();
    parts.map(|part| PathBuf::from(part.as_os_str())).collect()
}

fn check_entry(folder: &Path, entry: &Path, about: &Metadata) -> Result<(), Replaceable> {
    let of_folder = fs::metadata(folder)?;
    let mode = of_folder.mode();
    if mode & 0o002 == 0 || is_read_only(folder) {
        return Ok(());
    }
    if mode & STICKY == 0 {
        return Err(Replaceable::Folder(folder.to_owned()));
    }
    // In such a folder, the owner of an entry and the owner of the folder may remove it.
    for (path, about) in [(folder, &of_folder), (entry, about)] {
        if !trusted(about.uid()) {
            return Err(Replaceable::Entry {
                entry: path.to_owned(),
                owner: about.uid(),
            });
        }
    }
    Ok(())
}

/// Whether this mount makes the folder read-only for everyone. Orchestrators mount folders of mode
/// 0777 this way. A user who has the same files mounted writable elsewhere is trusted.
fn is_read_only(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Whether a file of this owner may configure the gateway: root's, or the gateway's own user's.
#[must_use]
pub fn trusted(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}

/// Users may remove and rename only their own entries in the folder.
const STICKY: u32 = 0o1000;
/// As many as Linux follows.
const MOST_LINKS: usize = 40;
