//! The seccomp filter: which system calls the command may not make.
//!
//! This is a deny list, and the sandbox holds without it. It removes socket families that are not
//! bound to the network namespace (vsock), interfaces that bypass such a rule (io_uring, the 32-bit
//! ABI), key rings, and kernel code that sandbox escapes usually exploit. System calls of other
//! ABIs return `ENOSYS`, as on a kernel without them.

use libc::sock_filter;

/// Assembles the filter for this machine's architecture.
///
/// With `allow_userns`, the needs of a nested sandbox stay allowed: netlink families, and
/// set-user-ID programs, which container images contain.
pub fn program(allow_userns: bool) -> Vec<sock_filter> {
    let mut code = vec![load(ARCHITECTURE_AT)];
    code.extend(unless_equal(ARCHITECTURE, refuse(libc::ENOSYS)));
    code.push(load(NUMBER_AT));
    #[cfg(target_arch = "x86_64")]
    code.extend([jump(BPF_JGE, X32_BIT, 0, 1), refuse(libc::ENOSYS)]);
    for number in ABSENT {
        code.extend(if_equal(number as u32, refuse(libc::ENOSYS)));
    }
    for number in FORBIDDEN {
        code.extend(if_equal(number as u32, refuse(libc::EPERM)));
    }
    block(&mut code, libc::SYS_socket as u32, socket(allow_userns));
    block(&mut code, libc::SYS_ioctl as u32, ioctl());
    if !allow_userns {
        set_id(&mut code);
    }
    code.push(allow());
    code
}

/// Refuses to make programs that run as this user, whoever starts them.
///
/// The set-group-ID bit is refused for new files only: git sets it on folders of a repository that
/// a group shares, and a filter cannot see whether `chmod` is for a folder. The mode of `openat2`
/// lies behind a pointer, so that call is refused as if the kernel did not know it.
fn set_id(code: &mut Vec<sock_filter>) {
    code.extend(if_equal(libc::SYS_openat2 as u32, refuse(libc::ENOSYS)));
    for (number, mode_at, bits) in TAKES_MODE {
        block(code, *number as u32, with_mode(*mode_at, *bits));
    }
    for (number, flags_at) in OPENS {
        let makes = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;
        let mut body = vec![load(argument_at(*flags_at)), jump(BPF_JSET, makes, 1, 0)];
        body.push(allow());
        body.extend(with_mode(flags_at + 1, SET_ID));
        block(code, *number as u32, body);
    }
}

/// Refuses these bits of a mode.
fn with_mode(mode_at: u32, bits: u32) -> Vec<sock_filter> {
    vec![
        load(argument_at(mode_at)),
        jump(BPF_JSET, bits, 0, 1),
        refuse(libc::EPERM),
        allow(),
    ]
}

/// Runs `body`, which must end in a return, for one system call.
fn block(code: &mut Vec<sock_filter>, number: u32, body: Vec<sock_filter>) {
    code.push(jump(BPF_JEQ, number, 0, body.len() as u8));
    code.extend(body);
}

fn socket(allow_userns: bool) -> Vec<sock_filter> {
    let mut code = vec![load(argument_at(0))];
    code.extend(if_equal(libc::AF_UNIX as u32, allow()));
    let internet = protocols(&INTERNET_PROTOCOLS);
    code.push(jump(BPF_JEQ, libc::AF_INET as u32, 1, 0));
    code.push(jump(
        BPF_JEQ,
        libc::AF_INET6 as u32,
        0,
        internet.len() as u8,
    ));
    code.extend(internet);
    let netlink = if allow_userns {
        vec![allow()]
    } else {
        protocols(&NETLINK_PROTOCOLS)
    };
    code.push(jump(
        BPF_JEQ,
        libc::AF_NETLINK as u32,
        0,
        netlink.len() as u8,
    ));
    code.extend(netlink);
    code.push(refuse(libc::EAFNOSUPPORT));
    code
}

fn protocols(allowed: &[i32]) -> Vec<sock_filter> {
    let mut code = vec![load(argument_at(2))];
    let allow_one = |protocol: &i32| if_equal(*protocol as u32, allow());
    code.extend(allowed.iter().flat_map(allow_one));
    code.push(refuse(libc::EPROTONOSUPPORT));
    code
}

/// Blocks typing into the terminal on the user's behalf. The kernel reads only the low half of the
/// request.
fn ioctl() -> Vec<sock_filter> {
    let mut code = vec![load(argument_at(1))];
    code.extend(if_equal(TIOCSTI, refuse(libc::EPERM)));
    code.extend(if_equal(TIOCLINUX, refuse(libc::EPERM)));
    code.push(allow());
    code
}

fn if_equal(value: u32, then: sock_filter) -> [sock_filter; 2] {
    [jump(BPF_JEQ, value, 0, 1), then]
}

fn unless_equal(value: u32, then: sock_filter) -> [sock_filter; 2] {
    [jump(BPF_JEQ, value, 1, 0), then]
}

fn load(offset: u32) -> sock_filter {
    jump(BPF_LOAD_WORD, offset, 0, 0)
}

fn jump(code: u16, value: u32, if_true: u8, if_false: u8) -> sock_filter {
    sock_filter {
        code,
        jt: if_true,
        jf: if_false,
        k: value,
    }
}

fn refuse(errno: i32) -> sock_filter {
    jump(BPF_RETURN, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0)
}

fn allow() -> sock_filter {
    jump(BPF_RETURN, libc::SECCOMP_RET_ALLOW, 0, 0)
}

/// Returns the offset of an argument's low half in `struct seccomp_data`, on a little-endian
/// machine.
fn argument_at(index: u32) -> u32 {
    16 + 8 * index
}

#[cfg(not(target_endian = "little"))]
compile_error!("the filter reads the low half of arguments as on little-endian machines");
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the launcher knows the system call ABI of x86_64 and aarch64");

const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
#[cfg(target_arch = "x86_64")]
const X32_BIT: u32 = 0x4000_0000;
const BPF_LOAD_WORD: u16 = 0x20;
const BPF_RETURN: u16 = 0x06;
const BPF_JEQ: u16 = 0x15;
#[cfg(target_arch = "x86_64")]
const BPF_JGE: u16 = 0x35;
const BPF_JSET: u16 = 0x45;
/// The bits that a new file may not have.
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;
/// Calls that change a file's mode or always make a file, each with the argument that is the mode,
/// and the bits that it may not have.
const TAKES_MODE: &[(i64, u32, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1, libc::S_ISUID),
    (libc::SYS_fchmod, 1, libc::S_ISUID),
    (libc::SYS_fchmodat, 2, libc::S_ISUID),
    (libc::SYS_fchmodat2, 2, libc::S_ISUID),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1, SET_ID),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1, SET_ID),
    (libc::SYS_mknodat, 2, SET_ID),
];
/// Calls that make a file if their flags say so, each with the argument of the flags. The mode
/// follows it.
const OPENS: &[(i64, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
    (libc::SYS_openat, 2),
];
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;
// 0 (the type's default), ICMP, TCP, UDP, ICMPv6, raw, MPTCP. Without this list, SCTP, DCCP,
// UDP-Lite and L2TP would load kernel modules.
const INTERNET_PROTOCOLS: [i32; 7] = [0, 1, 6, 17, 58, 255, 262];
// route, sock_diag, kobject_uevent, generic
const NETLINK_PROTOCOLS: [i32; 4] = [0, 4, 15, 16];
const ABSENT: [i64; 5] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_bpf,
];
const FORBIDDEN: [i64; 19] = [
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_pidfd_getfd,
    libc::SYS_perf_event_open,
    libc::SYS_open_by_handle_at,
    libc::SYS_setns,
    libc::SYS_quotactl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_reboot,
    libc::SYS_fanotify_init,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel would.
    fn verdict(number: i64, arguments: &[u64], architecture: u32) -> u32 {
        run(&program(false), number, arguments, architecture)
    }

    fn run(code: &[sock_filter], number: i64, arguments: &[u64], architecture: u32) -> u32 {
        let word = |offset: u32| match offset {
            NUMBER_AT => number as u32,
            ARCHITECTURE_AT => architecture,
            _ => arguments
                .get((offset as usize - 16) / 8)
                .map_or(0, |one| *one as u32),
        };
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let step = &code[at];
            at += 1;
            let taken = match step.code {
                BPF_LOAD_WORD => {
                    accumulator = word(step.k);
                    continue;
                }
                BPF_RETURN => return step.k,
                BPF_JEQ => accumulator == step.k,
                BPF_JSET => accumulator & step.k != 0,
                _ => accumulator >= step.k,
            };
            at += usize::from(if taken { step.jt } else { step.jf });
        }
    }

    fn native<const N: usize>(number: i64, arguments: [u64; N]) -> u32 {
        verdict(number, &arguments, ARCHITECTURE)
    }

    fn errno(errno: i32) -> u32 {
        libc::SECCOMP_RET_ERRNO | errno as u32
    }

    #[test]
    fn only_four_socket_families_exist() {
        for family in 0..64 {
            let allowed = [
                libc::AF_UNIX,
                libc::AF_INET,
                libc::AF_INET6,
                libc::AF_NETLINK,
            ]
            .contains(&family);
            let expected = if allowed {
                libc::SECCOMP_RET_ALLOW
            } else {
                errno(libc::EAFNOSUPPORT)
            };
            assert_eq!(
                native(libc::SYS_socket, [family as u64, 1, 0]),
                expected,
                "family {family}"
            );
        }
    }

    #[test]
    fn transport_protocols_that_load_modules_are_refused() {
        assert_eq!(
            native(libc::SYS_socket, [2, 1, 132]),
            errno(libc::EPROTONOSUPPORT)
        );
        assert_eq!(
            native(libc::SYS_socket, [10, 1, 262]),
            libc::SECCOMP_RET_ALLOW
        );
        assert_eq!(
            native(libc::SYS_socket, [16, 3, 12]),
            errno(libc::EPROTONOSUPPORT)
        );
        assert_eq!(
            native(libc::SYS_socket, [16, 3, 0]),
            libc::SECCOMP_RET_ALLOW
        );
    }

    #[test]
    fn the_high_half_of_a_request_hides_nothing() {
        assert_eq!(
            native(libc::SYS_ioctl, [0, 0xDEAD_0000_0000_5412, 0]),
            errno(libc::EPERM)
        );
        assert_eq!(
            native(libc::SYS_ioctl, [0, 0x5413, 0]),
            libc::SECCOMP_RET_ALLOW
        );
    }

    #[test]
    fn no_program_is_made_that_runs_as_this_user() {
        let file = u64::from(libc::S_IFREG);
        let (creates, temporary) = (libc::O_CREAT as u64, libc::O_TMPFILE as u64);
        let (folder, close) = (libc::O_DIRECTORY as u64, libc::O_CLOEXEC as u64);
        for (number, arguments) in [
            (libc::SYS_fchmod, [0, 0o4755, 0, 0]),
            (libc::SYS_fchmodat, [0, 0, 0o4755, 0]),
            (libc::SYS_fchmodat2, [0, 0, 0o6755, 0]),
            (libc::SYS_mknodat, [0, 0, file | 0o2755, 0]),
            (libc::SYS_openat, [0, 0, creates | close, 0o4700]),
            (libc::SYS_openat, [0, 0, temporary | close, 0o2700]),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_chmod, [0, 0o4755, 0, 0]),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_open, [0, creates, 0o4755, 0]),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_creat, [0, 0o4755, 0, 0]),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_mknod, [0, file | 0o4755, 0, 0]),
        ] {
            assert_eq!(native(number, arguments), errno(libc::EPERM), "{number}");
            let nested = run(&program(true), number, &arguments, ARCHITECTURE);
            assert_eq!(nested, libc::SECCOMP_RET_ALLOW, "{number}");
        }
        assert_eq!(native(libc::SYS_openat2, [0; 4]), errno(libc::ENOSYS));
        for (number, arguments) in [
            (libc::SYS_fchmod, [0, 0o1755, 0, 0]),
            (libc::SYS_fchmodat, [0, 0, 0o2775, 0]),
            (libc::SYS_mknodat, [0, 0, file | 0o644, 0]),
            (libc::SYS_openat, [0, 0, creates, 0o644]),
            // Without a new file, the register of the mode may have any value.
            (libc::SYS_openat, [0, 0, folder | close, 0o4755]),
        ] {
            assert_eq!(
                native(number, arguments),
                libc::SECCOMP_RET_ALLOW,
                "{number}"
            );
        }
    }

    #[test]
    fn another_abi_does_not_exist() {
        assert_eq!(
            verdict(libc::SYS_read, &[0; 3], 0x4000_0003),
            errno(libc::ENOSYS)
        );
        #[cfg(target_arch = "x86_64")]
        assert_eq!(
            native(libc::SYS_read | 0x4000_0000, [0; 3]),
            errno(libc::ENOSYS)
        );
    }

    #[test]
    fn what_is_forbidden_is_refused_and_the_rest_runs() {
        for number in FORBIDDEN {
            assert_eq!(native(number, [0; 3]), errno(libc::EPERM));
        }
        for number in ABSENT {
            assert_eq!(native(number, [0; 3]), errno(libc::ENOSYS));
        }
        for number in [
            libc::SYS_read,
            libc::SYS_clone3,
            libc::SYS_execve,
            libc::SYS_mount,
            libc::SYS_ptrace,
        ] {
            assert_eq!(native(number, [0; 3]), libc::SECCOMP_RET_ALLOW);
        }
    }
}
