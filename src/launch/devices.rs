//! A minimal `/dev`: six devices, shared memory, and its own pseudo-terminals.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::bounds::MemoryBound;
use super::failure::{AtStep, Failure, Step};
use super::tree::{Tree, put_part};

/// The host's device nodes that are kept. They are held open, because a user namespace cannot
/// create any.
#[derive(Debug)]
pub struct Devices {
    nodes: Vec<Tree>,
    terminal: Option<Tree>,
}

impl Devices {
    /// Opens the nodes.
    ///
    /// # Errors
    /// A [`Step::Hide`] failure that names the device.
    pub fn take() -> Result<Self, Failure> {
        let mut nodes = Vec::new();
        for name in ["null", "zero", "full", "random", "urandom", "tty"] {
            let path = Path::new("/dev").join(name);
            nodes.push(Tree::take(&path).at(Step::Hide, path.display().to_string())?);
        }
        // Programs that look up their terminal's name find it under this one, because the host's
        // `/dev/pts` is gone.
        let terminal =
            terminal_path().and_then(|path| Tree::take_from(&path, Path::new("/dev/console")).ok());
        Ok(Self { nodes, terminal })
    }

    /// Builds `/dev` below a new root, with `shared` for its shared memory.
    ///
    /// # Errors
    /// A [`Step::Hide`] failure that names what could not be made.
    pub fn build(self, root: &Path, shared: &Path) -> Result<(), Failure> {
        let dev = root.join("dev");
        fs::create_dir(&dev).at(Step::Hide, "/dev")?;
        MemoryBound::SMALL
            .mount(&dev, 0o755, MountFlags::NOEXEC)
            .at(Step::Hide, "/dev")?;
        for node in self.nodes.iter().chain(&self.terminal) {
            node.put(root).at(Step::Hide, "devices")?;
        }
        for (link, target) in LINKS {
            symlink(target, dev.join(link)).at(Step::Hide, link)?;
        }
        let terminals = dev.join("pts");
        fs::create_dir(&terminals).at(Step::Hide, "/dev/pts")?;
        // Without a new instance, the command could read keystrokes from, and write to, the user's
        // other terminals.
        rustix::mount::mount(
            "devpts",
            &terminals,
            "devpts",
            MountFlags::NOSUID | MountFlags::NOEXEC,
            Some(c"newinstance,ptmxmode=0666,mode=0620"),
        )
        .at(Step::Hide, "/dev/pts")?;
        put_part(shared, &dev.join("shm")).at(Step::Hide, "/dev/shm")
    }
}

fn terminal_path() -> Option<PathBuf> {
    (0..3).find_map(|fd| {
        let path = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        let is_terminal = path.starts_with("/dev/pts")
            || path.starts_with("/dev/tty")
            || path == Path::new("/dev/console");
        is_terminal.then_some(path)
    })
}

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
