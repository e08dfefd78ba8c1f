//! New credentials in an answer: the real ones stay here, and the client gets phantoms to
//! sign with.
//!
//! Temporary credentials have the same bindings, pins and policy name as the credential they came
//! from, so they never reach further than it does.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use gateway_names::CredentialName;
use gateway_session::phantom::{PhantomKey, TemporaryPhantoms};
use gateway_session::{Revocations, Session, SigningPart};
use gateway_sigv4::{self as sigv4, replaced};
use gateway_state::unix;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::credentials::Credentials;
use super::error::{Error, MintFailure};
use super::login::{AskedTokens, UnmappedToken};
use super::search_snapshot::TemporarySecrets;
use super::secret::Secret;

/// An exchange whose answer may contain new credentials.
pub enum Minting {
    /// Temporary credentials of AWS.
    Temporary {
        /// The session that gets them.
        session: Arc<Session>,
        /// The credential that they come from.
        parent: CredentialName,
        /// What revokes the parent's key that asked for them.
        revocations: Revocations,
    },
    /// Tokens of an authorization server.
    Tokens {
        /// The session that gets them.
        session: Arc<Session>,
        /// What was asked for.
        asked: Box<AskedTokens>,
    },
}

impl Minting {
    /// Whether an answer is read, given whether it says that the request succeeded. Tokens come
    /// with any status.
    pub fn is_in(&self, success: bool) -> bool {
        success || matches!(self, Self::Tokens { .. })
    }

    /// The refusal of an answer that cannot be read.
    pub fn unread(&self) -> Error {
        match self {
            Self::Temporary { .. } => MintFailure::Unheld.into(),
            Self::Tokens { .. } => UnmappedToken::Unheld.into(),
        }
    }
}

/// Temporary credentials with what their phantoms are drawn from: all that the session needs to
/// have them again. Has no Debug.
pub struct KeptCredentials {
    /// When they are over.
    pub expires: SystemTime,
    /// Them, as who keeps them seals them.
    pub content: Zeroizing<Vec<u8>>,
}

/// What is kept of temporary credentials. Their parts are letters that JSON does not escape.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptText<'t> {
    parent: CredentialName,
    /// The places of the key that asked for them.
    from: Vec<String>,
    keys: [[u8; 32]; 3],
    #[serde(borrow)]
    parts: [&'t str; 3],
    expires: u64,
}

impl Credentials {
    /// Has a session hold the temporary credentials in an answer's content, and returns the content
    /// with phantoms in their places, and what is to be kept of them.
    ///
    /// # Errors
    /// [`Error::Minted`] by cause. Nothing of the answer may then be passed on.
    pub fn keep(
        &self,
        (session, parent, revocations): (&Arc<Session>, &CredentialName, &Revocations),
        kind: &str,
        content: &[u8],
    ) -> Result<(Bytes, KeptCredentials), Error> {
        let found = sigv4::TemporaryCredentials::read(kind, content).map_err(MintFailure::from)?;
        let mut keys = [[0; 32]; 3];
        getrandom::fill(keys.as_flattened_mut()).map_err(|_| MintFailure::Random)?;
        let text = KeptText {
            parent: parent.clone(),
            from: self.places_of(parent),
            keys,
            parts: found.parts,
            expires: unix(found.expires),
        };
        let phantoms = self.hold_temporary(session, revocations, &text)?;
        let [our_id, our_key, our_token] = phantoms.parts();
        let [id, key, token] = found.parts;
        let pairs = [
            (id, our_id.reveal()),
            (key, our_key.reveal()),
            (token, our_token.reveal()),
        ];
        let replaced = replaced(content, pairs).map_err(MintFailure::from)?;
        // Room for all of it: a growing vector would leave copies behind.
        let mut kept = Zeroizing::new(Vec::with_capacity(content.len() + ROOM));
        // Texts and numbers can be written to memory.
        let _ = serde_json::to_writer(&mut *kept, &text);
        let kept = KeptCredentials {
            expires: found.expires,
            content: kept,
        };
        Ok((replaced.into(), kept))
    }

    /// Has a session that outlived the process hold what was kept of its temporary credentials
    /// again, unless they are over or the credential that they come from is another one by now.
    ///
    /// # Errors
    /// [`Error::Unknown`] if they cannot be read, otherwise as [`Self::keep`].
    pub fn restore(&self, session: &Arc<Session>, content: &[u8]) -> Result<(), Error> {
        let text: KeptText<'_> = serde_json::from_slice(content).map_err(|_| Error::Unknown)?;
        let mut all = self.bindings().all();
        let parent = all.find(|one| one.credential == text.parent);
        match parent.filter(|_| self.places_of(&text.parent) == text.from) {
            Some(parent) if text.expires > unix(SystemTime::now()) => self
                .hold_temporary(session, &parent.revocations, &text)
                .map(drop),
            _ => Ok(()),
        }
    }

    /// Where the parts are read from that a credential signs with.
    fn places_of(&self, credential: &CredentialName) -> Vec<String> {
        let mut all = self.bindings().all();
        let signing = all.find_map(|one| one.signing().filter(|_| one.credential == *credential));
        let parts = signing.into_iter().flat_map(|signing| &signing.parts);
        let place = |part: &SigningPart| {
            let mut all = self.bindings().all();
            let at = all.position(|one| one.credential == part.credential)?;
            Some(self.reference(at).to_string())
        };
        parts.filter_map(place).collect()
    }

    /// Draws the phantoms of temporary credentials, which fall with the key that asked for them,
    /// and has a session hold them.
    fn hold_temporary(
        &self,
        session: &Arc<Session>,
        revocations: &Revocations,
        kept: &KeptText<'_>,
    ) -> Result<Arc<TemporaryPhantoms>, Error> {
        let secret = |text: &str| {
            let value = Zeroizing::new(text.as_bytes().to_vec());
            Secret::new(value, false)
                .map(Arc::new)
                .map_err(MintFailure::from)
        };
        let [id, key, token] = kept.parts;
        let secrets = [secret(id)?, secret(key)?, secret(token)?];
        let keys = kept.keys.map(PhantomKey::from_bytes);
        let shapes = [0, 1, 2].map(|at: usize| secrets[at].shape(None));
        let taken = |at: usize, text: &[u8]| secrets[at].is(text);
        let expires = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(kept.expires));
        let expires = expires.ok_or(Error::Unknown)?;
        let drawn = TemporaryPhantoms::draw(&kept.parent, &keys, shapes, expires, taken);
        let drawn = drawn.map_err(MintFailure::from)?;
        let phantoms = Arc::new(drawn.revoked_by(revocations.clone()));
        let exposed = self.exposed(session)?;
        let minted = TemporarySecrets::new(phantoms.clone(), secrets)?;
        let gone = session.gain(&phantoms);
        exposed.mint(minted, &gone)?;
        Ok(phantoms)
    }
}

/// For what is no part.
const ROOM: usize = 4096;
