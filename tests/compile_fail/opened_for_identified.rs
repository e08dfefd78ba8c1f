//! No address is looked up, and none dialled, before policy has judged.

pub async fn early(origins: &gateway::origin::Origins, identified: &gateway::session::Identified) {
    let _ = origins.open(identified).await;
}
