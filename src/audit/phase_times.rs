//! When an exchange reached each of its phases.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::encode::Value;

/// Microseconds from accept to each phase, in the order in which they were reached.
///
/// There are six at most, so that a list is smaller and quicker than a map.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(from = "BTreeMap<Cow<'static, str>, u64>")]
pub struct PhaseTimes(Vec<(Cow<'static, str>, u64)>);

impl PhaseTimes {
    /// When the phase was reached.
    #[must_use]
    pub fn get(&self, phase: &str) -> Option<u64> {
        let found = self.0.iter().find(|(name, _)| name == phase);
        found.map(|(_, after)| *after)
    }

    pub(super) fn add(&mut self, phase: &'static str, after: u64) {
        if self.0.is_empty() {
            self.0.reserve_exact(PHASES);
        }
        self.0.push((phase.into(), after));
    }

    /// Adds the time of the record itself. One that the log did not take is made again.
    pub(super) fn end(&mut self, name: &'static str, after: u64) {
        self.0.retain(|(known, _)| known != name);
        self.add(name, after);
    }
}

impl<const N: usize> From<[(Cow<'static, str>, u64); N]> for PhaseTimes {
    fn from(times: [(Cow<'static, str>, u64); N]) -> Self {
        Self(times.into())
    }
}

impl From<BTreeMap<Cow<'static, str>, u64>> for PhaseTimes {
    fn from(times: BTreeMap<Cow<'static, str>, u64>) -> Self {
        Self(times.into_iter().collect())
    }
}

impl Value for PhaseTimes {
    fn is_unset(&self) -> bool {
        self.0.is_empty()
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut before = b'{';
        for (phase, after) in &self.0 {
            out.push(std::mem::replace(&mut before, b','));
            phase.write(out);
            out.push(b':');
            after.write(out);
        }
        out.push(b'}');
    }
}

/// The phases, and the total.
const PHASES: usize = 6;
