//! A request is gathered once, and what was gathered is what goes on.

pub async fn twice(policies: &gateway::policy::Policies, identified: gateway::session::Identified, rules: &gateway::policy::KnownRules, budget: gateway::policy::ContentBudget<'_>) {
    let _ = policies.gather(identified, rules, budget).await;
    let _ = policies.gather(identified, rules, budget).await;
}
