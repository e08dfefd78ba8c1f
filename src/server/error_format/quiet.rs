//! The error of a service for a key that it does not know. The workload gets it for a credential
//! that was revoked quietly; nothing in it is the gateway's.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use super::format::ErrorFormat;

impl ErrorFormat {
    /// Writes the status, fields and content of the response. `id` looks like one of the service.
    pub(crate) fn unknown_key(self, id: &str) -> (StatusCode, HeaderMap, Bytes) {
        let mut fields = HeaderMap::with_capacity(8);
        let mut status = StatusCode::UNAUTHORIZED;
        let content = match self {
            Self::Aws(protocol) => {
                let (kind, mut fields, content) = protocol.unknown_key(id);
                fields.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
                return (StatusCode::FORBIDDEN, fields, content);
            }
            Self::Grpc(kind) => {
                status = StatusCode::OK;
                fields.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
                // UNAUTHENTICATED.
                fields.insert("grpc-status", HeaderValue::from_static("16"));
                fields.insert("grpc-message", HeaderValue::from_static(GOOGLE));
                return (status, fields, Bytes::new());
            }
            // RFC 9110 §15.5.2; git asks for another password.
            Self::Text => {
                let basic = HeaderValue::from_static("Basic realm=\"Git\"");
                fields.insert(WWW_AUTHENTICATE, basic);
                let text = HeaderValue::from_static("text/plain; charset=utf-8");
                fields.insert(CONTENT_TYPE, text);
                return (status, fields, Bytes::from_static(b"Unauthorized\n"));
            }
            Self::Gateway | Self::Npm => json!({ "error": "Unauthorized" }),
            Self::OpenAi => json!({ "error": {
                "message": "Incorrect API key provided.", "type": "invalid_request_error",
                "param": null, "code": "invalid_api_key",
            }}),
            Self::Anthropic => json!({
                "type": "error",
                "error": { "type": "authentication_error", "message": "invalid x-api-key" },
            }),
            Self::Google => json!({ "error": {
                "code": 401, "message": GOOGLE, "status": "UNAUTHENTICATED",
            }}),
            Self::GitHub | Self::GraphQl => json!({
                "message": "Bad credentials", "status": "401",
                "documentation_url": "https://docs.github.com/rest",
            }),
            Self::Stripe => json!({ "error": {
                "message": "Invalid API Key provided.", "type": "invalid_request_error",
            }}),
            Self::Oci => json!({ "errors": [{
                "code": "UNAUTHORIZED", "message": "authentication required", "detail": null,
            }]}),
        };
        let json = HeaderValue::from_static("application/json");
        fields.insert(CONTENT_TYPE, json);
        (status, fields, Bytes::from(content.to_string()))
    }
}

const GOOGLE: &str = "Request had invalid authentication credentials. Expected OAuth 2 access \
                      token, login cookie or other valid authentication credential.";

#[cfg(test)]
mod tests {
    use super::super::aws::AwsProtocol;
    use super::*;

    #[test]
    fn each_format_says_that_the_key_is_unknown_and_names_no_gateway() {
        for (format, status, part) in [
            (ErrorFormat::Gateway, 401, "Unauthorized"),
            (ErrorFormat::Text, 401, "Unauthorized"),
            (ErrorFormat::OpenAi, 401, "invalid_api_key"),
            (ErrorFormat::Anthropic, 401, "authentication_error"),
            (ErrorFormat::Google, 401, "UNAUTHENTICATED"),
            (ErrorFormat::GitHub, 401, "Bad credentials"),
            (ErrorFormat::Stripe, 401, "Invalid API Key"),
            (ErrorFormat::GraphQl, 401, "Bad credentials"),
            (ErrorFormat::Oci, 401, "UNAUTHORIZED"),
            (ErrorFormat::Npm, 401, "Unauthorized"),
            (ErrorFormat::Grpc("application/grpc"), 200, ""),
            (ErrorFormat::Aws(AwsProtocol::S3), 403, "InvalidAccessKeyId"),
            (
                ErrorFormat::Aws(AwsProtocol::Query),
                403,
                "InvalidClientTokenId",
            ),
            (
                ErrorFormat::Aws(AwsProtocol::Ec2),
                403,
                "InvalidClientTokenId",
            ),
            (
                ErrorFormat::Aws(AwsProtocol::Json),
                403,
                "UnrecognizedClientException",
            ),
            (
                ErrorFormat::Aws(AwsProtocol::Cbor),
                403,
                "UnrecognizedClientException",
            ),
        ] {
            let (got, fields, content) = format.unknown_key("00FF");
            let text = String::from_utf8_lossy(&content);
            assert_eq!(got, status, "{format:?}");
            assert!(text.contains(part), "{format:?}: {text}");
            let all = format!("{fields:?}{text}").to_ascii_lowercase();
            assert!(!all.contains("gateway") && !all.contains("revoke"), "{all}");
        }
    }
}
