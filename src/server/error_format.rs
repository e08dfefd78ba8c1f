//! Writes an error response in its format: the gateway's own, or one that the clients of known
//! services show to their users.

mod aws;
mod choose;
mod details;
mod format;
mod git;
mod quiet;
mod service;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

pub(super) use details::{ErrorDetails, FailedRequest};
pub(super) use format::ErrorFormat;

impl ErrorFormat {
    /// Writes the status, fields and content of the response.
    pub(super) fn write(self, details: &ErrorDetails<'_>) -> (StatusCode, HeaderMap, Bytes) {
        let mut status = details.reason.status();
        let (kind, mut fields, content) = match (self, details.push, details.call) {
            (_, Some(push), _) => {
                status = StatusCode::OK;
                let report = git::report(push, details);
                (git::REPORT, HeaderMap::with_capacity(12), report)
            }
            // The SDKs of MCP show nothing of a response with another status.
            (_, None, Some(call)) => {
                status = StatusCode::OK;
                let content = service::json_rpc(call, details);
                ("application/json", HeaderMap::with_capacity(12), content)
            }
            (Self::Aws(protocol), None, None) => protocol.write(details),
            (Self::Grpc(kind), None, None) => {
                status = StatusCode::OK;
                (kind, service::grpc(details), Bytes::new())
            }
            (other, None, None) => {
                // To Stripe's SDKs, 402 is a card that was declined.
                if other == Self::Stripe && status == StatusCode::PAYMENT_REQUIRED {
                    status = StatusCode::FORBIDDEN;
                }
                let (kind, content) = service::content(other, details);
                (kind, HeaderMap::with_capacity(12), content)
            }
        };
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if !details.retry {
            for (name, value) in NO_RETRY {
                fields.insert(name, HeaderValue::from_static(value));
            }
        }
        (status, fields, content)
    }
}

/// The fields by which the SDKs of OpenAI, Anthropic (and others made by Stainless) and Stripe stop
/// retrying.
const NO_RETRY: [(&str, &str); 2] = [
    ("x-should-retry", "false"),
    ("stripe-should-retry", "false"),
];
