//! The proofs that policy alone can give: an authorized request, and the grants to lend credentials
//! to it.

use std::sync::Arc;
use std::time::SystemTime;

use http_body::Body as _;

use super::explain::Explanation;

use super::generation::Policies;
use super::question::Facts;
use super::verdict::Verdict;
use crate::body::{Content, HoldBudget, HoldFault, Limit, Meter};
use crate::intercept::{Arrival, Upgrade};
use crate::message::{Origin, RequestHead};
use crate::names::{CredentialName, Identity};
use crate::session::{FormWatch, Identified, IdentifiedParts, Lend, Session};

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
    pub fn authorize(&self, identified: Identified) -> Result<Authorized, Box<Denied>> {
        let generation = self.look();
        let IdentifiedParts {
            arrival,
            head,
            content,
            meter,
            upgrade,
            session,
            lends,
            watch,
            batch,
        } = identified.into_parts();
        let names: Arc<[CredentialName]> =
            lends.iter().map(|lend| lend.credential().clone()).collect();
        let actions: Vec<String> = lends.iter().flat_map(Lend::actions).collect();
        let asked = (&*names, &*actions);
        let facts = Facts {
            batch,
            ..facts(
                &arrival,
                &head,
                &content,
                upgrade.is_some(),
                &session,
                asked,
            )
        };
        let verdict = generation.ask(&facts);
        if !verdict.allowed() {
            let explanation = generation.explain(&facts, &verdict);
            return Err(Box::new(Denied {
                verdict,
                credential: None,
                explanation,
            }));
        }
        for one in &lends {
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
        let identity = Identity {
            session: session.id().clone(),
            credentials: names,
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

fn facts<'a>(
    arrival: &'a Arrival,
    head: &'a RequestHead,
    content: &Content,
    websocket: bool,
    session: &'a Session,
    (credentials, actions): (&'a [CredentialName], &'a [String]),
) -> Facts<'a> {
    Facts {
        session: session.id(),
        groups: session.groups(),
        entry: arrival.entry.as_str(),
        now: SystemTime::now(),
        scheme: head.origin.scheme,
        host: &head.origin.authority.host,
        port: head.origin.authority.port,
        method: head.method.as_str(),
        target: &head.target,
        fields: &head.fields,
        content_length: content.size_hint().exact(),
        content: None,
        upgrade: if websocket { "websocket" } else { "" },
        credentials,
        batch: false,
        actions,
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
