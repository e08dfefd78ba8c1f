//! Probes of the kernel's own interfaces: privileges, namespaces, other system call ABIs.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use libc::{SYS_setresgid, SYS_setresuid, SYS_unshare};

use super::files::{canary_files, uncover, write_outside};
use super::network::tcp_host;
use super::probe::{
    Verdict, address, all_refused, call, calls_refused, error_name, not_applicable, paths_refused,
};
use super::targets::Targets;

pub fn capabilities(_: &Targets) -> Verdict {
    let Ok(status) = fs::read_to_string("/proc/self/status") else {
        return not_applicable("no /proc/self/status");
    };
    let field = |name: &str| {
        let mut values = status.lines().filter_map(|line| line.strip_prefix(name));
        values.find_map(|rest| Some(rest.strip_prefix(':')?.trim()))
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        if field(set) != Some("0000000000000000") {
            return Verdict::Escaped(format!("{set} is {}", field(set).unwrap_or("unknown")));
        }
    }
    match (field("NoNewPrivs"), field("Seccomp")) {
        (Some("1"), Some("2")) => Verdict::Held("none, no_new_privs, filtered".into()),
        _ => Verdict::Escaped("no filter, or new privileges can be had".into()),
    }
}

pub fn other_users(_: &Targets) -> Verdict {
    let groups = [0_u32];
    calls_refused(&[
        ("root", SYS_setresuid, &[0, 0, 0]),
        ("another user", SYS_setresuid, &[4242, 4242, 4242]),
        ("group root", SYS_setresgid, &[0, 0, 0]),
        ("groups", libc::SYS_setgroups, &[1, address(&groups)]),
    ])
}

pub fn interfaces(_: &Targets) -> Verdict {
    let mut zeros = [0_u64; 32];
    let nothing = (&raw mut zeros) as usize;
    let (empty, any) = (c"".as_ptr() as usize, usize::MAX);
    calls_refused(&[
        ("bpf", libc::SYS_bpf, &[0, nothing, 64]),
        ("io_uring", libc::SYS_io_uring_setup, &[1, nothing]),
        (
            "perf_event_open",
            libc::SYS_perf_event_open,
            &[nothing, 0, any, any],
        ),
        ("userfaultfd", libc::SYS_userfaultfd, &[1]),
        ("init_module", libc::SYS_init_module, &[nothing, 8, empty]),
        ("finit_module", libc::SYS_finit_module, &[0, empty]),
        ("kexec_load", libc::SYS_kexec_load, &[0, 0, nothing]),
        ("syslog", libc::SYS_syslog, &[3, nothing, 8]),
        ("fanotify", libc::SYS_fanotify_init, &[0, 0]),
    ])
}

#[cfg(target_arch = "x86_64")]
pub fn other_abi(_: &Targets) -> Verdict {
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
    let vsock = [libc::AF_VSOCK as usize, libc::SOCK_STREAM as usize, 0];
    let x32 = call(0x4000_0000 | libc::SYS_socket, &vsock);
    all_refused([("int 0x80", i386), ("x32", x32)])
}

#[cfg(not(target_arch = "x86_64"))]
pub fn other_abi(_: &Targets) -> Verdict {
    not_applicable("this architecture's program cannot call by another interface")
}

pub fn clock_and_host(_: &Targets) -> Verdict {
    let (time, name) = ([0_i64; 2], c"escape".as_ptr() as usize);
    calls_refused(&[
        (
            "clock_settime",
            libc::SYS_clock_settime,
            &[0, address(&time)],
        ),
        ("sethostname", libc::SYS_sethostname, &[name, 6]),
        ("swapoff", libc::SYS_swapoff, &[name]),
        ("acct", libc::SYS_acct, &[name]),
    ])
}

pub fn join_namespaces(_: &Targets) -> Verdict {
    let kinds = ["net", "mnt", "pid", "user", "ipc", "uts", "cgroup"].into_iter();
    let paths = kinds.flat_map(|kind| ["1", "self"].map(|who| format!("/proc/{who}/ns/{kind}")));
    paths_refused(paths, |path| {
        call(
            libc::SYS_setns,
            &[File::open(path)?.as_raw_fd() as usize, 0],
        )
    })
}

pub fn new_namespaces(_: &Targets) -> Verdict {
    calls_refused(&[
        ("network", SYS_unshare, &[libc::CLONE_NEWNET as usize]),
        ("mount", SYS_unshare, &[libc::CLONE_NEWNS as usize]),
        ("PID", SYS_unshare, &[libc::CLONE_NEWPID as usize]),
        ("IPC", SYS_unshare, &[libc::CLONE_NEWIPC as usize]),
        ("UTS", SYS_unshare, &[libc::CLONE_NEWUTS as usize]),
    ])
}

pub fn user_namespaces(targets: &Targets) -> Verdict {
    let all = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWNET;
    if let Err(error) = call(SYS_unshare, &[all as usize]) {
        return Verdict::Held(error_name(&error));
    }
    // Allowed by `--allow-userns`: it must open nothing.
    let tried = [
        uncover(),
        canary_files(targets),
        write_outside(targets),
        tcp_host(targets),
    ];
    let mut tried = tried.into_iter();
    tried
        .find(|verdict| matches!(verdict, Verdict::Escaped(_)))
        .unwrap_or_else(|| Verdict::Held("allowed, but nothing was uncovered or reached".into()))
}
