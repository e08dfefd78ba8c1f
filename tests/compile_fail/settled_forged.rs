//! A request is settled only by what a person lifted.

use gateway::credential::{Settled, Verified};

pub fn forged(verified: Verified) -> Settled {
    Settled(verified)
}
