//! No request is judged before what its verdict depends on is known.

use gateway::policy::{Generation, Policies};
use gateway::session::{Bindings, Identified};

pub fn early(policies: &Policies, identified: Identified, latest: (&Generation, &Bindings)) {
    let _ = policies.decide(identified, latest);
}
