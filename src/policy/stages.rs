//! The proofs that policy alone can give: an authorized request, and the grants to lend credentials
//! to it.

use std::sync::Arc;
use std::time::SystemTime;

use http_body::Body as _;

use super::content::{ContentFacts, NOTHING};
use super::explain::Explanation;
use super::gather::Gathered;
use super::generation::Policies;
use super::question::Facts;
use super::verdict::Verdict;
use crate::body::{Content, HoldBudget, HoldFault, Limit, Meter};
use crate::intercept::{Arrival, Upgrade};
use crate::message::{Origin, RequestHead};
use crate::names::{CredentialName, Identity};
use crate::session::{FormWatch, IdentifiedParts, Lend, Session};

/// Leave to lend one credential to one request, in one place, at one origin. It cannot be copied or
/// kept.
pub struct Grant {
    lend: Lend,
    origin: Origin,
}

impl Grant {
    /// What is to be lent, and where it will stand.
    #[must_use]
    pub fn lend(&self) -> &Lend {
        &self.lend
    }

    /// To whom it may go.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }
}

/// A request that policy allows, with a grant for each credential that it will carry.
pub struct Authorized {
    arrival: Arc<Arrival>,
    head: Box<RequestHead>,
    content: Content,
    meter: Arc<Meter>,
    upgrade: Option<Box<Upgrade>>,
    session: Arc<Session>,
    grants: Vec<Grant>,
    watch: Option<FormWatch>,
    identity: Identity,
    verdict: Verdict,
}

/// A request that policy refuses.
#[derive(Debug, thiserror::Error)]
#[error("policy denies the request")]
pub struct Denied {
    /// The decision.
    pub verdict: Verdict,
    /// The credential that it may not have; `None` where the request itself is refused.
    pub credential: Option<CredentialName>,
    /// Why, and what would allow it: for the client and the operator, without any value of the
    /// request's fields.
    pub explanation: Explanation,
}

impl Policies {
    /// Judges a request: may it ask, and may each credential that it presents be lent to it?
    ///
    /// # Errors
    /// [`Denied`] where any of the questions is not answered with a permit; one failed evaluation
    /// denies all.
    pub fn authorize(&self, gathered: Gathered) -> Result<Authorized, Box<Denied>> {
        let Gathered { asked, generation } = gathered;
        let facts = asked.facts();
        let verdict = generation.ask(&facts);
        if !verdict.allowed() {
            let explanation = generation.explain(&facts, &verdict);
            return Err(Box::new(Denied {
                verdict,
                credential: None,
                explanation,
            }));
        }
        for one in &asked.parts.lends {
            let place = one.place_text();
            let lent = generation.lend(&facts, one.credential(), place);
            if !lent.allowed() {
                let explanation = generation.explain_loan(&facts, one.credential(), place, &lent);
                return Err(Box::new(Denied {
                    verdict: lent,
                    credential: Some(one.credential().clone()),
                    explanation,
                }));
            }
        }
        let IdentifiedParts {
            arrival,
            head,
            content,
            meter,
            upgrade,
            session,
            lends,
            watch,
            ..
        } = asked.parts;
        let identity = Identity {
            session: session.id().clone(),
            credentials: asked.credentials,
        };
        let grants = lends
            .into_iter()
            .map(|lend| Grant {
                lend,
                origin: head.origin.clone(),
            })
            .collect();
        Ok(Authorized {
            arrival,
            head,
            content,
            meter,
            upgrade,
            session,
            grants,
            watch,
            identity,
            verdict,
        })
    }
}

/// A request of a session, with what its verdict depends on beside the head.
pub(super) struct Asked {
    pub(super) parts: IdentifiedParts,
    credentials: Arc<[CredentialName]>,
    actions: Vec<String>,
    /// What was read of the content.
    pub(super) content: Option<ContentFacts>,
}

impl Asked {
    pub(super) fn new(parts: IdentifiedParts) -> Self {
        let lends = &parts.lends;
        Self {
            credentials: lends.iter().map(|lend| lend.credential().clone()).collect(),
            actions: lends.iter().flat_map(Lend::actions).collect(),
            content: None,
            parts,
        }
    }

    /// What policy judges.
    pub(super) fn facts(&self) -> Facts<'_> {
        let parts = &self.parts;
        let nothing = || parts.content.is_empty().then_some(&NOTHING);
        Facts {
            session: parts.session.id(),
            groups: parts.session.groups(),
            entry: parts.arrival.entry.as_str(),
            now: SystemTime::now(),
            scheme: parts.head.origin.scheme,
            host: &parts.head.origin.authority.host,
            port: parts.head.origin.authority.port,
            method: parts.head.method.as_str(),
            target: &parts.head.target,
            fields: &parts.head.fields,
            content_length: parts.content.size_hint().exact(),
            content: self.content.as_ref().or_else(nothing),
            upgrade: if parts.upgrade.is_some() {
                "websocket"
            } else {
                ""
            },
            credentials: &self.credentials,
            batch: parts.batch,
            actions: &self.actions,
        }
    }
}

impl Authorized {
    /// The head as it was judged; it can be read and not changed.
    #[must_use]
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// In whose name connections for it are used.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The decision, with the policies that took it.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// What will be lent.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Whose it is.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The content, which can be looked at as far as it is held.
    #[must_use]
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// What may not stand in its content.
    #[must_use]
    pub fn watch(&self) -> Option<&FormWatch> {
        self.watch.as_ref()
    }

    /// The same request, with all of its content held.
    ///
    /// # Errors
    /// [`HoldFault`] by cause; the request is gone then.
    pub async fn holding(self, limit: Limit, budget: &Arc<HoldBudget>) -> Result<Self, HoldFault> {
        let content = self.content.hold(limit, budget).await?;
        Ok(Self { content, ..self })
    }

    /// Takes the request apart, for the room that lends.
    pub(crate) fn into_parts(self) -> AuthorizedParts {
        let Self {
            head,
            content,
            meter,
            upgrade,
            session,
            grants,
            identity,
            ..
        } = self;
        AuthorizedParts {
            head,
            content,
            meter,
            upgrade,
            session,
            grants,
            identity,
        }
    }

    /// What is known of the connection.
    #[must_use]
    pub fn arrival(&self) -> &Arrival {
        &self.arrival
    }
}

/// The pieces of an authorized request.
pub(crate) struct AuthorizedParts {
    pub(crate) head: Box<RequestHead>,
    pub(crate) content: Content,
    pub(crate) meter: Arc<Meter>,
    pub(crate) upgrade: Option<Box<Upgrade>>,
    pub(crate) session: Arc<Session>,
    pub(crate) grants: Vec<Grant>,
    pub(crate) identity: Identity,
}
