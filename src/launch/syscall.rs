//! System calls for which `rustix` has no safe form. This is every `unsafe` of the launcher.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::process::{Pid, WaitOptions};

/// Which process returned from [`clone_into_namespaces`] or [`fork`].
#[derive(Debug)]
pub enum ForkResult {
    /// The new process.
    Child,
    /// The old process, with the number and a handle of the new one.
    Parent {
        /// The child's number in the caller's PID namespace.
        pid: Pid,
        /// A handle that always refers to this process.
        pidfd: OwnedFd,
    },
}

/// Clones this process into new user, mount, PID, network, IPC, UTS and cgroup namespaces.
///
/// The caller must be single-threaded: the child has only the calling thread, and allocates.
///
/// # Errors
/// `EPERM` or `ENOSPC` if user namespaces are refused. `ENOSYS` before Linux 5.3 or under a
/// container's filter.
pub fn clone_into_namespaces() -> io::Result<ForkResult> {
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    clone(namespaces as u64)
}

/// Forks this process and returns a handle of the child.
///
/// # Errors
/// `EAGAIN` at a process limit.
pub fn fork() -> io::Result<ForkResult> {
    clone(0)
}

/// Forks this process by the C library, so that the copy may start threads. Returns the number of
/// the copy, and `None` there, where these variables are set.
///
/// # Errors
/// As [`fork`].
pub fn copy(variables: &[(&str, &str)]) -> io::Result<Option<Pid>> {
    // SAFETY: as for `clone`, no lock is held by a thread that is not copied.
    let copy = Pid::from_raw(check(unsafe { libc::fork() }.into())? as i32);
    for (name, value) in variables.iter().filter(|_| copy.is_none()) {
        // SAFETY: this is the only thread.
        unsafe { std::env::set_var(name, value) }
    }
    Ok(copy)
}

fn clone(flags: u64) -> io::Result<ForkResult> {
    let mut pidfd: RawFd = -1;
    // SAFETY: `clone_args` is plain data, for which all zeroes is valid.
    let mut arguments: libc::clone_args = unsafe { MaybeUninit::zeroed().assume_init() };
    arguments.flags = flags | libc::CLONE_PIDFD as u64;
    arguments.pidfd = ptr::from_mut(&mut pidfd) as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    let size = size_of::<libc::clone_args>();
    // SAFETY: without CLONE_VM the child runs on a copy of this memory, as after fork, and no stack
    // is passed. The process is single-threaded (checked by the launcher before), so no lock is
    // held by a thread that is not copied.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size) })?;
    if pid == 0 {
        return Ok(ForkResult::Child);
    }
    // SAFETY: the kernel has just written a new descriptor there, which nothing else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let pid = Pid::from_raw(pid as i32).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    Ok(ForkResult::Parent { pid, pidfd })
}

/// Ends this process at once, running no destructor and flushing nothing.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no precondition.
    unsafe { libc::_exit(code) }
}

/// Takes over a descriptor that a previous program image left open under a known number.
///
/// # Errors
/// `EBADF` if there is none.
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD and F_SETFD touch no memory.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }.into())?;
    // SAFETY: it is open, as just shown; the caller passes each number once, and nothing else in
    // this program image was told of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Duplicates `fd` to exactly `number`, close-on-exec, replacing an open file there.
///
/// # Errors
/// Returns the error of `dup3`.
pub fn place(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    if fd.as_raw_fd() == number {
        return Ok(());
    }
    // SAFETY: `dup3` touches no memory. What was open at `number` belongs to a Rust value of the
    // process image that was cloned; the caller is past the point where any of those is used or
    // dropped.
    done(unsafe { libc::dup3(fd.as_raw_fd(), number, libc::O_CLOEXEC) }.into())
}

/// Borrows a descriptor by its number.
pub fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: called with numbers that the sandbox's first process has placed for its whole life.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Closes every descriptor from `first` on; with `CLOSE_RANGE_CLOEXEC`, only at the next exec.
///
/// # Errors
/// `ENOSYS` before Linux 5.9; `EINVAL` for the flag before 5.11.
pub fn close_range(first: u32, flags: u32) -> io::Result<()> {
    // SAFETY: as for `place`: no Rust value that owns one of these is used or dropped afterwards.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) })
}

/// Sets an integer socket option.
///
/// # Errors
/// Returns the error of `setsockopt`.
pub fn set_option(socket: impl AsFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the pointer is to a live `i32`, and the length is its size.
    let result = unsafe {
        libc::setsockopt(
            fd,
            level,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    done(result.into())
}

/// Returns the number of the socket's network namespace (`SO_NETNS_COOKIE`).
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.14.
pub fn network_cookie(socket: impl AsFd) -> io::Result<u64> {
    option_of(socket, libc::SOL_SOCKET, SO_NETNS_COOKIE, 0)
}

/// Reads a socket option that is a number, or the first field of one.
fn option_of<T: Into<u64>>(
    socket: impl AsFd,
    level: i32,
    option: i32,
    mut value: T,
) -> io::Result<T> {
    let fd = socket.as_fd().as_raw_fd();
    let (at, mut size) = ((&raw mut value).cast(), size_of::<T>() as u32);
    // SAFETY: the pointers are to a live number, for which any bytes are valid, and to its size.
    done(unsafe { libc::getsockopt(fd, level, option, at, &raw mut size) }.into())?;
    Ok(value)
}

/// Joins a new, empty session key ring.
///
/// # Errors
/// `ENOSYS` or `EPERM` if the kernel or a container's filter provides no key rings.
pub fn join_new_keyring() -> io::Result<()> {
    // SAFETY: a null name means an anonymous ring; no memory is passed.
    done(unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            KEYCTL_JOIN_SESSION_KEYRING,
            ptr::null::<u8>(),
        )
    })
}

/// Makes the mount at `path` read-only, but not the mounts in it.
///
/// # Errors
/// `ENOSYS` before Linux 5.12.
pub fn make_read_only(path: &CStr) -> io::Result<()> {
    set_attributes(libc::AT_FDCWD, path, 0, libc::MOUNT_ATTR_RDONLY)
}

/// Sets `MOUNT_ATTR_*` on a whole tree that `open_tree` returned.
///
/// # Errors
/// `ENOSYS` before Linux 5.12.
pub fn restrict_tree(tree: &OwnedFd, attributes: u64) -> io::Result<()> {
    let flags = libc::AT_RECURSIVE | libc::AT_EMPTY_PATH;
    set_attributes(tree.as_raw_fd(), c"", flags, attributes)
}

fn set_attributes(at: RawFd, path: &CStr, flags: i32, attributes: u64) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: attributes,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let size = size_of::<libc::mount_attr>();
    // SAFETY: the path is terminated, the attributes live across the call, and the size is theirs.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size,
        )
    })
}

/// Removes a capability, by number, from the bounding set.
///
/// # Errors
/// `EINVAL` for a number that the kernel does not know.
pub fn drop_bounding(capability: i32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    done(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }.into())
}

/// Installs a seccomp filter on this thread; it needs `no_new_privs` or `CAP_SYS_ADMIN`.
///
/// # Errors
/// Returns the error of `seccomp`.
pub fn install_filter(filter: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program points to `filter`, which lives across the call, and the length is its
    // own.
    done(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    })
}

/// The signals that are for the command when they arrive in its place.
pub const FORWARDED: [i32; 6] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// A set of signals, as the kernel's mask.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// Makes a set of these signals.
    pub fn of(signals: &[i32]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the whole set.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in signals {
            // SAFETY: the set is initialised; an invalid number is refused without effect.
            unsafe { libc::sigaddset(&raw mut set, *signal) };
        }
        Self(set)
    }

    /// Blocks these signals. Returns the previous mask, and a descriptor from which they are read.
    ///
    /// # Errors
    /// `EMFILE` and similar.
    pub fn block(&self) -> io::Result<(Self, OwnedFd)> {
        let (mut old, own) = (Self::of(&[]), &raw const self.0);
        // SAFETY: both sets are initialised and live across the call.
        done(unsafe { libc::sigprocmask(libc::SIG_BLOCK, own, &raw mut old.0) }.into())?;
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set is initialised and lives across the call.
        let fd = check(unsafe { libc::signalfd(-1, own, flags) }.into())?;
        // SAFETY: the kernel has just returned this descriptor, which nothing else owns.
        Ok((old, unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    /// Makes this the mask.
    pub fn restore(&self) {
        // SAFETY: the set is initialised and lives across the call; a null old set is allowed.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// One signal read from a [`SignalSet::block`].
#[derive(Clone, Copy, Debug)]
pub struct ReceivedSignal {
    /// Its number.
    pub signal: i32,
    /// Whether the kernel itself sent it: a key at the terminal, sent to the whole foreground
    /// group.
    pub from_kernel: bool,
}

/// Reads one pending signal; `None` if there is none.
pub fn next_signal(descriptor: &OwnedFd) -> Option<ReceivedSignal> {
    let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
    let bytes = rustix::io::read(descriptor, &mut info[..]).ok()?;
    // struct signalfd_siginfo begins: u32 signo, i32 errno, i32 code
    let signal = i32::from_ne_bytes(*info[..bytes].first_chunk()?);
    let code = i32::from_ne_bytes(*info[8..bytes].first_chunk()?);
    Some(ReceivedSignal {
        signal,
        from_kernel: code == libc::SI_KERNEL,
    })
}

/// Returns how many bytes a TCP socket was given that its peer has not acknowledged, and may still
/// get. The end of the stream counts as one. After a reset, nothing is sent any more.
///
/// # Errors
/// `EINVAL` if the socket listens.
pub fn unsent(socket: impl AsFd) -> io::Result<u32> {
    if is_closed(&socket)? {
        return Ok(0);
    }
    let mut count = 0_i32;
    // SAFETY: the request, which sockets know as SIOCOUTQ, writes one `i32`, which lives across the
    // call.
    let asked = unsafe {
        libc::ioctl(
            socket.as_fd().as_raw_fd(),
            libc::TIOCOUTQ as _,
            &raw mut count,
        )
    };
    check(asked.into())?;
    Ok(count.unsigned_abs())
}

/// Whether a TCP socket has no connection any more. Its unsent bytes still count as unsent.
fn is_closed(socket: impl AsFd) -> io::Result<bool> {
    // `tcp_info` begins with the state.
    Ok(option_of(socket, libc::IPPROTO_TCP, libc::TCP_INFO, 0_u8)? == TCP_CLOSE)
}

/// The state of a connection that was reset or has ended (`TCP_CLOSE` of the kernel's list).
const TCP_CLOSE: u8 = 7;

/// Opens the other side of a terminal, and lets it be used.
///
/// # Errors
/// `ENOTTY` if this is not the master's side; `EMFILE`.
pub fn terminal_of(master: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let (unlocked, flags) = (0_i32, libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
    // SAFETY: the first request reads one `i32`, which lives across the call; the second has flags
    // for its argument.
    let slave = unsafe {
        match libc::ioctl(
            master.as_raw_fd(),
            libc::TIOCSPTLCK as _,
            &raw const unlocked,
        ) {
            0 => libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER as _, flags),
            failed => failed,
        }
    };
    let error = |error: io::Error| {
        rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
    };
    check(slave.into()).map_err(error)?;
    // SAFETY: the kernel has just returned this descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(slave) })
}

/// Restores a signal's default action.
pub fn default_action(signal: i32) {
    // SAFETY: SIG_DFL installs no code.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Sends a signal to this very process.
pub fn raise(signal: i32) {
    // SAFETY: no memory is passed. By process number: the C library's `raise` trusts a cached
    // thread number.
    unsafe { libc::kill(libc::getpid(), signal) };
}

/// Returns this process's group; `None` if that lies in an outer PID namespace (`unshare --pid`).
/// `rustix` assumes that this cannot be.
pub fn process_group() -> Option<Pid> {
    // SAFETY: no memory is passed.
    Pid::from_raw(unsafe { libc::getpgrp() })
}

/// Sends a signal, by number, through a process handle.
///
/// # Errors
/// `ESRCH` if the process has ended.
pub fn signal_through(pidfd: &OwnedFd, signal: i32) -> io::Result<()> {
    // SAFETY: a null info asks for the default one; no memory is passed.
    done(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            ptr::null::<libc::siginfo_t>(),
            0_u32,
        )
    })
}

/// Replaces this program image by the file at `path`; returns only if that fails.
pub fn execute(path: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both arrays hold terminated strings and end with a null; all live across the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Replaces this program image by an open file; returns only if that fails.
pub fn execute_open(
    file: BorrowedFd<'_>,
    arguments: &[CString],
    environment: &[CString],
) -> io::Error {
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: the empty path is terminated, both arrays hold terminated strings and end with a
    // null.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// Returns a child that has ended or stopped, its number and its raw status; `None` if none has.
///
/// # Errors
/// `ECHILD` if there is none.
pub fn reap() -> rustix::io::Result<Option<(i32, i32)>> {
    let any = || rustix::process::wait(WaitOptions::UNTRACED | WaitOptions::NOHANG);
    let reaped = rustix::io::retry_on_intr(any)?;
    Ok(reaped.map(|(pid, status)| (pid.as_raw_nonzero().get(), status.as_raw())))
}

/// Returns the raw status of a child that has ended; `None` if it still runs, or is not a child.
/// Waits for its end unless `how` says otherwise.
pub fn status_of(child: Pid, how: WaitOptions) -> Option<i32> {
    let waited = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), how));
    waited.ok()?.map(|(_, status)| status.as_raw())
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain([ptr::null()])
        .collect()
}

fn done(result: i64) -> io::Result<()> {
    check(result).map(drop)
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

const SO_NETNS_COOKIE: i32 = 71;
const KEYCTL_JOIN_SESSION_KEYRING: i32 = 1;
