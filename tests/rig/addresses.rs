//! Addresses for servers that tests start.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// An address on loopback that nobody has, with the port after it: `OpenBao` takes that for its
/// cluster. They are below those that the system gives to whoever asks for any, so that none is
/// taken before the server that is to have it starts.
pub fn free() -> SocketAddr {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let at = (std::process::id() * 61 + count) % 6000;
        let port = 20_000 + 2 * u16::try_from(at).unwrap();
        let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if is_free(port) && is_free(port + 1) {
            return SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        }
    }
}
