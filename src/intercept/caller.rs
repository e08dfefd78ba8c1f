//! Who is behind a connection.

use std::sync::Arc;

use super::evidence::{HeldCertificate, HeldToken};
use crate::names::{ReasonCode, User};

/// Who is behind a connection, as a kind of evidence shows it: a user or none, and groups. Policy
/// reads both beside the session, and the evidence selects the session.
#[derive(Debug, Default)]
pub struct Caller {
    /// The user.
    pub user: Option<User>,
    /// The groups, beside those of the session.
    pub groups: Vec<Arc<str>>,
    /// The token that was presented. No policy reads it: it narrows what policy allows.
    pub token: Option<HeldToken>,
    /// The certificate that shows who it is.
    pub certificate: Option<Arc<HeldCertificate>>,
}

/// A caller that a listener does not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerRefused {
    /// Who it is, if any evidence says so.
    pub user: Option<User>,
    /// Why it is not taken.
    pub reason: ReasonCode,
    /// What is wrong with the evidence, for the gateway's own record; empty if the reason says it.
    pub cause: &'static str,
}

impl CallerRefused {
    /// No evidence is there.
    #[must_use]
    pub fn unseen() -> Self {
        Self::because("")
    }

    /// The evidence that is there shows nobody.
    #[must_use]
    pub fn because(cause: &'static str) -> Self {
        Self {
            user: None,
            reason: ReasonCode::CallerRefused,
            cause,
        }
    }
}

impl Caller {
    /// The session's own groups, and those of its caller.
    #[must_use]
    pub fn with_groups(caller: Option<&Self>, own: Arc<[Arc<str>]>) -> Arc<[Arc<str>]> {
        match caller {
            Some(caller) if !caller.groups.is_empty() => {
                own.iter().chain(&caller.groups).cloned().collect()
            }
            _ => own,
        }
    }
}
