//! What `gateway watch` waits for: keys, records, signals and a changed size of the terminal.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

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
    /// So many records came while too many waited.
    Missed(u64),
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

/// The events, of which a bounded number waits.
pub(super) struct WatchEvents {
    told: Receiver<WatchEvent>,
    /// How many records wait.
    records: Arc<AtomicUsize>,
}

/// Tells of events. Keys always fit; records do not while too many wait.
struct Teller {
    tell: Sender<WatchEvent>,
    records: Arc<AtomicUsize>,
    missed: u64,
}

impl WatchEvents {
    /// Waits for everything, on threads of their own that end with the process.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the gateway does not let its records be followed.
    pub(super) fn start(gateway: &Gateway) -> Result<Self, Failure> {
        let runtime = serving::runtime()?;
        let following = runtime.block_on(gateway.client.follow());
        let follow = following
            .map_err(|unanswered| gateway.unanswered(&unanswered))?
            .map_err(|(status, answer)| gateway.refused(status, &answer))?;
        let (signals, sizes) = {
            let _entered = runtime.enter();
            let sizes = signal(SignalKind::window_change())
                .map_err(|error| Failure::of("signals cannot be waited for", &error))?;
            (Signals::catch()?, sizes)
        };
        let (mut teller, events) = Self::channel();
        let of_keys = teller.tell.clone();
        spawn("watch-keys", move || keys(&of_keys))?;
        spawn("watch-events", move || {
            others(&runtime, follow, signals, sizes, &mut teller);
        })?;
        Ok(events)
    }

    fn channel() -> (Teller, Self) {
        let ((tell, told), records) = (channel(), Arc::<AtomicUsize>::default());
        let teller = Teller {
            tell,
            records: records.clone(),
            missed: 0,
        };
        (teller, Self { told, records })
    }

    /// Returns the next event that has come.
    pub(super) fn next(&self) -> Option<WatchEvent> {
        self.told.try_recv().ok().map(|event| self.taken(event))
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// Returns that none came within this time, or that none will.
    pub(super) fn within(&self, time: Duration) -> Result<WatchEvent, RecvTimeoutError> {
        self.told.recv_timeout(time).map(|event| self.taken(event))
    }

    fn taken(&self, event: WatchEvent) -> WatchEvent {
        if matches!(event, WatchEvent::Record(_)) {
            self.records.fetch_sub(1, Ordering::Relaxed);
        }
        event
    }
}

impl Teller {
    fn record(&mut self, record: Record) {
        if self.records.load(Ordering::Relaxed) >= MOST_WAITING {
            self.missed += 1;
            return;
        }
        if self.missed > 0 {
            let missed = std::mem::take(&mut self.missed);
            let _ = self.tell.send(WatchEvent::Missed(missed));
        }
        self.records.fetch_add(1, Ordering::Relaxed);
        let _ = self.tell.send(WatchEvent::Record(Box::new(record)));
    }
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
    teller: &mut Teller,
) {
    let mut unread = Vec::new();
    let waiting = async {
        loop {
            tokio::select! {
                frame = records.frame() => match frame {
                    Some(Ok(frame)) => {
                        let data = frame.data_ref().map_or(&[][..], |data| &**data);
                        take(&mut unread, data, teller);
                    }
                    _ => return WatchEvent::Gone,
                },
                _ = sizes.recv() => drop(teller.tell.send(WatchEvent::Resized)),
                _ = signals.next() => return WatchEvent::Stopped,
            }
        }
    };
    let last = runtime.block_on(waiting);
    let _ = teller.tell.send(last);
}

/// Tells of each whole line.
fn take(unread: &mut Vec<u8>, data: &[u8], teller: &mut Teller) {
    unread.extend_from_slice(data);
    let whole = memchr::memrchr(b'\n', unread).map_or(0, |at| at + 1);
    for line in unread[..whole].split(|byte| *byte == b'\n') {
        if let Ok(record) = serde_json::from_slice::<Record>(line) {
            teller.record(record);
        }
    }
    unread.drain(..whole);
}

/// How many records may wait while the view waits for the gateway.
const MOST_WAITING: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_leaves_records_out_and_says_so_and_no_key_is_lost() {
        let (mut teller, events) = WatchEvents::channel();
        for _ in 0..MOST_WAITING + 5 {
            teller.record(Record::default());
        }
        let key = WatchEvent::Key(WatchKey::Letter(b'q'));
        teller.tell.send(key).unwrap();
        let (mut records, mut keys) = (0, 0);
        while let Some(event) = events.next() {
            match event {
                WatchEvent::Record(_) => records += 1,
                WatchEvent::Key(_) => keys += 1,
                _ => panic!("nothing else was told"),
            }
        }
        assert_eq!((records, keys), (MOST_WAITING, 1));
        teller.record(Record::default());
        assert!(matches!(events.next(), Some(WatchEvent::Missed(5))));
        assert!(matches!(events.next(), Some(WatchEvent::Record(_))));
    }
}
