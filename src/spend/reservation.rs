//! What one request has reserved.

use std::pin::Pin;
use std::sync::Arc;

use gateway_state::BudgetId;

use super::budget::Charge;
use super::over::OverBudget;
use gateway_names::{Amount, Unit};

/// Where reservations come from.
pub(crate) trait Book: Send + Sync {
    /// Ends reservations by what was used of each.
    fn release(self: Arc<Self>, parts: Vec<(Part, Amount)>);

    /// Reserves more for a request that is under way.
    fn grow(self: Arc<Self>, more: Vec<Charge>) -> Growth;
}

/// What becomes of a growth.
pub(crate) type Growth = Pin<Box<dyn Future<Output = Result<Reservation, OverBudget>> + Send>>;

/// What one request has reserved, until it is settled.
///
/// If it is dropped before its request was sent, it gives everything back, and after that it spends
/// everything.
pub struct Reservation {
    book: Arc<dyn Book>,
    charges: Vec<Charge>,
    parts: Vec<Part>,
    was_sent: bool,
}

/// What is reserved of one window of a row.
pub(crate) struct Part {
    pub(crate) id: BudgetId,
    pub(crate) window: u64,
    pub(crate) amount: Amount,
    /// The charge that it is for.
    pub(crate) charge: usize,
}

impl Reservation {
    pub(crate) fn new(book: Arc<dyn Book>, charges: Vec<Charge>, parts: Vec<Part>) -> Self {
        Self {
            book,
            charges,
            parts,
            was_sent: false,
        }
    }

    /// Takes note that something of the request is sent now. What counts requests is spent by that.
    pub fn sent(&mut self) {
        self.was_sent = true;
        let charges = &self.charges;
        let is_spent = |part: &Part| charges[part.charge].budget.unit == Unit::Requests;
        let parts = std::mem::take(&mut self.parts).into_iter();
        let (spent, kept): (Vec<Part>, Vec<Part>) = parts.partition(is_spent);
        self.parts = kept;
        let spent: Vec<_> = spent.into_iter().map(|part| (part.amount, part)).collect();
        if !spent.is_empty() {
            let spent = spent.into_iter().map(|(amount, part)| (part, amount));
            self.book.clone().release(spent.collect());
        }
    }

    /// What is reserved.
    pub fn charges(&self) -> &[Charge] {
        &self.charges
    }

    /// Ends it by what was used of each charge. What exceeds a charge is spent too.
    pub fn settle(mut self, used: impl FnMut(&Charge) -> Amount) {
        let used = self.charges.iter().map(used).collect();
        self.release(used);
    }

    /// Reserves more of each charge with this unit, without waiting for other reservations.
    ///
    /// # Errors
    /// [`OverBudget`] if one has no room: then nothing changes.
    pub async fn grow(&mut self, unit: Unit, by: Amount) -> Result<(), OverBudget> {
        let charges = self.charges.iter().enumerate();
        let of_unit = charges.filter(|(_, charge)| charge.budget.unit == unit);
        let (places, more): (Vec<usize>, Vec<Charge>) = of_unit
            .map(|(at, charge)| {
                let amount = by;
                (
                    at,
                    Charge {
                        amount,
                        ..charge.clone()
                    },
                )
            })
            .unzip();
        let mut more = self.book.clone().grow(more).await?;
        for mut part in std::mem::take(&mut more.parts) {
            part.charge = places[part.charge];
            let charge = &mut self.charges[part.charge];
            charge.amount = charge.amount.saturating_add(by);
            let is_same = |own: &&mut Part| {
                own.charge == part.charge && own.window == part.window && own.id == part.id
            };
            match self.parts.iter_mut().find(is_same) {
                Some(own) => own.amount = own.amount.saturating_add(part.amount),
                None => self.parts.push(part),
            }
        }
        Ok(())
    }

    /// Ends it by what was used of each charge. A charge of several windows fills the first one
    /// first, and what exceeds it counts in the last.
    fn release(&mut self, mut used: Vec<Amount>) {
        let parts = std::mem::take(&mut self.parts);
        if parts.is_empty() {
            return;
        }
        let last: Vec<Option<usize>> = (0..used.len())
            .map(|charge| parts.iter().rposition(|part| part.charge == charge))
            .collect();
        let parts = parts.into_iter().enumerate().map(|(at, part)| {
            let rest = &mut used[part.charge];
            let own = if last[part.charge] == Some(at) {
                *rest
            } else {
                part.amount.min(*rest)
            };
            *rest -= own;
            (part, own)
        });
        self.book.clone().release(parts.collect());
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let spent = |charge: &Charge| if self.was_sent { charge.amount } else { 0 };
        let used = self.charges.iter().map(spent).collect();
        self.release(used);
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Reservation");
        shown.field("charges", &self.charges);
        shown.field("was_sent", &self.was_sent).finish()
    }
}
