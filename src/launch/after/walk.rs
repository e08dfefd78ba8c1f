//! Searches projects, by open folders: a command may have made paths that are too long for a name,
//! and another may still write there.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::folder::{Folder, To, kind_of, path_in};
use super::path_budget::{PathBudget, of_usual_length};
use super::stored::{is_index_of_objects, is_of_bare, is_stored};
use super::survey::{Kind, Mark, Reader, Repository, Survey};
use super::tools;
use crate::git;
use crate::paths::lexical;

/// A search in progress.
struct Walk<'a> {
    survey: Survey,
    /// How many more entries are looked at.
    left: usize,
    /// What the paths of repositories may take, of what is in those known before, and the others.
    repositories: PathBudget,
    of_git: PathBudget,
    of_others: PathBudget,
    /// Whether this is in the directory of a repository that is known from before.
    is_in_git: bool,
    /// Whether something around this is new in such a directory, and set aside as a whole.
    is_in_new: bool,
    /// How much longer links are resolved: those known from before, and the others.
    for_known_links: Duration,
    for_links: Duration,
    /// What was found before the command ran, if it has run.
    before: Option<&'a Survey>,
    project: &'a Path,
    /// What followed links lead to.
    targets: Vec<(PathBuf, Reader)>,
}

impl Survey {
    /// Searches these directories.
    pub fn of(roots: &[PathBuf]) -> Self {
        Walk::over(roots, None)
    }

    /// Searches them again. A link that this survey did not follow is not followed then either: it
    /// is new or changed itself.
    pub fn again(&self, roots: &[PathBuf]) -> Self {
        Walk::over(roots, Some(self))
    }
}

/// A folder that is being searched.
struct Here<'a> {
    folder: &'a Folder,
    path: &'a Path,
    of: Of,
    depth: usize,
}

/// Who reads the files in a folder.
#[derive(Clone, Copy)]
enum Of {
    /// Those with a name that a tool knows are read.
    Names,
    /// All are.
    Reader(Reader),
    /// None is: it holds installed or built programs, and whoever runs one of them runs what the
    /// command made anyway.
    Nobody,
}

/// Where a link leads.
enum Resolved {
    To(PathBuf),
    Nowhere,
    /// Nobody looked.
    NotInTime,
}

/// How a folder in a repository's directory is searched.
type Search<'a> = fn(&mut Walk<'a>, &Folder, &Path, usize);

impl<'a> Walk<'a> {
    fn over(projects: &'a [PathBuf], before: Option<&'a Survey>) -> Survey {
        let mut walk = Walk {
            survey: Survey::default(),
            left: ENTRIES,
            repositories: PathBudget::full(),
            of_git: PathBudget::full(),
            of_others: PathBudget::full(),
            is_in_git: false,
            is_in_new: false,
            for_known_links: FOR_LINKS,
            for_links: FOR_LINKS,
            before,
            project: Path::new("/"),
            targets: Vec::new(),
        };
        projects.iter().for_each(|project| walk.project(project));
        walk.survey
    }

    fn project(&mut self, project: &'a Path) {
        self.project = project;
        searched_for_commands(project)
            .iter()
            .for_each(|path| self.commands(path));
        self.tree(project, Of::Names);
        let mut seen = BTreeSet::new();
        while let Some((path, reader)) = self.targets.pop() {
            if seen.insert(path.clone()) {
                self.tree(&path, Of::Reader(reader));
            }
        }
    }

    /// Notes the programs in a folder that `PATH` names: whoever types such a name runs them.
    fn commands(&mut self, path: &Path) {
        let Ok(folder) = Folder::open(self.project, path, To::Read) else {
            return self.miss(path);
        };
        for (name, kind) in self.entries(&folder, path) {
            let is_program = folder
                .look(&*name)
                .is_ok_and(|found| found.st_mode & ANY_MAY_RUN != 0);
            if !kind.is_dir() && is_program {
                self.file(&folder, &name, path_in(path, &name), Some(BY_NAME));
            }
        }
    }

    fn tree(&mut self, path: &Path, of: Of) {
        match Folder::open(self.project, path, To::Read) {
            Ok(folder) => self.folder(&Here {
                folder: &folder,
                path,
                of,
                depth: 0,
            }),
            Err(_) => self.miss(path),
        }
    }

    fn folder(&mut self, here: &Here) {
        let entries = self.entries(here.folder, here.path);
        if is_bare(&entries) {
            self.repository(here.folder, c".", Kind::Bare, here.path);
            if self.was_gits(here.folder, here.path) {
                return self.directory_of_git(here.folder, here.path, here.depth);
            }
            // Nothing in a folder that looks like a repository now is git's but what makes it one.
            if entries.iter().all(|(name, _)| is_of_bare(name)) {
                self.directory_of_links(here.folder, here.path, here.depth);
            }
        }
        for (name, kind) in entries {
            self.entry(here, &name, kind);
        }
    }

    /// Whether this is a directory of git's that was there before the command ran.
    fn was_gits(&self, folder: &Folder, path: &Path) -> bool {
        let Some(before) = self.before else {
            return true;
        };
        let known = before.directories.get(path);
        known.is_some_and(|known| {
            folder
                .look(".")
                .is_ok_and(|found| known.is_same(&found.into()))
        })
    }

    fn entry(&mut self, here: &Here, name: &CStr, kind: FileType) {
        let path = path_in(here.path, name);
        let text = OsStr::from_bytes(name.to_bytes());
        let of = here.of.folder(text);
        if text.eq_ignore_ascii_case(".git") {
            self.repository(here.folder, name, kind.into(), &path);
            // The command can make a repository that is known look like a place.
            let before = self.before;
            let is_known = before.is_some_and(|before| before.directories.contains_key(&path));
            if kind.is_dir() && (is_known || !git::is_set_apart(&path)) {
                self.within(here.folder, name, &path, here.depth, Self::dot_git);
            }
        } else if kind.is_dir() {
            self.within(
                here.folder,
                name,
                &path,
                here.depth,
                |walk, folder, path, depth| {
                    walk.folder(&Here {
                        folder,
                        path,
                        of,
                        depth,
                    });
                },
            );
        } else if let reader = here.of.reader(text)
            && (reader.is_some() || kind.is_symlink())
        {
            self.file(here.folder, name, path, reader);
        }
    }

    /// Searches a folder in this way, unless a limit is reached. Then it still finds a repository
    /// directly in it.
    fn within(
        &mut self,
        around: &Folder,
        name: &CStr,
        path: &Path,
        depth: usize,
        search: impl FnOnce(&mut Self, &Folder, &Path, usize),
    ) {
        match around.child(name, To::Read) {
            Ok(folder) if self.left > 0 && depth < DEPTH => search(self, &folder, path, depth + 1),
            Ok(folder) => {
                self.miss(path.parent().unwrap_or(path));
                let git = path.join(".git");
                if let Ok(kind) = folder.look(".git").map(kind_of) {
                    self.repository(&folder, c".git", kind.into(), &git);
                }
            }
            Err(_) => self.miss(path),
        }
    }

    fn entries(&mut self, folder: &Folder, path: &Path) -> Vec<(CString, FileType)> {
        let Ok(found) = folder.entries(self.left, |_| true) else {
            self.miss(path);
            return Vec::new();
        };
        self.left -= found.len();
        if self.left == 0 {
            self.miss(path);
        }
        if self.before.is_none() {
            self.parts(folder, path, &found);
        }
        found
    }

    /// Notes which names are there of which a repository's directory consists.
    fn parts(&mut self, folder: &Folder, path: &Path, entries: &[(CString, FileType)]) {
        let names = entries.iter().map(|(name, _)| name);
        for name in names.filter(|name| is_of_bare(name) || is_part(name)) {
            let at = path_in(path, name);
            if let Ok(found) = folder.look(&**name)
                && self.keeps(&at)
            {
                self.survey.parts.insert(at, found.into());
            }
        }
    }

    fn repository(&mut self, folder: &Folder, name: &CStr, kind: Kind, path: &Path) {
        let Ok(found) = folder.look(name) else {
            return;
        };
        match self.repositories.spend(path) {
            true => {
                let found = Repository::new(kind, found.into());
                self.survey.repositories.insert(path.to_owned(), found);
            }
            false => self.miss(path.parent().unwrap_or(path)),
        }
    }

    fn file(&mut self, folder: &Folder, name: &CStr, path: PathBuf, reader: Option<Reader>) {
        let Ok(found) = folder.look(name) else {
            return;
        };
        if kind_of(found).is_symlink() {
            self.link(&path, found.into(), reader);
        }
        if let Some(reader) = reader {
            self.read_by(path, found.into(), reader);
        }
    }

    fn read_by(&mut self, path: PathBuf, mark: Mark, reader: Reader) {
        if self.keeps(&path) {
            self.survey.files.entry(path).or_insert((mark, reader));
        }
    }

    /// Whether there is memory for a path. If not, the folder around it is noted.
    fn keeps(&mut self, path: &Path) -> bool {
        let budget = match self.is_in_git {
            true => &mut self.of_git,
            false => &mut self.of_others,
        };
        let keeps = budget.spend(path);
        if !keeps {
            let folder = of_usual_length(path.parent().unwrap_or(path));
            self.survey.crowded.insert(folder.to_owned());
        }
        keeps
    }

    /// Notes a link that leads out of the project, and follows one within it that a tool follows.
    ///
    /// What one led to before the command ran is searched in any case.
    fn link(&mut self, path: &Path, mark: Mark, reader: Option<Reader>) {
        let before = self.before.and_then(|before| before.followed.get(path));
        let known = before.filter(|(before, _)| *before == mark);
        let target = match self.resolve(path, known.is_some()) {
            Resolved::To(target) if target.starts_with(self.project) => Some(target),
            Resolved::NotInTime if known.is_some() => None,
            _ => {
                if self.keeps(path) {
                    self.survey.links.insert(path.to_owned(), mark);
                }
                None
            }
        };
        let known = known.map(|(_, target)| target.clone());
        let Some(reader) = reader.filter(|_| self.before.is_none() || known.is_some()) else {
            return;
        };
        if let Some(target) = &target
            && self.keeps(path)
            && self.keeps(target)
        {
            let followed = &mut self.survey.followed;
            followed.insert(path.to_owned(), (mark, target.clone()));
        }
        let is_other = known != target;
        let targets = target.into_iter().chain(known.filter(|_| is_other));
        targets.for_each(|target| self.follow(target, reader));
    }

    fn follow(&mut self, target: PathBuf, reader: Reader) {
        match rustix::fs::lstat(&target) {
            Ok(found) if kind_of(found).is_dir() => self.targets.push((target, reader)),
            Ok(found) => self.read_by(target, found.into(), reader),
            Err(_) => {}
        }
    }

    /// Finds where a link leads, unless others have taken too long.
    fn resolve(&mut self, path: &Path, is_known: bool) -> Resolved {
        let left = match is_known {
            true => &mut self.for_known_links,
            false => &mut self.for_links,
        };
        if left.is_zero() {
            return Resolved::NotInTime;
        }
        let begun = Instant::now();
        let found = target(path);
        *left = left.saturating_sub(begun.elapsed());
        found.map_or(Resolved::Nowhere, Resolved::To)
    }

    fn miss(&mut self, directory: &Path) {
        let directory = of_usual_length(directory);
        self.survey.missed.insert(directory.to_owned());
    }
}

/// What is in the directories of repositories.
impl<'a> Walk<'a> {
    fn dot_git(&mut self, folder: &Folder, path: &Path, depth: usize) {
        match self.was_gits(folder, path) {
            true => self.directory_of_git(folder, path, depth),
            false => self.directory_of_links(folder, path, depth),
        }
    }

    /// Finds the links in the directory of a new repository. The rest is set aside, or stored.
    fn directory_of_links(&mut self, folder: &Folder, path: &Path, depth: usize) {
        self.note_directory(folder, path);
        self.links_only(folder, path, depth);
    }

    fn note_directory(&mut self, folder: &Folder, path: &Path) {
        if let Ok(found) = folder.look(".")
            && self.repositories.spend(path)
        {
            let directories = &mut self.survey.directories;
            directories.insert(path.to_owned(), found.into());
        }
    }

    /// Finds the links in a repository's directory, and what is not known to be stored only.
    fn directory_of_git(&mut self, folder: &Folder, path: &Path, depth: usize) {
        self.note_directory(folder, path);
        let is_in_git = std::mem::replace(&mut self.is_in_git, true);
        let search = |name: &CStr| -> Search<'a> {
            match name.to_bytes() {
                b"objects" => Self::objects,
                b"hooks" | b"info" => Self::names_of_git,
                b"modules" | b"worktrees" => Self::directories_of_git,
                _ if is_stored(name) => Self::links_only,
                _ => Self::obeyed,
            }
        };
        self.each(folder, path, depth, is_stored, search);
        self.is_in_git = is_in_git;
    }

    /// Searches a folder of repositories. Their names may contain slashes. The command cannot write
    /// there, so new ones are the user's.
    fn directories_of_git(&mut self, folder: &Folder, path: &Path, depth: usize) {
        match folder.look("HEAD") {
            Ok(_) if self.was_gits(folder, path) => self.directory_of_git(folder, path, depth),
            Ok(_) => {}
            Err(_) => self.each(folder, path, depth, |_| false, |_| Self::directories_of_git),
        }
    }

    fn names_of_git(&mut self, folder: &Folder, path: &Path, depth: usize) {
        // `info/refs` is for servers that only serve files.
        let is_idle = |name: &CStr| {
            let name = name.to_bytes();
            name.ends_with(b".sample") || matches!(name, b"refs" | b"sparse-checkout")
        };
        self.each(folder, path, depth, is_idle, |_| Self::obeyed);
    }

    fn objects(&mut self, folder: &Folder, path: &Path, depth: usize) {
        let search = |name: &CStr| -> Search<'a> {
            match name.to_bytes() {
                b"info" => Self::info_of_objects,
                _ => Self::links_only,
            }
        };
        self.each(folder, path, depth, |_| true, search);
    }

    fn info_of_objects(&mut self, folder: &Folder, path: &Path, depth: usize) {
        let search = |name: &CStr| -> Search<'a> {
            match is_index_of_objects(name) {
                true => Self::links_only,
                false => Self::obeyed,
            }
        };
        self.each(folder, path, depth, is_index_of_objects, search);
    }

    /// Searches what git stores.
    fn links_only(&mut self, folder: &Folder, path: &Path, depth: usize) {
        self.each(folder, path, depth, |_| true, |_| Self::links_only);
    }

    /// Notes a folder that git, or a tool beside it, may obey, and everything in it.
    fn obeyed(&mut self, folder: &Folder, path: &Path, depth: usize) {
        self.obey(path);
        let is_new = |before: &Survey| !before.obeyed.contains(path);
        let is_in_new = self.is_in_new;
        self.is_in_new |= self.before.is_some_and(is_new);
        self.each(folder, path, depth, |_| false, |_| Self::obeyed);
        self.is_in_new = is_in_new;
    }

    fn obey(&mut self, path: &Path) {
        if !self.is_in_new && self.keeps(path) {
            self.survey.obeyed.insert(path.to_owned());
        }
    }

    /// Notes each link, and each file that is not `stored`. Searches each folder, and notes a bare
    /// repository that is not this one.
    fn each(
        &mut self,
        folder: &Folder,
        path: &Path,
        depth: usize,
        is_stored: impl Fn(&CStr) -> bool,
        search: impl Fn(&CStr) -> Search<'a>,
    ) {
        let entries = self.entries(folder, path);
        if is_bare(&entries) && !self.survey.directories.contains_key(path) {
            self.repository(folder, c".", Kind::Bare, path);
        }
        for (name, kind) in entries {
            let at = path_in(path, &name);
            if name.to_bytes().eq_ignore_ascii_case(b".git") {
                self.repository(folder, &name, kind.into(), &at);
            }
            match kind {
                FileType::Directory => self.within(folder, &name, &at, depth, search(&name)),
                FileType::Symlink => self.link_of_git(folder, &name, at),
                _ if is_stored(&name) || git::is_placeholder(&at) => {}
                _ => self.file_of_git(folder, &name, at),
            }
        }
    }

    fn link_of_git(&mut self, folder: &Folder, name: &CStr, path: PathBuf) {
        if let Ok(found) = folder.look(name)
            && self.keeps(&path)
        {
            if self.before.is_none()
                && let Ok(text) = fs::read_link(&path)
                && self.keeps(&text)
            {
                self.survey.texts.insert(path.clone(), text);
            }
            self.survey.links.insert(path, found.into());
        }
    }

    fn file_of_git(&mut self, folder: &Folder, name: &CStr, path: PathBuf) {
        if let Ok(found) = folder.look(name) {
            self.obey(&path);
            self.read_by(path, found.into(), Reader::Git);
        }
    }
}

impl Of {
    fn folder(self, name: &OsStr) -> Self {
        match self {
            Self::Nobody | Self::Reader(Reader::Tool(_)) => self,
            _ if BUILT.iter().any(|built| name == *built) => Self::Nobody,
            _ => tools::folder(name)
                .map(Reader::Tool)
                .or(is_dotted(name).then_some(Reader::Unknown))
                .map_or(self, Self::Reader),
        }
    }

    fn reader(self, name: &OsStr) -> Option<Reader> {
        let own = match self {
            Self::Nobody => return None,
            Self::Reader(reader) => Some(reader),
            Self::Names => is_dotted(name).then_some(Reader::Unknown),
        };
        // The name of a file says more than that of a folder around it.
        let tool = tools::file(name).or_else(|| tools::folder(name));
        tool.map(Reader::Tool).or(own)
    }
}

/// The folders of a project in which the user's shell looks for commands.
fn searched_for_commands(project: &Path) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path)
        .filter_map(|folder| fs::canonicalize(project.join(folder)).ok());
    folders
        .filter(|folder| folder.starts_with(project))
        .collect()
}

fn is_dotted(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// Whether git treats a directory with these entries as a repository (`is_git_directory` in git's
/// setup.c).
fn is_bare(entries: &[(CString, FileType)]) -> bool {
    let has = |wanted: &str| {
        let mut names = entries.iter().map(|(name, _)| name.to_bytes());
        names.any(|name| name.eq_ignore_ascii_case(wanted.as_bytes()))
    };
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

/// Whether a folder without this is no repository.
pub fn is_part(name: &CStr) -> bool {
    let is = |part: &str| name.to_bytes().eq_ignore_ascii_case(part.as_bytes());
    ["HEAD", "commondir", "objects", "refs"].into_iter().any(is)
}

/// Returns the path to which a link leads, whether or not it exists; `None` if that is unknown.
fn target(link: &Path) -> Option<PathBuf> {
    match opened(CWD, link) {
        Ok(found) => path_of(&found),
        Err(Errno::NOENT) => target_of_none(link),
        Err(_) => None,
    }
}

/// Finds where a link to nothing would lead: as far as there is something, as the kernel follows
/// it.
fn target_of_none(link: &Path) -> Option<PathBuf> {
    let text = fs::read_link(link).ok()?;
    let mut at = opened(CWD, link.parent()?).ok()?;
    let mut parts = text.components();
    let mut missing = PathBuf::new();
    for part in parts.by_ref() {
        let name = Path::new(part.as_os_str());
        match opened(&at, name) {
            Ok(found) => at = found,
            // A link to nothing may lead anywhere.
            Err(Errno::NOENT)
                if rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() =>
            {
                return None;
            }
            Err(Errno::NOENT) => {
                missing.push(name);
                break;
            }
            Err(_) => return None,
        }
    }
    missing.push(parts.as_path());
    Some(lexical(&path_of(&at)?.join(missing)))
}

fn opened(at: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(at, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn path_of(file: &OwnedFd) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

/// Directories of installed and built programs.
const BUILT: &[&str] = &["node_modules", "target", ".venv", "venv", "__pycache__"];
/// Who runs a program by its name alone.
const BY_NAME: Reader = Reader::Tool("your shell (`PATH`)");
/// The permissions to run a file.
const ANY_MAY_RUN: u32 = 0o111;
const ENTRIES: usize = 2_000_000;
/// How long links are resolved. New ones after that count as leading out of the project.
const FOR_LINKS: Duration = Duration::from_secs(3);
const DEPTH: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_where_the_kernel_follows_it() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("a/b")).unwrap();
        let target = |name: &str, text: &str| {
            let link = top.join("a/b").join(name);
            std::os::unix::fs::symlink(text, &link).unwrap();
            target(&link)
        };
        assert_eq!(target("plain", "../c/d"), Some(top.join("a/c/d")));
        assert_eq!(target("above", "../.."), Some(top.clone()));
        let outside = top.parent().unwrap().join("victim");
        assert_eq!(target("through", "above/../victim"), Some(outside));
        assert_eq!(target("nowhere", "../none/../x"), Some(top.join("a/x")));
        assert_eq!(target("dangling", "nowhere"), None);
    }

    fn write(path: PathBuf, content: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn every_form_of_a_repository_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write(at("a/.git/HEAD"), "");
        write(at("b/.GIT/config"), "");
        write(at("c/.git"), "gitdir: elsewhere\n");
        fs::create_dir(at("d")).unwrap();
        std::os::unix::fs::symlink("../a/.git", at("d/.git")).unwrap();
        write(at("e/f/HEAD"), "");
        fs::create_dir_all(at("e/f/objects")).unwrap();
        fs::create_dir_all(at("e/f/refs")).unwrap();
        write(at("e/f/g/.git"), "");
        write(at("target/.git/HEAD"), "");
        write(at("target/a/.git/HEAD"), "");
        write(at("g/HEAD"), "no repository");
        let survey = Survey::of(&[folder.path().to_owned()]);
        let found: Vec<(PathBuf, Kind)> = survey
            .repositories
            .iter()
            .map(|(path, found)| {
                (
                    path.strip_prefix(folder.path()).unwrap().to_owned(),
                    found.kind,
                )
            })
            .collect();
        let expected = [
            ("a/.git", Kind::Directory),
            ("b/.GIT", Kind::Directory),
            ("c/.git", Kind::File),
            ("d/.git", Kind::Link),
            ("e/f", Kind::Bare),
            ("e/f/g/.git", Kind::File),
            ("target/.git", Kind::Directory),
            ("target/a/.git", Kind::Directory),
        ]
        .map(|(path, kind)| (PathBuf::from(path), kind));
        assert_eq!(found, expected);
        assert!(survey.missed.is_empty());
    }

    #[test]
    fn a_file_that_was_touched_back_is_still_a_changed_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Makefile");
        fs::write(&path, "all:\n").unwrap();
        let roots = [folder.path().to_owned()];
        let before = Survey::of(&roots).files[&path];
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&path, "bad:\n").unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(modified)
            .unwrap();
        let after = Survey::of(&roots).files[&path];
        assert_ne!(before, after);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), modified);
    }

    #[test]
    fn links_that_lead_out_and_those_of_git_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/.git/logs")).unwrap();
        for (link, target) in [
            ("a/in", "../b"),
            ("a/out", "../../b"),
            ("a/far", "/etc/passwd"),
            ("a/.git/logs/HEAD", "../index"),
            ("a/.git/index", "/etc/passwd"),
        ] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        let survey = Survey::of(&[folder.path().to_owned()]);
        let expected = ["a/.git/index", "a/.git/logs/HEAD", "a/far", "a/out"].map(at);
        assert_eq!(survey.links.keys().cloned().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_lies_too_deep_is_said_to_be_missed() {
        let folder = tempfile::tempdir().unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", DEPTH + 2).collect();
        fs::create_dir_all(folder.path().join(deep)).unwrap();
        let unsearched: PathBuf = std::iter::repeat_n("d", DEPTH + 1).collect();
        let git = folder.path().join(unsearched).join(".git");
        fs::create_dir(&git).unwrap();
        let survey = Survey::of(&[folder.path().to_owned()]);
        assert!(!survey.missed.is_empty());
        // A repository is found even where nothing else is looked for.
        assert!(survey.repositories.contains_key(&git));
    }
}
