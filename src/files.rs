//! Reads the files that steer the gateway, and only those that nobody else could have written.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Why a file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It is missing, may not be read, or is no UTF-8.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is a folder, a device or a pipe.
    #[error("it is no regular file")]
    Irregular,
    /// It belongs to another user.
    #[error("it belongs to user {0}, who can change it")]
    Owner(u32),
    /// Everyone may write to it.
    #[error("everyone on this machine can change the file, the workload too")]
    Writable,
    /// It is larger than this, in MiB.
    #[error("the file is larger than {0}MiB")]
    Large(u64),
}

impl Unfit {
    /// What to do about it.
    #[must_use]
    pub fn remedy(&self, path: &Path) -> String {
        match self {
            Self::Unreadable(_) => String::from("create it, or correct the path"),
            Self::Irregular => String::from("name the file itself"),
            Self::Owner(_) => format!(
                "run the gateway as that user, or `chown` {} to your own",
                path.display()
            ),
            Self::Writable => format!("run `chmod o-w {}`", path.display()),
            Self::Large(_) => String::from("split it, or correct the path"),
        }
    }
}

/// Reads a text file of at most `most_mib` MiB that belongs to root or to the gateway's own user,
/// and that not everyone may write.
///
/// Symbolic links are followed, since orchestrators mount files through them. What they lead to is
/// what is checked, on the open file.
///
/// # Errors
/// [`Unfit`] by cause.
pub fn read(path: &Path, most_mib: u64) -> Result<String, Unfit> {
    // Non-blocking, so that a pipe cannot hold the reader.
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
    let mut text = String::new();
    let most = most_mib << 20;
    if file.take(most + 1).read_to_string(&mut text)? as u64 > most {
        return Err(Unfit::Large(most_mib));
    }
    Ok(text)
}

/// Whether what a user owns may steer the gateway: root's, and that of the gateway's own user.
#[must_use]
pub fn trusted(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}
