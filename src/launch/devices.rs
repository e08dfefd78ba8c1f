//! A minimal `/dev`: six devices, shared memory, and pseudo-terminals of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::bounds::{self, Room, Share};
use super::error::{At, Failure, Step};
use super::mounts::Tree;

/// The host's device nodes that stay, taken in hand (a user namespace cannot make any).
#[derive(Debug)]
pub struct Devices {
    nodes: Vec<Tree>,
    terminal: Option<Tree>,
}

impl Devices {
    /// Takes the nodes.
    ///
    /// # Errors
    /// A [`Step::Hide`] failure that names the device.
    pub fn take() -> Result<Self, Failure> {
        let mut nodes = Vec::new();
        for name in ["null", "zero", "full", "random", "urandom", "tty"] {
            let path = Path::new("/dev").join(name);
            nodes.push(Tree::take(&path).at(Step::Hide, path.display().to_string())?);
        }
        // Programs that ask for their terminal's name find it under this one, since the host's `/dev/pts` is gone.
        let terminal =
            terminal_path().and_then(|path| Tree::take_from(&path, Path::new("/dev/console")).ok());
        Ok(Self { nodes, terminal })
    }

    /// Builds the new `/dev` over the old.
    ///
    /// # Errors
    /// A [`Step::Hide`] failure that names what could not be made.
    pub fn build(self, room: Room) -> Result<(), Failure> {
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        rustix::mount::mount(
            "tmpfs",
            "/dev",
            "tmpfs",
            flags | MountFlags::NODEV,
            Some(&*bounds::small(0o755)),
        )
        .at(Step::Hide, "/dev")?;
        for node in self.nodes.iter().chain(&self.terminal) {
            node.put().at(Step::Hide, "devices")?;
        }
        for (link, target) in LINKS {
            symlink(target, link).at(Step::Hide, link)?;
        }
        fs::create_dir("/dev/pts").at(Step::Hide, "/dev/pts")?;
        // Without a new instance, the command could read the keys of, and write to, the user's other terminals.
        rustix::mount::mount(
            "devpts",
            "/dev/pts",
            "devpts",
            flags,
            Some(c"newinstance,ptmxmode=0666,mode=0620"),
        )
        .at(Step::Hide, "/dev/pts")?;
        fs::create_dir("/dev/shm").at(Step::Hide, "/dev/shm")?;
        rustix::mount::mount(
            "tmpfs",
            "/dev/shm",
            "tmpfs",
            flags | MountFlags::NODEV,
            Some(&*room.options(Share::SharedMemory, 0o1777)),
        )
        .at(Step::Hide, "/dev/shm")
    }
}

fn terminal_path() -> Option<PathBuf> {
    (0..3).find_map(|fd| {
        let path = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        let is_terminal =
            path.starts_with("/dev/pts") || path.starts_with("/dev/tty") || path == Path::new("/dev/console");
        is_terminal.then_some(path)
    })
}

const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];
