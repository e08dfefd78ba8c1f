//! The last step before a request leaves: each grant's secret is fetched and put where its phantom stood.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use http::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use http::{HeaderMap, Method};

use super::inject::{AttachFailure, Prepared, inject};
use super::scrub::{Echoes, ScrubBody, ScrubFrames, Scrubber, Unscrubbable};
use super::secret::Secret;
use super::store::{Lease, Source, Stores, Unavailable};
use crate::body::{self, Content, Meter};
use crate::intercept::Upgrade;
use crate::message::{Origin, RequestHead};
use crate::names::{CredentialName, Identity, Map, SessionId};
use crate::policy::{Authorized, AuthorizedParts, Grant};
use crate::session::phantom::{Issue, PhantomFailure, PhantomKey, Phantoms};
use crate::session::{Binding, Bindings, Session};

/// Why a request did not get its credential. It is not sent then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such credential is configured.
    #[error("the credential is not configured")]
    Unknown,
    /// The store does not give it now.
    #[error("the credential cannot be had from its store")]
    Unavailable(#[source] Unavailable),
    /// The secret cannot stand where the phantom stood, or has not the shape that the phantom was made for.
    #[error("the credential does not fit where its phantom stands")]
    Unfit(#[source] AttachFailure),
    /// Echoes of the secret could not be found again.
    #[error("the credential could not be kept from coming back")]
    Unscrubbable(#[source] Unscrubbable),
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
        }
    }
}

/// The credentials that may be lent, by name, and what was lent in which session.
pub struct Credentials {
    bindings: Arc<Bindings>,
    slots: Vec<Slot>,
    sessions: Mutex<Map<SessionId, Arc<Lending>>>,
}

/// What a session was lent so far. An answer of a later exchange may still echo it, so it is looked for in all of them.
struct Lending {
    lent: Vec<(CredentialName, Arc<Secret>)>,
    echoes: Arc<Echoes>,
}

/// What belongs to one binding: where its secret comes from, and the field values that were built from the last one.
struct Slot {
    source: Source,
    ready: ArcSwapOption<Prepared>,
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
        };
        let slots = bindings.all().map(slot).collect();
        Self {
            bindings,
            slots,
            sessions: Mutex::default(),
        }
    }

    /// What may be lent, and where.
    #[must_use]
    pub fn bindings(&self) -> &Arc<Bindings> {
        &self.bindings
    }

    /// Issues the phantoms of a session, for the credentials that it may hold.
    ///
    /// Where no shape is declared, the secret is fetched to look at it. The order is that of the configuration, so
    /// replicas with one key and one configuration agree.
    ///
    /// # Errors
    /// [`IssueFailure`] by cause.
    pub async fn issue(
        &self,
        key: &PhantomKey,
        held: impl Fn(&CredentialName) -> bool,
    ) -> Result<Phantoms, IssueFailure> {
        let mut issue = Issue::new(key);
        for (binding, slot) in self.bindings.all().zip(&self.slots) {
            let name = &binding.credential;
            if !held(name) {
                continue;
            }
            match &binding.shape {
                Some(shape) => issue.issue(name, shape, |_| false)?,
                None => {
                    let unavailable = |cause| IssueFailure::Unavailable {
                        credential: name.clone(),
                        cause,
                    };
                    let lease = slot.source.resolve().await.map_err(unavailable)?;
                    issue.issue(name, &lease.secret.shape(), |text| lease.secret.is(text))?
                }
            };
        }
        Ok(issue.finish())
    }

    /// Forgets a credential's secret and what was built from it, so that the next use asks its store.
    pub fn renew(&self, credential: &CredentialName) {
        for (_, slot) in self
            .bindings
            .all()
            .zip(&self.slots)
            .filter(|(one, _)| one.credential == *credential)
        {
            slot.source.forget();
            slot.ready.store(None);
        }
    }

    /// Fetches each granted secret and puts it where its phantom stood. Nothing is fetched without a grant.
    ///
    /// # Errors
    /// [`Error`] by cause; the request is gone then, and nothing of it was sent.
    pub async fn attach(&self, authorized: Authorized) -> Result<Credentialed, Error> {
        let AuthorizedParts {
            mut head,
            content,
            meter,
            upgrade,
            session,
            grants,
            identity,
        } = authorized.into_parts();
        let mut fetched = Vec::with_capacity(grants.len());
        for grant in &grants {
            // INVARIANT: a grant names the origin that it was given for; policy made both from one request.
            if *grant.origin() != head.origin {
                return Err(Error::Unknown);
            }
            let slot = self.slots.get(grant.lend().index()).ok_or(Error::Unknown)?;
            fetched.push(slot.source.resolve().await.map_err(Error::Unavailable)?);
        }
        // An origin that was lent something before may answer with it now: then the answer must be one that can be searched.
        let strict = !grants.is_empty() || self.bindings.manages(&head.origin);
        let lent = self.remember(&session, &grants, &fetched, strict)?;
        for (grant, lease) in grants.iter().zip(&fetched) {
            let ready = &self.slots.get(grant.lend().index()).ok_or(Error::Unknown)?.ready;
            inject(&mut head.fields, &mut head.target, grant.lend(), lease, ready).map_err(Error::Unfit)?;
        }
        if lent.as_ref().is_some_and(Lent::is_strict) {
            // An echo cut over two parts could not be found, so the whole is asked for (RFC 9110 §14.2: a server may
            // ignore a range, and so may we).
            head.fields.remove(RANGE);
            head.fields.remove(IF_RANGE);
            // An answer in a coding that we cannot undo could not be scrubbed (threats I03).
            let accepted = body::accept_encoding(&head.fields);
            head.fields.insert(ACCEPT_ENCODING, accepted);
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
        })
    }

    /// Adds to what the session was lent; gives what to look for in the answer.
    fn remember(
        &self,
        session: &Session,
        grants: &[Grant],
        leases: &[Lease],
        strict: bool,
    ) -> Result<Option<Lent>, Error> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sessions.get(session.id());
        let is_new = |lease: &Lease| {
            !known.is_some_and(|known| {
                known
                    .lent
                    .iter()
                    .any(|(_, lent)| Arc::ptr_eq(lent, &lease.secret))
            })
        };
        let new: Vec<_> = grants
            .iter()
            .zip(leases)
            .filter(|(_, lease)| is_new(lease))
            .map(|(grant, lease)| (grant.lend().credential().clone(), lease.secret.clone()))
            .collect();
        if new.is_empty() {
            return Ok(known.map(|known| Lent {
                echoes: known.echoes.clone(),
                strict,
            }));
        }
        let mut lent = known.map_or_else(Vec::new, |known| known.lent.clone());
        lent.extend(new);
        // A rotated secret is looked for beside its predecessors, the latest of them.
        let surplus = lent.len().saturating_sub(MOST_REMEMBERED);
        lent.drain(..surplus);
        let pairs = lent.iter().filter_map(|(name, secret)| {
            session
                .phantoms()
                .of(name)
                .map(|phantom| (secret.expose(), phantom.reveal().as_bytes()))
        });
        let echoes = Arc::new(Echoes::new(pairs).map_err(Error::Unscrubbable)?);
        sessions.insert(
            session.id().clone(),
            Arc::new(Lending {
                lent,
                echoes: echoes.clone(),
            }),
        );
        Ok(Some(Lent { echoes, strict }))
    }

    /// Forgets what a session was lent, with the session.
    pub fn forget(&self, session: &SessionId) {
        self.sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(session);
    }
}

/// Secrets of one session that answers are searched for.
const MOST_REMEMBERED: usize = 256;

/// A request that carries its secrets: it can only be forwarded on a channel to the origin that it was granted for.
pub struct Credentialed {
    head: Box<RequestHead>,
    content: Content,
    meter: Arc<Meter>,
    upgrade: Option<Box<Upgrade>>,
    upgrades: bool,
    grants: Vec<Grant>,
    identity: Identity,
    lent: Option<Lent>,
}

/// What is looked for in the answer.
#[derive(Clone)]
pub struct Lent {
    echoes: Arc<Echoes>,
    strict: bool,
}

impl Lent {
    /// Whether the origin knows a secret, from this exchange or an earlier one, so that an answer that cannot be searched
    /// is refused.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Replaces echoes in fields; gives their number.
    pub fn scrub_fields(&self, fields: &mut HeaderMap) -> u64 {
        self.echoes.scrub_fields(fields)
    }

    /// Replaces echoes in content as it streams.
    pub fn scrub<B>(&self, body: B) -> ScrubBody<B> {
        ScrubBody::new(body, Scrubber::new(self.echoes.clone()))
    }

    /// Replaces echoes in the WebSocket messages of the origin.
    #[must_use]
    pub fn scrub_frames(&self) -> ScrubFrames {
        ScrubFrames::new(self.echoes.clone())
    }
}

/// The pieces of a credentialed request.
pub(crate) struct CredentialedParts {
    pub(crate) head: Box<RequestHead>,
    pub(crate) content: Content,
    pub(crate) meter: Arc<Meter>,
    pub(crate) upgrades: bool,
}

impl Credentialed {
    /// To whom it may go.
    pub(crate) fn origin(&self) -> &Origin {
        &self.head.origin
    }

    /// In whose name.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What was lent, and where it stands.
    pub fn lent_to(&self) -> impl Iterator<Item = (&CredentialName, &str)> {
        self.grants
            .iter()
            .map(|grant| (grant.lend().credential(), grant.lend().place_text()))
    }

    /// What the answer is handled with: what to look for in it, the method that it answers, and the client's wish to
    /// upgrade, which is taken.
    pub fn for_the_answer(&mut self) -> (Option<Lent>, Method, Option<Box<Upgrade>>) {
        (self.lent.clone(), self.head.method.clone(), self.upgrade.take())
    }

    /// Takes the request apart, for the room that forwards.
    pub(crate) fn into_parts(self) -> CredentialedParts {
        let Self {
            head,
            content,
            meter,
            upgrades,
            ..
        } = self;
        CredentialedParts {
            head,
            content,
            meter,
            upgrades,
        }
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;
    use crate::session::stage::{GITHUB, binding, head, issue, name};

    #[test]
    fn an_origin_that_may_know_a_secret_is_searched_strictly_after_it_was_lent() {
        let bindings = vec![binding(
            "github",
            &["https://good.example"],
            &["header:authorization:Bearer"],
        )];
        let bindings = Arc::new(Bindings::new(bindings).unwrap());
        let phantoms = issue(&bindings, 1);
        let credentials = Credentials::new(bindings.clone(), &Stores::new([]));
        let id = SessionId::new("ours").unwrap();
        let session = Session::new(id.clone(), Vec::new(), bindings.clone(), phantoms, None);
        let strict = |origin: &str| {
            let origin = head(origin, "/", &[]).origin;
            let lent = credentials.remember(&session, &[], &[], bindings.manages(&origin));
            lent.unwrap().map(|lent| lent.is_strict())
        };
        assert_eq!(strict("https://good.example"), None, "nothing was lent yet");
        let secret = Secret::new(Zeroizing::new(GITHUB.as_bytes().to_vec()), false).unwrap();
        let phantom = session
            .phantoms()
            .of(&name("github"))
            .unwrap()
            .reveal()
            .as_bytes();
        let echoes = Arc::new(Echoes::new([(GITHUB.as_bytes(), phantom)]).unwrap());
        let lent = vec![(name("github"), Arc::new(secret))];
        let lending = Arc::new(Lending { lent, echoes });
        credentials.sessions.lock().unwrap().insert(id, lending);
        assert_eq!(strict("https://good.example"), Some(true));
        assert_eq!(strict("https://other.example"), Some(false));
    }
}
