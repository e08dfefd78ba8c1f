//! Refuses surroundings in which the launcher cannot work safely.

use rustix::net::{AddressFamily, SocketType};

use super::failure::{AtStep, Failure, Step};
use super::syscall;
use crate::enroll::Listeners;

/// Refuses to clone a process with threads: locks that they hold would stay locked in the copy.
///
/// # Errors
/// A [`Step::Prepare`] failure.
pub fn threads() -> Result<(), Failure> {
    let threads = std::fs::read_dir("/proc/self/task")
        .at(Step::Prepare, "/proc/self/task")?
        .count();
    if threads != 1 {
        return Err(Failure::new(
            Step::Prepare,
            format!("the launcher has {threads} threads, and must have one"),
        ));
    }
    Ok(())
}

/// Refuses a directory as standard input, output or error: through it the command would see the
/// host's hidden files.
///
/// # Errors
/// A [`Step::Prepare`] failure.
pub fn directories_as_standard_streams() -> Result<(), Failure> {
    for fd in 0..3 {
        let is_directory =
            std::fs::metadata(format!("/proc/self/fd/{fd}")).is_ok_and(|found| found.is_dir());
        if is_directory {
            return Err(Failure::new(
                Step::Prepare,
                format!("standard stream {fd} is a directory"),
            ));
        }
    }
    Ok(())
}

/// Refuses listeners that are in the launcher's own network: the gateway would serve the host
/// instead of the sandbox.
///
/// # Errors
/// A [`Step::Handoff`] failure.
pub fn own_network(listeners: &Listeners) -> Result<(), Failure> {
    let own = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None)
        .at(Step::Handoff, "socket")?;
    // Before Linux 5.14 this number does not exist. The namespaces are then separate only by
    // construction.
    let Ok(own) = syscall::network_cookie(&own) else {
        return Ok(());
    };
    for socket in listeners.all() {
        if syscall::network_cookie(socket).at(Step::Handoff, "SO_NETNS_COOKIE")? == own {
            return Err(Failure::new(
                Step::Handoff,
                "the listeners are in the host's own network",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn listeners_of_the_launchers_own_network_are_refused() {
        let socket = || OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let listeners = Listeners {
            tcp: socket(),
            dns_tcp: socket(),
            dns_udp: socket(),
            host_ports: Vec::new(),
            inward: Vec::new(),
        };
        assert_eq!(own_network(&listeners).unwrap_err().step, Step::Handoff);
    }

    #[test]
    fn a_process_with_threads_is_not_cloned() {
        // The test harness itself has several threads.
        assert_eq!(threads().unwrap_err().step, Step::Prepare);
    }
}
