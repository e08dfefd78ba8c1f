//! Probes of git: ways to make the user's own git, outside and later, run one of the command's
//! programs.
//!
//! The host's side plants one repository for each way, and runs git in each after the sandbox has
//! ended.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::probe::{Probe, Verdict, all_refused};
use super::targets::Targets;
use crate::program::root_owned_program;

pub const PROBES: &[Probe] = &[
    Probe {
        name: ATTACKS[0].name,
        tries: "adds to the settings of a git repository",
        run: attack::<0>,
    },
    Probe {
        name: ATTACKS[1].name,
        tries: "puts hooks where a git repository has none",
        run: attack::<1>,
    },
    Probe {
        name: ATTACKS[2].name,
        tries: "leads a git repository to other settings by `commondir`",
        run: attack::<2>,
    },
    Probe {
        name: ATTACKS[3].name,
        tries: "writes `config.worktree` of a git repository",
        run: attack::<3>,
    },
    Probe {
        name: ATTACKS[4].name,
        tries: "replaces the file `.git` of a worktree or submodule",
        run: attack::<4>,
    },
    Probe {
        name: ATTACKS[5].name,
        tries: "adds to the settings of a submodule",
        run: attack::<5>,
    },
    Probe {
        name: ATTACKS[6].name,
        tries: "moves a nested git repository away and makes another in its place",
        run: attack::<6>,
    },
    Probe {
        name: ATTACKS[7].name,
        tries: "makes a git repository where there was none",
        run: attack::<7>,
    },
    Probe {
        name: ATTACKS[8].name,
        tries: "makes a folder that git takes for a bare repository",
        run: attack::<8>,
    },
];

/// One way: what exists on the host before, and what is tried inside. Each has a folder `top` of
/// its own.
struct Attack {
    name: &'static str,
    plant: fn(&Path) -> io::Result<()>,
    attempt: fn(&Path) -> Attempts,
    /// Whether it must be refused at once. Otherwise only git shows the result later.
    is_refused: bool,
}

/// What was tried, each with its result.
type Attempts = Vec<(&'static str, io::Result<()>)>;

/// Plants a repository for each way in a new folder of `project`, and returns the folder.
///
/// # Errors
/// The error of creating one.
pub fn plant(project: &Path, nonce: &str, owner: Option<u32>) -> io::Result<PathBuf> {
    let folder = project.join(format!("gateway-escape-{nonce}"));
    fs::create_dir(&folder)?;
    for way in ATTACKS {
        let top = folder.join(way.name);
        fs::create_dir(&top)?;
        (way.plant)(&top)?;
    }
    if let Some(owner) = owner {
        give(&folder, owner)?;
    }
    Ok(folder)
}

/// Runs git in each repository, and returns those where it ran what the probes had put there.
pub fn breaches(folder: &Path) -> Vec<String> {
    let mark = folder.join(MARK);
    let mut found = Vec::new();
    // Where there is no git, nothing runs.
    let Some(git) = root_owned_program("git") else {
        return found;
    };
    for way in ATTACKS {
        for place in [folder.join(way.name), folder.join(way.name).join("sub")] {
            for words in [
                &["status", "--short"][..],
                &["commit", "--allow-empty", "-m", "probe"],
            ] {
                if !place.is_dir() {
                    continue;
                }
                let _ = Command::new(&git)
                    .args([
                        "-c",
                        "safe.directory=*",
                        "-c",
                        "user.name=x",
                        "-c",
                        "user.email=x",
                    ])
                    .args(words)
                    .current_dir(&place)
                    // What is no repository here must not lead git to the user's own above.
                    .env("GIT_CEILING_DIRECTORIES", folder)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
            }
        }
        if fs::remove_file(&mark).is_ok() {
            found.push(format!("a program by git ({})", way.name));
        }
    }
    found
}

fn attack<const N: usize>(targets: &Targets) -> Verdict {
    let way = &ATTACKS[N];
    let Some(top) = targets
        .repositories
        .as_ref()
        .map(|folder| folder.join(way.name))
    else {
        return Verdict::NotApplicable("the working directory is no project".into());
    };
    if !top.is_dir() {
        return Verdict::Held("not seen".into());
    }
    let attempts = (way.attempt)(&top);
    match way.is_refused {
        true => all_refused(attempts),
        false => Verdict::Held("the host's git is asked afterwards".into()),
    }
}

const ATTACKS: [Attack; 9] = [
    Attack {
        name: "git-settings",
        plant: |top| repository(&top.join(".git")),
        attempt: |top| {
            vec![
                ("the settings", arm(&top.join(".git/config"))),
                ("other settings", replace(&top.join(".git/config"))),
                ("another .git", there_and_back(&top.join(".git"))),
            ]
        },
        is_refused: true,
    },
    Attack {
        name: "git-absent-hooks",
        plant: |top| repository(&top.join(".git")),
        attempt: |top| {
            let hooks = top.join(".git/hooks");
            vec![
                ("the folder", fs::create_dir(&hooks)),
                ("a hook", hook(&hooks.join("pre-commit"))),
            ]
        },
        is_refused: true,
    },
    Attack {
        name: "git-commondir",
        plant: |top| repository(&top.join(".git")),
        attempt: |top| {
            let made =
                repository(&top.join("common")).and_then(|()| arm(&top.join("common/config")));
            let lead = || fs::write(top.join(".git/commondir"), "../common\n");
            vec![("commondir", made.and_then(|()| lead()))]
        },
        is_refused: true,
    },
    Attack {
        name: "git-worktree-settings",
        plant: |top| {
            repository(&top.join(".git"))?;
            append(
                &top.join(".git/config"),
                "[extensions]\n\tworktreeConfig = true\n",
            )
        },
        attempt: |top| vec![("config.worktree", arm(&top.join(".git/config.worktree")))],
        is_refused: true,
    },
    Attack {
        name: "git-file",
        plant: |top| {
            repository(&top.join("elsewhere"))?;
            fs::write(top.join(".git"), "gitdir: elsewhere\n")
        },
        attempt: |top| {
            let made = repository(&top.join("own")).and_then(|()| arm(&top.join("own/config")));
            let removed = fs::remove_file(top.join(".git"));
            let file = || fs::write(top.join(".git"), "gitdir: own\n");
            vec![
                ("the file", made.and_then(|()| file())),
                ("its place", removed),
            ]
        },
        is_refused: true,
    },
    Attack {
        name: "git-submodule",
        plant: |top| {
            repository(&top.join(".git"))?;
            repository(&top.join(".git/modules/sub"))?;
            fs::create_dir(top.join("sub"))?;
            fs::write(top.join("sub/.git"), "gitdir: ../.git/modules/sub\n")
        },
        attempt: |top| {
            vec![
                ("its settings", arm(&top.join(".git/modules/sub/config"))),
                ("its place", there_and_back(&top.join(".git/modules/sub"))),
            ]
        },
        is_refused: true,
    },
    Attack {
        name: "git-nested",
        plant: |top| repository(&top.join("sub/.git")),
        attempt: |top| {
            let moved = fs::rename(top.join("sub"), top.join("gone"));
            let made = || {
                repository(&top.join("sub/.git")).and_then(|()| arm(&top.join("sub/.git/config")))
            };
            vec![("another in its place", moved.and_then(|()| made()))]
        },
        is_refused: true,
    },
    Attack {
        name: "git-new",
        plant: |_| Ok(()),
        attempt: |top| {
            let git = top.join(".git");
            vec![(
                "a repository",
                repository(&git).and_then(|()| arm(&git.join("config"))),
            )]
        },
        is_refused: false,
    },
    Attack {
        name: "git-new-bare",
        plant: |_| Ok(()),
        attempt: |top| {
            let tree = "[core]\n\tbare = false\n\tworktree = .\n";
            let made = repository(top).and_then(|()| append(&top.join("config"), tree));
            vec![("a repository", made.and_then(|()| arm(&top.join("config"))))]
        },
        is_refused: false,
    },
];

/// Creates what git treats as a repository.
fn repository(git: &Path) -> io::Result<()> {
    for name in ["objects", "refs"] {
        fs::create_dir_all(git.join(name))?;
    }
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n")?;
    let settings = "[core]\n\trepositoryformatversion = 0\n";
    fs::write(git.join("config"), settings)
}

/// Adds a setting that makes git run a program.
fn arm(config: &Path) -> io::Result<()> {
    let mark = mark_of(config)?;
    append(
        config,
        &format!("[core]\n\tfsmonitor = \"touch '{}';:\"\n", mark.display()),
    )
}

/// Replaces the settings.
fn replace(config: &Path) -> io::Result<()> {
    let new = config.with_file_name("new");
    arm(&new)?;
    fs::rename(new, config)
}

fn there_and_back(path: &Path) -> io::Result<()> {
    let gone = path.with_file_name("gone");
    fs::rename(path, &gone)?;
    fs::rename(gone, path)
}

fn hook(path: &Path) -> io::Result<()> {
    fs::write(
        path,
        format!("#!/bin/sh\ntouch '{}'\n", mark_of(path)?.display()),
    )?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn mark_of(path: &Path) -> io::Result<PathBuf> {
    let is_planted = |above: &&Path| {
        let name = above.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b"gateway-escape-")
    };
    let folder = path.ancestors().find(is_planted);
    Ok(folder.ok_or(io::ErrorKind::NotFound)?.join(MARK))
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)?
        .write_all(text.as_bytes())
}

fn give(path: &Path, owner: u32) -> io::Result<()> {
    chown(path, Some(owner), Some(owner))?;
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), owner)?;
        }
    }
    Ok(())
}

const MARK: &str = "ran";
