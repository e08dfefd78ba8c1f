//! A credential use comes from the request, and cannot be changed to another phantom or place.

use gateway::session::Lend;
use gateway::session::phantom::Phantom;

pub fn forged(one: Lend, phantom: Phantom) -> Lend {
    Lend { phantom, ..one }
}

pub fn moved(mut one: Lend) {
    one.place = 1;
}
