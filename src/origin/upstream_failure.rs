//! Why an upstream proxy opened no tunnel to an origin.

use gateway_credential::LoginUnavailable;
use gateway_message::Authority;

/// The upstream proxy opened no tunnel to the origin. No part of the request was sent.
#[derive(Debug, thiserror::Error)]
#[error("the upstream proxy {proxy} {fault}")]
pub struct UpstreamFailure {
    pub(super) proxy: Authority,
    #[source]
    pub(super) fault: Box<UpstreamFault>,
}

/// The fault of an upstream proxy.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpstreamFault {
    #[error("cannot be reached")]
    Unreached(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("did not answer in time")]
    Late,
    #[error("ended the connection without an answer")]
    Ended(#[source] std::io::Error),
    #[error("needs a login that cannot be read: see `via_auth`")]
    NoLogin(#[source] LoginUnavailable),
    #[error("asks for a login (407): name it with `via_auth`")]
    AsksLogin,
    #[error("does not accept the login of `via_auth` (407)")]
    RefusesLogin,
    #[error("refuses the way to the server ({0})")]
    Refused(u16),
    #[error("cannot reach the server ({0})")]
    Failed(u16),
    #[error("did not answer as an HTTP proxy does")]
    Malformed,
}

impl UpstreamFailure {
    /// Whether the next attempt may succeed without an operator's action.
    pub fn is_passing(&self) -> bool {
        use UpstreamFault as Fault;
        matches!(
            *self.fault,
            Fault::Unreached(_) | Fault::Late | Fault::Ended(_) | Fault::Failed(_)
        )
    }
}
