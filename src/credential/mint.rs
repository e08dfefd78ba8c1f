//! New credentials in an answer: the real ones stay here, and the client gets phantoms to
//! sign with.
//!
//! Temporary credentials have the same bindings, pins and policy name as the credential they came
//! from, so they never reach further than it does.

use std::sync::Arc;

use bytes::Bytes;
use zeroize::Zeroizing;

use super::credentials::Credentials;
use super::error::{Error, MintFailure};
use super::login::{AskedTokens, UnmappedToken};
use super::search_snapshot::TemporarySecrets;
use super::secret::Secret;
use crate::names::CredentialName;
use crate::session::phantom::{PhantomKey, TemporaryPhantoms};
use crate::session::{Revocations, Session};
use crate::sigv4::{self, replaced};

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

impl Credentials {
    /// Keeps the temporary credentials in an answer's content, and returns the content with
    /// phantoms in their places.
    ///
    /// # Errors
    /// [`Error::Minted`] by cause. Nothing of the answer may then be passed on.
    pub fn keep(
        &self,
        (session, parent, revocations): (&Arc<Session>, &CredentialName, &Revocations),
        kind: &str,
        content: &[u8],
    ) -> Result<Bytes, Error> {
        let found = sigv4::TemporaryCredentials::read(kind, content).map_err(MintFailure::from)?;
        let secret = |text: &str| {
            let value = Zeroizing::new(text.as_bytes().to_vec());
            Secret::new(value, false)
                .map(Arc::new)
                .map_err(MintFailure::from)
        };
        let [id, key, token] = found.parts;
        let secrets = [secret(id)?, secret(key)?, secret(token)?];
        let random = || PhantomKey::random().map_err(|_| MintFailure::Random);
        let keys = [random()?, random()?, random()?];
        let shapes = [
            secrets[0].shape(None),
            secrets[1].shape(None),
            secrets[2].shape(None),
        ];
        let taken = |at: usize, text: &[u8]| secrets[at].is(text);
        let drawn = TemporaryPhantoms::draw(parent, &keys, shapes, found.expires, taken);
        let drawn = drawn.map_err(MintFailure::from)?;
        let phantoms = Arc::new(drawn.revoked_by(revocations.clone()));
        let [our_id, our_key, our_token] = phantoms.parts();
        let pairs = [
            (id, our_id.reveal()),
            (key, our_key.reveal()),
            (token, our_token.reveal()),
        ];
        let content = replaced(content, pairs).map_err(MintFailure::from)?;
        let exposed = self.exposed(session)?;
        let minted = TemporarySecrets::new(phantoms.clone(), secrets)?;
        let gone = session.gain(&phantoms);
        exposed.mint(minted, &gone)?;
        Ok(content.into())
    }
}
