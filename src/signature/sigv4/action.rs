//! Determines which operation of which API a request asks for, in each of AWS's protocols.
//!
//! An action has the AWS CLI's name: `s3:GetObject`, `dynamodb:PutItem`,
//! `bedrock-runtime:InvokeModel`. A request that names its operation twice, or in a spelling that
//! two readers could read differently, is refused (threat J10). An operation in no table is
//! *unknown*: it cannot be permitted by name.

mod fields;
mod minting;
mod rest;
mod rpc;
mod s3;

use std::fmt;

pub(super) use fields::{is_known as is_known_field, is_known_parameter};
pub use rpc::PendingForm;
pub(super) use s3::{CopySource, S3Call};

use super::endpoint::{Endpoint, Style};
use super::tables::Tables;
use gateway_message::RequestHead;
use gateway_names::ReasonCode;

/// The operation that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    api: &'static str,
    operation: Option<&'static str>,
    /// Whether some API at the endpoint has operations that return credentials.
    beside_minting: bool,
    /// Further actions that the request asks for, by name.
    implied: Vec<&'static str>,
    s3: Option<Box<S3Call>>,
    accounts: Vec<String>,
}

/// An action, or the form that must be buffered to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// The head determines it.
    Known(Action),
    /// A form determines it, which must be buffered (query protocol).
    Form(PendingForm),
}

impl Reading {
    /// Every action that is asked for, as far as the head shows: `api:?` if a form determines it.
    pub fn names(&self) -> Vec<String> {
        match self {
            Reading::Known(action) => action.names().collect(),
            Reading::Form(form) => vec![form.unread().name().to_string()],
        }
    }
}

/// Why a request has no single action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ActionFault {
    /// The operation is named twice: `X-Amz-Target`, `Action` in query or form, the path of
    /// rpc-v2-cbor.
    #[error("the request says its operation twice or in a spelling that has two readings")]
    Ambiguous,
    /// The form that should name the operation is malformed.
    #[error("the form in which the operation should stand cannot be read")]
    Form,
    /// Neither a bucket nor none: an empty or escaped first segment, or a name that no bucket can
    /// have.
    #[error("the path does not say one bucket")]
    Bucket,
    /// A key, or the source of a copy, that is not UTF-8 after decoding.
    #[error("the object's key or the source of the copy cannot be read")]
    Key,
}

impl ActionFault {
    /// The short code for refusals and audit records.
    pub fn reason(&self) -> ReasonCode {
        ReasonCode::SigV4Action
    }
}

impl Action {
    /// Reads the action of a request to an endpoint, from its head alone if possible.
    ///
    /// # Errors
    /// [`ActionFault`] if it could be read in two ways.
    pub fn read(endpoint: &Endpoint, head: &RequestHead) -> Result<Reading, ActionFault> {
        if endpoint.is_object_store() {
            return s3::read(endpoint, head).map(Reading::Known);
        }
        let apis = endpoint.apis();
        if apis.is_empty() && endpoint.is_own() {
            return Ok(Reading::Known(Action::of_nobody()));
        }
        let (rest, rpc): (Vec<_>, Vec<_>) = apis.into_iter().partition(|api| api.speaks("rest"));
        if rpc::is_indicated(head) && rpc.is_empty() && !rest.is_empty() {
            return Err(ActionFault::Ambiguous);
        }
        let by_rpc = !rpc.is_empty()
            && (rest.is_empty() || rpc::is_indicated(head) || head.target.path() == "/");
        if by_rpc {
            return rpc::read(&rpc, head);
        }
        rest::read(&rest, head).map(Reading::Known)
    }

    /// `api:Operation`, or `api:?` if the operation is in no table.
    pub fn name(&self) -> impl fmt::Display + use<> {
        let (api, operation) = (self.api, self.operation.unwrap_or("?"));
        format!("{api}:{operation}")
    }

    /// Every action that it asks for: its own, and those that its fields add.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let implied = self.implied.iter().map(|name| (*name).to_owned());
        std::iter::once(self.name().to_string()).chain(implied)
    }

    /// Whether its operation is in a table, so that a pin can be compared with it.
    pub fn is_known(&self) -> bool {
        self.operation.is_some()
    }

    /// The part of an object store that is asked for.
    pub(super) fn s3(&self) -> Option<&S3Call> {
        self.s3.as_deref()
    }

    /// Whether the response contains a credential, or may: an unknown operation of an API that has
    /// such operations counts as one.
    pub fn returns_credentials(&self) -> bool {
        match self.operation {
            Some(operation) => minting::returns_credentials(self.api, operation),
            None => self.beside_minting,
        }
    }

    /// Whether the response contains temporary credentials that [`super::Minted`] can read, so that
    /// the client can be given phantoms.
    pub fn mints(&self) -> bool {
        self.operation
            .is_some_and(|operation| minting::is_virtualised(self.api, operation))
    }

    /// Whether this is the name of an action that returns credentials.
    pub(super) fn is_credential_name(name: &str) -> bool {
        name.split_once(':')
            .is_some_and(|(api, operation)| minting::returns_credentials(api, operation))
    }

    /// The accounts that the path names as such.
    pub(super) fn accounts(&self) -> &[String] {
        &self.accounts
    }

    pub(super) fn api(&self) -> &'static str {
        self.api
    }

    pub(super) fn operation(&self) -> Option<&'static str> {
        self.operation
    }

    fn known(api: &'static str, operation: &'static str) -> Action {
        Action {
            operation: Some(operation),
            ..Action::unknown(&[api])
        }
    }

    /// An unknown operation of a service in no table that the operator named. No pin of actions can
    /// allow it, and it does not return AWS's credentials.
    fn of_nobody() -> Action {
        Action {
            beside_minting: false,
            ..Action::unknown(&[])
        }
    }

    /// An operation of these APIs that is in no table.
    fn unknown(apis: &[&'static str]) -> Action {
        Action {
            api: apis.first().copied().unwrap_or("unknown"),
            operation: None,
            // Nothing is known of a service in no table, so it might return credentials.
            beside_minting: apis.is_empty() || apis.iter().any(|api| minting::is_minting(api)),
            implied: Vec::new(),
            s3: None,
            accounts: Vec::new(),
        }
    }
}

/// All names that a pin can match.
pub(super) fn names() -> impl Iterator<Item = String> {
    let operations = Tables::get().apis().flat_map(|api| {
        let operations = api.operations().iter();
        operations.map(move |operation| format!("{}:{}", api.id, operation.name))
    });
    operations.chain(fields::PERMISSIONS.map(str::to_owned))
}

/// Whether an object store's path starts with the bucket.
fn bucket_in_path(endpoint: &Endpoint) -> bool {
    *endpoint.style() == Style::Path
}

#[cfg(test)]
#[path = "action/tests.rs"]
mod tests;
