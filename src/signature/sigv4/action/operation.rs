//! The operation that a request asks for, and why it may have none.

use std::fmt;

use http::{HeaderMap, HeaderValue};

use super::super::tables::{is_listed, listed};
use super::s3_call::S3Call;
use gateway_names::ReasonCode;

/// The operation that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    pub(super) api: &'static str,
    pub(super) operation: Option<&'static str>,
    /// Whether some API at the endpoint has operations that return credentials.
    pub(super) beside_minting: bool,
    /// Further actions that the request asks for, by name.
    pub(super) implied: Vec<&'static str>,
    pub(super) s3: Option<Box<S3Call>>,
    pub(super) accounts: Vec<String>,
}

/// Why a request has no single action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ActionFault {
    /// The operation is named twice: `X-Amz-Target`, `Action` in query or form, the path of
    /// rpc-v2-cbor.
    #[error("the request names its operation twice, or in a way that has two readings")]
    Ambiguous,
    /// The form that should name the operation is malformed.
    #[error("the form that should name the operation cannot be read")]
    Form,
    /// The path leaves the bucket unclear: an empty or escaped first segment, or a name that no
    /// bucket can have.
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

/// The only one of some values, if there is any.
pub(super) fn only<T>(mut values: impl Iterator<Item = T>) -> Result<Option<T>, ActionFault> {
    let first = values.next();
    match values.next() {
        None => Ok(first),
        Some(_) => Err(ActionFault::Ambiguous),
    }
}

/// Whether an API has operations whose response contains a credential (threat J03).
pub(super) fn is_minting(api: &str) -> bool {
    is_listed("minting", api)
}

/// Whether a list of operations by API has this one.
fn has(list: &str, api: &str, operation: &str) -> bool {
    listed(list, api).is_some_and(|known| known.split(' ').any(|known| known == operation))
}

/// The single value of a field, which must be visible ASCII.
pub(super) fn one<'a>(
    fields: &'a HeaderMap,
    name: &str,
    unreadable: ActionFault,
) -> Result<Option<&'a str>, ActionFault> {
    let text = |value: &'a HeaderValue| value.to_str().map_err(|_| unreadable);
    only(fields.get_all(name).iter())?.map(text).transpose()
}

impl Action {
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
    pub(crate) fn is_known(&self) -> bool {
        self.operation.is_some()
    }

    /// The part of an object store that the request names.
    pub(crate) fn s3(&self) -> Option<&S3Call> {
        self.s3.as_deref()
    }

    /// Whether the response contains a credential, or may: an unknown operation of an API that has
    /// such operations counts as one.
    pub(crate) fn returns_credentials(&self) -> bool {
        match self.operation {
            Some(operation) => has("minting", self.api, operation),
            None => self.beside_minting,
        }
    }

    /// Whether the response contains temporary credentials that [`crate::TemporaryCredentials`] can
    /// read, so that the client can be given phantoms.
    pub fn mints(&self) -> bool {
        self.operation
            .is_some_and(|operation| has("phantoms", self.api, operation))
    }

    /// Whether this is the name of an action that returns credentials.
    pub(crate) fn is_credential_name(name: &str) -> bool {
        name.split_once(':')
            .is_some_and(|(api, operation)| has("minting", api, operation))
    }

    /// The accounts that the path names as such.
    pub(crate) fn accounts(&self) -> &[String] {
        &self.accounts
    }

    pub(crate) fn api(&self) -> &'static str {
        self.api
    }

    pub(crate) fn operation(&self) -> Option<&'static str> {
        self.operation
    }

    pub(super) fn known(api: &'static str, operation: &'static str) -> Action {
        Action {
            operation: Some(operation),
            ..Action::unknown(&[api])
        }
    }

    /// An unknown operation of a service in no table that the operator named. No pin of actions can
    /// allow it, and it does not return AWS's credentials.
    pub(super) fn of_nobody() -> Action {
        Action {
            beside_minting: false,
            ..Action::unknown(&[])
        }
    }

    /// An operation of these APIs that is in no table.
    pub(super) fn unknown(apis: &[&'static str]) -> Action {
        Action {
            api: apis.first().copied().unwrap_or("unknown"),
            operation: None,
            // Nothing is known of a service in no table, so it might return credentials.
            beside_minting: apis.is_empty() || apis.iter().any(|api| is_minting(api)),
            implied: Vec::new(),
            s3: None,
            accounts: Vec::new(),
        }
    }
}
