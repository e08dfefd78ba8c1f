//! The threads of `serve`: each has a runtime, a worker and sockets of its own.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::failure::Failure;
use super::serving;
use crate::gateway::{SessionListener, SharedState, Worker};

/// A socket of one thread, whether a service manager has it too, and whose connections it takes.
pub struct Door {
    /// The socket.
    pub socket: TcpListener,
    /// Whether it stays open elsewhere.
    pub inherited: bool,
    /// The session of its connections.
    pub listener: Arc<SessionListener>,
}

/// A thread that serves until it is ended.
pub struct Thread {
    /// Its worker.
    pub worker: Arc<Worker>,
    end: oneshot::Sender<()>,
    handle: JoinHandle<()>,
}

impl Thread {
    /// Starts a thread that serves these sockets.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the thread, or its worker, cannot be started.
    pub fn start(shared: Arc<SharedState>, doors: Vec<Door>) -> Result<Self, Failure> {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        let run = move || {
            let runtime = match serving::runtime() {
                Ok(runtime) => runtime,
                Err(failure) => return drop(tell.send(Err(failure))),
            };
            runtime.block_on(async move {
                let started = worker(&shared, doors);
                let serves = started.is_ok();
                if tell.send(started).is_ok() && serves {
                    // An error means that the starter is gone.
                    let _ = ended.await;
                }
            });
        };
        let unusable = |why: String| Failure::new("a thread cannot be started").because(why);
        let handle = std::thread::Builder::new()
            .name("gateway-worker".to_owned())
            .spawn(run)
            .map_err(|error| unusable(error.to_string()))?;
        let worker = told.recv().map_err(|error| unusable(error.to_string()))??;
        Ok(Self {
            worker,
            end,
            handle,
        })
    }

    /// Ends the thread with everything on it.
    pub fn end(self) {
        drop((self.worker, self.end));
        // An error means that it panicked, which it has reported itself.
        let _ = self.handle.join();
    }
}

/// Creates a worker that serves these sockets on the current runtime.
///
/// # Errors
/// Returns a [`Failure`] if a socket cannot be used, or names cannot be resolved.
pub fn worker(shared: &Arc<SharedState>, doors: Vec<Door>) -> Result<Arc<Worker>, Failure> {
    let worker = serving::worker(shared)?;
    for door in doors {
        serving::serve(&worker, door.socket, door.inherited, door.listener)?;
    }
    Ok(worker)
}
