//! What carries the client's signature still is not forwarded.

pub async fn early(channel: gateway::origin::Channel, verified: gateway::credential::Verified) {
    let _ = channel.forward(verified).await;
}
