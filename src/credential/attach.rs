//! The last step before a request leaves: each grant's secret is fetched and put where its phantom
//! stood.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use http::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::credentialed::{AnswerPlan, Credentialed};
use super::exposed::Wanted;
use super::given::Given;
use super::inject::{AttachFailure, Prepared, inject};
use super::mint::{MintFailure, Minting};
use super::scrub::{Guessed, Unscrubbable};
use super::secret::{Secret, SecretUnsafe};
use super::sign::{Fetched, leased, sign};
use super::store::{CachedSecret, SecretRef, SecretSource, StoreError, Stores, Unavailable};
use super::stored::Stored;
use super::verify::{Holding, Verified};
use crate::body::{self, HoldFault, Share};
use crate::intercept::Request;
use crate::message::Origin;
use crate::names::{CredentialName, ReasonCode, SessionId};
use crate::policy::Grant;
use crate::session::phantom::{Issue, Minted, PhantomFailure, PhantomKey, Phantoms};
use crate::session::{
    Binding, BindingMalformed, Bindings, CredentialRefusal, Lend, Role, Session, SigningPart, Spot,
    Unsignable,
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
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Unknown => ReasonCode::CredentialUnknown,
            Self::Unavailable(_) => ReasonCode::SecretUnavailable,
            Self::Unfit(why) => why.reason(),
            Self::Unscrubbable(_) => ReasonCode::SecretUnsafe,
            Self::Signature(fault) | Self::Signing(fault) => fault.reason(),
            Self::Unsignable(why) => why.reason(),
            Self::Skewed => ReasonCode::SignatureSkew,
            Self::Expired => ReasonCode::SignatureExpired,
            Self::NoRandomness => ReasonCode::NoRandomness,
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
    stores: Stores,
    slots: Vec<Slot>,
    holding: Holding,
    /// The sessions whose answers are searched for something.
    exposed_to: Mutex<Vec<Weak<Session>>>,
    /// From it stand-ins are drawn for secrets that a session holds no phantom of; `None` where
    /// there was no randomness.
    strangers: Option<PhantomKey>,
}

/// What belongs to one binding: where its secret comes from, and the field values that were built
/// from the last one.
pub(super) struct Slot {
    pub(super) source: SecretSource,
    ready: ArcSwapOption<Prepared>,
    pub(super) given: Given,
    /// The greatest number that was used once, where signing with it takes such.
    last: AtomicU64,
}

impl Slot {
    /// What its store gave and is still looked for. What is issued to sessions is as long as its
    /// lease lives, however often that was renewed.
    pub(super) fn given_before(&self) -> Vec<Arc<Secret>> {
        for cached in self.source.issued() {
            self.given.add(&cached.secret, cached.expires);
        }
        self.given.all()
    }
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
    /// The credentials of a configuration, each from its store.
    ///
    /// # Errors
    /// [`BindingMalformed`] by cause.
    pub fn new(stored: Vec<Stored>, stores: &Stores) -> Result<Self, BindingMalformed> {
        let slot = |stored: &Stored| Slot {
            source: stores.source(&stored.from),
            ready: ArcSwapOption::empty(),
            given: Given::default(),
            last: AtomicU64::new(0),
        };
        let slots = stored.iter().map(slot).collect();
        let bindings = stored.into_iter().map(|stored| stored.binding).collect();
        Ok(Self {
            bindings: Arc::new(Bindings::new(bindings)?),
            stores: stores.clone(),
            slots,
            holding: Holding::default(),
            exposed_to: Mutex::default(),
            strangers: PhantomKey::random().ok(),
        })
    }

    /// The same, with other bounds for content that is held.
    #[must_use]
    pub fn with_holding(self, holding: Holding) -> Self {
        Self { holding, ..self }
    }

    pub(super) fn exposed_to(&self) -> MutexGuard<'_, Vec<Weak<Session>>> {
        self.exposed_to.lock()
    }

    pub(super) fn strangers(&self) -> Option<&PhantomKey> {
        self.strangers.as_ref()
    }

    pub(super) fn slot(&self, index: usize) -> Result<&Slot, Error> {
        self.slots.get(index).ok_or(Error::Unknown)
    }

    pub(crate) fn holding(&self) -> &Holding {
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
        session: &SessionId,
        key: &PhantomKey,
        held: impl Fn(&CredentialName) -> bool,
    ) -> Result<Phantoms, IssueFailure> {
        let mut issue = Issue::new(key);
        for (at, binding) in self.bindings.all().enumerate() {
            if held(&binding.credential) {
                self.issue_one(session, &mut issue, at, binding).await?;
            }
        }
        Ok(issue.finish())
    }

    /// Issues the phantom of one binding, whose place in the configuration is given; of an optional
    /// part that is not there, none.
    pub(super) async fn issue_one(
        &self,
        session: &SessionId,
        issue: &mut Issue<'_>,
        at: usize,
        binding: &Binding,
    ) -> Result<(), IssueFailure> {
        let name = &binding.credential;
        let source = &self.slots[at].source;
        let private_key = source.reference().private_key();
        if let (Some(shape), None) = (&binding.shape, private_key) {
            issue.issue(name, shape, |_| false)?;
            return Ok(());
        }
        let unavailable = |cause| IssueFailure::Unavailable {
            credential: name.clone(),
            cause,
        };
        let lease = match source.resolve(Some(session)).await {
            Err(cause) if cause.cause.is_absent() && is_optional(binding) => {
                return Ok(());
            }
            lease => lease.map_err(unavailable)?,
        };
        let secret = &lease.secret;
        match private_key {
            Some(algorithm) => {
                let form = secret.key_form(algorithm).map_err(|cause| {
                    let (reference, cause) =
                        (Box::new(self.reference(at)), StoreError::Unsafe(cause));
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
        let (mut request, session, grants, identity) = authorized.into_parts();
        let Request { head, content, .. } = &mut *request;
        let fetched = self.fetch_granted(&head.origin, &session, &grants).await?;
        let signs = proof.as_ref().map(|(grant, _)| *grant);
        // An origin that was ever lent something may answer with it now: then the answer must be
        // one that can be searched.
        let lends = grants.iter().enumerate().any(|(at, _)| Some(at) != signs);
        let wanted = Wanted {
            bound: self
                .fetch_bound(session.id(), &head.origin, &fetched)
                .await?,
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
                let secrets = self.exposed(&session)?.minted(minted);
                proof.sign_with(secrets.ok_or(Error::Unknown)?);
            }
            let last = &self.slots.get(lend.index()).ok_or(Error::Unknown)?.last;
            // Last of all: what is signed is what goes out.
            let budget = session.part_of(&self.holding.budget);
            let made = sign(head, content, proof, lend, &fetched, (last, budget))?;
            if let Some(lent) = &mut lent {
                lent.made = lent.searched.load().signatures.keep(made);
            }
        }
        let answer = AnswerPlan {
            lent,
            method: head.method.clone(),
            upgrade: request.upgrade.take(),
            minting,
            decoding,
        };
        Ok(Credentialed {
            request,
            grants,
            identity,
            answer,
        })
    }

    /// Fetches the secret of each grant, with the other parts of one that signs.
    async fn fetch_granted(
        &self,
        origin: &Origin,
        session: &Session,
        grants: &[Grant],
    ) -> Result<Fetched, Error> {
        let mut fetched = Vec::with_capacity(grants.len());
        for grant in grants {
            // INVARIANT: a grant names the origin that it was given for; policy made both from one
            // request.
            if grant.origin() != origin {
                return Err(Error::Unknown);
            }
            let lend = grant.lend();
            if minted(lend).is_some() {
                continue;
            }
            let named = (lend.credential(), lend.index());
            self.fetch(named, session, &mut fetched).await?;
            if let Some(signing) = lend.signing() {
                // What the session has no phantom of, the credential does not have.
                let held = |part: &&SigningPart| session.phantoms().of(&part.credential).is_some();
                for SigningPart { credential, .. } in signing.parts.iter().filter(held) {
                    let index = self.bindings.index_of(credential).ok_or(Error::Unknown)?;
                    self.fetch((credential, index), session, &mut fetched)
                        .await?;
                }
                usable(session, &fetched)?;
            }
        }
        Ok(fetched)
    }

    pub(super) async fn lease(
        &self,
        session: &SessionId,
        index: usize,
    ) -> Result<CachedSecret, Error> {
        let leased = self.slot(index)?.source.resolve(Some(session)).await;
        leased.map_err(|why| Error::Unavailable(Box::new(why)))
    }

    /// Where the secret of a binding is kept, by its place in the configuration.
    pub(super) fn reference(&self, at: usize) -> SecretRef {
        self.slots[at].source.reference().clone()
    }

    /// Fetches a credential's secret, of the reading that another of the request is already of
    /// where both are kept in one place: what belongs together is never mixed.
    async fn fetch(
        &self,
        (name, index): (&CredentialName, usize),
        session: &Session,
        fetched: &mut Fetched,
    ) -> Result<(), Error> {
        let source = &self.slot(index)?.source;
        let cached = match fetched.iter().find_map(|(_, other)| source.beside(other)) {
            Some(beside) => beside,
            None => source.resolve(Some(session.id())).await,
        };
        let cached = cached.map_err(|why| Error::Unavailable(Box::new(why)))?;
        fetched.push((name.clone(), cached));
        Ok(())
    }

    /// The stores, whose leases somebody must renew and end.
    #[must_use]
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Revokes what was issued to a session, with the session.
    pub async fn end(&self, session: &SessionId) {
        self.stores.end(session).await;
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
    let phantoms = session.phantoms();
    for (name, lease) in fetched {
        if lease.expires.is_some_and(|end| Instant::now() >= end) {
            return Err(Error::Unfit(AttachFailure::Expired));
        }
        let phantom = phantoms.of(name).ok_or(Error::Unknown)?;
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
