//! Stops a gateway in order: accepted requests get their responses, within `drain_timeout`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::process::signals::Signals;
use crate::{Terminal, counted};
use gateway_config::show_duration;
use gateway_server::{SharedState, Worker};

/// How often the gateway checks whether it has ended.
const LOOK: Duration = Duration::from_millis(10);
/// How long an aborted exchange may take to tell its client, and to write its record.
const CUT_WITHIN: Duration = Duration::from_secs(1);
/// How long connections may outlive their sandbox. Those of published ports get one second, in
/// which data under way arrives.
const SETTLED_WITHIN: Duration = Duration::from_secs(3);

/// Closes the listeners, lets exchanges finish, and cuts what is left after `drain_timeout` or at
/// a second signal. Every exchange has its record afterwards.
pub async fn drain(
    shared: &SharedState,
    workers: &[Arc<Worker>],
    signals: &mut Signals,
    terminal: &Terminal,
) {
    let most = shared.look().limits.drain_timeout;
    shared.draining.cancel();
    terminal.note(format!(
        "gateway: draining: {} on {}, for at most {}; another signal cuts them",
        counted(underway(workers) as u64, "exchange", "exchanges"),
        counted(
            shared.open.load(Ordering::Relaxed) as u64,
            "connection",
            "connections"
        ),
        show_duration(most),
    ));
    let is_over = || {
        let none = |count: &AtomicUsize| count.load(Ordering::Acquire) == 0;
        none(&shared.listening) && none(&shared.open) && underway(workers) == 0
    };
    tokio::select! {
        () = until(is_over) => return,
        () = tokio::time::sleep(most) => {}
        () = signals.stop() => {}
    }
    let cuts = counted(underway(workers) as u64, "exchange", "exchanges");
    terminal.note(format!("gateway: cut {cuts}"));
    cut(workers).await;
}

/// Waits a while for the records of exchanges that were open when the sandbox ended.
pub async fn settle(shared: &SharedState, worker: &Arc<Worker>) {
    let is_over = || shared.open.load(Ordering::Acquire) == 0 && worker.underway() == 0;
    let settled = tokio::time::timeout(SETTLED_WITHIN, until(is_over)).await;
    if settled.is_err() {
        cut(std::slice::from_ref(worker)).await;
    }
}

/// Cuts all exchanges under way. Every exchange has its record afterwards.
async fn cut(workers: &[Arc<Worker>]) {
    let has_ended = || underway(workers) == 0;
    // Clients that do not read the response to a cut are closed after a while.
    for act in [Worker::cut, Worker::close] {
        workers.iter().for_each(|worker| act(worker));
        let ended = tokio::time::timeout(CUT_WITHIN, until(has_ended)).await;
        if ended.is_ok() {
            return;
        }
    }
    tracing::error!("exchanges did not end; the log has no end record of them");
}

fn underway(workers: &[Arc<Worker>]) -> usize {
    workers.iter().map(|worker| worker.underway()).sum()
}

async fn until(is_over: impl Fn() -> bool) {
    while !is_over() {
        tokio::time::sleep(LOOK).await;
    }
}
