//! An export: a thread that sends the records of the log to one destination, in order.

use std::sync::Arc;
use std::thread::JoinHandle;

use gateway_audit::{Follower, Log};
use gateway_origin::{StoreClient, StoreWay};
use gateway_server::ExportCounts;
use tokio::sync::{oneshot, watch};

use super::position::{ExportPosition, Progress};
use super::sender::{ExportPhase, ExportSender};
use super::settings::ExportSettings;

/// An export that is prepared or under way. On drop, the records that remain have a few seconds.
pub struct Exporter {
    settings: ExportSettings,
    way: StoreWay,
    counts: Arc<ExportCounts>,
    /// Starts the thread's work. If the sender is dropped, the export never begins.
    go: Option<oneshot::Sender<Option<PreviousExport>>>,
    phase: watch::Sender<ExportPhase>,
    /// How far it came, once it has ended. The export that follows it takes this.
    reached: Option<oneshot::Receiver<Progress>>,
    thread: Option<JoinHandle<()>>,
}

/// The state that an export takes over from the previous one to the same destination.
struct PreviousExport {
    reached: oneshot::Receiver<Progress>,
    counts: Arc<ExportCounts>,
}

/// Why an export cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ExportFailure {
    /// The log cannot be followed.
    #[error(transparent)]
    Log(#[from] gateway_audit::Error),
    /// The system has no thread or no runtime for it.
    #[error(transparent)]
    Thread(#[from] std::io::Error),
    /// The connection to the server cannot be set up.
    #[error("the way to the server cannot be set up: {0}")]
    Client(String),
}

impl Exporter {
    /// Prepares to export the records written from now on: every step that can fail is done here,
    /// and nothing is sent yet. A log without a file is not exported. An export that resumes first
    /// sends what an earlier one to the same destination left unsent, and keeps its position beside
    /// the log.
    ///
    /// # Errors
    /// [`ExportFailure`] by cause.
    pub fn prepare(
        settings: ExportSettings,
        (log, resumes): (&Log, bool),
        way: StoreWay,
    ) -> Result<Option<Self>, ExportFailure> {
        let Some(path) = log.path() else {
            return Ok(None);
        };
        let follower = Follower::at_end(path)?;
        let last = log.head().map_or(Progress::Nothing, Progress::Record);
        let position = resumes.then(|| ExportPosition::of(path, &settings));
        let (phase, watched) = watch::channel(ExportPhase::Runs);
        let sending = ExportSender::new(settings.clone(), log, (follower, last), position, watched);
        let counts = sending.counts.clone();
        let (go, gone) = oneshot::channel();
        let (tell_reached, reached) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let for_thread = way.clone();
        let run = move || {
            let (runtime, client) = match client(&sending.settings, for_thread) {
                Ok(begun) => begun,
                Err(error) => return drop(tell.send(Err(error))),
            };
            let _ = tell.send(Ok(()));
            runtime.block_on(live(sending, client, gone, tell_reached));
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("export".to_owned());
        let thread = thread.spawn(run)?;
        let ended = |_| ExportFailure::Client("its thread ended".to_owned());
        told.recv().map_err(ended)??;
        Ok(Some(Self {
            settings,
            way,
            counts,
            go: Some(go),
            phase,
            reached: Some(reached),
            thread: Some(thread),
        }))
    }

    /// Begins to send. If `before` exports to the same destination, it finishes the request that is
    /// under way and ends, and this export continues from where it stopped.
    pub fn begin(&mut self, before: Option<&mut Self>) {
        let before = before.and_then(|before| {
            before.turn(ExportPhase::HandsOver);
            let (reached, counts) = (before.reached.take()?, before.counts.clone());
            Some(PreviousExport { reached, counts })
        });
        if let Some(before) = &before {
            self.counts = before.counts.clone();
        }
        if let Some(go) = self.go.take() {
            let _ = go.send(before);
        }
    }

    /// Begins the last few seconds of the export, without waiting for them.
    pub fn stop(&mut self) {
        drop(self.go.take());
        self.turn(ExportPhase::Ends);
    }

    /// Returns the counts for `/metrics`.
    pub fn counts(&self) -> Arc<ExportCounts> {
        self.counts.clone()
    }

    /// Whether the export has exactly these settings.
    pub fn does(&self, settings: &ExportSettings, way: &StoreWay) -> bool {
        (&self.settings, &self.way) == (settings, way)
    }

    /// Whether both exports send the same format to the same destination.
    pub fn is_as(&self, other: &Self) -> bool {
        self.settings.is_as(&other.settings)
    }

    /// Whether another export continues from where this one stopped.
    pub fn is_followed(&self) -> bool {
        self.reached.is_none()
    }

    /// Whether the thread has ended.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Joins the thread if it has ended.
    pub fn settle(&mut self) {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            let _ = thread.join();
        }
    }

    /// Leaves the phase [`ExportPhase::Runs`], once.
    fn turn(&self, to: ExportPhase) {
        self.phase.send_if_modified(|phase| {
            let runs = *phase == ExportPhase::Runs;
            if runs {
                *phase = to;
            }
            runs
        });
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

/// The runtime and the client that the thread of an export needs.
fn client(
    settings: &ExportSettings,
    way: StoreWay,
) -> Result<(tokio::runtime::Runtime, StoreClient), ExportFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let client = {
        let _entered = runtime.enter();
        let servers = vec![settings.server.clone()];
        StoreClient::new(servers, settings.roots.clone(), None, way)
    };
    let client = client.map_err(|error| ExportFailure::Client(gateway_server::chain(&error)))?;
    Ok((runtime, client))
}

/// Waits for the start, sends until the end, and reports how far the export came.
async fn live(
    mut sending: ExportSender,
    client: StoreClient,
    gone: oneshot::Receiver<Option<PreviousExport>>,
    tell: oneshot::Sender<Progress>,
) {
    let Ok(before) = gone.await else {
        return;
    };
    let mut handed = None;
    if let Some(before) = before {
        sending.counts = before.counts;
        handed = before.reached.await.ok();
    }
    sending.run(&client, handed).await;
    let _ = tell.send(sending.reached);
}
