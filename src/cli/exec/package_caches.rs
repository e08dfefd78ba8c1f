//! The caches of package managers that the user's own home lacks, kept per project: folders of the
//! gateway's own state, mounted into sandboxes of that project and of no other.
//!
//! Commands write to them, so outside nothing in them is run or read.

use std::path::{Path, PathBuf};

use crate::app::Failure;
use crate::app::kept_home::{own_folders, place};
use crate::files::private_folder;
use crate::launch::{KeptFolder, LaunchPlan, User, removal};

/// The kept caches of a project.
pub(crate) struct PackageCaches {
    folder: PathBuf,
    names: Vec<PathBuf>,
}

impl PackageCaches {
    /// Returns the caches of a project, if there is a place for them.
    pub fn of(project: &Path, plan: &LaunchPlan) -> Option<Self> {
        let home = plan.mounts.home.path();
        let names = NAMES.lines().filter(|line| !line.starts_with('#'));
        let names = names.map(PathBuf::from);
        // A cache that the user has is shown as it is.
        let names = names.filter(|name| home.join(name).symlink_metadata().is_err());
        Some(Self {
            folder: place(project, plan, "caches")?,
            names: names.collect(),
        })
    }

    /// Returns the folder that holds the caches.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Creates the folders for this user, and returns them for the launcher. With `fresh`, their
    /// content is forgotten.
    ///
    /// # Errors
    /// Returns a [`Failure`] if they cannot be created, or would not be private.
    pub fn prepare(&self, user: User, fresh: bool) -> Result<Vec<KeptFolder>, Failure> {
        let failed = |error: &dyn std::error::Error| {
            let place = self.folder.display();
            Failure::of(format!("package caches cannot be kept in `{place}`"), error)
                .next("look at that folder, or remove it")
                .coded(crate::launch::LAUNCHER_FAILED)
        };
        if fresh && self.folder.exists() {
            let aside = self.folder.with_extension("forgotten");
            // If removal is too much for now, a later run goes on; nothing reads the rest.
            let _ = removal::remove_tree(&aside);
            std::fs::rename(&self.folder, &aside).map_err(|error| failed(&error))?;
            let _ = removal::remove_tree(&aside);
        }
        private_folder(&self.folder).map_err(|error| failed(&error))?;
        own_folders(&self.folder, &self.names, user).map_err(|error| failed(&error))
    }
}

/// The caches, relative to the home.
const NAMES: &str = include_str!("../../../policies/caches.txt");
