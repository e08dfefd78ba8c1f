//! Why an exchange is refused, and the response that the client gets.

use std::time::Duration;

use bytes::Bytes;
use gateway_audit as audit;
use gateway_body::read::Push;
use gateway_body::{HoldFault, TransformFault};
use gateway_credential as credential;
use gateway_credential::{StoreError, Unavailable};
use gateway_intercept::{PresentedDenied, Rejected, explicit};
use gateway_message::Authority;
use gateway_names::{CredentialName, ExchangeId, PolicyId, ReasonCode};
use gateway_origin as origin;
pub use gateway_origin::chain;
use gateway_policy as policy;
use gateway_policy::{Objection, RefusedClient};
use gateway_session as session;
use gateway_session::RequestPart;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, HeaderName, PROXY_AUTHENTICATE, RETRY_AFTER,
};
use http::{HeaderMap, HeaderValue, StatusCode, Version};

use super::error_format::{ErrorDetails, ErrorFormat};
use super::guard::Abort;
use super::proposals::{AskFault, SpendFault, Unmet};

/// The field that names a proxy's error (RFC 9209).
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
/// The exchange's id, for `gateway why`.
pub const EXCHANGE_ID: HeaderName = HeaderName::from_static("gateway-exchange");

/// How long the client of a refused push may keep sending.
const LONGEST_PUSH: Duration = Duration::from_secs(60);

/// Why an exchange is refused, by the module that refuses.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The request could not be accepted.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The session is unknown or has ended, or a phantom is in a place where it is not allowed.
    #[error(transparent)]
    Session(#[from] session::Error),
    /// Policy denies the request.
    #[error(transparent)]
    Denied(#[from] Box<policy::Denied>),
    /// The verdict depends on content that cannot be buffered.
    #[error(transparent)]
    Gathered(HoldFault),
    /// A credential cannot be used for the request.
    #[error(transparent)]
    Credential(#[from] credential::Error),
    /// The origin cannot be reached, or does not respond properly.
    #[error(transparent)]
    Origin(#[from] origin::Error),
    /// The audit log does not accept the record.
    #[error("the audit log takes no record of the session now")]
    Audit(#[from] audit::Error),
    /// The content does not match what was signed. The origin has not received all of it.
    #[error(transparent)]
    Content(TransformFault),
    /// The exchange was aborted before its answer.
    #[error(transparent)]
    Aborted(#[from] Abort),
    /// The session has reached its limit of concurrent exchanges.
    #[error("the session is over its limit")]
    Busy,
    /// The opening of a tunnel is malformed.
    #[error(transparent)]
    Opening(explicit::OpeningRefused),
    /// No policy could allow any request to the host.
    #[error("no policy lets this session reach `{}`", .to.host)]
    Unreachable {
        /// The host and port.
        to: Authority,
        /// The reason of the floor, if no policy could allow the host at all.
        floor: Option<ReasonCode>,
    },
    /// The listener refuses the caller of the connection.
    #[error("the listener does not take this caller")]
    Caller(ReasonCode),
    /// The proxy requires TLS, and the client does not speak it.
    #[error("the proxy takes TLS alone, and the client speaks in clear text")]
    ClearText,
    /// The proxy requires credentials of its client, and none that it accepts were presented.
    #[error("the proxy asks who its client is, and nothing that it takes was presented")]
    Presented(PresentedDenied),
    /// A judge other than policy objects.
    #[error(transparent)]
    Objected(#[from] Objection),
    /// What the policies oblige the request to is not met.
    #[error("{why}")]
    Unmet {
        /// Why.
        why: Unmet,
        /// What its client is told in its own protocol, once the request is dropped.
        client: Option<Box<RefusedClient>>,
    },
}

impl From<Unmet> for Refusal {
    fn from(why: Unmet) -> Self {
        Self::Unmet { why, client: None }
    }
}

impl From<policy::GatherFailure> for Refusal {
    fn from(why: policy::GatherFailure) -> Self {
        match why {
            policy::GatherFailure::Held(why) => Self::Gathered(why),
            policy::GatherFailure::Refused(why) => Self::Session(why.into()),
        }
    }
}

impl Refusal {
    /// Returns the reason code, as in the response, the audit log and `gateway why`. It determines
    /// the status and the side at fault.
    #[must_use]
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Rejected(why) => why.reason(),
            Self::Session(why) => why.reason(),
            Self::Denied(denied) => denied
                .verdict
                .outcome
                .reason()
                .unwrap_or(ReasonCode::PolicyDefaultDeny),
            Self::Gathered(why) => why.reason(),
            Self::Credential(why) => why.reason(),
            Self::Content(why) => why.reason,
            Self::Origin(why) => why.reason(),
            Self::Audit(audit::Error::OverRate) => ReasonCode::AuditBudget,
            Self::Audit(_) => ReasonCode::AuditUnavailable,
            Self::Aborted(why) => why.reason(),
            Self::Opening(why) => why.reason(),
            Self::Unreachable { .. } => ReasonCode::PolicyDefaultDeny,
            Self::Busy => ReasonCode::SessionLimit,
            Self::Caller(reason) => *reason,
            Self::ClearText => ReasonCode::ProxyTls,
            Self::Presented(_) => ReasonCode::ProxyAuthentication,
            Self::Objected(objection) => objection.reason(),
            Self::Unmet { why, .. } => why.reason(),
        }
    }

    /// Whether the request's content may have broken off, on its way to the origin or while
    /// buffered.
    pub(super) fn is_broken_off(&self) -> bool {
        let held = |fault: &HoldFault| matches!(fault, HoldFault::Client(_));
        match self {
            Self::Origin(_) => true,
            Self::Gathered(fault) | Self::Credential(credential::Error::Held(fault)) => held(fault),
            _ => false,
        }
    }

    /// Whether the connection closes after the response, since what follows may not be a request.
    fn closes(&self) -> bool {
        matches!(
            self,
            Self::Rejected(_)
                | Self::Opening(_)
                | Self::Caller(_)
                | Self::ClearText
                | Self::Unreachable { .. }
                | Self::Busy
                | Self::Session(session::Error::Ended)
                | Self::Objected(Objection::SessionEnded)
        )
    }

    /// Says what happened and why. Contains no raw text from the request or the origin.
    fn cause(&self) -> String {
        match self {
            Self::Denied(denied) => format!("{}.", denied.explanation.reason),
            _ => format!("{self}."),
        }
    }

    /// Says in words what failed, if the reason alone does not. The log shows it to the operator.
    pub(super) fn failure(&self) -> Option<String> {
        let failed = [ReasonCode::PolicyError, ReasonCode::PolicyUnjudged];
        match self {
            Self::Origin(error @ (origin::Error::Unreachable(_) | origin::Error::Upstream(_))) => {
                Some(chain(error))
            }
            Self::Origin(_)
            | Self::Session(session::Error::Misplaced(_))
            | Self::Objected(Objection::Unlent(_)) => Some(self.cause()),
            Self::Presented(denied) => Some(denied.to_string()),
            _ if self.reason() == ReasonCode::SecretFound => Some(self.cause()),
            Self::Objected(Objection::TokenOver(denied) | Objection::Caveat(denied)) => {
                Some(denied.to_string())
            }
            Self::Credential(error) if self.reason().status().is_server_error() => {
                Some(chain(error))
            }
            Self::Denied(_) if failed.contains(&self.reason()) => Some(self.cause()),
            _ => None,
        }
    }

    /// Returns the credential whose phantom is misplaced, and its place.
    pub(super) fn misplaced(&self) -> Option<(Option<&CredentialName>, &RequestPart)> {
        let why = match self {
            Self::Session(session::Error::Misplaced(why))
            | Self::Credential(credential::Error::Misplaced(why)) => why,
            _ => return None,
        };
        Some((why.credential(), why.part()?))
    }

    /// Says what to do next, and who does it. `to` is the host and port that the request is for.
    fn next_step(&self, to: &str, id: &str) -> String {
        let usual = self.reason().next_step_for(to, id);
        match self {
            // The request may have joined an earlier one, by whose id it is answered.
            Self::Unmet {
                why: Unmet::Asked(AskFault::Unanswered(_, asked) | AskFault::Refused(asked)),
                ..
            } => self.reason().next_step_for(to, &asked.to_string()),
            Self::Unmet {
                why: Unmet::Spent(SpendFault::Spent(over)),
                ..
            } if over.budget.name.contains(' ') => {
                "Ask your user to mint another token: `gateway token mint`.".to_owned()
            }
            Self::Unmet {
                why: Unmet::Spent(SpendFault::Spent(over)),
                ..
            } => usual.replace("NAME", &over.budget.name),
            Self::Denied(denied) if self.reason() == ReasonCode::PolicyDefaultDeny => {
                let why = &denied.explanation;
                match (&why.proposal, &denied.lend) {
                    (Some(_), None) if !to.is_empty() => format!(
                        "Ask your user to run, outside the sandbox: `gateway allow {to}`, or \
                         `gateway allow {id}` for this request alone."
                    ),
                    (Some(_), Some((credential, _))) => format!(
                        "Ask your user to run, outside the sandbox: `gateway allow {id}`, which \
                         lends `{credential}` to it."
                    ),
                    (Some(_), None) => usual,
                    (None, _) => sentence(&why.next_step),
                }
            }
            Self::Origin(origin::Error::Prohibited(_, address)) => {
                usual.replace("ADDRESS", &address.to_string())
            }
            Self::Credential(credential::Error::Unavailable(why)) => {
                of_login(why, id).unwrap_or(usual)
            }
            Self::Unreachable {
                floor: Some(floor), ..
            } => floor.next_step_for(to, id),
            Self::Unreachable { to, floor: None } => {
                format!("Ask your user to run, outside the sandbox: `gateway allow {to}`.")
            }
            _ => usual,
        }
    }

    /// Returns the status, fields and content of the response. `to` is the host and port that the
    /// request is for, if they are known.
    pub(super) fn answer(
        &self,
        id: ExchangeId,
        version: Version,
        format: ErrorFormat,
        to: &str,
    ) -> (StatusCode, HeaderMap, Bytes) {
        let (reason, id) = (self.reason(), id.to_string());
        let next = self.next_step(to, &id);
        let retry = match !self.may_be_repeated() {
            _ if reason.may_be_processed() => "",
            true if next.starts_with("Ask your user") => " Do not retry before.",
            true => " Retrying will not help.",
            false => "",
        };
        let (status, mut fields, content) = format.write(&ErrorDetails {
            reason,
            retry: self.may_be_repeated(),
            message: &format!("{} {next}{retry}", self.cause()),
            to,
            id: &id,
            push: self.push(),
            call: self.client().and_then(|client| client.call.as_ref()),
            policies: self.policies(),
        });
        fields.insert(CONTENT_LENGTH, HeaderValue::from(content.len()));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert(EXCHANGE_ID, ascii(&id));
        let (kind, code) = (reason.proxy_error(), reason.as_str());
        let proxy_status = format!("gateway; error={kind}; details=\"{code}\"");
        fields.insert(PROXY_STATUS, ascii(&proxy_status));
        match reason.status() {
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                let basic = HeaderValue::from_static("Basic realm=\"gateway\"");
                fields.insert(PROXY_AUTHENTICATE, basic);
            }
            StatusCode::TOO_MANY_REQUESTS => {
                fields.insert(RETRY_AFTER, HeaderValue::from(self.retry_after()));
            }
            _ => {}
        }
        if self.closes() && version < Version::HTTP_2 {
            fields.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        (status, fields, content)
    }

    /// Returns the service's own answer to a key that it does not know, with nothing of the
    /// gateway's: for a credential that was revoked quietly.
    pub(super) fn quiet_answer(
        id: ExchangeId,
        format: ErrorFormat,
    ) -> (StatusCode, HeaderMap, Bytes) {
        let id = id.to_string().to_ascii_uppercase();
        let (status, mut fields, content) = format.unknown_key(&id);
        fields.insert(CONTENT_LENGTH, HeaderValue::from(content.len()));
        (status, fields, content)
    }

    /// After how many seconds a client may send the same request again.
    fn retry_after(&self) -> u64 {
        match self {
            Self::Unmet {
                why: Unmet::Spent(SpendFault::Soon(_, wait)),
                ..
            } => wait.as_secs() + 1,
            _ => 1,
        }
    }

    /// Whether a client may send the same request again.
    fn may_be_repeated(&self) -> bool {
        match self {
            Self::Origin(origin::Error::NoAnswer(why)) => why.is_harmless(),
            Self::Origin(origin::Error::Upstream(why)) => why.is_passing(),
            Self::Origin(why) if why.is_distrust() => false,
            _ => !self.reason().is_final(),
        }
    }

    /// Returns the reason phrase for HTTP/1.1. Some clients show nothing else.
    pub(super) fn reason_phrase(&self, to: &str) -> String {
        let reason = self.reason();
        let name = reason.status().canonical_reason().unwrap_or("Refused");
        match reason {
            ReasonCode::PolicyDefaultDeny if !to.is_empty() && self.is_grantable() => {
                format!(
                    "{name} by gateway: no policy permits it; your user may run `gateway allow {to}`"
                )
            }
            _ => format!("{name} by gateway: {reason}"),
        }
    }

    /// Whether `gateway allow HOST` would allow the request.
    pub(super) fn is_grantable(&self) -> bool {
        match self {
            Self::Denied(denied) => denied.lend.is_none() && denied.explanation.proposal.is_some(),
            _ => matches!(self, Self::Unreachable { floor: None, .. }),
        }
    }

    /// Waits until the client of a push has sent all of it, for at most a minute. Clients keep
    /// sending after a 200 response: over HTTP/1.1 into a closed connection, and over HTTP/2 curl
    /// waits for ever for window space.
    pub(super) async fn settle(&mut self) {
        let client = match self {
            Self::Denied(denied) => Some(&mut denied.client),
            Self::Unmet { client, .. } => client.as_deref_mut(),
            _ => None,
        };
        if let Some(refused) = client.and_then(|client| client.push.as_mut()) {
            let rest = refused.rest.discard();
            let _ = tokio::time::timeout(LONGEST_PUSH, rest).await;
        }
    }

    /// Returns what the client is told in its own protocol.
    fn client(&self) -> Option<&RefusedClient> {
        match self {
            Self::Denied(denied) => Some(&denied.client),
            Self::Unmet { client, .. } => client.as_deref(),
            _ => None,
        }
    }

    /// Returns the push that is refused.
    fn push(&self) -> Option<&Push> {
        Some(&self.client()?.push.as_ref()?.push)
    }

    /// Returns the policies that decided.
    fn policies(&self) -> &[PolicyId] {
        match self {
            Self::Denied(denied) => &denied.verdict.policies,
            _ => &[],
        }
    }

    /// Logs failures that only the operator can fix.
    pub(super) fn log(&self, id: ExchangeId) {
        match self {
            Self::Origin(error) => {
                tracing::info!(exchange = %id, cause = %chain(error), "an origin failed");
            }
            Self::Credential(error) if self.reason().status().is_server_error() => {
                tracing::warn!(exchange = %id, cause = %chain(error), "a credential could not be lent");
            }
            _ => {}
        }
    }
}

fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("reason codes and ids are visible ASCII")
}

/// Why a login gives no token, and how to log in again; `None` if it is no fault of the login.
/// Where the gateway keeps its state is told to the log alone.
fn of_login(why: &Unavailable, id: &str) -> Option<String> {
    let login = why.reference.login_name()?;
    if matches!(why.cause, StoreError::LoginState(_)) {
        return Some(format!(
            "Ask your user about the login `{login}`: what the gateway keeps of it cannot be used; \
             `gateway why {id}` says why. The request was not sent."
        ));
    }
    let cause = match &why.cause {
        cause @ (StoreError::NoLogin(_)
        | StoreError::LoginUnusable(_)
        | StoreError::LoginOver(_)) => cause,
        _ => return None,
    };
    Some(format!(
        "Ask your user about the login `{login}`: {cause}. The request was not sent."
    ))
}

/// Returns the next step of an explanation as a sentence of its own.
fn sentence(step: &str) -> String {
    let mut letters = step.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    let end = if step.is_empty() || step.ends_with('.') {
        ""
    } else {
        "."
    };
    first.unwrap_or_default() + letters.as_str() + end
}

#[cfg(test)]
mod tests {
    use gateway_credential::SecretRef;
    use gateway_credential::login::TokenKind;

    use super::*;

    #[test]
    fn a_refusal_does_not_say_where_the_gateway_keeps_its_state() {
        let unavailable = |cause| {
            let name = CredentialName::new("claude").unwrap();
            let reference = Box::new(SecretRef::login(name, TokenKind::Access));
            let why = Box::new(Unavailable { reference, cause });
            Refusal::from(credential::Error::Unavailable(why))
        };
        let answered = |refusal: &Refusal, format| {
            let id = ExchangeId::from_bytes([7; 10]);
            let (.., content) = refusal.answer(id, Version::HTTP_11, format, "api.test");
            String::from_utf8(content.to_vec()).unwrap()
        };
        let at = "/home/a/.local/state/gateway/sessions/user.db";
        let kept = unavailable(StoreError::LoginState(format!("`{at}` is damaged").into()));
        let own = unavailable(StoreError::LoginOver("its issuer ended it".into()));
        for format in [ErrorFormat::Gateway, ErrorFormat::Text] {
            let told = answered(&kept, format);
            assert!(
                !told.contains("/home") && !told.contains("damaged"),
                "{told}"
            );
            assert!(
                told.contains("login `claude`") && told.contains("gateway why 0707"),
                "{told}"
            );
            assert!(answered(&own, format).contains("its issuer ended it"));
        }
        // The person who asks why finds it.
        assert!(kept.failure().unwrap().contains(at));
    }
}
