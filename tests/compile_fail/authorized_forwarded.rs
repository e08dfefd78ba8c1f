//! What carries phantoms still is not forwarded.

pub async fn early(channel: gateway::origin::Channel, authorized: gateway::policy::Authorized) {
    let _ = channel.forward(authorized).await;
}
