//! Creates the session of each caller on its first connection, and opens sessions that operators
//! created at gateways that share the state.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::listen::publish::Publication;
use crate::{App, Failure, Owner, SessionIdentity};
use gateway_config::{Config, ListenerSession};
use gateway_credential::login::Login;
use gateway_intercept::Caller;
use gateway_names::SessionId;
use gateway_server::LivePair;
use gateway_session::{EndReason, Session};
use gateway_state::SessionRecord;

impl App {
    /// Finds or creates the sessions of callers, one after another, for ever.
    pub async fn serve_callers(self: Arc<Self>) {
        let Some(mut asked) = self.listening.asks().asked() else {
            return;
        };
        let mut told = Instant::now();
        while let Some(asked) = asked.recv().await {
            let made = match &asked.caller {
                Some(caller) => self.session_of_caller(&asked.id, caller).await,
                None => self.learn_session(&asked.id).await,
            };
            let made = made.unwrap_or_else(|failure| {
                // A caller without a session may ask again at once, and often.
                if told <= Instant::now() {
                    told = Instant::now() + Duration::from_secs(1);
                    tracing::warn!(session = %asked.id, why = %failure, "a caller has no session");
                }
                None
            });
            // The connection may be gone.
            let _ = asked.answer.send(made);
        }
    }

    /// Forgets sessions that are over until there is room for one more. Returns whether there is.
    ///
    /// # Errors
    /// Returns a [`Failure`] if a record cannot be read.
    pub async fn makes_room(&self, most: usize) -> Result<bool, Failure> {
        let over = self.listening.over_most(most);
        for over in over.iter().flatten() {
            if self.stays_over(over).await? {
                self.forget(over);
            }
        }
        Ok(over.is_some())
    }

    /// Whether a session is over for good. If an operator ended it, its record must say so, too.
    async fn stays_over(&self, over: &Session) -> Result<bool, Failure> {
        if !matches!(over.ended(), Some(EndReason::Operator | EndReason::ForGood)) {
            return Ok(true);
        }
        let record = self.keeper().await?.recall(over.id()).await?.record;
        let is_over = |known: SessionRecord| known.ended.is_some() && !known.was_idle;
        Ok(record.is_none_or(|known| known.before > over.before() || is_over(known)))
    }

    /// Forgets a session that is over. The next of its name inherits nothing of a used-up one.
    fn forget(&self, over: &Session) {
        self.listening.forget(over);
        self.shared.sessions.leave(over);
        if over.is_used_up() {
            self.shared.forget(over.id());
            self.logins.forget(over.id());
            self.shared
                .current()
                .credentials
                .stores()
                .logins()
                .leave(over.id());
        }
    }

    /// Returns the session of a caller, which may be over; `None` if there are too many. A reload
    /// waits meanwhile, so that it reaches this session too.
    async fn session_of_caller(
        &self,
        id: &SessionId,
        caller: &Arc<Caller>,
    ) -> Result<Option<LivePair>, Failure> {
        let latest = self.reloading.latest.lock().await;
        match self.listening.session(id) {
            Some((session, _)) if session.is_used_up() => {
                if !self.stays_over(&session).await? {
                    return Err(Failure::new("the session's end is not kept yet"));
                }
                self.forget(&session);
            }
            Some(live) => return Ok(Some(live)),
            None => {}
        }
        let config = &latest.read.config;
        if !self.makes_room(config.sessions.most).await? {
            return Ok(None);
        }
        let mut known = config.listeners.iter();
        let known = known.find(|known| known.session == ListenerSession::EachCaller);
        let groups = known.map_or(&[][..], |known| &known.groups);
        let whose = (id, groups, Owner::Caller(caller));
        self.restore_logins(&latest.read, [id]).await?;
        let logins = &latest.read.resolved.logins[..];
        self.open_beside((config, logins), whose).await.map(Some)
    }

    /// Opens a session of a caller or an operator, with its stored state.
    ///
    /// # Errors
    /// As [`App::open`], or if a file for its workload cannot be written.
    pub async fn open_beside(
        &self,
        (config, logins): (&Config, &[Login]),
        one: SessionIdentity<'_>,
    ) -> Result<LivePair, Failure> {
        let snapshot = self.shared.current();
        let mut opened = self.prepare_and_keep(&snapshot, config, &[one]).await?;
        let opened = opened.pop().ok_or_else(|| Failure::new("no session"))?;
        let live = opened.live();
        if let Owner::Caller(_) = one.2 {
            let mut publication = Publication::default();
            publication.certificate(config, &live.0, &live.1)?;
            let given = (&**snapshot.credentials.bindings(), logins, logins);
            publication.phantoms(config, given, (&live.0, &live.0.phantoms()))?;
            publication.publish().into_iter().try_for_each(Err)?;
        }
        self.enter(&opened);
        self.listening.gain(&opened);
        Ok(live)
    }
}
