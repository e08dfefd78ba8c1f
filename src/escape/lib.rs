//! A published list of escapes, which the program itself tries from inside the sandbox.
//!
//! [`PROBES`] is the list, and says what each function tries. Each probe attempts something that
//! would be a way out and reports whether it was. Some need a target on the host. The host's side
//! of `gateway doctor --escape` creates it with [`Fixtures::plant`], and passes it in the variable
//! [`TARGETS_VARIABLE`]. A probe without its target counts as not applicable, never as held.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![expect(
    unsafe_code,
    reason = "the probes make system calls that have no safe form"
)]

use std::io::{self, Write};

use serde::Serialize;

mod files;
mod fixtures;
mod git;
mod kernel;
mod network;
mod probe;
mod processes;
mod sockets;
mod stores;
mod targets;

pub use fixtures::Fixtures;
pub use probe::Verdict;
pub use stores::stores;
pub use targets::{OpenedPorts, TARGETS_VARIABLE, Targets};

/// The first argument that tells `main` to act as the prober.
pub const SUBCOMMAND: &str = "__escape";

/// One way out: its stable name, what it tries, and how.
pub type Probe = (&'static str, &'static str, fn(&Targets) -> Verdict);

/// Every probe, in the order in which they run.
#[rustfmt::skip]
pub const PROBES: &[Probe] = &[
    ("interfaces", "finds a network interface besides loopback", network::interfaces),
    ("tcp-anywhere", "connects to addresses of the world by TCP, past the gateway", network::tcp_anywhere),
    ("mptcp", "connects by Multipath TCP, past the gateway", network::mptcp),
    ("tcp-host", "reaches a server on the host's addresses", network::tcp_host),
    ("udp-anywhere", "sends UDP to QUIC, NTP, mDNS, STUN and other ports", network::udp_anywhere),
    ("udp-host", "sends a datagram to a socket on the host", network::udp_host),
    ("host-port", "reaches more of the host than the one port that was opened", network::host_port),
    ("publish", "reaches the host through a port that is published there", network::publish),
    ("icmp", "opens ping sockets, IPv4 and IPv6", sockets::icmp),
    ("raw-sockets", "opens raw and packet sockets", sockets::raw_sockets),
    ("transports", "opens SCTP, DCCP, UDP-Lite and L2TP sockets", sockets::transports),
    ("socket-families", "opens sockets of every other family: vsock, AF_ALG, XDP, CAN and so on", sockets::families),
    ("socket-pair-families", "opens socket pairs of other families", sockets::pair_families),
    ("socket-options", "marks packets, binds to devices, becomes transparent", sockets::options),
    ("routes", "takes loopback down by rtnetlink", sockets::routes),
    ("nftables", "opens the netfilter socket by which the capture rules are changed", sockets::nftables),
    ("abstract-sockets", "connects to an abstract Unix socket of the host", sockets::abstract_sockets),
    ("path-sockets", "connects to agents, buses and daemons by their socket files", sockets::path_sockets),
    ("host-processes", "sees a process of the host in /proc", processes::host_processes),
    ("host-signals", "sends signals to processes of the host", processes::host_signals),
    ("first-process", "reads the environment, memory, files and root of the sandbox's first process", processes::first_process),
    ("ptrace", "attaches to the first process, and reads its memory", processes::ptrace),
    ("pidfd-getfd", "takes files out of the first process", processes::pidfd_getfd),
    ("canary-in-memory", "finds the canary in the environment of any process", processes::canary_in_environments),
    ("key-rings", "reads the user's session and user key rings", processes::key_rings),
    ("terminal-input", "types into a terminal on behalf of the person (TIOCSTI)", processes::terminal_input),
    ("other-terminals", "writes to another terminal of the same user", processes::other_terminals),
    ("inherited-files", "finds an open file that the launcher left", processes::inherited_files),
    ("variables", "finds the user's secrets in its own variables, by their customary names", processes::variables),
    ("proxy-variables", "finds a proxy in the environment", processes::proxy_variables),
    ("standard-files", "opens the files that are its standard streams anew", processes::standard_files),
    ("process-group", "reaches the user's processes by the number 0 of its process group", processes::process_group),
    ("bounds", "finds room for more files in memory than the machine has, or no bound on processes", processes::bounds),
    ("canary-files", "reads files that were planted among the user's secrets and temporary files", files::canary_files),
    ("hidden-paths", "reads the user's credential stores", files::hidden_paths),
    ("write-outside", "writes to a file and makes one, where everybody may, beside the project and in a folder such as /tmp", files::write_outside),
    ("late-sockets", "connects to a socket that is made on the host after the start", files::late_sockets),
    ("unmount", "unmounts, moves or remounts what covers the host's files", files::unmount),
    ("mount", "mounts, binds, pivots and clones trees", files::mount),
    ("file-handles", "opens files by handle, past every path", files::file_handles),
    ("devices", "opens devices: disks, memory, tunnels, virtual machines", files::devices),
    ("make-devices", "makes a device node", files::make_devices),
    ("kernel-settings", "writes core_pattern, sysrq, uevent_helper and network settings", files::kernel_settings),
    ("control-groups", "writes to control groups of the host", files::control_groups),
    ("git-hooks", "writes a hook or a setting that git would run on the host", git::project),
    ("git-settings", "adds to the settings of a git repository, or replaces them", git::settings),
    ("git-absent-hooks", "puts hooks where a git repository has none", git::absent_hooks),
    ("git-commondir", "leads a git repository to other settings by `commondir`", git::commondir),
    ("git-worktree-settings", "writes `config.worktree` or `commondir` of a repository's worktree", git::worktree_settings),
    ("git-file", "replaces the file `.git` of a worktree or submodule", git::file),
    ("git-submodule", "adds to the settings of a submodule", git::submodule),
    ("git-nested", "moves a nested git repository away and makes another in its place", git::nested),
    ("git-new", "makes a git repository where there was none", git::new),
    ("git-new-bare", "makes a folder that git takes for a bare repository", git::new_bare),
    ("capabilities", "finds a capability, or the way to one", kernel::capabilities),
    ("other-users", "becomes root or another user, or takes a group", kernel::other_users),
    ("kernel-interfaces", "uses bpf, io_uring, perf, userfaultfd, modules and kexec", kernel::interfaces),
    ("32-bit-calls", "makes system calls by the 32-bit and x32 interfaces, past the filter", kernel::other_abi),
    ("clock-and-host", "sets the clock, the host name, the swap", kernel::clock_and_host),
    ("join-namespaces", "joins the namespaces of another process", kernel::join_namespaces),
    ("new-namespaces", "makes namespaces without a user namespace", kernel::new_namespaces),
    // Last: if it succeeds, this process is another one afterwards.
    ("user-namespaces", "makes a user namespace, and uncovers or sends from inside it", kernel::user_namespaces),
];

/// Runs every probe, writes one line for each, as text or as JSON, and returns whether all held.
///
/// Must be called by a process inside the sandbox, as the command or below it, with one thread. A
/// probe whose line cannot be written still counts.
pub fn run(out: &mut dyn Write, json: bool) -> bool {
    let Ok(targets) = Targets::told() else {
        let _ = writeln!(out, "{TARGETS_VARIABLE} is not what the host's side writes");
        return false;
    };
    let mut all_held = true;
    for (name, tries, run) in PROBES {
        let verdict = run(&targets);
        all_held &= !matches!(verdict, Verdict::Escaped(_));
        let _ = print(out, json, name, tries, &verdict);
    }
    all_held
}

fn print(
    out: &mut dyn Write,
    json: bool,
    name: &str,
    tries: &str,
    verdict: &Verdict,
) -> io::Result<()> {
    if json {
        #[derive(Serialize)]
        struct Line<'a> {
            name: &'a str,
            tries: &'a str,
            #[serde(flatten)]
            verdict: &'a Verdict,
        }
        let line = Line {
            name,
            tries,
            verdict,
        };
        serde_json::to_writer(&mut *out, &line)?;
        return writeln!(out);
    }
    let (word, detail) = match verdict {
        Verdict::Held(detail) => ("held", detail),
        Verdict::Escaped(detail) => ("ESCAPED", detail),
        Verdict::NotApplicable(detail) => ("n/a", detail),
    };
    writeln!(out, "{word:<8} {name:<24} {tries} ({detail})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_has_its_own_name_and_a_sentence() {
        let mut names: Vec<_> = PROBES.iter().map(|(name, ..)| name).collect();
        assert!(PROBES.iter().all(|(_, tries, _)| !tries.is_empty()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROBES.len());
    }
}
