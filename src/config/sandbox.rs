//! `[sandbox]`: what the workload of `gateway exec` can see, receive and change.

use std::path::{Path, PathBuf};

use gateway_body::Limit;

use super::diagnostic::Hint;
use super::port::{self, PublishedPort};
use super::reference::variables;
use super::section::Section;
use super::units;

/// Settings of the sandbox that `gateway exec` builds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sandbox {
    /// Paths that the workload can read, in addition to those of the system.
    pub see: Vec<PathBuf>,
    /// Sets and paths of the home that the workload can see, in addition to those that programs
    /// need.
    pub see_home: Vec<String>,
    /// Paths hidden from the workload, in addition to those that always are.
    pub hide: Vec<PathBuf>,
    /// Variables passed to the workload, in addition to those that always are; a name may end in
    /// `*`.
    pub pass_env: Vec<String>,
    /// Whether the workload may create user namespaces of its own.
    pub allow_userns: bool,
    /// Whether new and changed files that tools run automatically are refused.
    pub guard_tools: bool,
    /// Whether git in the sandbox signs nothing.
    pub no_sign: bool,
    /// Paths outside the project that the workload may change permanently.
    pub write: Vec<PathBuf>,
    /// The limit for all files in memory together. Unless set, half of the machine's memory.
    pub memory_files: Option<Limit>,
    /// The limit of simultaneous processes and threads. Unless set, the launcher's own applies.
    pub processes: Option<u64>,
    /// How to answer DNS queries for names that no policy allows.
    pub dns: SandboxDns,
    /// Servers of the workload that are reached at addresses of the host.
    pub publish: Vec<PublishedPort>,
    /// Ports of the host's loopback that the workload reaches.
    pub host_port: Vec<u16>,
    /// The user that the workload runs as if the launcher is root.
    pub user: Option<String>,
}

/// How to answer DNS queries for names that no policy allows. No query is ever forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxDns {
    /// An address, where the gateway refuses the request and says why.
    #[default]
    Explain,
    /// That the name does not exist.
    Strict,
}

impl SandboxDns {
    const WORDS: [(&str, Self); 2] = [("explain", Self::Explain), ("strict", Self::Strict)];

    /// Reads the value of the flag.
    pub(super) fn read(text: &str) -> Result<Self, Hint> {
        let known = Self::WORDS.iter().find(|(word, _)| *word == text);
        known.map(|(_, dns)| *dns).ok_or_else(|| {
            hint!("it is neither `explain` nor `strict`"; "write `--dns strict`, or leave it out")
        })
    }
}

pub(super) fn sandbox(section: &Section<'_, '_>) -> Sandbox {
    Sandbox {
        see: section.paths("see"),
        see_home: section.all("see_home", of_home),
        hide: section.paths("hide"),
        pass_env: section.all("pass_env", variables),
        allow_userns: section.is_true("allow_userns"),
        guard_tools: section.is_true("guard_tools"),
        no_sign: section.is_true("no_sign"),
        write: section.paths("write"),
        memory_files: memory_files(section),
        processes: section.count("processes", 16..=4_194_304),
        dns: section
            .choice("dns", &SandboxDns::WORDS)
            .unwrap_or_default(),
        publish: section.all("publish", port::published),
        host_port: section.all("host_port", port::host_port),
        user: None,
    }
}

fn memory_files(section: &Section<'_, '_>) -> Option<Limit> {
    let size = section.get("memory_files", units::size)?;
    if (Limit::mib(64)..=Limit::mib(1 << 20)).contains(&size) {
        return Some(size);
    }
    mistake!(section, "memory_files", "`memory_files` is {size}"; "it is between 64MiB and 1024GiB";
        "write for example `2GiB`");
    None
}

/// Reads the name of a set, or a path below the home. Only the launcher can distinguish them.
pub(super) fn of_home(text: &str) -> Result<String, Hint> {
    let leads_out = Path::new(text)
        .components()
        .any(|part| part == std::path::Component::ParentDir);
    if text.is_empty() || leads_out {
        return refused!("it is neither a set nor a path below the home";
            "write for example `claude` or `~/.vimrc`");
    }
    Ok(text.to_owned())
}
