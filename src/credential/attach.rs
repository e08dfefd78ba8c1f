//! The last step before a request leaves: each grant's secret is fetched and put where its phantom
//! stood.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwapOption;
use http::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::credentialed::Credentialed;
use super::exposed::{ExposedSecrets, Wanted};
use super::given::Given;
use super::inject::{AttachFailure, Prepared, inject};
use super::mint::{MintFailure, Minting};
use super::scrub::{Guessed, Unscrubbable};
use super::secret::SecretUnsafe;
use super::sign::{Fetched, leased, sign};
use super::store::{Lease, Source, StoreError, Stores, Unavailable};
use super::verify::{Holding, Verified};
use crate::body::{self, HoldFault, Share};
use crate::names::CredentialName;
use crate::policy::AuthorizedParts;
use crate::session::phantom::{Issue, Minted, PhantomFailure, PhantomKey, Phantoms};
use crate::session::{
    Binding, Bindings, CredentialRefusal, Lend, Role, Session, SigningPart, Spot, Unsignable,
};
use crate::signature::Fault;

/// Why a request did not get its credential. It is not sent then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such credential is configured.
    #[error("the credential is not configured")]
    Unknown,
    /// The store does not give it now.
    #[error("the credential cannot be had from its store")]
    Unavailable(#[source] Box<Unavailable>),
    /// The secret cannot stand where the phantom stood.
    #[error("the credential does not fit where its phantom stands")]
    Unfit(#[source] AttachFailure),
    /// Echoes of the secret could not be found again.
    #[error("the credential could not be kept from coming back")]
    Unscrubbable(#[source] Unscrubbable),
    /// The client's signature is not that of the session's phantom over this request.
    #[error("the request's signature is refused: {0}")]
    Signature(Fault),
    /// The credential may not sign what the request asks for.
    #[error("the credential may not sign this request: {0}")]
    Unsignable(Unsignable),
    /// The client's clock is too far off.
    #[error("the client's clock is more than 15 minutes off the gateway's")]
    Skewed,
    /// A presigned request's time is over.
    #[error("the presigned request, or what it is signed with, has expired")]
    Expired,
    /// The content had to be held and could not be.
    #[error(transparent)]
    Held(HoldFault),
    /// A foreign credential stands in the content, or it cannot be told whether one does.
    #[error(transparent)]
    Misplaced(CredentialRefusal),
    /// The request could not be signed with the credential.
    #[error("the request cannot be signed with the credential")]
    Signing(#[source] Fault),
    /// The system gives no random bytes for a number that is used once.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// Answers to the session held too many different parts of secrets.
    #[error(transparent)]
    Guessed(#[from] Guessed),
    /// The temporary credentials of the answer could not be kept.
    #[error("the temporary credentials of the answer cannot be kept")]
    Minted(#[from] MintFailure),
}

impl Error {
    /// The reason code in refusals and audit.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unknown => "credential_unknown",
            Self::Unavailable(_) => "secret_unavailable",
            Self::Unfit(why) => why.reason(),
            Self::Unscrubbable(_) => "secret_unsafe",
            Self::Signature(fault) | Self::Signing(fault) => fault.reason(),
            Self::Unsignable(why) => why.reason(),
            Self::Skewed => "signature_skew",
            Self::Expired => "signature_expired",
            Self::NoRandomness => "no_randomness",
            Self::Held(why) => why.reason(),
            Self::Misplaced(why) => why.reason(),
            Self::Guessed(why) => why.reason(),
            Self::Minted(why) => why.reason(),
        }
    }
}

/// The credentials that may be lent, by name.
pub struct Credentials {
    bindings: Arc<Bindings>,
    slots: Vec<Slot>,
    holding: Holding,
    /// From it stand-ins are drawn for secrets that a session holds no phantom of; `None` where
    /// there was no randomness.
    strangers: Option<PhantomKey>,
}

/// What belongs to one binding: where its secret comes from, and the field values that were built
/// from the last one.
pub(super) struct Slot {
    pub(super) source: Source,
    ready: ArcSwapOption<Prepared>,
    pub(super) given: Given,
    /// The greatest number that was used once, where signing with it takes such.
    last: AtomicU64,
}

/// Why a session's phantoms were not issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueFailure {
    /// A secret had to be looked at and there was none.
    #[error("credential `{credential}` cannot be had from its store")]
    Unavailable {
        /// The credential.
        credential: CredentialName,
        /// Why.
        #[source]
        cause: Unavailable,
    },
    /// No phantom could be made.
    #[error(transparent)]
    Phantom(#[from] PhantomFailure),
}

impl Credentials {
    /// The credentials that the bindings name, each from its store.
    #[must_use]
    pub fn new(bindings: Arc<Bindings>, stores: &Stores) -> Self {
        let slot = |binding: &Binding| Slot {
            source: stores.source(&binding.reference),
            ready: ArcSwapOption::empty(),
            given: Given::default(),
            last: AtomicU64::new(0),
        };
        let slots = bindings.all().map(slot).collect();
        Self {
            bindings,
            slots,
            holding: Holding::default(),
            strangers: PhantomKey::random().ok(),
        }
    }

    /// The same, with other bounds for content that is held.
    #[must_use]
    pub fn with_holding(self, holding: Holding) -> Self {
        Self { holding, ..self }
    }

    pub(super) fn strangers(&self) -> Option<&PhantomKey> {
        self.strangers.as_ref()
    }

    pub(super) fn slot(&self, index: usize) -> Result<&Slot, Error> {
        self.slots.get(index).ok_or(Error::Unknown)
    }

    pub(super) fn holding(&self) -> &Holding {
        &self.holding
    }

    /// What may be lent, and where.
    #[must_use]
    pub fn bindings(&self) -> &Arc<Bindings> {
        &self.bindings
    }

    /// Issues the phantoms of a session, for the credentials that it may hold.
    ///
    /// Where no shape is declared, the secret is fetched to look at it. The order is that of the
    /// configuration, so replicas with one key and one configuration agree.
    ///
    /// # Errors
    /// [`IssueFailure`] by cause.
    pub async fn issue(
        &self,
        key: &PhantomKey,
        held: impl Fn(&CredentialName) -> bool,
    ) -> Result<Phantoms, IssueFailure> {
        let mut issue = Issue::new(key);
        for (at, binding) in self.bindings.all().enumerate() {
            if held(&binding.credential) {
                self.issue_one(&mut issue, at, binding).await?;
            }
        }
        Ok(issue.finish())
    }

    /// Issues the phantom of one binding, whose place in the configuration is given; of an optional
    /// part that is not there, none.
    pub(super) async fn issue_one(
        &self,
        issue: &mut Issue<'_>,
        at: usize,
        binding: &Binding,
    ) -> Result<(), IssueFailure> {
        let name = &binding.credential;
        let private_key = binding.reference.private_key;
        if let (Some(shape), None) = (&binding.shape, private_key) {
            issue.issue(name, shape, |_| false)?;
            return Ok(());
        }
        let unavailable = |cause| IssueFailure::Unavailable {
            credential: name.clone(),
            cause,
        };
        let lease = match self.slots[at].source.resolve().await {
            Err(cause) if cause.cause == StoreError::Absent && is_optional(binding) => {
                return Ok(());
            }
            lease => lease.map_err(unavailable)?,
        };
        let secret = &lease.secret;
        match private_key {
            Some(algorithm) => {
                let form = secret.key_form(algorithm).map_err(|cause| {
                    let (reference, cause) = (binding.reference.clone(), StoreError::Unsafe(cause));
                    unavailable(Unavailable { reference, cause })
                })?;
                issue.issue_key(name, &form, |text| secret.is(text))?;
            }
            None => {
                issue.issue(name, &secret.shape(), |text| secret.is(text))?;
            }
        }
        Ok(())
    }

    /// Fetches each granted secret and puts it where its phantom stood, or signs with it. Nothing
    /// is fetched without a grant.
    ///
    /// # Errors
    /// [`Error`] by cause; the request is gone then, and nothing of it was sent.
    pub async fn attach(&self, verified: Verified) -> Result<Credentialed, Error> {
        let (authorized, proof) = verified.into_parts();
        let AuthorizedParts {
            mut head,
            mut content,
            meter,
            upgrade,
            session,
            grants,
            identity,
        } = authorized.into_parts();
        let mut fetched = Vec::with_capacity(grants.len());
        for grant in &grants {
            // INVARIANT: a grant names the origin that it was given for; policy made both from one
            // request.
            if *grant.origin() != head.origin {
                return Err(Error::Unknown);
            }
            let lend = grant.lend();
            if minted(lend).is_some() {
                continue;
            }
            fetched.push((lend.credential().clone(), self.lease(lend.index()).await?));
            if lend.signing().is_some() {
                // Rarely more than a look: boxed, so that the usual exchange does not carry room
                // for it.
                Box::pin(self.fetch_parts(lend, &session, &mut fetched)).await?;
                usable(&session, &fetched)?;
            }
        }
        let signs = proof.as_ref().map(|(grant, _)| *grant);
        // An origin that was ever lent something may answer with it now: then the answer must be
        // one that can be searched.
        let lends = grants.iter().enumerate().any(|(at, _)| Some(at) != signs);
        let wanted = Wanted {
            bound: self.fetch_bound(&head.origin, &fetched).await?,
            lent: &fetched,
            strict: lends || self.bindings.manages(&head.origin),
            signs: proof.is_some(),
            signed_for: self.bindings.signs_for(&head.origin),
        };
        let mut lent = self.look_for(&session, &wanted)?;
        for grant in grants
            .iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != signs)
        {
            let lend = grant.1.lend();
            let ready = &self.slots.get(lend.index()).ok_or(Error::Unknown)?.ready;
            let lease = leased(&fetched, lend.credential())?;
            inject(&mut head.fields, &mut head.target, lend, lease, ready).map_err(Error::Unfit)?;
        }
        let mut decoding = Share::of(session.decoding_of(&self.holding.decoding).clone());
        match &lent {
            Some(lent) if lent.is_strict() => ask_for_searchable(&mut head.fields, &mut decoding),
            // What a request signs stays as it is, and its answer is decoded where it tells of an
            // error alone.
            Some(_) if signs.is_none() => {
                body::ask_for_affordable(&mut head.fields, &mut decoding, false);
            }
            _ => {}
        }
        let mut minting = None;
        if let Some((grant, mut proof)) = proof {
            let lend = grants.get(grant).ok_or(Error::Unknown)?.lend();
            if proof.mints() {
                // What is to be read is asked for without a coding.
                head.fields
                    .insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
                minting = Some(Minting {
                    session: session.clone(),
                    parent: lend.credential().clone(),
                });
            }
            if let Some(minted) = minted(lend) {
                let secrets = ExposedSecrets::of(&session)?.minted(minted);
                proof.sign_with(secrets.ok_or(Error::Unknown)?);
            }
            let last = &self.slots.get(lend.index()).ok_or(Error::Unknown)?.last;
            // Last of all: what is signed is what goes out.
            let budget = session.part_of(&self.holding.budget);
            let made = sign(
                &mut head,
                &mut content,
                proof,
                lend,
                &fetched,
                (last, budget),
            )?;
            if let Some(lent) = &mut lent {
                lent.made = lent.searched.signatures.keep(made);
            }
        }
        let upgrades = upgrade.is_some();
        Ok(Credentialed {
            head,
            content,
            meter,
            upgrade,
            upgrades,
            grants,
            identity,
            lent,
            minting,
            decoding,
        })
    }

    pub(super) async fn lease(&self, index: usize) -> Result<Lease, Error> {
        let leased = self.slot(index)?.source.resolve().await;
        leased.map_err(|why| Error::Unavailable(Box::new(why)))
    }

    /// The parts of a signing credential beside its first, which has just been fetched; all of one
    /// run of a program, where one prints them together.
    async fn fetch_parts(
        &self,
        lend: &Lend,
        session: &Session,
        fetched: &mut Fetched,
    ) -> Result<(), Error> {
        let first = fetched.len().saturating_sub(1);
        let parts: Vec<&SigningPart> = lend
            .signing()
            .iter()
            .flat_map(|signing| &signing.parts)
            // What the session has no phantom of, the credential does not have.
            .filter(|part| session.phantoms().of(&part.credential).is_some())
            .collect();
        for _ in 0..MOST_RUNS {
            for part in &parts {
                let index = self
                    .bindings
                    .index_of(&part.credential)
                    .ok_or(Error::Unknown)?;
                fetched.push((part.credential.clone(), self.lease(index).await?));
            }
            let run = fetched[first].1.run;
            if fetched[first..].iter().all(|(_, lease)| lease.run == run) {
                return Ok(());
            }
            // One of them was renewed between two: what is older is asked for again.
            let newest = fetched[first..]
                .iter()
                .filter_map(|(_, lease)| lease.run)
                .max();
            let old = fetched[first..]
                .iter()
                .filter(|(_, lease)| lease.run < newest);
            for index in old.filter_map(|(name, _)| self.bindings.index_of(name)) {
                self.slots.get(index).ok_or(Error::Unknown)?.source.forget();
            }
            fetched.truncate(first);
            fetched.push((lend.credential().clone(), self.lease(lend.index()).await?));
        }
        Err(Error::Unfit(AttachFailure::Expired))
    }
}

/// The temporary credentials that a request is signed with, where it is.
fn minted(lend: &Lend) -> Option<&Arc<Minted>> {
    match lend.spot() {
        Spot::SigV4(request) => request.minted.as_ref(),
        _ => None,
    }
}

/// Whether a credential may be without this part of it.
pub(super) fn is_optional(binding: &Binding) -> bool {
    match &binding.role {
        Role::Part(signing) => signing
            .parts
            .iter()
            .any(|part| part.optional && part.credential == binding.credential),
        Role::Place | Role::Signs(_) => false,
    }
}

/// Whether what was fetched for a signature still serves, and is not by chance what the session
/// holds.
fn usable(session: &Session, fetched: &Fetched) -> Result<(), Error> {
    for (name, lease) in fetched {
        if lease.expires.is_some_and(|end| Instant::now() >= end) {
            return Err(Error::Unfit(AttachFailure::Expired));
        }
        let phantom = session.phantoms().of(name).ok_or(Error::Unknown)?;
        if lease.secret.is(phantom.reveal().as_bytes()) {
            return Err(Error::Unfit(SecretUnsafe::Phantom.into()));
        }
    }
    Ok(())
}

/// Asks for an answer in which echoes can be found.
fn ask_for_searchable(fields: &mut HeaderMap, decoding: &mut Share) {
    // An echo cut over two parts could not be found, so the whole is asked for (RFC 9110 §14.2: a
    // server may ignore a range, and so may we).
    fields.remove(RANGE);
    fields.remove(IF_RANGE);
    // An answer in a coding that we cannot undo could not be scrubbed (threats I03).
    body::ask_for_affordable(fields, decoding, true);
    // Nor could messages that are compressed one by one, so they are not asked for.
    fields.remove("grpc-accept-encoding");
    fields.remove("connect-accept-encoding");
}

/// How often parts that do not belong together are asked for again.
const MOST_RUNS: usize = 3;
