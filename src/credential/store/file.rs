//! Files that hold one secret each, readable only by their owner.

use std::fs::{Metadata, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use gateway_files as files;
use gateway_names::SessionId;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::backend::{Backend, check_private};
use super::material::{Lease, Material};
use super::{SecretStore, StoreError, StoreFuture};
use crate::secret::{MAX_BYTES, trim_line_end};

/// The store of files. A change is seen within a second; the secret of a deleted file stays usable
/// for at most five more.
pub(super) struct FileStore;

impl SecretStore for FileStore {
    fn fetch<'a>(
        &'a self,
        from: &'a Backend,
        _: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material> {
        Box::pin(async move {
            let Backend::File(file) = from else {
                return Err(StoreError::Absent);
            };
            let path = file.path().to_owned();
            let value = blocking(move || read(&path)).await?;
            let key = key_of(&value);
            let whole = Material::single(value, Some(LEASE));
            Ok(match key {
                Some(key) => whole.with("private_key", key),
                None => whole,
            })
        })
    }
}

/// Runs work that may wait for a disk and must not be interrupted.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or(Err(StoreError::Unreachable("the reading task ended")))
}

/// Returns the private key in the key file of a service account, if the value is one.
fn key_of(value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    #[derive(Deserialize)]
    struct KeyFile {
        private_key: String,
    }
    let is_object = value.first() == Some(&b'{');
    let file: KeyFile = is_object.then(|| serde_json::from_slice(value).ok())??;
    Some(Zeroizing::new(file.private_key.into_bytes()))
}

/// Reads a text that other users may read but not write, such as Kubernetes mounts.
pub(super) fn read_shared(path: &Path) -> Result<Zeroizing<String>, StoreError> {
    let value = read_if(path, |about| match check_private(about) {
        Err(StoreError::Permissions) if about.mode() & 0o022 == 0 => Ok(()),
        other => other,
    })?;
    let text = std::str::from_utf8(&value).map_err(|_| StoreError::Illegible)?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Reads a file after checking its type, owner and permissions on the open file.
///
/// Symbolic links are followed, because orchestrators mount secrets through them; their target is
/// checked.
pub(super) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    read_if(path, check_private)
}

fn read_if(
    path: &Path,
    check: impl FnOnce(&Metadata) -> Result<(), StoreError>,
) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => StoreError::Absent,
        kind => StoreError::File(kind),
    };
    // Non-blocking, so that a FIFO cannot block the reader.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(failed)?;
    check(&file.metadata().map_err(failed)?)?;
    files::check_folders(path)?;
    files::check_written(path)?;
    // Allocate the full size at once: a growing vector would leave copies behind.
    let mut value = Zeroizing::new(Vec::with_capacity(MAX_BYTES + 3));
    file.take(MAX_BYTES as u64 + 3)
        .read_to_end(&mut value)
        .map_err(failed)?;
    trim_line_end(&mut value);
    Ok(value)
}

pub(super) const LEASE: Lease = Lease {
    refresh_after: Duration::from_secs(1),
    stale_after: Duration::from_secs(5),
    expires_after: Duration::from_secs(5),
    id: None,
};

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::backend::SecretFile;
    use super::*;

    fn written(value: &[u8], mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), value).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    async fn fetch(path: &Path) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let file = Backend::File(SecretFile::at(path.to_owned()));
        let material = FileStore.fetch(&file, None).await?;
        Ok(material.field(None).unwrap().clone())
    }

    #[tokio::test]
    async fn a_private_file_is_read_and_its_line_end_trimmed() {
        let file = written(b"CANARY-0001\n", 0o600);
        assert_eq!(&fetch(file.path()).await.unwrap()[..], b"CANARY-0001");
    }

    #[tokio::test]
    async fn a_file_that_others_may_read_or_write_is_refused() {
        for mode in [0o600, 0o400, 0o640, 0o440] {
            let file = written(b"CANARY-0001", mode);
            assert!(fetch(file.path()).await.is_ok(), "{mode:o}");
        }
        for mode in [0o644, 0o620, 0o660, 0o650, 0o601, 0o664] {
            let file = written(b"CANARY-0001", mode);
            assert_eq!(
                fetch(file.path()).await.err(),
                Some(StoreError::Permissions)
            );
        }
    }

    #[tokio::test]
    async fn what_is_no_plain_file_of_one_secret_is_refused() {
        assert_eq!(
            fetch(Path::new("/dev/zero")).await.err(),
            Some(StoreError::NotRegular)
        );
        assert_eq!(
            fetch(Path::new("/nonexistent/x")).await.err(),
            Some(StoreError::Absent)
        );
        // Reads only enough to see that it is too long.
        let huge = written(&vec![b'a'; 1 << 20], 0o600);
        assert_eq!(fetch(huge.path()).await.unwrap().len(), MAX_BYTES + 3);
    }

    #[tokio::test]
    async fn a_link_is_judged_by_what_it_leads_to() {
        let file = written(b"CANARY-0001", 0o644);
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(file.path(), &link).unwrap();
        assert_eq!(fetch(&link).await.err(), Some(StoreError::Permissions));
    }
}
