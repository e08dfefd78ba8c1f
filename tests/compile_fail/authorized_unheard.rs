//! No request is authorized before the last judge has spoken: policy's word alone is not enough.

use gateway::policy::{Authorized, Decision, Gathered, Objected, Policies};

pub fn early(policies: &Policies, gathered: Gathered) -> Decision {
    policies.decide(gathered)
}

pub fn overruled(objected: Objected) -> Authorized {
    objected.into()
}
