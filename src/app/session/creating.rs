//! Sessions that operators create at run time, in addition to those of listeners and callers.

use std::time::{Duration, SystemTime};

use crate::client_environment;
use crate::session::tokens::{caveats, token};
use crate::{App, Failure, Owner};
use gateway_config::{Config, show_duration};
use gateway_control::{CreatedSession, MintRequest, MintedToken};
use gateway_credential::login::Login;
use gateway_intercept::Evidence;
use gateway_names::{SessionId, User};
use gateway_server::LivePair;
use gateway_session::{Creation, Lifetime, Moment, Session};

impl App {
    /// Creates a session that no listener owns, and stores it; `None` if its name is taken, even by
    /// a session that is over. A session that the same request created is returned again.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the request cannot be met, or the session cannot be stored.
    pub async fn create_session(
        &self,
        id: &SessionId,
        creation: Creation,
    ) -> Result<Option<CreatedSession>, Failure> {
        let latest = self.reloading.latest.lock().await;
        self.restore_logins(&latest.read, [id]).await?;
        let with = (&*latest.read.config, &latest.read.resolved.logins[..]);
        let live = match self.made_session(with, id).await? {
            None => self.make_session(with, id, &creation).await?,
            Some(live) => made_again(&live.0, &creation)?.then_some(live),
        };
        let Some((session, ca)) = live else {
            return Ok(None);
        };
        let creation = session.creation().unwrap_or(&creation);
        let narrowed = caveats(creation.ends(), &creation.request.caveats)?;
        // Each session has one such token: a repeated request gets the same.
        let token = token(&session, [0; 12], &narrowed)?;
        Ok(Some(CreatedSession {
            token,
            ends: creation.ends(),
            environment: client_environment::of_live(self, (&session, &ca))?,
        }))
    }

    async fn make_session(
        &self,
        with: (&Config, &[Login]),
        id: &SessionId,
        creation: &Creation,
    ) -> Result<Option<LivePair>, Failure> {
        let (request, config) = (&creation.request, with.0);
        let snapshot = self.shared.current();
        self.refuse_without_door()?;
        refuse_beyond(config, Duration::from_secs(request.seconds))?;
        caveats(creation.ends(), &request.caveats)?;
        let mut groups = request.groups.iter();
        if let Some(malformed) = groups.find_map(|group| SessionId::new(group).err()) {
            return Err(Failure::usage("a group has another name").because(malformed.to_string()));
        }
        let user = request.user.iter().map(User::as_str);
        let mut names = user.chain(request.groups.iter().map(String::as_str));
        if let Some(name) = names.find(|name| name.contains(':')) {
            let what = format!("`{name}` is a name that evidence alone gives");
            let why = "policies take who has it for somebody who showed that";
            return Err(Failure::usage(what)
                .because(why)
                .next("take a name without a colon"));
        }
        let bindings = snapshot.credentials.bindings();
        let mut lend = request.lend.iter().flatten();
        if let Some(unknown) = lend.find(|name| !bindings.has(name)) {
            let what = format!("there is no credential `{unknown}` to lend");
            return Err(Failure::usage(what).next("see `gateway session list`"));
        }
        // An ended session stays ended, with its tokens that are still in use.
        if self.keeper().await?.recall(id).await?.record.is_some() {
            return Ok(None);
        }
        if !self.makes_room(config.sessions.most).await? {
            return Err(Failure::new("there are too many sessions")
                .because("none of those that `[sessions] most` bounds is over")
                .next("end one: `gateway session end SESSION`, or raise `most`"));
        }
        let whose = (id, &request.groups[..], Owner::Operator(creation));
        self.open_beside(with, whose).await.map(Some)
    }

    /// Returns the live session of this id, or one that an operator created at a gateway that
    /// shares the state.
    async fn made_session(
        &self,
        with: (&Config, &[Login]),
        id: &SessionId,
    ) -> Result<Option<LivePair>, Failure> {
        if let Some(live) = self.listening.session(id) {
            return Ok(Some(live));
        }
        let Some(creation) = self.keeper().await?.creation(id).await? else {
            return Ok(None);
        };
        // It exists already, so a full table does not keep it out, just as at a restart.
        self.makes_room(with.0.sessions.most).await?;
        let groups = &creation.request.groups[..];
        let whose = (id, groups, Owner::Operator(&creation));
        self.open_beside(with, whose).await.map(Some)
    }

    /// Does the same, after any reload under way.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be opened.
    pub async fn learn_session(&self, id: &SessionId) -> Result<Option<LivePair>, Failure> {
        let latest = self.reloading.latest.lock().await;
        self.restore_logins(&latest.read, [id]).await?;
        let with = (&*latest.read.config, &latest.read.resolved.logins[..]);
        self.made_session(with, id).await
    }

    /// Moves the end of a session that was created so, and mints a token that lives as long.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it was not created so, is over, or may not live for so long.
    pub async fn extend_session(
        &self,
        id: &SessionId,
        mut asked: MintRequest,
    ) -> Result<(MintedToken, SystemTime), Failure> {
        let latest = self.reloading.latest.lock().await;
        let unmoved = |why: &str| Failure::usage("the session is not extended").because(why);
        let live = self.listening.session(id).map(|(session, _)| session);
        let live = live.filter(|session| !session.is_over());
        let session = live.ok_or_else(|| unmoved("it is over"))?;
        let (Some(creation), Some(before)) = (session.creation(), session.lifetime()) else {
            return Err(unmoved(
                "the sessions of listeners and callers renew themselves",
            ));
        };
        let now = Moment::now();
        let lasts = Duration::from_secs(asked.seconds);
        let since = now
            .wall
            .duration_since(creation.made_at())
            .unwrap_or_default();
        refuse_beyond(&latest.read.config, since.saturating_add(lasts))?;
        let next = Lifetime::new(now, lasts);
        if next.ends() < before.ends() {
            return Err(unmoved("it ends later already").next("`gateway session end` ends it now"));
        }
        asked.caveats.extend_from_slice(&creation.request.caveats);
        let narrowed = caveats(next.ends(), &asked.caveats)?;
        let token = self.mint_token(id, &narrowed)?;
        if !self.keeper().await?.extend(id, next.ends()).await? {
            return Err(unmoved("it was ended meanwhile"));
        }
        session.extend(next);
        Ok((token, next.ends()))
    }

    /// Refuses to create a session that no client can reach.
    fn refuse_without_door(&self) -> Result<(), Failure> {
        let open = self.listening.open();
        let is_door = |known: &gateway_config::Listener| {
            known.session.one().is_none() && known.who.contains(&Evidence::Token)
        };
        if open.iter().any(|one| is_door(&one.known)) {
            Ok(())
        } else {
            Err(Failure::usage("no listener would take the session's token")
                .next("add a [[listener]]: kind = \"proxy\", session = \"{caller}\", who = [\"token\"]"))
        }
    }
}

/// Whether a request repeats, with its key, the one that created a live session.
fn made_again(live: &Session, asked: &Creation) -> Result<bool, Failure> {
    let is_known = |made: &&Creation| made.key.is_some() && made.key == asked.key;
    match live.creation().filter(is_known) {
        Some(made) if !live.is_over() && made.request != asked.request => {
            let what = "another session was asked for with this idempotency key";
            Err(Failure::usage(what).next("send what was sent with it, or another key"))
        }
        made => Ok(made.is_some() && !live.is_over()),
    }
}

/// Refuses a session's end that is too long after its creation.
fn refuse_beyond(config: &Config, lasts: Duration) -> Result<(), Failure> {
    let most = config.ca.lifetime;
    if !lasts.is_zero() && lasts <= most {
        return Ok(());
    }
    let most = show_duration(most);
    let what = format!("a session ends within {most} after it was made");
    Err(Failure::usage(what).next("ask for less, or raise `[ca] lifetime`"))
}
