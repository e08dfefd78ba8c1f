//! Proves that a signed request was signed with the session's phantom, before anything is fetched or dialled for it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::attach::{Credentials, Error};
use super::recodes::sha256;
use crate::body::{HoldBudget, Limit};
use crate::message::RequestHead;
use crate::names::Identity;
use crate::policy::Authorized;
use crate::session::{Lend, SIGV4_PARTS, Signer, Spot};
use crate::signature::sigv4::{self, Claim, Location, Payload};

/// An authorized request whose signature, if a credential of ours signs it, is that of the session's phantom.
pub struct Verified {
    authorized: Authorized,
    proof: Option<Box<Proof>>,
}

/// What was proven of a signed request, and is needed to sign it again.
pub(super) struct Proof {
    /// Which grant it is.
    pub(super) grant: usize,
    pub(super) claim: Arc<Claim>,
    pub(super) verified: sigv4::Verified,
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
                    Spot::SigV4(claim) => Some((at, claim.clone())),
                    _ => None,
                });
        match signed {
            None => Ok(Verified {
                authorized,
                proof: None,
            }),
            // Large, and not for every request: boxed, so that the usual exchange does not carry room for it.
            Some((at, claim)) => Box::pin(self.verify_sigv4(authorized, at, claim)).await,
        }
    }

    async fn verify_sigv4(
        &self,
        mut authorized: Authorized,
        grant: usize,
        claim: Arc<Claim>,
    ) -> Result<Verified, Error> {
        judge_time(&claim, SystemTime::now())?;
        let known = matches!(claim.payload(), Payload::Hash(_)) && authorized.content().is_empty();
        if claim.payload() == Payload::Absent {
            authorized = authorized
                .holding(self.holding().limit, &self.holding().budget)
                .await
                .map_err(Error::Held)?;
        }
        let content = match authorized.content().held() {
            Some(held) => Some(sha256(held.pieces())),
            None if known => Some(sha256([])),
            None => None,
        };
        let lend = authorized.grants()[grant].lend();
        let secret = secret_phantom(lend, &authorized).ok_or(Error::Unknown)?;
        let verified = claim
            .verify(authorized.head(), secret.as_bytes(), content.as_ref())
            .map_err(Error::Signature)?;
        Ok(Verified {
            authorized,
            proof: Some(Box::new(Proof {
                grant,
                claim,
                verified,
                content,
            })),
        })
    }
}

/// The key that the client signs with.
fn secret_phantom<'a>(lend: &Lend, authorized: &'a Authorized) -> Option<&'a str> {
    let signing = lend.signing()?;
    let Signer::SigV4(_) = signing.signer;
    let part = signing.part(SIGV4_PARTS[1])?;
    Some(authorized.session().phantoms().of(part)?.reveal())
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
