//! Grants: the rules that a person adds to the policies of the configuration. A rule is made from a
//! refusal, a proposal, a named host or an observed run; one file keeps all rules.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod denials;
mod error;
mod file;
mod grants;
mod lookup;
mod observed;
pub mod request;
mod rule;

pub use denials::RecordedDenials;
pub use error::ControlRefusal;
pub use file::{GrantedFile, GrantedRule, leave_out_ended};
pub use grants::Grants;
pub use observed::ObservedAccess;
pub use rule::{AllowRequest, AllowResponse, ParsedHosts};
