//! A request that still carries the client's signature cannot be forwarded.

pub async fn early(channel: gateway::origin::Channel, verified: gateway::credential::Verified) {
    let _ = channel.forward(verified).await;
}
