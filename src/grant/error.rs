//! The error that tells an operator why a command is refused.

use std::path::Path;

use gateway_files::BadFile;
use gateway_server::chain;
use http::StatusCode;

/// Why the gateway refuses an operator's command.
#[derive(Clone, Debug)]
pub struct ControlRefusal {
    /// The status of the answer on the control socket.
    pub status: StatusCode,
    /// What happened.
    pub what: String,
    /// Why.
    pub why: Option<String>,
    /// What to do next.
    pub next: Option<String>,
}

impl ControlRefusal {
    /// A refusal with this status.
    pub fn new(status: StatusCode, what: impl Into<String>) -> Self {
        Self {
            status,
            what: what.into(),
            why: None,
            next: None,
        }
    }

    /// Adds the reason.
    #[must_use]
    pub fn because(self, why: impl Into<String>) -> Self {
        let why = Some(why.into());
        Self { why, ..self }
    }

    /// Adds the next step.
    #[must_use]
    pub fn next(self, next: impl Into<String>) -> Self {
        let next = Some(next.into());
        Self { next, ..self }
    }

    pub(super) fn unavailable(what: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, what)
    }

    pub(super) fn conflict(what: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, what)
    }

    pub(super) fn unkept(error: &dyn std::error::Error) -> Self {
        Self::unavailable("the granted rules cannot be kept").because(chain(error))
    }

    pub(super) fn unread(path: &Path, unfit: &BadFile) -> Self {
        let what = format!("the granted rules in {} cannot be read", path.display());
        let next = unfit.remedy(path);
        Self::unavailable(what).because(chain(unfit)).next(next)
    }
}
