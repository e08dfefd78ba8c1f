//! What was verified is what is signed again: its head cannot be changed any more.

use gateway::credential::Settled;
use gateway::message::Origin;

pub fn moved(settled: &mut Settled, elsewhere: Origin) {
    settled.head().origin = elsewhere;
}

pub fn dressed(settled: &mut Settled) {
    settled.head().fields.clear();
}
