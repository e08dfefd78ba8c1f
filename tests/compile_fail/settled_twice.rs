//! One proof, and one yes, are for one request.

pub async fn twice(credentials: &gateway::credential::Credentials, settled: gateway::credential::Settled) {
    let _ = credentials.attach(settled).await;
    let _ = credentials.attach(settled).await;
}
