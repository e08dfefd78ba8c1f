//! Why a budget lets a request not through.

use std::sync::Arc;
use std::time::SystemTime;

use super::budget::Budget;
use gateway_names::Amount;
use gateway_names::shown;

/// A budget has no room for a request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct OverBudget {
    /// The budget.
    pub budget: Arc<Budget>,
    /// Whose it is.
    pub key: String,
    /// How much is spent in its window.
    pub spent: Amount,
    /// How much is reserved by requests that are under way.
    pub reserved: Amount,
    /// How much the request can use up.
    pub wanted: Amount,
    /// When the budget begins anew; `None` if it does not, or if the request is too large for it.
    pub again: Option<SystemTime>,
    /// Why the state cannot tell what is left, if it cannot.
    pub failure: Option<String>,
}

impl OverBudget {
    fn text(&self) -> String {
        let name = &self.budget.name;
        if let Some(why) = &self.failure {
            return format!("what is left of budget `{name}` is not known: {why}");
        }
        let whose = match &self.key[..] {
            "" => String::new(),
            key => format!(" of `{key}`"),
        };
        let shown = |amount| shown(self.budget.unit, amount);
        let (most, spent) = (shown(self.budget.most), shown(self.spent));
        let reserved = match self.reserved {
            0 => String::new(),
            reserved => format!(" and {} reserved", shown(reserved)),
        };
        let wanted = shown(self.wanted);
        format!(
            "budget `{name}`{whose} has no room for up to {wanted}: {spent} spent{reserved} of {most}"
        )
    }
}
