//! What `gateway watch` waits for: keys, records, signals and a changed size of the terminal.

use std::io::Read as _;
use std::sync::mpsc::{Receiver, Sender, channel};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::failure::Failure;
use super::gateways::Gateway;
use super::serving;
use super::signals::Signals;
use crate::audit::Record;

/// What came.
pub(super) enum WatchEvent {
    /// A key was pressed.
    Key(WatchKey),
    /// The audit log got a record.
    Record(Box<Record>),
    /// The terminal has another size.
    Resized,
    /// A signal asks for the end.
    Stopped,
    /// The gateway ended.
    Gone,
}

/// A key that means something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchKey {
    Letter(u8),
    Up,
    Down,
}

/// Waits for everything, on threads of their own that end with the process.
///
/// # Errors
/// Returns a [`Failure`] if the gateway does not let its records be followed.
pub(super) fn start(gateway: &Gateway) -> Result<Receiver<WatchEvent>, Failure> {
    let runtime = serving::runtime()?;
    let following = runtime.block_on(gateway.client.follow());
    let records = following
        .map_err(|unanswered| gateway.unanswered(&unanswered))?
        .map_err(|(status, answer)| gateway.refused(status, &answer))?;
    let (signals, sizes) = {
        let _entered = runtime.enter();
        let sizes = signal(SignalKind::window_change())
            .map_err(|error| Failure::of("signals cannot be waited for", &error))?;
        (Signals::catch()?, sizes)
    };
    let (tell, told) = channel();
    let of_keys = tell.clone();
    spawn("watch-keys", move || keys(&of_keys))?;
    spawn("watch-events", move || {
        others(&runtime, records, signals, sizes, &tell);
    })?;
    Ok(told)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(run);
    started
        .map(drop)
        .map_err(|error| Failure::of("a thread cannot be started", &error))
}

/// Reads keys until there are no more, or nobody wants them.
fn keys(tell: &Sender<WatchEvent>) {
    let mut bytes = [0; 64];
    while let Ok(read @ 1..) = std::io::stdin().lock().read(&mut bytes) {
        for key in parsed(&bytes[..read]) {
            if tell.send(WatchEvent::Key(key)).is_err() {
                return;
            }
        }
    }
    let _ = tell.send(WatchEvent::Stopped);
}

/// The keys of what was read at once. Sequences of other keys mean nothing.
fn parsed(bytes: &[u8]) -> Vec<WatchKey> {
    match bytes {
        [0x1b, b'[' | b'O', b'A', ..] => vec![WatchKey::Up],
        [0x1b, b'[' | b'O', b'B', ..] => vec![WatchKey::Down],
        [0x1b, ..] => vec![],
        letters => letters.iter().map(|byte| WatchKey::Letter(*byte)).collect(),
    }
}

/// Waits for records, signals and sizes, until the gateway ends.
fn others(
    runtime: &Runtime,
    mut records: Incoming,
    mut signals: Signals,
    mut sizes: tokio::signal::unix::Signal,
    tell: &Sender<WatchEvent>,
) {
    let mut unread = Vec::new();
    let waiting = async {
        loop {
            tokio::select! {
                frame = records.frame() => match frame {
                    Some(Ok(frame)) => {
                        let data = frame.data_ref().map_or(&[][..], |data| &**data);
                        take(&mut unread, data, tell);
                    }
                    _ => return WatchEvent::Gone,
                },
                _ = sizes.recv() => drop(tell.send(WatchEvent::Resized)),
                _ = signals.next() => return WatchEvent::Stopped,
            }
        }
    };
    let last = runtime.block_on(waiting);
    let _ = tell.send(last);
}

/// Tells of each whole line.
fn take(unread: &mut Vec<u8>, data: &[u8], tell: &Sender<WatchEvent>) {
    unread.extend_from_slice(data);
    let whole = memchr::memrchr(b'\n', unread).map_or(0, |at| at + 1);
    for line in unread[..whole].split(|byte| *byte == b'\n') {
        if let Ok(record) = serde_json::from_slice::<Record>(line) {
            let _ = tell.send(WatchEvent::Record(Box::new(record)));
        }
    }
    unread.drain(..whole);
}
