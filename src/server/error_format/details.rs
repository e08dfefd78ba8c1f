//! The input of the writers of error responses.

use gateway_body::read::{Call, Push};
use gateway_names::{PolicyId, ReasonCode};
use http::{HeaderMap, HeaderValue, Method};

/// The known parts of the request that an error answers. They are unchecked, and only choose the
/// format.
pub(crate) struct FailedRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) fields: &'a HeaderMap,
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
pub(crate) struct ErrorDetails<'a> {
    pub(crate) reason: ReasonCode,
    /// Whether a client may send the same request again.
    pub(crate) retry: bool,
    /// What happened, and what to do.
    pub(crate) message: &'a str,
    /// The host and port that the request is for; may be empty.
    pub(crate) to: &'a str,
    /// The exchange's id.
    pub(crate) id: &'a str,
    /// The push that is refused, whose response is a report.
    pub(crate) push: Option<&'a Push>,
    /// The JSON-RPC call that is refused, whose response is JSON-RPC, too.
    pub(crate) call: Option<&'a Call>,
    /// The policies that decided.
    pub(crate) policies: &'a [PolicyId],
}

impl ErrorDetails<'_> {
    /// Returns the message with the code and the id, for a format without fields for them.
    pub(super) fn whole_message(&self) -> String {
        let (message, reason, id) = (self.message, self.reason, self.id);
        format!("The gateway refused this request: {message} [{reason} {id}]")
    }
}
