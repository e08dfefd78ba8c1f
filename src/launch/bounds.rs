//! Bounds on the machine resources that a sandbox uses: in-memory files, and processes.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::MountFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::failure::{AtStep, Failure, Step};

/// The limits that the user chose; `None` for the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Bytes of all in-memory files together; by default, half of the machine's memory.
    pub memory_files: Option<u64>,
    /// Processes and threads at a time; [`PROCESSES`] by default.
    pub processes: Option<u64>,
}

impl Bounds {
    /// Returns the limit of all in-memory files together. One file system has this limit, and the
    /// writable places are parts of it.
    pub fn memory(&self) -> MemoryBound {
        let machine = rustix::system::sysinfo();
        let memory = machine.totalram.saturating_mul(machine.mem_unit.into());
        MemoryBound(self.memory_files.unwrap_or(memory / 2))
    }

    /// Limits the number of processes in the sandbox, and disables core files.
    ///
    /// The limit is set on this process, and all processes of the sandbox inherit it. The kernel
    /// counts the processes of this user in this user namespace. Before Linux 5.14 it also counts
    /// the user's processes outside. There, no default limit is set, because both sides would share
    /// it.
    ///
    /// # Errors
    /// Returns a [`Step::Bounds`] failure if a limit was requested and cannot be set.
    pub fn limit_processes(&self) -> Result<(), Failure> {
        // With a limit of one byte, the kernel neither writes a core nor pipes it to a program;
        // with a limit of zero it still pipes.
        limit(Resource::Core, 1, 1)?;
        let release = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        match (counts_by_namespace(&release), self.processes) {
            (true, wanted) => {
                let most = wanted.unwrap_or(PROCESSES);
                let usual = getrlimit(Resource::Nproc).current.unwrap_or(most);
                limit(Resource::Nproc, usual.min(most), most)
            }
            (false, None) => Ok(()),
            (false, Some(_)) => Err(Failure::new(
                Step::Bounds,
                format!("`processes` needs Linux 5.14, and this is {release}"),
            )),
        }
    }
}

/// Leaves half of the user's inotify limits to the programs outside.
///
/// The kernel counts inotify's instances and watches in each user namespace and in its ancestors,
/// so a command could use up the user's own. The limits here are those of this namespace. If the
/// kernel has no such limits, or does not let them be set, the command's share stays as it was.
pub fn share_inotify() {
    for (of_system, of_namespace) in INOTIFY {
        let most = fs::read_to_string(of_system).ok();
        let most = most.and_then(|text| text.trim().parse::<u64>().ok());
        if let Some(most) = most {
            let _ = fs::write(of_namespace, (most / 2).max(1).to_string());
        }
    }
}

/// The size limit of one in-memory file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBound(u64);

impl MemoryBound {
    /// For a few files that the command cannot write.
    pub const SMALL: Self = Self(1 << 20);
    /// For the gateway's own files, which the command can only read.
    pub const OWN_FILES: Self = Self(64 << 20);

    /// Mounts an in-memory file system of this size, with `nosuid` and `nodev`.
    ///
    /// # Errors
    /// Returns the error of `mount`.
    pub fn mount(self, at: &Path, mode: u32, flags: MountFlags) -> io::Result<()> {
        let flags = flags | MountFlags::NOSUID | MountFlags::NODEV;
        let options = self.options(mode);
        rustix::mount::mount("tmpfs", at, "tmpfs", flags, Some(&*options))?;
        Ok(())
    }

    fn options(self, mode: u32) -> CString {
        let bytes = self.0;
        // An empty file takes about 1 KiB of kernel memory, which no size limit counts.
        let files = (bytes / FILE).max(256);
        let text = format!("mode={mode:04o},size={bytes},nr_inodes={files}");
        CString::new(text).expect("digits and letters hold no zero byte")
    }
}

/// Sets a limit, as far as the hard limit allows.
fn limit(resource: Resource, current: u64, maximum: u64) -> Result<(), Failure> {
    let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Rlimit {
        current: Some(current.min(most)),
        maximum: Some(maximum.min(most)),
    };
    setrlimit(resource, limit).at(Step::Bounds, format!("{resource:?}"))
}

/// Whether a kernel counts a user's processes by user namespace.
fn counts_by_namespace(release: &str) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (major, minor) >= (5, 14)
}

/// The default limit of simultaneous processes and threads, the same as systemd's for a service.
pub const PROCESSES: u64 = 4096;
/// The limits of inotify for each user, and those of a user namespace.
const INOTIFY: [(&str, &str); 2] = [
    (
        "/proc/sys/fs/inotify/max_user_instances",
        "/proc/sys/user/max_inotify_instances",
    ),
    (
        "/proc/sys/fs/inotify/max_user_watches",
        "/proc/sys/user/max_inotify_watches",
    ),
];
const FILE: u64 = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_in_bytes_and_in_files() {
        let options = MemoryBound(16 << 30).options(0o700);
        assert_eq!(
            options.to_str(),
            Ok("mode=0700,size=17179869184,nr_inodes=2097152")
        );
    }

    #[test]
    fn by_default_files_have_half_of_the_memory() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let kib: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(Bounds::default().memory().0 >> 20, kib >> 11);
    }

    #[test]
    fn kernels_that_count_the_user_everywhere_are_known() {
        for (release, counts) in [
            ("6.18.44-fc", true),
            ("5.14.0-427.el9", true),
            ("5.13.19", false),
            ("5.4", false),
            ("x", false),
        ] {
            assert_eq!(counts_by_namespace(release), counts, "{release}");
        }
    }

    #[test]
    fn every_file_system_in_memory_is_mounted_here() {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                match entry.file_type().unwrap().is_dir() {
                    // The attack tests may try anything.
                    true if entry.file_name() == "escape" => {}
                    true => folders.push(entry.path()),
                    false => {
                        let text = std::fs::read_to_string(entry.path()).unwrap();
                        let is_here = entry.file_name() == "bounds.rs";
                        assert_eq!(text.contains("\"tmpfs\""), is_here, "{:?}", entry.path());
                    }
                }
            }
        }
    }
}
