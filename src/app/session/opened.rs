//! A session that was opened, and that no request reaches yet.

use std::sync::Arc;

use crate::app::session::recalled::RecalledSession;
use crate::intercept::SessionCa;
use crate::session::Session;

/// A session that was opened, and that no request reaches yet.
pub(crate) struct OpenedSession {
    pub(crate) session: Arc<Session>,
    pub(crate) ca: Arc<SessionCa>,
    pub(crate) kept: RecalledSession,
}

impl OpenedSession {
    /// The session and its CA.
    pub(crate) fn live(&self) -> (Arc<Session>, Arc<SessionCa>) {
        (self.session.clone(), self.ca.clone())
    }
}
