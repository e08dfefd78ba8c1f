//! The input of the writers of error responses.

use http::{HeaderMap, HeaderValue, Method};

use crate::body::read::{Call, Push};
use crate::names::{PolicyId, ReasonCode};

/// The known parts of the request that an error answers. They are unchecked, and only choose the
/// format.
pub(in crate::gateway) struct FailedRequest<'a> {
    pub(in crate::gateway) method: &'a Method,
    pub(in crate::gateway) host: &'a str,
    pub(in crate::gateway) path: &'a str,
    pub(in crate::gateway) query: &'a str,
    pub(in crate::gateway) fields: &'a HeaderMap,
}

impl FailedRequest<'_> {
    /// Returns a field's value in lower case; empty if there is none.
    pub(super) fn field(&self, name: &str) -> Vec<u8> {
        let value = self.fields.get(name).map(HeaderValue::as_bytes);
        value.unwrap_or_default().to_ascii_lowercase()
    }

    pub(super) fn has_parameter(&self, name: &str) -> bool {
        let mut pairs = self.query.split('&');
        pairs.any(|pair| pair.split('=').next() == Some(name))
    }
}

/// The statements of an error response.
pub(in crate::gateway) struct ErrorDetails<'a> {
    pub(in crate::gateway) reason: ReasonCode,
    /// Whether a client may send the same request again.
    pub(in crate::gateway) retry: bool,
    /// What happened, and what to do.
    pub(in crate::gateway) message: &'a str,
    /// The host and port that the request is for; may be empty.
    pub(in crate::gateway) to: &'a str,
    /// The exchange's id.
    pub(in crate::gateway) id: &'a str,
    /// The push that is refused, whose response is a report.
    pub(in crate::gateway) push: Option<&'a Push>,
    /// The JSON-RPC call that is refused, whose response is JSON-RPC, too.
    pub(in crate::gateway) call: Option<&'a Call>,
    /// The policies that decided.
    pub(in crate::gateway) policies: &'a [PolicyId],
}

impl ErrorDetails<'_> {
    /// Returns the message with the code and the id, for a format without fields for them.
    pub(super) fn whole_message(&self) -> String {
        let (message, reason, id) = (self.message, self.reason, self.id);
        format!("The gateway refused this request: {message} [{reason} {id}]")
    }
}
