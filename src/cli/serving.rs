//! Listeners and threads: what `exec`, `demo` and `serve` run the data path on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::failure::Failure;
use crate::gateway::{SessionListener, SharedState, Worker, chain};
use crate::session::Session;

/// A runtime for one thread: the exchanges of a connection never leave it (performance.md: 15 to 20
/// per cent of the processor's time against a work-stealing one).
///
/// # Errors
/// A [`Failure`] where the system gives no event queue.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("the runtime cannot be started").because(error.to_string()))
}

/// A worker on the current runtime, with its watch running.
///
/// # Errors
/// A [`Failure`] where names cannot be resolved on this system.
pub fn worker(shared: &Arc<SharedState>) -> Result<Arc<Worker>, Failure> {
    let worker = Worker::new(shared.clone()).map_err(|error| {
        Failure::new("names cannot be resolved")
            .because(chain(&error))
            .next("name servers: `[resolver] servers = [\"…\"]`")
    })?;
    outlive_file_limits();
    let watched = worker.clone();
    tokio::spawn(async move { watched.watch().await });
    Ok(worker)
}

/// A listening socket that several threads may bind, each with its own queue.
///
/// # Errors
/// A [`Failure`] that names the address.
pub fn bind(address: SocketAddr, shared: bool) -> Result<std::net::TcpListener, Failure> {
    let bound = (|| {
        let domain = socket2::Domain::for_address(address);
        let socket =
            socket2::Socket::new(domain, socket2::Type::STREAM.cloexec().nonblocking(), None)?;
        socket.set_reuse_address(true)?;
        if shared {
            socket.set_reuse_port(true)?;
        }
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(4096)?;
        Ok(std::net::TcpListener::from(socket))
    })();
    bound.map_err(|error: std::io::Error| {
        Failure::new(format!("cannot listen on {address}"))
            .because(error.to_string())
            .next("choose another `address`")
    })
}

/// Serves a listener on a bound socket, on the current runtime.
///
/// # Errors
/// A [`Failure`] where the runtime does not take the socket.
pub fn serve(
    worker: &Arc<Worker>,
    socket: std::net::TcpListener,
    listener: Arc<SessionListener>,
) -> Result<(), Failure> {
    let socket = TcpListener::from_std(socket).map_err(|error| {
        Failure::new("a listening socket cannot be used").because(error.to_string())
    })?;
    tokio::spawn(worker.clone().listen(socket, listener));
    Ok(())
}

/// Renews what stores issue as long as its sessions live, and ends it with them.
pub fn tend(shared: &Arc<SharedState>, mut sessions: Vec<Arc<Session>>) {
    let shared = shared.clone();
    if !shared.credentials.stores().must_be_tended() {
        return;
    }
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(TENDED_EVERY).await;
            shared.credentials.stores().tend().await;
            for over in sessions.extract_if(.., |session| session.is_over()) {
                shared.credentials.end(over.id()).await;
            }
        }
    });
}

/// Ends what stores issued, and the gateway's logins there, before the process ends.
pub async fn close(shared: &SharedState) {
    let closed = tokio::time::timeout(CLOSED_WITHIN, shared.credentials.stores().close());
    if closed.await.is_err() {
        tracing::warn!("what the stores issued was not all revoked in time; it ends by itself");
    }
}

/// How often what ends soon is looked for.
const TENDED_EVERY: Duration = Duration::from_millis(500);
/// For all revocations at the end; the launcher waits longer than that.
const CLOSED_WITHIN: Duration = Duration::from_secs(6);

/// Reads the system's roots while the first client starts and connects.
///
/// On a thread that nothing waits for: a command that asks for nothing ends without them.
pub fn settle() {
    // Without the thread the first exchange that needs the roots reads them.
    let _ = std::thread::Builder::new()
        .name("settle".to_owned())
        .spawn(crate::origin::warm_roots);
}

/// Makes this process one that may hold secrets: no core file, no debugger of the same user, no end
/// by a full disk; and as many descriptors as the system allows (threats Q02, D14, P04).
///
/// # Errors
/// A [`Failure`] where the kernel refuses; nothing is served then.
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

/// Keeps SIGXFSZ, which a file of the audit log may meet under a limit, from ending the process:
/// the write fails instead, and with it the exchange. To be called on the runtime.
fn outlive_file_limits() {
    use tokio::signal::unix::{SignalKind, signal};
    const SIGXFSZ: i32 = 25;
    if let Ok(mut limit) = signal(SignalKind::from_raw(SIGXFSZ)) {
        tokio::spawn(async move { while limit.recv().await.is_some() {} });
    }
}
