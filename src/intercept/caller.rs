//! The caller of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gateway_names::{ReasonCode, User};

use super::evidence::{HeldToken, LiveEvidence, Presented};

/// The caller of a connection, as its evidence shows: a user, if any, and groups. Policy reads both
/// in addition to the session, which the evidence selects.
#[derive(Debug, Default)]
pub struct Caller {
    /// The user.
    pub user: Option<User>,
    /// The groups, in addition to those of the session.
    pub groups: Vec<Arc<str>>,
    /// The token that was presented. Policy does not read it: it narrows what policy allows.
    pub token: Option<Arc<HeldToken>>,
    /// The credentials that the client repeats with each request in absolute-form.
    pub presented: Option<Presented>,
    /// The evidence that shows the caller; the connection ends when any of it does.
    pub holds: Vec<Arc<dyn LiveEvidence>>,
    /// Whether the caller was ended, whatever the evidence.
    pub over: AtomicBool,
}

/// A caller that other evidence shows is evidence itself: a token counts only while it holds.
impl LiveEvidence for Caller {
    fn holds(&self) -> bool {
        !self.is_over()
    }
}

/// A caller that a listener refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerRefused {
    /// The user, if any evidence shows one.
    pub user: Option<User>,
    /// Why the caller is refused.
    pub reason: ReasonCode,
    /// The cause, in words for the gateway's own record; empty if the reason says it all.
    pub cause: String,
}

impl CallerRefused {
    /// Creates a refusal with the reason `CallerRefused`.
    #[must_use]
    pub fn of(user: Option<User>, cause: impl Into<String>) -> Self {
        Self {
            user,
            reason: ReasonCode::CallerRefused,
            cause: cause.into(),
        }
    }
}

impl Caller {
    /// Creates a caller from a token and the other evidence of its connection.
    #[must_use]
    pub fn with_token(
        (token, presented): (HeldToken, Presented),
        user: Option<User>,
        beside: Option<Arc<Self>>,
    ) -> Self {
        let shown = beside.as_deref();
        Self {
            user: user.or_else(|| shown?.user.clone()),
            groups: shown.map(|one| one.groups.clone()).unwrap_or_default(),
            token: Some(Arc::new(token)),
            presented: Some(presented),
            holds: beside.into_iter().map(|one| one as _).collect(),
            ..Self::default()
        }
    }

    /// Returns the same caller for a tunnel that it opened; it ends together with the outer caller.
    #[must_use]
    pub fn inside(outside: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self {
            user: outside.user.clone(),
            groups: outside.groups.clone(),
            token: outside.token.clone(),
            holds: vec![outside.clone()],
            ..Self::default()
        })
    }

    /// Returns the id by which the caller's token can be revoked.
    #[must_use]
    pub fn token_id(&self) -> Option<String> {
        Some(self.token.as_ref()?.id()?.to_string())
    }

    /// Whether any of its evidence has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.holds.iter().any(|one| !one.holds())
    }

    /// Ends every connection of this caller.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Returns the session's own groups together with those of its caller.
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
