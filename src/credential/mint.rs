//! Handles new credentials in a response: the gateway keeps the real ones, and the client gets
//! phantoms to sign with.
//!
//! Temporary credentials have the same bindings, pins and policy name as the credential they came
//! from, so they never reach further than that credential.

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
use super::login::{OAuthRequest, UnmappedToken};
use super::search_snapshot::TemporarySecrets;
use super::secret::Secret;

/// An exchange whose response may contain new credentials.
pub enum Minting {
    /// Temporary credentials of AWS.
    Temporary {
        /// The session that receives them.
        session: Arc<Session>,
        /// The credential that they come from.
        parent: CredentialName,
        /// The revocations of the parent's key that requested them.
        revocations: Revocations,
    },
    /// Tokens of an authorization server.
    Tokens {
        /// The session that receives them.
        session: Arc<Session>,
        /// The request for the tokens.
        asked: Box<OAuthRequest>,
    },
}

impl Minting {
    /// Whether a response is read, given whether its status is one of success. Tokens come with any
    /// status.
    pub fn is_in(&self, success: bool) -> bool {
        success || matches!(self, Self::Tokens { .. })
    }

    /// Returns the refusal of a response that cannot be read.
    pub fn unread(&self) -> Error {
        match self {
            Self::Temporary { .. } => MintFailure::Unheld.into(),
            Self::Tokens { .. } => UnmappedToken::Unheld.into(),
        }
    }
}

/// Temporary credentials with the keys of their phantoms, so that the session can have them again
/// later. Has no `Debug`.
pub struct KeptCredentials {
    /// When they expire.
    pub expires: SystemTime,
    /// The credentials as plain text, to be sealed before they are stored.
    pub content: Zeroizing<Vec<u8>>,
}

/// The stored form of temporary credentials. Their parts need no escapes in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptText<'t> {
    parent: CredentialName,
    /// The places of the key that requested them.
    from: Vec<String>,
    keys: [[u8; 32]; 3],
    #[serde(borrow)]
    parts: [&'t str; 3],
    expires: u64,
}

impl Credentials {
    /// Gives a session the temporary credentials in a response. Returns the content with phantoms
    /// in their place, and the text to store.
    ///
    /// # Errors
    /// [`Error::Minted`] by cause. No part of the response may then be passed on.
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
        // Capacity for the whole text: a growing vector would leave copies behind.
        let mut kept = Zeroizing::new(Vec::with_capacity(content.len() + ROOM));
        // Writing texts and numbers to memory cannot fail.
        let _ = serde_json::to_writer(&mut *kept, &text);
        let kept = KeptCredentials {
            expires: found.expires,
            content: kept,
        };
        Ok((replaced.into(), kept))
    }

    /// Gives a session that outlived the process its stored temporary credentials again, unless
    /// they have expired or their parent credential is now a different one.
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

    /// Returns the places of the parts that a credential signs with.
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

    /// Draws the phantoms of temporary credentials, which share the revocations of the key that
    /// requested them, and gives them to a session.
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

/// Capacity for everything except the parts.
const ROOM: usize = 4096;
