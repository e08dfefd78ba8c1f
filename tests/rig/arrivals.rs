//! An origin's side of a connection, of which every byte is counted that its kernel has.

use std::net::TcpStream;
use std::sync::Mutex;

/// A connection to an origin.
pub struct Arrivals {
    pub socket: TcpStream,
    /// How many bytes were read from the kernel. Locked while a read is counted.
    pub read: Mutex<usize>,
    /// What they say.
    pub plain: Mutex<Vec<u8>>,
}

impl Arrivals {
    pub fn on(socket: TcpStream) -> Self {
        Self {
            socket,
            read: Mutex::default(),
            plain: Mutex::default(),
        }
    }

    /// How many bytes have reached this machine's side of the origin.
    pub fn arrived(&self) -> usize {
        let read = self.read.lock().unwrap();
        // A connection that was reset has nothing left.
        let waiting = rustix::io::ioctl_fionread(&self.socket).unwrap_or(0);
        *read + usize::try_from(waiting).unwrap()
    }

    /// Whether a secret came.
    pub fn holds(&self, secret: &str) -> bool {
        memchr::memmem::find(&self.plain.lock().unwrap(), secret.as_bytes()).is_some()
    }
}
