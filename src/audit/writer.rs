//! Owns the end of the chain: seals and writes each record, and repairs the damage of failed
//! writes.

use std::mem;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::chain::{ChainHead, MAX_LINE_BYTES, seal, unseal};
use super::encode::Value;
use super::error::Error;
use super::record::Record;
use super::refusals::RefusalTap;
use super::scan::{TORN_END, Torn};
use super::sink::Sink;

/// The only writer of a chain; [`super::Log`] keeps it under a lock.
pub(super) struct Writer {
    pub(super) sink: Box<dyn Sink>,
    chain: String,
    /// The last record written completely.
    pub(super) head: Option<ChainHead>,
    queue: Queue,
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
    /// The log has its last record.
    pub(super) closing: bool,
    /// Receives each written refusal too.
    pub(super) refused: RefusalTap,
}

/// Records for the next write, not sealed yet: their place in the chain is not known.
#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// The range of each record, and whether it records a refusal.
    records: Vec<(Range<usize>, bool)>,
    flushed: Arc<OnceLock<FlushOutcome>>,
}

/// A record that waits for its write.
pub(super) struct QueuedRecord {
    pub(super) flushed: Arc<OnceLock<FlushOutcome>>,
    /// The record's index in its write.
    pub(super) place: u64,
    /// Its length.
    pub(super) bytes: u64,
}

/// The outcome of one write.
pub(super) struct FlushOutcome {
    /// The number of its first record.
    pub(super) first: u64,
    /// How many of its records are in the chain now.
    pub(super) kept: u64,
    /// Why the others are not. None of the write's answers may be released then.
    pub(super) failed: Option<Error>,
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

impl Cause {
    fn as_str(self) -> &'static str {
        match self {
            Self::Unclean => "unclean",
            Self::Refused => "refused",
            Self::Unsynced => "unsynced",
        }
    }
}

impl Writer {
    pub(super) fn new(
        sink: Box<dyn Sink>,
        chain: String,
        head: Option<ChainHead>,
        torn: Option<Torn>,
    ) -> Self {
        let failed = torn.is_some().then_some(Cause::Unclean);
        Self {
            sink,
            chain,
            head,
            queue: Queue::default(),
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
            refused: RefusalTap::default(),
        }
    }

    /// Adds a record to the next write.
    ///
    /// # Errors
    /// [`Error::Oversize`] if it would be longer than a verifier reads.
    pub(super) fn queue(&mut self, record: &Record, refuses: bool) -> Result<QueuedRecord, Error> {
        let Queue {
            bytes,
            records,
            flushed,
        } = &mut self.queue;
        let start = bytes.len();
        record.write(bytes);
        let made = start..bytes.len();
        let line = made.len() + FRAME_BYTES;
        if line > MAX_LINE_BYTES {
            bytes.truncate(start);
            return Err(Error::Oversize { bytes: line });
        }
        let queued = QueuedRecord {
            flushed: flushed.clone(),
            place: records.len() as u64,
            bytes: made.len() as u64,
        };
        records.push((made, refuses));
        if bytes.len() > MOST_QUEUED {
            self.flush();
        }
        Ok(queued)
    }

    /// Writes one record, with all that are queued, and returns its length.
    pub(super) fn append(&mut self, record: &Record, refuses: bool) -> Result<u64, Error> {
        let queued = self.queue(record, refuses)?;
        self.flush();
        match queued.flushed.get() {
            Some(FlushOutcome {
                kept,
                failed: Some(error),
                ..
            }) if queued.place >= *kept => Err(error.clone()),
            _ => Ok(queued.bytes),
        }
    }

    /// Writes all that is queued at once, after any records that the chain needs first.
    pub(super) fn flush(&mut self) {
        if self.queue.records.is_empty() {
            return;
        }
        // Each write has an outcome of its own.
        let Queue {
            mut bytes,
            mut records,
            flushed,
        } = mem::take(&mut self.queue);
        let ready = self.prepare();
        let first = self.next_seq();
        let made = records.iter().map(|(at, _)| &bytes[at.clone()]);
        let failed = ready.and_then(|()| self.put(made, false)).err();
        let kept = self.next_seq() - first;
        for (at, refuses) in records.drain(..).take(kept as usize) {
            if refuses {
                self.refused.put(&bytes[at]);
            }
        }
        let _ = flushed.set(FlushOutcome {
            first,
            kept,
            failed,
        });
        bytes.clear();
        (self.queue.bytes, self.queue.records) = (bytes, records);
    }

    /// Ensures that all promised bytes will fit later, and that the log works now.
    pub(super) fn promise(&mut self, promised: u64) -> Result<(), Error> {
        if self.unsynced {
            return Err(Error::Unsynced);
        }
        if self.failed.is_some() {
            self.prepare()?;
        }
        self.sink.reserve(promised).map_err(Error::from_write)
    }

    /// The number of the next record.
    pub(super) fn next_seq(&self) -> u64 {
        self.head.map_or(0, |head| head.seq + 1)
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

    /// Syncs what was written, and frees the file, which another process may then write.
    pub(super) fn close(&mut self) {
        for file in self.sink.durable() {
            let _ = file.sync();
        }
        (self.closing, self.unsynced) = (true, true);
        self.sink.release();
    }

    /// Writes the records that the chain needs first, each in its own write.
    fn prepare(&mut self) -> Result<(), Error> {
        if self.unsynced {
            return Err(Error::Unsynced);
        }
        self.turn()?;
        if let Some(cause) = self.failed {
            let recovery = self.recovery(cause);
            self.put_own(&recovery, self.torn.is_some())?;
            (self.torn, self.failed, self.lost) = (None, None, 0);
        }
        if self.begins_file {
            let goes_on = self.own("continue");
            self.put_own(&goes_on, false)?;
            self.begins_file = false;
        }
        Ok(())
    }

    fn put_own(&mut self, record: &Record, behind_torn: bool) -> Result<(), Error> {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        self.put([&bytes[..]].into_iter(), behind_torn)
    }

    /// Seals records and writes them at once. If that fails, complete records are in the chain; the
    /// bytes after them are remembered as torn.
    fn put<'a>(
        &mut self,
        records: impl Iterator<Item = &'a [u8]>,
        behind_torn: bool,
    ) -> Result<(), Error> {
        let mut line = mem::take(&mut self.line);
        line.clear();
        if behind_torn {
            line.extend_from_slice(TORN_END);
        }
        let mut head = self.head;
        for record in records {
            head = Some(seal(&mut line, head, record));
        }
        let at = self.sink.position();
        let done = self.sink.append(&line);
        self.dirty = true;
        match &done {
            Ok(()) => self.head = head,
            Err(short) => self.tear(at, &line[..short.written]),
        }
        self.line = line;
        done.map_err(|short| Error::from_write(short.cause))
    }

    /// Takes note of a write that stopped after these bytes.
    fn tear(&mut self, mut at: u64, written: &[u8]) {
        self.failed.get_or_insert(Cause::Refused);
        for line in written.split_inclusive(|byte| *byte == b'\n') {
            match unseal(line) {
                Ok(link) => self.head = Some(link.head),
                Err(_) => self.torn.get_or_insert_with(|| Torn::at(at)).push(line),
            }
            at += line.len() as u64;
        }
    }

    /// The record that accounts for a failure.
    fn recovery(&self, cause: Cause) -> Record {
        Record {
            cause: Some(cause.as_str().into()),
            torn_at: self.torn.as_ref().map(|torn| torn.at),
            torn_bytes: self.torn.as_ref().map(|torn| torn.bytes),
            torn_sha256: self.torn.as_ref().map(Torn::sha256),
            lost: Some(self.lost),
            ..self.own("recover")
        }
    }

    /// Begins a new file if the old one is full or gone.
    ///
    /// If rotation by size fails, the old file stays in use. A file that was taken away must be
    /// replaced, unless it is back because its disk was mounted again.
    fn turn(&mut self) -> Result<(), Error> {
        self.moved = self.moved && self.sink.is_away();
        let sound = self.torn.is_none() && !self.begins_file;
        if !(self.moved || self.sink.is_due() && sound) {
            return Ok(());
        }
        match self.sink.turn(self.next_seq(), self.moved) {
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

    /// A record about the log itself: `start`, `resume`, `continue`, `recover` or `stop`.
    pub(super) fn own(&self, kind: &'static str) -> Record {
        Record {
            chain: Some(self.chain.clone()),
            version: Some(env!("CARGO_PKG_VERSION").into()),
            pid: Some(std::process::id()),
            ..Record::now(kind)
        }
    }
}

/// Room for the rest of a line: more than its braces, version, number, two hashes and line feed
/// need.
const FRAME_BYTES: usize = 256;
/// The most bytes that wait for a write.
const MOST_QUEUED: usize = 64 << 10;
