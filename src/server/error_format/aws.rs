//! The errors of AWS services, by protocol, so that AWS SDKs show the gateway's errors like the
//! service's.

use bytes::Bytes;
use gateway_names::ReasonCode;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::details::{ErrorDetails, FailedRequest};

/// The protocol of an AWS service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AwsProtocol {
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

impl AwsProtocol {
    /// Chooses the protocol of a request. `objects`: whether it is for an object store.
    pub(super) fn of(objects: bool, asked: &FailedRequest<'_>) -> Self {
        let kind = asked.field("content-type");
        let labels = || asked.host.split('.');
        match labels().next().unwrap_or_default() {
            _ if objects => Self::S3,
            _ if asked.field("smithy-protocol") == b"rpc-v2-cbor" => Self::Cbor,
            "ec2" => Self::Ec2,
            // The label in front of `s3-control` may be an account.
            _ if labels().take(2).any(|label| label == "s3-control") => Self::Query,
            _ if asked.fields.contains_key("x-amz-target") => Self::Json,
            _ if kind.starts_with(b"application/x-www-form-urlencoded") => Self::Query,
            _ if asked.method == Method::GET && asked.has_parameter("Action") => Self::Query,
            _ => Self::Json,
        }
    }

    /// Returns the type, fields and content of the response.
    pub(super) fn write(self, details: &ErrorDetails<'_>) -> (&'static str, HeaderMap, Bytes) {
        let (id, reason) = (details.id, details.reason.as_str());
        let code = self.code(details.reason);
        let message = format!("{} [gateway: {reason}; gateway why {id}]", details.message);
        let further = json!({ "reason": reason, "request_id": id });
        self.error(code, &message, (id, "gateway"), further)
    }

    /// Returns the same of the service's own response to a key that it does not know.
    pub(super) fn unknown_key(self, id: &str) -> (&'static str, HeaderMap, Bytes) {
        let message = match self {
            Self::S3 => "The AWS Access Key Id you provided does not exist in our records.",
            _ => "The security token included in the request is invalid.",
        };
        let code = self.code(ReasonCode::ForeignCredential);
        self.error(code, message, (id, id), json!({}))
    }

    fn error(
        self,
        code: &'static str,
        message: &str,
        (id, host): (&str, &str),
        further: Value,
    ) -> (&'static str, HeaderMap, Bytes) {
        let (kind, content) = match self {
            Self::S3 => ("application/xml", s3(code, message, (id, host))),
            Self::Query => ("text/xml", query(code, message, id)),
            Self::Ec2 => ("text/xml;charset=UTF-8", ec2(code, message, id)),
            Self::Json => (
                "application/x-amz-json-1.1",
                json_error(code, message, further),
            ),
            Self::Cbor => ("application/cbor", cbor(code, message)),
        };
        (kind, self.fields(code, id), content)
    }

    fn fields(self, code: &'static str, id: &str) -> HeaderMap {
        let mut fields = HeaderMap::with_capacity(8);
        let name = match self {
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
            Self::S3 | Self::Query | Self::Ec2 => {}
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
            Self::Json | Self::Cbor => others,
        }
    }
}

fn s3(code: &str, message: &str, (id, host): (&str, &str)) -> Bytes {
    let message = escaped(message);
    Bytes::from(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>\
         <RequestId>{id}</RequestId><HostId>{host}</HostId></Error>"
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

fn json_error(code: &str, message: &str, mut content: Value) -> Bytes {
    content["__type"] = code.into();
    content["message"] = message.into();
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

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = fields.iter();
        pairs
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    fn asked<'a>(host: &'a str, target: &'a str, fields: &'a HeaderMap) -> FailedRequest<'a> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        FailedRequest {
            method: &Method::GET,
            host,
            path,
            query,
            fields,
        }
    }

    const DENIED: ErrorDetails<'static> = ErrorDetails {
        reason: ReasonCode::PolicyDefaultDeny,
        retry: false,
        message: "no policy permits <it>",
        to: "s3",
        id: "00ff",
        push: None,
        call: None,
        policies: &[],
    };

    #[test]
    fn each_protocol_has_its_format() {
        for (host, target, fields, format) in [
            ("s3", "/b/k", &[][..], AwsProtocol::S3),
            (
                "sts",
                "/",
                &[(
                    "content-type",
                    "application/x-www-form-urlencoded; charset=utf-8",
                )],
                AwsProtocol::Query,
            ),
            (
                "sts",
                "/?Action=GetCallerIdentity&Version=2011-06-15",
                &[],
                AwsProtocol::Query,
            ),
            (
                "ec2",
                "/",
                &[("content-type", "application/x-www-form-urlencoded")],
                AwsProtocol::Ec2,
            ),
            (
                "dynamodb",
                "/",
                &[("x-amz-target", "DynamoDB_20120810.GetItem")],
                AwsProtocol::Json,
            ),
            (
                "bedrock",
                "/model/x/invoke",
                &[("content-type", "application/json")],
                AwsProtocol::Json,
            ),
            (
                "cloudwatch",
                "/service/X/operation/Y",
                &[("smithy-protocol", "rpc-v2-cbor")],
                AwsProtocol::Cbor,
            ),
        ] {
            assert_eq!(
                AwsProtocol::of(host == "s3", &asked(host, target, &map(fields))),
                format,
                "{host}"
            );
        }
    }

    #[test]
    fn an_error_has_the_services_shape_with_our_reason_and_id() {
        let (_, fields, content) = AwsProtocol::S3.write(&DENIED);
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
        let (_, fields, content) = AwsProtocol::Json.write(&DENIED);
        let read: serde_json::Value = serde_json::from_slice(&content).unwrap();
        assert_eq!(
            (&read["__type"], &fields["x-amzn-errortype"]),
            (
                &json!("AccessDeniedException"),
                &HeaderValue::from_static("AccessDeniedException")
            )
        );
        let (_, _, content) = AwsProtocol::Query.write(&DENIED);
        assert!(
            content
                .starts_with(b"<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>")
        );
        let (_, _, content) = AwsProtocol::Ec2.write(&DENIED);
        assert!(
            memchr::memmem::find(&content, b"<Errors><Error><Code>AccessDenied</Code>").is_some()
        );
        let (_, _, content) = AwsProtocol::Cbor.write(&DENIED);
        assert_eq!(&content[..9], b"\xa2\x66__type\x75");
        assert_eq!(&content[9..30], b"AccessDeniedException");
    }
}
