//! Sockets in the file system: made where no other user can replace them, probed, and removed.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use super::bad_file::Replaceable;
use super::folders::{STICKY, check_folders};

/// Why a socket cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SocketFault {
    /// Another user can put something else in its place.
    #[error("{0}")]
    Replaceable(Replaceable),
    /// Something other than a socket is at the path: a link, a file, a folder.
    #[error("it is there, and is no socket")]
    Occupied,
    /// Another process answers at the path.
    #[error("another process listens there")]
    Live,
    /// The path is longer than the system allows for a socket, 107 bytes.
    #[error("the path is too long for a socket")]
    TooLong,
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A bound socket. Dropping it removes its file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    listener: UnixListener,
}

impl SocketFile {
    /// Creates the socket with this mode. Replaces only a socket that no process listens on.
    ///
    /// # Errors
    /// [`SocketFault`] by cause.
    pub fn bind(path: &Path, mode: u32) -> Result<Self, SocketFault> {
        if path.as_os_str().len() > LONGEST_PATH {
            return Err(SocketFault::TooLong);
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        check_folders(folder).map_err(SocketFault::Replaceable)?;
        let mode_of_folder = fs::metadata(folder)?.mode();
        if mode_of_folder & 0o002 != 0 && mode_of_folder & STICKY == 0 {
            let why = Replaceable::Folder(folder.to_owned());
            return Err(SocketFault::Replaceable(why));
        }
        // One process at a time checks that the path is free and binds it.
        let lock = File::open(folder)?;
        lock.lock()?;
        free(path)?;
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        let _ = fs::remove_file(&beside);
        let listener = UnixListener::bind(&beside)?;
        fs::set_permissions(&beside, Permissions::from_mode(mode))?;
        fs::rename(&beside, path)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            path: path.to_owned(),
            listener,
        })
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns another handle of the listening socket, to accept from.
    ///
    /// # Errors
    /// The error of the system, if there is no descriptor left.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If the file cannot be removed now, the next start replaces it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Checks that the path is free, or holds a socket that no process listens on.
fn free(path: &Path) -> Result<(), SocketFault> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    if !is_socket(path) {
        return Err(SocketFault::Occupied);
    }
    if is_live(path) {
        Err(SocketFault::Live)
    } else {
        Ok(())
    }
}

/// Whether a socket is at the path itself, rather than a link to one.
#[must_use]
pub fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket())
}

/// Whether a process listens at the path. A process too busy to accept counts, and is not awaited.
#[must_use]
pub fn is_live(path: &Path) -> bool {
    let connect = || {
        let kind = socket2::Type::STREAM.nonblocking().cloexec();
        let probe = socket2::Socket::new(socket2::Domain::UNIX, kind, None)?;
        probe.connect(&socket2::SockAddr::unix(path)?)
    };
    !matches!(
        connect().map_err(|error| error.kind()),
        Err(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
    )
}

/// unix(7): `sun_path` has 108 bytes, with the NUL. The socket is first bound under a longer name.
const LONGEST_PATH: usize = 107 - "4194304.new".len();
