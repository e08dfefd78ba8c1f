//! A session that was opened, and that no request reaches yet.

use std::sync::Arc;

use super::kept::RecalledSession;
use crate::intercept::SessionCa;
use crate::session::Session;

/// A session that was opened, and that no request reaches yet.
pub(super) struct OpenedSession {
    pub(super) session: Arc<Session>,
    pub(super) ca: Arc<SessionCa>,
    pub(super) kept: RecalledSession,
}

impl OpenedSession {
    /// The session and its CA.
    pub(super) fn live(&self) -> (Arc<Session>, Arc<SessionCa>) {
        (self.session.clone(), self.ca.clone())
    }
}
