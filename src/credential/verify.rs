//! Proves that a signed request was signed with the session's phantom, before anything is fetched
//! or dialled for it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::attach::{Credentials, Error};
use super::recodes::sha256;
use super::secret::Secret;
use super::sign;
use crate::body::{FormKind, Held, HoldBudget, Limit};
use crate::message::RequestHead;
use crate::names::Identity;
use crate::policy::{Authorized, ContentBudget};
use crate::session::{CredentialRefusal, SIGV4_PARTS, SigV4, SigV4Request, Signer, Signing, Spot};
use crate::signature::Fault;
use crate::signature::recipe::{self, Needs, Parts, Recipe};
use crate::signature::sigv4::{self, Action, ClientSignature, Location, Payload};

/// An authorized request whose signature, if a credential of ours signs it, is that of the
/// session's phantom.
pub struct Verified {
    authorized: Authorized,
    proof: Option<(usize, Proof)>,
}

/// What was proven of a signed request, and is needed to sign it again.
pub(super) enum Proof {
    SigV4(Box<ProvenSigV4>),
    Recipe(Box<ProvenRecipe>),
}

pub(super) struct ProvenSigV4 {
    pub(super) request: Arc<SigV4Request>,
    pub(super) verified: sigv4::Verified,
    /// What the request asks for.
    pub(super) action: Action,
    /// The hash of the content, where that is held.
    pub(super) content: Option<[u8; 32]>,
    /// The parts of temporary credentials, where it is signed with such.
    pub(super) kept: Option<[Arc<Secret>; 3]>,
}

impl Proof {
    /// Whether the answer holds temporary credentials that are to be kept.
    pub(super) fn mints(&self) -> bool {
        match self {
            Self::SigV4(proven) => proven.action.mints(),
            Self::Recipe(_) => false,
        }
    }

    /// Has it signed with temporary credentials.
    pub(super) fn sign_with(&mut self, kept: [Arc<Secret>; 3]) {
        match self {
            Self::SigV4(proven) => proven.kept = Some(kept),
            Self::Recipe(_) => {}
        }
    }
}

pub(super) struct ProvenRecipe {
    pub(super) recipe: Arc<Recipe>,
    pub(super) verified: recipe::Verified,
    /// All of the content, where the recipe covers it.
    pub(super) content: Option<Bytes>,
}

/// How much content is held for signatures that cover it and do not tell its hash, and how much
/// decoders take.
#[derive(Debug, Clone)]
pub struct Holding {
    /// Of one request.
    pub limit: Limit,
    /// Of all together.
    pub budget: Arc<HoldBudget>,
    /// What decoders of answers take, all together.
    pub decoding: Arc<HoldBudget>,
}

impl Holding {
    /// What holds of one request unless it is said otherwise.
    pub const REQUEST: Limit = Limit::mib(16);
    /// The same of all requests together.
    pub const REQUESTS: Limit = Limit::mib(64);
    /// The same of all decoders together.
    pub const DECODING: Limit = Limit::mib(128);
}

impl Default for Holding {
    fn default() -> Self {
        Self {
            limit: Self::REQUEST,
            budget: HoldBudget::new(Self::REQUESTS),
            decoding: HoldBudget::new(Self::DECODING),
        }
    }
}

impl Holding {
    /// The same for policies that read content.
    pub(crate) fn content_budget(&self) -> ContentBudget<'_> {
        ContentBudget {
            limit: self.limit,
            held: &self.budget,
            decoding: &self.decoding,
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

    pub(super) fn into_parts(self) -> (Authorized, Option<(usize, Proof)>) {
        (self.authorized, self.proof)
    }
}

impl Credentials {
    /// Verifies the signature of a request that a credential signs, with the key that the session
    /// holds: its phantom.
    ///
    /// Content whose hash the head does not tell is held for it, within its bounds, and so is
    /// content in which the service would take somebody else's credential. Nothing is fetched, and
    /// nothing is sent.
    ///
    /// # Errors
    /// [`Error::Signature`], [`Error::Unsignable`], [`Error::Skewed`], [`Error::Expired`],
    /// [`Error::Misplaced`] and [`Error::Held`]; the request is gone then.
    pub async fn verify(&self, authorized: Authorized) -> Result<Verified, Error> {
        let authorized = match authorized.watch() {
            Some(_) if !authorized.content().is_empty() => {
                Box::pin(self.watched(authorized)).await?
            }
            _ => authorized,
        };
        let mut grants = authorized.grants().iter().enumerate();
        let signed = grants.find_map(|(at, grant)| match grant.lend().spot() {
            Spot::SigV4(request) => Some((at, Some(request.clone()))),
            Spot::Recipe => Some((at, None)),
            _ => None,
        });
        // Large, and not for every request: boxed, so that the usual exchange does not carry room
        // for it.
        let (at, (authorized, proof)) = match signed {
            None => {
                return Ok(Verified {
                    authorized,
                    proof: None,
                });
            }
            Some((at, Some(request))) => (
                at,
                Box::pin(self.verify_sigv4(authorized, at, request)).await?,
            ),
            Some((at, None)) => (at, Box::pin(self.verify_recipe(authorized, at)).await?),
        };
        Ok(Verified {
            authorized,
            proof: Some((at, proof)),
        })
    }

    /// Looks for foreign credentials in content that may be a form.
    async fn watched(&self, mut authorized: Authorized) -> Result<Authorized, Error> {
        let unreadable = |why| Error::Misplaced(CredentialRefusal::Unreadable { why });
        let Some(kind) = FormKind::of(&authorized.head().fields).map_err(unreadable)? else {
            return Ok(authorized);
        };
        authorized = self.hold(authorized).await?;
        let (Some(watch), Some(held)) = (authorized.watch(), authorized.content().held()) else {
            return Err(Error::Unknown);
        };
        watch
            .judge(kind, &held.whole(), &authorized.session().phantoms())
            .map_err(Error::Misplaced)?;
        Ok(authorized)
    }

    async fn verify_sigv4(
        &self,
        mut authorized: Authorized,
        grant: usize,
        request: Arc<SigV4Request>,
    ) -> Result<(Authorized, Proof), Error> {
        let claim = &request.claim;
        judge_time(claim, SystemTime::now())?;
        let wanted = claim.payload() == Payload::Absent
            || signer(&authorized, grant)?.needs_content(&request, authorized.head());
        if wanted && !authorized.content().is_empty() {
            authorized = self.hold(authorized).await?;
        }
        let content = match authorized.content().held() {
            Some(held) => Some(sha256(held.pieces())),
            None => authorized.content().is_empty().then(|| sha256([])),
        };
        let phantoms = authorized.session().phantoms();
        let secret = match &request.minted {
            Some(minted) if minted.is_over() => return Err(Error::Expired),
            Some(minted) => Some(&minted.parts()[1]),
            None => signing(&authorized, grant)?
                .part(SIGV4_PARTS[1])
                .and_then(|part| phantoms.of(part)),
        };
        let secret = secret.ok_or(Error::Unknown)?;
        let verified = claim
            .verify(
                authorized.head(),
                secret.reveal().as_bytes(),
                content.as_ref(),
            )
            .map_err(|fault| Error::Signature(Fault::SigV4(fault)))?;
        // After the signature: what the content asks for is the client's own word by now.
        let signer = signer(&authorized, grant)?;
        let held = authorized.content().held();
        // In one piece it is a second copy, which most services need not cost.
        let looked_at = held.filter(|_| signer.needs_content(&request, authorized.head()));
        let whole = looked_at.map(Held::whole).unwrap_or_default();
        let action = signer
            .judge(&request, authorized.head(), &whole)
            .map_err(Error::Unsignable)?;
        let proven = ProvenSigV4 {
            request,
            verified,
            action,
            content,
            kept: None,
        };
        Ok((authorized, Proof::SigV4(Box::new(proven))))
    }

    async fn verify_recipe(
        &self,
        mut authorized: Authorized,
        grant: usize,
    ) -> Result<(Authorized, Proof), Error> {
        let Signer::Recipe(recipe) = &signing(&authorized, grant)?.signer else {
            return Err(Error::Unknown);
        };
        let recipe = Arc::clone(recipe);
        if recipe.needs() == Needs::Whole {
            authorized = self.hold(authorized).await?;
        }
        let content = authorized.content().held().map(Held::whole);
        let refused = |fault| Error::Signature(Fault::Recipe(fault));
        let claim = recipe.claim(authorized.head()).map_err(refused)?;
        let claim = claim.ok_or(Error::Unknown)?;
        let lend = authorized.grants().get(grant).ok_or(Error::Unknown)?.lend();
        let phantoms = authorized.session().phantoms();
        let texts = sign::parts(&recipe, lend, signing(&authorized, grant)?, |credential| {
            Some(phantoms.of(credential)?.reveal().as_bytes())
        });
        let verified = recipe
            .verify(
                claim,
                authorized.head(),
                content.as_deref(),
                &Parts::new(texts),
            )
            .map_err(refused)?;
        let now = SystemTime::now();
        let off = |time: SystemTime| {
            let age = now.duration_since(time).unwrap_or_default();
            age.max(time.duration_since(now).unwrap_or_default())
        };
        if verified.time().is_some_and(|time| off(time) > MOST_SKEW) {
            return Err(Error::Skewed);
        }
        // By the client's clock, which may be as far off.
        if verified.ends().is_some_and(|end| end + MOST_SKEW < now) {
            return Err(Error::Expired);
        }
        let proven = ProvenRecipe {
            recipe,
            verified,
            content,
        };
        Ok((authorized, Proof::Recipe(Box::new(proven))))
    }

    async fn hold(&self, authorized: Authorized) -> Result<Authorized, Error> {
        let Holding { limit, budget, .. } = self.holding();
        let budget = authorized.session().part_of(budget).clone();
        authorized
            .holding(*limit, &budget)
            .await
            .map_err(Error::Held)
    }
}

fn signing(authorized: &Authorized, grant: usize) -> Result<&Signing, Error> {
    let grant = authorized.grants().get(grant).ok_or(Error::Unknown)?;
    grant.lend().signing().ok_or(Error::Unknown)
}

fn signer(authorized: &Authorized, grant: usize) -> Result<&SigV4, Error> {
    match &signing(authorized, grant)?.signer {
        Signer::SigV4(signer) => Ok(signer),
        Signer::Recipe(_) => Err(Error::Unknown),
    }
}

/// The gateway signs with its own clock, so that a client's may be off a little (J09); a presigned
/// request lives as long as it says.
fn judge_time(claim: &ClientSignature, now: SystemTime) -> Result<(), Error> {
    let signed = claim.signed_at().time();
    let early = signed
        .duration_since(now)
        .is_ok_and(|ahead| ahead > MOST_SKEW);
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
