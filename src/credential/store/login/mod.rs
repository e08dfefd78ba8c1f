//! Logins: tokens that authorization servers issued, which the gateway alone renews.

mod commands;
mod fault;
mod held;
mod issuer;
mod lock;
mod place;
mod renewing;
mod row;
mod rows;
mod serving;
#[cfg(test)]
mod tests;

pub use commands::{ForgetOutcome, Logins, UnreadRow};
pub use rows::{KeySource, RowLogin};
pub use serving::LoginSettings;

pub(super) use issuer::{IssuerClients, RenewFault};
pub(super) use serving::LoginStore;
