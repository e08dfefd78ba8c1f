//! Budgets: what requests may use up. The most that a request can use is reserved before anything
//! of it is sent, and settled by what its answer says that it used.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod answer;
mod budget;
mod ledger;
mod over;
mod price;
mod price_list;
mod reservation;
mod row;
mod rows;
mod usage;
mod window;

pub use answer::UsageReader;
pub use budget::{Budget, Charge, Sharing};
pub use gateway_names::{Amount, Period, Unit, read_amount, shown};
pub use ledger::{BudgetView, Ledger, NotAdded};
pub use over::OverBudget;
pub use price::{Day, Price, PriceMalformed, UsdPerMillion};
pub use price_list::{ModelPattern, OwnPrice, Prices};
pub use reservation::Reservation;
pub use usage::{Unbounded, Usage, worst_case};

#[cfg(test)]
mod tests;
