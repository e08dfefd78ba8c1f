//! One row of a budget in memory: what this process has taken of it, and who waits for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use gateway_names::{Amount, Period};
use gateway_state::{BudgetCounts, BudgetId, BudgetWindow};

use super::budget::Budget;
use super::over::OverBudget;
use super::window::{Window, time_of};

/// The place of a request among those that wait. The growth of a request that is under way has
/// `false`, and goes first: the others may wait for that request.
pub(crate) type Ticket = (bool, u64);

/// One row of a budget.
pub(crate) struct Row {
    pub(crate) budget: Arc<Budget>,
    pub(crate) window: Window,
    /// What was taken durably for this process, and is neither reserved nor spent.
    pub(crate) free: Amount,
    /// What requests under way have reserved in this window.
    pub(crate) reserved: Amount,
    /// What was used beyond all reservations, and is not taken yet.
    pub(crate) owed: Amount,
    /// What all processes had taken, when the store last said it. All, if it has not.
    taken: Amount,
    /// What operators had added then.
    added: Amount,
    /// Whether the store is asked now.
    pub(crate) is_asking: bool,
    /// The requests that wait, in order.
    pub(crate) queue: BTreeSet<Ticket>,
    /// When it was last used, in seconds since 1970.
    pub(crate) used: u64,
}

impl Row {
    pub(crate) fn new(budget: Arc<Budget>, now: u64) -> Self {
        Self {
            window: Window::of(budget.per, now),
            budget,
            free: 0,
            reserved: 0,
            owed: 0,
            taken: Amount::MAX,
            added: 0,
            is_asking: false,
            queue: BTreeSet::new(),
            used: now,
        }
    }

    /// Begins the window that the clock is in, if this one is over. A clock that is set back begins
    /// none.
    pub(crate) fn roll(&mut self, now: u64) {
        self.used = self.used.max(now);
        if self.window.ends.is_some_and(|ends| now >= ends) {
            self.begin(Window::of(self.budget.per, now));
        }
    }

    /// Begins a window. What was taken in another ends with that.
    fn begin(&mut self, window: Window) {
        self.window = window;
        (self.free, self.reserved, self.owed) = (0, 0, 0);
        // Until the store says it, nothing is known to be left.
        (self.taken, self.added) = (Amount::MAX, 0);
    }

    /// Takes over what the configuration says now.
    pub(crate) fn replace(&mut self, budget: Arc<Budget>) {
        if budget.per != self.budget.per {
            self.window = Window::from(budget.per, self.window.begins);
        }
        self.budget = budget;
    }

    /// Takes note of what the store says, with what was taken. Returns whether that is for the
    /// window of this row; if not, that window is over.
    pub(crate) fn took(&mut self, got: Amount, counts: BudgetCounts) -> bool {
        let is_other = counts.window != self.window.begins;
        let lasts = self.budget.per == Period::Session;
        if is_other && !lasts && counts.window < self.window.begins {
            return false;
        }
        if is_other {
            self.begin(Window::from(self.budget.per, counts.window));
        }
        (self.taken, self.added) = (counts.taken, counts.added);
        self.free = self.free.saturating_add(got);
        self.pay();
        true
    }

    /// Takes note that the store cannot say what is left.
    pub(crate) fn fail(&mut self) {
        self.taken = Amount::MAX;
    }

    /// Pays what is owed of what is free.
    pub(crate) fn pay(&mut self) {
        let paid = self.owed.min(self.free);
        self.owed -= paid;
        self.free -= paid;
    }

    /// What nobody had taken, when the store last said it.
    pub(crate) fn left(&self) -> Amount {
        let all = self.budget.most.saturating_add(self.added);
        all.saturating_sub(self.taken)
    }

    /// How much is taken ahead.
    pub(crate) fn slice(&self) -> Amount {
        (self.budget.most / SLICES).max(1)
    }

    /// Takes out what is free beyond a slice, to be given back. Beyond nothing, if the gateway
    /// stops.
    pub(crate) fn trim(&mut self, is_closing: bool) -> Amount {
        let kept = if is_closing { 0 } else { self.slice() };
        let surplus = self.free.saturating_sub(kept);
        self.free -= surplus;
        if self.taken != Amount::MAX {
            self.taken = self.taken.saturating_sub(surplus);
        }
        surplus
    }

    /// The window by the caller's clock, as the store is asked for it.
    pub(crate) fn asked_window(&self) -> BudgetWindow {
        BudgetWindow {
            begins: self.window.begins,
            lasts: self.budget.per == Period::Session,
        }
    }

    /// Whether no request needs it.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.is_asking && self.reserved == 0 && self.owed == 0
    }

    /// Why it has no room for this much.
    pub(crate) fn over(&self, key: &str, wanted: Amount, failure: Option<String>) -> OverBudget {
        let all = self.budget.most.saturating_add(self.added);
        let spent = self.taken.saturating_sub(self.free);
        let fits = wanted <= all;
        OverBudget {
            budget: self.budget.clone(),
            key: key.to_owned(),
            spent: spent
                .saturating_sub(self.reserved)
                .saturating_add(self.owed),
            reserved: self.reserved,
            wanted,
            again: self.window.ends.filter(|_| fits).and_then(time_of),
            failure,
        }
    }
}

/// Returns the name of a budget's row. `run` tells the sessions of one name apart.
pub(crate) fn row_id(budget: &Budget, key: &str, run: Option<&str>) -> BudgetId {
    let key = match run.filter(|_| budget.per == Period::Session) {
        Some(run) => format!("{key} {run}"),
        None => key.to_owned(),
    };
    BudgetId {
        name: budget.name.clone(),
        unit: budget.unit.as_str(),
        key,
    }
}

/// Returns whose a row is, if it is of this run, as [`row_id`] was told. No name has a space.
pub(crate) fn whose<'k>(budget: &Budget, key: &'k str, run: Option<&str>) -> Option<&'k str> {
    match run.filter(|_| budget.per == Period::Session) {
        Some(run) => key.strip_suffix(run)?.strip_suffix(' '),
        None => Some(key),
    }
}

/// Into how many slices a budget is cut. A kill loses one at most.
const SLICES: Amount = 1_024;
