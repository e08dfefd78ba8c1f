//! What a client is told when an exchange is refused, and who is to blame: one match over every
//! cause.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, PROXY_AUTHENTICATE,
    RETRY_AFTER,
};
use http::{HeaderMap, HeaderValue, StatusCode, Version};

use super::live::Cut;
use super::manner::{Manner, Told};
use crate::audit::{self, Blame};
use crate::body::{HoldFault, RecodeFault};
use crate::intercept::strict::Malformed;
use crate::intercept::{Rejected, explicit};
use crate::message::{Disagreement, FieldsMalformed, Host, MethodRefused};
use crate::names::ExchangeId;
use crate::session::CredentialRefusal;
use crate::signature::Fault;
use crate::{credential, origin, policy, session};

/// RFC 9209.
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
/// The exchange's id, for `gateway why`.
pub const EXCHANGE_ID: HeaderName = HeaderName::from_static("gateway-exchange");

/// Why an exchange is refused, by the room that refuses.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The request could not be accepted.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The session is unknown or over, or a phantom stands where it may not.
    #[error(transparent)]
    Session(#[from] session::Error),
    /// Policy denies.
    #[error(transparent)]
    Denied(#[from] Box<policy::Denied>),
    /// Content on which the verdict depends cannot be held.
    #[error(transparent)]
    Gathered(#[from] HoldFault),
    /// A credential cannot be had.
    #[error(transparent)]
    Credential(#[from] credential::Error),
    /// The origin cannot be reached, or does not answer properly.
    #[error(transparent)]
    Origin(#[from] origin::Error),
    /// The audit log takes no record.
    #[error("the audit log takes no record of the session now")]
    Audit(#[from] audit::Error),
    /// The content is not what was signed; the origin has not got all of it.
    #[error(transparent)]
    Content(RecodeFault),
    /// The exchange was cut before its answer.
    #[error(transparent)]
    Cut(#[from] Cut),
    /// The session has as many exchanges under way as its limit allows.
    #[error("the session is over its limit")]
    Busy,
    /// The opening of a tunnel is malformed.
    #[error(transparent)]
    Opening(explicit::Refused),
    /// No policy could allow any request to the host.
    #[error("no policy lets this session reach `{host}`")]
    Unreachable {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
    },
    /// The proxy wants a user and password.
    #[error("the proxy asks for a user and password")]
    ProxyAuthentication,
}

/// What a refusal means for the answer: one row of the table below.
struct Row {
    status: StatusCode,
    blame: Blame,
    /// The Proxy-Status error type (RFC 9209 §2.3).
    kind: &'static str,
}

fn row(status: StatusCode, blame: Blame, kind: &'static str) -> Row {
    Row {
        status,
        blame,
        kind,
    }
}

impl Refusal {
    fn row(&self) -> Row {
        use StatusCode as S;
        match self {
            Self::Rejected(why) => row(rejected(why), Blame::Client, "http_request_error"),
            Self::Session(session::Error::Unknown | session::Error::Ended) => {
                row(S::FORBIDDEN, Blame::Client, "http_request_denied")
            }
            Self::Session(session::Error::Misplaced(CredentialRefusal::Signature { fault })) => {
                row(signature(fault), Blame::Credential, "http_request_denied")
            }
            Self::Session(session::Error::Misplaced(_)) => {
                row(S::FORBIDDEN, Blame::Credential, "http_request_denied")
            }
            Self::Denied(_) => row(S::FORBIDDEN, Blame::Policy, "http_request_denied"),
            Self::Gathered(why) => held_row(why),
            Self::Credential(why) => credential_row(why),
            Self::Content(why) if why.reason == HoldFault::Busy.reason() => row(
                S::SERVICE_UNAVAILABLE,
                Blame::Gateway,
                "connection_limit_reached",
            ),
            Self::Content(_) => row(S::FORBIDDEN, Blame::Client, "http_request_error"),
            Self::Origin(why) => origin_row(why),
            Self::Audit(audit::Error::OverRate) => {
                row(S::TOO_MANY_REQUESTS, Blame::Client, "http_request_denied")
            }
            Self::Audit(_) => row(
                S::SERVICE_UNAVAILABLE,
                Blame::Gateway,
                "proxy_internal_error",
            ),
            Self::Cut(Cut::Stalled) => {
                row(S::GATEWAY_TIMEOUT, Blame::Origin, "http_response_timeout")
            }
            Self::Cut(Cut::Ended) => row(S::FORBIDDEN, Blame::Client, "http_request_denied"),
            Self::Cut(Cut::Revoked) => row(S::FORBIDDEN, Blame::Policy, "http_request_denied"),
            Self::Opening(_) => row(S::BAD_REQUEST, Blame::Client, "http_request_error"),
            Self::Unreachable { .. } => row(S::FORBIDDEN, Blame::Policy, "http_request_denied"),
            Self::Busy => row(
                S::SERVICE_UNAVAILABLE,
                Blame::Client,
                "connection_limit_reached",
            ),
            Self::ProxyAuthentication => row(
                S::PROXY_AUTHENTICATION_REQUIRED,
                Blame::Client,
                "http_request_denied",
            ),
        }
    }

    /// The reason code: in the answer, in the audit log, in `gateway why`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Rejected(why) => why.reason(),
            Self::Session(why) => why.reason(),
            Self::Denied(denied) => denied.verdict.outcome.word(),
            Self::Gathered(why) => why.reason(),
            Self::Credential(why) => why.reason(),
            Self::Content(why) => why.reason,
            Self::Origin(why) => why.reason(),
            Self::Audit(audit::Error::OverRate) => "audit_budget",
            Self::Audit(_) => "audit_unavailable",
            Self::Cut(why) => why.reason(),
            Self::Opening(why) => why.reason(),
            Self::Unreachable { .. } => "policy_default_deny",
            Self::Busy => "session_limit",
            Self::ProxyAuthentication => "proxy_authentication",
        }
    }

    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        self.row().blame
    }

    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.row().status
    }

    /// Whether the connection is closed after the answer: what follows on it cannot be trusted to
    /// be a request.
    fn closes(&self) -> bool {
        matches!(
            self,
            Self::Rejected(_) | Self::Opening(_) | Self::Unreachable { .. } | Self::Busy
        )
    }

    /// What happened, why, and what to do next, in a sentence or two; no text of the request's or
    /// the origin's.
    fn explanation(&self) -> String {
        let next = match self {
            Self::Denied(denied) => {
                let explanation = &denied.explanation;
                let mut text = format!("{}.", explanation.reason);
                for part in [Some(&explanation.next_step), explanation.proposal.as_ref()]
                    .into_iter()
                    .flatten()
                {
                    text = format!("{text}\n{part}");
                }
                return text;
            }
            Self::Unreachable { host, port } => {
                return format!("{self}. Allow it with `--allow {host}:{port}` or a Cedar policy.");
            }
            Self::Session(session::Error::Misplaced(
                CredentialRefusal::Signature { .. } | CredentialRefusal::Unsignable { .. },
            )) => {
                "Sign with the credential that the environment holds, for the host that the request goes to."
            }
            Self::Credential(credential::Error::Signature(_)) => {
                "Sign with the access key and the secret key that the environment holds."
            }
            Self::Credential(credential::Error::Skewed) => "Set the client's clock.",
            Self::Credential(credential::Error::Expired) => {
                "Sign the request again, with new credentials if they were temporary."
            }
            Self::Gathered(_) => {
                "A policy reads the content. Send less at a time, or ask the operator to raise `hold` in `[limits]`."
            }
            Self::Credential(credential::Error::Held(_)) => {
                "Send less content at a time (where a signature covers it: its hash in `x-amz-content-sha256`), or ask the operator to raise `hold` in `[limits]`."
            }
            Self::Session(session::Error::Misplaced(CredentialRefusal::Batch { .. })) => {
                "Send the requests one by one."
            }
            Self::Credential(credential::Error::Misplaced(CredentialRefusal::Unreadable {
                ..
            })) => "Send it as UTF-8, and without a content coding.",
            Self::Session(session::Error::Misplaced(CredentialRefusal::Foreign { .. }))
            | Self::Credential(credential::Error::Misplaced(_)) => {
                "Leave it out: this host takes the credentials of the gateway alone (`takes` and `foreign` in `[[credential]]`)."
            }
            Self::Rejected(Rejected::Fields(FieldsMalformed::Name)) => {
                "The operator can allow `_` and `.` for an origin with `underscores` in `[[origin]]`."
            }
            Self::Session(session::Error::Misplaced(_)) => {
                "Send the credential only to the hosts and in the places that its configuration names."
            }
            Self::Credential(credential::Error::Minted(_)) => {
                "The service answered with credentials, which are not given on; ask the operator to look at the gateway's log."
            }
            Self::Credential(credential::Error::Guessed(_)) => {
                "Begin another session: of `gateway serve` with a restart. The gateway's log says what happened in this one."
            }
            Self::Credential(_) => {
                "Ask the operator to look at the gateway's log; the request was not sent."
            }
            Self::Audit(audit::Error::OverRate) => {
                "Send requests more slowly. This one has no record of its own; the log counts it."
            }
            Self::Origin(origin::Error::Prohibited(_)) => {
                "Private, loopback and metadata addresses are refused unless the operator excepts them in `[[origin]]`."
            }
            Self::Origin(origin::Error::Tls(_)) => {
                "The origin's certificate must be valid for its name; private roots go into `[[origin]] roots`."
            }
            _ => "",
        };
        let what = self.to_string();
        if next.is_empty() {
            format!("{what}.")
        } else {
            format!("{what}. {next}")
        }
    }

    /// The answer's head and content.
    #[must_use]
    pub fn answer(
        &self,
        id: ExchangeId,
        version: Version,
        manner: Option<Manner>,
    ) -> (StatusCode, HeaderMap, Bytes) {
        let row = self.row();
        let (mut fields, content) = match manner {
            Some(manner) => manner.write(&Told {
                status: row.status,
                reason: self.reason(),
                message: &self.explanation(),
                id: &id.to_string(),
            }),
            None => self.usual(id),
        };
        fields.insert(CONTENT_LENGTH, HeaderValue::from(content.len()));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert(EXCHANGE_ID, ascii(&id.to_string()));
        fields.insert(
            PROXY_STATUS,
            ascii(&format!(
                "gateway; error={}; details=\"{}\"",
                row.kind,
                self.reason()
            )),
        );
        if row.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            fields.insert(
                PROXY_AUTHENTICATE,
                HeaderValue::from_static("Basic realm=\"gateway\""),
            );
        }
        if row.status == StatusCode::TOO_MANY_REQUESTS {
            fields.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.closes() && version < Version::HTTP_2 {
            fields.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        (row.status, fields, content)
    }

    /// Our own shape (docs/adr/0009).
    fn usual(&self, id: ExchangeId) -> (HeaderMap, Bytes) {
        let content = serde_json::json!({
            "error": "refused_by_gateway",
            "reason": self.reason(),
            "message": self.explanation(),
            "request_id": id.to_string(),
            "policies": self.policies(),
            "next": format!("gateway why {id}"),
        });
        let mut content = content.to_string();
        content.push('\n');
        let content = Bytes::from(content);
        let mut fields = HeaderMap::with_capacity(8);
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        (fields, content)
    }

    fn policies(&self) -> Vec<String> {
        match self {
            Self::Denied(denied) => denied
                .verdict
                .policies
                .iter()
                .map(ToString::to_string)
                .collect(),
            _ => Vec::new(),
        }
    }
}

fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("reason codes and ids are visible ASCII")
}

fn rejected(why: &Rejected) -> StatusCode {
    use StatusCode as S;
    match why {
        Rejected::Method(MethodRefused::Prohibited) => S::METHOD_NOT_ALLOWED,
        Rejected::Target(why) if why.is_too_long() => S::URI_TOO_LONG,
        Rejected::Fields(FieldsMalformed::TooLarge) => S::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Rejected::Disagreement(why) if why.is_misdirected() => S::MISDIRECTED_REQUEST,
        Rejected::Disagreement(Disagreement::Nested) => S::METHOD_NOT_ALLOWED,
        Rejected::Expectation => S::EXPECTATION_FAILED,
        Rejected::Upgrade => S::NOT_IMPLEMENTED,
        Rejected::Wire(why) => wire(why),
        Rejected::Method(_)
        | Rejected::Target(_)
        | Rejected::Fields(_)
        | Rejected::Disagreement(_)
        | Rejected::MethodOverride
        | Rejected::FieldOverride => S::BAD_REQUEST,
    }
}

/// What cannot be read in one way is malformed; what can be read and may not be is denied.
fn signature(fault: &Fault) -> StatusCode {
    if fault.is_malformed() {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::FORBIDDEN
    }
}

fn credential_row(why: &credential::Error) -> Row {
    use StatusCode as S;
    use credential::Error as E;
    match why {
        E::Unknown | E::Unavailable(_) | E::Unfit(_) | E::Unscrubbable(_) | E::Signing(_) => row(
            S::SERVICE_UNAVAILABLE,
            Blame::Credential,
            "proxy_internal_error",
        ),
        E::NoRandomness => row(
            S::SERVICE_UNAVAILABLE,
            Blame::Gateway,
            "proxy_internal_error",
        ),
        E::Signature(fault) => row(signature(fault), Blame::Credential, "http_request_denied"),
        E::Minted(_) => row(S::BAD_GATEWAY, Blame::Origin, "http_protocol_error"),
        E::Misplaced(_) => row(S::FORBIDDEN, Blame::Credential, "http_request_denied"),
        E::Unsignable(_) => row(S::FORBIDDEN, Blame::Credential, "http_request_denied"),
        E::Guessed(_) => row(S::FORBIDDEN, Blame::Client, "http_request_denied"),
        E::Skewed | E::Expired => row(S::FORBIDDEN, Blame::Client, "http_request_denied"),
        E::Held(why) => held_row(why),
    }
}

fn held_row(why: &HoldFault) -> Row {
    use StatusCode as S;
    match why {
        HoldFault::TooLong(_) => row(S::PAYLOAD_TOO_LARGE, Blame::Client, "http_request_error"),
        HoldFault::Busy => row(
            S::SERVICE_UNAVAILABLE,
            Blame::Gateway,
            "connection_limit_reached",
        ),
        HoldFault::Client(_) => row(S::BAD_REQUEST, Blame::Client, "http_request_error"),
    }
}

fn wire(why: &Malformed) -> StatusCode {
    why.status()
}

fn origin_row(why: &origin::Error) -> Row {
    use StatusCode as S;
    use origin::Error as E;
    match why {
        E::Prohibited(_) => row(S::FORBIDDEN, Blame::Policy, "destination_ip_prohibited"),
        E::Unresolved(_) => row(S::BAD_GATEWAY, Blame::Origin, "dns_error"),
        E::Unreachable(_) => row(S::BAD_GATEWAY, Blame::Origin, "destination_unavailable"),
        E::ConnectTimeout => row(S::GATEWAY_TIMEOUT, Blame::Origin, "connection_timeout"),
        E::HandshakeTimeout => row(S::GATEWAY_TIMEOUT, Blame::Origin, "connection_timeout"),
        E::Tls(_) => row(S::BAD_GATEWAY, Blame::Origin, "tls_certificate_error"),
        E::NotCertifiable => row(S::BAD_REQUEST, Blame::Client, "http_request_error"),
        E::TlsUnusable(_) | E::NoRoots => {
            row(S::BAD_GATEWAY, Blame::Gateway, "proxy_configuration_error")
        }
        E::WrongChannel => row(
            S::INTERNAL_SERVER_ERROR,
            Blame::Gateway,
            "proxy_internal_error",
        ),
        E::Protocol => row(S::BAD_GATEWAY, Blame::Origin, "http_protocol_error"),
        E::Http(_) => row(S::BAD_GATEWAY, Blame::Origin, "http_response_incomplete"),
        E::BadUpgrade => row(S::BAD_GATEWAY, Blame::Origin, "http_upgrade_failed"),
        E::DecodingBudget => row(
            S::SERVICE_UNAVAILABLE,
            Blame::Gateway,
            "proxy_internal_error",
        ),
        E::Coding => row(
            S::BAD_GATEWAY,
            Blame::Origin,
            "http_response_content_coding_error",
        ),
    }
}
