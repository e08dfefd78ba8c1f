//! The signals that a gateway handles. They are caught before anything else, so that none ends it
//! half-way.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{Context as _, Failure};

/// Signals that have arrived and are not handled yet.
pub struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catches SIGHUP, SIGTERM and SIGINT on the current runtime. SIGUSR1 and SIGUSR2 have no
    /// meaning here, and no longer end the process either.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the system refuses.
    pub fn catch() -> Result<Self, Failure> {
        let catch = |kind| signal(kind).context("signals cannot be waited for");
        // A signal stays caught after its receiver is dropped.
        drop(catch(SignalKind::user_defined1())?);
        drop(catch(SignalKind::user_defined2())?);
        Ok(Self {
            hangup: catch(SignalKind::hangup())?,
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
        })
    }

    /// Waits for SIGHUP.
    pub async fn reload(&mut self) {
        self.hangup.recv().await;
    }

    /// Waits for SIGTERM or SIGINT.
    pub async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for SIGHUP, SIGTERM or SIGINT, and returns whether it was SIGHUP.
    pub async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.hangup.recv() => true,
            _ = self.terminate.recv() => false,
            _ = self.interrupt.recv() => false,
        }
    }
}
