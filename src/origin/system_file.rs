//! A file of the system that is read again when it has changed.

use std::error::Error;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

/// Why the file cannot be used.
pub(super) type FileError = Box<dyn Error + Send + Sync>;

/// The parsed content of a file, kept current.
pub(super) struct SystemFile<T> {
    path: &'static Path,
    read: fn(&Path) -> Result<T, FileError>,
    seen: Mutex<LastRead<T>>,
}

struct LastRead<T> {
    stamp: Option<Stamp>,
    says: Option<Arc<T>>,
}

/// The metadata that changes when a file is written or replaced: device, inode, length, and the
/// time of the last change.
type Stamp = (u64, u64, u64, i64, i64);

impl<T> SystemFile<T> {
    /// Reads the file. A file that does not exist yet is read once it appears.
    pub(super) fn open(
        path: &'static str,
        read: fn(&Path) -> Result<T, FileError>,
    ) -> Result<Self, FileError> {
        let path = Path::new(path);
        let stamp = stamp(path);
        let says = match read(path) {
            Ok(says) => Some(Arc::new(says)),
            Err(_) if stamp.is_none() => None,
            Err(error) => return Err(error),
        };
        Ok(Self {
            path,
            read,
            seen: Mutex::new(LastRead { stamp, says }),
        })
    }

    /// Returns the content of the file; `None` if it never existed. If the file has become
    /// unreadable, its previous content is returned.
    pub(super) fn current(&self) -> Option<Arc<T>> {
        let stamp = stamp(self.path);
        let mut seen = self.seen.lock();
        if seen.stamp != stamp {
            seen.stamp = stamp;
            match (self.read)(self.path) {
                Ok(says) => seen.says = Some(Arc::new(says)),
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "the file cannot be used; what it said before holds");
                }
            }
        }
        seen.says.clone()
    }
}

/// Returns the stamp of a file; `None` if it does not exist.
fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok()?;
    Some((
        file.dev(),
        file.ino(),
        file.len(),
        file.ctime(),
        file.ctime_nsec(),
    ))
}
