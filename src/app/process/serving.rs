//! The runtime and the workers that `exec`, `demo` and `serve` run the data path on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::{Advise as _, Context as _, Failure};
use gateway_names::SessionId;
use gateway_server::{BoundSocket, ListenerSlot, SessionListener, SharedState, Worker};

/// Creates a runtime for one thread. The exchanges of a connection never leave it (performance.md:
/// this saves 15 to 20 per cent of the processor's time against a work-stealing runtime).
///
/// # Errors
/// Returns a [`Failure`] if the system provides no event queue.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")
}

/// Creates a worker on the current runtime, and starts its watch.
///
/// # Errors
/// Returns a [`Failure`] if this system cannot resolve names.
pub fn worker(shared: &Arc<SharedState>) -> Result<Arc<Worker>, Failure> {
    let worker = Worker::new(shared.clone())
        .context("names cannot be resolved")
        .advise("name servers: `[resolver] servers = [\"…\"]`")?;
    outlive_file_limits();
    let watched = worker.clone();
    tokio::spawn(async move { watched.watch().await });
    Ok(worker)
}

/// Serves a listener on a bound socket, on the worker's runtime, until the gateway stops.
///
/// # Errors
/// Returns a [`Failure`] if the runtime does not accept the socket.
pub fn serve(
    shared: &SharedState,
    worker: &Arc<Worker>,
    socket: std::net::TcpListener,
    listener: SessionListener,
) -> Result<(), Failure> {
    let socket = worker
        .take(BoundSocket::Tcp(socket), false)
        .context("a listening socket cannot be used")?;
    let slot = ListenerSlot::new(shared, listener);
    worker.listen(socket, Arc::new(slot));
    Ok(())
}

/// Renews issued credentials as long as their sessions live, and revokes them afterwards.
pub fn tend(shared: &Arc<SharedState>) {
    let shared = shared.clone();
    tokio::spawn(async move {
        let (mut known, mut changes) = (BTreeSet::new(), shared.changes());
        loop {
            // A reload may add a store that must be tended.
            while !must_be_tended(&shared) {
                // The sender lives in `shared`.
                let _ = changes.changed().await;
            }
            tokio::time::sleep(TENDED_EVERY).await;
            let snapshot = shared.current();
            snapshot.credentials.stores().tend().await;
            let now = live(&shared);
            for over in known.difference(&now) {
                // Its listener may have come back while other sessions were ended.
                if !live(&shared).contains(over) {
                    snapshot.credentials.end(over).await;
                }
            }
            known = now;
        }
    });
}

fn must_be_tended(shared: &SharedState) -> bool {
    shared.current().credentials.stores().must_be_tended()
}

fn live(shared: &SharedState) -> BTreeSet<SessionId> {
    let mut live = shared.sessions.all();
    live.retain(|session| !session.is_over());
    live.iter().map(|session| session.id().clone()).collect()
}

/// Revokes issued credentials and the gateway's logins before the process exits.
pub async fn close(shared: &SharedState) {
    // This also ends a reload that waits for a store, and that could not outlive the runtime.
    shared.draining.cancel();
    let snapshot = shared.current();
    let closed = tokio::time::timeout(CLOSED_WITHIN, snapshot.credentials.stores().close());
    if closed.await.is_err() {
        tracing::warn!("what the stores issued was not all revoked in time; it ends by itself");
    }
}

/// Gives back what was taken of budgets ahead, once no request is under way.
pub async fn give_back(shared: &SharedState) {
    if let Some(ledger) = shared.budgets.get() {
        ledger.give_back().await;
    }
}

/// How often issued credentials are checked for their expiry.
const TENDED_EVERY: Duration = Duration::from_millis(500);
/// The time limit for all revocations at the end. The launcher waits longer than that.
const CLOSED_WITHIN: Duration = Duration::from_secs(6);

/// Reads the system's roots while the first client starts and connects.
///
/// No other thread waits for this one, so a command without requests ends without the roots.
pub fn settle() {
    // Without the thread, the first exchange that needs the roots reads them.
    let _ = std::thread::Builder::new()
        .name("settle".to_owned())
        .spawn(gateway_origin::warm_roots);
}

/// Prepares this process for holding secrets (threats Q02, D14, P04).
///
/// It allows no core file and no debugger of the same user. It survives a full disk, and raises the
/// limit of descriptors as far as the system allows.
///
/// # Errors
/// Returns a [`Failure`] if the kernel refuses. Nothing is served then.
pub fn harden() -> Result<(), Failure> {
    use rustix::process::{
        DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
    };
    let refused = |what: &'static str| {
        move |error: rustix::io::Errno| {
            Failure::new(format!("cannot {what}")).because(error.to_string())
        }
    };
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(refused("keep the process's memory to itself"))?;
    setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    )
    .map_err(refused("forbid core files"))?;
    let files = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: files.maximum,
            maximum: files.maximum,
        },
    )
    .map_err(refused("raise the limit of open files"))
}

/// Keeps SIGXFSZ from ending the process. A file of the audit log may exceed a limit; then the
/// write fails, and so does the exchange. Must be called on the runtime.
fn outlive_file_limits() {
    use tokio::signal::unix::{SignalKind, signal};
    const SIGXFSZ: i32 = 25;
    if let Ok(mut limit) = signal(SignalKind::from_raw(SIGXFSZ)) {
        tokio::spawn(async move { while limit.recv().await.is_some() {} });
    }
}
