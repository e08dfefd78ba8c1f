//! Keeps files and folders of the projects as they are, under each of their names.
//!
//! A mount guards a name. So the folders above become mount points, too, which cannot be moved; and
//! a file with several names (hard links) is guarded under each that a project has.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::places::is_in;
use super::settings::is_out_of_reach;
use crate::failure::{At, Failure, Step};
use crate::program::links;
use crate::tree::{Tree, bind, pin_link};

/// What was made read-only so far.
#[derive(Debug)]
pub struct Seal<'a> {
    projects: &'a [PathBuf],
    sealed: Vec<PathBuf>,
}

/// Which file it is: its inode and its device.
type File = (u64, u64);

impl<'a> Seal<'a> {
    /// Nothing yet, in these projects.
    pub fn of(projects: &'a [PathBuf]) -> Self {
        Self {
            projects,
            sealed: Vec::new(),
        }
    }

    /// Makes what is at `path` read-only, and keeps its place. A link is kept as it is, without the
    /// file to which it leads.
    ///
    /// # Errors
    /// A failure that names what cannot be mounted.
    pub fn put_on(&mut self, path: &Path) -> Result<(), Failure> {
        let Ok(found) = fs::symlink_metadata(path) else {
            return Ok(());
        };
        self.pin_above(path)?;
        match found.is_symlink() {
            true => pin_link(path).at(Step::Git, path.display().to_string()),
            false => {
                self.sealed.push(path.to_owned());
                bind(path, path, true)
            }
        }
    }

    /// As [`Seal::put_on`]; of a link, seals the file of a project to which it leads, too.
    ///
    /// # Errors
    /// As [`Seal::put_on`].
    pub fn put_on_target(&mut self, path: &Path) -> Result<(), Failure> {
        let mut all = links(path);
        all.extend(fs::canonicalize(path).ok().filter(|real| real.is_file()));
        all.retain(|one| is_in(one, self.projects));
        all.iter().try_for_each(|one| self.put_on(one))
    }

    /// Makes the directories above a path mount points. Otherwise they could be moved away and
    /// replaced.
    ///
    /// # Errors
    /// A failure that names what cannot be mounted.
    pub fn pin_above(&self, path: &Path) -> Result<(), Failure> {
        let mut projects = self.projects.iter();
        let Some(project) = projects.find(|project| path.starts_with(project)) else {
            return Ok(());
        };
        let mut above: Vec<&Path> = path
            .ancestors()
            .skip(1)
            .take_while(|above| above.starts_with(project) && above != project)
            .collect();
        above.reverse();
        above.retain(|above| !is_mount_point(above));
        above
            .into_iter()
            .try_for_each(|above| put(&take(above, above)?))
    }

    /// Seals the other names that sealed files have in the projects.
    ///
    /// # Errors
    /// A [`Step::Git`] failure if a file has more names than were found, and not all was searched.
    pub fn put_on_other_names(mut self) -> Result<(), Failure> {
        let files = self.files_of_several_names();
        if files.is_empty() {
            return Ok(());
        }
        let mut names: BTreeMap<File, Vec<PathBuf>> = BTreeMap::new();
        let (entries, unsearched) = entries_below(self.projects.to_vec(), |_| true);
        for (path, _) in entries
            .into_iter()
            .filter(|(_, inode)| files.keys().any(|(wanted, _)| wanted == inode))
        {
            let found = fs::symlink_metadata(&path).ok().map(|found| file(&found));
            if let Some(file) = found.filter(|file| files.contains_key(file)) {
                names.entry(file).or_default().push(path);
            }
        }
        for (file, (path, links)) in &files {
            let names = names.remove(file).unwrap_or_default();
            if let Some(folder) = unsearched
                .as_ref()
                .filter(|_| (names.len() as u64) < *links)
            {
                return Err(other_names(path, folder));
            }
            let is_open = |name: &&PathBuf| !self.sealed.iter().any(|one| name.starts_with(one));
            let open: Vec<PathBuf> = names.iter().filter(is_open).cloned().collect();
            open.iter().try_for_each(|name| self.put_on(name))?;
        }
        Ok(())
    }

    /// Returns the sealed files that have several names, each with one name and their number.
    fn files_of_several_names(&self) -> BTreeMap<File, (PathBuf, u64)> {
        // What is mounted in a sealed folder is sealed itself, or is meant to be writable.
        let (within, _) = entries_below(self.sealed.clone(), |inner| !is_mount_point(inner));
        let within = within.into_iter().map(|(path, _)| path);
        let mut found = BTreeMap::new();
        for path in within.chain(self.sealed.iter().cloned()) {
            if let Ok(one) = fs::symlink_metadata(&path)
                && one.is_file()
                && one.nlink() > 1
            {
                found.insert(file(&one), (path, one.nlink()));
            }
        }
        found
    }
}

/// Returns all that folders contain, except folders, each with its inode; and a folder that could
/// not be searched. Enters those `inner` folders only.
fn entries_below(
    mut folders: Vec<PathBuf>,
    inner: impl Fn(&Path) -> bool,
) -> (Vec<(PathBuf, u64)>, Option<PathBuf>) {
    let (mut found, mut unsearched) = (Vec::new(), None);
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // The command may not search it either.
            Err(error) if is_out_of_reach(&error) => continue,
            Err(_) => {
                unsearched.get_or_insert(folder);
                continue;
            }
        };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && inner(&entry.path()) => folders.push(entry.path()),
                Ok(kind) if kind.is_dir() => {}
                _ => found.push((entry.path(), entry.ino())),
            }
        }
    }
    (found, unsearched)
}

fn file(found: &Metadata) -> File {
    (found.ino(), found.dev())
}

fn other_names(path: &Path, folder: &Path) -> Failure {
    let why = format!(
        "`{}` has other names (hard links), under one of which the command could change it, and `{}` cannot be \
         searched for them; replace the file by a copy, which has one name",
        path.display(),
        folder.display()
    );
    Failure::new(Step::Git, why)
}

/// Whether something is already mounted there. If that is unknown, one more mount does no harm.
fn is_mount_point(path: &Path) -> bool {
    let mount = |path: &Path| {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let mask = rustix::fs::StatxFlags::MNT_ID;
        let found = rustix::fs::statx(rustix::fs::CWD, path, flags, mask).ok()?;
        (found.stx_mask & mask.bits() != 0).then_some(found.stx_mnt_id)
    };
    match (mount(path), path.parent().and_then(mount)) {
        (Some(own), Some(above)) => own != above,
        _ => false,
    }
}

/// Takes the tree at `from`, with everything mounted below it, to be put at `path`.
///
/// # Errors
/// A [`Step::Git`] failure that names it.
pub fn take(from: &Path, path: &Path) -> Result<Tree, Failure> {
    Tree::take_from(from, path).at(Step::Git, from.display().to_string())
}

/// Puts a tree in its place.
///
/// # Errors
/// A [`Step::Git`] failure that names it.
pub fn put(tree: &Tree) -> Result<(), Failure> {
    tree.put(Path::new("/"))
        .at(Step::Git, tree.path().display().to_string())
}
