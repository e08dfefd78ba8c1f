//! Writes the content of an error as each service's clients expect it.

use bytes::Bytes;
use gateway_body::read::Call;
use gateway_names::PolicyId;
use http::{HeaderMap, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use super::details::ErrorDetails;
use super::format::ErrorFormat;

/// Returns the type and the content of a format.
pub(super) fn content(format: ErrorFormat, details: &ErrorDetails<'_>) -> (&'static str, Bytes) {
    let message = details.whole_message();
    let (code, status) = (details.reason.as_str(), details.reason.status().as_u16());
    let content = match format {
        ErrorFormat::Text | ErrorFormat::Aws(_) | ErrorFormat::Grpc(_) => {
            return ("text/plain; charset=utf-8", Bytes::from(message + "\n"));
        }
        ErrorFormat::Gateway => own(details),
        ErrorFormat::OpenAi => json!({ "error": {
            "message": message, "type": "refused_by_gateway", "param": null, "code": code,
        }}),
        ErrorFormat::Anthropic => json!({
            "type": "error",
            "error": { "type": anthropic(status), "message": message },
            "request_id": details.id,
        }),
        ErrorFormat::Google => json!({ "error": {
            "code": status, "message": message, "status": google(status),
            "details": [{
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": code.to_ascii_uppercase(), "domain": "gateway.internal",
            }],
        }}),
        ErrorFormat::GitHub => json!({ "message": message, "status": status.to_string() }),
        ErrorFormat::Stripe => json!({ "error": {
            "type": "invalid_request_error", "code": code, "message": message,
        }}),
        ErrorFormat::GraphQl => json!({
            "message": message, "data": null,
            "errors": [{ "message": message, "extensions": { "code": code } }],
        }),
        ErrorFormat::Oci => json!({ "errors": [{
            "code": "DENIED", "message": message, "detail": code,
        }]}),
        ErrorFormat::Npm => json!({ "error": message, "code": code }),
    };
    ("application/json", Bytes::from(format!("{content}\n")))
}

/// Writes a JSON-RPC 2.0 response, with an error code from the range for servers.
pub(super) fn json_rpc(call: &Call, details: &ErrorDetails<'_>) -> Bytes {
    let error = json!({
        "code": REFUSED,
        "message": details.whole_message(),
        "data": own(details),
    });
    // The id goes back as it was written.
    let id = &call.id;
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}").into()
}

/// JSON-RPC 2.0 §5.1: -32000 to -32099 are for servers; the SDKs of MCP use the first few.
const REFUSED: i32 = -32_040;

fn own(details: &ErrorDetails<'_>) -> Value {
    let policies: Vec<&str> = details.policies.iter().map(PolicyId::as_str).collect();
    json!({
        "error": "refused_by_gateway",
        "reason": details.reason.as_str(),
        "message": details.message,
        "to": details.to,
        "retry": details.retry,
        "request_id": details.id,
        "policies": policies,
    })
}

/// The types of Anthropic's API, by status.
fn anthropic(status: u16) -> &'static str {
    match status {
        402 => "billing_error",
        403 => "permission_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// The names of `google.rpc.Code`, by status.
fn google(status: u16) -> &'static str {
    match status {
        402 | 403 => "PERMISSION_DENIED",
        429 => "RESOURCE_EXHAUSTED",
        400..=499 => "INVALID_ARGUMENT",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    }
}

/// Returns the trailers of a gRPC call: its status and its message.
pub(super) fn grpc(details: &ErrorDetails<'_>) -> HeaderMap {
    let code = match google(details.reason.status().as_u16()) {
        "PERMISSION_DENIED" => "7",
        "RESOURCE_EXHAUSTED" => "8",
        "INVALID_ARGUMENT" => "3",
        "UNAVAILABLE" => "14",
        "DEADLINE_EXCEEDED" => "4",
        _ => "13",
    };
    let mut fields = HeaderMap::with_capacity(12);
    fields.insert("grpc-status", HeaderValue::from_static(code));
    let message = details.whole_message();
    let message = utf8_percent_encode(&message, GRPC_MESSAGE).to_string();
    if let Ok(message) = HeaderValue::from_str(&message) {
        fields.insert("grpc-message", message);
    }
    fields
}

/// What `Percent-Encoded` of gRPC over HTTP/2 encodes.
const GRPC_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

#[cfg(test)]
mod tests {
    use gateway_names::ReasonCode;

    use super::*;

    const DENIED: ErrorDetails<'static> = ErrorDetails {
        reason: ReasonCode::PolicyDefaultDeny,
        retry: false,
        message: "no policy permits it.",
        to: "x.test",
        id: "00ff",
        push: None,
        call: None,
        policies: &[],
    };

    #[test]
    fn every_form_has_the_message_where_its_clients_look() {
        for (format, pointer) in [
            (ErrorFormat::Gateway, "/message"),
            (ErrorFormat::OpenAi, "/error/message"),
            (ErrorFormat::Anthropic, "/error/message"),
            (ErrorFormat::Google, "/error/message"),
            (ErrorFormat::GitHub, "/message"),
            (ErrorFormat::Stripe, "/error/message"),
            (ErrorFormat::GraphQl, "/errors/0/message"),
            (ErrorFormat::Oci, "/errors/0/message"),
            (ErrorFormat::Npm, "/error"),
        ] {
            let (status, fields, content) = format.write(&DENIED);
            let read: Value = serde_json::from_slice(&content).unwrap();
            let message = read.pointer(pointer).and_then(Value::as_str).unwrap();
            assert!(message.contains("no policy permits it."), "{format:?}");
            assert_eq!(status, 403);
            assert_eq!(fields["x-should-retry"], "false", "{format:?}");
            assert_eq!(fields["stripe-should-retry"], "false", "{format:?}");
        }
    }

    #[test]
    fn a_grpc_call_ends_with_its_status_in_the_head() {
        let (status, fields, content) = ErrorFormat::Grpc("application/grpc").write(&DENIED);
        assert_eq!((status.as_u16(), content.len()), (200, 0));
        assert_eq!(fields["grpc-status"], "7");
        let message = fields["grpc-message"].to_str().unwrap();
        assert!(message.contains("no policy permits it."), "{message}");
        assert_eq!(fields["content-type"], "application/grpc");
    }

    #[test]
    fn what_may_succeed_later_is_not_said_to_be_final() {
        let (_, fields, _) = ErrorFormat::OpenAi.write(&ErrorDetails {
            reason: ReasonCode::SessionLimit,
            retry: true,
            ..DENIED
        });
        assert!(!fields.contains_key("x-should-retry"));
    }
}
