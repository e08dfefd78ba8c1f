//! The threads of `serve`: each has a runtime and a worker of its own.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::Failure;
use crate::process::serving;
use gateway_server::{SharedState, Worker};

/// A thread that serves until it is ended.
pub struct Thread {
    /// Its worker.
    pub worker: Arc<Worker>,
    end: oneshot::Sender<()>,
    handle: JoinHandle<()>,
}

impl Thread {
    /// Starts a thread with a worker that can be given sockets.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the thread, or its worker, cannot be started.
    pub fn start(shared: Arc<SharedState>) -> Result<Self, Failure> {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        let run = move || {
            let runtime = match serving::runtime() {
                Ok(runtime) => runtime,
                Err(failure) => return drop(tell.send(Err(failure))),
            };
            runtime.block_on(async move {
                let started = serving::worker(&shared);
                let serves = started.is_ok();
                if tell.send(started).is_ok() && serves {
                    // An error means that the starter is gone.
                    let _ = ended.await;
                }
            });
            // This does not wait for a file system that hangs.
            runtime.shutdown_background();
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
        // An error means that it panicked, and has reported that itself.
        let _ = self.handle.join();
    }
}
