//! Probes of the file system: secrets, devices, mounts, and the kernel's own files.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use libc::{AT_FDCWD, MS_BIND, MS_MOVE, MS_REC, MS_REMOUNT, SYS_mknodat, SYS_mount, SYS_umount2};

use super::probe::{
    Verdict, address, all_refused, call, calls_refused, contains, found, not_applicable,
    open_for_writing, paths_refused, walk, words,
};
use super::targets::{LATE, PLANTED, Targets};

pub fn canary_files(targets: &Targets) -> Verdict {
    paths_refused(&targets.files, |path| contains(path, &targets.nonce))
}

pub fn hidden_paths(targets: &Targets) -> Verdict {
    paths_refused(&targets.hidden, |path| {
        if fs::metadata(path)?.is_dir() {
            return found(fs::read_dir(path)?.next().is_some());
        }
        let content = fs::read(path)?;
        // The file made from the person's git settings contains only their name.
        let is_of_identity = |line: &[u8]| IDENTITY.iter().any(|start| line.starts_with(start));
        let mut lines = content
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let is_gitconfig = path.ends_with(".gitconfig");
        found(lines.any(|line| !is_gitconfig || !is_of_identity(line)))
    })
}

/// Tries each planted place; the host's side sees whether anything got out.
pub fn write_outside(targets: &Targets) -> Verdict {
    let mut attempts = Vec::new();
    for folder in &targets.folders {
        let (file, new) = (folder.join(PLANTED), folder.join("new"));
        let written =
            open_for_writing(&file).and_then(|mut file| file.write_all(b"written from inside"));
        let link = symlink("/", folder.join("link"));
        attempts.push((file.display().to_string(), written));
        attempts.push((new.display().to_string(), fs::write(&new, "")));
        attempts.push((format!("a link in {}", folder.display()), link));
    }
    all_refused(attempts)
}

pub fn late_sockets(targets: &Targets) -> Verdict {
    // Longer than the host's side takes to create them.
    let until = Instant::now() + LATE * 3;
    loop {
        let verdict = paths_refused(&targets.late_sockets, |path| UnixStream::connect(path));
        if !matches!(verdict, Verdict::Held(_)) || Instant::now() > until {
            return verdict;
        }
        std::thread::sleep(LATE / 14);
    }
}

pub fn unmount(_: &Targets) -> Verdict {
    let usr = c"/usr".as_ptr() as usize;
    let attempts = covers().flat_map(|point| {
        let at = point.as_ptr() as usize;
        let calls: [(&str, i64, &[usize]); 4] = [
            ("unmount", SYS_umount2, &[at, 0]),
            ("detach", SYS_umount2, &[at, libc::MNT_DETACH as usize]),
            (
                "remount",
                SYS_mount,
                &[at, at, 0, (MS_REMOUNT | MS_BIND) as usize, 0],
            ),
            ("move", SYS_mount, &[at, usr, 0, MS_MOVE as usize, 0]),
        ];
        calls.map(|(how, number, arguments)| {
            let what = format!("{how} {}", point.to_string_lossy());
            (what, call(number, arguments))
        })
    });
    all_refused(attempts)
}

/// Detaches the mounts that cover the host's files.
pub fn uncover() -> Verdict {
    let attempts = covers().map(|point| {
        let arguments = [point.as_ptr() as usize, libc::MNT_DETACH as usize];
        let what = format!("umount {}", point.to_string_lossy());
        (what, call(SYS_umount2, &arguments))
    });
    all_refused(attempts)
}

/// The mount points that may cover the host's files.
fn covers() -> impl Iterator<Item = CString> {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let points = words(COVERS).map(|path| path.as_bytes().to_vec());
    let points = points.chain([home.into_vec()]);
    points.filter_map(|point| CString::new(point).ok())
}

pub fn mount(_: &Targets) -> Verdict {
    let [root, to, kind] = [c"/", c"/usr", c"tmpfs"].map(|text| text.as_ptr() as usize);
    calls_refused(&[
        ("bind", SYS_mount, &[root, to, 0, MS_BIND as usize, 0]),
        (
            "recursive bind",
            SYS_mount,
            &[root, to, 0, (MS_BIND | MS_REC) as usize, 0],
        ),
        ("tmpfs", SYS_mount, &[kind, to, kind, 0, 0]),
        (
            "open_tree",
            libc::SYS_open_tree,
            &[AT_FDCWD as usize, root, 1],
        ),
        ("fsopen", libc::SYS_fsopen, &[kind, 0]),
        ("pivot_root", libc::SYS_pivot_root, &[to, to]),
        ("chroot", libc::SYS_chroot, &[to]),
    ])
}

pub fn file_handles(_: &Targets) -> Verdict {
    // struct file_handle: 8 bytes of handle, type 1 (inode and generation): the root directory of
    // ext4
    let handle: [u32; 4] = [8, 1, 2, 0];
    let Ok(root) = File::open("/") else {
        return not_applicable("no root");
    };
    let arguments = [root.as_raw_fd() as usize, address(&handle), 0];
    calls_refused(&[("open_by_handle_at", libc::SYS_open_by_handle_at, &arguments)])
}

pub fn devices(_: &Targets) -> Verdict {
    let mut paths: Vec<PathBuf> = words(DEVICES).map(PathBuf::from).collect();
    walk(Path::new("/dev"), &mut |path, kind| {
        let is_harmless = words(HARMLESS_DEVICES).any(|known| path.starts_with(known));
        if (kind.is_block_device() || kind.is_char_device()) && !is_harmless {
            paths.push(path.to_owned());
        }
    });
    paths_refused(paths, |path| File::open(path))
}

pub fn make_devices(_: &Targets) -> Verdict {
    let (here, disk) = (AT_FDCWD as usize, c"/tmp/escape-disk".as_ptr() as usize);
    let memory = c"/tmp/escape-memory".as_ptr() as usize;
    let [block, character] = [libc::S_IFBLK, libc::S_IFCHR].map(|kind| (kind | 0o600) as usize);
    calls_refused(&[
        ("a disk", SYS_mknodat, &[here, disk, block, 0x800]),
        ("memory", SYS_mknodat, &[here, memory, character, 0x101]),
    ])
}

pub fn kernel_settings(_: &Targets) -> Verdict {
    paths_refused(words(SETTINGS), open_for_writing)
}

pub fn control_groups(_: &Targets) -> Verdict {
    let group = Path::new("/sys/fs/cgroup/gateway-escape");
    let mut paths = vec![group.to_owned()];
    walk(Path::new("/sys/fs/cgroup"), &mut |path, _| {
        if paths.len() < 200 && words(CONTROLS).any(|name| path.ends_with(name)) {
            paths.push(path.to_owned());
        }
    });
    paths_refused(paths, |path| {
        if path == group {
            fs::create_dir(path)
        } else {
            open_for_writing(path).map(drop)
        }
    })
}

const IDENTITY: [&[u8]; 3] = [b"[user]", b"\tname = ", b"\temail = "];
const COVERS: &str = "
    /run /tmp /dev /dev/pts /proc /sys /run/gateway /etc/resolv.conf /etc /opt /usr
";
const DEVICES: &str = "
    /dev/mem /dev/kmem /dev/port /dev/kmsg /dev/sda /dev/vda /dev/nvme0n1 /dev/kvm /dev/fuse
    /dev/net/tun /dev/vhost-vsock /dev/vsock /dev/uinput /dev/input/event0 /dev/dri/card0
    /dev/loop-control /dev/mapper/control
";
const HARMLESS_DEVICES: &str = "
    /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/console /dev/ptmx /dev/pts
";
const SETTINGS: &str = "
    /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/kernel/hostname
    /proc/sys/fs/binfmt_misc/register /proc/sysrq-trigger /proc/sys/net/ipv4/ip_forward
    /proc/sys/net/ipv4/conf/all/route_localnet /proc/sys/vm/overcommit_memory
    /proc/sys/user/max_user_namespaces /sys/kernel/uevent_helper /sys/kernel/mm/ksm/run
    /sys/power/state
";
const CONTROLS: &str = "
    cgroup.procs cgroup.kill cgroup.freeze tasks release_agent notify_on_release memory.max
";
