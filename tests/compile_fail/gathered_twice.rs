//! A request is judged once, and what was judged is what goes on.

use gateway::policy::{Gathered, Generation, Policies};
use gateway::session::Bindings;

pub fn twice(policies: &Policies, gathered: Gathered, latest: (&Generation, &Bindings)) {
    let _ = policies.decide(gathered, latest);
    let _ = policies.decide(gathered, latest);
}
