//! A budget: how much of what, for how long, and who shares it.

use std::sync::Arc;

use gateway_names::{Amount, Period, Unit};

gateway_names::words! {
    /// Who shares a budget: each of these has one of its own.
    pub enum Sharing {
        /// All requests share one.
        All = "all",
        /// Each session.
        Session = "session",
        /// Each user.
        User = "user",
        /// Each group of the caller: each of them must have room.
        Group = "group",
        /// Each credential that is lent.
        Secret = "secret",
        /// Each host.
        Host = "host",
    }
}

/// One `[[budget]]` of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Its name, which policies write: `@budget("NAME")`.
    pub name: Arc<str>,
    /// What it counts.
    pub unit: Unit,
    /// The most that may be used up in one window.
    pub most: Amount,
    /// Its window.
    pub per: Period,
    /// Who shares it.
    pub by: Sharing,
}

/// What one request takes of one budget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Charge {
    /// The budget.
    pub budget: Arc<Budget>,
    /// Whose it is: the session's id, the user, the group, the credential or the host; empty if all
    /// share it.
    pub key: String,
    /// The most that the request can use.
    pub amount: Amount,
}
