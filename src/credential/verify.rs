//! Verifies that a signed request was signed with the session's phantom, before any fetch or
//! connection for it.

use std::sync::Arc;
use std::time::SystemTime;

use gateway_message::RequestHead;
use gateway_names::{Identity, Tie};
use gateway_policy::Authorized;
use gateway_session::{ParsedSignature, PartTexts, Revocation, Session, VerifiedSignature};

use super::buffer_limits::BufferLimits;
use super::credentials::Credentials;
use super::error::Error;
use super::login::AskedTokens;

/// An authorized request. If a credential of ours signs it, its signature was made with the
/// session's phantom.
pub struct Verified {
    pub(super) authorized: Authorized,
    pub(super) proof: Option<SignedGrant>,
    pub(super) asked: Option<Box<AskedTokens>>,
}

/// The verified signature of one of the grants.
pub(super) struct SignedGrant {
    /// The grant's index.
    pub(super) grant: usize,
    pub(super) proof: Box<dyn VerifiedSignature>,
}

impl Verified {
    /// The head as it was judged, read-only.
    pub fn head(&self) -> &RequestHead {
        self.authorized.head()
    }

    /// The identity whose connections it uses.
    pub fn identity(&self) -> &Identity {
        self.authorized.identity()
    }

    /// The generation of the policies that allowed it.
    pub fn generation(&self) -> u64 {
        self.authorized.verdict().generation
    }

    /// The revocations of the credentials that it is lent. Connections for it register there.
    pub fn revocations(&self) -> &[Arc<Revocation>] {
        self.authorized.judged().revocations()
    }

    /// Says whether the connections to origins are its client's own.
    pub fn tie(&self) -> &Tie {
        self.authorized.tie()
    }

    /// Whether the client asked for an upgrade.
    pub fn is_upgrade(&self) -> bool {
        self.authorized.is_upgrade()
    }

    /// The session it belongs to.
    pub fn session(&self) -> &Arc<Session> {
        self.authorized.session()
    }

    /// What it asks an authorization server for, if it does.
    pub fn asked(&self) -> Option<&AskedTokens> {
        self.asked.as_deref()
    }

    /// Has the tokens in its answer passed on as they are.
    pub fn pass_tokens(&mut self) {
        self.asked = None;
    }
}

impl Credentials {
    /// Verifies the signature of a request with the key that the session holds: its phantom.
    ///
    /// Content is held, within its limits, if the head does not state its hash. Nothing is fetched,
    /// and nothing is sent.
    ///
    /// # Errors
    /// [`Error::Signing`], [`Error::Misplaced`] and [`Error::Held`]. The request is then dropped.
    pub async fn verify(&self, authorized: Authorized) -> Result<Verified, Error> {
        let (authorized, asked) = match self.may_ask_for_tokens(&authorized) {
            // Boxed because it is large and rare.
            true => Box::pin(self.asked(authorized)).await?,
            false => (authorized, None),
        };
        let mut grants = authorized.grants().iter().enumerate();
        let signed = grants.find_map(|(at, grant)| Some((at, grant.lend().claimed()?.clone())));
        let verified = match signed {
            // Boxed because it is large and rare, so that the usual exchange reserves no room for
            // it.
            Some((at, claimed)) => Box::pin(self.proven(authorized, at, claimed)).await,
            None => Ok((authorized, None)),
        };
        let (authorized, proof) = verified?;
        Ok(Verified {
            authorized,
            proof,
            asked,
        })
    }

    /// Verifies the signature of one of the grants.
    async fn proven(
        &self,
        mut authorized: Authorized,
        grant: usize,
        claimed: Arc<dyn ParsedSignature>,
    ) -> Result<(Authorized, Option<SignedGrant>), Error> {
        claimed.judge_time(SystemTime::now())?;
        if claimed.needs_content(authorized.head(), authorized.content()) {
            authorized = self.hold(authorized).await?;
        }
        let phantoms = authorized.session().phantoms();
        let lend = authorized.grants().get(grant).ok_or(Error::Unknown)?.lend();
        let parts: PartTexts<'_> = match claimed.temporary() {
            Some((minted, names)) => {
                let texts = minted.parts().iter().map(|part| part.reveal().as_bytes());
                names.into_iter().zip(texts).collect()
            }
            None => {
                let signing = lend.signing().ok_or(Error::Unknown)?;
                signing.texts(|part| Some(phantoms.of(part)?.reveal().as_bytes()))
            }
        };
        let (head, content) = (authorized.head(), authorized.content());
        let proof = claimed
            .clone()
            .verify(head, content, &parts, SystemTime::now())?;
        Ok((authorized, Some(SignedGrant { grant, proof })))
    }

    async fn hold(&self, authorized: Authorized) -> Result<Authorized, Error> {
        let BufferLimits { limit, budget, .. } = self.holding();
        let budget = authorized.session().part_of(budget).clone();
        authorized
            .holding(*limit, &budget)
            .await
            .map_err(Error::Held)
    }
}
