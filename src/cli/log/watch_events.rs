//! The events of `gateway watch`: keys, records, signals and a changed size of the terminal.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::app::process::serving;
use crate::app::process::signals::Signals;
use crate::app::{Context as _, Failure};
use crate::audit::Record;
use crate::cli::operate::gateways::Gateway;

/// An event of the view.
pub(crate) enum WatchEvent {
    /// A key was pressed.
    Key(KeyCode),
    /// The audit log got these records.
    Records(Vec<Record>),
    /// The terminal has another size.
    Resized,
    /// The person suspends the view.
    Suspended,
    /// A signal asks for the end.
    Stopped,
    /// The gateway ended.
    Gone,
}

/// The source of events. Records that are not read wait in the gateway's log.
pub(crate) struct WatchEvents {
    runtime: Runtime,
    records: Incoming,
    /// The beginning of a record.
    unread: Vec<u8>,
    signals: Signals,
    keys: UnboundedReceiver<WatchEvent>,
}

impl WatchEvents {
    /// Follows the records of a gateway from now on.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the gateway refuses to stream its records.
    pub(crate) fn start(gateway: &Gateway) -> Result<Self, Failure> {
        let runtime = serving::runtime()?;
        let records = runtime.block_on(gateway.follow())?;
        let signals = {
            let _entered = runtime.enter();
            Signals::catch()?
        };
        let (tell, keys) = unbounded_channel();
        let thread = std::thread::Builder::new().name("watch-keys".to_owned());
        thread
            .spawn(move || read_keys(&tell))
            .context("a thread cannot be started")?;
        Ok(Self {
            runtime,
            records,
            unread: Vec::new(),
            signals,
            keys,
        })
    }

    /// Waits for the next event; `None` if none comes within this time.
    pub(crate) fn within(&mut self, time: Duration) -> Option<WatchEvent> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = self.signals.next() => Some(WatchEvent::Stopped),
                key = self.keys.recv() => Some(key.unwrap_or(WatchEvent::Stopped)),
                frame = self.records.frame() => match frame {
                    Some(Ok(frame)) => {
                        let data = frame.data_ref().map_or(&[][..], |data| &**data);
                        Some(WatchEvent::Records(whole_records(&mut self.unread, data)))
                    }
                    _ => Some(WatchEvent::Gone),
                },
                () = tokio::time::sleep(time) => None,
            }
        })
    }

    /// Forgets the keys that were pressed so far.
    pub(crate) fn forget_keys(&mut self) {
        while self.keys.try_recv().is_ok() {}
    }
}

/// Reads keys until there are no more, or the receiver has gone.
fn read_keys(tell: &UnboundedSender<WatchEvent>) {
    while let Ok(event) = event::read() {
        let told = match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => meaning(key),
            Event::Resize(..) => WatchEvent::Resized,
            _ => continue,
        };
        if tell.send(told).is_err() {
            return;
        }
    }
}

fn meaning(key: KeyEvent) -> WatchEvent {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => WatchEvent::Stopped,
        KeyCode::Char('z') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            WatchEvent::Suspended
        }
        code => WatchEvent::Key(code),
    }
}

/// Appends new data, and returns the complete records.
pub(crate) fn whole_records(unread: &mut Vec<u8>, data: &[u8]) -> Vec<Record> {
    unread.extend_from_slice(data);
    let whole = memchr::memrchr(b'\n', unread).map_or(0, |at| at + 1);
    let rest = unread.split_off(whole);
    let lines = std::mem::replace(unread, rest);
    let lines = lines.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}
