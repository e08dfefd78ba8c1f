//! A request is gathered once, and what was gathered is what goes on.

pub async fn twice(policies: &gateway::policy::Policies, identified: gateway::session::Identified, budget: gateway::policy::ContentBudget<'_>) {
    let _ = policies.gather(identified, budget).await;
    let _ = policies.gather(identified, budget).await;
}
