//! Probes of git: ways to make the user's own git run a program of the command, later and outside
//! the sandbox.
//!
//! The host's side plants a repository for each way, and runs git in it after the sandbox has
//! ended.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::probe::{Verdict, all_refused, not_applicable, open_for_writing};
use super::targets::Targets;

/// The repository in the working directory, if there is one: nothing in it changes.
pub fn project(_: &Targets) -> Verdict {
    if !Path::new(".git").is_dir() {
        return not_applicable("the working directory is no git repository");
    }
    let hook = Path::new(".git/hooks/gateway-escape");
    let verdict = all_refused([
        ("a hook", fs::write(hook, "")),
        (
            "the settings",
            open_for_writing(".git/config".as_ref()).map(drop),
        ),
        ("another .git", there_and_back(Path::new(".git"))),
    ]);
    let _ = fs::remove_file(hook);
    verdict
}

pub fn settings(targets: &Targets) -> Verdict {
    refused(targets, "git-settings", |top| {
        let new = arm(top, ".git/new");
        let replaced = new.and_then(|()| fs::rename(top.join(".git/new"), top.join(".git/config")));
        vec![
            ("the settings", arm(top, ".git/config")),
            ("other settings", replaced),
            ("another .git", there_and_back(&top.join(".git"))),
        ]
    })
}

pub fn absent_hooks(targets: &Targets) -> Verdict {
    refused(targets, "git-absent-hooks", |top| {
        let folder = fs::create_dir_all(top.join(".git/hooks"));
        vec![(
            "a hook",
            folder.and_then(|()| hook(top, ".git/hooks/pre-commit")),
        )]
    })
}

pub fn commondir(targets: &Targets) -> Verdict {
    refused(targets, "git-commondir", |top| {
        vec![("commondir", lead(top, ".git/commondir", "../common\n"))]
    })
}

pub fn worktree_settings(targets: &Targets) -> Verdict {
    refused(targets, "git-worktree-settings", |top| {
        let other = lead(top, ".git/worktrees/sub/commondir", "../../../common\n");
        vec![
            ("config.worktree", arm(top, ".git/config.worktree")),
            (
                "a worktree's",
                arm(top, ".git/worktrees/sub/config.worktree"),
            ),
            ("a worktree's commondir", other),
        ]
    })
}

pub fn file(targets: &Targets) -> Verdict {
    refused(targets, "git-file", |top| {
        let removed = fs::remove_file(top.join(".git"));
        vec![
            ("the file", lead(top, ".git", "gitdir: common\n")),
            ("its place", removed),
        ]
    })
}

pub fn submodule(targets: &Targets) -> Verdict {
    refused(targets, "git-submodule", |top| {
        vec![
            ("its settings", arm(top, ".git/modules/sub/config")),
            ("its place", there_and_back(&top.join(".git/modules/sub"))),
        ]
    })
}

pub fn nested(targets: &Targets) -> Verdict {
    refused(targets, "git-nested", |top| {
        let moved = fs::rename(top.join("sub"), top.join("gone"));
        vec![(
            "another in its place",
            moved.and_then(|()| armed_repository(top, "sub/.git")),
        )]
    })
}

pub fn new(targets: &Targets) -> Verdict {
    told_later(targets, "git-new", |top| armed_repository(top, ".git"))
}

pub fn new_bare(targets: &Targets) -> Verdict {
    told_later(targets, "git-new-bare", |top| {
        repository(top)?;
        append(
            &top.join("config"),
            "[core]\n\tbare = false\n\tworktree = .\n",
        )?;
        arm(top, "config")
    })
}

/// Held if every attempt in this way's folder is refused.
fn refused(
    targets: &Targets,
    name: &str,
    attempts: impl FnOnce(&Path) -> Vec<(&'static str, io::Result<()>)>,
) -> Verdict {
    let Some(folder) = &targets.repositories else {
        return not_applicable("the working directory is no project");
    };
    let top = folder.join(name);
    if top.is_dir() {
        all_refused(attempts(&top))
    } else {
        Verdict::Held("not seen".into())
    }
}

/// Judges an attempt whose effect only git shows later.
fn told_later(
    targets: &Targets,
    name: &str,
    attempt: impl FnOnce(&Path) -> io::Result<()>,
) -> Verdict {
    match refused(targets, name, |top| vec![("a repository", attempt(top))]) {
        Verdict::Escaped(_) if targets.git => {
            Verdict::Held("the host's git is asked afterwards".into())
        }
        Verdict::Escaped(_) => not_applicable("the host has no git to ask"),
        other => other,
    }
}

/// Plants a repository for each way in a new folder of `project`, and returns the folder.
pub fn plant(project: &Path, nonce: &str, owner: Option<u32>) -> io::Result<PathBuf> {
    let folder = project.join(format!("gateway-escape-{nonce}"));
    fs::create_dir(&folder)?;
    for name in WAYS {
        let top = folder.join(name);
        fs::create_dir(&top)?;
        plant_way(name, &top)?;
    }
    if let Some(owner) = owner {
        give(&folder, owner)?;
    }
    Ok(folder)
}

fn plant_way(name: &str, top: &Path) -> io::Result<()> {
    let (git, sub) = (top.join(".git"), top.join("sub"));
    match name {
        "git-new" | "git-new-bare" => return Ok(()),
        "git-nested" => return repository(&sub.join(".git")),
        "git-file" => {
            repository(&top.join("elsewhere"))?;
            return fs::write(git, "gitdir: elsewhere\n");
        }
        _ => repository(&git)?,
    }
    match name {
        "git-submodule" => {
            repository(&git.join("modules/sub"))?;
            fs::create_dir(&sub)?;
            fs::write(sub.join(".git"), "gitdir: ../.git/modules/sub\n")
        }
        "git-worktree-settings" => {
            append(
                &git.join("config"),
                "[extensions]\n\tworktreeConfig = true\n",
            )?;
            let own = git.join("worktrees/sub");
            fs::create_dir_all(&own)?;
            fs::write(own.join("HEAD"), "ref: refs/heads/sub\n")?;
            fs::write(own.join("commondir"), "../..\n")?;
            fs::write(
                own.join("gitdir"),
                format!("{}\n", sub.join(".git").display()),
            )?;
            fs::create_dir(&sub)?;
            fs::write(sub.join(".git"), format!("gitdir: {}\n", own.display()))
        }
        _ => Ok(()),
    }
}

/// Runs git in the repository of a way, and returns whether it ran the probe's program.
pub fn runs_what_was_planted(git: &Path, folder: &Path, name: &str) -> bool {
    let top = folder.join(name);
    for place in [top.join("sub"), top].iter().filter(|place| place.is_dir()) {
        for words in ["status --short", "commit --allow-empty -m probe"] {
            // Where git fails, it ran nothing.
            let _ = Command::new(git)
                .args(["-c", "safe.directory=*"])
                .args(["-c", "user.name=x", "-c", "user.email=x"])
                .args(words.split(' '))
                .current_dir(place)
                .env_clear()
                .env("PATH", "/usr/bin:/bin")
                .env("GIT_CONFIG_NOSYSTEM", "1")
                // If this is no repository, git must not find the user's own above it.
                .env("GIT_CEILING_DIRECTORIES", folder)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }
    fs::remove_file(folder.join(MARK)).is_ok()
}

/// Creates the files by which git takes a folder for a repository.
fn repository(git: &Path) -> io::Result<()> {
    for name in ["objects", "refs"] {
        fs::create_dir_all(git.join(name))?;
    }
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n")?;
    fs::write(
        git.join("config"),
        "[core]\n\trepositoryformatversion = 0\n",
    )
}

fn armed_repository(top: &Path, git: &str) -> io::Result<()> {
    repository(&top.join(git))?;
    arm(top, &format!("{git}/config"))
}

/// Adds a setting that makes git run a program.
fn arm(top: &Path, config: &str) -> io::Result<()> {
    let mark = top.with_file_name(MARK);
    let setting = format!("[core]\n\tfsmonitor = \"touch '{}';:\"\n", mark.display());
    append(&top.join(config), &setting)
}

fn hook(top: &Path, path: &str) -> io::Result<()> {
    let (path, mark) = (top.join(path), top.with_file_name(MARK));
    fs::write(&path, format!("#!/bin/sh\ntouch '{}'\n", mark.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// Makes an armed repository, and writes the text that leads to it.
fn lead(top: &Path, path: &str, text: &str) -> io::Result<()> {
    armed_repository(top, "common")?;
    fs::write(top.join(path), text)
}

fn there_and_back(path: &Path) -> io::Result<()> {
    let gone = path.with_file_name("gateway-escape-gone");
    fs::rename(path, &gone)?;
    fs::rename(gone, path)
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.append(true).create(true).open(path)?;
    file.write_all(text.as_bytes())
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

/// Each way has a folder of its own.
pub const WAYS: [&str; 9] = gateway_names::word_list(
    "git-settings git-absent-hooks git-commondir git-worktree-settings git-file git-submodule \
     git-nested git-new git-new-bare",
);
const MARK: &str = "ran";
