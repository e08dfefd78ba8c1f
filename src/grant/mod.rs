//! Grants: what a person allows beside the policies of the configuration. A rule is made from a
//! refusal, a proposal, a host that is named, or a run that was watched; one file keeps it.

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
pub use rule::{AllowAnswer, AllowRequest, Parsed};
