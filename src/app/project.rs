//! The project that a command runs in. It decides which phantoms are kept for the command, and what
//! the command may change.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::{Context as _, Failure};
use gateway_config::{Config, state};
use gateway_launch as launch;
use gateway_names::{SessionId, hex, real_path};

/// Returns the id of a project's record, made from the user who runs the gateway, the user who runs
/// the command, and the folder. It does not reveal the folder's name.
pub fn project_id(folder: &Path, user: Option<&str>) -> SessionId {
    let own = rustix::process::geteuid().as_raw().to_be_bytes();
    let parts = [
        &own[..],
        user.unwrap_or_default().as_bytes(),
        folder.as_os_str().as_encoded_bytes(),
    ];
    let mut digest = Sha256::new_with_prefix(b"gateway project v1");
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let digest = digest.finalize();
    let words = hex(&digest[..16]);
    SessionId::new(&format!("project:{words}")).expect("these are characters of a name")
}

/// Returns a project, and the folders above it that may be projects too: `git clone` makes a folder
/// below the one in which it ran.
///
/// A home, a folder that contains it and a folder of another user are not projects of all that is
/// below them.
pub fn project_folders(folder: &Path) -> impl Iterator<Item = &Path> {
    let home = state::home().and_then(|home| real_path(home).ok());
    let own = rustix::process::geteuid().as_raw();
    let may_be = move |above: &&Path| {
        let holds_home = home.as_ref().is_some_and(|home| home.starts_with(above));
        let is_own = std::fs::metadata(above).is_ok_and(|about| about.uid() == own);
        is_own && !holds_home && above.parent().is_some()
    };
    let above = folder.ancestors().skip(1).take_while(may_be);
    std::iter::once(folder).chain(above)
}

/// Whether a folder lies in a folder that the command may change.
pub fn changeable(config: &Config, folder: &Path) -> Result<bool, Failure> {
    let is_shared = |shared: &PathBuf| {
        let real = real_path(shared);
        folder.starts_with(shared) || real.is_ok_and(|real| folder.starts_with(real))
    };
    Ok(folder.starts_with(project()?) || config.sandbox.write.iter().any(is_shared))
}

/// Returns the project of the working directory: its repository, else the folder alone.
pub fn project() -> Result<PathBuf, Failure> {
    let home = state::home().and_then(|home| real_path(home).ok());
    Ok(launch::project_of(&working_directory()?, home.as_deref()))
}

/// Returns the working directory, with links resolved.
pub fn working_directory() -> Result<PathBuf, Failure> {
    std::env::current_dir().context("the working directory is gone")
}
