//! No address is looked up, and none dialled, before a person lifted what policies ask about.

pub async fn early(origins: &gateway::origin::Origins, verified: &gateway::credential::Verified) {
    let _ = origins.open(verified).await;
}
