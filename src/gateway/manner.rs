//! The shape in which a service of AWS tells its clients of an error, so that their SDKs show ours
//! as they show its own.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::json;

use crate::message::RequestHead;

/// How an error is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// `<Error>`: Amazon S3 API Reference, "REST Error Responses".
    S3,
    /// `<ErrorResponse>`: the query protocol (IAM, STS, SNS, …).
    Query,
    /// `<Response>`: the query protocol as EC2 has it.
    Ec2,
    /// `__type` in JSON: awsJson 1.0 and 1.1, and restJson 1.
    Json,
    /// `__type` in CBOR: Smithy RPC v2.
    Cbor,
}

/// What is told.
pub struct Told<'a> {
    /// The status.
    pub status: StatusCode,
    /// Our reason code.
    pub reason: &'a str,
    /// What happened, and what to do.
    pub message: &'a str,
    /// The exchange.
    pub id: &'a str,
}

impl Manner {
    /// The manner of the service that a signed request is for; `objects` says that it is an object
    /// store.
    #[must_use]
    pub fn of(objects: bool, head: &RequestHead) -> Self {
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
            // Below it stand accounts.
            _ if labels().take(2).any(|label| label == "s3-control") => Self::Query,
            _ if head.fields.contains_key("x-amz-target") => Self::Json,
            _ if kind.starts_with(b"application/x-www-form-urlencoded") => Self::Query,
            _ if head.method == Method::GET && head.target.query_pairs().any(action) => Self::Query,
            _ => Self::Json,
        }
    }

    /// The content, and the fields that go with it.
    #[must_use]
    pub fn write(self, told: &Told<'_>) -> (HeaderMap, Bytes) {
        let code = self.code(told.status, told.reason);
        let message = format!(
            "{} [gateway: {}; gateway why {}]",
            told.message, told.reason, told.id
        );
        let (kind, content) = match self {
            Self::S3 => ("application/xml", s3(code, &message, told.id)),
            Self::Query => ("text/xml", query(code, &message, told.id)),
            Self::Ec2 => ("text/xml;charset=UTF-8", ec2(code, &message, told.id)),
            Self::Json => (
                "application/x-amz-json-1.1",
                json_error(code, &message, told),
            ),
            Self::Cbor => ("application/cbor", cbor(code, &message)),
        };
        let mut fields = HeaderMap::with_capacity(8);
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        let id = match self {
            Self::S3 => HeaderName::from_static("x-amz-request-id"),
            _ => HeaderName::from_static("x-amzn-requestid"),
        };
        if let Ok(value) = HeaderValue::from_str(told.id) {
            fields.insert(id, value);
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
        (fields, content)
    }

    /// The service's own code that is nearest. SDKs act on some of them: a skewed clock is
    /// corrected and the request sent again, what is denied is not.
    fn code(self, status: StatusCode, reason: &str) -> &'static str {
        let (s3, others) = match (status, reason) {
            (_, "signature_skew") => ("RequestTimeTooSkewed", "RequestTimeTooSkewed"),
            (_, "signature_expired") => ("AccessDenied", "RequestExpired"),
            (_, "sigv4_mismatch") => ("SignatureDoesNotMatch", "InvalidSignatureException"),
            (_, "foreign_credential") => ("InvalidAccessKeyId", "UnrecognizedClientException"),
            (_, "sigv4_content") => ("XAmzContentSHA256Mismatch", "InvalidSignatureException"),
            (StatusCode::PAYLOAD_TOO_LARGE, _) => {
                ("EntityTooLarge", "RequestEntityTooLargeException")
            }
            (StatusCode::BAD_REQUEST, _) => ("InvalidRequest", "ValidationException"),
            (status, _) if status.is_server_error() => ("ServiceUnavailable", "ServiceUnavailable"),
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
            Self::Json | Self::Cbor => others,
        }
    }
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

fn json_error(code: &str, message: &str, told: &Told<'_>) -> Bytes {
    let content = json!({
        "__type": code,
        "message": message,
        "reason": told.reason,
        "request_id": told.id,
    });
    Bytes::from(content.to_string())
}

/// RFC 8949 §3: a map of two texts to texts.
fn cbor(code: &str, message: &str) -> Bytes {
    let mut out = vec![0xa2];
    for text in ["__type", code, "message", message] {
        match u16::try_from(text.len()) {
            Ok(length @ ..24) => out.push(0x60 | length.to_be_bytes()[1]),
            Ok(length) => {
                out.push(0x79);
                out.extend(length.to_be_bytes());
            }
            // No explanation is as long.
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
    use crate::message::{Authority, EncodedSlash, Origin, RequestTarget, Scheme};
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

    const DENIED: Told<'static> = Told {
        status: StatusCode::FORBIDDEN,
        reason: "policy_default_deny",
        message: "no policy permits <it>",
        id: "00ff",
    };

    #[test]
    fn each_protocol_has_its_manner() {
        for (host, target, fields, manner) in [
            ("s3", "/b/k", &[][..], Manner::S3),
            (
                "sts",
                "/",
                &[(
                    "content-type",
                    "application/x-www-form-urlencoded; charset=utf-8",
                )],
                Manner::Query,
            ),
            (
                "sts",
                "/?Action=GetCallerIdentity&Version=2011-06-15",
                &[],
                Manner::Query,
            ),
            (
                "ec2",
                "/",
                &[("content-type", "application/x-www-form-urlencoded")],
                Manner::Ec2,
            ),
            (
                "dynamodb",
                "/",
                &[("x-amz-target", "DynamoDB_20120810.GetItem")],
                Manner::Json,
            ),
            (
                "bedrock",
                "/model/x/invoke",
                &[("content-type", "application/json")],
                Manner::Json,
            ),
            (
                "cloudwatch",
                "/service/X/operation/Y",
                &[("smithy-protocol", "rpc-v2-cbor")],
                Manner::Cbor,
            ),
        ] {
            assert_eq!(
                Manner::of(host == "s3", &head(host, target, fields)),
                manner,
                "{host}"
            );
        }
    }

    #[test]
    fn an_error_has_the_services_shape_with_our_reason_and_id() {
        let (fields, content) = Manner::S3.write(&DENIED);
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
        let (fields, content) = Manner::Json.write(&DENIED);
        let read: serde_json::Value = serde_json::from_slice(&content).unwrap();
        assert_eq!(
            (&read["__type"], &fields["x-amzn-errortype"]),
            (
                &json!("AccessDeniedException"),
                &HeaderValue::from_static("AccessDeniedException")
            )
        );
        let (_, content) = Manner::Query.write(&DENIED);
        assert!(
            content
                .starts_with(b"<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>")
        );
        let (_, content) = Manner::Ec2.write(&DENIED);
        assert!(
            memchr::memmem::find(&content, b"<Errors><Error><Code>AccessDenied</Code>").is_some()
        );
        let (_, content) = Manner::Cbor.write(&DENIED);
        assert_eq!(&content[..9], b"\xa2\x66__type\x75");
        assert_eq!(&content[9..30], b"AccessDeniedException");
    }
}
