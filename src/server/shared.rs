//! What every runtime thread shares.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use gateway_audit::Log;
use gateway_credential::RevokedSecrets;
use gateway_intercept::RevokedTokens;
use gateway_names::{ExchangeId, SecretLabel, SessionId};
use gateway_session::Sessions;
use gateway_spend::Ledger;
use gateway_token::PrefixId;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::callers::{ClientPages, RefusedCallers};
use super::captures::Captures;
use super::export_counts::ExportCounts;
use super::ids::Ids;
use super::metrics::Metrics;
use super::proposals::Proposals;
use super::recent::RecentRefusals;
use super::refusal_counts::RefusalCounts;
use super::snapshot::Snapshot;

/// Tells a person what a policy asks: its id, the question, and what is cancelled once nobody waits
/// for the answer.
pub type Notifier = Box<dyn Fn(ExchangeId, Value, CancellationToken) + Send + Sync>;

/// What every runtime thread shares.
pub struct SharedState {
    /// The sessions that may send requests.
    pub sessions: Sessions,
    current: ArcSwap<Snapshot>,
    changes: watch::Sender<()>,
    /// The audit log.
    pub log: Log,
    /// The source of exchange ids.
    pub ids: Ids,
    /// Counts what was refused.
    pub refused: RefusalCounts,
    /// Counts the callers that listeners refuse.
    pub refused_callers: RefusedCallers,
    /// The latest refusals, for the workloads' own pages.
    pub recent: RecentRefusals,
    /// What workloads propose to be allowed.
    pub proposals: Proposals,
    /// Keeps the logins that sessions make. Set where the program is assembled.
    pub captures: OnceLock<Arc<dyn Captures>>,
    /// Tells a person that a policy asks one. Set where the program is assembled, if it is
    /// configured.
    pub notify: OnceLock<Notifier>,
    /// What is left of each budget. Set with the state, if that outlasts the process.
    pub budgets: OnceLock<Arc<Ledger>>,
    /// Writes what clients need. Set where the program is assembled.
    pub pages: OnceLock<&'static dyn ClientPages>,
    /// The revoked tokens.
    pub tokens: Arc<RevokedTokens>,
    /// Counts events, for `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Counts the outcomes of exporting records, for each destination.
    pub exports: Mutex<Vec<Arc<ExportCounts>>>,
    /// How many connections are open.
    pub open: Arc<AtomicUsize>,
    /// How many listeners accept connections.
    pub listening: Arc<AtomicUsize>,
    /// Cancelled when the gateway stops: listeners close, and connections end once they are at
    /// rest.
    pub draining: CancellationToken,
}

impl SharedState {
    /// Forgets a session's refusals and proposals, and what it used up of budgets of its own.
    pub fn forget(&self, session: &SessionId) {
        if let Some(ledger) = self.budgets.get() {
            ledger.forget(session.as_str());
        }
        self.recent.forget(session);
        self.proposals.forget(session);
    }

    /// Creates the shared state, with the first generation of the configuration.
    #[must_use]
    pub fn new(first: Snapshot, log: Log, ids: Ids) -> Self {
        Self {
            sessions: Sessions::default(),
            current: ArcSwap::from_pointee(first),
            changes: watch::Sender::default(),
            log,
            ids,
            refused: RefusalCounts::default(),
            refused_callers: RefusedCallers::default(),
            recent: RecentRefusals::default(),
            proposals: Proposals::default(),
            captures: OnceLock::new(),
            notify: OnceLock::new(),
            budgets: OnceLock::new(),
            pages: OnceLock::new(),
            tokens: Arc::default(),
            metrics: Arc::default(),
            exports: Mutex::default(),
            open: Arc::default(),
            listening: Arc::default(),
            draining: CancellationToken::new(),
        }
    }

    /// Returns the generation in force. An exchange uses one from its beginning to its end.
    #[must_use]
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Like [`Self::current`], but for a short look: it does not touch the shared reference count.
    pub fn look(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// Puts the next generation in force. Every worker judges its exchanges again at once.
    pub fn replace(&self, next: Snapshot) {
        self.current.store(Arc::new(next));
        self.changes.send_replace(());
    }

    /// Tells every worker that listeners were replaced or closed, or that a session has a label.
    pub fn announce(&self) {
        self.changes.send_replace(());
    }

    /// Revokes the secret with this label, and ends the exchanges that use it. Returns how many
    /// connections to origins were severed.
    ///
    /// When this returns, no further byte of the secret leaves.
    pub fn revoke(&self, label: &SecretLabel) -> usize {
        let severed = self.current().credentials.revoke(label);
        self.changes.send_replace(());
        severed
    }

    /// Applies the revocations that hold for every gateway of this user, and undoes every other
    /// revocation.
    pub fn obey(&self, revoked: RevokedSecrets) -> usize {
        let (severed, is_new) = self.current().credentials.obey(revoked);
        // Called every second, nearly always without a change.
        if is_new {
            self.changes.send_replace(());
        }
        severed
    }

    /// Revokes tokens, and ends the exchanges that use them or tokens derived from them.
    pub fn revoke_tokens(&self, ids: &BTreeSet<PrefixId>) {
        if self.tokens.revoke(ids) {
            self.changes.send_replace(());
        }
    }

    /// Returns a receiver that is notified of each later generation, revocation and change of
    /// listeners. Several may be notified as one.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Records how many exchanges and callers were refused without a record of their own. Called
    /// once a second, and at the end.
    pub fn tell_suppressed(&self, is_end: bool) {
        self.sessions.tell_suppressed(&self.log);
        self.refused_callers.tell(&self.log, is_end);
    }
}
