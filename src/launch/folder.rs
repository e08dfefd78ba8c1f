//! Folders that a command may have written: opened by descriptor and never through a link.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, SeekFrom, Stat,
};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::temporary_mode::TemporaryMode;

/// The purpose of opening a folder. If the owner, or the command as the owner, removed the
/// permission for it, the permission is added for as long as the folder is open.
#[derive(Clone, Copy)]
pub enum FolderAccess {
    /// List it, and look at its entries.
    Read,
    /// Change it, too.
    Change,
}

impl FolderAccess {
    fn needed(self) -> (Access, Mode) {
        match self {
            Self::Read => (Access::READ_OK | Access::EXEC_OK, Mode::RUSR | Mode::XUSR),
            Self::Change => (
                Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK,
                Mode::RWXU,
            ),
        }
    }
}

/// An open folder.
pub struct Folder {
    // Declared before the descriptor, so that the mode is restored while the folder is open.
    _given: Option<TemporaryMode>,
    file: OwnedFd,
}

impl Folder {
    /// Opens a folder of a project.
    ///
    /// # Errors
    /// The kernel's error, also if a link leads there.
    pub fn open(project: &Path, path: &Path, to: FolderAccess) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A project is a path without links. A command must have put a link in it since.
        let no_link = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let top = rustix::fs::openat2(CWD, project, flags, Mode::empty(), no_link)?;
        let below = path.strip_prefix(project).map_err(|_| Errno::XDEV)?;
        if below.as_os_str().is_empty() {
            return Self::of(top, to);
        }
        let resolve = ResolveFlags::BENEATH | no_link;
        let known = rustix::fs::openat2(top, below, flags, Mode::empty(), resolve)?;
        Self::of(known, to)
    }

    /// Opens the folder that contains a path, and returns the path's name there.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn around<'p>(project: &Path, path: &'p Path) -> io::Result<(Self, &'p OsStr)> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::INVAL.into());
        };
        Ok((Self::open(project, parent, FolderAccess::Change)?, name))
    }

    /// Opens a folder in this one.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn child(&self, name: impl Arg + Copy, to: FolderAccess) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |how| rustix::fs::openat(&self.file, name, flags | how, Mode::empty());
        // A search opens many folders, and any user may read nearly all of them.
        if matches!(to, FolderAccess::Read)
            && let Ok(file) = open(OFlags::RDONLY)
            && is_for_all(&file)
        {
            return Ok(Self { _given: None, file });
        }
        Self::of(open(OFlags::PATH)?, to)
    }

    fn of(known: OwnedFd, to: FolderAccess) -> io::Result<Self> {
        let (access, needed) = to.needed();
        let lacks = rustix::fs::accessat(&known, ".", access, AtFlags::EACCESS).is_err();
        // If the permission cannot be added, the open below fails and is reported.
        let given = lacks.then(|| TemporaryMode::on(&known, needed)).flatten();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&known, ".", flags, Mode::empty());
        Ok(Self {
            _given: given,
            file: file?,
        })
    }

    /// Returns its `wanted` entries, up to a limit, with their kinds. A kind that the file system
    /// does not report is looked up. The others take no memory.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn entries(
        &self,
        most: usize,
        wanted: impl Fn(&CStr) -> bool,
    ) -> io::Result<Vec<(CString, FileType)>> {
        // The folder may have been listed before.
        rustix::fs::seek(&self.file, SeekFrom::Start(0))?;
        let mut buffer = [MaybeUninit::uninit(); LISTED_AT_ONCE];
        let mut entries = RawDir::new(&self.file, &mut buffer);
        let mut found = Vec::new();
        while found.len() < most
            && let Some(entry) = entries.next()
        {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") || !wanted(name) {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => self.look(name).map_or(FileType::Unknown, kind_of),
                kind => kind,
            };
            found.push((name.to_owned(), kind));
        }
        Ok(found)
    }

    /// Returns the status of an entry, without following a link.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn look(&self, name: impl Arg) -> io::Result<Stat> {
        Ok(rustix::fs::statat(
            &self.file,
            name,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    /// Moves an entry to another folder, where no entry may have that name.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn rename(&self, name: impl Arg + Copy, to: &Self, new: impl Arg + Copy) -> io::Result<()> {
        let flags = RenameFlags::NOREPLACE;
        let rename = || rustix::fs::renameat_with(&self.file, name, &to.file, new, flags);
        match rename() {
            // A folder must itself be writable to be moved.
            Err(Errno::ACCESS) => {
                let _given = self.child(name, FolderAccess::Change)?;
                Ok(rename()?)
            }
            done => Ok(done?),
        }
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens a file to read it, and none that a link leads to. It does not wait for who writes a pipe.
///
/// # Errors
/// The kernel's error.
pub fn open_file(folder: impl AsFd, name: impl Arg) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty()).map(File::from)
}

/// Whether everybody, so also its owner, may list a folder and look at its entries.
fn is_for_all(folder: &OwnedFd) -> bool {
    let all = Mode::RUSR | Mode::XUSR | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
    rustix::fs::fstat(folder).is_ok_and(|found| Mode::from_raw_mode(found.st_mode).contains(all))
}

/// Returns the kind of an entry.
pub fn kind_of(found: Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

/// Returns the path of an entry.
pub fn path_in(folder: &Path, name: &CStr) -> PathBuf {
    folder.join(OsStr::from_bytes(name.to_bytes()))
}

/// How many bytes of a listing are read at once. A name has 255 at most.
const LISTED_AT_ONCE: usize = 16 << 10;
