//! No request is judged before what its verdict depends on is known.

pub fn early(policies: &gateway::policy::Policies, identified: gateway::session::Identified) {
    let _ = policies.decide(identified);
}
