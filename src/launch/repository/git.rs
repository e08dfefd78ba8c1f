//! Git itself, which reads settings and indexes: a program that only root can replace, run without
//! any setting of a user or a repository.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::CWD;

use crate::folder::open_file;
use crate::program;
use crate::wait::timespec;

/// A git program that belongs to root.
#[derive(Clone, Debug)]
pub struct Git(PathBuf);

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitSetting {
    /// Its name: section and key in lower case, a subsection as it is.
    pub key: String,
    /// Its value.
    pub value: OsString,
}

/// The content of an index.
#[derive(Debug, Default)]
pub struct IndexContent {
    /// A path through which git would write outside of the working tree, or into a `.git`.
    pub astray: Option<PathBuf>,
    /// The folders of submodules, relative to the working tree.
    pub submodules: Vec<PathBuf>,
}

impl Git {
    /// Finds a git program.
    pub fn find() -> Option<Self> {
        program::root_owned_program("git").map(Self)
    }

    /// Returns the settings of a file, without those of files that it includes.
    ///
    /// # Errors
    /// An error if the file is no regular file of settings, or has more than 1 MiB.
    pub fn settings(&self, file: &Path) -> io::Result<Vec<GitSetting>> {
        self.settings_in(open_file(CWD, file)?)
    }

    /// Returns the settings of an open file.
    ///
    /// # Errors
    /// As [`Git::settings`].
    pub fn settings_in(&self, file: File) -> io::Result<Vec<GitSetting>> {
        let found = file.metadata()?;
        if !found.is_file() || found.len() > SETTINGS_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut command = self.command();
        let list = ["config", "--no-includes", "--list", "-z", "--file", "-"];
        let mut settings = Vec::new();
        records(command.args(list).stdin(file), |record| {
            let (key, value) = match record.iter().position(|byte| *byte == b'\n') {
                Some(end) => (&record[..end], &record[end + 1..]),
                None => (record, &b""[..]),
            };
            settings.push(GitSetting {
                key: String::from_utf8_lossy(key).into_owned(),
                value: OsString::from_vec(value.to_vec()),
            });
        })?;
        Ok(settings)
    }

    /// Reads an index in a neutral repository, so that no setting of its own repository counts.
    ///
    /// # Errors
    /// An error if git cannot read it.
    pub fn index(&self, index: &Path, neutral: &EmptyRepo) -> io::Result<IndexContent> {
        if !fs::symlink_metadata(index)?.is_file() {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut command = self.command();
        command
            .env("GIT_DIR", &neutral.folder)
            .env("GIT_INDEX_FILE", index)
            .args(["-c", "core.fsmonitor=false", "ls-files"])
            .args(["-z", "--stage", "--sparse"]);
        let mut content = IndexContent::default();
        records(&mut command, |record| {
            let tab = record.iter().position(|byte| *byte == b'\t');
            let path = tab.map_or(&b""[..], |tab| &record[tab + 1..]);
            if leads_astray(path) {
                content.astray = Some(OsStr::from_bytes(path).into());
            }
            if record.starts_with(GITLINK) {
                content.submodules.push(OsStr::from_bytes(path).into());
            }
            if content.submodules.len() > MOST_SUBMODULES {
                // With more than that, one of them could not be checked.
                content.astray = content.submodules.pop();
            }
        })?;
        Ok(content)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.0);
        command
            .env_clear()
            .envs([
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_NO_LAZY_FETCH", "1"),
                ("GIT_OPTIONAL_LOCKS", "0"),
                ("GIT_CEILING_DIRECTORIES", "/"),
                ("PATH", "/usr/bin:/bin"),
            ])
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }
}

/// An empty bare repository, in which an index is read.
#[derive(Debug)]
pub struct EmptyRepo {
    folder: PathBuf,
    /// Whether it was made for this one index.
    is_own: bool,
}

impl EmptyRepo {
    /// Makes a repository in `state`, for an index of the repository's directory with this format
    /// of object names. It also has the other files of a split index.
    ///
    /// # Errors
    /// The error of making it.
    pub fn of(state: &Path, directory: &Path, is_sha256: bool) -> io::Result<Self> {
        let shared = shared_indexes(directory);
        let format = if is_sha256 { "sha256" } else { "sha1" };
        let name = if shared.is_empty() {
            format!("git-{format}")
        } else {
            format!("git-{}", super::aside::unforeseen()?)
        };
        let neutral = Self {
            folder: state.join(name),
            is_own: !shared.is_empty(),
        };
        for folder in ["objects", "refs"] {
            fs::create_dir_all(neutral.folder.join(folder))?;
        }
        let version = u8::from(is_sha256);
        let mut config = format!("[core]\n\trepositoryformatversion = {version}\n\tbare = true\n");
        if is_sha256 {
            config.push_str("[extensions]\n\tobjectformat = sha256\n");
        }
        for (name, content) in [("config", config.as_str()), ("HEAD", "ref: refs/heads/x\n")] {
            let file = neutral.folder.join(name);
            if !file.exists() {
                fs::write(file, content)?;
            }
        }
        for index in shared {
            let name = index.file_name().unwrap_or_default();
            std::os::unix::fs::symlink(&index, neutral.folder.join(name))?;
        }
        Ok(neutral)
    }
}

impl Drop for EmptyRepo {
    fn drop(&mut self) {
        if self.is_own {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Returns the other files of a split index.
fn shared_indexes(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().as_bytes().starts_with(b"sharedindex."));
    let files = named.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    files.map(|entry| entry.path()).take(MOST_SHARED).collect()
}

/// Whether git would follow this path out of the working tree, or into a repository's directory.
fn leads_astray(path: &[u8]) -> bool {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let is_bad = |part: &[u8]| {
        part.is_empty() || part == b"." || part == b".." || part.eq_ignore_ascii_case(b".git")
    };
    path.split(|byte| *byte == b'/').any(is_bad)
}

/// Runs git, and passes on each record that it prints, without the NUL at its end.
fn records(command: &mut Command, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut child = command.spawn()?;
    let read = read_records(&mut child, &mut each);
    if read.is_err() {
        let _ = child.kill();
    }
    let ended = child.wait()?;
    if ended.success() {
        read
    } else {
        Err(io::Error::other(format!("git could not read it ({ended})")))
    }
}

fn read_records(child: &mut Child, each: &mut impl FnMut(&[u8])) -> io::Result<()> {
    let until = Instant::now() + READ_WITHIN;
    let mut output = child.stdout.take().ok_or(ErrorKind::BrokenPipe)?;
    let (mut kept, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let left = timespec(until.saturating_duration_since(Instant::now()));
        let mut events = [PollFd::new(&output, PollFlags::IN)];
        if rustix::event::poll(&mut events, Some(&left))? == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        let read = output.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        kept.extend_from_slice(&piece[..read]);
        let whole = memchr::memrchr(0, &kept).map_or(0, |end| end + 1);
        kept[..whole]
            .split(|byte| *byte == 0)
            .filter(|record| !record.is_empty())
            .for_each(&mut *each);
        kept.drain(..whole);
        if kept.len() > LONGEST_RECORD {
            return Err(ErrorKind::InvalidData.into());
        }
    }
}

/// Whether a repository names its objects by SHA-256, as git reads its settings.
pub fn is_sha256(directory: &Path, git: &Git) -> bool {
    let common = text_of(&directory.join("commondir"), b"").map(|named| directory.join(named));
    let config = common
        .unwrap_or_else(|| directory.to_owned())
        .join("config");
    let is_it = |one: &GitSetting| one.key == "extensions.objectformat" && one.value == "sha256";
    mentions(&config, &[b"sha256"])
        && git
            .settings(&config)
            .is_ok_and(|settings| settings.iter().any(is_it))
}

/// Returns what a short file says after this beginning, as git reads it: without newlines at the
/// end, and with all others.
pub fn text_of(file: &Path, beginning: &[u8]) -> Option<OsString> {
    let is_short = fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() < 8192);
    let content = is_short.then(|| fs::read(file).ok()).flatten()?;
    let mut text = content.strip_prefix(beginning)?;
    while let [rest @ .., b'\n' | b'\r'] = text {
        text = rest;
    }
    Some(OsStr::from_bytes(text).to_owned())
}

/// Whether a file may name such a thing, in any case of letters: then git is asked.
pub fn mentions(file: &Path, words: &[&[u8]]) -> bool {
    let content = content_of(file).to_ascii_lowercase();
    words.iter().any(|word| has(&content, word))
}

/// Whether a word stands in a content.
pub fn has(content: &[u8], word: &[u8]) -> bool {
    memchr::memmem::find(content, word).is_some()
}

/// Returns what a file holds; nothing if it is none.
pub fn content_of(file: &Path) -> Vec<u8> {
    let is_file = fs::metadata(file).is_ok_and(|found| found.is_file());
    let content = is_file.then(|| fs::read(file).ok()).flatten();
    content.unwrap_or_default()
}

/// How an entry of an index begins that is a submodule's.
const GITLINK: &[u8] = b"160000 ";
/// The most bytes of settings that are read.
pub const SETTINGS_BYTES: u64 = 1 << 20;
const LONGEST_RECORD: usize = 2 << 20;
const MOST_SUBMODULES: usize = 20_000;
const MOST_SHARED: usize = 64;
/// How long git may take to read a file.
const READ_WITHIN: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_git_checks_itself_elsewhere_leads_astray() {
        for path in [
            ".git/config",
            "a/.GIT/x",
            "../x",
            "a/./b",
            "/etc",
            "a//b",
            "",
        ] {
            assert!(leads_astray(path.as_bytes()), "{path}");
        }
        for path in ["a", ".github/x", "a/.gitignore", "sparse/"] {
            assert!(!leads_astray(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn settings_are_read_without_what_they_include() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        fs::write(&file, "[core]\n\tbare\n[Include]\n\tpath = \"x y\"\n").unwrap();
        let git = Git::find().expect("Debian's git");
        let settings = git.settings(&file).unwrap();
        let found: Vec<_> = settings
            .iter()
            .map(|one| (one.key.as_str(), one.value.to_str().unwrap()))
            .collect();
        assert_eq!(found, [("core.bare", ""), ("include.path", "x y")]);
        fs::write(&file, "[core\n").unwrap();
        assert!(git.settings(&file).is_err());
    }
}
