//! All rows in memory, and the requests that wait for room in them.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use gateway_names::{Amount, Period};
use gateway_state::{BudgetCounts, BudgetId, BudgetWindow};
use tokio::sync::oneshot;

use super::budget::{Budget, Charge};
use super::over::OverBudget;
use super::reservation::{Part, Reservation};
use super::row::{Row, Ticket, row_id, whose};

/// All rows in memory.
#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) budgets: HashMap<Arc<str>, Arc<Budget>>,
    pub(crate) rows: HashMap<BudgetId, Row>,
    /// The run whose sessions these are, if others have the same names.
    pub(crate) run: Option<String>,
    waiting: HashMap<Ticket, Waiter>,
    next: u64,
    /// Whether the gateway stops: nothing is kept ahead any more.
    pub(crate) is_closing: bool,
    /// When rows that nobody uses were last dropped.
    swept: u64,
}

/// What tells a request that it goes on or is refused.
pub(crate) type Told = oneshot::Receiver<Result<Reservation, OverBudget>>;
type Tell = oneshot::Sender<Result<Reservation, OverBudget>>;

/// A request that waits for room.
struct Waiter {
    charges: Vec<Charge>,
    needs: Vec<Need>,
    /// Whether it waits for reservations of others.
    is_patient: bool,
    tell: Tell,
}

/// What a request needs of one row.
struct Need {
    id: BudgetId,
    amount: Amount,
    /// The window for which the store was asked what is left.
    asked: Option<u64>,
}

/// What follows from a change, once the rows are let go.
#[derive(Default)]
pub(crate) struct Work {
    /// The rows that changed.
    pub(crate) touched: Vec<BudgetId>,
    /// What is given back, with its window.
    pub(crate) returns: Vec<(BudgetId, u64, Amount)>,
    /// What the store is asked for.
    pub(crate) asks: Vec<Ask>,
    /// Whom to tell what.
    pub(crate) tells: Vec<(Tell, Result<Granted, OverBudget>)>,
}

/// The charges of a request, and what is reserved for them.
pub(crate) type Granted = (Vec<Charge>, Vec<Part>);

/// What the store is asked for.
pub(crate) struct Ask {
    pub(crate) id: BudgetId,
    pub(crate) window: BudgetWindow,
    pub(crate) most: Amount,
    pub(crate) wanted: RangeInclusive<Amount>,
}

/// How a request begins.
pub(crate) enum Entered {
    /// It has its reservation.
    Now(Vec<Charge>, Vec<Part>),
    /// It waits.
    Waits(Ticket, Told),
}

enum Verdict {
    Goes,
    Waits,
    Refused(OverBudget),
}

impl Rows {
    /// Charges a request if all its rows have room and nobody waits there, else lets it wait.
    pub(crate) fn enter(
        &mut self,
        charges: Vec<Charge>,
        (is_patient, is_growth): (bool, bool),
        now: u64,
        work: &mut Work,
    ) -> Entered {
        self.sweep(now, work);
        let mut needs: Vec<Need> = Vec::with_capacity(charges.len());
        for charge in &charges {
            let id = self.id_of(charge);
            self.enter_row(charge, &id, now);
            if let Some(need) = needs.iter_mut().find(|need| need.id == id) {
                need.amount = need.amount.saturating_add(charge.amount);
                continue;
            }
            needs.push(Need {
                id,
                amount: charge.amount,
                asked: None,
            });
        }
        let has_room = |need: &Need| {
            let row = self.rows.get(&need.id);
            row.is_some_and(|row| row.queue.is_empty() && row.free >= need.amount)
        };
        if needs.iter().all(has_room) {
            let parts = self.charge(&charges);
            return Entered::Now(charges, parts);
        }
        let ticket = (!is_growth, self.next);
        self.next += 1;
        for need in &needs {
            if let Some(row) = self.rows.get_mut(&need.id) {
                row.queue.insert(ticket);
            }
            work.touched.push(need.id.clone());
        }
        let (tell, told) = oneshot::channel();
        let waiter = Waiter {
            charges,
            needs,
            is_patient,
            tell,
        };
        self.waiting.insert(ticket, waiter);
        Entered::Waits(ticket, told)
    }

    fn id_of(&self, charge: &Charge) -> BudgetId {
        row_id(&charge.budget, &charge.key, self.run.as_deref())
    }

    /// Has the row of a charge be in its present window. The configuration in force says its size,
    /// if it has the budget.
    fn enter_row(&mut self, charge: &Charge, id: &BudgetId, now: u64) {
        if let Some(row) = self.rows.get_mut(id) {
            return row.roll(now);
        }
        let current = self.budgets.get(&id.name);
        let current = current.filter(|one| one.unit == charge.budget.unit);
        let budget = current.unwrap_or(&charge.budget).clone();
        self.rows.insert(id.clone(), Row::new(budget, now));
    }

    /// Reserves charges in rows that have room for all of them.
    fn charge(&mut self, charges: &[Charge]) -> Vec<Part> {
        let mut parts = Vec::with_capacity(charges.len());
        for (at, charge) in charges.iter().enumerate() {
            let id = self.id_of(charge);
            if let Some(row) = self.rows.get_mut(&id) {
                row.free = row.free.saturating_sub(charge.amount);
                row.reserved = row.reserved.saturating_add(charge.amount);
                parts.push(Part {
                    id,
                    window: row.window.begins,
                    amount: charge.amount,
                    charge: at,
                });
            }
        }
        parts
    }

    /// Ends reservations: of each, this much was used. What was used beyond all is owed.
    pub(crate) fn release(&mut self, parts: Vec<(Part, Amount)>, work: &mut Work) {
        for (part, used) in parts {
            let row = self.rows.get_mut(&part.id);
            // A window that is over has nothing to give back to.
            if let Some(row) = row.filter(|row| row.window.begins == part.window) {
                row.reserved = row.reserved.saturating_sub(part.amount);
                let unused = part.amount.saturating_sub(used);
                row.free = row.free.saturating_add(unused);
                row.owed = row.owed.saturating_add(used.saturating_sub(part.amount));
                row.pay();
            }
            work.touched.push(part.id);
        }
    }

    /// Takes note of the store's answer.
    pub(crate) fn took(
        &mut self,
        ask: Ask,
        answer: Result<(Amount, BudgetCounts), String>,
        work: &mut Work,
    ) {
        let Some(row) = self.rows.get_mut(&ask.id) else {
            if let Ok((got, counts)) = answer {
                work.returns.push((ask.id, counts.window, got));
            }
            return;
        };
        row.is_asking = false;
        match answer {
            Ok((got, counts)) => {
                if !row.took(got, counts) {
                    work.returns.push((ask.id.clone(), counts.window, got));
                }
            }
            Err(why) => {
                row.fail();
                let first = row.queue.first().copied();
                if let Some((ticket, waiter)) =
                    first.and_then(|one| self.waiting.remove_entry(&one))
                {
                    let need = waiter.needs.iter().find(|need| need.id == ask.id);
                    let wanted = need.map_or(0, |need| need.amount);
                    let over = self.over(&ask.id, wanted, Some(why));
                    self.leave(ticket, waiter, Err(over), work);
                }
            }
        }
        work.touched.push(ask.id);
    }

    /// Lets go on who can, row by row, in order.
    pub(crate) fn pump(&mut self, now: u64, work: &mut Work) {
        while let Some(id) = work.touched.pop() {
            let Some(row) = self.rows.get_mut(&id) else {
                continue;
            };
            row.roll(now);
            let Some(&ticket) = row.queue.first() else {
                self.tidy(id, work);
                continue;
            };
            let is_first = |need: &Need| {
                let row = self.rows.get(&need.id);
                row.is_some_and(|row| row.queue.first() == Some(&ticket))
            };
            let waiter = self.waiting.get(&ticket);
            if !waiter.is_some_and(|waiter| waiter.needs.iter().all(is_first)) {
                continue;
            }
            let Some(mut waiter) = self.waiting.remove(&ticket) else {
                continue;
            };
            match self.judge(&mut waiter, now, work) {
                Verdict::Waits => drop(self.waiting.insert(ticket, waiter)),
                Verdict::Goes => {
                    let parts = self.charge(&waiter.charges);
                    self.leave(ticket, waiter, Ok(parts), work);
                }
                Verdict::Refused(over) => self.leave(ticket, waiter, Err(over), work),
            }
        }
    }

    /// Decides about the request that is the first in all its rows. Where a row has too little, the
    /// store is asked, at least once before a refusal.
    fn judge(&mut self, waiter: &mut Waiter, now: u64, work: &mut Work) -> Verdict {
        let (is_patient, mut verdict) = (waiter.is_patient, Verdict::Goes);
        for need in &mut waiter.needs {
            let Some(row) = self.rows.get_mut(&need.id) else {
                continue;
            };
            row.roll(now);
            let (amount, window) = (need.amount, Some(row.window.begins));
            if row.free >= amount {
                continue;
            }
            let with_left = row.free.saturating_add(row.left());
            let can_be_taken = with_left >= amount;
            if row.is_asking {
                verdict = Verdict::Waits;
            } else if can_be_taken || need.asked != window {
                need.asked = window;
                verdict = Verdict::Waits;
                let others = if is_patient { row.reserved } else { 0 };
                let least = amount.saturating_sub(row.free.saturating_add(others));
                work.asks.extend(self.ask(&need.id, amount, least));
            } else if !is_patient || with_left.saturating_add(row.reserved) < amount {
                return Verdict::Refused(self.over(&need.id, amount, None));
            } else {
                verdict = Verdict::Waits;
            }
        }
        verdict
    }

    /// Returns what the store is asked for: what all that wait for the row need, or a slice.
    fn ask(&mut self, id: &BudgetId, first: Amount, least: Amount) -> Option<Ask> {
        let row = self.rows.get_mut(id)?;
        let mut needed = first;
        for ticket in row.queue.iter().take(MOST_SUMMED) {
            let needs = self.waiting.get(ticket).map(|waiter| &waiter.needs);
            let own = needs.into_iter().flatten().filter(|need| need.id == *id);
            needed = own.fold(needed, |sum, need| sum.saturating_add(need.amount));
        }
        let target = if self.is_closing {
            needed
        } else {
            needed.max(row.slice())
        };
        let want = target.saturating_sub(row.free).saturating_add(row.owed);
        row.is_asking = true;
        Some(Ask {
            window: row.asked_window(),
            most: row.budget.most,
            wanted: least..=want.max(least),
            id: id.clone(),
        })
    }

    /// Takes a request out of its queues and tells it what becomes of it.
    fn leave(
        &mut self,
        ticket: Ticket,
        waiter: Waiter,
        outcome: Result<Vec<Part>, OverBudget>,
        work: &mut Work,
    ) {
        for need in waiter.needs {
            if let Some(row) = self.rows.get_mut(&need.id) {
                row.queue.remove(&ticket);
            }
            work.touched.push(need.id);
        }
        let outcome = outcome.map(|parts| (waiter.charges, parts));
        work.tells.push((waiter.tell, outcome));
    }

    /// Takes out a request that waits no more. Returns what it waited for, unless it was told.
    pub(crate) fn withdraw(&mut self, ticket: Ticket, work: &mut Work) -> Option<OverBudget> {
        let waiter = self.waiting.remove(&ticket)?;
        let lacks = |need: &&Need| {
            let row = self.rows.get(&need.id);
            row.is_some_and(|row| row.free < need.amount)
        };
        let first = waiter.needs.iter().find(lacks).or(waiter.needs.first())?;
        let over = self.over(&first.id, first.amount, None);
        self.leave(ticket, waiter, Err(over.clone()), work);
        Some(over)
    }

    fn over(&self, id: &BudgetId, wanted: Amount, failure: Option<String>) -> OverBudget {
        let row = self.rows.get(id).expect("a row with a queue stays");
        let key = whose(&row.budget, &id.key, self.run.as_deref());
        row.over(key.unwrap_or(&id.key), wanted, failure)
    }

    /// Looks again at the rows of a request that waits. Returns the seconds until the first of
    /// their windows ends.
    pub(crate) fn look(&mut self, ticket: Ticket, now: u64, work: &mut Work) -> Option<u64> {
        let waiter = self.waiting.get(&ticket)?;
        let ids = waiter.needs.iter().map(|need| &need.id);
        work.touched.extend(ids.clone().cloned());
        let mut soonest = None;
        for id in ids {
            let row = self.rows.get_mut(id)?;
            row.roll(now);
            let ends = row.window.ends.map(|ends| ends.saturating_sub(now));
            soonest = [soonest, ends].into_iter().flatten().min();
        }
        soonest
    }

    /// Gives back the surplus of a row that nobody waits for, or takes what is owed.
    fn tidy(&mut self, id: BudgetId, work: &mut Work) {
        let is_closing = self.is_closing;
        let Some(row) = self.rows.get_mut(&id).filter(|row| !row.is_asking) else {
            return;
        };
        if row.owed > 0 && row.left() > 0 {
            work.asks.extend(self.ask(&id, 0, 0));
            return;
        }
        let surplus = row.trim(is_closing);
        if surplus > 0 {
            work.returns.push((id, row.window.begins, surplus));
        }
    }

    /// Drops the rows that nobody used for an hour.
    fn sweep(&mut self, now: u64, work: &mut Work) {
        if now.abs_diff(self.swept) < UNUSED_SECS {
            return;
        }
        self.swept = now;
        self.rows.retain(|id, row| {
            let stays = !row.is_idle() || now.abs_diff(row.used) < UNUSED_SECS;
            let free = if stays { 0 } else { row.trim(true) };
            if free > 0 {
                work.returns.push((id.clone(), row.window.begins, free));
            }
            stays
        });
    }

    /// Drops the rows that last as long as a session, with what they hold ahead.
    pub(crate) fn forget(&mut self, session: &str, work: &mut Work) {
        self.rows.retain(|id, row| {
            let is_its = id.key == session && row.budget.per == Period::Session;
            let stays = !is_its || row.is_asking || !row.queue.is_empty();
            let free = if stays { 0 } else { row.trim(true) };
            if free > 0 {
                work.returns.push((id.clone(), row.window.begins, free));
            }
            stays
        });
    }

    /// Puts other budgets in force.
    pub(crate) fn replace(&mut self, budgets: Vec<Arc<Budget>>, work: &mut Work) {
        let named = |budget: Arc<Budget>| (budget.name.clone(), budget);
        self.budgets = budgets.into_iter().map(named).collect();
        for (id, row) in &mut self.rows {
            let budget = self.budgets.get(&id.name);
            if let Some(budget) = budget.filter(|budget| budget.unit.as_str() == id.unit) {
                row.replace(budget.clone());
            }
            // What is free may be more than there is now.
            let free = row.trim(true);
            if free > 0 {
                work.returns.push((id.clone(), row.window.begins, free));
            }
            work.touched.push(id.clone());
        }
    }
}

/// The needs of how many waiting requests are asked for at once.
const MOST_SUMMED: usize = 1_024;
const UNUSED_SECS: u64 = 3_600;
