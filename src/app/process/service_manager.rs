//! Notifies the service manager of the gateway's state: sd_notify(3).

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use crate::Failure;
use gateway_launch::service::{self, PassedSockets};

/// The service manager, if one listens.
#[derive(Clone)]
pub struct ServiceManager {
    socket: Option<Arc<UnixDatagram>>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Connects to the socket that the service manager named.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it named a socket that cannot be reached. It would wait in vain for
    /// the notice that the gateway is ready, and stop it.
    pub fn connect(passed: &PassedSockets) -> Result<Self, Failure> {
        let unusable = |error: std::io::Error| {
            Failure::new("the service manager cannot be told")
                .because(format!("NOTIFY_SOCKET: {error}"))
                .next("start the gateway without NOTIFY_SOCKET, or as a service of systemd")
        };
        let address = passed.notify.as_deref();
        let socket = address.map(connect).transpose().map_err(unusable)?;
        Ok(Self {
            socket: socket.map(Arc::new),
            watchdog: passed.watchdog.filter(|interval| !interval.is_zero()),
        })
    }

    /// Reports that the gateway serves. Also ends a reload.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// Reports that a reload begins (`Type=notify-reload`).
    pub fn reloading(&self) {
        let now = service::monotonic().as_micros();
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    /// Reports that the gateway stops.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Reports that the gateway is alive, twice in each watchdog interval. Runs for ever, or not at
    /// all without a watchdog.
    pub async fn reassure(self) {
        let Some(interval) = self.watchdog else {
            return;
        };
        let mut tick = tokio::time::interval(interval / 2);
        loop {
            tick.tick().await;
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, state: &str) {
        let Some(socket) = &self.socket else { return };
        // Non-blocking: a service manager that does not read must not hold up the gateway.
        if let Err(error) = socket.send(state.as_bytes()) {
            tracing::warn!(%error, state, "the service manager was not told");
        }
    }
}

fn connect(address: &OsStr) -> std::io::Result<UnixDatagram> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(address)?,
        _ => return Err(std::io::Error::other("neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
