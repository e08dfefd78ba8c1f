//! Mints tokens of sessions. They are not stored: a session's own key makes and verifies them.

use std::time::{Duration, SystemTime};

use crate::{App, Failure};
use gateway_control::{MintRequest, MintedToken};
use gateway_intercept::KEY_NUMBER;
use gateway_names::SessionId;
use gateway_session::Session;
use gateway_session::phantom::PhantomKey;
use gateway_state::unix;
use gateway_token::{Caveat, TokenKey, inspect};

impl App {
    /// Mints a token at an operator's request. For a session that an operator created, the token
    /// has the caveats of the session's own, and ends no later than the session.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it would last too long, if a text is not a caveat, or as
    /// [`App::mint_token`].
    pub fn mint_asked(
        &self,
        session: &SessionId,
        asked: &MintRequest,
    ) -> Result<MintedToken, Failure> {
        if !(1..=LONGEST).contains(&asked.seconds) {
            let why = "a token lasts from a second to 365 days";
            return Err(unminted().because(why));
        }
        let mut ends = SystemTime::now() + Duration::from_secs(asked.seconds);
        let mut further = Vec::new();
        let live = self.listening.session(session).map(|(live, _)| live);
        let made = live
            .as_ref()
            .and_then(|live| live.creation().zip(live.lifetime()));
        if let Some((creation, lifetime)) = made {
            ends = ends.min(lifetime.ends());
            further.clone_from(&creation.request.caveats);
        }
        further.extend_from_slice(&asked.caveats);
        self.mint_token(session, &caveats(ends, &further)?)
    }

    /// Mints a token of a listener's session.
    ///
    /// # Errors
    /// Returns a [`Failure`] if no listener has it, if it is over, or if there are no random bytes.
    pub fn mint_token(
        &self,
        session: &SessionId,
        caveats: &[Caveat],
    ) -> Result<MintedToken, Failure> {
        let live = self.listening.session(session).map(|(live, _)| live);
        let live = live.filter(|live| !live.is_over());
        let live = live.ok_or_else(|| {
            Failure::usage(format!("the session `{session}` can have no token"))
                .because("no listener has it, or it is over")
                .next("see `gateway session list`")
        })?;
        let mut random = [0; 12];
        getrandom::fill(&mut random).map_err(Failure::no_randomness)?;
        token(&live, random, caveats)
    }
}

/// Makes a token of a session. The same bytes and caveats make the same token.
///
/// # Errors
/// Returns a [`Failure`] if there are too many caveats, or if the session has no key.
pub fn token(
    session: &Session,
    random: [u8; 12],
    caveats: &[Caveat],
) -> Result<MintedToken, Failure> {
    let root = session.key().map(PhantomKey::of_tokens);
    let root = root.ok_or_else(|| unminted().because("nothing is kept of the session"))?;
    let token = TokenKey::derive(&root, KEY_NUMBER, session.id()).mint(random, caveats);
    let minted = token.and_then(|token| {
        let id = inspect(token.as_str())?.id;
        Ok(MintedToken { token, id })
    });
    minted.map_err(|malformed| unminted().because(malformed.to_string()))
}

/// Returns the caveats of a token: its end first.
///
/// # Errors
/// Returns a [`Failure`] if a text is not a caveat.
pub fn caveats(ends: SystemTime, further: &[String]) -> Result<Vec<Caveat>, Failure> {
    let further = further.iter().map(|text| {
        text.parse()
            .map_err(|malformed| unminted().because(format!("{text:?}: {malformed}")))
    });
    std::iter::once(Ok(Caveat::Before(unix(ends))))
        .chain(further)
        .collect()
}

fn unminted() -> Failure {
    Failure::usage("no token was minted")
}

/// In seconds.
const LONGEST: u64 = 365 * 24 * 60 * 60;
