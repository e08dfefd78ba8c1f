//! What happened within a day: requests, refusals, latency, and what was spent, by the half hour.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::audit::Record;

/// The half hours of the last day, the latest last.
#[derive(Default)]
pub(super) struct Day {
    slots: VecDeque<Slot>,
    /// The money that budgets had spent when they were last looked at.
    spent: Option<u64>,
}

/// A half hour.
#[derive(Clone)]
pub(super) struct Slot {
    /// Its number since 1970.
    at: i64,
    pub(super) allowed: u32,
    pub(super) refused: u32,
    /// How many answers took how long, in steps of half a power of two of a microsecond.
    took: [u32; STEPS],
    /// Billionths of a dollar.
    pub(super) spent: u64,
}

impl Slot {
    fn new(at: i64) -> Self {
        Self {
            at,
            allowed: 0,
            refused: 0,
            took: [0; STEPS],
            spent: 0,
        }
    }

    /// Returns the milliseconds within which so many hundredths were answered.
    pub(super) fn within(&self, hundredths: u32) -> f64 {
        let all: u32 = self.took.iter().sum();
        let mut left = u64::from(all) * u64::from(hundredths) / 100;
        let step = self.took.iter().position(|count| {
            let is_it = u64::from(*count) > left;
            left = left.saturating_sub(u64::from(*count));
            is_it
        });
        step.map_or(0.0, |step| 2f64.powf((step as f64 + 0.5) / 2.0) / 1000.0)
    }
}

impl Day {
    /// Counts a request.
    pub(super) fn count(&mut self, record: &Record) {
        let time = record.time.as_deref().filter(|_| record.kind == "exchange");
        let time = time.and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok());
        let Some(slot) = time.and_then(|time| self.slot(time.unix_timestamp() / SECONDS)) else {
            return;
        };
        if record.reason.is_some() {
            slot.refused += 1;
        } else {
            slot.allowed += 1;
        }
        if let Some(us) = record.us.answer {
            let step = (us.max(1) as f64).log2() * 2.0;
            slot.took[(step as usize).min(STEPS - 1)] += 1;
        }
    }

    /// Takes what the budgets have spent by now. What they had spent before is not of today.
    pub(super) fn spend(&mut self, spent: u64) {
        // A budget that began anew has less than before.
        let new = self
            .spent
            .map(|before| spent.checked_sub(before).unwrap_or(spent));
        self.spent = Some(spent);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs().cast_signed() / SECONDS);
        if let (Some(slot), Some(new)) = (self.slot(now), new) {
            slot.spent += new;
        }
    }

    /// Returns every half hour of the day, also those without a request; the latest last.
    pub(super) fn slots(&self) -> Vec<Slot> {
        let Some(last) = self.slots.back().map(|slot| slot.at) else {
            return Vec::new();
        };
        let of = |at| {
            let found = self.slots.iter().find(|slot| slot.at == at);
            found.cloned().unwrap_or_else(|| Slot::new(at))
        };
        (last - SLOTS + 1..=last).map(of).collect()
    }

    /// Returns all of the day together.
    pub(super) fn whole(&self) -> Slot {
        let mut whole = Slot::new(0);
        for slot in &self.slots {
            whole.allowed += slot.allowed;
            whole.refused += slot.refused;
            whole.spent += slot.spent;
            for (sum, count) in whole.took.iter_mut().zip(&slot.took) {
                *sum += count;
            }
        }
        whole
    }

    /// Returns a half hour, unless it is over for a day. Records come nearly in order.
    fn slot(&mut self, at: i64) -> Option<&mut Slot> {
        let last = self.slots.back().map_or(at, |slot| slot.at.max(at));
        self.slots.retain(|slot| slot.at > last - SLOTS);
        if at <= last - SLOTS {
            return None;
        }
        let found = self.slots.iter().position(|slot| slot.at >= at);
        let found = found.unwrap_or(self.slots.len());
        if self.slots.get(found).is_none_or(|slot| slot.at != at) {
            self.slots.insert(found, Slot::new(at));
        }
        self.slots.get_mut(found)
    }
}

/// Half an hour.
const SECONDS: i64 = 1800;
/// The half hours of a day.
const SLOTS: i64 = 48;
const STEPS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_counts_by_the_half_hour_and_forgets_what_is_over() {
        let mut day = Day::default();
        let mut count = |time: &str, more: &str| {
            let text = format!(r#"{{"kind":"exchange","time":"2026-11-{time}Z"{more}}}"#);
            day.count(&serde_json::from_str(&text).unwrap());
        };
        count("28T09:00:00", "");
        count("30T08:10:00", r#","us":{"answer":1000}"#);
        count("30T07:50:00", r#","reason":"policy_default_deny""#);
        count("30T08:29:59.5", r#","us":{"answer":4000}"#);
        count("28T09:00:00", "");
        let slots = day.slots();
        assert_eq!(slots.len(), 48);
        assert_eq!((slots[47].allowed, slots[46].refused), (2, 1));
        let whole = day.whole();
        assert_eq!((whole.allowed, whole.refused), (2, 1));
        assert!(
            (0.8..1.2).contains(&whole.within(49)),
            "{}",
            whole.within(49)
        );
        assert!(
            (3.2..4.8).contains(&whole.within(99)),
            "{}",
            whole.within(99)
        );
    }

    #[test]
    fn only_what_is_spent_meanwhile_is_of_the_day() {
        let mut day = Day::default();
        [500, 700, 700, 30]
            .into_iter()
            .for_each(|spent| day.spend(spent));
        assert_eq!(day.whole().spent, 230);
    }
}
