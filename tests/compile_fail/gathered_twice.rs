//! A request is judged once, and what was judged is what goes on.

pub fn twice(policies: &gateway::policy::Policies, gathered: gateway::policy::Gathered) {
    let _ = policies.decide(gathered);
    let _ = policies.decide(gathered);
}
