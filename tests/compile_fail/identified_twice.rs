//! A request is judged once, and what was judged is what goes on.

pub fn twice(policies: &gateway::policy::Policies, identified: gateway::session::Identified) {
    let _ = policies.decide(identified);
    let _ = policies.decide(identified);
}
