//! The request that carries its secrets, and what its answer is handled with.

use http::Method;

use super::mint::Minting;
use super::redactor::Redactor;
use crate::body::Share;
use crate::intercept::{Request, Upgrade};
use crate::message::Origin;
use crate::names::{CredentialName, Identity};
use crate::policy::Grant;

/// A request that carries its secrets: it can only be forwarded on a channel to the origin that it
/// was granted for.
pub struct Credentialed {
    pub(super) request: Box<Request>,
    pub(super) grants: Vec<Grant>,
    pub(super) identity: Identity,
    pub(super) answer: AnswerPlan,
}

/// What the origin's answer is handled with; it travels with the request, and comes back with its
/// answer.
pub struct AnswerPlan {
    /// What is looked for in it.
    pub(crate) lent: Option<Redactor>,
    /// The method that it answers.
    pub(crate) method: Method,
    /// What the client wants the connection to become.
    pub(crate) upgrade: Option<Box<Upgrade>>,
    /// What keeps the temporary credentials that it holds, where it may hold some.
    pub(crate) minting: Option<Minting>,
    /// What decoding it may take of the session's budget.
    pub(crate) decoding: Share,
}

impl Credentialed {
    /// To whom it may go.
    pub(crate) fn origin(&self) -> &Origin {
        &self.request.head.origin
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

    /// Takes the proof apart, for the stage that forwards.
    pub(crate) fn into_parts(self) -> (Box<Request>, AnswerPlan) {
        (self.request, self.answer)
    }
}
