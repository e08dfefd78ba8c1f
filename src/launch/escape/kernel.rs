//! Probes of the kernel's own interfaces: privileges, namespaces, other system call ABIs.

use std::fs;

use super::probe::{Probe, Verdict, all_refused, attempt};
use super::targets::Targets;

pub const PROBES: &[Probe] = &[
    Probe {
        name: "capabilities",
        tries: "finds a capability, or the way to one",
        run: capabilities,
    },
    Probe {
        name: "other-users",
        tries: "becomes root or another user, or takes a group",
        run: other_users,
    },
    Probe {
        name: "kernel-interfaces",
        tries: "uses bpf, io_uring, perf, userfaultfd, modules and kexec",
        run: interfaces,
    },
    Probe {
        name: "32-bit-calls",
        tries: "makes system calls by the 32-bit and x32 interfaces, past the filter",
        run: other_abi,
    },
    Probe {
        name: "clock-and-host",
        tries: "sets the clock, the host name, the swap",
        run: clock_and_host,
    },
    Probe {
        name: "join-namespaces",
        tries: "joins the namespaces of another process",
        run: join_namespaces,
    },
    Probe {
        name: "new-namespaces",
        tries: "makes namespaces without a user namespace",
        run: new_namespaces,
    },
    // Last: if it succeeds, this process is another one afterwards.
    Probe {
        name: "user-namespaces",
        tries: "makes a user namespace, and uncovers or sends from inside it",
        run: user_namespaces,
    },
];

fn capabilities(_: &Targets) -> Verdict {
    let Ok(status) = fs::read_to_string("/proc/self/status") else {
        return Verdict::NotApplicable("no /proc/self/status".into());
    };
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        if field(set) != Some("0000000000000000") {
            return Verdict::Escaped(format!("{set} is {}", field(set).unwrap_or("unknown")));
        }
    }
    if field("NoNewPrivs") != Some("1") || field("Seccomp") != Some("2") {
        return Verdict::Escaped("no filter, or new privileges can be had".into());
    }
    Verdict::Held("none, no_new_privs, filtered".into())
}

fn other_users(_: &Targets) -> Verdict {
    let groups = [0_u32];
    all_refused([
        ("root", attempt(libc::SYS_setresuid, [0; 6])),
        (
            "another user",
            attempt(libc::SYS_setresuid, [4242, 4242, 4242, 0, 0, 0]),
        ),
        ("group root", attempt(libc::SYS_setresgid, [0; 6])),
        (
            "groups",
            attempt(
                libc::SYS_setgroups,
                [1, (&raw const groups) as usize, 0, 0, 0, 0],
            ),
        ),
    ])
}

fn interfaces(_: &Targets) -> Verdict {
    let zeros = [0_u64; 32];
    let nothing = (&raw const zeros) as usize;
    let empty = c"".as_ptr() as usize;
    all_refused([
        ("bpf", attempt(libc::SYS_bpf, [0, nothing, 64, 0, 0, 0])),
        (
            "io_uring",
            attempt(libc::SYS_io_uring_setup, [1, nothing, 0, 0, 0, 0]),
        ),
        (
            "perf_event_open",
            attempt(
                libc::SYS_perf_event_open,
                [nothing, 0, usize::MAX, usize::MAX, 0, 0],
            ),
        ),
        (
            "userfaultfd",
            attempt(libc::SYS_userfaultfd, [1, 0, 0, 0, 0, 0]),
        ),
        (
            "init_module",
            attempt(libc::SYS_init_module, [nothing, 8, empty, 0, 0, 0]),
        ),
        (
            "finit_module",
            attempt(libc::SYS_finit_module, [0, empty, 0, 0, 0, 0]),
        ),
        (
            "kexec_load",
            attempt(libc::SYS_kexec_load, [0, 0, nothing, 0, 0, 0]),
        ),
        (
            "syslog",
            attempt(libc::SYS_syslog, [3, nothing, 8, 0, 0, 0]),
        ),
        (
            "fanotify",
            attempt(libc::SYS_fanotify_init, [0, 0, 0, 0, 0, 0]),
        ),
    ])
}

#[cfg(target_arch = "x86_64")]
fn other_abi(_: &Targets) -> Verdict {
    const SOCKET_I386: i64 = 359;
    let result: i64;
    // SAFETY: `int 0x80` makes a 32-bit system call with these three numbers and touches no memory;
    // rbx, which the compiler reserves, is restored. On a kernel without that interface it faults,
    // and the probe dies with it.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {family}",
            "int 0x80",
            "xchg rbx, {family}",
            family = inout(reg) i64::from(libc::AF_VSOCK) => _,
            inlateout("rax") SOCKET_I386 => result,
            in("rcx") i64::from(libc::SOCK_STREAM),
            in("rdx") 0_i64,
            lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _,
        );
    }
    let i386 = if result < 0 {
        Err(std::io::Error::from_raw_os_error(-result as i32))
    } else {
        Ok(result)
    };
    let x32 = attempt(
        0x4000_0000 | libc::SYS_socket,
        [
            libc::AF_VSOCK as usize,
            libc::SOCK_STREAM as usize,
            0,
            0,
            0,
            0,
        ],
    );
    all_refused([("int 0x80", i386), ("x32", x32)])
}

#[cfg(not(target_arch = "x86_64"))]
fn other_abi(_: &Targets) -> Verdict {
    Verdict::NotApplicable("this architecture's program cannot call by another interface".into())
}

fn clock_and_host(_: &Targets) -> Verdict {
    let time = [0_i64; 2];
    let name = c"escape";
    all_refused([
        (
            "clock_settime",
            attempt(
                libc::SYS_clock_settime,
                [0, (&raw const time) as usize, 0, 0, 0, 0],
            ),
        ),
        (
            "sethostname",
            attempt(
                libc::SYS_sethostname,
                [name.as_ptr() as usize, 6, 0, 0, 0, 0],
            ),
        ),
        (
            "swapoff",
            attempt(libc::SYS_swapoff, [name.as_ptr() as usize, 0, 0, 0, 0, 0]),
        ),
        (
            "acct",
            attempt(libc::SYS_acct, [name.as_ptr() as usize, 0, 0, 0, 0, 0]),
        ),
    ])
}

fn join_namespaces(_: &Targets) -> Verdict {
    use std::os::fd::AsRawFd;
    let mut attempts = Vec::new();
    for name in ["net", "mnt", "pid", "user", "ipc", "uts", "cgroup"] {
        for process in ["1", "self"] {
            let path = format!("/proc/{process}/ns/{name}");
            let joined = fs::File::open(&path).and_then(|file| {
                attempt(libc::SYS_setns, [file.as_raw_fd() as usize, 0, 0, 0, 0, 0])
            });
            attempts.push((path, joined));
        }
    }
    all_refused(attempts)
}

fn new_namespaces(_: &Targets) -> Verdict {
    let kinds = [
        ("network", libc::CLONE_NEWNET),
        ("mount", libc::CLONE_NEWNS),
        ("PID", libc::CLONE_NEWPID),
        ("IPC", libc::CLONE_NEWIPC),
        ("UTS", libc::CLONE_NEWUTS),
    ];
    all_refused(kinds.map(|(name, flag)| {
        (
            name,
            attempt(libc::SYS_unshare, [flag as usize, 0, 0, 0, 0, 0]),
        )
    }))
}

fn user_namespaces(targets: &Targets) -> Verdict {
    let all = (libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWNET) as usize;
    if let Err(error) = attempt(libc::SYS_unshare, [all, 0, 0, 0, 0, 0]) {
        return all_refused([("unshare", Err::<(), _>(error))]);
    }
    // Allowed by `--allow-userns`: it must open nothing.
    let home = std::env::var_os("HOME")
        .unwrap_or_default()
        .into_encoded_bytes();
    let points = [
        b"/run".to_vec(),
        b"/tmp".to_vec(),
        b"/dev".to_vec(),
        b"/proc".to_vec(),
        b"/etc".to_vec(),
        b"/opt".to_vec(),
        b"/usr".to_vec(),
        home,
    ];
    for point in points
        .into_iter()
        .filter_map(|point| std::ffi::CString::new(point).ok())
    {
        let detach = libc::MNT_DETACH as usize;
        if attempt(
            libc::SYS_umount2,
            [point.as_ptr() as usize, detach, 0, 0, 0, 0],
        )
        .is_ok()
        {
            return Verdict::Escaped(format!("umount {}", point.to_string_lossy()));
        }
    }
    for path in &targets.files {
        if fs::read(path)
            .is_ok_and(|content| String::from_utf8_lossy(&content).contains(&targets.nonce))
        {
            return Verdict::Escaped(path.display().to_string());
        }
    }
    if let Verdict::Escaped(what) = super::files::write_outside(targets) {
        return Verdict::Escaped(what);
    }
    for address in &targets.tcp {
        if std::net::TcpStream::connect_timeout(address, std::time::Duration::from_millis(200))
            .is_ok()
        {
            return Verdict::Escaped(address.to_string());
        }
    }
    Verdict::Held("allowed, but nothing was uncovered or reached".into())
}
