//! `gateway init`: proposes a project file, from the folder's content or from the last run.

use std::fs::Metadata;
use std::io::Read as _;
use std::path::Path;

use clap::Args;

use crate::app::project::{project, working_directory};
use crate::app::settings::project_file;
use crate::app::{Code, Failure, Terminal};
use crate::cli::last_run::LastRun;
use crate::cli::projects::new_file;
use crate::cli::projects::new_file::{learned, quoted};
use crate::config::Config;
use crate::credential::preset;

/// Propose a `gateway.toml` for this folder
///
/// Shows it, asks, and writes it.
#[derive(Args)]
pub(super) struct Init {
    /// Propose what the last `gateway exec` in this project asked for
    #[arg(long)]
    from_last_run: bool,
    /// Write it without a question; `gateway project allow` then puts it in force
    #[arg(long, short)]
    yes: bool,
}

impl Init {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let folder = if self.from_last_run {
            project()?
        } else {
            working_directory()?
        };
        let path = folder.join(project_file::NAME);
        new_file::refuse_existing(&path)?;
        let text = if self.from_last_run {
            let observed = LastRun::of(&folder)?.observed()?;
            if observed.is_nothing() {
                let what = "the last run in this project asked for no host";
                return Err(
                    Failure::new(what).next("`gateway init` proposes by the folder's files")
                );
            }
            learned(&Config::default(), &observed)?
        } else {
            proposed(&folder)
        };
        Ok(if new_file::offer(&path, &text, self.yes, terminal)? {
            Code::Ok
        } else {
            Code::Failed
        })
    }
}

/// Returns a proposed file for the content of a folder.
fn proposed(folder: &Path) -> String {
    let mut presets: Vec<&str> = Vec::new();
    let mut why = String::new();
    for preset in preset::all() {
        let mut files = preset.projects.iter();
        if let Some(file) = files.find(|name| folder.join(name).is_file()) {
            why.push_str(&format!("# {file}: {}\n", preset.title));
            presets.push(&preset.name);
        }
    }
    for host in remotes(folder) {
        why.push_str(&format!("# .git/config: a remote on {}\n", host.0));
        presets.push(host.1);
    }
    presets.sort_unstable();
    presets.dedup();
    let quoted: Vec<String> = presets.iter().map(|one| quoted(one)).collect();
    let mut text =
        String::from("# What commands in this project may reach: docs/project-file.md.\n");
    text.push_str(&why);
    text.push_str("\n[policy]\n");
    text.push_str(&format!("# Services, with the variables that hold their credentials: `gateway secret presets`.\npresets = [{}]\n", quoted.join(", ")));
    text.push_str("# Further hosts, for any method and path.\nallow = []\n");
    text
}

/// Returns the services that the repository has remotes at, each with its preset.
fn remotes(folder: &Path) -> Vec<(&'static str, &'static str)> {
    let settings = git_settings(&folder.join(".git/config")).unwrap_or_default();
    let urls = settings.lines().filter_map(|line| {
        let (key, url) = line.trim().split_once('=')?;
        (key.trim() == "url").then(|| url.trim().to_ascii_lowercase())
    });
    let hosts: Vec<String> = urls.filter_map(|url| host_of(&url)).collect();
    let on = |host: &str| hosts.iter().any(|one| one == host);
    SERVICES
        .iter()
        .copied()
        .filter(|(host, _)| on(host))
        .collect()
}

/// Reads a repository's settings. A command may have put anything in their place.
fn git_settings(path: &Path) -> Option<String> {
    path.symlink_metadata().ok().filter(Metadata::is_file)?;
    let mut text = String::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(MOST_SETTINGS).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the host of a remote: `https://HOST/…`, `ssh://git@HOST/…` or `git@HOST:…`.
fn host_of(url: &str) -> Option<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', ':']).next()?;
    let host = authority.rsplit('@').next()?;
    Some(host.to_owned()).filter(|host| !host.is_empty())
}

/// The largest part of a repository's settings that is read.
const MOST_SETTINGS: u64 = 256 * 1024;

/// Hosts of repositories, each with its preset.
const SERVICES: &[(&str, &str)] = &[
    ("github.com", "github"),
    ("gitlab.com", "gitlab"),
    ("bitbucket.org", "bitbucket"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_known_by_its_files_and_remotes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        let empty = proposed(folder.path());
        assert!(Config::of_project(&empty, &path).is_ok(), "{empty}");
        for file in ["package.json", "go.mod"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        std::fs::create_dir(folder.path().join(".git")).unwrap();
        let settings = "[remote \"origin\"]\n\turl = git@github.com:a/b.git\n\
                        [remote \"other\"]\n\turl = https://evil.test/github.com\n";
        std::fs::write(folder.path().join(".git/config"), settings).unwrap();
        let text = proposed(folder.path());
        let config = Config::of_project(&text, &path).unwrap();
        assert_eq!(config.presets, ["github", "go", "npm"]);
        assert!(!text.contains("evil"), "{text}");
    }

    #[test]
    fn every_preset_that_is_proposed_exists() {
        for (_, name) in SERVICES {
            assert!(preset::named(name).is_some(), "{name}");
        }
    }
}
