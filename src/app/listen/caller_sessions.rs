//! Makes the sessions of callers, each at first sight.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::app::listen::publish::Publication;
use crate::app::{App, Failure};
use crate::gateway::{AskedSession, LivePair};
use crate::names::SessionId;

/// Where listeners ask for the sessions of callers.
pub(crate) struct CallerAsks {
    /// For listeners.
    pub(crate) asks: mpsc::Sender<AskedSession>,
    asked: parking_lot::Mutex<Option<mpsc::Receiver<AskedSession>>>,
}

impl Default for CallerAsks {
    fn default() -> Self {
        let (asks, asked) = mpsc::channel(WAITING);
        let asked = parking_lot::Mutex::new(Some(asked));
        Self { asks, asked }
    }
}

impl App {
    /// Finds or makes the sessions of callers, one after another, for ever.
    pub(crate) async fn serve_callers(self: Arc<Self>) {
        let Some(mut asked) = self.caller_asks.asked.lock().take() else {
            return;
        };
        while let Some(AskedSession { id, groups, answer }) = asked.recv().await {
            let made = self.session_of_caller(&id, &groups).await;
            let made = made.inspect_err(|failure| {
                tracing::warn!(session = %id, why = %failure, "a caller has no session");
            });
            // The connection may be gone.
            let _ = answer.send(made.ok());
        }
    }

    /// Returns the session of a caller, which may be over. A reload waits, so that the session has
    /// what the reload brings.
    async fn session_of_caller(
        &self,
        id: &SessionId,
        groups: &[String],
    ) -> Result<LivePair, Failure> {
        let latest = self.reloading.latest.lock().await;
        if let Some(live) = self.listening.session(id) {
            return Ok(live);
        }
        let config = &latest.read.config;
        for over in self.listening.over_most(config.sessions.most)? {
            self.listening.forget(&over);
            self.shared.sessions.leave(&over);
        }
        let snapshot = self.shared.current();
        let named = [(id, groups)];
        let mut opened = self.prepare_and_keep(&snapshot, config, &named).await?;
        let opened = opened.pop().ok_or_else(|| Failure::new("no session"))?;
        let live = opened.live();
        let (mut publication, logins) = (Publication::default(), &latest.read.resolved.logins[..]);
        publication.certificate(config, &live.0, &live.1)?;
        let given = (&**snapshot.credentials.bindings(), logins, logins);
        publication.phantoms(config, given, (&live.0, &live.0.phantoms()))?;
        publication.publish().into_iter().try_for_each(Err)?;
        self.enter(&opened);
        self.listening.gain(&opened);
        Ok(live)
    }
}

/// How many callers wait for their sessions. Further ones wait to ask.
const WAITING: usize = 64;
