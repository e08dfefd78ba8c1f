//! Proofs that only policy can give: an authorized request, and the grants to lend it credentials.

use std::sync::Arc;

use gateway_body::read::{Call, Push};
use gateway_body::{Content, HoldBudget, HoldFault, Limit};
use gateway_intercept::Request;
use gateway_message::{Origin, RequestHead};
use gateway_names::{CredentialName, Identity, Tie};
use gateway_session::{Bindings, CredentialUse, OriginBindings, Session};
use smallvec::SmallVec;

use super::explain::Explanation;
use super::gather::Gathered;
use super::generation::{Generation, Policies};
use super::judged::{JudgedRequest, RefusedQuestion};
use super::judges::{JudgeInput, NoObjection, Objection, Ruling};
use super::verdict::{Obligations, Verdict};

/// Permission to lend one credential to one request, in one place, at one origin. It cannot be
/// copied or stored.
pub struct Grant {
    lend: CredentialUse,
    origin: Origin,
}

impl Grant {
    /// Returns the credential to lend, and where it will appear.
    pub fn lend(&self) -> &CredentialUse {
        &self.lend
    }

    /// Returns the origin that may receive it.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }
}

/// The decision about a request.
#[must_use = "a decision that nobody looks at allows nothing"]
pub enum Decision {
    /// The request may be sent with its credentials, once the obligations of the verdict are met.
    Allow(Authorized),
    /// Policy refuses the request.
    Deny(Box<Denied>),
    /// Another judge refuses it.
    Object(Box<Objected>),
}

/// A request to which no judge objects, with a grant for each credential that it will carry.
pub struct Authorized {
    request: Box<Request>,
    allowed: Box<Allowed>,
    _heard: NoObjection,
}

/// A request that a judge other than policy refuses.
pub struct Objected {
    /// The objection.
    pub objection: Objection,
    /// Whether a credential was revoked, and the workload is not to know.
    pub is_quiet: bool,
    verdict: Verdict,
    facts_read: Vec<String>,
}

/// The part of a request that policy allows.
pub struct Allowed {
    judged: Arc<JudgedRequest>,
    grants: SmallVec<[Grant; 1]>,
    here: Arc<OriginBindings>,
    identity: Identity,
    verdict: Verdict,
    facts_read: Vec<String>,
}

/// A request that policy refuses.
#[derive(Debug, thiserror::Error)]
#[error("policy denies the request")]
pub struct Denied {
    /// The verdict.
    pub verdict: Verdict,
    /// The credential that it may not carry, and where it was. `None` if the request itself is
    /// refused.
    pub lend: Option<(CredentialName, String)>,
    /// The names of the facts of content that were read to decide.
    pub facts_read: Vec<String>,
    /// The origin to which the request would have gone.
    pub origin: Origin,
    /// What its client is told in its own protocol.
    pub client: RefusedClient,
    /// Why it was refused and what would allow it, for the client and the operator. Holds no value
    /// of the request's fields.
    pub explanation: Explanation,
}

/// What the client of a refused request is told in its own protocol.
#[derive(Debug)]
pub struct RefusedClient {
    /// The refused push, if its commands were read and its client asks for a report.
    pub push: Option<RefusedPush>,
    /// The refused JSON-RPC call.
    pub call: Option<Call>,
}

/// A push that is refused, and what its client still sends.
#[derive(Debug)]
pub struct RefusedPush {
    /// The push.
    pub push: Push,
    /// The content after its commands.
    pub rest: Content,
}

impl Policies {
    /// Decides whether a request may be sent, and whether each credential that it presents may be
    /// lent to it. Every judge is consulted, and again by the generation in force if that is a
    /// later one.
    ///
    /// A single failed evaluation denies everything.
    pub fn decide(
        &self,
        gathered: Gathered,
        (latest, bindings): (&Generation, &Bindings),
    ) -> Decision {
        let Gathered {
            request,
            presented,
            judged,
            generation,
            refused,
        } = gathered;
        let fields = &request.head.fields;
        let verdict = refused.map_or_else(|| generation.judge_request(&judged, fields), Err);
        let facts_read = generation.facts_read(&judged, fields, verdict.as_ref().err());
        let hear = |ruling| {
            let case = JudgeInput {
                session: Some(judged.session()),
                caller: request.connection.caller.as_deref(),
                request: Some(&judged),
                ruling: Some(ruling),
            };
            case.hear()
        };
        let allowed = verdict.as_ref().ok();
        let mut heard = hear(Ruling {
            policies: allowed.map(|verdict| verdict.policies.clone()),
            bindings: None,
            fields,
        });
        let verdict = match (&heard, verdict) {
            (Err(Objection::Policy), Err(refused)) => {
                let denied = denied(&generation, &judged, request, (refused, facts_read));
                return Decision::Deny(Box::new(denied));
            }
            (_, Ok(verdict) | Err(RefusedQuestion { verdict, .. })) => verdict,
        };
        let mut verdict = verdict;
        let token = judged.token_limits();
        if !token.is_empty() {
            Arc::make_mut(verdict.obligations.get_or_insert_default()).token = token;
        }
        judged.keep(&generation, fields, verdict.obligations.clone());
        if heard.is_ok() && latest.number() > generation.number() {
            heard = hear(Ruling::later(&judged, latest, bindings));
        }
        let heard = match heard {
            Ok(heard) => heard,
            Err(objection) => {
                return Decision::Object(Box::new(Objected {
                    objection,
                    is_quiet: judged.is_quiet(),
                    verdict,
                    facts_read,
                }));
            }
        };
        let identity = Identity {
            session: judged.session().id().clone(),
            before: judged.session().before(),
            credentials: judged.credentials().clone(),
        };
        let grant = |lend| Grant {
            lend,
            origin: request.head.origin.clone(),
        };
        let allowed = Box::new(Allowed {
            grants: presented.lends.into_iter().map(grant).collect(),
            here: presented.here,
            identity,
            verdict,
            facts_read,
            judged,
        });
        Decision::Allow(Authorized {
            request,
            allowed,
            _heard: heard,
        })
    }
}

impl Decision {
    /// Returns policy's verdict, and the names of the facts of content that were read for it.
    pub fn grounds(&self) -> (&Verdict, &[String]) {
        match self {
            Self::Allow(authorized) => (authorized.verdict(), &authorized.allowed.facts_read),
            Self::Deny(denied) => (&denied.verdict, &denied.facts_read),
            Self::Object(objected) => (&objected.verdict, &objected.facts_read),
        }
    }
}

fn denied(
    generation: &Generation,
    judged: &JudgedRequest,
    request: Box<Request>,
    (refused, facts_read): (RefusedQuestion, Vec<String>),
) -> Denied {
    let fields = &request.head.fields;
    let RefusedQuestion {
        verdict,
        credential,
    } = refused;
    let standing = judged.standing(generation);
    let facts = judged.facts(&standing, fields);
    let lend = credential.and_then(|nth| judged.credential_uses().nth(nth));
    let explanation = match lend {
        Some((credential, place)) => generation.explain_use(&facts, credential, place, &verdict),
        None => generation.explain(&facts, &verdict),
    };
    Denied {
        verdict,
        facts_read,
        lend: lend.map(|(credential, place)| (credential.clone(), place.to_string())),
        origin: request.head.origin.clone(),
        client: RefusedClient::of(request),
        explanation,
    }
}

impl RefusedClient {
    fn of(request: Box<Request>) -> Self {
        let RequestHead {
            method,
            target,
            fields,
            ..
        } = &request.head;
        let begun = request.content.ahead();
        let push =
            begun.and_then(|begun| Push::of(method, target.path(), fields, || begun.whole()));
        let call = begun.and_then(|begun| Call::of(method, fields, begun));
        let push = push.map(|push| RefusedPush {
            push,
            rest: request.content,
        });
        Self { push, call }
    }
}

impl Authorized {
    /// Returns the head as it was judged. It cannot be changed.
    pub fn head(&self) -> &RequestHead {
        &self.request.head
    }

    /// Returns the content. Only the part that is held can be read.
    pub fn content(&self) -> &Content {
        &self.request.content
    }

    /// Returns the length of the content, if it is known.
    pub fn content_length(&self) -> Option<u64> {
        self.request.content_length()
    }

    /// Returns the groups of its session and its caller, in a generation.
    pub fn groups(&self, generation: &Generation) -> Arc<[Arc<str>]> {
        self.judged().standing(generation).groups
    }

    /// Returns the tie between the client's connection and those to origins.
    pub fn tie(&self) -> &Tie {
        &self.request.connection.tie
    }

    /// Whether the client asked for an upgrade.
    pub fn is_upgrade(&self) -> bool {
        self.request.upgrade.is_some()
    }

    /// Returns the facts it was judged by.
    pub fn judged(&self) -> &Arc<JudgedRequest> {
        &self.allowed.judged
    }

    /// Returns the identity under which connections are used for it.
    pub fn identity(&self) -> &Identity {
        self.allowed.identity()
    }

    /// Returns the verdict, with the policies that decided it.
    pub fn verdict(&self) -> &Verdict {
        &self.allowed.verdict
    }

    /// Returns the grants for the credentials to lend.
    pub fn grants(&self) -> &[Grant] {
        self.allowed.grants()
    }

    /// Returns what must be met before it is sent.
    pub fn obligations(&self) -> Option<&Arc<Obligations>> {
        self.verdict().obligations.as_ref()
    }

    /// Returns the session it belongs to.
    pub fn session(&self) -> &Arc<Session> {
        self.allowed.judged.session()
    }

    /// Returns the request with all of its content held.
    ///
    /// # Errors
    /// [`HoldFault`] by cause. The request is dropped then.
    pub async fn holding(
        mut self,
        limit: Limit,
        budget: &Arc<HoldBudget>,
    ) -> Result<Self, HoldFault> {
        self.request = self.request.hold(limit, budget, None).await?;
        Ok(self)
    }

    /// Returns the request with all of its content held, if that is not longer than the limit.
    ///
    /// # Errors
    /// As [`Authorized::holding`].
    pub async fn holding_if_short(
        mut self,
        limit: Limit,
        budget: &Arc<HoldBudget>,
    ) -> Result<Self, HoldFault> {
        self.request = self.request.hold_if_short(limit, budget).await?;
        Ok(self)
    }

    /// Drops the request, and returns what its client is told.
    pub fn refused(self) -> RefusedClient {
        RefusedClient::of(self.request)
    }

    /// Takes the proof apart, for the stage that lends credentials.
    pub fn into_parts(self) -> (Box<Request>, Box<Allowed>) {
        (self.request, self.allowed)
    }
}

impl Allowed {
    /// Returns the grants for the credentials to lend.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Returns the identity under which connections are used for it.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the facts it was judged by.
    pub fn judged(&self) -> &Arc<JudgedRequest> {
        &self.judged
    }

    /// Returns the session that makes the request.
    pub fn session(&self) -> &Arc<Session> {
        self.judged.session()
    }

    /// Returns the bindings of its origin, in the generation that judged it.
    pub fn here(&self) -> &OriginBindings {
        &self.here
    }
}
