//! A request is gathered once, and what was gathered is what goes on.

pub async fn twice(policies: &gateway::policy::Policies, identified: gateway::session::Identified, room: gateway::policy::Room<'_>) {
    let _ = policies.gather(identified, room).await;
    let _ = policies.gather(identified, room).await;
}
