//! Probes of what a process inherits from its parent: variables, standard streams, a process group,
//! limits.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::fs::StatVfsMountFlags;
use rustix::process::{Resource, getrlimit};

use super::probe::{Probe, Verdict, attempt, error_name};
use super::targets::Targets;

pub const PROBES: &[Probe] = &[
    Probe {
        name: "variables",
        tries: "finds the user's secrets in its own variables, by their customary names",
        run: variables,
    },
    Probe {
        name: "proxy-variables",
        tries: "finds a proxy in the environment",
        run: proxy_variables,
    },
    Probe {
        name: "standard-files",
        tries: "opens the files that are its standard streams anew",
        run: standard_files,
    },
    Probe {
        name: "process-group",
        tries: "reaches the user's processes by the number 0 of its process group",
        run: process_group,
    },
    Probe {
        name: "bounds",
        tries: "finds room for more files in memory than the machine has, or no bound on processes",
        run: bounds,
    },
];

fn variables(targets: &Targets) -> Verdict {
    if targets.variables.is_empty() {
        return Verdict::NotApplicable("no variable was planted".into());
    }
    let found = targets
        .variables
        .iter()
        .find(|name| std::env::var(name).is_ok_and(|value| value == targets.nonce));
    match found {
        Some(name) => Verdict::Escaped(name.clone()),
        None => Verdict::Held(format!("none of {} is there", targets.variables.len())),
    }
}

fn proxy_variables(_: &Targets) -> Verdict {
    let found = std::env::vars_os()
        .find(|(name, _)| name.to_string_lossy().to_lowercase().ends_with("_proxy"));
    match found {
        Some((name, _)) => Verdict::Escaped(name.to_string_lossy().into_owned()),
        None => Verdict::Held("none".into()),
    }
}

fn standard_files(targets: &Targets) -> Verdict {
    if !targets.input {
        return Verdict::NotApplicable("no file was planted".into());
    }
    for fd in 0..3 {
        let path = format!("/proc/self/fd/{fd}");
        if fs::metadata(&path).is_ok_and(|found| found.is_file()) {
            // The host's side sees whether it was overwritten. If another person's file refuses,
            // its permissions did that.
            let _ = fs::write(&path, "forged");
            return Verdict::Escaped(format!("{fd} is a file"));
        }
    }
    Verdict::Held("none is a file".into())
}

fn process_group(_: &Targets) -> Verdict {
    // The host's side sees by their priority which outside processes this reaches.
    let _ = attempt(
        libc::SYS_setpriority,
        [libc::PRIO_PGRP as usize, 0, 1, 0, 0, 0],
    );
    match attempt(libc::SYS_getpgid, [0; 6]) {
        Ok(0) => Verdict::Escaped("its group is one of the host's".into()),
        Ok(group) => Verdict::Held(format!("group {group} is the sandbox's own")),
        Err(error) => Verdict::NotApplicable(error_name(&error)),
    }
}

fn bounds(_: &Targets) -> Verdict {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    // An overlay writes to an in-memory file system, and reports that one's totals.
    let (mut seen, mut totals, mut room) = (BTreeSet::new(), BTreeSet::new(), 0_u64);
    for line in table.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(path), Some(kind @ ("tmpfs" | "overlay"))) = (words.next(), words.next()) else {
            continue;
        };
        let (Ok(found), Ok(sizes)) = (fs::metadata(path), rustix::fs::statvfs(path)) else {
            continue;
        };
        let is_writable = !sizes.f_flag.contains(StatVfsMountFlags::RDONLY);
        if is_writable && seen.insert(found.dev()) {
            if sizes.f_blocks == 0 {
                return Verdict::Escaped(format!("{path} has no bound"));
            }
            let size = sizes.f_blocks.saturating_mul(sizes.f_frsize);
            if kind == "tmpfs" || !totals.contains(&(size, sizes.f_files)) {
                room = room.saturating_add(size);
            }
            totals.insert((size, sizes.f_files));
        }
    }
    let machine = rustix::system::sysinfo();
    let memory = machine.totalram.saturating_mul(machine.mem_unit.into());
    match getrlimit(Resource::Nproc).maximum {
        _ if room >= memory => Verdict::Escaped(format!("{} MiB of files in memory", room >> 20)),
        None => Verdict::Escaped("no bound on processes".into()),
        Some(most) => Verdict::Held(format!(
            "{} MiB in {}, {most} processes",
            room >> 20,
            seen.len()
        )),
    }
}
