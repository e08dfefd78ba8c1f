//! The formats of an error answer: the gateway's own, and those of AWS services, so that AWS SDKs
//! show the gateway's errors like the service's.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::json;

use crate::message::{EncodedSlash, RequestHead};
use crate::names::{PolicyId, ReasonCode};

/// The format of an error answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ErrorFormat {
    /// The gateway's own (docs/adr/0009).
    #[default]
    Gateway,
    /// `<Error>`: Amazon S3 API Reference, "REST Error Responses".
    S3,
    /// `<ErrorResponse>`: the query protocol (IAM, STS, SNS, …).
    Query,
    /// `<Response>`: EC2's variant of the query protocol.
    Ec2,
    /// `__type` in JSON: awsJson 1.0 and 1.1, and restJson 1.
    Json,
    /// `__type` in CBOR: Smithy RPC v2.
    Cbor,
}

/// What an error answer says.
pub(super) struct ErrorDetails<'a> {
    pub(super) reason: ReasonCode,
    /// What happened, and what to do.
    pub(super) message: &'a str,
    /// The exchange's id.
    pub(super) id: &'a str,
    /// The policies that decided.
    pub(super) policies: &'a [PolicyId],
}

impl ErrorFormat {
    /// Chooses the format of the service that a request is for. `signed_paths` is how its origin
    /// reads the path of a signed request, if a credential signs for it.
    pub(super) fn of(signed_paths: Option<EncodedSlash>, head: &RequestHead) -> Self {
        match signed_paths {
            Some(paths) => Self::of_service(paths == EncodedSlash::Key, head),
            None => Self::Gateway,
        }
    }

    /// Chooses the format of an AWS service. `objects` says that it is an object store.
    fn of_service(objects: bool, head: &RequestHead) -> Self {
        let field = |name: &str| {
            head.fields
                .get(name)
                .map_or(&b""[..], HeaderValue::as_bytes)
                .to_ascii_lowercase()
        };
        let kind = field("content-type");
        let action = |(name, _): (std::borrow::Cow<'_, str>, _)| name == "Action";
        let host = head.origin.authority.host.as_str();
        let labels = || host.split('.');
        match labels().next().unwrap_or_default() {
            _ if objects => Self::S3,
            _ if field("smithy-protocol") == b"rpc-v2-cbor" => Self::Cbor,
            "ec2" => Self::Ec2,
            // The label in front of `s3-control` may be an account.
            _ if labels().take(2).any(|label| label == "s3-control") => Self::Query,
            _ if head.fields.contains_key("x-amz-target") => Self::Json,
            _ if kind.starts_with(b"application/x-www-form-urlencoded") => Self::Query,
            _ if head.method == Method::GET && head.target.query_pairs().any(action) => Self::Query,
            _ => Self::Json,
        }
    }

    /// Writes the fields and content of the answer.
    pub(super) fn write(self, details: &ErrorDetails<'_>) -> (HeaderMap, Bytes) {
        let id = details.id;
        let reason = details.reason.as_str();
        let code = self.code(details.reason);
        let message = format!("{} [gateway: {reason}; gateway why {id}]", details.message);
        let (kind, content) = match self {
            Self::Gateway => ("application/json", own(details)),
            Self::S3 => ("application/xml", s3(code, &message, id)),
            Self::Query => ("text/xml", query(code, &message, id)),
            Self::Ec2 => ("text/xml;charset=UTF-8", ec2(code, &message, id)),
            Self::Json => (
                "application/x-amz-json-1.1",
                json_error(code, &message, details),
            ),
            Self::Cbor => ("application/cbor", cbor(code, &message)),
        };
        let mut fields = self.fields(code, id);
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        (fields, content)
    }

    fn fields(self, code: &'static str, id: &str) -> HeaderMap {
        let mut fields = HeaderMap::with_capacity(8);
        let name = match self {
            Self::Gateway => return fields,
            Self::S3 => HeaderName::from_static("x-amz-request-id"),
            _ => HeaderName::from_static("x-amzn-requestid"),
        };
        if let Ok(value) = HeaderValue::from_str(id) {
            fields.insert(name, value);
        }
        match self {
            Self::Json => {
                fields.insert("x-amzn-errortype", HeaderValue::from_static(code));
            }
            Self::Cbor => {
                fields.insert("smithy-protocol", HeaderValue::from_static("rpc-v2-cbor"));
            }
            _ => {}
        }
        fields
    }

    /// The service's code that fits best. SDKs act on some codes: they correct a skewed clock and
    /// retry, but they do not retry a denied request.
    fn code(self, reason: ReasonCode) -> &'static str {
        let status = reason.status();
        let (s3, others) = match reason {
            ReasonCode::SignatureSkew => ("RequestTimeTooSkewed", "RequestTimeTooSkewed"),
            ReasonCode::SignatureExpired => ("AccessDenied", "RequestExpired"),
            ReasonCode::SigV4Mismatch => ("SignatureDoesNotMatch", "InvalidSignatureException"),
            ReasonCode::ForeignCredential => ("InvalidAccessKeyId", "UnrecognizedClientException"),
            ReasonCode::SigV4Content => ("XAmzContentSHA256Mismatch", "InvalidSignatureException"),
            ReasonCode::ContentTooLong => ("EntityTooLarge", "RequestEntityTooLargeException"),
            _ if status == StatusCode::BAD_REQUEST => ("InvalidRequest", "ValidationException"),
            _ if status.is_server_error() => ("ServiceUnavailable", "ServiceUnavailable"),
            _ => ("AccessDenied", "AccessDeniedException"),
        };
        match self {
            Self::S3 => s3,
            Self::Query | Self::Ec2 => match others {
                "AccessDeniedException" => "AccessDenied",
                "InvalidSignatureException" => "SignatureDoesNotMatch",
                "UnrecognizedClientException" => "InvalidClientTokenId",
                "ValidationException" => "ValidationError",
                "RequestEntityTooLargeException" => "RequestEntityTooLarge",
                other => other,
            },
            Self::Gateway | Self::Json | Self::Cbor => others,
        }
    }
}

fn own(details: &ErrorDetails<'_>) -> Bytes {
    let policies: Vec<&str> = details.policies.iter().map(PolicyId::as_str).collect();
    let content = json!({
        "error": "refused_by_gateway",
        "reason": details.reason.as_str(),
        "message": details.message,
        "request_id": details.id,
        "policies": policies,
        "next": format!("gateway why {}", details.id),
    });
    Bytes::from(format!("{content}\n"))
}

fn s3(code: &str, message: &str, id: &str) -> Bytes {
    let message = escaped(message);
    Bytes::from(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>\
         <RequestId>{id}</RequestId><HostId>gateway</HostId></Error>"
    ))
}

fn query(code: &str, message: &str, id: &str) -> Bytes {
    let message = escaped(message);
    Bytes::from(format!(
        "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>\
         <RequestId>{id}</RequestId></ErrorResponse>"
    ))
}

fn ec2(code: &str, message: &str, id: &str) -> Bytes {
    let message = escaped(message);
    Bytes::from(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code>\
         <Message>{message}</Message></Error></Errors><RequestID>{id}</RequestID></Response>"
    ))
}

fn json_error(code: &str, message: &str, details: &ErrorDetails<'_>) -> Bytes {
    let content = json!({
        "__type": code,
        "message": message,
        "reason": details.reason.as_str(),
        "request_id": details.id,
    });
    Bytes::from(content.to_string())
}

/// Writes a CBOR map of two text keys to text values (RFC 8949 §3).
fn cbor(code: &str, message: &str) -> Bytes {
    let mut out = vec![0xa2];
    for text in ["__type", code, "message", message] {
        match u16::try_from(text.len()) {
            Ok(length @ ..24) => out.push(0x60 | length.to_be_bytes()[1]),
            Ok(length) => {
                out.push(0x79);
                out.extend(length.to_be_bytes());
            }
            // No explanation is this long.
            Err(_) => return Bytes::from_static(&[0xa0]),
        }
        out.extend(text.bytes());
    }
    Bytes::from(out)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Authority, Origin, RequestTarget, Scheme};
    use http::Version;

    fn head(host: &str, target: &str, fields: &[(&'static str, &'static str)]) -> RequestHead {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.insert(*name, HeaderValue::from_static(value));
        }
        RequestHead {
            method: Method::GET,
            origin: Origin {
                scheme: Scheme::Https,
                authority: Authority::parse(host.as_bytes(), Some(443)).unwrap(),
            },
            target: RequestTarget::parse(target.as_bytes(), EncodedSlash::Refuse).unwrap(),
            fields: map,
            version: Version::HTTP_11,
        }
    }

    const DENIED: ErrorDetails<'static> = ErrorDetails {
        reason: ReasonCode::PolicyDefaultDeny,
        message: "no policy permits <it>",
        id: "00ff",
        policies: &[],
    };

    #[test]
    fn each_protocol_has_its_format() {
        for (host, target, fields, format) in [
            ("s3", "/b/k", &[][..], ErrorFormat::S3),
            (
                "sts",
                "/",
                &[(
                    "content-type",
                    "application/x-www-form-urlencoded; charset=utf-8",
                )],
                ErrorFormat::Query,
            ),
            (
                "sts",
                "/?Action=GetCallerIdentity&Version=2011-06-15",
                &[],
                ErrorFormat::Query,
            ),
            (
                "ec2",
                "/",
                &[("content-type", "application/x-www-form-urlencoded")],
                ErrorFormat::Ec2,
            ),
            (
                "dynamodb",
                "/",
                &[("x-amz-target", "DynamoDB_20120810.GetItem")],
                ErrorFormat::Json,
            ),
            (
                "bedrock",
                "/model/x/invoke",
                &[("content-type", "application/json")],
                ErrorFormat::Json,
            ),
            (
                "cloudwatch",
                "/service/X/operation/Y",
                &[("smithy-protocol", "rpc-v2-cbor")],
                ErrorFormat::Cbor,
            ),
        ] {
            assert_eq!(
                ErrorFormat::of_service(host == "s3", &head(host, target, fields)),
                format,
                "{host}"
            );
        }
    }

    #[test]
    fn an_error_has_the_services_shape_with_our_reason_and_id() {
        let (fields, content) = ErrorFormat::S3.write(&DENIED);
        let text = std::str::from_utf8(&content).unwrap();
        assert!(
            text.contains("<Code>AccessDenied</Code>") && text.contains("&lt;it&gt;"),
            "{text}"
        );
        assert!(
            text.contains("policy_default_deny") && text.contains("gateway why 00ff"),
            "{text}"
        );
        assert_eq!(fields["x-amz-request-id"], "00ff");
        let (fields, content) = ErrorFormat::Json.write(&DENIED);
        let read: serde_json::Value = serde_json::from_slice(&content).unwrap();
        assert_eq!(
            (&read["__type"], &fields["x-amzn-errortype"]),
            (
                &json!("AccessDeniedException"),
                &HeaderValue::from_static("AccessDeniedException")
            )
        );
        let (_, content) = ErrorFormat::Query.write(&DENIED);
        assert!(
            content
                .starts_with(b"<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>")
        );
        let (_, content) = ErrorFormat::Ec2.write(&DENIED);
        assert!(
            memchr::memmem::find(&content, b"<Errors><Error><Code>AccessDenied</Code>").is_some()
        );
        let (_, content) = ErrorFormat::Cbor.write(&DENIED);
        assert_eq!(&content[..9], b"\xa2\x66__type\x75");
        assert_eq!(&content[9..30], b"AccessDeniedException");
    }
}
