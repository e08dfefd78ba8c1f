//! Probes of other processes: their memory, files, keys and terminals.

use std::fs;
use std::io::Write;

use super::probe::{Probe, Verdict, all_refused, attempt};
use super::targets::{CANARY_VARIABLE, Targets};

pub const PROBES: &[Probe] = &[
    Probe {
        name: "host-processes",
        tries: "sees a process of the host in /proc",
        run: host_processes,
    },
    Probe {
        name: "host-signals",
        tries: "sends signals to processes of the host",
        run: host_signals,
    },
    Probe {
        name: "first-process",
        tries: "reads the environment, memory, files and root of the sandbox's first process",
        run: first_process,
    },
    Probe {
        name: "ptrace",
        tries: "attaches to the first process, and reads its memory",
        run: ptrace,
    },
    Probe {
        name: "pidfd-getfd",
        tries: "takes files out of the first process",
        run: pidfd_getfd,
    },
    Probe {
        name: "canary-in-memory",
        tries: "finds the canary in the environment of any process",
        run: canary_in_environments,
    },
    Probe {
        name: "key-rings",
        tries: "reads the user's session and user key rings",
        run: key_rings,
    },
    Probe {
        name: "terminal-input",
        tries: "types into a terminal on behalf of the person (TIOCSTI)",
        run: terminal_input,
    },
    Probe {
        name: "other-terminals",
        tries: "writes to another terminal of the same user",
        run: other_terminal,
    },
    Probe {
        name: "inherited-files",
        tries: "finds an open file that the launcher left",
        run: inherited_files,
    },
];

fn host_processes(targets: &Targets) -> Verdict {
    let Some(pid) = targets.pid else {
        return Verdict::NotApplicable("no process was planted".into());
    };
    match fs::metadata(format!("/proc/{pid}")) {
        Ok(_) => Verdict::Escaped(format!("/proc/{pid}")),
        Err(_) => Verdict::Held("not there".into()),
    }
}

fn host_signals(targets: &Targets) -> Verdict {
    let Some(pid) = targets.pid else {
        return Verdict::NotApplicable("no process was planted".into());
    };
    all_refused([
        (
            "kill",
            attempt(libc::SYS_kill, [pid as usize, 0, 0, 0, 0, 0]),
        ),
        (
            "pidfd_open",
            attempt(libc::SYS_pidfd_open, [pid as usize, 0, 0, 0, 0, 0]),
        ),
        (
            "ptrace",
            attempt(
                libc::SYS_ptrace,
                [libc::PTRACE_SEIZE as usize, pid as usize, 0, 0, 0, 0],
            ),
        ),
    ])
}

fn first_process(_: &Targets) -> Verdict {
    if std::process::id() == 1 {
        return Verdict::NotApplicable("this is the first process".into());
    }
    let files = ["environ", "mem", "maps", "auxv", "stack", "syscall"];
    let opened = files.map(|name| (name, fs::read(format!("/proc/1/{name}")).map(drop)));
    let links = ["root", "cwd", "exe", "ns/net", "ns/mnt", "ns/user"];
    let followed = links.map(|name| (name, fs::File::open(format!("/proc/1/{name}")).map(drop)));
    let listed = [("fd", fs::read_dir("/proc/1/fd").map(drop))];
    all_refused(opened.into_iter().chain(followed).chain(listed))
}

fn ptrace(_: &Targets) -> Verdict {
    let mut byte = 0_u8;
    let here = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let there = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(0x1000),
        iov_len: 1,
    };
    let vectors = [
        1,
        (&raw const here) as usize,
        1,
        (&raw const there) as usize,
        1,
        0,
    ];
    let read = attempt(libc::SYS_process_vm_readv, vectors);
    all_refused([
        (
            "PTRACE_SEIZE",
            attempt(
                libc::SYS_ptrace,
                [libc::PTRACE_SEIZE as usize, 1, 0, 0, 0, 0],
            ),
        ),
        (
            "PTRACE_ATTACH",
            attempt(
                libc::SYS_ptrace,
                [libc::PTRACE_ATTACH as usize, 1, 0, 0, 0, 0],
            ),
        ),
        ("process_vm_readv", read),
    ])
}

fn pidfd_getfd(_: &Targets) -> Verdict {
    let pidfd = match attempt(libc::SYS_pidfd_open, [1, 0, 0, 0, 0, 0]) {
        Ok(pidfd) => pidfd as usize,
        Err(error) => return all_refused([("pidfd_open", Err::<(), _>(error))]),
    };
    let verdict = all_refused((0..8).map(|fd| {
        (
            format!("file {fd}"),
            attempt(libc::SYS_pidfd_getfd, [pidfd, fd, 0, 0, 0, 0]),
        )
    }));
    let _ = attempt(libc::SYS_close, [pidfd, 0, 0, 0, 0, 0]);
    verdict
}

fn canary_in_environments(targets: &Targets) -> Verdict {
    if targets.nonce.is_empty() {
        return Verdict::NotApplicable("no canary was planted".into());
    }
    let own = std::process::id().to_string();
    let mut read = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        // The prober itself has the canary's text, in the variable that says what to look for.
        if entry.file_name().to_str() == Some(&own) {
            continue;
        }
        for name in ["environ", "cmdline"] {
            let Ok(content) = fs::read(entry.path().join(name)) else {
                continue;
            };
            read += 1;
            let canary = format!("{}={}", CANARY_VARIABLE, targets.nonce);
            if content
                .windows(canary.len())
                .any(|window| window == canary.as_bytes())
            {
                return Verdict::Escaped(entry.path().join(name).display().to_string());
            }
        }
    }
    Verdict::Held(format!("not in {read} readable files"))
}

fn key_rings(_: &Targets) -> Verdict {
    let ring = |number: i32| attempt(libc::SYS_keyctl, [0, number as usize, 0, 0, 0, 0]); // KEYCTL_GET_KEYRING_ID
    let (kind, name) = (c"user", c"gateway-escape");
    let request = [kind.as_ptr() as usize, name.as_ptr() as usize, 0, 0, 0, 0];
    all_refused([
        ("session key ring", ring(-3)),
        ("user key ring", ring(-4)),
        ("user session key ring", ring(-5)),
        ("request_key", attempt(libc::SYS_request_key, request)),
        (
            "add_key",
            attempt(
                libc::SYS_add_key,
                [
                    kind.as_ptr() as usize,
                    name.as_ptr() as usize,
                    name.as_ptr() as usize,
                    1,
                    -4_i32 as usize,
                    0,
                ],
            ),
        ),
    ])
}

fn terminal_input(_: &Targets) -> Verdict {
    let terminal = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/ptmx");
    let Ok(terminal) = terminal else {
        return Verdict::NotApplicable("no pseudo-terminal".into());
    };
    use std::os::fd::AsRawFd;
    let fd = terminal.as_raw_fd() as usize;
    let byte = b'#';
    let type_in = |fd: usize, request: usize| {
        attempt(
            libc::SYS_ioctl,
            [fd, request, (&raw const byte) as usize, 0, 0, 0],
        )
    };
    all_refused([
        ("TIOCSTI on a new terminal", type_in(fd, 0x5412)),
        ("TIOCSTI on standard input", type_in(0, 0x5412)),
        ("TIOCSTI with a high half", type_in(0, 0x1_0000_5412)),
        ("TIOCLINUX", type_in(0, 0x541C)),
    ])
}

fn other_terminal(targets: &Targets) -> Verdict {
    let Some(path) = &targets.terminal else {
        return Verdict::NotApplicable("no terminal was planted".into());
    };
    let written = fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut terminal| terminal.write_all(targets.nonce.as_bytes()));
    all_refused([(path.display().to_string(), written)])
}

fn inherited_files(_: &Targets) -> Verdict {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return Verdict::NotApplicable("no /proc/self/fd".into());
    };
    let mut open = 0;
    for entry in entries.flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let number: u32 = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            .unwrap_or(u32::MAX);
        let own_listing = target.starts_with("/proc");
        if number > 2 && !own_listing {
            return Verdict::Escaped(format!("{number} is {}", target.display()));
        }
        if number <= 2 && fs::metadata(entry.path()).is_ok_and(|found| found.is_dir()) {
            return Verdict::Escaped(format!("standard stream {number} is a directory"));
        }
        open += 1;
    }
    Verdict::Held(format!(
        "{open} open, none inherited but the standard streams"
    ))
}
