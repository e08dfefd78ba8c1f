//! Sends the records of the log to one destination, on a thread of its own.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Request, StatusCode};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use super::batch::{Batch, ExportRequest};
use super::position::ExportPosition;
use super::settings::ExportSettings;
use crate::audit::{Follower, Log, Record};
use crate::credential::{HttpClient as _, StoreError, Stores};
use crate::gateway::ExportCounts;
use crate::origin::StoreClient;
use crate::origin::resolve::ResolverSettings;

/// An export under way. When this is dropped, what is still to be sent has a few seconds.
pub struct Exporter {
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

/// Why an export cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum NotExported {
    /// The log cannot be followed.
    #[error(transparent)]
    Log(#[from] crate::audit::Error),
    /// The system has no thread or no runtime for it.
    #[error(transparent)]
    Thread(#[from] std::io::Error),
    /// The way to the server cannot be set up.
    #[error("the way to the server cannot be set up: {0}")]
    Client(String),
}

impl Exporter {
    /// Exports what is written to the log from now on. Counts for `/metrics` come with it. A log
    /// without a file is not exported. If it resumes, what an earlier export to the same place left
    /// unsent comes first, and how far it comes is kept beside the log.
    ///
    /// # Errors
    /// [`NotExported`] by cause.
    pub fn start(
        settings: ExportSettings,
        (log, resumes): (&Log, bool),
        resolver: ResolverSettings,
    ) -> Result<Option<(Self, Arc<ExportCounts>)>, NotExported> {
        let Some(path) = log.path() else {
            return Ok(None);
        };
        let authority = &settings.server.authority;
        let server = format!("{}:{}", authority.host.as_str(), authority.port);
        let position = resumes.then(|| ExportPosition::of(path, &settings));
        let (follower, next) = begin_at(log, path, position.as_ref())?;
        let counts = Arc::new(ExportCounts::new(server, next));
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let sending = Sending {
            stores: Stores::new(&settings.token),
            follower,
            next,
            position,
            log: log.clone(),
            counts: counts.clone(),
            token: None,
            pending: None,
            fails: false,
            settings,
        };
        let run = move || {
            let begun = sending.begin(resolver);
            let (runtime, sending, client) = match begun {
                Ok(begun) => begun,
                Err(error) => return drop(tell.send(Err(error))),
            };
            let _ = tell.send(Ok(()));
            runtime.block_on(sending.run(client, stopped));
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("export".to_owned());
        let thread = thread.spawn(run)?;
        let gone = |_| NotExported::Client("its thread ended".to_owned());
        told.recv().map_err(gone)??;
        let exporter = Self {
            stop: Some(stop),
            thread: Some(thread),
        };
        Ok(Some((exporter, counts)))
    }

    /// Begins its last few seconds, without waiting for them.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Begun = (tokio::runtime::Runtime, Sending, StoreClient);

struct Sending {
    settings: ExportSettings,
    stores: Stores,
    log: Log,
    follower: Follower,
    /// The number of the first record to send.
    next: u64,
    position: Option<ExportPosition>,
    counts: Arc<ExportCounts>,
    token: Option<HeaderValue>,
    pending: Option<Batch>,
    /// Whether the last attempt failed, which was told.
    fails: bool,
}

/// Why a request was not taken.
enum Untaken {
    /// It may be later.
    Yet(String),
    /// It never will be.
    Ever(StatusCode),
}

impl Sending {
    fn begin(self, resolver: ResolverSettings) -> Result<Begun, NotExported> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = {
            let _entered = runtime.enter();
            let (servers, roots) = (vec![self.settings.server.clone()], &self.settings.roots);
            StoreClient::new(servers, roots.clone(), None, resolver)
        };
        let client = client.map_err(|error| NotExported::Client(crate::gateway::chain(&error)))?;
        Ok((runtime, self, client))
    }

    async fn run(mut self, client: StoreClient, stopped: oneshot::Receiver<Infallible>) {
        self.keep_position(self.next);
        tokio::select! {
            () = self.work(&client) => {}
            _ = stopped => {}
        }
        // A request that was cut off is sent again: a record may arrive twice, and none is missed.
        let _ = timeout(FLUSHED_WITHIN, self.flush(&client)).await;
        let next = self.log.head().map_or(0, |head| head.seq() + 1);
        let left = self.counts.behind(next);
        if left > 0 {
            let server = &self.counts.server;
            tracing::error!(%server, records = left, "records were not exported before the end");
        }
    }

    /// Sends what is written, for ever.
    async fn work(&mut self, client: &StoreClient) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            if !self.gather() {
                sleep(LOOKS_EVERY).await;
                continue;
            }
            match self.deliver(client).await {
                Ok(()) => pause = SHORTEST_PAUSE,
                Err(why) => {
                    self.note(&why);
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Sends what there is, and gives up at the first failure.
    async fn flush(&mut self, client: &StoreClient) {
        while self.gather() {
            if let Err(why) = self.deliver(client).await {
                return self.note(&why);
            }
        }
    }

    /// Makes the next batch of what one reading of the log gives, 64 KiB at most, unless one is
    /// pending. Returns whether there is one.
    fn gather(&mut self) -> bool {
        while self.pending.is_none() {
            // If the file cannot be read now, the next look tries again.
            let written = self.follower.next_lines().unwrap_or_default();
            if written.is_empty() {
                return false;
            }
            let lines = written.split(|byte| *byte == b'\n');
            let records = lines.filter_map(|line| serde_json::from_slice(line).ok());
            let records = records.filter(|record: &Record| record.seq >= self.next);
            self.pending = Batch::of(&self.settings, &records.collect::<Vec<Record>>());
        }
        true
    }

    /// Sends the pending batch. Its requests that were taken are not sent again. If the future is
    /// dropped, the batch is still pending.
    async fn deliver(&mut self, client: &StoreClient) -> Result<(), String> {
        while let Some(request) = self.next_request() {
            match self.send(client, request).await {
                Ok(()) => {}
                Err(Untaken::Ever(status)) => self.mark_refused(status),
                Err(Untaken::Yet(why)) => return Err(why),
            }
            if let Some(batch) = &mut self.pending {
                batch.requests.pop_front();
            }
        }
        let Some(batch) = self.pending.take() else {
            return Ok(());
        };
        let (records, last) = (batch.records, batch.last);
        self.keep_position(last + 1);
        let server = &self.counts.server;
        match batch.refused {
            None => self.counts.sent(records, last),
            Some(status) => {
                self.counts.refused(records, last);
                tracing::warn!(%server, records, %status, "the collector refused records for good");
            }
        }
        if std::mem::take(&mut self.fails) {
            tracing::warn!(%server, "records are exported again");
        }
        Ok(())
    }

    fn keep_position(&mut self, next: u64) {
        if let Some(position) = &mut self.position {
            position.keep(next);
        }
    }

    fn next_request(&self) -> Option<ExportRequest> {
        self.pending.as_ref()?.requests.front().cloned()
    }

    fn mark_refused(&mut self, status: StatusCode) {
        if let Some(batch) = &mut self.pending {
            batch.refused = Some(status);
        }
    }

    async fn send(&mut self, client: &StoreClient, request: ExportRequest) -> Result<(), Untaken> {
        let content = Zeroizing::new(request.content);
        let mut message = Request::post(&*request.path)
            .header(CONTENT_TYPE, request.media_type)
            .body(content)
            .map_err(|error| Untaken::Yet(error.to_string()))?;
        if let Some(token) = self.token().await? {
            let field = self.settings.token_field.clone();
            let fields = message.headers_mut();
            fields.insert(field.unwrap_or(AUTHORIZATION), token);
        }
        let answer = client.send(&self.settings.server, message).await;
        let status = answer.map_err(|error| Untaken::Yet(told(&error)))?.status;
        if status.is_success() {
            return Ok(());
        }
        if NEVER.contains(&status) {
            return Err(Untaken::Ever(status));
        }
        // The token may have been replaced.
        self.token = None;
        Err(Untaken::Yet(format!("it answered {status}")))
    }

    /// The value of the token's field, read when it is first needed and after a refusal.
    async fn token(&mut self) -> Result<Option<HeaderValue>, Untaken> {
        let (Some(from), None) = (&self.settings.token, &self.token) else {
            return Ok(self.token.clone());
        };
        let unusable = |why: String| Untaken::Yet(format!("its token cannot be had: {why}"));
        let lease = self.stores.source(from).resolve(None).await;
        let lease = lease.map_err(|error| unusable(crate::gateway::chain(&error)))?;
        let before = match self.settings.token_field {
            None => "Bearer ",
            Some(_) => "",
        };
        let value = lease.secret.own_field(before);
        let value = value.ok_or_else(|| unusable("it does not fit into a field".to_owned()))?;
        Ok(Some(self.token.insert(value).clone()))
    }

    /// Counts a failure, and tells the first of several.
    fn note(&mut self, why: &str) {
        self.counts.failed();
        if !std::mem::replace(&mut self.fails, true) {
            let server = &self.counts.server;
            tracing::warn!(%server, why, "records are not exported for now; they wait in the log");
        }
    }
}

/// Where in the log an export begins, and with which record.
fn begin_at(
    log: &Log,
    path: &Path,
    position: Option<&ExportPosition>,
) -> Result<(Follower, u64), crate::audit::Error> {
    let end = log.head().map_or(0, |head| head.seq() + 1);
    match position.and_then(ExportPosition::kept) {
        None => Ok((Follower::at_end(path)?, end)),
        // One beyond the end belongs to a log that is gone.
        Some(next) => {
            let next = if next <= end { next } else { 0 };
            Ok((Follower::at_record(path, next)?, next))
        }
    }
}

fn told(error: &StoreError) -> String {
    match error {
        StoreError::TimedOut(within) => format!("no answer within {}s", within.as_secs()),
        StoreError::NotConnected(why) | StoreError::BrokenOff(why) => why.to_string(),
        other => other.to_string(),
    }
}

/// The statuses after which the same request must not be sent again. Others may pass, such as a
/// missing path while the collector starts, or a token that is replaced.
const NEVER: [StatusCode; 4] = [
    StatusCode::BAD_REQUEST,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    StatusCode::UNPROCESSABLE_ENTITY,
];
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// How long to wait after a failure: at first, and at most.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the end waits for a collector.
const FLUSHED_WITHIN: Duration = Duration::from_secs(3);
