//! Sends the records of the log to one destination.

use std::sync::Arc;
use std::time::Duration;

use gateway_audit::{Follower, Log, Record};
use gateway_credential::{HttpClient as _, StoreError, Stores};
use gateway_origin::StoreClient;
use gateway_server::ExportCounts;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Request, StatusCode};
use tokio::sync::watch;
use tokio::time::sleep;
use zeroize::Zeroizing;

use super::batch::{Batch, ExportRequest};
use super::position::{ExportPosition, Progress};
use super::settings::ExportSettings;

/// How long an export continues to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ExportPhase {
    /// Until the phase changes, including records yet to come.
    Runs,
    /// Only the records that exist, for a few seconds at most.
    Ends,
    /// Only the request that is under way. Another export sends the remaining records.
    HandsOver,
}

pub(super) struct ExportSender {
    pub(super) settings: ExportSettings,
    pub(super) counts: Arc<ExportCounts>,
    /// How far the export has come.
    pub(super) reached: Progress,
    stores: Stores,
    log: Log,
    follower: Follower,
    position: Option<ExportPosition>,
    phase: watch::Receiver<ExportPhase>,
    token: Option<HeaderValue>,
    pending: Option<Batch>,
    /// Whether the last attempt failed, which was logged.
    fails: bool,
    /// The number of the record after the last one, as of when the export was to end.
    ends_at: Option<u64>,
}

/// Why the server did not accept a request.
enum Refused {
    /// The server may accept it later.
    Yet(String),
    /// The server will never accept it.
    Ever(StatusCode),
}

impl ExportSender {
    /// Sends the records that the follower reads, unless an earlier export stopped before them.
    pub(super) fn new(
        settings: ExportSettings,
        log: &Log,
        (follower, reached): (Follower, Progress),
        position: Option<ExportPosition>,
        phase: watch::Receiver<ExportPhase>,
    ) -> Self {
        let authority = &settings.server.authority;
        let server = format!("{}:{}", authority.host.as_str(), authority.port);
        Self {
            stores: Stores::new(&settings.token),
            counts: Arc::new(ExportCounts::new(server, settings.format.name())),
            log: log.clone(),
            reached,
            follower,
            position,
            phase,
            token: None,
            pending: None,
            fails: false,
            ends_at: None,
            settings,
        }
    }

    /// Sends until the phase changes, and then for a few seconds more. `handed` is how far the
    /// previous export came.
    pub(super) async fn run(&mut self, client: &StoreClient, handed: Option<Progress>) {
        let kept = || self.position.as_ref()?.kept();
        if let Some(reached) = handed.or_else(kept) {
            self.reached = reached;
            if !self.resume().await {
                self.counts.begin(self.reached.next());
                return self.account();
            }
        }
        self.counts.begin(self.reached.next());
        self.keep_position();
        let mut phase = self.phase.clone();
        let given_up = async {
            let _ = phase.wait_for(|phase| *phase != ExportPhase::Runs).await;
            sleep(FLUSHED_WITHIN).await;
        };
        tokio::select! {
            () = self.work(client) => {}
            () = given_up => {}
        }
        self.account();
    }

    /// Moves to the position in the log that `reached` names, and retries while the log cannot be
    /// read. Returns `false` if the export was to end first.
    async fn resume(&mut self) -> bool {
        while let Err(error) = self.find_place() {
            self.note(&error.to_string());
            if !self.runs() {
                return false;
            }
            self.rest(LONGEST_PAUSE).await;
        }
        true
    }

    fn find_place(&mut self) -> Result<(), gateway_audit::Error> {
        let Some(path) = self.log.path() else {
            return Ok(());
        };
        if let Progress::Record(last) = self.reached {
            if let Some(follower) = Follower::behind(path, last)? {
                self.follower = follower;
                return Ok(());
            }
            let server = &self.counts.server;
            tracing::warn!(
                %server,
                "the log lacks the record that was sent last, so all of it is exported"
            );
        }
        self.follower = Follower::at_start(path)?;
        self.reached = Progress::Nothing;
        Ok(())
    }

    /// Logs how many records were not sent at the end, if no other export sends them.
    fn account(&self) {
        let left = self
            .counts
            .behind(self.ends_at.unwrap_or_else(|| end_of(&self.log)));
        if left > 0 && *self.phase.borrow() != ExportPhase::HandsOver {
            let server = &self.counts.server;
            tracing::error!(%server, records = left, "records were not exported before the end");
        }
    }

    /// Sends records as they are written, and the remaining ones at the end.
    async fn work(&mut self, client: &StoreClient) {
        let mut pause = SHORTEST_PAUSE;
        while self.runs() {
            if !self.gather() {
                self.rest(LOOKS_EVERY).await;
                continue;
            }
            match self.deliver(client).await {
                Ok(()) => pause = SHORTEST_PAUSE,
                Err(why) => {
                    self.note(&why);
                    self.rest(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        if *self.phase.borrow() == ExportPhase::Ends {
            self.ends_at = Some(end_of(&self.log));
            self.flush(client).await;
        }
    }

    fn runs(&self) -> bool {
        *self.phase.borrow() == ExportPhase::Runs
    }

    /// Waits for the pause, or until the phase changes.
    async fn rest(&mut self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            _ = self.phase.wait_for(|phase| *phase != ExportPhase::Runs) => {}
        }
    }

    /// Sends the remaining records, and gives up at the first failure.
    async fn flush(&mut self, client: &StoreClient) {
        while self.gather() {
            if let Err(why) = self.deliver(client).await {
                return self.note(&why);
            }
        }
    }

    /// Makes the next batch from one read of the log, 64 KiB at most, unless one is pending.
    /// Returns whether a batch is pending.
    fn gather(&mut self) -> bool {
        while self.pending.is_none() {
            // If the file cannot be read now, the next look tries again.
            let written = self.follower.next_lines().unwrap_or_default();
            if written.is_empty() {
                return false;
            }
            let lines = written.split(|byte| *byte == b'\n');
            let records = lines.filter_map(|line| serde_json::from_slice(line).ok());
            self.pending = Batch::of(&self.settings, &records.collect::<Vec<Record>>());
        }
        true
    }

    /// Sends the pending batch. Requests that the server accepted are not sent again. If the future
    /// is dropped, the batch is still pending.
    async fn deliver(&mut self, client: &StoreClient) -> Result<(), String> {
        while let Some(request) = self.next_request() {
            match self.send(client, request).await {
                Ok(()) => {}
                Err(Refused::Ever(status)) => self.mark_refused(status),
                Err(Refused::Yet(why)) => return Err(why),
            }
            if let Some(batch) = &mut self.pending {
                batch.requests.pop_front();
            }
        }
        let Some(batch) = self.pending.take() else {
            return Ok(());
        };
        let (records, last) = (batch.records, batch.last);
        self.reached = Progress::Record(last);
        self.keep_position();
        let server = &self.counts.server;
        match batch.refused {
            None => self.counts.sent(records, last.seq()),
            Some(status) => {
                self.counts.refused(records, last.seq());
                tracing::warn!(%server, records, %status, "the collector refused records for good");
            }
        }
        if std::mem::take(&mut self.fails) {
            tracing::warn!(%server, "records are exported again");
        }
        Ok(())
    }

    fn keep_position(&mut self) {
        if let (Some(position), Progress::Record(last)) = (&mut self.position, self.reached) {
            position.keep(last);
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

    async fn send(&mut self, client: &StoreClient, request: ExportRequest) -> Result<(), Refused> {
        let content = Zeroizing::new(request.content);
        let mut message = Request::post(&*request.path)
            .header(CONTENT_TYPE, request.media_type)
            .body(content)
            .map_err(|error| Refused::Yet(error.to_string()))?;
        if let Some(token) = self.token().await? {
            let field = self.settings.token_field.clone();
            let fields = message.headers_mut();
            fields.insert(field.unwrap_or(AUTHORIZATION), token);
        }
        let answer = client.send(&self.settings.server, message).await;
        let status = answer.map_err(|error| Refused::Yet(told(&error)))?.status;
        if status.is_success() {
            return Ok(());
        }
        if NEVER.contains(&status) {
            return Err(Refused::Ever(status));
        }
        // The token may have been replaced.
        self.token = None;
        Err(Refused::Yet(format!("it answered {status}")))
    }

    /// The value of the token's field, read when first needed and again after a failed request.
    async fn token(&mut self) -> Result<Option<HeaderValue>, Refused> {
        let (Some(from), None) = (&self.settings.token, &self.token) else {
            return Ok(self.token.clone());
        };
        let unusable = |why: String| Refused::Yet(format!("its token cannot be had: {why}"));
        let lease = self.stores.source(from).resolve(None).await;
        let lease = lease.map_err(|error| unusable(gateway_server::chain(&error)))?;
        let before = match self.settings.token_field {
            None => "Bearer ",
            Some(_) => "",
        };
        let value = lease.secret.own_field(before);
        let value = value.ok_or_else(|| unusable("it does not fit into a field".to_owned()))?;
        Ok(Some(self.token.insert(value).clone()))
    }

    /// Counts a failure, and logs the first of several.
    fn note(&mut self, why: &str) {
        self.counts.failed();
        if !std::mem::replace(&mut self.fails, true) {
            let server = &self.counts.server;
            tracing::warn!(%server, why, "records are not exported for now; they wait in the log");
        }
    }
}

/// The number that the next record of the log will have.
fn end_of(log: &Log) -> u64 {
    log.head().map_or(0, |head| head.seq() + 1)
}

fn told(error: &StoreError) -> String {
    match error {
        StoreError::TimedOut(within) => format!("no answer within {}s", within.as_secs()),
        StoreError::NotConnected(why) | StoreError::BrokenOff(why) => why.to_string(),
        other => other.to_string(),
    }
}

/// The statuses after which the same request must not be sent again. Other failures may pass, such
/// as a missing path while the collector starts, or a token that is replaced.
const NEVER: [StatusCode; 4] = [
    StatusCode::BAD_REQUEST,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    StatusCode::UNPROCESSABLE_ENTITY,
];
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// The pause after a failure: at first, and at most.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the export waits for the collector at the end.
const FLUSHED_WITHIN: Duration = Duration::from_secs(3);
