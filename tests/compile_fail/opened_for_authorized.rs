//! No address is looked up, and none dialled, before the client's signature was verified.

pub async fn early(origins: &gateway::origin::Origins, authorized: &gateway::policy::Authorized) {
    let _ = origins.open(authorized).await;
}
