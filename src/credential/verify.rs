//! Verifies that a signed request was signed with the session's phantom, before any fetch or
//! connection for it.

use std::sync::Arc;
use std::time::SystemTime;

use gateway_message::RequestHead;
use gateway_names::{Identity, Tie};
use gateway_policy::{Authorized, Obligations, RefusedClient};
use gateway_session::{ParsedSignature, PartTexts, Revocation, Session, VerifiedSignature};

use super::buffer_limits::BufferLimits;
use super::credentials::Credentials;
use super::error::Error;
use super::login::OAuthRequest;

/// An authorized request. If one of our credentials signs it, its signature was made with the
/// session's phantom.
pub struct Verified {
    pub(super) authorized: Authorized,
    pub(super) proof: Option<SignedGrant>,
    pub(super) asked: Option<Box<OAuthRequest>>,
}

/// A verified request whose obligations are met.
pub struct Settled(pub(super) Verified);

/// The verified signature of one of the grants.
pub(super) struct SignedGrant {
    /// The grant's index.
    pub(super) grant: usize,
    pub(super) proof: Box<dyn VerifiedSignature>,
}

impl Verified {
    /// Returns the authorized request.
    pub fn authorized(&self) -> &Authorized {
        &self.authorized
    }

    /// Drops the request, and returns what its client is told.
    pub fn refused(self) -> RefusedClient {
        self.authorized.refused()
    }

    /// Returns the request as settled, if each of its obligations is met.
    ///
    /// # Errors
    /// The request itself, if one is not.
    pub fn settle(self, met: &Obligations) -> Result<Settled, Box<Self>> {
        let own = self.authorized.obligations();
        if own.is_none_or(|own| met.include(own)) {
            Ok(Settled(self))
        } else {
            Err(Box::new(self))
        }
    }
}

impl Settled {
    /// Returns the head as it was authorized, read-only.
    pub fn head(&self) -> &RequestHead {
        self.0.authorized.head()
    }

    /// Returns the identity whose connections the request uses.
    pub fn identity(&self) -> &Identity {
        self.0.authorized.identity()
    }

    /// Returns the generation of the policies that allowed the request.
    pub fn generation(&self) -> u64 {
        self.0.authorized.verdict().generation
    }

    /// Returns the revocations of the lent credentials. Connections for the request register there.
    pub fn revocations(&self) -> &[Arc<Revocation>] {
        self.0.authorized.judged().revocations()
    }

    /// Returns the tie of its connections to origins to one connection of the client.
    pub fn tie(&self) -> &Tie {
        self.0.authorized.tie()
    }

    /// Whether the client asked for an upgrade.
    pub fn is_upgrade(&self) -> bool {
        self.0.authorized.is_upgrade()
    }

    /// Returns the session of the request.
    pub fn session(&self) -> &Arc<Session> {
        self.0.authorized.session()
    }

    /// Returns the request for tokens, if this is one.
    pub fn asked(&self) -> Option<&OAuthRequest> {
        self.0.asked.as_deref()
    }

    /// Passes the tokens in the response on unchanged.
    pub fn pass_tokens(&mut self) {
        self.0.asked = None;
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
        let (authorized, asked) = if self.may_ask_for_tokens(&authorized) {
            // Boxed because it is large and rare.
            Box::pin(self.asked(authorized)).await?
        } else {
            (authorized, None)
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
