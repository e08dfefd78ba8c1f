//! The log: opened once, shared by all threads, closed when the last handle is dropped.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::watch;

use super::chain::ChainHead;
use super::error::Error;
use super::file::LogFile;
use super::record::{Record, Word};
use super::refusals::{RefusalStop, Refusals};
use super::scan::Scan;
use super::share::{Allowance, FreeSpace, Usage};
use super::shared::{Durability, LogState, WriteSettings, keep_synced};
use super::sink::Sink;
use super::sync_state::SyncState;
use super::texts::show;
use super::writer::{FlushOutcome, QueuedRecord, Writer};
use gateway_names::{ExchangeId, ReasonCode, SessionId, User};

/// Where the log is and how durable it is: the audit section of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The file. Its directory is created with mode 0700 if missing.
    pub path: PathBuf,
    /// When a record must survive a power loss. Default: `batch`.
    pub sync: Durability,
    /// The size in bytes at which the next record begins a new file. Default: 256 MiB; minimum: 64
    /// KiB.
    pub rotate_bytes: u64,
    /// How much one session may write. Default: a burst of 256 MiB, then 256 KiB a second.
    pub allowance: Allowance,
}

/// An event that is recorded but is not an exchange: a refused question, a reload, a revocation.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// What happened, in the words of `docs/audit.md`.
    pub name: &'static str,
    /// The session that it happened to.
    pub session: Option<&'a SessionId>,
    /// What it concerned: a host or a credential's name; never a secret, a phantom or content.
    pub subject: &'a [u8],
    /// The reason code, if something was refused.
    pub reason: Option<&'static str>,
    /// How many such events this record stands for.
    pub count: u64,
}

/// Callers that a listener refused for the same cause as an earlier one.
#[derive(Clone, Copy, Debug)]
pub struct RepeatedRefusals<'a> {
    /// The exchange of the earlier caller, which has a record of its own.
    pub first: ExchangeId,
    /// How they connected.
    pub entry: &'static str,
    /// The address that they connected from.
    pub address: Option<IpAddr>,
    /// Their user, if other evidence names one.
    pub user: Option<&'a User>,
    /// The host and port that the last caller requested.
    pub asked: Option<(&'a str, u16)>,
    /// The reason code.
    pub reason: ReasonCode,
    /// The cause, in the gateway's own words.
    pub cause: &'a str,
    /// How many callers these are.
    pub count: u64,
}

/// Chains and writes records. Cheap to clone: all clones share one log.
#[derive(Clone)]
pub struct Log(Arc<Handle>);

struct Handle {
    /// The file; `None` in a test's memory.
    path: Option<PathBuf>,
    shared: Arc<LogState>,
}

impl Settings {
    /// The default settings for a log at `path`.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            sync: Durability::default(),
            rotate_bytes: 256 << 20,
            allowance: Allowance::default(),
        }
    }
}

impl Log {
    /// Opens the file, records a torn end with a `recover` record, and continues the chain.
    ///
    /// # Errors
    /// Any cause that prevents the log from keeping records reliably; see [`Error`].
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let (place, past) = LogFile::open(
            &settings.path,
            settings.rotate_bytes.max(LEAST_ROTATE_BYTES),
        )?;
        let disk = FreeSpace::of(Some(place.directory()));
        Self::begin(
            (Some(settings.path.clone()), Box::new(place)),
            past,
            settings.sync,
            (settings.allowance, disk),
        )
    }

    /// Changes how durable records are, the size of files, and how much one session may write. The
    /// path stays.
    pub fn change(&self, settings: &Settings) {
        let shared = &self.0.shared;
        *shared.promise.write() = WriteSettings {
            sync: settings.sync,
            allowance: settings.allowance,
        };
        let rotate_bytes = settings.rotate_bytes.max(LEAST_ROTATE_BYTES);
        shared.lock().sink.rotate_at(rotate_bytes);
    }

    /// The file that it appends to; `None` for a test's log in memory.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Writes the log's last record. When this returns, it is on the disk, the file is free, and
    /// nothing more is written. Otherwise the last handle does so when it is dropped.
    pub fn close(&self) {
        self.0.close();
    }

    /// The last record written. With a copy kept elsewhere, a later truncation of the log is
    /// detected.
    ///
    /// `None` only if the chain's first record has not been written yet.
    pub fn head(&self) -> Option<ChainHead> {
        self.0.shared.lock().head
    }

    /// Whether the log takes records now.
    pub fn works(&self) -> bool {
        self.promise(1).map(|()| self.release(1)).is_ok()
    }

    /// How many written records would not survive a loss of power now.
    pub fn backlog(&self) -> u64 {
        let next = self.0.shared.lock().next_seq();
        self.0.shared.lasting.borrow().behind(next)
    }

    /// Writes a record about an event that is not an exchange.
    ///
    /// Does not wait for the disk; the next sync includes the record.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`], [`Error::Unsynced`]: the record was not written.
    pub fn event(&self, event: Event<'_>) -> Result<(), Error> {
        let subject = &event.subject[..event.subject.len().min(MAX_SUBJECT_BYTES)];
        let mut subject = String::from_utf8_lossy(subject).into();
        show(&mut subject, MAX_SUBJECT_BYTES, None);
        let record = Record {
            name: Some(event.name.into()),
            session: event.session.map(|session| session.as_str().into()),
            subject: Some(subject),
            reason: event.reason.map(Word::Borrowed),
            count: Some(event.count),
            ..Record::now("event")
        };
        self.append(&record, event.reason.is_some()).map(drop)
    }

    /// Writes a record of callers that were refused like an earlier one.
    ///
    /// # Errors
    /// As [`Log::event`].
    pub fn refused_again(&self, of: RepeatedRefusals<'_>) -> Result<(), Error> {
        let record = Record {
            id: Some(of.first.to_string().into()),
            entry: Some(of.entry.into()),
            client: of.address.map(|address| SocketAddr::new(address, 0)),
            user: of.user.map(|user| user.as_str().into()),
            host: of.asked.map(|(host, _)| host.into()),
            port: of.asked.map(|(_, port)| port),
            reason: Some(of.reason.as_str().into()),
            blame: Some(of.reason.blame().as_str().into()),
            cause: (!of.cause.is_empty()).then(|| of.cause.to_owned().into()),
            count: Some(of.count),
            ..Record::now("refused_caller")
        };
        self.append(&record, true).map(drop)
    }

    /// Whether a session may write one more record.
    pub(super) fn admit(&self, account: &Usage, now: Instant) -> Result<(), Error> {
        let shared = &self.0.shared;
        account.admit(shared.promise.read().allowance, &shared.disk, now)
    }

    /// Charges a session for written bytes.
    pub(super) fn charge(&self, account: &Usage, bytes: u64) {
        account.charge(bytes, &self.0.shared.disk);
    }

    /// Records how many of a session's exchanges were refused without a record since the last call,
    /// if any.
    ///
    /// Call it once a second and at the end. The gateway itself writes these records, so a session
    /// cannot cause more of them.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`], [`Error::Unsynced`]: the count is kept for the next call.
    pub fn tell_suppressed(&self, session: &SessionId, account: &Usage) -> Result<(), Error> {
        let count = account.take_suppressed();
        if count == 0 {
            return Ok(());
        }
        let event = Event {
            name: "suppressed",
            session: Some(session),
            subject: b"exchanges",
            reason: Some(ReasonCode::AuditBudget.as_str()),
            count,
        };
        self.event(event).inspect_err(|_| account.suppress(count))
    }

    /// The refusals that are written from now on, and a handle that ends the wait for them. `None`
    /// on a second call.
    #[must_use]
    pub fn refusals(&self) -> Option<(Refusals, RefusalStop)> {
        self.0.shared.lock().refused.open()
    }

    /// Adds a record to the next write. [`Log::flushed`] returns the outcome.
    pub(super) fn queue(&self, record: &Record, refuses: bool) -> Result<QueuedRecord, Error> {
        self.0.shared.with(|writer| writer.queue(record, refuses))
    }

    /// The outcome of a queued record. If it is not written yet, writes all queued records.
    pub(super) fn flushed<'a>(&self, queued: &'a QueuedRecord) -> &'a FlushOutcome {
        if queued.flushed.get().is_none() {
            self.0.shared.with(Writer::flush);
        }
        queued.flushed.get().expect("a write tells its outcome")
    }

    /// Writes one record, with all that are queued, and returns its length.
    pub(super) fn append(&self, record: &Record, refuses: bool) -> Result<u64, Error> {
        self.0.shared.with(|writer| writer.append(record, refuses))
    }

    /// A reference that an exchange holds until it has its record. If others hold one too, their
    /// records can be written together.
    pub(super) fn unrecorded(&self) -> Arc<()> {
        self.0.shared.unrecorded.clone()
    }

    /// Waits until the record `seq` survives a power loss, if the settings require that before an
    /// answer.
    pub(super) async fn settle(&self, seq: u64) -> Result<(), Error> {
        if self.0.shared.promise.read().sync == Durability::Batch {
            return Ok(());
        }
        let mut lasting = self.0.shared.lasting.subscribe();
        match lasting.wait_for(|lasting| lasting.of(seq).is_some()).await {
            Ok(lasting) if lasting.of(seq) == Some(true) => Ok(()),
            _ => Err(Error::Unsynced),
        }
    }

    /// Reserves this many bytes for later, and checks that the log works now. [`Log::release`]
    /// gives them back.
    pub(super) fn promise(&self, bytes: u64) -> Result<(), Error> {
        let shared = &self.0.shared;
        let promised = shared.promised.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if promised <= shared.room.load(Ordering::SeqCst) {
            return Ok(());
        }
        let done = shared.with(|writer| writer.promise(promised));
        done.inspect_err(|_| self.release(bytes))
    }

    pub(super) fn release(&self, bytes: u64) {
        self.0.shared.promised.fetch_sub(bytes, Ordering::SeqCst);
    }

    pub(super) fn lose(&self) {
        self.0.shared.with(Writer::lose);
    }

    pub(super) fn begin(
        (path, sink): (Option<PathBuf>, Box<dyn Sink>),
        (past, ended_elsewhere): (Scan, bool),
        sync: Durability,
        (allowance, disk): (Allowance, FreeSpace),
    ) -> Result<Self, Error> {
        let chain = past.chain.map_or_else(random_id, Ok)?;
        let torn = past.torn.is_some();
        let kind = match past.head {
            None if !torn => "start",
            _ if ended_elsewhere => "continue",
            _ => "resume",
        };
        let writer = Writer::new(sink, chain, past.head, past.torn);
        let (lasting, _) = watch::channel(SyncState::default());
        let shared = Arc::new(LogState {
            writer: Mutex::new(writer),
            promised: AtomicU64::new(0),
            room: AtomicU64::new(0),
            wake: Condvar::new(),
            syncing: Mutex::new(()),
            lasting,
            promise: RwLock::new(WriteSettings { sync, allowance }),
            disk,
            unrecorded: Arc::default(),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("audit-sync".to_owned());
        thread
            .spawn(move || keep_synced(&theirs))
            .map_err(|error| Error::Start(error.into()))?;
        let log = Self(Arc::new(Handle { path, shared }));
        log.0
            .shared
            .with(|writer| writer.append(&writer.own(kind), false))?;
        Ok(log)
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("head", &self.head())
            .finish_non_exhaustive()
    }
}

impl Handle {
    /// Best effort: without this record the chain is still valid, but shows that the log was not
    /// closed properly.
    fn close(&self) {
        self.shared.with(|writer| {
            if !writer.closing {
                let _ = writer.append(&writer.own("stop"), false);
                // A sync under way may be of files that were rotated.
                let _turn = self.shared.syncing.lock();
                writer.close();
            }
        });
        self.shared.wake.notify_one();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

fn random_id() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|source| Error::Start(io::Error::other(source.to_string()).into()))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

const LEAST_ROTATE_BYTES: u64 = 64 << 10;
const MAX_SUBJECT_BYTES: usize = 1024;
