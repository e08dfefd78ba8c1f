//! The socket's file: created where no other user can reach or replace it, and found again.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::files::{self, Replaceable};

/// Why a control socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The folder is a link, no folder, or another user's.
    #[error("the folder `{}` is {why}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The fault.
        why: &'static str,
    },
    /// Another user can put something else in the folder's place.
    #[error("the folder `{}` is refused: {why}", folder.display())]
    Replaceable {
        /// The folder.
        folder: PathBuf,
        /// Who can replace it.
        why: Replaceable,
    },
    /// Something that is no socket is at the path: a link, a file, a folder.
    #[error("`{}` is there, and is no socket", .0.display())]
    Occupied(PathBuf),
    /// Another process answers at the path.
    #[error("another running gateway has the control socket `{}`", .0.display())]
    Live(PathBuf),
    /// The path is longer than the system allows for a socket, 107 bytes.
    #[error("the path `{}` is too long for a socket", .0.display())]
    TooLong(PathBuf),
    /// The system refuses.
    #[error("the control socket `{}` cannot be made", path.display())]
    Io {
        /// The socket or its folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A bound control socket. Dropping it removes its file.
pub struct ControlSocket {
    path: PathBuf,
    listener: UnixListener,
}

impl ControlSocket {
    /// Creates the socket, mode 0600, in a folder of mode 0700 that belongs to this user. Replaces
    /// the socket of a process that is gone, never that of a living one, and nothing else.
    ///
    /// # Errors
    /// [`Unusable`] by cause.
    pub fn bind(path: &Path) -> Result<Self, Unusable> {
        let io = |source| Unusable::Io {
            path: path.to_owned(),
            source,
        };
        if path.as_os_str().len() > LONGEST_PATH {
            return Err(Unusable::TooLong(path.to_owned()));
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        private_folder(folder)?;
        // One process at a time looks whether the path is free, and takes it.
        let lock = File::open(folder).map_err(io)?;
        lock.lock().map_err(io)?;
        free(path)?;
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        let _ = fs::remove_file(&beside);
        let listener = UnixListener::bind(&beside).map_err(io)?;
        let done = fs::set_permissions(&beside, Permissions::from_mode(0o600))
            .and_then(|()| fs::rename(&beside, path))
            .and_then(|()| listener.set_nonblocking(true));
        done.map_err(io)?;
        Ok(Self {
            path: path.to_owned(),
            listener,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another handle of the listening socket, to serve on.
    ///
    /// # Errors
    /// The system's, if there is no descriptor left.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // The next start replaces what cannot be removed now.
        let _ = fs::remove_file(&self.path);
    }
}

/// Lists the sockets of running gateways in a folder, in the order of their names. Removes those
/// that nobody serves.
///
/// # Errors
/// [`Unusable`] if the folder is not this user's alone. A missing one has no sockets.
pub fn sockets(folder: &Path) -> Result<Vec<PathBuf>, Unusable> {
    match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        _ => check(folder)?,
    }
    let io = |source| Unusable::Io {
        path: folder.to_owned(),
        source,
    };
    let lock = File::open(folder).map_err(io)?;
    lock.lock().map_err(io)?;
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let is_named = path.extension().is_some_and(|end| end == "sock");
        if is_named && is_socket(&path) {
            if is_live(&path) {
                found.push(path);
            } else {
                let _ = fs::remove_file(&path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Creates the folder, or checks the one that is there.
fn private_folder(folder: &Path) -> Result<(), Unusable> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    if let Err(source) = made
        && fs::symlink_metadata(folder).is_err()
    {
        return Err(Unusable::Io {
            path: folder.to_owned(),
            source,
        });
    }
    check(folder)
}

fn check(folder: &Path) -> Result<(), Unusable> {
    let refused = |why| {
        Err(Unusable::Folder {
            folder: folder.to_owned(),
            why,
        })
    };
    let about = fs::symlink_metadata(folder).map_err(|source| Unusable::Io {
        path: folder.to_owned(),
        source,
    })?;
    if about.is_symlink() {
        return refused("a link, which may lead elsewhere tomorrow");
    }
    if !about.is_dir() {
        return refused("no folder");
    }
    if about.uid() != rustix::process::geteuid().as_raw() {
        return refused("another user's");
    }
    if about.mode() & 0o077 != 0 {
        return refused("open to other users: `chmod 700` it, or name another");
    }
    files::check_folders(folder).map_err(|why| Unusable::Replaceable {
        folder: folder.to_owned(),
        why,
    })
}

/// Makes sure that nothing living is at the path, and nothing but a socket.
fn free(path: &Path) -> Result<(), Unusable> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    if !is_socket(path) {
        return Err(Unusable::Occupied(path.to_owned()));
    }
    if is_live(path) {
        return Err(Unusable::Live(path.to_owned()));
    }
    Ok(())
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket())
}

/// Whether a process listens there. One that is too busy to accept does, and is not waited for.
fn is_live(path: &Path) -> bool {
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

/// unix(7): `sun_path` has 108 bytes, with the NUL. The name that it is bound under first is
/// longer.
const LONGEST_PATH: usize = 107 - "4194304.new".len();

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("gateway");
        (parent, folder)
    }

    #[test]
    fn a_socket_is_private_and_goes_with_its_process() {
        let (_parent, folder) = folder();
        let path = folder.join("serve-1.sock");
        let socket = ControlSocket::bind(&path).unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&path)), (0o700, 0o600));
        assert_eq!(sockets(&folder).unwrap(), vec![path.clone()]);
        assert!(matches!(ControlSocket::bind(&path), Err(Unusable::Live(_))));
        drop(socket);
        assert!(!path.exists());
        assert!(sockets(&folder).unwrap().is_empty());
    }

    #[test]
    fn a_socket_that_nobody_serves_is_replaced() {
        let (_parent, folder) = folder();
        let path = folder.join("serve-1.sock");
        private_folder(&folder).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = ControlSocket::bind(&path).unwrap();
        assert!(is_live(socket.path()));
    }

    #[test]
    fn a_link_or_a_file_at_the_path_is_refused_and_stays() {
        let (parent, folder) = folder();
        private_folder(&folder).unwrap();
        let (link, file) = (folder.join("link.sock"), folder.join("file.sock"));
        symlink(parent.path().join("elsewhere"), &link).unwrap();
        fs::write(&file, "kept").unwrap();
        for path in [&link, &file] {
            let refused = ControlSocket::bind(path);
            assert!(matches!(refused, Err(Unusable::Occupied(_))), "{path:?}");
        }
        assert!(link.is_symlink() && !parent.path().join("elsewhere").exists());
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    }

    #[test]
    fn a_folder_that_is_a_link_or_open_to_others_is_refused() {
        let (parent, folder) = folder();
        let real = parent.path().join("real");
        private_folder(&real).unwrap();
        symlink(&real, &folder).unwrap();
        let refused = ControlSocket::bind(&folder.join("a.sock"));
        assert!(matches!(refused, Err(Unusable::Folder { .. })));
        fs::set_permissions(&real, Permissions::from_mode(0o750)).unwrap();
        let refused = ControlSocket::bind(&real.join("a.sock"));
        assert!(matches!(refused, Err(Unusable::Folder { .. })));
        assert!(sockets(&real).is_err());
    }
}
