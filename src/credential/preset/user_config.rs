//! What the gateway's user and the system have configured for package registries.

use std::collections::HashMap;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The configuration of the user and of the system, never of the project.
///
/// The workload can write a project's `.npmrc`, `.cargo/config.toml` or virtual environment. If
/// they were read, a host of its choice would be allowed and lent credentials.
#[derive(Debug, Clone)]
pub struct UserConfig {
    pub(super) home: PathBuf,
    pub(super) system: PathBuf,
    pub(super) variables: HashMap<String, String>,
    /// Directories to search for the registry's own program if no file names a host.
    pub(super) programs: Vec<PathBuf>,
    /// Where the answers of such programs are kept.
    pub(super) answers: Option<PathBuf>,
}

impl UserConfig {
    /// The configuration of the gateway's user. Programs are searched for in `PATH`, outside the
    /// working directory. What they answer is kept in the folder `answers`: npm takes some 200 ms.
    #[must_use]
    pub fn of_this_user(answers: Option<PathBuf>) -> Option<Self> {
        let home = PathBuf::from(std::env::var_os("HOME")?);
        let folder = std::env::current_dir().ok()?;
        let mut above = folder.ancestors();
        let project = above.find(|above| above.join(".git").exists());
        let projects = [folder.as_path(), project.unwrap_or(&folder)];
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Programs inside the project are not trusted. `/` and the home directory do not count as a
        // project.
        let inside = |directory: &Path| {
            let is_one = |project: &Path| project != Path::new("/") && project != home;
            projects
                .iter()
                .any(|one| is_one(one) && directory.starts_with(one))
        };
        let programs = std::env::split_paths(&path)
            .filter(|directory| directory.is_absolute() && !inside(directory))
            .collect();
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Some(Self {
            home,
            system: PathBuf::from("/"),
            variables: variables.collect(),
            programs,
            answers,
        })
    }

    /// A configuration under other roots, with these variables and without programs.
    #[must_use]
    pub fn below(home: &Path, system: &Path, variables: HashMap<String, String>) -> Self {
        Self {
            home: home.to_owned(),
            system: system.to_owned(),
            variables,
            programs: Vec::new(),
            answers: None,
        }
    }

    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The text of a configuration file; an absent, unreadable or huge file is ignored.
    pub(super) fn text(path: &Path) -> Option<String> {
        let about = std::fs::metadata(path).ok()?;
        (about.is_file() && about.len() <= MAX_FILE_BYTES)
            .then(|| std::fs::read_to_string(path).ok())?
    }

    pub(super) fn named_file(&self, variable: &str) -> Option<PathBuf> {
        self.variable(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }

    /// The output of the registry's own program, run in `/`, where no project file applies. It is
    /// asked once a day, and again when the program is another one.
    pub(super) fn ask(&self, programs: &[&str], arguments: &[&str]) -> Option<String> {
        let found = programs.iter().find_map(|program| {
            self.programs
                .iter()
                .map(|directory| directory.join(program))
                .find(|path| path.is_file())
        })?;
        let asked = asked(&found, arguments)?;
        let kept = self.answers.as_deref().map(|folder| {
            let name = found.file_name().unwrap_or_default();
            folder.join(name)
        });
        if let Some(known) = kept.as_deref().and_then(|file| kept_answer(file, &asked)) {
            return Some(known);
        }
        let mut command = Command::new(&found);
        command
            .args(arguments)
            .current_dir("/")
            .env_clear()
            .env("HOME", &self.home);
        command.env("PATH", std::env::join_paths(&self.programs).ok()?);
        let answer = answer(command)?;
        if let Some(file) = kept {
            // Where it cannot be kept, the program is asked each time.
            let _ = keep(&file, &format!("{asked}\n{answer}\n"));
        }
        Some(answer)
    }
}

/// Names a program, as it is now, and what it is asked.
fn asked(program: &Path, arguments: &[&str]) -> Option<String> {
    let program = program.canonicalize().ok()?;
    let about = program.metadata().ok()?;
    let (inode, changed) = (about.ino(), (about.ctime(), about.ctime_nsec()));
    let question = arguments.join(" ");
    Some(format!("{program:?} {inode} {changed:?} {question}"))
}

/// The answer in a file, if it is of today and to this question.
fn kept_answer(file: &Path, asked: &str) -> Option<String> {
    let age = std::fs::metadata(file).ok()?.modified().ok()?.elapsed();
    let text = UserConfig::text(file).filter(|_| age.is_ok_and(|age| age < KEPT_FOR))?;
    let (known, answer) = text.split_once('\n')?;
    (known == asked).then(|| answer.trim().to_owned())
}

/// Replaces a file in a folder of this user alone.
fn keep(file: &Path, text: &str) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)?;
    let beside = file.with_extension(std::process::id().to_string());
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, file)
}

/// The first line that a program prints, if it succeeds in time.
fn answer(mut command: Command) -> Option<String> {
    use std::io::Read as _;
    use std::os::unix::process::CommandExt as _;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    let mut child = command.spawn().ok()?;
    let deadline = Instant::now() + ANSWER_WITHIN;
    let status = loop {
        match child.try_wait().ok()? {
            Some(status) => break status,
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            None => {
                let group = i32::try_from(child.id())
                    .ok()
                    .and_then(rustix::process::Pid::from_raw);
                if let Some(group) = group {
                    // If it has already ended by itself, that is fine.
                    let _ =
                        rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                child.wait().ok()?;
                return None;
            }
        }
    };
    let mut printed = Vec::new();
    // An address fits into a pipe, so a program that ended has printed it. Do not wait for a child
    // of it that keeps the pipe open.
    let stdout = child.stdout.take()?;
    rustix::io::ioctl_fionbio(&stdout, true).ok()?;
    // If the pipe is still open, reading ends with `WouldBlock` after everything printed.
    let _ = stdout.take(MAX_ANSWER_BYTES).read_to_end(&mut printed);
    let line = String::from_utf8(printed)
        .ok()?
        .lines()
        .next()?
        .trim()
        .to_owned();
    status.success().then_some(line)
}

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_ANSWER_BYTES: u64 = 4096;
const MAX_FILE_BYTES: u64 = 1 << 20;
