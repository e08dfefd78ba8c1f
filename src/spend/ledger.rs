//! The ledger: slices of budgets are taken durably ahead, and charged in memory.
//!
//! A request never touches the disk while its rows have what it needs. A kill loses what this
//! process held of each row, and never gives more than there is: what is taken stays taken.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gateway_state::{BudgetCounts, BudgetRow, StateError, StateStore};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::budget::{Budget, Charge, Sharing};
use super::over::OverBudget;
use super::reservation::{Book, Growth, Part, Reservation};
use super::row::{Row, Ticket, row_id, whose};
use super::rows::{Ask, Entered, Rows, Told, Work};
use super::window::{Window, seconds, time_of};
use gateway_names::Amount;

/// What is left of each budget.
pub struct Ledger(Arc<Shared>);

/// What a ledger and its reservations share.
struct Shared {
    store: Arc<dyn StateStore>,
    clock: fn() -> SystemTime,
    /// Where the store's answers are awaited: a request may end before its answer comes.
    runtime: Handle,
    rows: Mutex<Rows>,
}

/// A row of a budget, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BudgetView {
    /// The budget.
    pub budget: Arc<Budget>,
    /// Whose it is; empty if all share it.
    pub key: String,
    /// How much is spent. What other processes hold ahead counts as spent.
    pub spent: Amount,
    /// How much is reserved by requests that are under way.
    pub reserved: Amount,
    /// How much is left.
    pub left: Amount,
    /// How much an operator added in this window.
    pub added: Amount,
    /// When it begins anew; `None` if it does not.
    pub ends: Option<SystemTime>,
}

/// Why nothing was added to a budget.
#[derive(Debug, thiserror::Error)]
pub enum NotAdded {
    /// The configuration has no such budget.
    #[error("there is no budget `{0}`")]
    Unknown(String),
    /// Each has one of its own.
    #[error("each {0} has one of its own")]
    Whose(Sharing),
    /// All share it.
    #[error("all share it")]
    Shared,
    /// It cannot be kept.
    #[error(transparent)]
    State(#[from] StateError),
}

impl Ledger {
    /// Opens the ledger on a store. Call it in the runtime that lives as long as the gateway. With
    /// the name of a `run`, a session of another run is another session, whatever its name.
    #[must_use]
    pub fn new(store: Arc<dyn StateStore>, budgets: Vec<Arc<Budget>>, run: Option<String>) -> Self {
        let ledger = Self::by_clock(store, budgets, SystemTime::now);
        ledger.0.rows.lock().run = run;
        ledger
    }

    pub(crate) fn by_clock(
        store: Arc<dyn StateStore>,
        budgets: Vec<Arc<Budget>>,
        clock: fn() -> SystemTime,
    ) -> Self {
        let ledger = Self(Arc::new(Shared {
            store,
            clock,
            runtime: Handle::current(),
            rows: Mutex::default(),
        }));
        ledger.replace(budgets);
        ledger
    }

    /// Returns a budget of the configuration.
    pub fn budget(&self, name: &str) -> Option<Arc<Budget>> {
        self.0.rows.lock().budgets.get(name).cloned()
    }

    /// Puts the budgets of a reload in force. Rows go on where name and unit stay.
    pub fn replace(&self, budgets: Vec<Arc<Budget>>) {
        self.0.step(|rows, _, work| rows.replace(budgets, work));
    }

    /// Reserves all charges of a request or none. Where only reservations of others leave no room,
    /// it waits for them, in order.
    ///
    /// # Errors
    /// [`OverBudget`] if what is spent leaves no room, or if it waited as long as it may.
    pub async fn reserve(
        &self,
        charges: Vec<Charge>,
        waits: Duration,
    ) -> Result<Reservation, OverBudget> {
        self.0.reserve(charges, waits, false).await
    }

    /// Returns the rows of all budgets, by name and key. A budget that all share has one always.
    ///
    /// # Errors
    /// [`StateError`] if they cannot be read.
    pub async fn view(&self) -> Result<Vec<BudgetView>, StateError> {
        let kept = self.0.store.budgets().await?;
        let now = seconds((self.0.clock)());
        let rows = self.0.rows.lock();
        let mut views = Vec::new();
        let mut budgets: Vec<&Arc<Budget>> = rows.budgets.values().collect();
        budgets.sort_by(|one, other| one.name.cmp(&other.name));
        for budget in budgets {
            let is_own =
                |row: &&BudgetRow| *row.name == *budget.name && row.unit == budget.unit.as_str();
            let run = rows.run.as_deref();
            let kept = kept.iter().filter(is_own);
            let kept: Vec<(&BudgetRow, &str)> = kept
                .filter_map(|row| Some((row, whose(budget, &row.key, run)?)))
                .collect();
            if kept.is_empty() && budget.by == Sharing::All {
                let counts = empty(Window::of(budget.per, now));
                views.push(viewed(budget, "", counts, None, now));
            }
            for (row, key) in kept {
                let own = rows.rows.get(&row_id(budget, key, run));
                views.push(viewed(budget, key, row.counts, own, now));
            }
        }
        Ok(views)
    }

    /// Adds to what a budget has in its present window, or, if each has one of its own, to that of
    /// `key`.
    ///
    /// # Errors
    /// [`NotAdded`] if there is no such budget or key, or if it cannot be kept.
    pub async fn add(
        &self,
        name: &str,
        key: Option<&str>,
        amount: Amount,
    ) -> Result<BudgetView, NotAdded> {
        let unknown = || NotAdded::Unknown(name.to_owned());
        let budget = self.budget(name).ok_or_else(unknown)?;
        let key = match (budget.by, key.unwrap_or_default()) {
            (Sharing::All, "") => "",
            (Sharing::All, _) => return Err(NotAdded::Shared),
            (by, "") => return Err(NotAdded::Whose(by)),
            (_, key) => key,
        };
        let id = row_id(&budget, key, self.0.rows.lock().run.as_deref());
        let now = seconds((self.0.clock)());
        let window = Row::new(budget.clone(), now).asked_window();
        let counts = self.0.store.add(&id, window, amount).await?;
        let view = self.0.step(|rows, now, work| {
            let row = rows.rows.get_mut(&id);
            if let Some(row) = row {
                row.took(0, counts);
            }
            let view = viewed(&budget, key, counts, rows.rows.get(&id), now);
            work.touched.push(id);
            view
        });
        Ok(view)
    }

    /// Forgets what a session used up, once it is over: another one may have its id.
    pub fn forget(&self, session: &str) {
        self.0.step(|rows, _, work| rows.forget(session, work));
    }

    /// Gives back what was taken ahead and not used. From then on, nothing is taken ahead.
    pub async fn give_back(&self) {
        let pending: Vec<_> = {
            let mut rows = self.0.rows.lock();
            rows.is_closing = true;
            let used = rows.rows.iter_mut().filter(|(_, row)| row.free > 0);
            let all = used.map(|(id, row)| {
                let free = row.trim(true);
                self.0.store.settle(id, row.window.begins, free)
            });
            all.collect()
        };
        for one in pending {
            // What could not be given back counts as spent.
            drop(one.await);
        }
        // The store answers in the order of the calls: what requests gave back is kept, too.
        drop(self.0.store.budgets().await);
    }
}

impl Shared {
    /// Changes the rows, lets go on who can, and does what follows.
    fn step<T>(self: &Arc<Self>, change: impl FnOnce(&mut Rows, u64, &mut Work) -> T) -> T {
        let mut work = Work::default();
        let done = {
            let mut rows = self.rows.lock();
            let now = seconds((self.clock)());
            let done = change(&mut rows, now, &mut work);
            rows.pump(now, &mut work);
            // The store has it before anybody else asks for it.
            for (id, window, amount) in work.returns.drain(..) {
                drop(self.store.settle(&id, window, amount));
            }
            done
        };
        for (tell, outcome) in work.tells {
            let reserved = |(charges, parts)| Reservation::new(self.clone(), charges, parts);
            // Nobody may wait any more: the reservation then gives everything back.
            drop(tell.send(outcome.map(reserved)));
        }
        for ask in work.asks {
            let shared = self.clone();
            self.runtime.spawn(async move { shared.take(ask).await });
        }
        done
    }

    async fn take(self: Arc<Self>, ask: Ask) {
        let wanted = ask.wanted.clone();
        let taken = self.store.take(&ask.id, ask.window, ask.most, wanted).await;
        let taken = taken.map_err(|error| error.to_string());
        self.step(|rows, _, work| rows.took(ask, taken, work));
    }

    async fn reserve(
        self: &Arc<Self>,
        charges: Vec<Charge>,
        waits: Duration,
        is_growth: bool,
    ) -> Result<Reservation, OverBudget> {
        let kind = (!waits.is_zero(), is_growth);
        match self.step(|rows, now, work| rows.enter(charges, kind, now, work)) {
            Entered::Now(charges, parts) => Ok(Reservation::new(self.clone(), charges, parts)),
            Entered::Waits(ticket, told) => {
                let waits = if waits.is_zero() {
                    FOR_THE_STORE
                } else {
                    waits
                };
                self.wait(ticket, told, Instant::now() + waits).await
            }
        }
    }

    async fn wait(
        self: &Arc<Self>,
        ticket: Ticket,
        mut told: Told,
        until: Instant,
    ) -> Result<Reservation, OverBudget> {
        let place = Place(self, ticket);
        loop {
            // A window that ends makes room, though nobody gives any back.
            let soonest = self.step(|rows, now, work| rows.look(ticket, now, work));
            let soonest = soonest.map(|secs| Instant::now() + Duration::from_secs(secs.max(1)));
            let next = soonest.map_or(until, |soonest| soonest.min(until));
            if let Ok(told) = timeout_at(next, &mut told).await {
                return told.expect("who leaves a queue is told");
            }
            if Instant::now() >= until
                && let Some(over) = place.leave()
            {
                return Err(over);
            }
        }
    }
}

impl Book for Shared {
    fn release(self: Arc<Self>, parts: Vec<(Part, Amount)>) {
        self.step(|rows, _, work| rows.release(parts, work));
    }

    fn grow(self: Arc<Self>, more: Vec<Charge>) -> Growth {
        Box::pin(async move { self.reserve(more, Duration::ZERO, true).await })
    }
}

/// The place of a request in its queues, which it leaves however its wait ends.
struct Place<'a>(&'a Arc<Shared>, Ticket);

impl Place<'_> {
    fn leave(&self) -> Option<OverBudget> {
        self.0.step(|rows, _, work| rows.withdraw(self.1, work))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

fn empty(window: Window) -> BudgetCounts {
    BudgetCounts {
        window: window.begins,
        taken: 0,
        added: 0,
    }
}

/// Returns a row as it is shown: what the store says, less what this process has not used.
fn viewed(
    budget: &Arc<Budget>,
    key: &str,
    counts: BudgetCounts,
    row: Option<&Row>,
    now: u64,
) -> BudgetView {
    let mut window = Window::from(budget.per, counts.window);
    let mut counts = counts;
    if window.ends.is_some_and(|ends| now >= ends) {
        window = Window::of(budget.per, now);
        counts = empty(window);
    }
    let row = row.filter(|row| row.window.begins == counts.window);
    let (free, reserved, owed) = row.map_or((0, 0, 0), |row| (row.free, row.reserved, row.owed));
    let spent = counts.taken.saturating_sub(free).saturating_sub(reserved);
    let spent = spent.saturating_add(owed);
    let all = budget.most.saturating_add(counts.added);
    BudgetView {
        budget: budget.clone(),
        key: key.to_owned(),
        spent,
        reserved,
        left: all.saturating_sub(spent).saturating_sub(reserved),
        added: counts.added,
        ends: window.ends.and_then(time_of),
    }
}

/// How long a request that may not wait for others waits for the disk.
const FOR_THE_STORE: Duration = Duration::from_secs(10);
