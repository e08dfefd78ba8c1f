//! Probes of other processes (their memory, files, keys and terminals), and of what a process
//! inherits from its parent: variables, standard streams, a process group, limits.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use libc::{PTRACE_ATTACH, PTRACE_SEIZE, SYS_ioctl, SYS_keyctl, SYS_ptrace};
use rustix::fs::StatVfsMountFlags;
use rustix::process::{Resource, getrlimit};

use super::probe::{
    Verdict, address, all_refused, call, calls_refused, contains, error_name, found,
    not_applicable, open_for_writing, paths_refused,
};
use super::targets::{CANARY_VARIABLE, Targets};

pub fn host_processes(targets: &Targets) -> Verdict {
    let folder = targets.pid.map(|pid| format!("/proc/{pid}"));
    paths_refused(folder, |path| fs::metadata(path))
}

pub fn host_signals(targets: &Targets) -> Verdict {
    let Some(pid) = targets.pid.map(|pid| pid as usize) else {
        return not_applicable("no process was planted");
    };
    calls_refused(&[
        ("kill", libc::SYS_kill, &[pid, 0]),
        ("pidfd_open", libc::SYS_pidfd_open, &[pid]),
        ("ptrace", SYS_ptrace, &[PTRACE_SEIZE as usize, pid]),
    ])
}

pub fn first_process(_: &Targets) -> Verdict {
    if std::process::id() == 1 {
        return not_applicable("this is the first process");
    }
    let at = |name| format!("/proc/1/{name}");
    let read = ["environ", "maps", "auxv", "stack", "syscall"];
    let read = read.map(|name| (name, fs::read(at(name)).map(drop)));
    let open = [
        "mem", "root", "cwd", "exe", "fd", "ns/net", "ns/mnt", "ns/user",
    ];
    let open = open.map(|name| (name, File::open(at(name)).map(drop)));
    all_refused(read.into_iter().chain(open))
}

pub fn ptrace(_: &Targets) -> Verdict {
    let mut byte = 0_u8;
    // struct iovec: an address and a length
    let (here, there) = ([(&raw mut byte) as usize, 1], [0x1000_usize, 1]);
    let vectors = [1, address(&here), 1, address(&there), 1, 0];
    calls_refused(&[
        ("PTRACE_SEIZE", SYS_ptrace, &[PTRACE_SEIZE as usize, 1]),
        ("PTRACE_ATTACH", SYS_ptrace, &[PTRACE_ATTACH as usize, 1]),
        ("process_vm_readv", libc::SYS_process_vm_readv, &vectors),
    ])
}

pub fn pidfd_getfd(_: &Targets) -> Verdict {
    let pidfd = match call(libc::SYS_pidfd_open, &[1]) {
        Ok(pidfd) => pidfd as usize,
        Err(error) => return Verdict::Held(error_name(&error)),
    };
    let take = |fd| call(libc::SYS_pidfd_getfd, &[pidfd, fd]);
    let verdict = all_refused((0..8).map(|fd| (format!("file {fd}"), take(fd))));
    let _ = call(libc::SYS_close, &[pidfd]);
    verdict
}

pub fn canary_in_environments(targets: &Targets) -> Verdict {
    let canary = format!("{CANARY_VARIABLE}={}", targets.nonce);
    // The prober itself has the canary's text, in the variable that says what to look for.
    let own = PathBuf::from(format!("/proc/{}", std::process::id()));
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let others = entries
        .map(|entry| entry.path())
        .filter(|path| *path != own);
    let files = others.flat_map(|path| ["environ", "cmdline"].map(|name| path.join(name)));
    if targets.nonce.is_empty() {
        not_applicable("no canary was planted")
    } else {
        paths_refused(files, |path| contains(path, &canary))
    }
}

pub fn key_rings(_: &Targets) -> Verdict {
    const GET_KEYRING_ID: usize = 0;
    let (kind, name) = (
        c"user".as_ptr() as usize,
        c"gateway-escape".as_ptr() as usize,
    );
    let [session, user, user_session] = [-3_i32, -4, -5].map(|ring| ring as usize);
    calls_refused(&[
        ("session key ring", SYS_keyctl, &[GET_KEYRING_ID, session]),
        ("user key ring", SYS_keyctl, &[GET_KEYRING_ID, user]),
        (
            "user session key ring",
            SYS_keyctl,
            &[GET_KEYRING_ID, user_session],
        ),
        ("request_key", libc::SYS_request_key, &[kind, name]),
        ("add_key", libc::SYS_add_key, &[kind, name, name, 1, user]),
    ])
}

pub fn terminal_input(_: &Targets) -> Verdict {
    let Ok(terminal) = open_for_writing("/dev/ptmx".as_ref()) else {
        return not_applicable("no pseudo-terminal");
    };
    let (fd, byte) = (terminal.as_raw_fd() as usize, b'#');
    let byte = address(&byte);
    calls_refused(&[
        ("TIOCSTI on a new terminal", SYS_ioctl, &[fd, TIOCSTI, byte]),
        ("TIOCSTI on standard input", SYS_ioctl, &[0, TIOCSTI, byte]),
        (
            "TIOCSTI with a high half",
            SYS_ioctl,
            &[0, TIOCSTI | 1 << 32, byte],
        ),
        ("TIOCLINUX", SYS_ioctl, &[0, TIOCLINUX, byte]),
    ])
}

pub fn other_terminals(targets: &Targets) -> Verdict {
    paths_refused(&targets.terminal, |path| {
        open_for_writing(path)?.write_all(targets.nonce.as_bytes())
    })
}

pub fn inherited_files(_: &Targets) -> Verdict {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return not_applicable("no /proc/self/fd");
    };
    let mut open = 0;
    for entry in entries.flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let number = entry.file_name().to_string_lossy().parse();
        let is_stream = number.is_ok_and(|number: u32| number <= 2);
        let is_folder = fs::metadata(entry.path()).is_ok_and(|found| found.is_dir());
        if is_folder && is_stream || !is_stream && !target.starts_with("/proc") {
            let name = entry.file_name();
            return Verdict::Escaped(format!("{} is {}", name.display(), target.display()));
        }
        open += 1;
    }
    Verdict::Held(format!(
        "{open} open, none inherited but the standard streams"
    ))
}

pub fn variables(targets: &Targets) -> Verdict {
    let is_there = |name| std::env::var(name).is_ok_and(|value| value == targets.nonce);
    let names = targets.variables.iter();
    all_refused(names.map(|name| (name, found(is_there(name)))))
}

pub fn proxy_variables(_: &Targets) -> Verdict {
    let mut names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    match names.find(|name| name.to_lowercase().ends_with("_proxy")) {
        Some(name) => Verdict::Escaped(name),
        None => Verdict::Held("none".into()),
    }
}

pub fn standard_files(targets: &Targets) -> Verdict {
    if !targets.input {
        return not_applicable("no file was planted");
    }
    let streams = [0, 1, 2].map(|fd| format!("/proc/self/fd/{fd}"));
    paths_refused(streams, |path| {
        found(fs::metadata(path)?.is_file())?;
        // The host's side sees whether it was overwritten. Another person's file may refuse because
        // of its permissions.
        let _ = fs::write(path, "forged");
        Ok(())
    })
}

pub fn process_group(_: &Targets) -> Verdict {
    // The host's side sees by their priority which outside processes this reaches.
    let _ = call(libc::SYS_setpriority, &[libc::PRIO_PGRP as usize, 0, 1]);
    match call(libc::SYS_getpgid, &[]) {
        Ok(0) => Verdict::Escaped("its group is one of the host's".into()),
        Ok(group) => Verdict::Held(format!("group {group} is the sandbox's own")),
        Err(error) => not_applicable(error_name(&error)),
    }
}

pub fn bounds(_: &Targets) -> Verdict {
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
            if totals.insert((size, sizes.f_files)) || kind == "tmpfs" {
                room = room.saturating_add(size);
            }
        }
    }
    let machine = rustix::system::sysinfo();
    let memory = machine.totalram.saturating_mul(machine.mem_unit.into());
    let (mib, count) = (room >> 20, seen.len());
    match getrlimit(Resource::Nproc).maximum {
        _ if room >= memory => Verdict::Escaped(format!("{mib} MiB of files in memory")),
        None => Verdict::Escaped("no bound on processes".into()),
        Some(most) => Verdict::Held(format!("{mib} MiB in {count}, {most} processes")),
    }
}

const TIOCSTI: usize = 0x5412;
const TIOCLINUX: usize = 0x541C;
