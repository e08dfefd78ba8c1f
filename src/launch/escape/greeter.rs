//! A server that greets clients and counts them.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// A server that greets every client with the nonce, and counts them.
#[derive(Debug)]
pub struct Greeter {
    /// Where it listens.
    pub address: SocketAddr,
    hits: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Greeter {
    /// Starts to greet, in a thread.
    ///
    /// # Errors
    /// The error of asking for its address.
    pub fn start(server: TcpListener, nonce: String) -> io::Result<Self> {
        let address = server.local_addr()?;
        let (hits, stopping) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (counted, stop) = (Arc::clone(&hits), Arc::clone(&stopping));
        let thread = std::thread::spawn(move || {
            for stream in server.incoming() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                counted.fetch_add(1, Ordering::AcqRel);
                // The probe decides whether the greeting arrives.
                let _ = stream.and_then(|mut stream| stream.write_all(nonce.as_bytes()));
            }
        });
        Ok(Self {
            address,
            hits,
            stopping,
            thread: Some(thread),
        })
    }

    /// Whether anybody connected.
    pub fn was_reached(&self) -> bool {
        self.hits.load(Ordering::Acquire) > 0
    }
}

impl Drop for Greeter {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes it from `accept`.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}
