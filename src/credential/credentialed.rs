//! A request that carries its secrets, and the plan for its response.

use std::sync::Arc;

use gateway_audit::Text;
use gateway_body::Share;
use gateway_intercept::{Request, Upgrade};
use gateway_message::{ByteRange, Origin, RequestTarget};
use gateway_names::{CredentialName, Identity};
use gateway_policy::{Allowed, JudgedRequest};
use gateway_session::Session;
use http::Method;

use super::inject::messages::InjectMessages;
use super::mint::Minting;
use super::redactor::Redactor;
use super::store::CachedSecret;

/// A request that carries its secrets.
///
/// It can only be forwarded on a channel to the origin that it was granted for.
pub struct Credentialed {
    pub(super) request: Box<Request>,
    pub(super) allowed: Box<Allowed>,
    pub(super) answer: AnswerPlan,
}

/// The plan for the origin's response.
///
/// It travels with the request and comes back with the response.
pub struct AnswerPlan {
    /// What the answer is searched for.
    pub lent: Option<Redactor>,
    /// The request's method.
    pub method: Method,
    /// The range that the client asked for, if it was asked for with a margin.
    pub range: Option<ByteRange>,
    /// The request's target, with the phantoms that its client wrote.
    pub target: RequestTarget,
    /// The session that makes it.
    pub session: Arc<Session>,
    /// The upgrade that the client asked for.
    pub upgrade: Option<Box<Upgrade>>,
    /// What puts credentials into the messages that the client sends after it.
    pub messages: Option<Box<InjectMessages>>,
    /// Keeps the temporary credentials in the answer, if it may contain any.
    pub minting: Option<Box<Minting>>,
    /// The tokens of logins that the request was lent.
    pub(super) tokens: Vec<CachedSecret>,
    /// The decoder memory it may take from the session's budget.
    pub decoding: Share,
}

impl Credentialed {
    /// The origin that it may be sent to.
    pub fn origin(&self) -> &Origin {
        &self.request.head.origin
    }

    /// The identity whose connections it uses.
    pub fn identity(&self) -> &Identity {
        self.allowed.identity()
    }

    /// Returns the lent credentials, and the place of each.
    pub fn lent_to(&self) -> impl Iterator<Item = (&CredentialName, &Text)> {
        let grants = self.allowed.grants().iter();
        grants.map(|grant| (grant.lend().credential(), grant.lend().place_text()))
    }

    /// Takes the request apart, for the stage that forwards it. Connections for it register with
    /// the revocations of what was judged.
    pub fn into_parts(self) -> (Box<Request>, AnswerPlan, Arc<JudgedRequest>) {
        (self.request, self.answer, self.allowed.judged().clone())
    }
}
