//! Files that hold one secret each and that nobody else may read.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::{Fetched, Fetching, Lifetime, SecretStore, StoreError};
use crate::credential::secret::{MAX_BYTES, Secret, trim_line_end};
use crate::session::{Keeper, Reference};

/// Files. A changed file is seen within a second; one that is gone serves at most five seconds
/// more.
pub(super) struct FileStore;

impl SecretStore for FileStore {
    fn fetch<'a>(&'a self, reference: &'a Reference) -> Fetching<'a> {
        Box::pin(async move {
            let Keeper::File(path) = &reference.keeper else {
                return Err(StoreError::Absent);
            };
            let path = path.clone();
            let value = tokio::task::spawn_blocking(move || read(&path))
                .await
                .map_err(|_| StoreError::Unreachable("the reading task ended"))??;
            let secret = Arc::new(Secret::kept(value, reference)?);
            Ok(Fetched {
                secret,
                lifetime: Some(LIFETIME),
                run: None,
            })
        })
    }
}

/// Reads a file after checking, on the open file itself, what it is, whose it is and who may read
/// it.
///
/// Symbolic links are followed, for orchestrators mount secrets through them; what they lead to is
/// what is checked.
fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => StoreError::Absent,
        kind => StoreError::File(kind),
    };
    // Non-blocking, so that a FIFO cannot hold the reader.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(StoreError::NotRegular);
    }
    if !crate::files::trusted(about.uid()) {
        return Err(StoreError::Owner);
    }
    if about.mode() & 0o077 != 0 {
        return Err(StoreError::Permissions);
    }
    // Room for everything at once: a growing vector would leave copies behind.
    let mut value = Zeroizing::new(Vec::with_capacity(MAX_BYTES + 3));
    file.take(MAX_BYTES as u64 + 3)
        .read_to_end(&mut value)
        .map_err(failed)?;
    trim_line_end(&mut value);
    Ok(value)
}

const LIFETIME: Lifetime = Lifetime {
    refresh_after: Duration::from_secs(1),
    expires_after: Duration::from_secs(5),
};

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::credential::secret::SecretUnsafe;

    fn written(value: &[u8], mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), value).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    async fn fetch(path: &Path) -> Result<Fetched, StoreError> {
        FileStore.fetch(&Reference::file(path)).await
    }

    #[tokio::test]
    async fn a_private_file_is_read_and_its_line_end_trimmed() {
        let file = written(b"CANARY-0001\n", 0o600);
        assert!(
            fetch(file.path())
                .await
                .ok()
                .unwrap()
                .secret
                .is(b"CANARY-0001")
        );
    }

    #[tokio::test]
    async fn a_file_that_others_may_read_or_write_is_refused() {
        for mode in [0o644, 0o640, 0o620, 0o601, 0o664] {
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
        let crlf = written(b"CANARY-0001\r\nx: y\r\n", 0o600);
        assert_eq!(
            fetch(crlf.path()).await.err(),
            Some(StoreError::Unsafe(SecretUnsafe::Character))
        );
        let huge = written(&vec![b'a'; 1 << 20], 0o600);
        assert_eq!(
            fetch(huge.path()).await.err(),
            Some(StoreError::Unsafe(SecretUnsafe::TooLong))
        );
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
