//! The formats of an error response.

use super::aws::AwsProtocol;

/// The format of an error response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ErrorFormat {
    /// The gateway's own (docs/refusals.md).
    #[default]
    Gateway,
    /// Plain text: git shows it as `remote:`, `go` as the server's response, a browser as a page.
    Text,
    /// An AWS service.
    Aws(AwsProtocol),
    /// `error.message`, with `type` and `code`: OpenAI, and services with its interface.
    OpenAi,
    /// `error.message` in an object whose `type` is `error`: Anthropic.
    Anthropic,
    /// `error.message`, with a status named as in `google.rpc.Code`: Google.
    Google,
    /// `message`: GitHub, and Git LFS.
    GitHub,
    /// `error.message` with a type of Stripe.
    Stripe,
    /// `errors` of GraphQL.
    GraphQl,
    /// `errors` of the OCI distribution specification: container registries.
    Oci,
    /// `error` as a string: npm and similar registries.
    Npm,
    /// A status in the head alone, of this content type ("Trailers-Only").
    Grpc(&'static str),
}
