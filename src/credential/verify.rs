//! Proves that a signed request was signed with the session's phantom, before anything is fetched or dialled for it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::attach::{Credentials, Error};
use super::recodes::sha256;
use crate::body::{Held, HoldBudget, Limit};
use crate::message::RequestHead;
use crate::names::Identity;
use crate::policy::Authorized;
use crate::session::{SIGV4_PARTS, SigV4Request, Signer, Signing, Spot};
use crate::signature::sigv4::{self, Action, Claim, Location, Payload};

/// An authorized request whose signature, if a credential of ours signs it, is that of the session's phantom.
pub struct Verified {
    authorized: Authorized,
    proof: Option<Box<Proof>>,
}

/// What was proven of a signed request, and is needed to sign it again.
pub(super) struct Proof {
    /// Which grant it is.
    pub(super) grant: usize,
    pub(super) request: Arc<SigV4Request>,
    pub(super) verified: sigv4::Verified,
    /// What the request asks for.
    pub(super) action: Action,
    /// The hash of the content, where that is held.
    pub(super) content: Option<[u8; 32]>,
}

/// How much content is held for signatures that cover it and do not tell its hash.
#[derive(Debug, Clone)]
pub struct Holding {
    /// Of one request.
    pub limit: Limit,
    /// Of all together.
    pub budget: Arc<HoldBudget>,
}

impl Default for Holding {
    fn default() -> Self {
        Self {
            limit: Limit::mib(16),
            budget: HoldBudget::new(Limit::mib(64)),
        }
    }
}

impl Verified {
    /// The head as it was judged; it can be read and not changed.
    #[must_use]
    pub fn head(&self) -> &RequestHead {
        self.authorized.head()
    }

    /// In whose name connections for it are used.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        self.authorized.identity()
    }

    /// The generation of policies that allowed it.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.authorized.verdict().generation
    }

    pub(super) fn into_parts(self) -> (Authorized, Option<Box<Proof>>) {
        (self.authorized, self.proof)
    }
}

impl Credentials {
    /// Verifies the signature of a request that a credential signs, with the key that the session holds: its phantom.
    ///
    /// Content whose hash the head does not tell is held for it, within its bounds. Nothing is fetched, and nothing is sent.
    ///
    /// # Errors
    /// [`Error::Signature`], [`Error::Skewed`], [`Error::Expired`] and [`Error::Held`]; the request is gone then.
    pub async fn verify(&self, authorized: Authorized) -> Result<Verified, Error> {
        let signed =
            authorized
                .grants()
                .iter()
                .enumerate()
                .find_map(|(at, grant)| match grant.lend().spot() {
                    Spot::SigV4(request) => Some((at, request.clone())),
                    _ => None,
                });
        match signed {
            None => Ok(Verified {
                authorized,
                proof: None,
            }),
            // Large, and not for every request: boxed, so that the usual exchange does not carry room for it.
            Some((at, request)) => Box::pin(self.verify_sigv4(authorized, at, request)).await,
        }
    }

    async fn verify_sigv4(
        &self,
        mut authorized: Authorized,
        grant: usize,
        request: Arc<SigV4Request>,
    ) -> Result<Verified, Error> {
        let claim = &request.claim;
        judge_time(claim, SystemTime::now())?;
        let Signer::SigV4(sigv4) = &signing(&authorized, grant)?.signer;
        let wanted = claim.payload() == Payload::Absent || sigv4.needs_content(&request, authorized.head());
        if wanted && !authorized.content().is_empty() {
            authorized = authorized
                .holding(self.holding().limit, &self.holding().budget)
                .await
                .map_err(Error::Held)?;
        }
        let content = match authorized.content().held() {
            Some(held) => Some(sha256(held.pieces())),
            None => authorized.content().is_empty().then(|| sha256([])),
        };
        let secret = secret_phantom(&authorized, grant)?;
        let verified = claim
            .verify(authorized.head(), secret.as_bytes(), content.as_ref())
            .map_err(Error::Signature)?;
        // After the signature: what the content asks for is the client's own word by now.
        let Signer::SigV4(sigv4) = &signing(&authorized, grant)?.signer;
        let held = authorized.content().held();
        let whole = held.map(Held::whole).unwrap_or_default();
        let action = sigv4
            .judge(&request, authorized.head(), &whole)
            .map_err(Error::Unsignable)?;
        Ok(Verified {
            authorized,
            proof: Some(Box::new(Proof {
                grant,
                request,
                verified,
                action,
                content,
            })),
        })
    }
}

fn signing(authorized: &Authorized, grant: usize) -> Result<&Signing, Error> {
    let grant = authorized.grants().get(grant).ok_or(Error::Unknown)?;
    grant.lend().signing().ok_or(Error::Unknown)
}

/// The key that the client signs with.
fn secret_phantom(authorized: &Authorized, grant: usize) -> Result<&str, Error> {
    let part = signing(authorized, grant)?
        .part(SIGV4_PARTS[1])
        .ok_or(Error::Unknown)?;
    let phantom = authorized.session().phantoms().of(part).ok_or(Error::Unknown)?;
    Ok(phantom.reveal())
}

/// The gateway signs with its own clock, so that a client's may be off a little (J09); a presigned request lives as long as
/// it says.
fn judge_time(claim: &Claim, now: SystemTime) -> Result<(), Error> {
    let signed = claim.stamp().time();
    let early = signed.duration_since(now).is_ok_and(|ahead| ahead > MOST_SKEW);
    let age = now.duration_since(signed).unwrap_or_default();
    match claim.location() {
        _ if early => Err(Error::Skewed),
        Location::Fields if age > MOST_SKEW => Err(Error::Skewed),
        Location::Query { expires } if age > expires => Err(Error::Expired),
        Location::Fields | Location::Query { .. } => Ok(()),
    }
}

/// AWS's services allow as much (Amazon S3, `RequestTimeTooSkewed`).
const MOST_SKEW: Duration = Duration::from_secs(15 * 60);
