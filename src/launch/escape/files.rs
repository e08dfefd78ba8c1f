//! Probes of the file system: secrets, devices, mounts, and the kernel's own files.

use std::fs::{self, FileType, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::probe::{Probe, Verdict, all_refused, attempt};
use super::targets::{LATE, PLANTED, Targets};

pub const PROBES: &[Probe] = &[
    Probe {
        name: "canary-files",
        tries: "reads files that were planted among the user's secrets and temporary files",
        run: canary_files,
    },
    Probe {
        name: "hidden-paths",
        tries: "reads the user's credential stores",
        run: hidden_paths,
    },
    Probe {
        name: "write-outside",
        tries: "writes to a file and makes one, where everybody may, beside the project and in a folder such as /tmp",
        run: write_outside,
    },
    Probe {
        name: "late-sockets",
        tries: "connects to a socket that is made on the host after the start",
        run: late_sockets,
    },
    Probe {
        name: "unmount",
        tries: "unmounts, moves or remounts what covers the host's files",
        run: unmount,
    },
    Probe {
        name: "mount",
        tries: "mounts, binds, pivots and clones trees",
        run: mount,
    },
    Probe {
        name: "file-handles",
        tries: "opens files by handle, past every path",
        run: file_handles,
    },
    Probe {
        name: "devices",
        tries: "opens devices: disks, memory, tunnels, virtual machines",
        run: devices,
    },
    Probe {
        name: "make-devices",
        tries: "makes a device node",
        run: make_devices,
    },
    Probe {
        name: "kernel-settings",
        tries: "writes core_pattern, sysrq, uevent_helper and network settings",
        run: kernel_settings,
    },
    Probe {
        name: "control-groups",
        tries: "writes to control groups of the host",
        run: control_groups,
    },
    Probe {
        name: "git-hooks",
        tries: "writes a hook or a setting that git would run on the host",
        run: git_hooks,
    },
];

/// Calls `visit` for each entry below `root`, up to a depth and number that a probe has time for.
pub fn walk(root: &Path, visit: &mut dyn FnMut(&Path, FileType)) {
    let mut left = 20_000_usize;
    let mut stack = vec![(root.to_owned(), 0)];
    while let Some((directory, depth)) = stack.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            left = left.saturating_sub(1);
            if left == 0 {
                return;
            }
            if kind.is_dir() && depth < 5 {
                stack.push((entry.path(), depth + 1));
            }
            visit(&entry.path(), kind);
        }
    }
}

fn canary_files(targets: &Targets) -> Verdict {
    for path in &targets.files {
        let Ok(content) = fs::read(path) else {
            continue;
        };
        if content
            .windows(targets.nonce.len().max(1))
            .any(|window| window == targets.nonce.as_bytes())
        {
            return Verdict::Escaped(path.display().to_string());
        }
    }
    match targets.files.len() {
        0 => Verdict::NotApplicable("no file was planted".into()),
        count => Verdict::Held(format!("{count} files, none readable")),
    }
}

fn hidden_paths(targets: &Targets) -> Verdict {
    let readable = |path: &&PathBuf| {
        let file = fs::read(path).is_ok_and(|content| !content.is_empty());
        // The file made from the person's git settings contains only their name.
        let is_identity = path.ends_with(".gitconfig")
            && fs::read_to_string(path).is_ok_and(|text| {
                text.lines()
                    .all(|line| IDENTITY.iter().any(|start| line.starts_with(start)))
            });
        (file && !is_identity)
            || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
    };
    let read: Vec<String> = targets
        .hidden
        .iter()
        .filter(readable)
        .map(|path| path.display().to_string())
        .collect();
    match (read.len(), targets.hidden.len()) {
        (_, 0) => Verdict::NotApplicable("the host has none of them".into()),
        (0, count) => Verdict::Held(format!("{count} paths, all empty or absent")),
        (some, count) => Verdict::Escaped(format!("{some} of {count}: {}", read.join(", "))),
    }
}

/// Tries each planted place; the host's side sees whether anything got out.
pub fn write_outside(targets: &Targets) -> Verdict {
    let mut attempts = Vec::new();
    for folder in &targets.folders {
        let file = folder.join(PLANTED);
        let written = OpenOptions::new().append(true).open(&file);
        attempts.push((
            file.display().to_string(),
            written.and_then(|mut file| file.write_all(b"written from inside")),
        ));
        let new = folder.join("new");
        attempts.push((new.display().to_string(), fs::write(&new, "")));
        attempts.push((
            format!("a link in {}", folder.display()),
            std::os::unix::fs::symlink("/", folder.join("link")),
        ));
    }
    all_refused(attempts)
}

fn late_sockets(targets: &Targets) -> Verdict {
    let until = Instant::now() + PATIENCE;
    if targets.late_sockets.is_empty() {
        return Verdict::NotApplicable("none could be planted".into());
    }
    while Instant::now() < until {
        for path in &targets.late_sockets {
            if UnixStream::connect(path).is_ok() {
                return Verdict::Escaped(path.display().to_string());
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Verdict::Held("none came into reach".into())
}

fn unmount(_: &Targets) -> Verdict {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let mut points = [
        c"/run",
        c"/tmp",
        c"/dev",
        c"/dev/pts",
        c"/proc",
        c"/sys",
        c"/run/gateway",
        c"/etc/resolv.conf",
    ]
    .map(|path| path.to_owned())
    .to_vec();
    points.extend(std::ffi::CString::new(home.as_bytes()));
    let mut attempts: Vec<(String, io::Result<i64>)> = Vec::new();
    for point in &points {
        let (path, name) = (point.as_ptr() as usize, point.to_string_lossy());
        attempts.push((
            format!("umount {name}"),
            attempt(libc::SYS_umount2, [path, 0, 0, 0, 0, 0]),
        ));
        attempts.push((
            format!("umount -l {name}"),
            attempt(
                libc::SYS_umount2,
                [path, libc::MNT_DETACH as usize, 0, 0, 0, 0],
            ),
        ));
        let remount = (libc::MS_REMOUNT | libc::MS_BIND) as usize;
        attempts.push((
            format!("remount {name}"),
            attempt(libc::SYS_mount, [path, path, 0, remount, 0, 0]),
        ));
        let elsewhere = c"/usr".as_ptr() as usize;
        attempts.push((
            format!("move {name}"),
            attempt(
                libc::SYS_mount,
                [path, elsewhere, 0, libc::MS_MOVE as usize, 0, 0],
            ),
        ));
    }
    all_refused(attempts)
}

fn mount(_: &Targets) -> Verdict {
    let (root, to, kind) = (
        c"/".as_ptr() as usize,
        c"/usr".as_ptr() as usize,
        c"tmpfs".as_ptr() as usize,
    );
    let here = libc::AT_FDCWD as usize;
    all_refused([
        (
            "bind",
            attempt(libc::SYS_mount, [root, to, 0, libc::MS_BIND as usize, 0, 0]),
        ),
        (
            "recursive bind",
            attempt(
                libc::SYS_mount,
                [root, to, 0, (libc::MS_BIND | libc::MS_REC) as usize, 0, 0],
            ),
        ),
        ("tmpfs", attempt(libc::SYS_mount, [kind, to, kind, 0, 0, 0])),
        (
            "open_tree",
            attempt(libc::SYS_open_tree, [here, root, 1, 0, 0, 0]),
        ),
        ("fsopen", attempt(libc::SYS_fsopen, [kind, 0, 0, 0, 0, 0])),
        (
            "pivot_root",
            attempt(libc::SYS_pivot_root, [to, to, 0, 0, 0, 0]),
        ),
        ("chroot", attempt(libc::SYS_chroot, [to, 0, 0, 0, 0, 0])),
    ])
}

fn file_handles(_: &Targets) -> Verdict {
    // struct file_handle: 8 bytes of handle, type 1 (inode and generation): the root directory of
    // ext4
    let handle: [u32; 4] = [8, 1, 2, 0];
    let Ok(root) = fs::File::open("/") else {
        return Verdict::NotApplicable("no root".into());
    };
    use std::os::fd::AsRawFd;
    let arguments = [
        root.as_raw_fd() as usize,
        (&raw const handle) as usize,
        0,
        0,
        0,
        0,
    ];
    all_refused([(
        "open_by_handle_at",
        attempt(libc::SYS_open_by_handle_at, arguments),
    )])
}

fn devices(_: &Targets) -> Verdict {
    let mut attempts = Vec::new();
    for name in DEVICES {
        attempts.push(((*name).to_owned(), fs::File::open(name).map(drop)));
    }
    walk(Path::new("/dev"), &mut |path, kind| {
        let harmless = HARMLESS_DEVICES
            .iter()
            .any(|known| path == Path::new(known))
            || path.starts_with("/dev/pts");
        if (kind.is_block_device() || kind.is_char_device()) && !harmless {
            attempts.push((path.display().to_string(), fs::File::open(path).map(drop)));
        }
    });
    all_refused(attempts)
}

fn make_devices(_: &Targets) -> Verdict {
    let make = |path: &std::ffi::CStr, kind: u32, number: usize| {
        attempt(
            libc::SYS_mknodat,
            [
                libc::AT_FDCWD as usize,
                path.as_ptr() as usize,
                (kind | 0o600) as usize,
                number,
                0,
                0,
            ],
        )
    };
    all_refused([
        ("a disk", make(c"/tmp/escape-disk", libc::S_IFBLK, 0x800)),
        ("memory", make(c"/tmp/escape-memory", libc::S_IFCHR, 0x101)),
    ])
}

fn kernel_settings(_: &Targets) -> Verdict {
    all_refused(
        SETTINGS
            .iter()
            .map(|path| (*path, OpenOptions::new().write(true).open(path).map(drop))),
    )
}

fn control_groups(_: &Targets) -> Verdict {
    let mut attempts = vec![(
        "a new group".to_owned(),
        fs::create_dir("/sys/fs/cgroup/gateway-escape"),
    )];
    walk(Path::new("/sys/fs/cgroup"), &mut |path, _| {
        if attempts.len() < 200 && CONTROLS.iter().any(|name| path.ends_with(name)) {
            attempts.push((
                path.display().to_string(),
                OpenOptions::new().write(true).open(path).map(drop),
            ));
        }
    });
    all_refused(attempts)
}

fn git_hooks(_: &Targets) -> Verdict {
    if !Path::new(".git").is_dir() {
        return Verdict::NotApplicable("the working directory is no git repository".into());
    }
    let hook = Path::new(".git/hooks/gateway-escape");
    let written = fs::write(hook, "");
    let verdict = all_refused([
        ("a hook", written),
        (
            "the settings",
            OpenOptions::new()
                .append(true)
                .open(".git/config")
                .map(drop),
        ),
        ("another .git", fs::rename(".git", ".git-escape")),
    ]);
    let _ = fs::remove_file(hook);
    let _ = fs::rename(".git-escape", ".git");
    verdict
}

/// How long a probe waits for a late socket: longer than the host's side takes to create it.
const PATIENCE: Duration = Duration::from_millis(LATE.as_millis() as u64 * 3);
const IDENTITY: [&str; 3] = ["[user]", "\tname = ", "\temail = "];
const DEVICES: &[&str] = &[
    "/dev/mem",
    "/dev/kmem",
    "/dev/port",
    "/dev/kmsg",
    "/dev/sda",
    "/dev/vda",
    "/dev/nvme0n1",
    "/dev/kvm",
    "/dev/fuse",
    "/dev/net/tun",
    "/dev/vhost-vsock",
    "/dev/vsock",
    "/dev/uinput",
    "/dev/input/event0",
    "/dev/dri/card0",
    "/dev/loop-control",
    "/dev/mapper/control",
];
const HARMLESS_DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/console",
    "/dev/ptmx",
];
const SETTINGS: &[&str] = &[
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/sysrq-trigger",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/ipv4/conf/all/route_localnet",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/user/max_user_namespaces",
    "/sys/kernel/uevent_helper",
    "/sys/kernel/mm/ksm/run",
    "/sys/power/state",
];
const CONTROLS: &[&str] = &[
    "cgroup.procs",
    "cgroup.kill",
    "cgroup.freeze",
    "tasks",
    "release_agent",
    "notify_on_release",
    "memory.max",
];
