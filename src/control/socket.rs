//! The socket's file: created where no other user can reach or replace it, and listed.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use gateway_files::{self as files, Replaceable, SocketFault, SocketFile, is_live, is_socket};

/// Why a control socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The folder is a link, not a folder, or another user's.
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

/// Creates the control socket, mode 0600, in a folder of mode 0700 that belongs to this user.
///
/// # Errors
/// [`Unusable`] by cause.
pub fn bind_socket(path: &Path) -> Result<SocketFile, Unusable> {
    private_folder(path.parent().unwrap_or(Path::new("/")))?;
    let path = path.to_owned();
    SocketFile::bind(&path, 0o600).map_err(|fault| match fault {
        SocketFault::Occupied => Unusable::Occupied(path),
        SocketFault::Live => Unusable::Live(path),
        SocketFault::TooLong => Unusable::TooLong(path),
        SocketFault::Io(source) => Unusable::Io { path, source },
        SocketFault::Replaceable(why) => Unusable::Replaceable {
            folder: path.parent().unwrap_or(Path::new("/")).to_owned(),
            why,
        },
    })
}

/// Lists the sockets of running gateways in a folder, in the order of their names. Removes sockets
/// that no process serves.
///
/// # Errors
/// [`Unusable`] if the folder is not private to this user. A missing folder has no sockets.
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

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

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
        let socket = bind_socket(&path).unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&path)), (0o700, 0o600));
        assert_eq!(sockets(&folder).unwrap(), vec![path.clone()]);
        assert!(matches!(bind_socket(&path), Err(Unusable::Live(_))));
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
        let socket = bind_socket(&path).unwrap();
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
            let refused = bind_socket(path);
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
        let refused = bind_socket(&folder.join("a.sock"));
        assert!(matches!(refused, Err(Unusable::Folder { .. })));
        fs::set_permissions(&real, Permissions::from_mode(0o750)).unwrap();
        let refused = bind_socket(&real.join("a.sock"));
        assert!(matches!(refused, Err(Unusable::Folder { .. })));
        assert!(sockets(&real).is_err());
    }
}
