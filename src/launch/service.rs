//! The sockets that a service manager passes to a service, and the address for status notifications
//! (systemd's sd_listen_fds(3), sd_notify(3) and sd_watchdog_enabled(3)).

use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::{refuse, syscall};

/// The sockets and addresses that the service manager passed.
#[derive(Debug, Default)]
pub struct PassedSockets {
    /// The sockets with their names, in the order of the socket unit.
    pub sockets: Vec<(String, OwnedFd)>,
    /// The address of the socket that receives notifications.
    pub notify: Option<OsString>,
    /// How often the service manager expects a sign of life.
    pub watchdog: Option<Duration>,
}

/// Takes the sockets and addresses that the service manager passed, and removes their variables, so
/// that no child uses them. The sockets are closed on exec.
///
/// Call it before anything else is opened: the sockets are identified by their numbers alone.
///
/// # Errors
/// `InvalidInput` if a variable is malformed; `EBADF` if a socket that the variables announce is
/// not open. Also an error if this process has more than one thread.
pub fn take() -> io::Result<PassedSockets> {
    refuse::threads().map_err(|failure| invalid(&failure))?;
    let variables = VARIABLES.map(take_variable);
    let [sockets, names, sockets_of, notify, watchdog, watchdog_of] = &variables;
    let mut passed = PassedSockets {
        notify: notify.clone().filter(|address| !address.is_empty()),
        ..PassedSockets::default()
    };
    // Variables for another process were inherited by mistake.
    if sockets_of.is_some() && is_this_process(sockets_of)? {
        let count = number::<u16>(sockets)?.unwrap_or(0);
        let names = names.as_ref().map(|names| names.to_string_lossy());
        let mut names = names.iter().flat_map(|names| names.split(':'));
        for at in 0..i32::from(count) {
            let name = names.next().unwrap_or_default().to_owned();
            passed.sockets.push((name, syscall::adopt(FIRST + at)?));
        }
    }
    if watchdog_of.is_none() || is_this_process(watchdog_of)? {
        passed.watchdog = number(watchdog)?.map(Duration::from_micros);
    }
    Ok(passed)
}

/// Returns the time since the system was started, as its service manager counts it.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn take_variable(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    // SAFETY: this process has one thread, as `take` has checked, so that no other one reads the
    // environment at the same time.
    unsafe { std::env::remove_var(name) };
    Some(value)
}

fn is_this_process(id: &Option<OsString>) -> io::Result<bool> {
    Ok(number(id)? == Some(std::process::id()))
}

fn number<T: FromStr<Err: Display>>(text: &Option<OsString>) -> io::Result<Option<T>> {
    let read = |text: &OsString| {
        text.to_string_lossy()
            .parse()
            .map_err(|error| invalid(&error))
    };
    text.as_ref().map(read).transpose()
}

fn invalid(why: &dyn Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.to_string())
}

const VARIABLES: [&str; 6] = [
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
];
/// The number of the first socket (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;
