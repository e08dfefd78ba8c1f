//! The gateway that the page shows, and what the page's calls share.

use std::sync::Arc;

use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::app::{Context as _, Failure};
use crate::cli::console::door::{Door, random};
use crate::cli::console::feed::Feed;
use crate::cli::operate::gateways::{ChosenGateway, Gateway};

/// What the page's calls share.
pub(super) struct Console {
    pub(super) door: Door,
    /// The gateway that is shown; `None` while none runs.
    shown: Mutex<Option<Shown>>,
    pub(super) feed: Mutex<Feed>,
    /// The permits for pages that follow what happens.
    pub(super) streams: Arc<Semaphore>,
}

/// A running gateway, as a page shows it.
#[derive(Clone)]
pub(super) struct Shown {
    pub(super) gateway: Arc<Gateway>,
    /// What every form of the page repeats. Another gateway, or the same one started anew, has
    /// another, so that no older page acts on it.
    pub(super) form_token: Arc<str>,
}

impl Console {
    pub(super) fn new(door: Door) -> Self {
        Self {
            door,
            shown: Mutex::default(),
            feed: Mutex::default(),
            streams: Arc::new(Semaphore::new(STREAMS)),
        }
    }

    /// Shows a running gateway from now on. Returns its new records.
    pub(super) async fn show(&self, chosen: &ChosenGateway) -> Result<Incoming, Failure> {
        let gateway = Arc::new(chosen.one()?);
        // The stream begins before the past is read, so that no record is missed.
        let records = gateway.follow().await?;
        let reads = gateway.clone();
        let past = tokio::task::spawn_blocking(move || Feed::past(&reads)).await;
        let past = past.context("the audit log was not read")??;
        *self.feed.lock() = past;
        let form_token = random()?.into();
        *self.shown.lock() = Some(Shown {
            gateway,
            form_token,
        });
        Ok(records)
    }

    /// Returns the gateway that is shown, if it runs.
    pub(super) fn shown(&self) -> Option<Shown> {
        self.shown.lock().clone()
    }

    /// Shows no gateway, since that one has ended. Returns it.
    pub(super) fn hide(&self) -> Option<Shown> {
        self.shown.lock().take()
    }
}

/// How many pages follow what happens at a time.
const STREAMS: usize = 16;
