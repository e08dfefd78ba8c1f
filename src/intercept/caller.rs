//! Who is behind a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::evidence::{Held, HeldToken, Presented};
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
    pub token: Option<Arc<HeldToken>>,
    /// What its client presents, with each request in absolute-form, to show who it is.
    pub presented: Option<Presented>,
    /// The evidence that shows who it is, each as long as it is there.
    pub holds: Vec<Arc<dyn Held>>,
    /// Whether the evidence says no more that it is there.
    pub over: AtomicBool,
}

/// Who it is by other evidence is evidence too, which is there as long as a token counts.
impl Held for Caller {
    fn holds(&self) -> bool {
        !self.is_over()
    }
}

/// A caller that a listener does not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerRefused {
    /// Who it is, if any evidence says so.
    pub user: Option<User>,
    /// Why it is not taken.
    pub reason: ReasonCode,
    /// What is the matter with it, in words for the gateway's own record; empty for nothing more.
    pub cause: String,
}

impl CallerRefused {
    /// The listener does not take it, whoever it is.
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
    /// A caller that presents a token, beside what other evidence shows.
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
            holds: beside.into_iter().map(|one| one as Arc<dyn Held>).collect(),
            ..Self::default()
        }
    }

    /// The same caller inside a tunnel that it opened: who it is was shown there, and ends there.
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

    /// The id of the token that it presents, by which that can be revoked.
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
