//! A request that still carries phantoms cannot be forwarded.

pub async fn early(channel: gateway::origin::Channel, authorized: gateway::policy::Authorized) {
    let _ = channel.forward(authorized).await;
}
