//! Owns the end of the chain: seals and writes each record, and repairs the damage of failed
//! writes.

use std::mem;
use std::time::SystemTime;

use super::chain::{Head, MAX_LINE_BYTES, seal};
use super::encode::timestamp;
use super::error::Error;
use super::record::Record;
use super::scan::{TORN_END, Torn};
use super::sink::Sink;

/// The only writer of a chain; [`super::Log`] keeps it under a lock.
pub(super) struct Writer {
    pub(super) sink: Box<dyn Sink>,
    chain: String,
    head: Option<Head>,
    line: Vec<u8>,
    torn: Option<Torn>,
    failed: Option<Cause>,
    lost: u64,
    begins_file: bool,
    /// Something was written since the last sync began.
    pub(super) dirty: bool,
    /// A sync failed and none has succeeded since: written records may be lost.
    pub(super) unsynced: bool,
    /// How many times a new file was begun.
    pub(super) turns: u64,
    /// Somebody took the file away from its path.
    pub(super) moved: bool,
    /// The last handle to the log is gone.
    pub(super) closing: bool,
}

/// Why a `recover` record was written.
#[derive(Clone, Copy)]
pub(super) enum Cause {
    /// The previous process ended in the middle of a write.
    Unclean,
    /// Writes failed, and now succeed again.
    Refused,
    /// A sync failed: what was written before it may be lost in a power failure.
    Unsynced,
}

impl Writer {
    pub(super) fn new(
        sink: Box<dyn Sink>,
        chain: String,
        head: Option<Head>,
        torn: Option<Torn>,
    ) -> Self {
        let failed = torn.is_some().then_some(Cause::Unclean);
        Self {
            sink,
            chain,
            head,
            line: Vec::new(),
            torn,
            failed,
            lost: 0,
            begins_file: false,
            dirty: false,
            unsynced: false,
            turns: 0,
            moved: false,
            closing: false,
        }
    }

    /// The last record written completely.
    pub(super) fn head(&self) -> Option<Head> {
        self.head
    }

    /// Seals and writes one record, after any that the chain needs first, and returns its number.
    pub(super) fn append(&mut self, record: &[u8]) -> Result<u64, Error> {
        if record.len() + FRAME_BYTES > MAX_LINE_BYTES {
            return Err(Error::Oversize {
                bytes: record.len() + FRAME_BYTES,
            });
        }
        self.write(Some(record))
    }

    /// Writes a record about the log itself: `start`, `resume`, `continue` or `stop`.
    pub(super) fn append_own(&mut self, kind: &'static str) -> Result<u64, Error> {
        self.append(&self.own(kind).encode())
    }

    /// Ensures that all promised bytes will fit later, and that the log works now.
    pub(super) fn promise(&mut self, promised: u64) -> Result<(), Error> {
        if self.unsynced {
            return Err(Error::Unsynced);
        }
        if self.failed.is_some() {
            self.write(None)?;
        }
        self.sink.reserve(promised).map_err(Error::from_write)
    }

    /// How many bytes [`Writer::promise`] could grant without further work.
    pub(super) fn room(&self) -> u64 {
        if self.unsynced || self.failed.is_some() {
            return 0;
        }
        self.sink.room()
    }

    /// Counts a record that will not be retried.
    pub(super) fn lose(&mut self) {
        self.lost += 1;
        self.failed.get_or_insert(Cause::Refused);
    }

    /// Takes note of a sync's outcome.
    pub(super) fn synced(&mut self, well: bool) {
        if well && self.unsynced {
            self.failed = Some(Cause::Unsynced);
        }
        self.unsynced = !well;
    }

    /// Writes the records that the chain needs first, each in its own write, then the requested
    /// one.
    fn write(&mut self, record: Option<&[u8]>) -> Result<u64, Error> {
        if self.unsynced {
            return Err(Error::Unsynced);
        }
        self.turn()?;
        if let Some(cause) = self.failed {
            self.put(&self.recovery(cause), self.torn.is_some())?;
            (self.torn, self.failed, self.lost) = (None, None, 0);
        }
        if self.begins_file {
            self.put(&self.own("continue").encode(), false)?;
            self.begins_file = false;
        }
        if let Some(record) = record {
            self.put(record, false)?;
        }
        Ok(self.head.map_or(0, |head| head.seq))
    }

    /// Seals and writes one record. Bytes left by a failed write are remembered as torn.
    fn put(&mut self, record: &[u8], behind_torn: bool) -> Result<(), Error> {
        let mut line = mem::take(&mut self.line);
        line.clear();
        if behind_torn {
            line.extend_from_slice(TORN_END);
        }
        let head = seal(&mut line, self.head, record);
        let at = self.sink.position();
        let done = self.sink.append(&line);
        match &done {
            Ok(()) => self.head = Some(head),
            Err(short) => {
                self.failed.get_or_insert(Cause::Refused);
                if short.written > 0 {
                    self.torn
                        .get_or_insert_with(|| Torn::at(at))
                        .push(&line[..short.written]);
                }
            }
        }
        self.line = line;
        done.map_err(|short| Error::from_write(short.cause))
    }

    /// The record that accounts for a failure.
    fn recovery(&self, cause: Cause) -> Vec<u8> {
        Record {
            cause: Some(cause.name().into()),
            torn_at: self.torn.as_ref().map(|torn| torn.at),
            torn_bytes: self.torn.as_ref().map(|torn| torn.bytes),
            torn_sha256: self.torn.as_ref().map(Torn::sha256),
            lost: Some(self.lost),
            ..self.own("recover")
        }
        .encode()
    }

    /// Begins a new file if the old one is full or gone.
    ///
    /// If rotation by size fails, the old file stays in use. A file that was taken away must be
    /// replaced, unless it is back: its disk was mounted anew.
    fn turn(&mut self) -> Result<(), Error> {
        self.moved = self.moved && self.sink.is_away();
        let sound = self.torn.is_none() && !self.begins_file;
        if !(self.moved || self.sink.is_due() && sound) {
            return Ok(());
        }
        let seq = self.head.map_or(0, |head| head.seq + 1);
        match self.sink.turn(seq, self.moved) {
            // Torn bytes stay in the old file, where the verifier reports them.
            Ok(()) => {
                (self.moved, self.begins_file, self.torn) = (false, true, None);
                self.turns += 1;
            }
            Err(error) if self.moved => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }

    fn own(&self, kind: &'static str) -> Record {
        Record {
            kind: kind.into(),
            chain: Some(self.chain.clone()),
            time: Some(timestamp(SystemTime::now()).into()),
            version: Some(env!("CARGO_PKG_VERSION").into()),
            pid: Some(std::process::id()),
            ..Record::default()
        }
    }
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Self::Unclean => "unclean",
            Self::Refused => "refused",
            Self::Unsynced => "unsynced",
        }
    }
}

/// Room for the rest of a line: more than its braces, version, number, two hashes and line feed
/// need.
const FRAME_BYTES: usize = 256;
