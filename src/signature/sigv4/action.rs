//! Determines which operation of which API a request asks for, in each of AWS's protocols.
//!
//! An action has the AWS CLI's name: `s3:GetObject`, `dynamodb:PutItem`,
//! `bedrock-runtime:InvokeModel`. A request that names its operation twice, or in a spelling that
//! two readers could read differently, is refused (threat J10). An operation in no table is
//! *unknown*: it cannot be permitted by name.

mod fields;
mod operation;
mod query;
mod rest;
mod rpc;
mod s3;
mod s3_call;

pub(super) use fields::{is_known as is_known_field, is_known_parameter};
pub use operation::{Action, ActionFault};
pub use query::{Lookup, PendingForm};
pub(super) use s3_call::{CopySource, S3Call};

use super::endpoint::Endpoint;
use super::tables::Tables;
use gateway_message::RequestHead;

impl Action {
    /// Reads the action of a request to an endpoint, from its head alone if possible.
    ///
    /// # Errors
    /// [`ActionFault`] if it could be read in two ways.
    pub fn read(endpoint: &Endpoint, head: &RequestHead) -> Result<Lookup, ActionFault> {
        if endpoint.is_object_store() {
            return s3::read(endpoint, head).map(Lookup::Known);
        }
        let apis = endpoint.apis();
        if apis.is_empty() && endpoint.is_own() {
            return Ok(Lookup::Known(Action::of_nobody()));
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
        rest::read(&rest, head).map(Lookup::Known)
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

#[cfg(test)]
#[path = "action/tests.rs"]
mod tests;
