//! The formats of an error answer: the gateway's own, and those that the clients of known services
//! show to their users.

mod aws;
mod choose;
mod service;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

pub(super) use aws::AwsProtocol;

use crate::names::{PolicyId, ReasonCode};

/// The format of an error answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ErrorFormat {
    /// The gateway's own (docs/adr/0009).
    #[default]
    Gateway,
    /// Plain text: git shows it as `remote:`, `go` as the server's response, a browser as a page.
    Text,
    /// An AWS service.
    Aws(AwsProtocol),
    /// `error.message`, with `type` and `code`: OpenAI, and services with its interface.
    OpenAi,
    /// `error.message` in an object of type `error`: Anthropic.
    Anthropic,
    /// `error.message`, with a status of `google.rpc.Code`: Google.
    Google,
    /// `message`: GitHub, and Git LFS.
    GitHub,
    /// `error.message` with a type of Stripe.
    Stripe,
    /// `errors` of GraphQL.
    GraphQl,
    /// `errors` of the OCI distribution specification: registries of containers.
    Oci,
    /// `error` as a text: npm and its kin.
    Npm,
    /// A status in the head alone, of this content type ("Trailers-Only").
    Grpc(&'static str),
}

/// What is known of the request that an error answers. It is unchecked, and decides the format
/// alone.
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) fields: &'a HeaderMap,
}

impl Asked<'_> {
    /// A field's value in lower case; empty if there is none.
    fn field(&self, name: &str) -> Vec<u8> {
        let value = self.fields.get(name).map(HeaderValue::as_bytes);
        value.unwrap_or_default().to_ascii_lowercase()
    }

    fn has_parameter(&self, name: &str) -> bool {
        let mut pairs = self.query.split('&');
        pairs.any(|pair| pair.split('=').next() == Some(name))
    }
}

/// What an error answer says.
pub(super) struct ErrorDetails<'a> {
    pub(super) reason: ReasonCode,
    /// What happened, and what to do.
    pub(super) message: &'a str,
    /// What to do.
    pub(super) next: &'a str,
    /// The host and port that the request is for; may be empty.
    pub(super) to: &'a str,
    /// The exchange's id.
    pub(super) id: &'a str,
    /// The policies that decided.
    pub(super) policies: &'a [PolicyId],
    /// The policy that would allow it.
    pub(super) proposal: Option<&'a str>,
}

impl ErrorDetails<'_> {
    /// The message with the code and the id, for a format without fields of its own for them.
    fn whole_message(&self) -> String {
        let (message, reason, id) = (self.message, self.reason, self.id);
        format!("The gateway refused this request: {message} [{reason} {id}]")
    }
}

impl ErrorFormat {
    /// Writes the status, fields and content of the answer.
    pub(super) fn write(self, details: &ErrorDetails<'_>) -> (StatusCode, HeaderMap, Bytes) {
        let mut status = details.reason.status();
        let (kind, mut fields, content) = match self {
            Self::Aws(protocol) => protocol.write(details),
            Self::Grpc(kind) => {
                status = StatusCode::OK;
                (kind, service::grpc(details), Bytes::new())
            }
            other => {
                let (kind, content) = service::content(other, details);
                (kind, HeaderMap::with_capacity(12), content)
            }
        };
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if details.reason.is_final() {
            for (name, value) in NO_RETRY {
                fields.insert(name, HeaderValue::from_static(value));
            }
        }
        (status, fields, content)
    }
}

/// What the SDKs of OpenAI, Anthropic (and others made by Stainless) and Stripe read to stop trying.
const NO_RETRY: [(&str, &str); 2] = [
    ("x-should-retry", "false"),
    ("stripe-should-retry", "false"),
];
